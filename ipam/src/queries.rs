//! Reading: who has what, and how full things are.

use std::net::IpAddr;

use ipam_accounting::Tracker;
use ipam_accounting::facts::{Attrs, sanitise};
use ipam_accounting::tracker::{BlockUse, Counts};
use ipnet::IpNet;

use crate::Ipam;
use crate::block::{Attribute, BlockError};
use crate::clock::Clock;
use crate::ids::{BlockCidr, HandleId};
use crate::model::{BlockKind, HandleKind, PoolKind, ReservationKind};
use crate::pools::block_for;
use crate::store::{Datastore, Freshness, Row, StoreError, Table};

/// Who has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Sanitised handle.
    pub handle: Option<String>,
    /// Active owner.
    pub active: Attrs,
    /// Alternate owner.
    pub alternate: Attrs,
    /// Sequence number of the allocation: what a release must name.
    pub seq: i64,
    /// Its block.
    pub block: BlockCidr,
}

/// Why nobody was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// It is not assigned.
    #[error("{0} is not assigned")]
    NotExist(IpAddr),
    /// It cools.
    #[error("{0} is cooling down")]
    InCooldown(IpAddr),
    /// The configuration could not be had.
    #[error(transparent)]
    Config(#[from] crate::ConfigError),
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

/// How full a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUtilization {
    /// Its name; `None`: blocks of no pool.
    pub name: Option<String>,
    /// Its CIDR.
    pub cidr: Option<IpNet>,
    /// Its counts.
    pub counts: Counts,
    /// Its blocks.
    pub blocks: Vec<(BlockCidr, Counts)>,
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// The block that holds an address: by the pools, whether enabled or not, else by looking through all blocks.
    pub(crate) async fn block_of(&self, ip: IpAddr) -> Result<Option<Row<BlockKind>>, StoreError> {
        let pools = Table::<PoolKind>::list(&self.store, &(), Freshness::Cached).await?;
        let pool = pools.iter().find(|p| p.value.cidr.as_ref().is_ok_and(|c| c.contains(&ip)));
        if let Some(cidr) = pool.and_then(|p| block_for(ip, &p.value))
            && let Some(row) = Table::<BlockKind>::get(&self.store, &cidr).await?
        {
            return Ok(Some(row));
        }
        let all = Table::<BlockKind>::list(&self.store, &(), Freshness::Latest).await?;
        Ok(all.into_iter().find(|r| r.key.ordinal(ip).is_some()))
    }

    /// The addresses of a handle, block by block; `None`: there is no such handle. Blocks that cannot be read are passed
    /// over.
    ///
    /// # Errors
    /// The handle could not be read.
    pub async fn ips_by_handle(&self, handle: &str) -> Result<Option<Vec<IpAddr>>, StoreError> {
        let key = HandleId::new(handle);
        let row = Table::<HandleKind>::get(&self.store, &key).await?.filter(|r| sanitise(&r.value.id) == key.as_str());
        let Some(row) = row else { return Ok(None) };
        let mut ips = Vec::new();
        for cidr in row.value.blocks.keys() {
            if let Ok(Some(block)) = Table::<BlockKind>::get(&self.store, cidr).await {
                ips.extend(block.value.by_handle(&key));
            }
        }
        Ok(Some(ips))
    }

    /// Who has an address.
    ///
    /// # Errors
    /// Nobody has it; it cools; the store failed.
    pub async fn assignment_attributes(&self, ip: IpAddr) -> Result<Assignment, QueryError> {
        let config = self.get_config().await?;
        let row = self.block_of(ip).await?.ok_or(QueryError::NotExist(ip))?;
        let mut block = row.value;
        block.collect(self.clock.now(), config.cooldown());
        let entry: &Attribute = block.attributes_of(ip).map_err(|e| match e {
            BlockError::InCooldown(ip) => QueryError::InCooldown(ip),
            _ => QueryError::NotExist(ip),
        })?;
        let ordinal = block.cidr.ordinal(ip).ok_or(QueryError::NotExist(ip))?;
        Ok(Assignment {
            handle: entry.handle.as_deref().map(|h| sanitise(h).to_owned()),
            active: entry.active.clone(),
            alternate: entry.alternate.clone(),
            seq: block.seq_of(ordinal),
            block: block.cidr,
        })
    }

    /// How full pools are, by name; `wanted` are names or CIDRs, none for all, which then end with the blocks of no pool.
    ///
    /// # Errors
    /// A table could not be read.
    pub async fn utilization(&self, wanted: &[&str]) -> Result<Vec<PoolUtilization>, StoreError> {
        let (pools, reservations, blocks) = futures::try_join!(
            Table::<PoolKind>::list(&self.store, &(), Freshness::Latest),
            Table::<ReservationKind>::list(&self.store, &(), Freshness::Latest),
            Table::<BlockKind>::list(&self.store, &(), Freshness::Latest),
        )?;
        let mut tracker = Tracker::default();
        pools.iter().for_each(|p| drop(tracker.put_pool(&p.key, p.value.cidr.clone().ok())));
        reservations.iter().for_each(|r| tracker.put_reservation(&r.key, r.value.set()));
        for row in &blocks {
            let cooling = row.value.allocated().filter(|(_, a)| a.released_at.is_some()).count() as u32;
            let in_use = row.value.allocated().count() as u32 - cooling;
            tracker.put_block(row.key.net(), BlockUse::new(row.key.net(), in_use, cooling, &row.value.unallocated));
        }
        let of = |pool| {
            let mine = blocks.iter().map(|b| b.key).filter(|c| tracker.pool_of(c.net()) == pool);
            mine.map(|c| (c, tracker.block_counts(c.net()).unwrap_or_default())).collect::<Vec<_>>()
        };
        let fits = |name: &str, cidr: Option<IpNet>| {
            wanted.is_empty() || wanted.iter().any(|w| *w == name || cidr.is_some_and(|c| w.parse() == Ok(c)))
        };
        let mut out: Vec<PoolUtilization> = tracker
            .pools()
            .filter(|(name, _, cidr)| fits(name, *cidr))
            .map(|(name, id, cidr)| PoolUtilization {
                name: Some(name.into()),
                cidr,
                counts: tracker.pool_counts(id),
                blocks: of(Some(id)),
            })
            .collect();
        if wanted.is_empty() {
            out.push(PoolUtilization { name: None, cidr: None, counts: Counts::default(), blocks: of(None) });
        }
        Ok(out)
    }

    /// How many addresses of a CIDR are reserved.
    ///
    /// # Errors
    /// The reservations could not be read.
    pub async fn num_reserved_ips(&self, cidr: IpNet) -> Result<u128, StoreError> {
        let rows = Table::<ReservationKind>::list(&self.store, &(), Freshness::Latest).await?;
        let entries = rows.iter().flat_map(|r| r.value.entries.iter().map(String::as_str));
        Ok(ipam_accounting::reserved::reserved_in_cidr(cidr, entries))
    }
}
