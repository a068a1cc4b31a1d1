//! Why an address is what it is, and what becomes of it (`/explain`).

use std::net::IpAddr;

use ipam_accounting::explain::Explanation;
use ipam_accounting::schedule::Wait;
use ipam_datastore::explained;
use ipam_datastore::text::stamp;
use serde_json::{Value, json};

use crate::plan::InForce;
use crate::scene::Scene;

/// What is known of an address, what it waits for, and what would change that.
pub fn explain(scene: &Scene<'_>, ip: IpAddr) -> Value {
    let Scene { view, ledger, policy, now, .. } = *scene;
    let explanation = Explanation::of(&view.cache, ip);
    let mut out = explained(&explanation);
    if let Err(why) = view.gate() {
        out["notDeciding"] = why.to_string().into();
    }
    let Some(a) = &explanation.allocation else { return out };
    let Some((block, slot)) = view.cache.slot(a.at) else { return out };
    if let Some(because) = InForce::new(&view.cache, &view.annotated, &policy.opt_outs).allocation(block, slot) {
        out["optedOut"] = json!({ "by": because.word() });
    }
    let Some(entry) = ledger.leak(block.cidr, slot.ordinal) else { return out };
    out["state"] = scene.gauges().state(block, slot, entry).into();
    out["since"] = stamp(now.wall(entry.since)).into();
    out["waitsFor"] = waits_for(entry.wait).into();
    if let Some(due) = policy.limits.due(entry.wait, entry.since) {
        out["due"] = stamp(now.wall(due)).into();
    }
    if let Some(by) = entry.held {
        out["held"] = by.why().into();
    }
    out
}

fn waits_for(wait: Wait) -> &'static str {
    match wait {
        Wait::Now => "nothing: its node is gone",
        Wait::Grace => "the grace period",
        Wait::VmGrace => "the grace period of VMs",
        Wait::WithNode => "everything else of its node",
    }
}
