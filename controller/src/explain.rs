//! Why an address is what it is, and what becomes of it (`/explain`).

use std::net::IpAddr;

use ipam_accounting::explain::Explanation;
use ipam_accounting::schedule::Wait;
use ipam_datastore::text::stamp;
use serde_json::{Value, json};

use crate::gauges::Gauges;
use crate::ledger::Ledger;
use crate::plan::{InForce, Now, Policy};
use crate::view::View;

/// What is known of an address, what it waits for, and what would change that.
pub fn explain(view: &View, ledger: &Ledger, policy: &Policy, now: Now, ip: IpAddr) -> Value {
    let explanation = Explanation::of(&view.cache, ip);
    let mut out = json!({
        "ip": ip,
        "block": explanation.block,
        "blockOwner": explanation.block_owner,
        "pool": explanation.pool,
        "reportedBy": explanation.reported_by,
    });
    if let Err(why) = view.gate() {
        out["notDeciding"] = why.to_string().into();
    }
    let Some(a) = &explanation.allocation else {
        out["verdict"] = if explanation.block.is_some() { "not allocated, or cooling" } else { "in no block" }.into();
        return out;
    };
    out["handle"] = json!(a.handle);
    out["seq"] = json!(a.seq);
    out["owner"] = json!(a.owner);
    out["node"] = json!(a.node);
    out["verdict"] = a.verdict.name().into();
    out["rule"] = a.verdict.rule().into();
    out["why"] = a.verdict.why().into();
    out["evidence"] = json!(a.evidence);
    out["wouldChange"] = a.verdict.changes().into();
    out["othersOfHandle"] = a.others.iter().map(|(ip, v)| json!({ "ip": ip, "verdict": v.name(), "why": v.why() })).collect();
    let Some((block, slot)) = view.cache.slot(a.at) else { return out };
    if let Some(because) = InForce::new(&view.cache, &view.annotated, &policy.opt_outs).allocation(block, slot) {
        out["optedOut"] = json!({ "by": because.word() });
    }
    let Some(entry) = ledger.leak(block.cidr, slot.ordinal) else { return out };
    let gauges = Gauges { view, ledger, policy, now };
    out["state"] = gauges.state(block, slot, entry).into();
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
