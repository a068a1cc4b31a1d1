//! What a run tells: the log, Kubernetes events, and the numbers that it counts itself.

use std::collections::BTreeMap;

use ipam_accounting::schedule::Time;
use ipam_datastore::live::traffic::{BUCKETS, Durations};
use ipam_datastore::text::stamp;
use ipam_metrics::Samples;
use ipam_metrics::further as series;

use crate::events::{Regarding, Teller};
use crate::execute::Refusal;
use crate::ledger::Totals;
use crate::pass::{Class, PassReport};
use crate::plan::Mode;
use crate::timeline::Event;

/// Actions as D-47 calls them.
pub const ACTIONS: [&str; 4] = ["release-address", "collect-cold", "release-block", "release-host"];

/// What a process counts.
#[derive(Debug, Default)]
pub struct Tally {
    passes: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<Refusal, u64>,
    failures: BTreeMap<(&'static str, Class), u64>,
    /// Rows repaired, by kind of finding.
    pub repairs: BTreeMap<&'static str, u64>,
    /// How long passes took, by phase.
    pub durations: BTreeMap<&'static str, Durations>,
    /// When the last pass ended in which nothing failed, by the wall clock.
    pub last_ok: Option<Time>,
    /// We have no right to do something: since when, and what.
    pub forbidden: Option<String>,
    /// It was active once.
    pub was_active: bool,
}

impl Tally {
    /// One of a process that is active.
    pub fn of_an_active_one() -> Self {
        Self { was_active: true, ..Self::default() }
    }

    /// Takes over what a pass did.
    pub fn pass(&mut self, done: &PassReport, wall: Time) {
        let result = match (&done.not_ready, done.failures.is_empty()) {
            (Some(_), _) => "not_ready",
            (None, true) => "ok",
            (None, false) => "failed",
        };
        *self.passes.entry(result).or_default() += 1;
        if result == "ok" {
            self.last_ok = Some(wall);
        }
        for (refusal, _) in &done.refusals {
            *self.refusals.entry(*refusal).or_default() += 1;
        }
        for failure in &done.failures {
            self.failure(failure.action, failure.class, &failure.text);
        }
        let wrote = done.events.iter().any(|e| ACTIONS.contains(&e.action));
        if wrote && done.failures.iter().all(|f| f.class != Class::Forbidden) {
            self.forbidden = None;
        }
    }

    /// Counts a failure.
    pub fn failure(&mut self, action: &'static str, class: Class, text: &str) {
        *self.failures.entry((action, class)).or_default() += 1;
        if class == Class::Forbidden {
            self.forbidden = Some(text.into());
        }
    }

    /// How long a phase of a pass took.
    pub fn took(&mut self, phase: &'static str, seconds: f64) {
        self.durations.entry(phase).or_default().add(seconds);
    }

    /// The samples.
    pub fn samples(&self, totals: &Totals, active: bool) -> Samples {
        let mut out = Samples::default();
        for result in ["ok", "not_ready", "failed"] {
            out.count(&series::PASSES, &[result], self.passes.get(result).copied().unwrap_or(0));
        }
        for (phase, d) in &self.durations {
            out.histogram(&series::PASS_SECONDS, &[phase], &BUCKETS, &d.counts, d.count, d.sum);
        }
        if let Some(at) = self.last_ok.filter(|_| active) {
            out.set(&series::LAST_PASS, &[], at.timestamp() as f64);
        }
        if !self.was_active {
            return out;
        }
        for refusal in Refusal::ALL {
            out.count(&series::REFUSALS, &[refusal.word()], self.refusals.get(&refusal).copied().unwrap_or(0));
        }
        for action in ACTIONS.into_iter().chain(["repair"]) {
            for class in Class::ALL {
                let n = self.failures.get(&(action, class)).copied().unwrap_or(0);
                out.count(&series::FAILURES, &[action, class.word()], n);
            }
        }
        for ((pool, reason), n) in &totals.by_reason {
            out.count(&series::RECLAIMED, &[pool, reason], *n);
        }
        for (pool, n) in &totals.collected {
            out.count(&series::COLLECTED, &[pool], *n);
        }
        for (pool, n) in &totals.blocks_freed {
            out.count(&series::FREED, &[pool], *n);
        }
        out.count(&series::CLEANED, &[], totals.nodes_cleaned);
        for kind in ipam::audit::FindingKind::ALL {
            out.count(&series::REPAIRS, &[kind.name()], self.repairs.get(kind.name()).copied().unwrap_or(0));
        }
        out
    }
}

/// The audit trail: one line per event, with everything that a person needs to follow it.
pub fn log(e: &Event, mode: Mode, simulated: bool) {
    let would = mode == Mode::Audit;
    let (ip, block) = (e.ip.map(|ip| ip.to_string()), e.block.as_deref());
    let (handle, node, owner) = (e.handle.as_deref(), e.node.as_deref(), e.owner.as_deref());
    let Some(trail) = &e.trail else {
        let ips: Vec<String> = e.ips.iter().map(ToString::to_string).collect();
        let ips = (!ips.is_empty()).then(|| ips.join(","));
        tracing::info!(action = e.action, audit = would, simulated, block, node, ips, why = %e.why, "{}", message(e.action, would));
        return;
    };
    let (seq, pool, evidence) = (trail.seq, trail.pool.as_str(), trail.evidence.as_str());
    let since = trail.since.map(stamp);
    let message = message(e.action, would);
    tracing::info!(action = e.action, audit = would, simulated, ip, handle, seq, block, pool, node, owner, why = %e.why, since, evidence, "{message}");
}

fn message(action: &str, would: bool) -> &'static str {
    match (action, would) {
        ("release-address", false) => "address released",
        ("release-address", true) => "address would be released",
        ("collect-cold", false) => "cooled addresses freed",
        ("collect-cold", true) => "cooled addresses would be freed",
        ("release-block", false) => "block given back",
        ("release-block", true) => "block would be given back",
        (_, false) => "departed node cleaned up",
        (_, true) => "departed node would be cleaned up",
    }
}

/// What of a pass becomes Kubernetes events.
pub fn events(done: &PassReport, mode: Mode, teller: &mut Teller) {
    for e in &done.events {
        let node = e.node.clone().map(Regarding::Node);
        match (e.action, &e.trail, mode) {
            ("release-address", Some(trail), _) => {
                let about = node.unwrap_or_else(|| Regarding::Pool(trail.pool.clone()));
                let reason = if mode == Mode::Audit { "AddressesWouldBeReclaimed" } else { "AddressesReclaimed" };
                teller.count(
                    about,
                    reason,
                    e.action,
                    &trail.leak.word().replace('_', " "),
                    e.ip.map(|ip| ip.to_string()).unwrap_or_default(),
                );
            }
            ("release-block", _, Mode::Enforce) => {
                let Some(node) = node else { continue };
                teller.count(node, "BlocksFreed", e.action, "empty", e.block.clone().unwrap_or_default());
            }
            ("release-host", _, Mode::Enforce) => {
                if let Some(node) = node {
                    teller.say(node, "NodeCleaned", false, "Gave back all blocks of the departed node");
                }
            }
            _ => {}
        }
    }
}
