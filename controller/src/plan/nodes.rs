//! Nodes that are gone (D-42).

use ipam_accounting::facts::{Class, NodeId};
use ipam_accounting::inventory::{AllocRef, BlockId};
use ipam_accounting::schedule::{Group, NodeState, departed};
use ipnet::IpNet;

use super::leaks::Together;
use super::{Action, Planner};
use crate::ledger::Subject;

impl Planner<'_> {
    /// Once every address of the node is a confirmed leak or cooling, its tunnels go; from then on each empty block and
    /// each row without block; with the last one the node.
    pub(super) fn departed(&mut self, name: &str, node: NodeId) {
        self.ledger.timers.clear(Subject::Node(node));
        let view = self.view;
        if view.cache.holds.node(name) {
            return;
        }
        if self.opt_outs().touches(node) {
            return;
        }
        if let Some(since) = self.ledger.departures.waits(name)
            && self.now < since + self.policy.limits.grace
        {
            return self.ledger.timers.lower(Subject::Node(node), since + self.policy.limits.grace);
        }
        match self.node_state(node) {
            NodeState::Occupied | NodeState::Waits(None) => return,
            NodeState::Waits(Some(at)) => return self.ledger.timers.lower(Subject::Node(node), at),
            NodeState::Ready => {}
        }
        let mut tunnels: Vec<AllocRef> = view
            .cache
            .allocations_of(node)
            .filter(|(_, _, s)| s.class() == Class::Tunnel)
            .map(|(id, _, s)| AllocRef { block: id, ordinal: s.ordinal })
            .collect();
        tunnels.sort_unstable();
        for at in tunnels {
            let together = view.cache.slot(at).and_then(|(_, s)| s.handle()).map_or(Together::Single(at), Together::Handle);
            if self.tunnel_may_go(together) {
                self.release(together);
            }
        }
        let owned: Vec<(IpNet, BlockId)> = view.cache.owned_blocks(node).collect();
        let mut left = 0;
        for (cidr, id) in &owned {
            let seq = view.cache.block(*id).filter(|b| b.is_empty()).map(|b| b.seq);
            if seq.is_some() && !view.cache.holds.block(*cidr) && !self.settling(*id) {
                self.give_back(name, *cidr, seq, true);
            } else {
                left += 1;
            }
        }
        let rows: Vec<IpNet> = view.cache.rows(node).map(|(cidr, _)| cidr).collect();
        for cidr in rows.iter().filter(|c| view.cache.block_of(**c).is_none() && !view.cache.holds.block(**c)) {
            self.give_back(name, *cidr, None, true);
        }
        let anything = !owned.is_empty() || !rows.is_empty();
        // In audit mode this would only follow from a write (D-49).
        if left == 0 && anything && !self.audit() && !view.cache.holds.all_blocks {
            self.plan.actions.push(Action::ReleaseHost(name.into()));
        }
    }

    fn node_state(&mut self, node: NodeId) -> NodeState {
        let view = self.view;
        let members: Vec<_> = view.cache.allocations_of(node).collect();
        let members: Vec<_> = members.into_iter().map(|(_, block, slot)| self.member(block, slot)).collect();
        departed(members, &self.policy.limits, self.now)
    }

    /// Whether all of a tunnel's handle is leaked, has waited, and belongs to nodes that are ready.
    fn tunnel_may_go(&mut self, together: Together) -> bool {
        let Group::Open { due: Some(due), .. } = self.state(together) else { return false };
        let nodes: Vec<NodeId> = self.members(together).iter().filter_map(|at| self.view.cache.slot(*at)?.1.node()).collect();
        due <= self.now && nodes.into_iter().all(|n| self.node_state(n) == NodeState::Ready)
    }
}
