//! Rows held against the blocks (D-18, D-50): what the last audit found, and which findings may be repaired.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use ipam::audit::{Finding, Snapshot, Subject, SubjectRow, audit};
use ipam::ids::Owner;
use ipam::repair::{RepairError, Repaired};
use ipam::{Clock, Datastore, Ipam};
use ipam_accounting::schedule::Time;
use ipnet::IpNet;

use crate::config::IndexRepair;
use crate::execute::Pulse;
use crate::plan::{InForce, Now, Policy};
use crate::view::View;

/// What was found, and since when.
#[derive(Debug, Default)]
pub struct Upkeep {
    /// Findings of the last audit, each with when it was seen first just so: at this revision.
    findings: BTreeMap<Finding, Time>,
    /// When the last audit ended, by the wall clock.
    pub at: Option<Time>,
    /// When the next one is due.
    next: Option<Time>,
}

/// What became of the repairs of an audit.
#[derive(Debug, Default)]
pub struct Repairs {
    /// Findings that are repaired.
    pub done: Vec<Finding>,
    /// How many rows have changed since they were looked at.
    pub stale: usize,
    /// What failed, with what the store said.
    pub failed: Vec<(Finding, RepairError)>,
}

impl Upkeep {
    /// What the last audit found.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.keys()
    }

    /// Whether an audit is due.
    pub fn due(&self, now: Time) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// None for so long: one could not be read.
    pub fn postpone(&mut self, until: Time) {
        self.next = Some(until);
    }

    /// Takes over what an audit of `snapshot` finds; answers with the kinds of which there were none before.
    pub fn observe(&mut self, snapshot: &Snapshot, view: &View, now: Now) -> BTreeSet<&'static str> {
        let before: BTreeSet<&str> = self.findings.keys().map(|f| f.kind.name()).collect();
        let found = audit(snapshot, Some(&view.cache), now.wall);
        let known = std::mem::take(&mut self.findings);
        self.findings = found.into_iter().map(|f| (f.clone(), known.get(&f).copied().unwrap_or(now.steady))).collect();
        self.at = Some(now.wall);
        self.findings.keys().map(|f| f.kind.name()).filter(|kind| !before.contains(kind)).collect()
    }

    /// Sets when the next audit is due: after the interval, or as soon as a finding has been there for a grace and may be repaired.
    pub fn schedule(&mut self, interval: TimeDelta, repair: IndexRepair, policy: &Policy, now: Time) {
        let waits =
            self.findings.iter().filter(|(f, _)| repairable(f)).map(|(_, since)| *since + policy.limits.grace).filter(|at| *at > now);
        let soon = waits.min().filter(|_| repair == IndexRepair::Repair && policy.limits.grace > TimeDelta::zero());
        let regular = now + interval;
        self.next = Some(soon.map_or(regular, |soon| soon.min(regular)));
    }

    /// The findings that may be repaired: seen twice, a grace apart, at an unchanged revision, and not opted out.
    pub fn due_repairs(&self, view: &View, repair: IndexRepair, policy: &Policy, now: Time) -> Vec<Finding> {
        let grace = policy.limits.grace;
        if repair != IndexRepair::Repair || !policy.writes() || grace <= TimeDelta::zero() {
            return Vec::new();
        }
        let opt_outs = InForce::new(&view.cache, &view.annotated, &policy.opt_outs);
        let old = self.findings.iter().filter(|(f, since)| repairable(f) && now - **since >= grace && !kept(f, &opt_outs));
        old.map(|(f, _)| f.clone()).collect()
    }

    /// Repairs them; what is repaired, or has changed, is no finding any more.
    pub async fn repair<S: Datastore, C: Clock>(&mut self, due: Vec<Finding>, ipam: &Ipam<S, C>, pulse: &impl Pulse, now: Time) -> Repairs {
        let mut repairs = Repairs::default();
        for finding in due {
            pulse.beat();
            if !pulse.go_on() {
                break;
            }
            match ipam.repair(&finding).await {
                Ok(Repaired::Done) => {
                    self.findings.remove(&finding);
                    repairs.done.push(finding);
                }
                Ok(Repaired::Stale) => {
                    self.findings.remove(&finding);
                    repairs.stale += 1;
                }
                // These wait as long again.
                Ok(Repaired::NoRule) => {
                    self.findings.insert(finding, now);
                }
                Err(e) => {
                    self.findings.insert(finding.clone(), now);
                    repairs.failed.push((finding, e));
                }
            }
        }
        repairs
    }
}

fn repairable(finding: &Finding) -> bool {
    finding.subject.is_some()
}

/// Whether somebody said that the rows of a finding must stay as they are.
fn kept(finding: &Finding, opt_outs: &InForce<'_>) -> bool {
    let Some(Subject { row, .. }) = &finding.subject else { return false };
    match row {
        SubjectRow::Block(cidr) => opt_outs.rows(&[cidr.net()], None),
        SubjectRow::Affinity(Owner::Host(node), cidr) => opt_outs.rows(&[cidr.net()], Some(node)),
        SubjectRow::Affinity(Owner::Virtual(_), cidr) => opt_outs.rows(&[cidr.net()], None),
        SubjectRow::Handle(_, blocks) => opt_outs.rows(&blocks.iter().map(|b| b.net()).collect::<Vec<IpNet>>(), None),
    }
}
