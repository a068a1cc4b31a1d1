//! Index repair (D-18): handles and affinities are brought in line with the blocks, which are the truth.
//!
//! A repair acts on one finding and only while the row is still as the finding saw it. When it may run is the caller's
//! decision: two equal findings a grace apart (an allocation counts its handle before it writes its block, so that a
//! single look may see a count that is too high and right).

use std::collections::BTreeMap;

use ipam_accounting::facts::is_windows_handle;

use crate::Ipam;
use crate::audit::{Finding, FindingKind, Subject, SubjectRow};
use crate::claim::{ClaimError, Owned};
use crate::clock::Clock;
use crate::ids::{BlockCidr, HandleId, Owner};
use crate::model::{AffinityKind, BlockKind, Handle, HandleKind, Rows};
use crate::store::{Datastore, Freshness, Kind, Revision, Row, StoreError, Table};

/// What a repair did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// The row is right now.
    Done,
    /// The row has changed since the finding, or is right already; nothing was written.
    Stale,
    /// No rule repairs this kind of finding; nothing was written.
    NoRule,
}

/// Why a repair failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// The store failed; when it is [`StoreError::Unavailable`], the write may have happened.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

impl RepairError {
    /// Whether a write may have happened without our knowing (D-57).
    pub fn unknown(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unavailable(_)))
    }
}

/// A lost race is a stale finding, not an error.
fn written<T>(done: Result<T, StoreError>) -> Result<Repaired, RepairError> {
    match done {
        Ok(_) => Ok(Repaired::Done),
        Err(StoreError::Conflict | StoreError::Absent | StoreError::Exists) => Ok(Repaired::Stale),
        Err(e) => Err(e.into()),
    }
}

fn as_seen<K: Kind>(row: Option<Row<K>>, seen: Option<&Revision>) -> Option<Row<K>> {
    row.filter(|r| Some(&r.revision) == seen)
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Repairs what a finding of [`audit`](crate::audit::audit()) names. Never deletes a handle that a block has addresses
    /// of, nor a block that holds one; never touches an allocation.
    ///
    /// # Errors
    /// The store failed.
    pub async fn repair(&self, finding: &Finding) -> Result<Repaired, RepairError> {
        let Some(Subject { row, seen }) = &finding.subject else { return Ok(Repaired::NoRule) };
        let seen = seen.as_ref();
        match (finding.kind, row) {
            (FindingKind::HalfDeleted, SubjectRow::Block(cidr)) => self.purge::<BlockKind>(cidr, seen).await,
            (FindingKind::HalfDeleted, SubjectRow::Affinity(owner, cidr)) => {
                self.purge::<AffinityKind>(&(owner.clone(), *cidr), seen).await
            }
            (FindingKind::HalfDeleted, SubjectRow::Handle(handle, _)) => self.purge::<HandleKind>(handle, seen).await,
            (_, SubjectRow::Handle(handle, blocks)) => self.recount(handle, blocks, seen).await,
            (_, SubjectRow::Affinity(owner, cidr)) => self.drop_stale_affinity(owner, *cidr, seen).await,
            (FindingKind::BlockUnownedEmpty, SubjectRow::Block(cidr)) => self.drop_unowned(cidr, seen).await,
            (FindingKind::BlockWithoutAffinity, SubjectRow::Block(cidr)) => self.add_affinity(cidr, seen).await,
            (FindingKind::DuplicateAffinity, SubjectRow::Block(cidr)) => self.drop_duplicates(*cidr).await,
            _ => Ok(Repaired::NoRule),
        }
    }

    async fn purge<K: Kind>(&self, key: &K::Key, seen: Option<&Revision>) -> Result<Repaired, RepairError>
    where
        S: Table<K>,
    {
        let row = Table::<K>::half_deleted(&self.store).await?.into_iter().find(|r| r.key == *key);
        let Some(row) = as_seen(row, seen) else { return Ok(Repaired::Stale) };
        written(Table::<K>::purge(&self.store, &row).await)
    }

    /// Counts a handle anew in the blocks that the finding knew. An allocation elsewhere in the meantime has changed the
    /// row, and then nothing is written. Entries of blocks that the finding did not understand stay.
    async fn recount(&self, handle: &HandleId, blocks: &[BlockCidr], seen: Option<&Revision>) -> Result<Repaired, RepairError> {
        let row = Table::<HandleKind>::get(&self.store, handle).await?;
        if row.as_ref().map(|r| &r.revision) != seen {
            return Ok(Repaired::Stale);
        }
        let mut new = row.as_ref().map_or_else(|| Handle { id: String::new(), blocks: BTreeMap::new() }, |r| r.value.clone());
        for cidr in blocks {
            let block = Table::<BlockKind>::get(&self.store, cidr).await?;
            let allocated = block.iter().flat_map(|b| b.value.allocated());
            let of_it: Vec<&str> = allocated
                .filter(|(_, a)| a.is_of(handle))
                .filter_map(|(_, a)| a.handle.as_deref())
                .filter(|h| !is_windows_handle(h))
                .collect();
            match of_it.first() {
                None => drop(new.blocks.remove(cidr)),
                Some(text) => {
                    if new.id.is_empty() {
                        new.id = (*text).into();
                    }
                    new.blocks.insert(*cidr, i64::try_from(of_it.len()).unwrap_or(i64::MAX));
                }
            }
        }
        match row {
            Some(row) if new.blocks.is_empty() => written(Table::<HandleKind>::delete(&self.store, &row).await),
            Some(row) if new == row.value => Ok(Repaired::Stale),
            Some(row) => written(Table::<HandleKind>::update(&self.store, Row { value: new, ..row }).await),
            None if new.blocks.is_empty() => Ok(Repaired::Stale),
            None => written(Table::<HandleKind>::create(&self.store, handle, new).await),
        }
    }

    /// Deletes an affinity whose block is not there or is not its owner's.
    async fn drop_stale_affinity(&self, owner: &Owner, cidr: BlockCidr, seen: Option<&Revision>) -> Result<Repaired, RepairError> {
        let row = Table::<AffinityKind>::get(&self.store, &(owner.clone(), cidr)).await?;
        let Some(row) = as_seen(row, seen) else { return Ok(Repaired::Stale) };
        let block = Table::<BlockKind>::get(&self.store, &cidr).await?;
        if block.is_some_and(|b| b.value.owner().as_ref() == Some(owner)) {
            return Ok(Repaired::Stale);
        }
        written(Table::<AffinityKind>::delete(&self.store, &row).await)
    }

    async fn drop_unowned(&self, cidr: &BlockCidr, seen: Option<&Revision>) -> Result<Repaired, RepairError> {
        let row = Table::<BlockKind>::get(&self.store, cidr).await?;
        let unowned = as_seen(row, seen).filter(|r| r.value.affinity.is_none() && r.value.is_empty());
        let Some(row) = unowned else { return Ok(Repaired::Stale) };
        written(Table::<BlockKind>::delete(&self.store, &row).await)
    }

    /// Gives the owner that a block names its affinity again.
    async fn add_affinity(&self, cidr: &BlockCidr, seen: Option<&Revision>) -> Result<Repaired, RepairError> {
        let row = Table::<BlockKind>::get(&self.store, cidr).await?;
        let owner = as_seen(row, seen).and_then(|r| r.value.owner());
        let Some(owner) = owner else { return Ok(Repaired::Stale) };
        match self.own_again(&owner, *cidr).await {
            Ok(Owned::Usable(_)) => Ok(Repaired::Done),
            Ok(Owned::NoBlock | Owned::Stale) => Ok(Repaired::Stale),
            Err(ClaimError::Lost | ClaimError::Stale | ClaimError::Reserve(_)) => Ok(Repaired::Stale),
            Err(ClaimError::Store(e)) => Err(e.into()),
        }
    }

    /// Deletes the affinities of a block that are not its owner's.
    async fn drop_duplicates(&self, cidr: BlockCidr) -> Result<Repaired, RepairError> {
        let rows = Table::<AffinityKind>::list(&self.store, &Rows::All, Freshness::Latest).await?;
        let mut done = Repaired::Stale;
        for row in rows.into_iter().filter(|r| r.key.1 == cidr) {
            if self.drop_stale_affinity(&row.key.0, cidr, Some(&row.revision)).await? == Repaired::Done {
                done = Repaired::Done;
            }
        }
        Ok(done)
    }
}
