//! The datastore's contract.
//!
//! [`MemStore`](crate::MemStore) *is* the contract; other stores hide their peculiarities and behave like it.
//!
//! * [`StoreError::Conflict`], [`Exists`](StoreError::Exists), [`Absent`](StoreError::Absent) and
//!   [`Refused`](StoreError::Refused) promise that this call wrote nothing.
//! * [`StoreError::Unavailable`] promises nothing: a write may have happened, or may still happen (D-57, D-84).
//! * A reader never sees a half-deleted row (D-44); such rows are in [`Table::half_deleted`], and only
//!   [`Table::purge`] finishes their deletion.
//! * Revisions are compared for equality only. An update with equal content keeps the revision.

use std::fmt::{self, Debug};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use futures::Stream;

use crate::model::{AffinityKind, BlockKind, ClusterKind, ConfigKind, HandleKind, NodeKind, PoolKind, ReservationKind};

/// A kind of row.
pub trait Kind: Copy + PartialEq + Debug + Send + Sync + Sized + 'static {
    /// What identifies a row.
    type Key: Clone + Ord + Hash + Debug + Send + Sync;
    /// What a row says.
    type Value: Clone + PartialEq + Debug + Send + Sync;
    /// Which rows to list.
    type Select: Clone + Debug + Default + Send + Sync;
    /// Its name in messages.
    const NAME: &'static str;
}

/// The store's version of a row; opaque.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub String);

/// Identity of a row over its life: a row that was deleted and created again has another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub String);

/// What a row carries that we do not model: unknown fields, labels, annotations. Only the store that wrote it can
/// read it; everybody else carries it along.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extra(Option<Arc<str>>);

impl Extra {
    /// Nothing.
    pub const NONE: Self = Self(None);

    /// A text of the store's own.
    pub fn new(text: &str) -> Self {
        Self(Some(text.into()))
    }

    /// The text.
    pub fn text(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Whether there is nothing.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

/// A stored row.
#[derive(Clone, PartialEq)]
pub struct Row<K: Kind> {
    /// Its key.
    pub key: K::Key,
    /// What it says.
    pub value: K::Value,
    /// Its version.
    pub revision: Revision,
    /// Its identity.
    pub uid: Uid,
    /// What else it carries.
    pub extra: Extra,
}

impl<K: Kind> Debug for Row<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}@{} {:?}", K::NAME, self.key, self.revision.0, self.value)
    }
}

/// Why a call of the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The row has changed since it was read; nothing was written.
    #[error("the row has changed since it was read")]
    Conflict,
    /// There is a row of this key already, perhaps a half-deleted one; nothing was written.
    #[error("there is such a row already")]
    Exists,
    /// There is no such row; nothing was written.
    #[error("there is no such row")]
    Absent,
    /// The store does not accept the call; nothing was written.
    #[error("refused by the store: {0}")]
    Refused(String),
    /// The store does not know the kind.
    #[error("the store does not serve {0}")]
    NotServed(&'static str),
    /// No answer, or none that tells: a write may have happened.
    #[error("no certain answer from the store: {0}")]
    Unavailable(String),
}

/// How fresh a list must be (D-29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Freshness {
    /// May be any earlier state.
    #[default]
    Cached,
    /// The newest.
    Latest,
}

/// The rows of one kind.
pub trait Table<K: Kind>: Send + Sync {
    /// The row of this key; `None`: there is none.
    fn get(&self, key: &K::Key) -> impl Future<Output = Result<Option<Row<K>>, StoreError>> + Send;

    /// The selected rows, by key.
    fn list(&self, select: &K::Select, fresh: Freshness) -> impl Future<Output = Result<Vec<Row<K>>, StoreError>> + Send;

    /// Creates a row; the stored one comes back.
    fn create(&self, key: &K::Key, value: K::Value) -> impl Future<Output = Result<Row<K>, StoreError>> + Send;

    /// Replaces a row if its revision is still the stored one; the stored one comes back.
    fn update(&self, row: Row<K>) -> impl Future<Output = Result<Row<K>, StoreError>> + Send;

    /// Deletes a row if its revision and identity are still the stored ones.
    fn delete(&self, row: &Row<K>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The rows whose deletion was begun and not finished.
    fn half_deleted(&self) -> impl Future<Output = Result<Vec<Row<K>>, StoreError>> + Send;

    /// Finishes the deletion of a half-deleted row.
    fn purge(&self, row: &Row<K>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// One change of a watched kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<K: Kind> {
    /// A row is there, with this content.
    Put(Row<K>),
    /// There is no such row, or none any more.
    Gone(K::Key),
    /// The full set has been delivered once.
    Synced,
}

/// Following one kind.
pub trait Watch<K: Kind>: Send + Sync {
    /// The full set, [`Event::Synced`], and every change after it. Changes of one row in quick succession may
    /// come as one.
    fn watch(&self) -> impl Stream<Item = Event<K>> + Send + Unpin + 'static;
}

/// Everything that a cluster's store has for us.
pub trait Datastore:
    Clone
    + 'static
    + Table<BlockKind>
    + Table<AffinityKind>
    + Table<HandleKind>
    + Table<PoolKind>
    + Table<ReservationKind>
    + Table<ConfigKind>
    + Table<ClusterKind>
    + Table<NodeKind>
{
}

impl<S> Datastore for S where
    S: Clone
        + 'static
        + Table<BlockKind>
        + Table<AffinityKind>
        + Table<HandleKind>
        + Table<PoolKind>
        + Table<ReservationKind>
        + Table<ConfigKind>
        + Table<ClusterKind>
        + Table<NodeKind>
{
}
