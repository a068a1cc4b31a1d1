//! View, ledger and policy → the further gauges of the cluster (operator.md b), counted anew each time.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use ipam::model::{Config, Pool};
use ipam::pools::{Family, enabled};
use ipam::store::Row;
use ipam_accounting::facts::NodeId;
use ipam_accounting::inventory::{Block, NO_POOL, Owner, Slot};
use ipam_accounting::schedule::{HeldBy, Member, NodeState, Time, Wait, departed};
use ipam_accounting::tracker::{Counts, PoolId};
use ipam_accounting::{Evidence as _, Verdict, judge};
use ipam_metrics::Samples;
use ipam_metrics::further as series;
use ipnet::IpNet;

use crate::ledger::{LeakEntry, Ledger};
use crate::plan::brake::counts;
use crate::plan::{Because, BrakeState, InForce, Mode, Now, Policy};
use crate::view::View;

/// Blocks that a node may have where nobody set a limit (D-5).
const BLOCK_LIMIT: u64 = 20;

/// Families, and how series call them.
pub const FAMILIES: [(Family, &str); 2] = [(Family::V4, "4"), (Family::V6, "6")];

/// States of a leak, the first that fits.
pub const LEAK_STATES: [&str; 9] = ["opted_out", "handle_held", "with_node", "grace", "gc_off", "audit", "paused", "brake", "due"];
/// States of a departed node.
pub const NODE_STATES: [&str; 6] = ["due", "grace", "cooling", "in_use", "unknown", "opted_out"];

/// What the blocks of a pool hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct InBlocks {
    /// How many blocks.
    pub blocks: u64,
    /// Available addresses in them.
    pub available: u128,
    /// Blocks of a node without an allocated address.
    pub empty: u64,
    /// Cooling addresses.
    pub cooling: u64,
}

/// What the gauges look at.
pub struct Gauges<'a> {
    /// The cache.
    pub view: &'a View,
    /// The memory.
    pub ledger: &'a Ledger,
    /// What is obeyed.
    pub policy: &'a Policy,
    /// The time.
    pub now: Now,
    /// Counted once, for gauges and events.
    pools: OnceCell<Vec<(&'a str, PoolId, Counts)>>,
    departed: OnceCell<Vec<(NodeId, &'static str)>>,
}

impl<'a> Gauges<'a> {
    /// Nothing is counted yet.
    pub fn new(view: &'a View, ledger: &'a Ledger, policy: &'a Policy, now: Now) -> Self {
        Self { view, ledger, policy, now, pools: OnceCell::new(), departed: OnceCell::new() }
    }

    /// The counts of every pool.
    pub fn pool_counts(&self) -> &[(&'a str, PoolId, Counts)] {
        let tracker = &self.view.cache.tracker;
        self.pools.get_or_init(|| tracker.pools().map(|(name, id, _)| (name, id, tracker.pool_counts(id))).collect())
    }

    /// The departed nodes that are not cleaned up yet, and how far each is.
    pub fn departed(&self) -> &[(NodeId, &'static str)] {
        let cache = &self.view.cache;
        let gone = || cache.concerned_nodes().filter(|n| cache.node(*n).is_absent());
        self.departed.get_or_init(|| gone().map(|node| (node, self.node_state(node))).collect())
    }

    fn opt_outs(&self) -> InForce<'_> {
        InForce::new(&self.view.cache, &self.view.annotated, &self.policy.opt_outs)
    }

    /// What the blocks of each pool hold, by the pool's name; what has no pool as [`NO_POOL`].
    pub fn in_blocks(&self) -> BTreeMap<&'a str, InBlocks> {
        let cache = &self.view.cache;
        let mut pools: BTreeMap<&str, InBlocks> = BTreeMap::new();
        for (_, block) in cache.blocks() {
            let pool = pools.entry(cache.pool_text(block.cidr)).or_default();
            pool.blocks += 1;
            pool.available += cache.tracker.block_counts(block.cidr).map_or(0, |c| c.available);
            pool.empty += u64::from(matches!(block.owner, Owner::Host(_)) && block.is_empty());
            pool.cooling += u64::from(block.cooling);
        }
        pools
    }

    /// The state of a leak that is remembered.
    pub fn state(&self, block: &Block, slot: &Slot, entry: &LeakEntry) -> &'static str {
        if self.opt_outs().allocation(block, slot).is_some() {
            return "opted_out";
        }
        if entry.held.is_some() {
            return "handle_held";
        }
        if entry.wait == Wait::WithNode {
            return "with_node";
        }
        match self.policy.limits.due(entry.wait, entry.since) {
            None => "gc_off",
            Some(due) if due > self.now.steady => "grace",
            _ if self.policy.mode == Mode::Audit => "audit",
            _ if self.policy.paused => "paused",
            _ if self.ledger.brake.state() == BrakeState::Engaged && counts(self.view, slot) => "brake",
            _ => "due",
        }
    }

    /// All of them.
    pub fn samples(&self, config: &Config) -> Samples {
        let mut out = Samples::default();
        self.pools(config, &mut out);
        self.leaks(&mut out);
        self.departed_nodes(&mut out);
        out.set(&series::GRACE, &[], self.policy.limits.grace.as_seconds_f64());
        for because in Because::ALL {
            out.count(&series::OPT_OUTS, &[because.word()], self.opt_outs().count(because));
        }
        out.set(&series::BRAKE_SHARE, &[], self.brake_share());
        out
    }

    /// In every mode, so that audit shows what enforce would do.
    fn brake_share(&self) -> f64 {
        let mut counted = self.ledger.brake.counted;
        if counted.due + counted.released == 0 {
            return 0.0;
        }
        let slots = self.view.cache.blocks().flat_map(|(_, b)| &b.slots);
        counted.total = slots.filter(|slot| counts(self.view, slot)).count() as u64;
        counted.share()
    }

    fn pools(&self, config: &Config, out: &mut Samples) {
        let tracker = &self.view.cache.tracker;
        let rows: Vec<Row<ipam::model::PoolKind>> = self.view.pools().cloned().collect();
        let open: Vec<_> = [Family::V4, Family::V6].into_iter().flat_map(|family| enabled(&rows, family)).collect();
        let in_blocks = self.in_blocks();
        for (name, id, counts) in self.pool_counts().iter().copied() {
            let Some(pool) = rows.iter().find(|r| r.key == name).map(|r| &r.value) else { continue };
            let blocks = in_blocks.get(name).copied().unwrap_or_default();
            out.set(&series::POOL_INFO, &info(name, pool, pool.cidr.as_ref().ok().copied()).each_ref().map(String::as_str), 1.0);
            out.count(&series::POOL_ALLOCATABLE, &[name], open.iter().any(|e| e.name == name));
            out.set(&series::POOL_AVAILABLE, &[name], counts.available as f64);
            out.set(&series::POOL_CLAIMED_AVAILABLE, &[name], blocks.available as f64);
            out.set(&series::POOL_UNCLAIMED, &[name], tracker.blocks_unclaimed(id, pool.block_size) as f64);
            out.count(&series::POOL_EMPTY, &[name], blocks.empty);
            out.count(&series::COOLING, &[name], blocks.cooling);
        }
        if let Some(pool) = in_blocks.get(NO_POOL).filter(|pool| pool.cooling > 0) {
            out.count(&series::COOLING, &[NO_POOL], pool.cooling);
        }
        for (family, version) in FAMILIES {
            out.count(&series::AT_LIMIT, &[version], self.at_limit(config, family).len() as u64);
        }
    }

    /// The live nodes that may claim no further block of a family for a plain workload, each with how many it has (D-5).
    pub fn at_limit(&self, config: &Config, family: Family) -> Vec<(NodeId, u64)> {
        let rows: Vec<Row<ipam::model::PoolKind>> = self.view.pools().cloned().collect();
        let plain = |e: &ipam::pools::Enabled| !e.pool.manual && e.pool.allowed_uses.iter().any(|u| u == "Workload");
        let open: BTreeSet<String> = enabled(&rows, family).into_iter().filter(plain).map(|e| e.name).collect();
        let usable = |block: IpNet| Family::of(block) == family && open.contains(self.view.cache.pool_text(block));
        let limit = if config.max_blocks_per_host > 0 { config.max_blocks_per_host.into() } else { BLOCK_LIMIT };
        let cache = &self.view.cache;
        let held = |n: &NodeId| cache.owned_blocks(*n).filter(|(cidr, _)| usable(*cidr)).count() as u64;
        cache.live_nodes().map(|n| (n, held(&n))).filter(|(_, held)| *held >= limit).collect()
    }

    fn leaks(&self, out: &mut Samples) {
        let cache = &self.view.cache;
        let mut oldest: BTreeMap<&str, Time> = BTreeMap::new();
        let mut held: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for (pool, _, _) in cache.tracker.pools() {
            LEAK_STATES.into_iter().for_each(|state| out.set(&series::LEAKS, &[pool, state], 0.0));
            out.set(&series::OLDEST, &[pool], 0.0);
        }
        for (cidr, ordinal, entry) in self.ledger.leaks() {
            let Some((block, slot)) = cache.block_of(cidr).and_then(|(_, b)| Some((b, b.slot(ordinal)?))) else { continue };
            let (pool, state) = (self.view.cache.pool_text(cidr), self.state(block, slot, entry));
            out.add(&series::LEAKS, &[pool, state], 1.0);
            if !["opted_out", "handle_held", "with_node"].contains(&state) {
                let since = oldest.entry(pool).or_insert(entry.since);
                *since = entry.since.min(*since);
            }
            if let (Some(by), Some(handle)) = (entry.held, slot.handle()) {
                held.entry(held_reason(by)).or_default().insert(handle.0);
            }
        }
        for (pool, since) in oldest {
            out.set(&series::OLDEST, &[pool], (self.now.steady - since).as_seconds_f64());
        }
        for reason in ["in_use", "unknown", "opted_out"] {
            out.count(&series::HELD_HANDLES, &[reason], held.get(reason).map_or(0, BTreeSet::len) as u64);
        }
    }

    fn departed_nodes(&self, out: &mut Samples) {
        NODE_STATES.into_iter().for_each(|state| out.set(&series::DEPARTED, &[state], 0.0));
        for (_, state) in self.departed() {
            out.add(&series::DEPARTED, &[state], 1.0);
        }
    }

    /// How far a departed node is.
    fn node_state(&self, node: NodeId) -> &'static str {
        let cache = &self.view.cache;
        if self.opt_outs().touches(node) {
            return "opted_out";
        }
        let waits = self.ledger.departures.waits(cache.node_text(node));
        if waits.is_some_and(|since| self.now.steady < since + self.policy.limits.grace) {
            return "grace";
        }
        let members = cache.allocations_of(node).map(|(_, block, slot)| self.member(block, slot));
        match departed(members, &self.policy.limits, self.now.steady) {
            NodeState::Occupied => {
                let in_use = |(_, block, slot)| matches!(judge(&cache.allocation(block, slot), cache), Verdict::InUse(_));
                if cache.allocations_of(node).any(in_use) { "in_use" } else { "unknown" }
            }
            NodeState::Waits(_) => "grace",
            NodeState::Ready => {
                let cools = |id| cache.block(id).is_some_and(|b| b.cooling > 0);
                if cache.owned_blocks(node).any(|(_, id)| cools(id)) { "cooling" } else { "due" }
            }
        }
    }

    fn member(&self, block: &Block, slot: &Slot) -> Member {
        let entry = self.ledger.leak(block.cidr, slot.ordinal);
        let member = self.view.cache.member(block, slot, entry.map_or(self.now.steady, |e| e.since));
        Member { wait: entry.map_or(member.wait, |e| e.wait), ..member }
    }
}

fn held_reason(by: HeldBy) -> &'static str {
    match by {
        HeldBy::InUse => "in_use",
        HeldBy::Unknown | HeldBy::BadObject => "unknown",
        HeldBy::OptedOut => "opted_out",
    }
}

fn info(name: &str, pool: &Pool, cidr: Option<IpNet>) -> [String; 6] {
    let mut uses = pool.allowed_uses.clone();
    uses.sort();
    let version = match cidr {
        Some(IpNet::V4(_)) => "4",
        Some(IpNet::V6(_)) => "6",
        None => "",
    };
    let mode = if pool.manual { "Manual" } else { "Automatic" };
    [
        name.into(),
        cidr.map_or_else(String::new, |c| c.to_string()),
        version.into(),
        pool.block_size.to_string(),
        uses.join(","),
        mode.into(),
    ]
}
