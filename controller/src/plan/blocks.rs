//! Cold blocks, and the spare empty blocks of live nodes.

use chrono::TimeDelta;
use ipam::ids::BlockCidr;
use ipam_accounting::facts::NodeId;
use ipam_accounting::inventory::{BlockId, RowState};
use ipam_accounting::schedule::Time;
use ipnet::IpNet;

use super::{Action, Planner};
use crate::ledger::Emptiness;

/// Youngest age of a claim at which a block may be given back (D-71; the seed's `EmptyBlockMinReclaimAge`).
const YOUNGEST: TimeDelta = TimeDelta::minutes(1);

impl Planner<'_> {
    /// Blocks whose first cooling address has cooled (gc.md 11).
    pub(super) fn cold(&mut self, blocks: &[BlockId]) {
        for id in blocks {
            let Some((cidr, since, seq)) = self.view.cache.block(*id).and_then(|b| Some((b.cidr, b.cold_since?, b.seq))) else { continue };
            let kept = self.view.cache.block(*id).is_some_and(|b| self.opt_outs().block(b));
            if kept || !self.policy.in_step || self.view.cache.holds.block(cidr) {
                continue;
            }
            let due = since.checked_add_signed(self.config.cooldown()).unwrap_or(Time::MAX_UTC);
            if due > self.wall && self.config.cooldown() > TimeDelta::zero() {
                self.wake_block(cidr, self.steady(due));
                continue;
            }
            let shown = self.audit() && self.ledger.was_shown(&("collect-cold", cidr.to_string(), seq));
            if shown || self.settling(*id) {
                continue;
            }
            if let Ok(block) = BlockCidr::new(cidr) {
                self.plan.actions.push(Action::CollectCold(block));
            }
        }
    }

    /// Spare empty blocks of a live node: seen empty twice, a grace apart, at the same sequence number; in ascending
    /// order, so that the last one stays (D-17, D-71).
    pub(super) fn empty_blocks(&mut self, name: &str, node: NodeId) {
        let view = self.view;
        let owned: Vec<(IpNet, BlockId)> = view.cache.owned_blocks(node).collect();
        // A node whose object was not understood, or that migrates, keeps everything (gc.md 12.2).
        let steady = view.cache.node_facts(node).is_some_and(|f| !f.migrating);
        if owned.len() < 2 || !steady {
            for (cidr, _) in &owned {
                self.ledger.empties.remove(cidr);
            }
            return;
        }
        let confirmed = |cidr: IpNet| !view.cache.trusts().affinities || view.cache.row_state(node, cidr) == Some(RowState::Confirmed);
        let mut kept = owned.iter().filter(|(cidr, _)| confirmed(*cidr)).count();
        for (cidr, id) in owned {
            let Some(block) = view.cache.block(id) else { continue };
            if !block.is_empty() || view.cache.holds.block(cidr) || !confirmed(cidr) || self.opt_outs().block(block) {
                self.ledger.empties.remove(&cidr);
                continue;
            }
            let known = self.ledger.empties.get(&cidr).copied().filter(|e| e.seq == block.seq);
            let seen = known.unwrap_or(Emptiness { since: self.now, seq: block.seq });
            self.ledger.empties.insert(cidr, seen);
            let Some(due) = self.due(seen, block.claim_time) else { continue };
            if due > self.now {
                self.wake_block(cidr, due);
            } else if kept > 1 && !self.settling(id) {
                kept -= 1;
                self.give_back(name, cidr, Some(block.seq), false);
            }
        }
    }

    fn due(&self, seen: Emptiness, claimed: Option<Time>) -> Option<Time> {
        if self.policy.limits.grace <= TimeDelta::zero() {
            return None;
        }
        let old_enough = claimed.and_then(|t| t.checked_add_signed(YOUNGEST)).map_or(Time::MIN_UTC, |t| self.steady(t));
        Some(seen.since.checked_add_signed(self.policy.limits.grace)?.max(old_enough))
    }

    /// Plans to give a block back, or a row without block.
    pub(super) fn give_back(&mut self, name: &str, cidr: IpNet, seq: Option<i64>, departed: bool) {
        let shown = ("release-block", format!("{name} {cidr}"), seq.unwrap_or(0));
        if self.audit() && self.ledger.was_shown(&shown) {
            return;
        }
        if let Ok(block) = BlockCidr::new(cidr) {
            self.plan.actions.push(Action::ReleaseBlock { node: name.into(), block, seq, departed });
        }
    }
}
