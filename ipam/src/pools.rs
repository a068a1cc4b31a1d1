//! Which pools a request may draw from, and which blocks with them: one place (seed, "pool qualification").
//!
//! [`enabled`] masks pools that overlap; [`qualify`] answers with a [`PoolClaim`], the only judge of blocks, or with the
//! reason for every pool that was not taken.

use std::net::IpAddr;

use ipam_accounting::set::overlap;
use ipnet::IpNet;

use crate::block::HostReserve;
use crate::ids::BlockCidr;
use crate::model::{Allocatable, Pool, PoolKind};
use crate::selector::{Labels, Selector};
use crate::store::Row;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of a CIDR.
    pub fn of(net: IpNet) -> Self {
        if matches!(net, IpNet::V4(_)) { Family::V4 } else { Family::V6 }
    }

    /// The family of an address.
    pub fn of_ip(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Number of bits of an address.
    pub fn bits(self) -> u8 {
        if self == Family::V4 { 32 } else { 128 }
    }

    /// `4` or `6`.
    pub fn number(self) -> u8 {
        if self == Family::V4 { 4 } else { 6 }
    }
}

/// Why no pool could be had, or a wrong one was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// No enabled pool of the family fits, or none allows the use.
    #[error("cannot find a qualified pool: {0}")]
    NoQualifiedPool(String),
    /// A named pool is not there, not enabled, or its blocks cannot hold the host's reservation.
    #[error("the given pool {0} does not exist, or is not enabled")]
    Unknown(IpNet),
    /// A named CIDR is of the other family.
    #[error("{0} is not an IPv{1} pool")]
    WrongFamily(IpNet, u8),
    /// No pool selects the node and namespace.
    #[error("no configured pools for node {0}")]
    NoneForNode(String),
    /// A selector cannot be read.
    #[error("pool {0} has a bad selector: {1}")]
    BadSelector(String, String),
    /// The host's reservation has no address.
    #[error("a host reservation of no address")]
    EmptyReserve,
    /// The address is in no enabled pool.
    #[error("{0} is not in a configured pool")]
    NotInPool(IpAddr),
    /// The pool does not allow the use.
    #[error("{ip} is in pool {pool}, which is not allowed for use {wanted} but for {allowed}")]
    UseNotAllowed {
        /// The address.
        ip: IpAddr,
        /// The pool.
        pool: String,
        /// What it was wanted for.
        wanted: String,
        /// What the pool allows.
        allowed: String,
    },
}

/// An enabled pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enabled {
    /// Its name.
    pub name: String,
    /// Its CIDR, masked.
    pub cidr: IpNet,
    /// What it says.
    pub pool: Pool,
}

/// The enabled pools of a family, by name, without those that another one masks (pools.md 2).
pub fn enabled(pools: &[Row<PoolKind>], family: Family) -> Vec<Enabled> {
    let of_family = |p: &Pool| p.cidr.as_ref().ok().map(|c| c.trunc()).filter(|c| Family::of(*c) == family);
    let masks = |p: &Pool| !p.disabled && (p.deleting || p.allocatable == Allocatable::True);
    let maskers: Vec<(&str, IpNet)> =
        pools.iter().filter(|r| masks(&r.value)).filter_map(|r| Some((r.key.as_str(), of_family(&r.value)?))).collect();
    let mut out: Vec<Enabled> = pools
        .iter()
        .filter(|r| !r.value.deleting && !r.value.disabled && r.value.allocatable != Allocatable::False)
        .filter_map(|r| Some(Enabled { name: r.key.clone(), cidr: of_family(&r.value)?, pool: r.value.clone() }))
        .filter(|e| e.pool.allocatable == Allocatable::True || !maskers.iter().any(|(name, c)| *name != e.name && overlap(*c, e.cidr)))
        .collect();
    out.sort_by(|a, b| a.name.cmp(&b.name));
    out
}

/// The first pool, by name, that contains an address.
pub fn pool_for(ip: IpAddr, pools: &[Enabled]) -> Option<&Enabled> {
    pools.iter().find(|p| p.cidr.contains(&ip))
}

/// The block of a pool in which an address lies.
pub fn block_for(ip: IpAddr, pool: &Pool) -> Option<BlockCidr> {
    BlockCidr::new(IpNet::new(ip, pool.block_size).ok()?).ok()
}

/// Longest block prefix that leaves room beside a host reservation (pools.md 4.1).
///
/// # Errors
/// A reservation without addresses.
pub fn longest_prefix(family: Family, reserve: Option<&HostReserve>) -> Result<u8, PoolError> {
    let Some(r) = reserve else { return Ok(family.bits()) };
    match r.first.saturating_add(r.last) {
        0 => Err(PoolError::EmptyReserve),
        n => Ok(family.bits().saturating_sub((u32::BITS - n.leading_zeros()) as u8)),
    }
}

/// What a request asks of pools.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Family.
    pub family: Family,
    /// What the addresses are for.
    pub intended_use: &'a str,
    /// Pools that the request names; then selectors and assignment mode do not matter, everything else does.
    pub named: &'a [IpNet],
    /// Host, for messages.
    pub host: &'a str,
    /// Labels of the node; none for a virtual owner.
    pub node: &'a Labels,
    /// Labels of the namespace, if there is one.
    pub namespace: Option<&'a Labels>,
    /// Reservation of the host in each block.
    pub reserve: Option<&'a HostReserve>,
}

/// The pools that a request may draw from. The only judge of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolClaim {
    /// In the order in which they are tried.
    pub pools: Vec<Enabled>,
    /// Selected for the node, whatever the use: their empty blocks are kept.
    selected: Vec<Enabled>,
    enabled: Vec<Enabled>,
    /// Every other enabled pool with the reason why it was not taken.
    pub not_taken: Vec<(String, &'static str)>,
}

impl PoolClaim {
    /// Whether the request may draw from this block: its base address is in one of the pools.
    pub fn may_use(&self, block: BlockCidr) -> bool {
        self.pools.iter().any(|p| p.cidr.contains(&block.net().network()))
    }

    /// Whether the node gives an empty block up: its pool is known and enabled, and its node selector does not select the
    /// node. Everything that is only about this request never makes it (pools.md 5).
    pub fn gives_up(&self, block: BlockCidr, node: &Labels) -> bool {
        let base = block.net().network();
        let taken = self.may_use(block) || self.selected.iter().any(|p| p.cidr.contains(&base));
        !taken && pool_for(base, &self.enabled).is_some_and(|p| deselects(p, node))
    }
}

/// Whether a pool's node selector can be read and does not select the node.
pub fn deselects(pool: &Enabled, node: &Labels) -> bool {
    pool.pool.node_selector.parse::<Selector>().is_ok_and(|s| !s.matches(node))
}

fn selects(pool: &Enabled, text: &str, labels: &Labels) -> Result<bool, PoolError> {
    let selector: Selector =
        text.parse().map_err(|e: crate::selector::SelectorError| PoolError::BadSelector(pool.name.clone(), e.to_string()))?;
    Ok(selector.matches(labels))
}

/// Decides which pools a request may draw from (pools.md 4).
///
/// # Errors
/// See [`PoolError`]; nothing is claimed.
pub fn qualify(all: &[Row<PoolKind>], wanted: &Wanted<'_>) -> Result<PoolClaim, PoolError> {
    let Wanted { family, intended_use, named, host, node, namespace, reserve } = *wanted;
    if let Some(wrong) = named.iter().find(|n| Family::of(**n) != family) {
        return Err(PoolError::WrongFamily(*wrong, family.number()));
    }
    let longest = longest_prefix(family, reserve)?;
    let enabled = enabled(all, family);
    let mut claim = PoolClaim { enabled: enabled.clone(), ..PoolClaim::default() };
    let unreadable = all.iter().filter(|r| r.value.cidr.is_err()).map(|r| (r.key.clone(), "its CIDR cannot be read"));
    claim.not_taken.extend(unreadable);
    let (fitting, small): (Vec<_>, Vec<_>) = enabled.into_iter().partition(|p| p.pool.block_size <= longest);
    claim.not_taken.extend(small.into_iter().map(|p| (p.name, "its blocks cannot hold the host's reservation")));
    if fitting.is_empty() {
        return Err(PoolError::NoQualifiedPool(format!("no enabled IPv{} pool with large enough blocks", family.number())));
    }
    if named.is_empty() {
        let none = Labels::new();
        for p in fitting {
            if p.pool.manual {
                claim.not_taken.push((p.name, "its addresses are given on request only"));
            } else if !selects(&p, &p.pool.node_selector, node)? {
                claim.not_taken.push((p.name, "its node selector does not select the node"));
            } else if !selects(&p, &p.pool.namespace_selector, namespace.unwrap_or(&none))? {
                claim.not_taken.push((p.name, "its namespace selector does not select the namespace"));
            } else {
                claim.selected.push(p);
            }
        }
    } else {
        for cidr in named {
            let found = fitting.iter().find(|p| p.cidr == cidr.trunc()).ok_or(PoolError::Unknown(cidr.trunc()))?;
            claim.selected.push(found.clone());
        }
    }
    if claim.selected.is_empty() {
        return Err(PoolError::NoneForNode(host.into()));
    }
    for p in &claim.selected {
        if p.pool.allowed_uses.iter().any(|u| u == intended_use) {
            claim.pools.push(p.clone());
        } else {
            claim.not_taken.push((p.name.clone(), "it is not allowed for this use"));
        }
    }
    if claim.pools.is_empty() {
        return Err(PoolError::NoQualifiedPool(format!("no pools match the required use {intended_use}")));
    }
    Ok(claim)
}

/// The pool of an explicitly wanted address, and its block: the narrower rules (pools.md 4.3).
///
/// # Errors
/// In no enabled pool; the pool does not allow the use, if one is given.
pub fn pool_for_assign(all: &[Row<PoolKind>], ip: IpAddr, intended_use: Option<&str>) -> Result<(Enabled, BlockCidr), PoolError> {
    let enabled = enabled(all, Family::of_ip(ip));
    let pool = pool_for(ip, &enabled).ok_or(PoolError::NotInPool(ip))?;
    if let Some(wanted) = intended_use
        && !pool.pool.allowed_uses.iter().any(|u| u == wanted)
    {
        let allowed = pool.pool.allowed_uses.join(", ");
        return Err(PoolError::UseNotAllowed { ip, pool: pool.name.clone(), wanted: wanted.into(), allowed });
    }
    let block = block_for(ip, &pool.pool).ok_or(PoolError::NotInPool(ip))?;
    Ok((pool.clone(), block))
}

#[cfg(test)]
#[path = "pools/tests.rs"]
mod tests;
