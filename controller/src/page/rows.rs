//! What the pages list.

use std::collections::BTreeMap;
use std::net::IpAddr;

use chrono::TimeDelta;
use ipam_accounting::inventory::{AllocRef, Block, Owner, Slot};
use ipam_accounting::judge;
use ipam_accounting::schedule::Time;
use ipam_accounting::tracker::Counts;
use ipnet::IpNet;

use crate::gauges::{Gauges, InBlocks};
use crate::ledger::LeakEntry;
use crate::plan::{Action, Now, Plan, plan};
use crate::scene::Scene;

/// A pool.
pub struct PoolRow {
    /// Its name.
    pub name: String,
    /// Its range.
    pub cidr: String,
    /// Its counts.
    pub counts: Counts,
    /// Available addresses in blocks that somebody has.
    pub claimed_available: u128,
    /// Blocks that somebody has.
    pub blocks: u64,
    /// Blocks that nobody has.
    pub unclaimed: u128,
    /// Leaked addresses.
    pub leaks: u64,
}

impl PoolRow {
    /// Share of the usable addresses that is taken; without usable ones nothing is.
    pub fn fill(&self) -> f64 {
        self.counts.fill().unwrap_or(0.0)
    }

    /// Share of the available addresses that lies in blocks that somebody has.
    pub fn fragmentation(&self) -> f64 {
        if self.counts.available == 0 { 0.0 } else { self.claimed_available as f64 / self.counts.available as f64 }
    }
}

/// A block.
pub struct BlockRow {
    /// Its range.
    pub cidr: IpNet,
    /// Its pool.
    pub pool: String,
    /// The node that has it.
    pub node: Option<String>,
    /// Its counts.
    pub counts: Counts,
    /// Leaked addresses in it.
    pub leaks: usize,
}

impl BlockRow {
    /// Share of its addresses that is in use.
    pub fn share(&self) -> f64 {
        self.counts.in_use as f64 / (self.counts.capacity as f64).max(1.0)
    }

    /// Who has it, in words.
    pub fn owner(&self) -> &str {
        self.node.as_deref().unwrap_or("no node")
    }
}

/// An allocated address.
pub struct AddressRow {
    /// The address.
    pub ip: IpAddr,
    /// Its pool.
    pub pool: String,
    /// Of whom.
    pub owner: String,
    /// The node that its owner attributes name.
    pub node: String,
    /// What it is judged to be.
    pub verdict: &'static str,
    /// Why.
    pub why: &'static str,
    /// State of a leak.
    pub state: &'static str,
    /// Since when a leak is known, by the clock of timers.
    pub since: Option<Time>,
    /// When it is due.
    pub due: Option<Time>,
    /// Why a leak stays.
    pub held: Option<&'static str>,
}

impl Scene<'_> {
    /// All pools, by name.
    pub fn pools(&self) -> Vec<PoolRow> {
        let (cache, gauges) = (&self.view.cache, self.gauges());
        let in_blocks = gauges.in_blocks();
        let mut leaks: BTreeMap<&str, u64> = BTreeMap::new();
        self.ledger.leaks().for_each(|(block, _, _)| *leaks.entry(cache.pool_text(block)).or_default() += 1);
        let mut rows: Vec<PoolRow> = Vec::new();
        for (name, id, counts) in gauges.pool_counts().iter().copied() {
            let Some(pool) = self.view.pools().find(|p| p.key == name) else { continue };
            let cidr = pool.value.cidr.as_ref().map_or_else(|_| "not valid".into(), ToString::to_string);
            let unclaimed = cache.tracker.blocks_unclaimed(id, pool.value.block_size);
            let InBlocks { blocks, available: claimed_available, .. } = in_blocks.get(name).copied().unwrap_or_default();
            let leaks = leaks.get(name).copied().unwrap_or(0);
            rows.push(PoolRow { name: name.into(), cidr, counts, claimed_available, blocks, unclaimed, leaks });
        }
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    /// A block.
    pub fn block(&self, block: &Block) -> BlockRow {
        let cache = &self.view.cache;
        BlockRow {
            cidr: block.cidr,
            pool: self.view.cache.pool_text(block.cidr).into(),
            node: if let Owner::Host(node) = block.owner { Some(cache.node_text(node).into()) } else { None },
            counts: cache.tracker.block_counts(block.cidr).unwrap_or_default(),
            leaks: self.ledger.leaks_in(block.cidr),
        }
    }

    /// The blocks of a pool, a node, or all, by range.
    pub fn blocks(&self, pool: Option<&str>, node: Option<&str>) -> Vec<BlockRow> {
        let wanted = |r: &BlockRow| pool.is_none_or(|p| p == r.pool) && node.is_none_or(|n| r.node.as_deref() == Some(n));
        let mut rows: Vec<BlockRow> = self.view.cache.blocks().map(|(_, b)| self.block(b)).filter(wanted).collect();
        rows.sort_by_key(|r| r.cidr);
        rows
    }

    /// An allocated address.
    fn address(&self, gauges: &Gauges<'_>, block: &Block, slot: &Slot) -> AddressRow {
        let cache = &self.view.cache;
        let verdict = judge(&cache.allocation(block, slot), cache);
        let entry = self.ledger.leak(block.cidr, slot.ordinal);
        AddressRow {
            ip: block.ip(slot),
            pool: self.view.cache.pool_text(block.cidr).into(),
            owner: cache.owner_text(slot).unwrap_or_default(),
            node: slot.node().map_or_else(String::new, |n| cache.node_text(n).into()),
            verdict: verdict.name(),
            why: verdict.why(),
            state: entry.map_or("", |e| gauges.state(block, slot, e)),
            since: entry.map(|e| e.since),
            due: entry.and_then(|e| self.policy.limits.due(e.wait, e.since)),
            held: entry.and_then(|e| e.held).map(|by| by.why()),
        }
    }

    /// One allocated address.
    pub fn one(&self, at: AllocRef) -> Option<AddressRow> {
        self.view.cache.slot(at).map(|(block, slot)| self.address(&self.gauges(), block, slot))
    }

    /// The addresses of a block, by address.
    pub fn addresses(&self, block: &Block) -> Vec<AddressRow> {
        let gauges = self.gauges();
        block.slots.iter().map(|slot| self.address(&gauges, block, slot)).collect()
    }

    /// The leaks that are known, at most `most`: what goes first is first, what is held last.
    pub fn leaks(&self, most: usize) -> Vec<AddressRow> {
        let (cache, gauges) = (&self.view.cache, self.gauges());
        let due = |e: &LeakEntry| self.policy.limits.due(e.wait, e.since);
        let mut all: Vec<_> =
            self.ledger.leaks().map(|(block, o, e)| ((e.held.is_some(), due(e).is_none(), due(e), block, o), (block, o))).collect();
        all.sort_unstable();
        let slots = all.iter().filter_map(|(_, (block, o))| cache.block_of(*block).and_then(|(_, b)| Some((b, b.slot(*o)?))));
        slots.take(most).map(|(block, slot)| self.address(&gauges, block, slot)).collect()
    }

    /// Addresses whose owner or node is called so, the first `most`.
    pub fn search(&self, part: &str, most: usize) -> Vec<AddressRow> {
        let (cache, gauges) = (&self.view.cache, self.gauges());
        let called = |slot: &Slot| {
            slot.node().is_some_and(|n| cache.node_text(n).contains(part)) || cache.owner_text(slot).is_some_and(|o| o.contains(part))
        };
        let mut blocks: Vec<&Block> = cache.blocks().map(|(_, b)| b).collect();
        blocks.sort_unstable_by_key(|b| b.cidr);
        let all = blocks.into_iter().flat_map(|b| b.slots.iter().map(move |slot| (b, slot)));
        all.filter(|(_, slot)| called(slot)).take(most).map(|(block, slot)| self.address(&gauges, block, slot)).collect()
    }

    /// What the next pass is to do, and when: planned as that pass will plan it, from a copy of what is remembered.
    pub fn next_plan(&self) -> Option<(Time, Plan)> {
        let config = self.view.gate().ok()?;
        let mut ledger = self.ledger.clone();
        let at = ledger.timers.next()?.max(self.now.steady);
        let now = Now { steady: at, wall: self.now.wall(at) };
        let plan = plan(self.view, &mut ledger, Default::default(), now, self.policy, &config);
        Some((at, plan))
    }
}

/// An action in words: what, of what, why.
pub fn words(action: &Action) -> (&'static str, String, &'static str) {
    match action {
        Action::Release(members) => {
            let ips: Vec<String> = members.iter().map(|m| m.ip.to_string()).collect();
            ("release addresses", ips.join(", "), members.first().map_or("", |m| m.leak.why()))
        }
        Action::CollectCold(block) => ("free cooled addresses", block.to_string(), "their cooldown is over"),
        Action::ReleaseBlock { node, block, .. } => ("give a block back", format!("{block} of {node}"), "it is empty"),
        Action::ReleaseHost(node) => ("clean a node up", node.clone(), "it is gone, and nothing of it is left"),
    }
}

/// A span of time as people say it.
pub fn span(span: TimeDelta) -> String {
    let s = span.num_seconds();
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}
