//! Leaks: judged address by address, released handle by handle.

use ipam::ids::BlockCidr;
use ipam_accounting::facts::{HandleId, NodeId};
use ipam_accounting::inventory::{AllocRef, Block, BlockId, Slot};
use ipam_accounting::schedule::{Group, HeldBy, Member, Wait, group};
use ipam_accounting::{Verdict, judge};
use rustc_hash::FxHashSet;

use super::{Action, Leaked, Planner};

/// What is released together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Together {
    /// A handle.
    Handle(HandleId),
    /// An address without handle.
    Single(AllocRef),
}

impl Planner<'_> {
    /// Judges every allocation of the blocks. Answers with what has a leak, in the order of addresses, and adds the
    /// nodes whose addresses were seen.
    pub(super) fn scan(&mut self, blocks: &[BlockId], nodes: &mut FxHashSet<NodeId>) -> Vec<Together> {
        let (mut leaked, mut known) = (Vec::new(), FxHashSet::default());
        let mut still = Vec::new();
        let cache = &self.view.cache;
        for id in blocks {
            let Some(block) = cache.block(*id) else { continue };
            still.clear();
            let mut last = None;
            for slot in &block.slots {
                if slot.node() != last {
                    last = slot.node();
                    nodes.extend(last);
                }
                let verdict = judge(&cache.allocation(block, slot), cache);
                if matches!(verdict, Verdict::Leaked(_)) {
                    still.push(slot.ordinal);
                    let at = AllocRef { block: *id, ordinal: slot.ordinal };
                    let together = slot.handle().map_or(Together::Single(at), Together::Handle);
                    if known.insert(together) {
                        leaked.push(together);
                    }
                }
            }
            if self.ledger.has_leaks(block.cidr) {
                self.ledger.keep_leaks(block.cidr, &still);
            }
        }
        leaked
    }

    pub(super) fn groups(&mut self, leaked: Vec<Together>) {
        for together in leaked {
            match self.state(together) {
                Group::Open { due: Some(due), with_node: false } if due <= self.now => self.release(together),
                Group::Open { due: Some(due), with_node: false } => {
                    if let Some(at) = self.members(together).first()
                        && let Some(block) = self.view.cache.block(at.block)
                    {
                        self.wake_block(block.cidr, due);
                    }
                }
                // Tunnels go with their node.
                Group::Open { .. } | Group::Held(_) | Group::Quiet => {}
            }
        }
    }

    /// The members of a group, by address.
    pub(super) fn members(&self, together: Together) -> Vec<AllocRef> {
        match together {
            Together::Single(at) => vec![at],
            Together::Handle(handle) => {
                let mut members = self.view.cache.members(handle).to_vec();
                members.sort_by_key(|at| (self.view.cache.block(at.block).map(|b| b.cidr), at.ordinal));
                members
            }
        }
    }

    /// The state of a group now. Every leak of it is remembered, and why it stays, if it does.
    pub(super) fn state(&mut self, together: Together) -> Group {
        let members = self.members(together);
        let view = self.view;
        let mut judged = Vec::with_capacity(members.len());
        for at in &members {
            if let Some((block, slot)) = view.cache.slot(*at) {
                judged.push(self.member(block, slot));
            }
        }
        let handle = if let Together::Handle(handle) = together { Some(handle) } else { None };
        let state = match group(judged, &self.policy.limits) {
            Group::Open { .. } if view.cache.is_held(handle) => Group::Held(HeldBy::BadObject),
            Group::Open { .. } if self.keeps(&members) => Group::Held(HeldBy::OptedOut),
            state => state,
        };
        let held = if let Group::Held(by) = state { Some(by) } else { None };
        for at in &members {
            if let Some(block) = view.cache.block(at.block) {
                self.ledger.set_held(block.cidr, at.ordinal, held);
            }
        }
        state
    }

    /// Whether somebody said that one of these must stay.
    fn keeps(&self, members: &[AllocRef]) -> bool {
        let opt_outs = self.opt_outs();
        members.iter().any(|at| self.view.cache.slot(*at).is_some_and(|(block, slot)| opt_outs.allocation(block, slot).is_some()))
    }

    /// One allocation for the schedule; a leak is remembered.
    pub(super) fn member(&mut self, block: &Block, slot: &Slot) -> Member {
        let mut member = self.view.cache.member(block, slot, self.now);
        if member.wait == Wait::Now && self.left_oddly(slot) {
            member.wait = Wait::Grace;
        }
        let Some(leak) = member.verdict.leak() else { return member };
        let since = self.ledger.see_leak(self.view, block, slot, leak, member.wait, self.now);
        Member { since, ..member }
    }

    /// Plans the release of a group, all of it.
    pub(super) fn release(&mut self, together: Together) {
        let members = self.members(together);
        if members.iter().any(|at| self.settling(at.block)) {
            return;
        }
        let leaked: Vec<Leaked> = members.iter().filter_map(|at| self.leaked(*at)).collect();
        let shown = |l: &Leaked| self.audit() && self.ledger.was_shown(&("release-address", l.ip.to_string(), l.seq));
        if leaked.len() == members.len() && !leaked.is_empty() && !leaked.iter().all(shown) {
            self.plan.actions.push(Action::Release(leaked));
        }
    }

    fn leaked(&self, at: AllocRef) -> Option<Leaked> {
        let cache = &self.view.cache;
        let (block, slot) = cache.slot(at)?;
        Some(Leaked {
            at,
            block: BlockCidr::new(block.cidr).ok()?,
            ip: block.ip(slot),
            handle: slot.handle().map(|h| cache.handle_text(h).into()),
            seq: slot.seq,
            node: slot.node().map(|n| cache.node_text(n).into()),
            owner: cache.owner_text(slot),
            leak: judge(&cache.allocation(block, slot), cache).leak()?,
        })
    }
}
