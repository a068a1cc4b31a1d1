//! Claiming a block in two phases: row pending → block → row confirmed (D-59). Every step can be the last one of a
//! process; the next claim goes on from there.

use crate::Ipam;
use crate::block::{Block, HostReserve};
use crate::clock::{Clock, round_up};
use crate::ids::{BlockCidr, Owner};
use crate::model::{Affinity, AffinityKind, AffinityState, BlockKind};
use crate::modify::{RETRIES, purge_half_deleted};
use crate::planted::{Planted, planted};
use crate::store::{Datastore, Row, StoreError, Table};

/// Why a block was not claimed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// Somebody else has it; our row is gone again.
    #[error("the block belongs to somebody else")]
    Lost,
    /// Row or block changed under our hands; look again.
    #[error("the block changed while it was claimed")]
    Stale,
    /// The block cannot hold the host's reservation.
    #[error("{0}")]
    Reserve(String),
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

fn stale(e: StoreError) -> ClaimError {
    match e {
        StoreError::Conflict | StoreError::Absent | StoreError::Exists => ClaimError::Stale,
        other => ClaimError::Store(other),
    }
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Claims a block for an owner, or finishes a claim that was begun. `row` is the owner's row if it is known.
    pub(crate) async fn claim_block(
        &self,
        owner: &Owner,
        cidr: BlockCidr,
        reserve: Option<&HostReserve>,
        row: Option<Row<AffinityKind>>,
    ) -> Result<Claimed, ClaimError> {
        let row = self.pending_row(owner, cidr, row).await?;
        let row = if planted(Planted::ConfirmFirst) { self.confirm(row).await? } else { row };
        let now = self.clock.now();
        let born = now.timestamp_nanos_opt().unwrap_or(i64::MAX);
        let mut block = Block::new(cidr, reserve, born).map_err(|e| ClaimError::Reserve(e.to_string()))?;
        block.affinity = Some(owner.to_string());
        block.claim_time = Some(round_up(now));
        let block = match self.create_over::<BlockKind>(&cidr, block).await {
            Ok(row) => row,
            Err(StoreError::Exists) => {
                let there = Table::<BlockKind>::get(&self.store, &cidr).await?.ok_or(ClaimError::Stale)?;
                if there.value.owner().as_ref() != Some(owner) {
                    // Best effort: a row that stays is found stale by its next use.
                    drop(Table::<AffinityKind>::delete(&self.store, &row).await);
                    return Err(ClaimError::Lost);
                }
                // Rewritten, so that whoever gives it up on old knowledge loses the race.
                self.touch(there).await?
            }
            Err(e) => return Err(ClaimError::Store(e)),
        };
        Ok(Claimed { row: self.confirm(row).await?, block })
    }

    /// The owner's row in state pending; one that is confirmed stays so.
    async fn pending_row(&self, owner: &Owner, cidr: BlockCidr, known: Option<Row<AffinityKind>>) -> Result<Row<AffinityKind>, ClaimError> {
        let key = (owner.clone(), cidr);
        let pending = Affinity { state: AffinityState::Pending, indexed: true };
        let row = match known {
            Some(row) => row,
            None => match self.create_over::<AffinityKind>(&key, pending.clone()).await {
                Ok(row) => return Ok(row),
                Err(StoreError::Exists) => {
                    let row = Table::<AffinityKind>::get(&self.store, &key).await?.ok_or(ClaimError::Stale)?;
                    if matches!(row.value.state, AffinityState::Confirmed | AffinityState::Old) {
                        return Ok(row);
                    }
                    row
                }
                Err(e) => return Err(ClaimError::Store(e)),
            },
        };
        Table::<AffinityKind>::update(&self.store, Row { value: pending, ..row }).await.map_err(stale)
    }

    /// Creates a row; a half-deleted one in the way is purged first (D-65).
    pub(crate) async fn create_over<K: crate::store::Kind>(&self, key: &K::Key, value: K::Value) -> Result<Row<K>, StoreError>
    where
        S: Table<K>,
    {
        for _ in 0..2 {
            match Table::<K>::create(&self.store, key, value.clone()).await {
                Err(StoreError::Exists) if Table::<K>::get(&self.store, key).await?.is_none() => {
                    purge_half_deleted::<K, S>(&self.store, key).await?;
                }
                other => return other,
            }
        }
        Table::<K>::create(&self.store, key, value).await
    }

    async fn confirm(&self, row: Row<AffinityKind>) -> Result<Row<AffinityKind>, ClaimError> {
        let key = row.key.clone();
        let value = Affinity { state: AffinityState::Confirmed, indexed: true };
        match Table::<AffinityKind>::update(&self.store, Row { value, ..row }).await {
            Err(e @ (StoreError::Conflict | StoreError::Absent)) => {
                // Another process of this host may have done it.
                let there = Table::<AffinityKind>::get(&self.store, &key).await?;
                there.filter(|r| r.value.state == AffinityState::Confirmed).ok_or_else(|| stale(e))
            }
            done => done.map_err(ClaimError::Store),
        }
    }

    /// Writes a block unchanged but for its sequence number, so that whoever holds the old one loses.
    pub(crate) async fn touch(&self, row: Row<BlockKind>) -> Result<Row<BlockKind>, ClaimError> {
        let value = Block { seq: row.value.seq + 1, ..row.value.clone() };
        Table::<BlockKind>::update(&self.store, Row { value, ..row }).await.map_err(stale)
    }

    /// The block of an affinity row of ours, made usable. `None`: the row was stale and is gone, or there is no block
    /// yet.
    pub(crate) async fn owned_block(&self, owner: &Owner, row: &Row<AffinityKind>) -> Result<Owned, ClaimError> {
        let cidr = row.key.1;
        let Some(block) = Table::<BlockKind>::get(&self.store, &cidr).await? else { return Ok(Owned::NoBlock) };
        if block.value.owner().as_ref() != Some(owner) {
            drop(Table::<AffinityKind>::delete(&self.store, row).await);
            return Ok(Owned::Stale);
        }
        if matches!(row.value.state, AffinityState::Confirmed | AffinityState::Old) {
            return Ok(Owned::Usable(Box::new(block)));
        }
        let row = self.pending_row(owner, cidr, Some(row.clone())).await?;
        let block = self.touch(block).await?;
        self.confirm(row).await?;
        Ok(Owned::Usable(Box::new(block)))
    }

    /// Writes the missing row of a block that an owner has. No block is made: one that is not there any more loses the row again.
    pub(crate) async fn own_again(&self, owner: &Owner, cidr: BlockCidr) -> Result<Owned, ClaimError> {
        let row = self.pending_row(owner, cidr, None).await?;
        let owned = self.owned_block(owner, &row).await?;
        if matches!(owned, Owned::NoBlock) {
            // Best effort: a row that stays is found stale by its next use.
            drop(Table::<AffinityKind>::delete(&self.store, &row).await);
        }
        Ok(owned)
    }

    /// Claims every block of a CIDR for an owner, bounded by the pool; answers with what was claimed and what others
    /// have.
    pub(crate) async fn claim_all(
        &self,
        owner: &Owner,
        cidrs: impl Iterator<Item = BlockCidr>,
    ) -> Result<(Vec<BlockCidr>, Vec<BlockCidr>), (Vec<BlockCidr>, ClaimError)> {
        let (mut claimed, mut failed) = (Vec::new(), Vec::new());
        for cidr in cidrs {
            let mut done = Err(ClaimError::Stale);
            for _ in 0..RETRIES {
                done = self.claim_block(owner, cidr, None, None).await;
                if !matches!(done, Err(ClaimError::Stale)) {
                    break;
                }
            }
            match done {
                Ok(_) => claimed.push(cidr),
                Err(ClaimError::Lost) => failed.push(cidr),
                Err(e) => return Err((claimed, e)),
            }
        }
        Ok((claimed, failed))
    }
}

/// A block that was claimed, and the row that says so.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) row: Row<AffinityKind>,
    pub(crate) block: Row<BlockKind>,
}

/// What an affinity row of ours leads to.
#[derive(Clone, Debug)]
pub(crate) enum Owned {
    /// A block that may be used.
    Usable(Box<Row<BlockKind>>),
    /// A claim that stopped before its block was there.
    NoBlock,
    /// The block is somebody else's; the row is gone.
    Stale,
}
