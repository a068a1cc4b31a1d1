//! Counting addresses of handles: up before the block write, down after it.
//!
//! Counts of several clients add up in any order, as long as nobody takes away what somebody else is about to take away
//! himself. The only one who does is who deletes the row of a handle whose blocks are all gone; so everybody remembers in
//! which row (by its UID) it counted, or had its count before it released, and takes nothing from another one.

use crate::Ipam;
use crate::clock::Clock;
use crate::ids::{BlockCidr, HandleId};
use crate::model::{BlockKind, Handle, HandleKind};
use crate::modify::{Change, ModifyError, RETRIES, modify, modify_from};
use crate::planted::{Planted, planted};
use crate::pools::Family;
use crate::release::chain;
use crate::store::{Datastore, Row, StoreError, Table, Uid};
use ipam_accounting::facts::sanitise;

/// Why a handle was not counted; nothing was written, unless the store gave no certain answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// It would have more addresses of a family than it may have.
    #[error("the handle has as many addresses of this family as it may have")]
    MaxReached,
    /// The object of this name belongs to another handle (D-70).
    #[error("its row belongs to handle {0}")]
    Foreign(String),
}

/// What a call has counted of a block beyond what it took, and in which row of the handle.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    n: i64,
    row: Option<Uid>,
}

impl Counted {
    /// How many.
    pub(crate) fn n(&self) -> i64 {
        self.n
    }

    /// So many were taken.
    pub(crate) fn took(&mut self, n: usize) {
        self.n -= n as i64;
    }

    fn add(&mut self, n: i64, row: Uid) {
        // What was counted in a row that is gone is gone with it.
        let before = if self.row.as_ref() == Some(&row) { self.n } else { 0 };
        *self = Self { n: before + n, row: Some(row) };
    }
}

/// Why a handle was not counted down, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Behind(String);

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Counts `n` more addresses of a block. A new handle is created unread; one that exists costs two requests more.
    pub(crate) async fn count_up(
        &self,
        handle: &str,
        cidr: BlockCidr,
        n: i64,
        max: Option<u32>,
        counted: &mut Counted,
    ) -> Result<(), ModifyError<CountError>> {
        let key = HandleId::new(handle);
        if max.is_some_and(|max| n > i64::from(max)) {
            return Err(ModifyError::Own(CountError::MaxReached));
        }
        let new = || Handle { id: handle.into(), blocks: [(cidr, n)].into() };
        let mut made = Table::<HandleKind>::create(&self.store, &key, new()).await;
        for _ in 0..RETRIES {
            match made {
                Ok(row) => {
                    counted.add(n, row.uid);
                    return Ok(());
                }
                Err(StoreError::Exists) if planted(Planted::CountOnce) => return Ok(()),
                Err(StoreError::Exists) => {}
                Err(e @ StoreError::Unavailable(_)) => return Err(ModifyError::Unknown(e)),
                Err(e) => return Err(ModifyError::Refused(e)),
            }
            let there = modify::<HandleKind, _, _, _, _>(&self.store, &key, |row| {
                let Some(row) = row else { return Ok(Change::Keep(None)) };
                let more = with_more(row, handle, cidr, n, max)?;
                Ok(Change::Write(more, Some(row.uid.clone())))
            });
            if let Some(row) = there.await? {
                counted.add(n, row);
                return Ok(());
            }
            made = self.create_over::<HandleKind>(&key, new()).await;
        }
        Err(ModifyError::TooManyRetries)
    }

    /// Takes back what was counted and not taken, best effort: what stays is for index repair.
    pub(crate) async fn count_back(&self, handle: &str, cidr: BlockCidr, counted: &mut Counted) {
        let Counted { n, row: Some(uid) } = std::mem::take(counted) else { return };
        if n > 0 {
            let down = |row: Option<&Row<HandleKind>>| match row.filter(|r| same_row(r, &uid)) {
                Some(row) => lowered(row, &[(cidr, n)]),
                None => Ok(Change::Keep(())),
            };
            drop(modify::<HandleKind, _, _, _, _>(&self.store, &HandleId::new(handle), down).await);
        }
    }

    /// Takes what was released from the counts of a handle, whose row was read before the release; the last count takes the row
    /// along. Answers with why that could not be done.
    pub(crate) async fn lower(&self, handle: &Row<HandleKind>, counts: &[(BlockCidr, i64)]) -> Option<(HandleId, String)> {
        let down = |row: Option<&Row<HandleKind>>| match row.filter(|r| same_row(r, &handle.uid)) {
            Some(row) => lowered(row, counts),
            None => Ok(Change::Keep(())),
        };
        let done = modify_from::<HandleKind, _, _, _, _>(&self.store, &handle.key, Some(handle.clone()), down).await;
        done.err().map(|e| (handle.key.clone(), chain(&e)))
    }

    /// Deletes the row of a handle whose blocks are all gone, best effort. They are looked at after the row, which must not
    /// change meanwhile: whoever takes an address there counts it first.
    pub(crate) async fn drop_if_gone(&self, handle: &HandleId) {
        for _ in 0..RETRIES {
            let Ok(Some(row)) = Table::<HandleKind>::get(&self.store, handle).await else { return };
            if sanitise(&row.value.id) != handle.as_str() {
                return;
            }
            for cidr in row.value.blocks.keys() {
                if !matches!(Table::<BlockKind>::get(&self.store, cidr).await, Ok(None)) {
                    return;
                }
            }
            if Table::<HandleKind>::delete(&self.store, &row).await != Err(StoreError::Conflict) {
                return;
            }
        }
    }
}

fn same_row(row: &Row<HandleKind>, uid: &Uid) -> bool {
    row.uid == *uid || planted(Planted::LowerAnyRow)
}

/// A handle with `n` addresses of a block more.
fn with_more(row: &Row<HandleKind>, handle: &str, cidr: BlockCidr, n: i64, max: Option<u32>) -> Result<Handle, CountError> {
    if sanitise(&row.value.id) != HandleId::new(handle).as_str() {
        return Err(CountError::Foreign(row.value.id.clone()));
    }
    let family = Family::of(cidr.net());
    let has: i64 = row.value.blocks.iter().filter(|(c, _)| Family::of(c.net()) == family).map(|(_, n)| n).sum();
    if max.is_some_and(|max| has + n > i64::from(max)) {
        return Err(CountError::MaxReached);
    }
    let mut more = row.value.clone();
    *more.blocks.entry(cidr).or_default() += n;
    Ok(more)
}

fn lowered(row: &Row<HandleKind>, counts: &[(BlockCidr, i64)]) -> Result<Change<Handle, ()>, Behind> {
    let mut handle = row.value.clone();
    if sanitise(&handle.id) != row.key.as_str() {
        return Err(Behind(format!("its row belongs to {}", handle.id)));
    }
    for (cidr, n) in counts {
        let left = handle.blocks.get(cidr).copied().unwrap_or(0) - n;
        match left {
            ..0 => return Err(Behind(format!("its count for {cidr} is lower than {n}"))),
            0 => drop(handle.blocks.remove(cidr)),
            _ => drop(handle.blocks.insert(*cidr, left)),
        }
    }
    Ok(if handle.blocks.is_empty() || planted(Planted::LowerDeletes) { Change::Delete(()) } else { Change::Write(handle, ()) })
}
