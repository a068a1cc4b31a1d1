//! Which block belongs to which pool, and how many addresses are in which state.

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::set::{AddrSet, Ranges, size};

/// Number of a pool name; used again after the pool is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// The five counts of a pool or block; all saturate (D-56).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Addresses in all.
    pub capacity: u128,
    /// Held by an owner, host reservations included.
    pub in_use: u128,
    /// Released, not yet free.
    pub cooling: u128,
    /// Covered by reservations, whatever their state.
    pub reserved: u128,
    /// Can still be handed out.
    pub available: u128,
}

impl Counts {
    /// Addresses that could be handed out if nobody had one.
    pub fn usable(&self) -> u128 {
        self.capacity.saturating_sub(self.reserved)
    }

    /// Share of the usable ones that is taken; `None` without any.
    pub fn fill(&self) -> Option<f64> {
        (self.usable() > 0).then(|| 1.0 - self.available as f64 / self.usable() as f64)
    }
}

/// How a block is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockUse {
    in_use: u32,
    cooling: u32,
    /// One bit an ordinal: it is in the free queue.
    free: Box<[u64]>,
}

impl BlockUse {
    /// From the counts and the free queue; ordinals outside of the block are passed over.
    pub fn new(cidr: IpNet, in_use: u32, cooling: u32, queue: &[u32]) -> Self {
        let bits = u32::try_from(size(cidr)).unwrap_or(u32::MAX).min(1 << 16);
        let mut free = vec![0u64; bits.div_ceil(64) as usize];
        for &ordinal in queue.iter().filter(|o| **o < bits) {
            free[ordinal as usize / 64] |= 1 << (ordinal % 64);
        }
        Self { in_use, cooling, free: free.into() }
    }

    fn free(&self) -> u128 {
        self.free.iter().map(|w| u128::from(w.count_ones())).sum()
    }

    fn free_between(&self, first: u128, last: u128) -> u128 {
        (first..=last).filter(|o| self.free.get((o / 64) as usize).is_some_and(|w| w & (1 << (o % 64)) != 0)).count() as u128
    }
}

#[derive(Debug)]
struct Pool {
    name: String,
    cidr: Option<IpNet>,
    class: Option<String>,
}

#[derive(Debug)]
struct Tracked {
    usage: BlockUse,
    pool: Option<PoolId>,
}

/// A block that changed its pool: its CIDR, where from, where to.
pub type Moved = (IpNet, Option<PoolId>, Option<PoolId>);

/// Fed with blocks, pools and reservations; answers with counts.
///
/// A block belongs to the most specific pool that contains it whole, of equal ones to the first by name.
/// *Reserved classes* are further reserved addresses that only some pools skip: they only count, the
/// allocation path skips such addresses itself (seed, "accounting").
#[derive(Debug, Default)]
pub struct Tracker {
    pools: Vec<Option<Pool>>,
    pool_ids: BTreeMap<String, PoolId>,
    blocks: BTreeMap<IpNet, Tracked>,
    reservations: BTreeMap<String, AddrSet>,
    extra: BTreeMap<String, AddrSet>,
    /// Reserved for everybody, then by class with everybody's.
    reserved: Ranges,
    by_class: BTreeMap<String, Ranges>,
}

impl Tracker {
    /// Adds or changes a pool; without CIDR it has no blocks. Answers with the blocks that moved.
    pub fn put_pool(&mut self, name: &str, cidr: Option<IpNet>) -> Vec<Moved> {
        let id = match self.pool_ids.get(name) {
            Some(id) => *id,
            None => self.new_pool(name),
        };
        match &mut self.pools[id.0 as usize] {
            Some(pool) if pool.cidr == cidr => return Vec::new(),
            Some(pool) => pool.cidr = cidr,
            None => {}
        }
        self.attribute_again()
    }

    /// Forgets a pool. Answers with the blocks that moved.
    pub fn remove_pool(&mut self, name: &str) -> Vec<Moved> {
        let Some(id) = self.pool_ids.remove(name) else { return Vec::new() };
        self.pools[id.0 as usize] = None;
        self.attribute_again()
    }

    /// Puts a pool into a reserved class, or into none.
    pub fn set_class(&mut self, pool: &str, class: Option<&str>) {
        if let Some(id) = self.pool_ids.get(pool)
            && let Some(pool) = &mut self.pools[id.0 as usize]
        {
            pool.class = class.map(Into::into);
        }
    }

    /// Sets the further reserved addresses of a class; the empty set drops it.
    pub fn set_extra_reserved(&mut self, class: &str, set: AddrSet) {
        if set.is_empty() {
            self.extra.remove(class);
        } else {
            self.extra.insert(class.into(), set);
        }
        self.join_reserved();
    }

    /// Adds or changes a reservation.
    pub fn put_reservation(&mut self, name: &str, set: AddrSet) {
        self.reservations.insert(name.into(), set);
        self.join_reserved();
    }

    /// Forgets a reservation.
    pub fn remove_reservation(&mut self, name: &str) {
        if self.reservations.remove(name).is_some() {
            self.join_reserved();
        }
    }

    /// Adds or changes a block.
    pub fn put_block(&mut self, cidr: IpNet, usage: BlockUse) {
        let pool = self.blocks.get(&cidr).map_or_else(|| self.best_pool(cidr), |b| b.pool);
        self.blocks.insert(cidr, Tracked { usage, pool });
    }

    /// Forgets a block.
    pub fn remove_block(&mut self, cidr: IpNet) {
        self.blocks.remove(&cidr);
    }

    /// The pool of a block.
    pub fn pool_of(&self, block: IpNet) -> Option<PoolId> {
        self.blocks.get(&block)?.pool
    }

    /// Name of a pool.
    pub fn pool_name(&self, pool: PoolId) -> &str {
        self.pools[pool.0 as usize].as_ref().map_or("", |p| p.name.as_str())
    }

    /// The pools by name, each with its CIDR if that parsed.
    pub fn pools(&self) -> impl Iterator<Item = (&str, PoolId, Option<IpNet>)> {
        self.pool_ids.iter().map(|(name, id)| (name.as_str(), *id, self.pools[id.0 as usize].as_ref().and_then(|p| p.cidr)))
    }

    /// The blocks by CIDR, each with its pool.
    pub fn blocks(&self) -> impl Iterator<Item = (IpNet, Option<PoolId>)> + '_ {
        self.blocks.iter().map(|(cidr, b)| (*cidr, b.pool))
    }

    /// Counts of one block.
    pub fn block_counts(&self, cidr: IpNet) -> Option<Counts> {
        let block = self.blocks.get(&cidr)?;
        let reserved = self.reserved_for(block.pool);
        let mut counts = Counts {
            capacity: size(cidr),
            in_use: block.usage.in_use.into(),
            cooling: block.usage.cooling.into(),
            reserved: 0,
            available: block.usage.free(),
        };
        let base = crate::set::number(cidr.network());
        for (first, last) in reserved.within(cidr) {
            counts.reserved = counts.reserved.saturating_add((last - first).saturating_add(1));
            counts.available -= block.usage.free_between(first - base, last - base);
        }
        Some(counts)
    }

    /// How many addresses of a pool are reserved.
    pub fn pool_reserved(&self, pool: PoolId) -> u128 {
        let cidr = self.pools.get(pool.0 as usize).and_then(Option::as_ref).and_then(|p| p.cidr);
        cidr.map_or(0, |c| self.reserved_for(Some(pool)).count_in(c))
    }

    /// Counts of one pool. They span its whole CIDR, space that no block covers included.
    pub fn pool_counts(&self, pool: PoolId) -> Counts {
        let Some(cidr) = self.pools.get(pool.0 as usize).and_then(Option::as_ref).and_then(|p| p.cidr) else { return Counts::default() };
        let reserved = self.reserved_for(Some(pool));
        let mut counts = Counts { capacity: size(cidr), reserved: self.pool_reserved(pool), ..Counts::default() };
        for (block, _) in self.blocks.iter().filter(|(_, b)| b.pool == Some(pool)) {
            let b = self.block_counts(*block).unwrap_or_default();
            counts.in_use += b.in_use;
            counts.cooling += b.cooling;
            counts.available += b.available;
        }
        counts.available = counts.available.saturating_add(self.outside_blocks(cidr, reserved));
        counts
    }

    /// Addresses of a pool that are neither reserved nor in any block.
    fn outside_blocks(&self, cidr: IpNet, reserved: &Ranges) -> u128 {
        let spans = reserved.within(cidr).map(|(a, b)| to_nets(cidr, a, b));
        let blocks = self.blocks.keys().filter(|b| crate::set::overlap(**b, cidr)).copied();
        let taken: Ranges = spans.flatten().chain(blocks).collect();
        size(cidr).saturating_sub(taken.count_in(cidr))
    }

    /// How many blocks of this prefix length could still be claimed in a pool: they overlap no block, and are not wholly reserved.
    pub fn blocks_unclaimed(&self, pool: PoolId, prefix: u8) -> u128 {
        let Some(cidr) = self.pools.get(pool.0 as usize).and_then(Option::as_ref).and_then(|p| p.cidr) else { return 0 };
        if prefix < cidr.prefix_len() || prefix > cidr.max_prefix_len() {
            return 0;
        }
        let one = 1_u128.checked_shl(u32::from(cidr.max_prefix_len() - prefix)).unwrap_or(u128::MAX);
        let around = |net: IpNet| IpNet::new(net.network(), prefix.min(net.prefix_len())).map_or(net, |n| n.trunc());
        let blocks = self.blocks.keys().filter(|b| crate::set::overlap(**b, cidr)).map(|b| around(*b));
        // Of a reserved span the part that is made of whole blocks.
        let whole = self.reserved_for(Some(pool)).within(cidr).filter_map(|(first, last)| {
            let start = first.checked_next_multiple_of(one)?;
            let end = (last.checked_add(1)? / one).checked_mul(one)?;
            (start < end).then(|| (start, end - 1))
        });
        let taken: Ranges = whole.flat_map(|(first, last)| to_nets(cidr, first, last)).chain(blocks).collect();
        (size(cidr) / one).saturating_sub(taken.count_in(cidr) / one)
    }

    fn new_pool(&mut self, name: &str) -> PoolId {
        let free = self.pools.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.pools.push(None);
            self.pools.len() - 1
        });
        self.pools[at] = Some(Pool { name: name.into(), cidr: None, class: None });
        let id = PoolId(at as u32);
        self.pool_ids.insert(name.into(), id);
        id
    }

    fn best_pool(&self, block: IpNet) -> Option<PoolId> {
        let holding = self.pools().filter_map(|(_, id, cidr)| cidr.filter(|c| c.contains(&block)).map(|c| (c.prefix_len(), id)));
        // Pools come by name, so the first of the most specific ones is the one.
        holding.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, id)| id)
    }

    fn attribute_again(&mut self) -> Vec<Moved> {
        let mut moved = Vec::new();
        for (cidr, from) in self.blocks.iter().map(|(c, b)| (*c, b.pool)).collect::<Vec<_>>() {
            let to = self.best_pool(cidr);
            if to != from {
                moved.push((cidr, from, to));
                if let Some(block) = self.blocks.get_mut(&cidr) {
                    block.pool = to;
                }
            }
        }
        moved
    }

    fn reserved_for(&self, pool: Option<PoolId>) -> &Ranges {
        let pool = pool.and_then(|p| self.pools.get(p.0 as usize)).and_then(Option::as_ref);
        pool.and_then(|p| p.class.as_ref()).and_then(|c| self.by_class.get(c)).unwrap_or(&self.reserved)
    }

    fn join_reserved(&mut self) {
        let everybody = || self.reservations.values().flat_map(AddrSet::nets);
        self.reserved = everybody().collect();
        self.by_class = self.extra.iter().map(|(class, set)| (class.clone(), everybody().chain(set.nets()).collect())).collect();
    }
}

/// A span of a family as CIDRs.
fn to_nets(family: IpNet, first: u128, last: u128) -> Vec<IpNet> {
    match family {
        IpNet::V4(_) => {
            let (a, b) = ((first as u32).into(), (last as u32).into());
            ipnet::Ipv4Subnets::new(a, b, 0).map(IpNet::V4).collect()
        }
        IpNet::V6(_) => ipnet::Ipv6Subnets::new(first.into(), last.into(), 0).map(IpNet::V6).collect(),
    }
}

#[cfg(test)]
#[path = "tracker/tests.rs"]
mod tests;
