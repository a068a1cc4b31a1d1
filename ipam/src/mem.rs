//! The store in memory: the reference semantics of [`Table`] and [`Watch`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{Stream, StreamExt};

use crate::model::{AffinityKind, BlockKind, ClusterKind, ConfigKind, HandleKind, NodeKind, PoolKind, ReservationKind};
use crate::store::{Event, Extra, Freshness, Kind, Revision, Row, StoreError, Table, Uid, Watch};

/// Verbs whose calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// One row by key.
    Get,
    /// Many rows.
    List,
    /// A new row.
    Create,
    /// A changed row.
    Update,
    /// A row less.
    Delete,
}

impl Verb {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Delete => "delete",
        }
    }
}

#[derive(Debug)]
enum Message<K: Kind> {
    Changed(K::Key),
    Synced,
}

#[derive(Debug)]
struct Stored<K: Kind> {
    row: Row<K>,
    half_deleted: bool,
}

#[derive(Debug)]
struct Rows<K: Kind> {
    rows: BTreeMap<K::Key, Stored<K>>,
    watchers: Vec<UnboundedSender<Message<K>>>,
}

impl<K: Kind> Default for Rows<K> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), watchers: Vec::new() }
    }
}

impl<K: Kind> Rows<K> {
    fn tell(&mut self, key: &K::Key) {
        self.watchers.retain(|w| w.unbounded_send(Message::Changed(key.clone())).is_ok());
    }

    fn current(&self, key: &K::Key) -> Option<&Row<K>> {
        self.rows.get(key).filter(|s| !s.half_deleted).map(|s| &s.row)
    }
}

#[derive(Debug, Default)]
struct Inner {
    revision: u64,
    uids: u64,
    counts: BTreeMap<(Verb, &'static str), u64>,
    blocks: Rows<BlockKind>,
    affinities: Rows<AffinityKind>,
    handles: Rows<HandleKind>,
    pools: Rows<PoolKind>,
    reservations: Rows<ReservationKind>,
    configs: Rows<ConfigKind>,
    clusters: Rows<ClusterKind>,
    nodes: Rows<NodeKind>,
}

impl Inner {
    fn next_revision(&mut self) -> Revision {
        self.revision += 1;
        Revision(format!("m{}", self.revision))
    }
}

/// A store in memory; clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemStore {
    inner: Arc<Mutex<Inner>>,
}

/// A kind that a [`MemStore`] keeps.
pub trait Kept: Kind {
    #[doc(hidden)]
    fn selects(select: &Self::Select, row: &Row<Self>) -> bool;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn rows(inner: &mut Inner) -> &mut Rows<Self>;
}

macro_rules! kept {
    ($($kind:ty => $field:ident),*) => {$(
        impl Kept for $kind {
            fn selects(_: &Self::Select, _: &Row<Self>) -> bool {
                true
            }
            #[allow(private_interfaces)]
            fn rows(inner: &mut Inner) -> &mut Rows<Self> {
                &mut inner.$field
            }
        }
    )*};
}
kept!(BlockKind => blocks, HandleKind => handles, PoolKind => pools, ReservationKind => reservations, ConfigKind => configs, ClusterKind => clusters, NodeKind => nodes);

impl Kept for AffinityKind {
    fn selects(select: &Self::Select, row: &Row<Self>) -> bool {
        select.selects(&row.key, &row.value)
    }
    #[allow(private_interfaces)]
    fn rows(inner: &mut Inner) -> &mut Rows<Self> {
        &mut inner.affinities
    }
}

impl MemStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count<K: Kind>(&self, verb: Verb) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        *inner.counts.entry((verb, K::NAME)).or_default() += 1;
        inner
    }

    /// Puts a row in as it is, revision and identity included: for loading and for tests. An older row of the
    /// same key is replaced.
    pub fn put<K: Kept>(&self, row: Row<K>, half_deleted: bool) {
        let mut inner = self.lock();
        let rows = K::rows(&mut inner);
        let key = row.key.clone();
        rows.rows.insert(key.clone(), Stored { row, half_deleted });
        rows.tell(&key);
    }

    /// Takes a row out without any condition: for loading and for tests.
    pub fn take<K: Kept>(&self, key: &K::Key) -> Option<Row<K>> {
        let mut inner = self.lock();
        let rows = K::rows(&mut inner);
        let stored = rows.rows.remove(key)?;
        rows.tell(key);
        Some(stored.row)
    }

    /// The row of this key, half-deleted or not: for saving.
    pub fn peek<K: Kept>(&self, key: &K::Key) -> Option<(Row<K>, bool)> {
        K::rows(&mut self.lock()).rows.get(key).map(|s| (s.row.clone(), s.half_deleted))
    }

    /// All rows of a kind that are not half-deleted, uncounted: for loading and for tests.
    pub fn rows<K: Kept>(&self) -> Vec<Row<K>> {
        K::rows(&mut self.lock()).rows.values().filter(|s| !s.half_deleted).map(|s| s.row.clone()).collect()
    }

    /// How many calls of each verb and kind there were.
    pub fn requests(&self) -> BTreeMap<(Verb, &'static str), u64> {
        self.lock().counts.clone()
    }

    /// Whether no call that may write was made.
    pub fn only_read(&self) -> bool {
        self.lock().counts.keys().all(|(verb, _)| matches!(verb, Verb::Get | Verb::List))
    }
}

impl<K: Kept> Table<K> for MemStore {
    async fn get(&self, key: &K::Key) -> Result<Option<Row<K>>, StoreError> {
        Ok(K::rows(&mut self.count::<K>(Verb::Get)).current(key).cloned())
    }

    async fn list(&self, select: &K::Select, _: Freshness) -> Result<Vec<Row<K>>, StoreError> {
        let mut inner = self.count::<K>(Verb::List);
        let rows = K::rows(&mut inner).rows.values().filter(|s| !s.half_deleted && K::selects(select, &s.row));
        Ok(rows.map(|s| s.row.clone()).collect())
    }

    async fn create(&self, key: &K::Key, value: K::Value) -> Result<Row<K>, StoreError> {
        let mut inner = self.count::<K>(Verb::Create);
        if K::rows(&mut inner).rows.contains_key(key) {
            return Err(StoreError::Exists);
        }
        let revision = inner.next_revision();
        inner.uids += 1;
        let uid = Uid(format!("mem-{}", inner.uids));
        let row = Row { key: key.clone(), value, revision, uid, extra: Extra::NONE };
        let rows = K::rows(&mut inner);
        rows.rows.insert(key.clone(), Stored { row: row.clone(), half_deleted: false });
        rows.tell(key);
        Ok(row)
    }

    async fn update(&self, mut row: Row<K>) -> Result<Row<K>, StoreError> {
        let mut inner = self.count::<K>(Verb::Update);
        let stored = K::rows(&mut inner).current(&row.key).ok_or(StoreError::Absent)?;
        if stored.uid != row.uid {
            return Err(StoreError::Absent);
        }
        if stored.revision != row.revision {
            return Err(StoreError::Conflict);
        }
        if *stored == row {
            return Ok(row);
        }
        row.revision = inner.next_revision();
        let rows = K::rows(&mut inner);
        rows.rows.insert(row.key.clone(), Stored { row: row.clone(), half_deleted: false });
        rows.tell(&row.key);
        Ok(row)
    }

    async fn delete(&self, row: &Row<K>) -> Result<(), StoreError> {
        let mut inner = self.count::<K>(Verb::Delete);
        let rows = K::rows(&mut inner);
        let stored = rows.current(&row.key).ok_or(StoreError::Absent)?;
        if stored.uid != row.uid {
            return Err(StoreError::Absent);
        }
        if stored.revision != row.revision {
            return Err(StoreError::Conflict);
        }
        rows.rows.remove(&row.key);
        rows.tell(&row.key);
        Ok(())
    }

    async fn half_deleted(&self) -> Result<Vec<Row<K>>, StoreError> {
        let mut inner = self.count::<K>(Verb::List);
        Ok(K::rows(&mut inner).rows.values().filter(|s| s.half_deleted).map(|s| s.row.clone()).collect())
    }

    async fn purge(&self, row: &Row<K>) -> Result<(), StoreError> {
        let mut inner = self.count::<K>(Verb::Delete);
        let rows = K::rows(&mut inner);
        let stored = rows.rows.get(&row.key).filter(|s| s.half_deleted && s.row.uid == row.uid).ok_or(StoreError::Absent)?;
        if stored.row.revision != row.revision {
            return Err(StoreError::Conflict);
        }
        rows.rows.remove(&row.key);
        rows.tell(&row.key);
        Ok(())
    }
}

impl<K: Kept> Watch<K> for MemStore {
    fn watch(&self) -> impl Stream<Item = Event<K>> + Send + Unpin + 'static {
        let (sender, receiver) = unbounded();
        let mut inner = self.lock();
        let rows = K::rows(&mut inner);
        for key in rows.rows.keys().cloned() {
            // The receiver is in our hands, so sending cannot fail.
            let _ = sender.unbounded_send(Message::Changed(key));
        }
        let _ = sender.unbounded_send(Message::Synced);
        rows.watchers.push(sender);
        let store = self.clone();
        receiver.map(move |message| match message {
            Message::Synced => Event::Synced,
            Message::Changed(key) => match K::rows(&mut store.lock()).current(&key) {
                Some(row) => Event::Put(row.clone()),
                None => Event::Gone(key),
            },
        })
    }
}
