//! A store that parks every call until the explorer says how it ends.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use futures::FutureExt;
use ipam::mem::Kept;
use ipam::model::{Affinity, AffinityKind, BlockKind, Handle, HandleKind, Rows};
use ipam::store::{Freshness, Kind as _, Row, StoreError, Table};
use ipam::{Block, BlockCidr, HandleId, MemStore, Owner};

/// How a parked call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As the store says.
    Done,
    /// The request is lost.
    LostBefore,
    /// Done, and the reply is lost.
    LostAfter,
    /// No reply, and done at some later time.
    LandsLate,
    /// Answered from this earlier state of its rows.
    Old(usize),
    /// The client is gone, with all its calls.
    Crash,
}

/// One decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This client's parked call of this place ends so.
    Call(usize, usize, Ending),
    /// The late write of this place lands.
    Land(usize),
}

impl Choice {
    /// Whether the world misbehaves.
    pub fn is_fault(&self) -> bool {
        !matches!(self, Choice::Call(_, _, Ending::Done) | Choice::Land(_))
    }
}

/// `0`: client 0, its first parked call, done; `1.2a`: client 1, its third, reply lost; `L0`: a late write lands.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (actor, call, ending) = match self {
            Choice::Land(n) => return write!(f, "L{n}"),
            Choice::Call(actor, call, ending) => (actor, call, ending),
        };
        write!(f, "{actor}")?;
        if *call > 0 {
            write!(f, ".{call}")?;
        }
        match ending {
            Ending::Done => Ok(()),
            Ending::LostBefore => write!(f, "b"),
            Ending::LostAfter => write!(f, "a"),
            Ending::LandsLate => write!(f, "l"),
            Ending::Crash => write!(f, "c"),
            Ending::Old(n) => write!(f, "o{n}"),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no decision");
        let number = |t: &str| t.parse::<usize>().map_err(|_| wrong());
        if let Some(n) = text.strip_prefix('L') {
            return Ok(Choice::Land(number(n)?));
        }
        let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (who, how) = text.split_at(at);
        let (actor, call) = who.split_once('.').unwrap_or((who, "0"));
        let ending = match how {
            "" => Ending::Done,
            "b" => Ending::LostBefore,
            "a" => Ending::LostAfter,
            "l" => Ending::LandsLate,
            "c" => Ending::Crash,
            _ => Ending::Old(number(how.strip_prefix('o').ok_or_else(wrong)?)?),
        };
        Ok(Choice::Call(number(actor)?, number(call)?, ending))
    }
}

/// A call that waits.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    id: u64,
    ending: Option<Ending>,
    waker: Option<Waker>,
    /// Whether it may write.
    pub(super) writes: bool,
    /// The rows that it is about.
    pub(super) rows: RowSet,
    /// How many earlier states it may see.
    pub(super) old: usize,
}

/// Sets of rows of the explored store, one bit each: the block, the affinities of `a` and `b`, and the handles.
pub(super) type RowSet = u16;
/// The block.
pub(super) const B: RowSet = 1;
/// The affinity of `a`.
pub(super) const AA: RowSet = 2;
/// The affinity of `b`.
pub(super) const AB: RowSet = 4;
const HANDLES: [&str; 6] = ["s", "h1", "h2", "h3", "h4", "h5"];

/// A handle.
pub(super) fn handle(name: &str) -> RowSet {
    HANDLES.iter().position(|h| *h == name).map_or(RowSet::MAX, |at| 8 << at)
}

/// The rows of a key, or of a selection.
fn rows_of(key: &dyn std::any::Any) -> RowSet {
    let host = |owner: &Owner| if owner.name() == "a" { AA } else { AB };
    if key.is::<BlockCidr>() {
        B
    } else if let Some((owner, _)) = key.downcast_ref::<(Owner, BlockCidr)>() {
        host(owner)
    } else if let Some(id) = key.downcast_ref::<HandleId>() {
        handle(id.as_str())
    } else if let Some(Rows::Of(owner)) = key.downcast_ref::<Rows>() {
        host(owner)
    } else if key.is::<Rows>() {
        AA | AB
    } else {
        RowSet::MAX
    }
}

type Landing = Box<dyn FnOnce(&MemStore, &mut Ledger) + Send>;

/// What identifies contents: a chain over all writes of a row, the same for all orders of writes of other rows.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Per revision.
    revisions: HashMap<String, u64>,
    /// Per row that is there.
    current: BTreeMap<u64, u64>,
    /// Per row, the last that happened to it.
    last: HashMap<u64, u64>,
    /// Earlier states of the affinities, which cached lists may show.
    affinities: Vec<Vec<Row<AffinityKind>>>,
}

/// A hash of anything.
pub(super) fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What stands for a row.
fn name<K: Kept>(key: &K::Key) -> u64 {
    hash((K::NAME, key))
}

/// A value without what depends on the time of unrelated calls: a block's number starts from the time of its birth.
fn content<K: Kept>(value: &K::Value) -> u64 {
    let any: &dyn std::any::Any = value;
    if let Some(Block { cidr, affinity, claim_time, allocations, unallocated, attributes, seq: _, seqs }) = any.downcast_ref() {
        let numbered: Vec<u32> = seqs.keys().copied().collect();
        hash((cidr, affinity, claim_time, allocations, unallocated, attributes, numbered))
    } else if let Some(affinity) = any.downcast_ref::<Affinity>() {
        hash(affinity)
    } else if let Some(handle) = any.downcast_ref::<Handle>() {
        hash(handle)
    } else {
        hash(format!("{value:?}"))
    }
}

impl Ledger {
    pub(super) fn note<K: Kept>(&mut self, row: &Row<K>) {
        let name = name::<K>(&row.key);
        if self.revisions.contains_key(&row.revision.0) {
            return;
        }
        let chain = hash((self.last.get(&name), content::<K>(&row.value)));
        self.revisions.insert(row.revision.0.clone(), chain);
        self.current.insert(name, chain);
        self.last.insert(name, chain);
    }

    fn gone<K: Kept>(&mut self, key: &K::Key) {
        let name = name::<K>(key);
        self.current.remove(&name);
        let chain = hash((self.last.get(&name), "gone"));
        self.last.insert(name, chain);
    }

    fn of<K: Kept>(&self, row: &Row<K>) -> u64 {
        self.revisions.get(&row.revision.0).copied().unwrap_or_default()
    }

    /// Remembers the affinities before a write of them.
    fn keep(&mut self, before: Option<Vec<Row<AffinityKind>>>) {
        self.affinities.extend(before.filter(|b| !self.affinities.contains(b)));
    }

    fn state(&self) -> u64 {
        hash((&self.current, self.affinities.len()))
    }
}

/// The affinities, when it is they that are written.
fn affinities<K: Kept>(store: &MemStore) -> Option<Vec<Row<AffinityKind>>> {
    (K::NAME == AffinityKind::NAME).then(|| store.rows::<AffinityKind>())
}

#[derive(Default)]
struct Inner {
    parked: Vec<Vec<Parked>>,
    calls: Vec<u64>,
    /// Per client, everything that it was told: with its program, its state.
    told: Vec<u64>,
    late: Vec<(u64, RowSet, Landing)>,
    ledger: Ledger,
    /// Writes that found their row changed.
    lost_races: usize,
}

/// What the clients of one schedule share.
#[derive(Clone, Default)]
pub(super) struct Gate {
    inner: Arc<Mutex<Inner>>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For so many clients, over a store as it is.
    pub(super) fn new(store: &MemStore, actors: usize) -> Self {
        let gate = Self::default();
        {
            let mut inner = gate.lock();
            inner.parked = vec![Vec::new(); actors];
            inner.calls = vec![0; actors];
            inner.told = vec![0; actors];
            store.rows::<BlockKind>().iter().for_each(|r| inner.ledger.note(r));
            store.rows::<AffinityKind>().iter().for_each(|r| inner.ledger.note(r));
            store.rows::<HandleKind>().iter().for_each(|r| inner.ledger.note(r));
        }
        gate
    }

    /// The calls that wait, per client.
    pub(super) fn parked(&self, actor: usize) -> Vec<Parked> {
        self.lock().parked[actor].iter().filter(|p| p.ending.is_none()).cloned().collect()
    }

    /// The rows of the writes that may land yet, each.
    pub(super) fn late(&self) -> Vec<RowSet> {
        self.lock().late.iter().map(|(_, rows, _)| *rows).collect()
    }

    /// Whether a client has made a call already.
    pub(super) fn began(&self, actor: usize) -> bool {
        self.lock().told[actor] != 0
    }

    pub(super) fn lost_races(&self) -> usize {
        self.lock().lost_races
    }

    pub(super) fn grant(&self, actor: usize, call: usize, ending: Ending) {
        let waker = self.lock().parked[actor].iter_mut().filter(|p| p.ending.is_none()).nth(call).and_then(|p| {
            p.ending = Some(ending);
            p.waker.take()
        });
        waker.inspect(Waker::wake_by_ref);
    }

    pub(super) fn forget(&self, actor: usize) {
        self.lock().parked[actor].clear();
    }

    pub(super) fn land(&self, place: usize, store: &MemStore) {
        let mut inner = self.lock();
        let (_, _, landing) = inner.late.remove(place);
        landing(store, &mut inner.ledger);
    }

    /// The store and what is on its way to it.
    pub(super) fn state(&self) -> u64 {
        let inner = self.lock();
        let late: Vec<u64> = inner.late.iter().map(|(h, _, _)| *h).collect();
        hash((inner.ledger.state(), late))
    }

    /// What identifies the contents of the store.
    pub(super) fn contents(&self) -> u64 {
        hash(&self.lock().ledger.current)
    }

    pub(super) fn told(&self, actor: usize) -> u64 {
        self.lock().told[actor]
    }
}

/// One client's store.
#[derive(Clone)]
pub struct Gated {
    gate: Gate,
    store: MemStore,
    actor: usize,
    touches: RowSet,
}

impl Gated {
    pub(super) fn new(gate: Gate, store: MemStore, actor: usize, touches: RowSet) -> Self {
        Self { gate, store, actor, touches }
    }

    async fn park(&self, writes: bool, rows: RowSet, old: usize) -> (u64, Ending) {
        // The independence of calls rests on what each operation is said to touch.
        assert!(rows & !self.touches == 0, "client {} touches {rows:b}, beyond {:b}", self.actor, self.touches);
        let id = {
            let mut inner = self.gate.lock();
            inner.calls[self.actor] += 1;
            let id = inner.calls[self.actor];
            inner.parked[self.actor].push(Parked { id, ending: None, waker: None, writes, rows, old });
            id
        };
        let ending = std::future::poll_fn(|context| {
            let mut inner = self.gate.lock();
            let parked = &mut inner.parked[self.actor];
            let Some(at) = parked.iter().position(|p| p.id == id) else { return Poll::Pending };
            let Some(ending) = parked[at].ending else {
                parked[at].waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            parked.remove(at);
            Poll::Ready(ending)
        });
        (id, ending.await)
    }

    /// What a client is told becomes part of its state; calls that wait together may be told in any order.
    fn tell(inner: &mut Inner, actor: usize, id: u64, what: impl Hash) {
        inner.told[actor] = inner.told[actor].wrapping_add(hash((id, what)) | 1);
    }

    fn earlier<K: Kept>(&self, select: &K::Select, at: usize) -> Vec<Row<K>> {
        let inner = self.gate.lock();
        let rows = inner.ledger.affinities.get(at).map(|rows| rows as &dyn std::any::Any);
        let rows = rows.and_then(|rows| rows.downcast_ref::<Vec<Row<K>>>());
        rows.into_iter().flatten().filter(|r| K::selects(select, r)).cloned().collect()
    }

    async fn read<T>(
        &self,
        rows: RowSet,
        run: impl Future<Output = Result<T, StoreError>>,
        seen: impl FnOnce(&Ledger, &T) -> u64,
    ) -> Result<T, StoreError> {
        let (id, ending) = self.park(false, rows, 0).await;
        let answer = if ending == Ending::Done { run.await } else { lost() };
        let mut inner = self.gate.lock();
        let told = answer.as_ref().map(|a| seen(&inner.ledger, a)).map_err(ToString::to_string);
        Self::tell(&mut inner, self.actor, id, told);
        answer
    }

    async fn write<T: 'static>(
        &self,
        (what, rows): (u64, RowSet),
        run: impl FnOnce(&MemStore, &mut Ledger) -> Result<(T, u64), StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (id, ending) = self.park(true, rows, 0).await;
        let mut inner = self.gate.lock();
        let answer = match ending {
            Ending::Done => run(&self.store, &mut inner.ledger),
            Ending::LostAfter => {
                // The writer does not hear what became of it.
                drop(run(&self.store, &mut inner.ledger));
                lost()
            }
            Ending::LandsLate => {
                let landing = Box::new(move |store: &MemStore, ledger: &mut Ledger| drop(run(store, ledger)));
                inner.late.push((what, rows, landing));
                lost()
            }
            _ => lost(),
        };
        if matches!(answer, Err(StoreError::Conflict | StoreError::Absent)) {
            inner.lost_races += 1;
        }
        let told = answer.as_ref().map(|(_, seen)| *seen).map_err(ToString::to_string);
        Self::tell(&mut inner, self.actor, id, told);
        answer.map(|(t, _)| t)
    }
}

fn lost<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("lost".into()))
}

/// The rows of a list.
fn rows_of_list<K: Kept>(select: &K::Select) -> RowSet {
    match K::NAME {
        name if name == BlockKind::NAME => B,
        name if name == AffinityKind::NAME => rows_of(select),
        _ => HANDLES.iter().fold(0, |all, h| all | handle(h)),
    }
}

/// The store in memory answers at once.
fn at_once<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    call.now_or_never().unwrap_or_else(|| lost())
}

/// Nobody writes the other kinds here, so their calls are no place to interleave.
fn matters<K: Kept>() -> bool {
    [BlockKind::NAME, AffinityKind::NAME, HandleKind::NAME].contains(&K::NAME)
}

impl<K: Kept> Table<K> for Gated {
    async fn get(&self, key: &K::Key) -> Result<Option<Row<K>>, StoreError> {
        let call = Table::<K>::get(&self.store, key);
        if !matters::<K>() {
            return call.await;
        }
        self.read(rows_of(key), call, |ledger, row| row.as_ref().map_or(0, |r| ledger.of(r))).await
    }

    async fn list(&self, select: &K::Select, fresh: Freshness) -> Result<Vec<Row<K>>, StoreError> {
        if !matters::<K>() {
            return Table::<K>::list(&self.store, select, fresh).await;
        }
        let cached = fresh == Freshness::Cached && K::NAME == AffinityKind::NAME;
        let old = if cached { self.gate.lock().ledger.affinities.len() } else { 0 };
        let (id, ending) = self.park(false, rows_of_list::<K>(select), old).await;
        let answer = match ending {
            Ending::Done => Table::<K>::list(&self.store, select, fresh).await,
            Ending::Old(at) => Ok(self.earlier::<K>(select, at)),
            _ => lost(),
        };
        let mut inner = self.gate.lock();
        let told = answer.as_ref().map(|rows| rows.iter().map(|r| inner.ledger.of(r)).collect::<Vec<_>>()).map_err(ToString::to_string);
        Self::tell(&mut inner, self.actor, id, told);
        answer
    }

    async fn create(&self, key: &K::Key, value: K::Value) -> Result<Row<K>, StoreError> {
        let what = (hash(("create", name::<K>(key), content::<K>(&value))), rows_of(key));
        let key = key.clone();
        self.write(what, move |store, ledger| {
            let before = affinities::<K>(store);
            let row = at_once(Table::<K>::create(store, &key, value))?;
            ledger.keep(before);
            ledger.note(&row);
            Ok((row.clone(), ledger.of(&row)))
        })
        .await
    }

    async fn update(&self, row: Row<K>) -> Result<Row<K>, StoreError> {
        let seen = self.gate.lock().ledger.of(&row);
        let what = (hash(("update", name::<K>(&row.key), content::<K>(&row.value), seen)), rows_of(&row.key));
        self.write(what, move |store, ledger| {
            let before = affinities::<K>(store);
            let row = at_once(Table::<K>::update(store, row))?;
            ledger.keep(before);
            ledger.note(&row);
            Ok((row.clone(), ledger.of(&row)))
        })
        .await
    }

    async fn delete(&self, row: &Row<K>) -> Result<(), StoreError> {
        let row = row.clone();
        let what = (hash(("delete", name::<K>(&row.key), self.gate.lock().ledger.of(&row))), rows_of(&row.key));
        self.write(what, move |store, ledger| {
            let before = affinities::<K>(store);
            at_once(Table::<K>::delete(store, &row))?;
            ledger.keep(before);
            ledger.gone::<K>(&row.key);
            Ok(((), 1))
        })
        .await
    }

    /// Only the rows that the client may touch: it does not look at others.
    async fn half_deleted(&self) -> Result<Vec<Row<K>>, StoreError> {
        let (touches, all) = (self.touches, Table::<K>::half_deleted(&self.store));
        let mine = async move { Ok(all.await?.into_iter().filter(|r| rows_of(&r.key) & !touches == 0).collect::<Vec<Row<K>>>()) };
        let rows = rows_of_list::<K>(&K::Select::default()) & touches;
        self.read(rows, mine, |ledger, rows| hash(rows.iter().map(|r| ledger.of(r)).collect::<Vec<_>>())).await
    }

    async fn purge(&self, row: &Row<K>) -> Result<(), StoreError> {
        let row = row.clone();
        let what = (hash(("purge", name::<K>(&row.key))), rows_of(&row.key));
        self.write(what, move |store, ledger| {
            at_once(Table::<K>::purge(store, &row))?;
            ledger.gone::<K>(&row.key);
            Ok(((), 2))
        })
        .await
    }
}
