//! One pass, start to end: plan, act, remember.

use std::collections::BTreeMap;

use ipam::{Clock, Datastore, Ipam};
use ipam_accounting::inventory::{NO_POOL, UNKNOWN_NODE};
use ipam_accounting::schedule::Time;
use ipnet::IpNet;

use crate::execute::{Done, Result, execute};
use crate::ledger::Ledger;
use crate::look::LastLook;
use crate::plan::brake::counts;
use crate::plan::{Action, Counted, Mode, Policy, plan};
use crate::timeline::Event;
use crate::view::{NotReady, View};

/// What a pass did.
#[derive(Debug, Default)]
pub struct PassReport {
    /// What was done, or shown in audit mode.
    pub events: Vec<Event>,
    /// What went wrong, in words.
    pub failures: Vec<String>,
    /// When something is due next.
    pub next_due: Option<Time>,
    /// Nothing was decided, and why.
    pub not_ready: Option<NotReady>,
    /// The brake is engaged, and what was counted.
    pub braked: Option<Counted>,
}

/// Runs one pass at the clock's time.
pub async fn pass<S: Datastore, C: Clock>(
    view: &mut View,
    ledger: &mut Ledger,
    ipam: &Ipam<S, C>,
    look: &impl LastLook,
    policy: &Policy,
    now: Time,
) -> PassReport {
    let config = match view.gate() {
        Ok(config) => config,
        Err(why) => return PassReport { not_ready: Some(why), ..PassReport::default() },
    };
    let dirty = view.take_dirty();
    let mut plan = plan(view, ledger, dirty, now, policy, &config);
    let mut report = PassReport::default();
    if policy.mode == Mode::Audit {
        show(&plan.actions, view, ledger, now, &mut report);
    } else if !plan.actions.is_empty() {
        let results = execute(&plan.actions, view, ipam, look, &config).await;
        absorb(results, view, ledger, now, &mut report);
        plan.next_due = ledger.timers.next();
    }
    report.next_due = plan.next_due;
    report.braked = ledger.brake.engaged();
    report
}

/// Audit mode: each decision once (D-49), and nothing written.
fn show(actions: &[Action], view: &View, ledger: &mut Ledger, now: Time, report: &mut PassReport) {
    for action in actions {
        match action {
            Action::Release(members) => {
                for m in members {
                    if ledger.show(("release-address", m.ip.to_string(), m.seq)) {
                        report.events.push(Event::of(now, &Action::Release(vec![m.clone()]), Vec::new()));
                    }
                }
            }
            Action::CollectCold(block) => {
                let seq = view.cache.block_of(block.net()).map_or(0, |(_, b)| b.seq);
                if ledger.show(("collect-cold", block.to_string(), seq)) {
                    report.events.push(Event::of(now, action, Vec::new()));
                }
            }
            Action::ReleaseBlock { node, block, seq, .. } => {
                if ledger.show(("release-block", format!("{node} {block}"), seq.unwrap_or(0))) {
                    report.events.push(Event::of(now, action, Vec::new()));
                }
            }
            Action::ReleaseHost(_) => {}
        }
    }
}

/// Remembers what became of the actions. The view is not edited: the feed will tell.
fn absorb(results: Vec<Result>, view: &View, ledger: &mut Ledger, now: Time, report: &mut PassReport) {
    let mut blocks: BTreeMap<IpNet, bool> = BTreeMap::new();
    for Result { action, done } in results {
        let block = match &action {
            Action::Release(members) => Some(members[0].block.net()),
            Action::CollectCold(block) | Action::ReleaseBlock { block, .. } => Some(block.net()),
            Action::ReleaseHost(_) => None,
        };
        if let Some(block) = block {
            *blocks.entry(block).or_insert(true) &= matches!(done, Done::Done(_) | Done::Gone);
        }
        match done {
            Done::Done(ips) => {
                if let Action::Release(members) = &action {
                    if view.cache.slot(members[0].at).is_some_and(|(_, slot)| counts(view, slot)) {
                        ledger.brake.released(now);
                    }
                    let pool = view.cache.tracker.pool_of(members[0].block.net()).map_or(NO_POOL, |p| view.cache.tracker.pool_name(p));
                    let node = members[0].node.as_deref().unwrap_or(UNKNOWN_NODE);
                    *ledger.reclaimed.entry((pool.into(), node.into())).or_default() += 1;
                }
                report.events.push(Event::of(now, &action, ips));
            }
            Done::Gone | Done::Stale => {}
            Done::Refused(why) => report.failures.push(format!("{}: {why}", Event::of(now, &action, Vec::new()).line(now))),
            Done::Failed(why) | Done::Unknown(why) => {
                report.failures.push(format!("{}: {why}", Event::of(now, &action, Vec::new()).line(now)))
            }
        }
    }
    for (block, worked) in blocks {
        if let Some((_, b)) = view.cache.block_of(block) {
            let revision = b.revision.clone();
            ledger.act(block, &revision, now, worked);
        }
    }
}
