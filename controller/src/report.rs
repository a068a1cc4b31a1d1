//! View and ledger → plain numbers, counted anew each time.

use ipam_accounting::inventory::{NO_AFFINITY, NO_POOL, UNKNOWN_NODE};
use ipam_accounting::schedule::Wait;
use ipam_accounting::set::size;
use ipam_metrics::{PoolSize, Report};

use crate::ledger::Ledger;
use crate::view::View;

/// The report. Counters of pools and nodes that are gone are dropped on the way.
pub fn report(view: &View, ledger: &mut Ledger) -> Report {
    let cache = &view.cache;
    let tracker = &cache.tracker;
    let mut r = Report::default();
    for (name, id, cidr) in tracker.pools() {
        let reserved = tracker.pool_reserved(id);
        let size = cidr.map_or(0, size);
        r.pools.insert(name.into(), PoolSize { size: size as f64, reserved: reserved as f64 });
    }
    r.nodes = cache.live_nodes().map(|n| cache.node_text(n).to_owned()).collect();
    r.nodes.sort();
    for (pool, node, sum) in cache.sums() {
        let pool = pool.map_or(NO_POOL, |p| tracker.pool_name(p));
        let allocated_on = node.map_or(UNKNOWN_NODE, |n| cache.node_text(n));
        let owner = node.map_or(NO_AFFINITY, |n| cache.node_text(n));
        let key = |node: &str| (pool.to_owned(), node.to_owned());
        if sum.in_use > 0 {
            r.in_use.insert(key(allocated_on), sum.in_use);
            if node.is_some() {
                *r.per_node.entry(allocated_on.into()).or_default() += sum.in_use;
            }
        }
        if sum.borrowed > 0 {
            r.borrowed.insert(key(allocated_on), sum.borrowed);
            *r.borrowed_per_node.entry(allocated_on.into()).or_default() += sum.borrowed;
        }
        if sum.blocks > 0 {
            r.blocks.insert(key(owner), sum.blocks);
            *r.blocks_per_node.entry(owner.into()).or_default() += sum.blocks;
        }
    }
    // A tunnel that waits for its node is no candidate of the reference's gauge.
    for (cidr, ordinal, _) in ledger.leaks().filter(|(_, _, e)| e.wait != Wait::WithNode) {
        let pool = cache.pool_text(cidr);
        let slot = cache.block_of(cidr).and_then(|(_, b)| b.slot(ordinal));
        let node = slot.and_then(|s| s.node()).map_or(UNKNOWN_NODE, |n| cache.node_text(n));
        *r.candidates.entry((pool.into(), node.into())).or_default() += 1;
    }
    let known = |node: &str| cache.node_id(node).is_some_and(|n| cache.node_facts(n).is_some() || cache.concerns(n));
    ledger.keep_counters(|pool, node| (pool == NO_POOL || r.pools.contains_key(pool)) && (node == UNKNOWN_NODE || known(node)));
    r.reclamations = ledger.reclaimed.clone();
    r
}
