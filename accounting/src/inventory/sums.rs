//! Sums per pool and node, kept by difference.

use rustc_hash::FxHashMap;

use super::{Block, Inventory, NONE, Owner};
use crate::facts::NodeId;
use crate::tracker::PoolId;

/// Pool label of blocks without a pool.
pub const NO_POOL: &str = "no_ippool";
/// Node label of blocks without a host as owner.
pub const NO_AFFINITY: &str = "no_affinity";
/// Node label of allocations without a node attribute.
pub const UNKNOWN_NODE: &str = "unknown_node";

/// What is counted per pool and node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Allocated addresses that are not cooling, by the allocation's node.
    pub in_use: u64,
    /// Those of them in blocks of somebody else; never without node.
    pub borrowed: u64,
    /// Blocks, by owner.
    pub blocks: u64,
}

pub(super) type Sums = FxHashMap<(Option<PoolId>, u32), Sum>;

impl Inventory {
    /// The sums per pool (`None`: no pool) and node (`None`: no node), where any is not zero; in no
    /// particular order.
    #[expect(clippy::disallowed_methods, reason = "said to be in no particular order; readers put them into ordered maps")]
    pub fn sums(&self) -> impl Iterator<Item = (Option<PoolId>, Option<NodeId>, Sum)> + '_ {
        self.sums.iter().map(|((pool, node), sum)| (*pool, super::id(*node).map(NodeId), *sum))
    }

    /// The same sums, counted from nothing: the consistency check.
    pub fn recount(&self) -> FxHashMap<(Option<PoolId>, Option<NodeId>), Sum> {
        let mut sums = Sums::default();
        for (_, block) in self.blocks() {
            count(&mut sums, block, self.tracker.pool_of(block.cidr), 1);
        }
        sums.into_iter().map(|((pool, node), sum)| ((pool, super::id(node).map(NodeId)), sum)).collect()
    }

    pub(super) fn count_block(&mut self, block: &Block, pool: Option<PoolId>, sign: i64) {
        count(&mut self.sums, block, pool, sign);
    }
}

fn add(to: &mut u64, n: u64, sign: i64) {
    *to = if sign > 0 { *to + n } else { *to - n };
}

fn count(sums: &mut Sums, block: &Block, pool: Option<PoolId>, sign: i64) {
    let owner = if let Owner::Host(node) = block.owner { node.0 } else { NONE };
    update(sums, pool, owner, Sum { blocks: 1, ..Sum::default() }, sign);
    for run in block.slots.chunk_by(|a, b| a.node == b.node) {
        let (node, in_use) = (run[0].node, run.len() as u64);
        let borrowed = if node != NONE && node != owner { in_use } else { 0 };
        update(sums, pool, node, Sum { in_use, borrowed, blocks: 0 }, sign);
    }
}

fn update(sums: &mut Sums, pool: Option<PoolId>, node: u32, by: Sum, sign: i64) {
    let sum = sums.entry((pool, node)).or_default();
    add(&mut sum.in_use, by.in_use, sign);
    add(&mut sum.borrowed, by.borrowed, sign);
    add(&mut sum.blocks, by.blocks, sign);
    if *sum == Sum::default() {
        sums.remove(&(pool, node));
    }
}
