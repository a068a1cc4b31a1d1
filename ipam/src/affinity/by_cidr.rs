//! Claiming and giving back by CIDR, by pool, and after a release (allocation.md 9; pools.md 5.2).

use ipam_accounting::set::overlap;
use ipnet::IpNet;

use super::{Conditions, GaveBack, GiveBackError};
use crate::Ipam;
use crate::claim::ClaimError;
use crate::clock::Clock;
use crate::ids::{BlockCidr, NameError, Owner, check_host};
use crate::model::{Affinity, AffinityKind, BlockKind, NodeKind, PoolKind, Rows};
use crate::modify::RETRIES;
use crate::order::BlockOrder;
use crate::pools::{Family, deselects, enabled, pool_for};
use crate::store::{Datastore, Freshness, Row, StoreError, Table};

/// Why a CIDR was not claimed or given back as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AffinityError {
    /// An argument cannot be used; nothing was read.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It does not lie whole in one pool.
    #[error("{0} does not lie in a configured pool")]
    NotInPool(IpNet),
    /// It is smaller than a block of its pool.
    #[error("{0} is smaller than the pool's blocks of /{1}")]
    InvalidSize(IpNet, u8),
    /// A block of another size is in the way (D-21).
    #[error("block {0} is in the way")]
    Overlap(BlockCidr),
    /// A block holds addresses; what came before it is given back.
    #[error("block {0} is not empty")]
    NotEmpty(BlockCidr),
    /// A block could not be given back; what came before it is.
    #[error("block {0}")]
    Block(BlockCidr, #[source] GiveBackError),
    /// A claim failed; these blocks were claimed before.
    #[error("claiming, after {} blocks", .0.len())]
    Claim(Vec<BlockCidr>, #[source] StoreError),
    /// The race was lost too often.
    #[error("lost the race too often")]
    TooManyRetries,
    /// The store failed.
    #[error("the store failed")]
    Store(#[source] StoreError),
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Claims every block of a CIDR for a host, whatever the block limit says (D-63). Answers with the claimed blocks, and those that
    /// others have.
    ///
    /// # Errors
    /// See [`AffinityError`].
    pub async fn claim_affinity(&self, cidr: IpNet, host: &str) -> Result<(Vec<BlockCidr>, Vec<BlockCidr>), AffinityError> {
        check_host(host)?;
        let (cidr, size) = self.in_pool(cidr, true).await?;
        let blocks = Table::<BlockKind>::list(&self.store, &(), Freshness::Latest).await.map_err(AffinityError::Store)?;
        if let Some(b) = blocks.iter().find(|b| b.key.net().prefix_len() != size && overlap(b.key.net(), cidr)) {
            return Err(AffinityError::Overlap(b.key));
        }
        let claimed = self.claim_all(&Owner::Host(host.into()), BlockOrder::ascending(cidr, size)).await;
        claimed.map_err(|(claimed, e)| match e {
            ClaimError::Store(e) => AffinityError::Claim(claimed, e),
            _ => AffinityError::TooManyRetries,
        })
    }

    /// Gives back every block of a CIDR that is a host's; others' are left alone. Works in disabled pools, too.
    ///
    /// # Errors
    /// See [`AffinityError`]; the first block that is not empty ends it.
    pub async fn release_affinity(&self, cidr: IpNet, host: &str, must_be_empty: bool) -> Result<(), AffinityError> {
        check_host(host)?;
        let (cidr, size) = self.in_pool(cidr, false).await?;
        let owner = Owner::Host(host.into());
        for block in BlockOrder::ascending(cidr, size) {
            self.give_back_in_cidr(&owner, block, must_be_empty).await?;
        }
        Ok(())
    }

    async fn give_back_in_cidr(&self, owner: &Owner, block: BlockCidr, must_be_empty: bool) -> Result<GaveBack, AffinityError> {
        self.give_back_patiently(owner, block, must_be_empty).await.map_err(|e| match e {
            GiveBackError::Stale => AffinityError::TooManyRetries,
            GiveBackError::NotEmpty => AffinityError::NotEmpty(block),
            e => AffinityError::Block(block, e),
        })
    }

    /// The masked CIDR and the block size of the pool in which it lies whole.
    async fn in_pool(&self, cidr: IpNet, only_enabled: bool) -> Result<(IpNet, u8), AffinityError> {
        let cidr = cidr.trunc();
        let pools = Table::<PoolKind>::list(&self.store, &(), Freshness::Latest).await.map_err(AffinityError::Store)?;
        let size = if only_enabled {
            enabled(&pools, Family::of(cidr)).into_iter().find(|p| p.cidr.contains(&cidr)).map(|p| p.pool.block_size)
        } else {
            pools.iter().find(|p| p.value.cidr.as_ref().is_ok_and(|c| c.contains(&cidr))).map(|p| p.value.block_size)
        };
        let size = size.ok_or(AffinityError::NotInPool(cidr))?;
        if cidr.prefix_len() > size { Err(AffinityError::InvalidSize(cidr, size)) } else { Ok((cidr, size)) }
    }

    /// Gives back every block and row inside a CIDR, of every owner, empty or not.
    ///
    /// # Errors
    /// See [`AffinityError`].
    pub async fn release_pool_affinities(&self, pool: IpNet) -> Result<(), AffinityError> {
        for _ in 0..RETRIES {
            let rows = self.affinities(&Rows::All).await?;
            let inside: Vec<Row<AffinityKind>> = rows.into_iter().filter(|r| pool.contains(&r.key.1.net().network())).collect();
            if inside.is_empty() {
                return Ok(());
            }
            for row in inside {
                self.give_back_in_cidr(&row.key.0, row.key.1, false).await?;
            }
        }
        Err(AffinityError::TooManyRetries)
    }

    /// Gives a host's rows without labels theirs, so that lists by host see them (D-69). Answers how many there were.
    ///
    /// # Errors
    /// The host's name cannot be used, the rows could not be listed, or the first row that could not be written; the others are
    /// done.
    pub async fn upgrade_host(&self, host: &str) -> Result<usize, AffinityError> {
        check_host(host)?;
        let rows = self.affinities(&Rows::NotIndexed).await?;
        let (mut done, mut failed) = (0, None);
        for row in rows.into_iter().filter(|r| r.key.0.name() == host) {
            let value = Affinity { indexed: true, ..row.value.clone() };
            match Table::<AffinityKind>::update(&self.store, Row { value, ..row }).await {
                Ok(_) => done += 1,
                Err(StoreError::Absent) => {}
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        failed.map_or(Ok(done), |e| Err(AffinityError::Store(e)))
    }

    /// After a release: gives the block up if its pool does not select its node any more (pools.md 5.2). Failures wait for
    /// another time.
    pub(crate) async fn keep_consistent(&self, block: BlockCidr, owner: Option<Owner>, pools: &[Row<PoolKind>]) {
        let Some(Owner::Host(host)) = owner else { return };
        let enabled = enabled(pools, Family::of(block.net()));
        let Some(pool) = pool_for(block.net().network(), &enabled) else { return };
        // Most pools select everything: that needs no look at the node.
        if pool.pool.node_selector == "all()" {
            return;
        }
        let Ok(Some(node)) = Table::<NodeKind>::get(&self.store, &host).await else { return };
        if deselects(pool, &node.value.labels) {
            drop(self.release_block_affinity(&Owner::Host(host), block, Conditions { must_be_empty: true, seq: None }).await);
        }
    }
}
