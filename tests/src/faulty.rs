//! A store that fails where it is told to, and lets others write in between.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use ipam::mem::Kept;
use ipam::model::BlockKind;
use ipam::store::{Freshness, Kind as _, Revision, Row, StoreError, Table};
use ipam::{BlockCidr, MemStore};

#[derive(Debug, Default)]
struct Faults {
    /// Writes that fail: `Kind key`.
    writes: BTreeMap<String, StoreError>,
    /// Writes that fail once.
    once: BTreeMap<String, StoreError>,
    /// Readings that fail: `Kind key`, lists `Kind`.
    reads: BTreeMap<String, StoreError>,
    /// Blocks that somebody else writes right after the next reading of them.
    races: BTreeMap<BlockCidr, Row<BlockKind>>,
    /// Blocks that somebody else touches right before our next write of them.
    lost: BTreeMap<String, BlockCidr>,
}

/// A store in memory with faults.
#[derive(Clone, Debug, Default)]
pub struct Faulty {
    store: MemStore,
    faults: Arc<Mutex<Faults>>,
}

impl Faulty {
    /// Over a store.
    pub fn new(store: MemStore) -> Self {
        Self { store, faults: Arc::default() }
    }

    fn faults(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets writes of a row fail, or no more.
    pub fn fail(&self, row: String, error: Option<StoreError>) {
        match error {
            Some(e) => drop(self.faults().writes.insert(row, e)),
            None => drop(self.faults().writes.remove(&row)),
        }
    }

    /// Lets the next write of a row fail.
    pub fn fail_once(&self, row: String, error: StoreError) {
        self.faults().once.insert(row, error);
    }

    /// Lets readings of a row, or lists of a kind, fail.
    pub fn fail_reading(&self, row: String, error: StoreError) {
        self.faults().reads.insert(row, error);
    }

    /// Lets somebody else replace a block before the next reading of it by us.
    pub fn race(&self, row: Row<BlockKind>) {
        self.faults().races.insert(row.key, row);
    }

    /// Lets somebody else write a block, with nothing changed but its sequence number, right before our next write of it.
    pub fn race_write(&self, block: BlockCidr) {
        self.faults().lost.insert(row_name::<BlockKind>(&block), block);
    }

    fn lose_race<K: Kept>(&self, key: &K::Key) {
        let due = self.faults().lost.remove(&row_name::<K>(key));
        if let Some((row, _)) = due.and_then(|cidr| self.store.peek::<BlockKind>(&cidr)) {
            let value = ipam::Block { seq: row.value.seq + 1, ..row.value };
            self.store.put::<BlockKind>(Row { value, revision: Revision("raced".into()), ..row }, false);
        }
    }

    fn check<K: Kept>(&self, key: &K::Key) -> Result<(), StoreError> {
        let mut faults = self.faults();
        let once = faults.once.remove(&row_name::<K>(key));
        once.or_else(|| faults.writes.get(&row_name::<K>(key)).cloned()).map_or(Ok(()), Err)
    }

    fn check_reading(&self, row: &str) -> Result<(), StoreError> {
        self.faults().reads.get(row).map_or(Ok(()), |e| Err(e.clone()))
    }
}

/// The name under which a row's faults are kept.
pub fn row_name<K: Kept>(key: &K::Key) -> String {
    format!("{} {key:?}", K::NAME)
}

impl<K: Kept> Table<K> for Faulty {
    async fn get(&self, key: &K::Key) -> Result<Option<Row<K>>, StoreError> {
        let_others_go().await;
        self.check_reading(&row_name::<K>(key))?;
        if K::NAME == BlockKind::NAME {
            let due = self.faults().races.iter().map(|(c, r)| (*c, r.clone())).find(|(c, _)| format!("{c:?}") == format!("{key:?}"));
            if let Some((cidr, row)) = due {
                self.faults().races.remove(&cidr);
                self.store.put::<BlockKind>(row, false);
            }
        }
        Table::<K>::get(&self.store, key).await
    }

    async fn list(&self, select: &K::Select, fresh: Freshness) -> Result<Vec<Row<K>>, StoreError> {
        let_others_go().await;
        self.check_reading(K::NAME)?;
        Table::<K>::list(&self.store, select, fresh).await
    }

    async fn create(&self, key: &K::Key, value: K::Value) -> Result<Row<K>, StoreError> {
        let_others_go().await;
        self.check::<K>(key)?;
        Table::<K>::create(&self.store, key, value).await
    }

    async fn update(&self, row: Row<K>) -> Result<Row<K>, StoreError> {
        let_others_go().await;
        self.check::<K>(&row.key)?;
        self.lose_race::<K>(&row.key);
        Table::<K>::update(&self.store, row).await
    }

    async fn delete(&self, row: &Row<K>) -> Result<(), StoreError> {
        let_others_go().await;
        self.check::<K>(&row.key)?;
        Table::<K>::delete(&self.store, row).await
    }

    async fn half_deleted(&self) -> Result<Vec<Row<K>>, StoreError> {
        Table::<K>::half_deleted(&self.store).await
    }

    async fn purge(&self, row: &Row<K>) -> Result<(), StoreError> {
        Table::<K>::purge(&self.store, row).await
    }
}

/// Calls that run together take turns.
async fn let_others_go() {
    let mut first = true;
    std::future::poll_fn(|context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}
