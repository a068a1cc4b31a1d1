//! Giving blocks back: one block, or everything of a host (allocation.md 5.5, 9).

mod by_cidr;

pub use by_cidr::AffinityError;

use crate::block::Block;
use crate::clock::Clock;
use crate::ids::{BlockCidr, NameError, Owner, check_host};
use crate::model::{Affinity, AffinityKind, AffinityState, BlockKind, Rows};
use crate::modify::RETRIES;
use crate::planted::{Planted, planted};
use crate::store::{Datastore, Freshness, Row, StoreError, Table};
use crate::{ConfigError, Ipam};

/// Conditions of giving a block back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The block must hold nothing but host reservations; cooling addresses count.
    pub must_be_empty: bool,
    /// The block must have this sequence number.
    pub seq: Option<i64>,
}

/// What became of a block that was to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveBack {
    /// Row and block are gone.
    Block,
    /// The block holds addresses and stays without owner; the row is gone.
    Ownership,
    /// There was a row without block; it is gone.
    Row,
    /// There was neither row nor block of this owner.
    Nothing,
    /// The block belongs to somebody else; a row of ours is gone.
    NotOurs,
}

/// Why a block was not given back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GiveBackError {
    /// An argument cannot be used; nothing was read.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It is not empty; nothing was written. Look again later.
    #[error("the block is not empty")]
    NotEmpty,
    /// It has changed since; look again.
    #[error("the block has changed since it was read")]
    Stale,
    /// The configuration could not be had, so it cannot be told what has cooled; nothing was written.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store failed; nothing, or a part, was written; doing it again goes on.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

impl GiveBackError {
    /// Whether a write may have happened without our knowing (D-57).
    pub fn unknown(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unavailable(_)))
    }
}

/// What became of a host's blocks.
#[derive(Clone, Debug, Default)]
pub struct HostRelease {
    /// Per block.
    pub blocks: Vec<(BlockCidr, Result<GaveBack, GiveBackError>)>,
}

impl HostRelease {
    /// Whether nothing of the host is left.
    pub fn complete(&self) -> bool {
        self.blocks.iter().all(|(_, done)| done.is_ok())
    }
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Gives one block back: row to `pendingDeletion`, block deleted or left without owner, row deleted. One attempt:
    /// a lost race is [`GiveBackError::Stale`]. A stop in between leaves a row that the next attempt finishes.
    ///
    /// # Errors
    /// See [`GiveBackError`].
    pub async fn release_block_affinity(&self, owner: &Owner, cidr: BlockCidr, conditions: Conditions) -> Result<GaveBack, GiveBackError> {
        check_host(owner.name())?;
        let config = self.get_config().await?;
        let key = (owner.clone(), cidr);
        let row = Table::<AffinityKind>::get(&self.store, &key).await?;
        let Some(block) = Table::<BlockKind>::get(&self.store, &cidr).await? else {
            return self.drop_row(row, GaveBack::Row).await;
        };
        let mut seen = block.value.clone();
        seen.collect(self.clock.now(), config.cooldown());
        // An empty block of nobody goes with the row that still names it (AFF-05).
        let leftover = block.value.affinity.is_none() && row.is_some() && seen.is_empty();
        if !leftover && block.value.affinity.as_deref() != Some(owner.to_string().as_str()) {
            return self.drop_row(row, GaveBack::NotOurs).await;
        }
        if conditions.seq.is_some_and(|seq| seq != block.value.seq) {
            return Err(GiveBackError::Stale);
        }
        if conditions.must_be_empty && !seen.is_empty() {
            return Err(GiveBackError::NotEmpty);
        }
        let row = match row {
            Some(row) => Some(self.mark(row).await?),
            None => None,
        };
        let done = self.disown(block, seen).await?;
        self.drop_row(row, done).await?;
        Ok(done)
    }

    async fn mark(&self, row: Row<AffinityKind>) -> Result<Row<AffinityKind>, GiveBackError> {
        if row.value.state == AffinityState::PendingDeletion {
            return Ok(row);
        }
        let value = Affinity { state: AffinityState::PendingDeletion, ..row.value.clone() };
        Table::<AffinityKind>::update(&self.store, Row { value, ..row }).await.map_err(lost)
    }

    async fn disown(&self, row: Row<BlockKind>, seen: Block) -> Result<GaveBack, GiveBackError> {
        if seen.is_empty() || planted(Planted::DeleteFull) {
            let row =
                if planted(Planted::DeleteUnread) { Table::<BlockKind>::get(&self.store, &row.key).await?.unwrap_or(row) } else { row };
            return match Table::<BlockKind>::delete(&self.store, &row).await {
                Ok(()) | Err(StoreError::Absent) => Ok(GaveBack::Block),
                Err(e) => Err(lost(e)),
            };
        }
        let value = Block { affinity: None, claim_time: None, seq: seen.seq + 1, ..seen };
        Table::<BlockKind>::update(&self.store, Row { value, ..row }).await.map_err(lost)?;
        Ok(GaveBack::Ownership)
    }

    async fn drop_row(&self, row: Option<Row<AffinityKind>>, done: GaveBack) -> Result<GaveBack, GiveBackError> {
        let Some(row) = row else { return Ok(if done == GaveBack::Row { GaveBack::Nothing } else { done }) };
        match Table::<AffinityKind>::delete(&self.store, &row).await {
            Ok(()) | Err(StoreError::Absent) => Ok(done),
            Err(e) => Err(lost(e)),
        }
    }

    /// Everything that there is to do for a host that is gone: its blocks are given back, empty or not.
    ///
    /// # Errors
    /// See [`release_host`](Self::release_host).
    pub async fn remove_host(&self, host: &str) -> Result<HostRelease, AffinityError> {
        self.release_host(host, false).await
    }

    /// Gives back every block and every row of a host, indexed or not, pending too (D-12, D-69). One failure does not
    /// stop the rest; lost races are tried again.
    ///
    /// # Errors
    /// The host's name cannot be used, or the rows could not be listed; nothing was written.
    pub async fn release_host(&self, host: &str, must_be_empty: bool) -> Result<HostRelease, AffinityError> {
        check_host(host)?;
        let owner = Owner::Host(host.into());
        let mut rows = self.affinities(&Rows::Of(owner.clone())).await?;
        let plain = self.affinities(&Rows::NotIndexed).await?;
        rows.extend(plain.into_iter().filter(|r| r.key.0 == owner));
        let mut report = HostRelease::default();
        for cidr in rows.into_iter().map(|r| r.key.1) {
            report.blocks.push((cidr, self.give_back_patiently(&owner, cidr, must_be_empty).await));
        }
        Ok(report)
    }

    async fn affinities(&self, select: &Rows) -> Result<Vec<Row<AffinityKind>>, AffinityError> {
        Table::<AffinityKind>::list(&self.store, select, Freshness::Latest).await.map_err(AffinityError::Store)
    }

    /// [`release_block_affinity`](Self::release_block_affinity), again on a lost race; stale when too many were lost.
    pub(crate) async fn give_back_patiently(&self, owner: &Owner, cidr: BlockCidr, must_be_empty: bool) -> Result<GaveBack, GiveBackError> {
        let conditions = Conditions { must_be_empty, seq: None };
        for _ in 0..RETRIES {
            match self.release_block_affinity(owner, cidr, conditions).await {
                Err(GiveBackError::Stale) => {}
                done => return done,
            }
        }
        Err(GiveBackError::Stale)
    }
}

fn lost(e: StoreError) -> GiveBackError {
    match e {
        StoreError::Conflict | StoreError::Absent | StoreError::Exists => GiveBackError::Stale,
        other => GiveBackError::Store(other),
    }
}
