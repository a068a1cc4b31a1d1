//! The only read-change-write loop (seed, "CAS retry and sequence numbers").

use crate::planted::{Planted, planted};
use crate::store::{Kind, Row, StoreError, Table};

/// How often a lost race is tried again.
pub const RETRIES: usize = 100;

/// What to do with a row.
#[derive(Debug)]
pub enum Change<V, T> {
    /// Leave it.
    Keep(T),
    /// Store this.
    Write(V, T),
    /// Delete it.
    Delete(T),
}

/// Why a row was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModifyError<E> {
    /// The caller's own reason; nothing was written.
    #[error(transparent)]
    Own(E),
    /// Reading failed; nothing was written.
    #[error("reading")]
    Read(#[source] StoreError),
    /// The store did not accept the write; nothing was written.
    #[error("writing")]
    Refused(#[source] StoreError),
    /// The race was lost too often; nothing was written.
    #[error("lost the race {RETRIES} times")]
    TooManyRetries,
    /// No certain answer to a write: it may have happened. No retry, no undo (D-57).
    #[error("writing, with unknown outcome")]
    Unknown(#[source] StoreError),
}

/// Reads the row, lets `f` decide, writes under the revision that was read; again on a lost race, at once.
///
/// `f` gets fresh data each time and must not keep anything from an earlier call. A half-deleted row that stands
/// in the way of a new one is purged (D-65). Answers with `f`'s last answer.
///
/// # Errors
/// See [`ModifyError`].
pub async fn modify<K, S, T, E, F>(store: &S, key: &K::Key, f: F) -> Result<T, ModifyError<E>>
where
    K: Kind,
    S: Table<K>,
    F: FnMut(Option<&Row<K>>) -> Result<Change<K::Value, T>, E>,
{
    modify_from(store, key, None, f).await
}

/// [`modify()`] that begins with a row that was read already.
///
/// # Errors
/// See [`ModifyError`].
pub async fn modify_from<K, S, T, E, F>(store: &S, key: &K::Key, mut known: Option<Row<K>>, mut f: F) -> Result<T, ModifyError<E>>
where
    K: Kind,
    S: Table<K>,
    F: FnMut(Option<&Row<K>>) -> Result<Change<K::Value, T>, E>,
{
    for _ in 0..RETRIES {
        let row = match known.take() {
            Some(row) => Some(row),
            None => store.get(key).await.map_err(ModifyError::Read)?,
        };
        let (written, answer) = match (f(row.as_ref()).map_err(ModifyError::Own)?, row) {
            (Change::Keep(answer), _) | (Change::Delete(answer), None) => return Ok(answer),
            (Change::Write(value, answer), Some(row)) if planted(Planted::WriteOldDecision) => {
                let row = store.get(key).await.ok().flatten().unwrap_or(row);
                (store.update(Row { value, ..row }).await.map(drop), answer)
            }
            (Change::Write(value, answer), Some(row)) => (store.update(Row { value, ..row }).await.map(drop), answer),
            (Change::Write(value, answer), None) => (create(store, key, value).await, answer),
            // One that is gone already was deleted by somebody else: what that means is for `f` to say.
            (Change::Delete(answer), Some(row)) if planted(Planted::GoneIsDeleted) => (gone_is_fine(store.delete(&row).await), answer),
            (Change::Delete(answer), Some(row)) => (store.delete(&row).await, answer),
        };
        match written {
            Ok(()) => return Ok(answer),
            Err(StoreError::Conflict | StoreError::Absent | StoreError::Exists) => {}
            Err(e @ StoreError::Unavailable(_)) => return Err(ModifyError::Unknown(e)),
            Err(e) => return Err(ModifyError::Refused(e)),
        }
    }
    Err(ModifyError::TooManyRetries)
}

fn gone_is_fine(deleted: Result<(), StoreError>) -> Result<(), StoreError> {
    if deleted == Err(StoreError::Absent) { Ok(()) } else { deleted }
}

/// Creates a row. When it exists although it read as absent, a half-deleted one is purged for the next attempt.
async fn create<K: Kind, S: Table<K>>(store: &S, key: &K::Key, value: K::Value) -> Result<(), StoreError> {
    let created = store.create(key, value).await;
    if matches!(created, Err(StoreError::Exists)) {
        purge_half_deleted(store, key).await?;
    }
    created.map(drop)
}

/// Finishes the deletion of the row of a key, if it was begun (D-65). Somebody else may finish it at the same time.
pub(crate) async fn purge_half_deleted<K: Kind, S: Table<K>>(store: &S, key: &K::Key) -> Result<(), StoreError> {
    let Some(row) = store.half_deleted().await?.into_iter().find(|r| r.key == *key) else { return Ok(()) };
    match store.purge(&row).await {
        Err(StoreError::Absent | StoreError::Conflict) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{MemStore, Verb};
    use crate::model::{Reservation, ReservationKind};
    use crate::store::{Extra, Revision, Uid};
    use futures::executor::block_on;

    fn value(entry: &str) -> Reservation {
        Reservation { entries: vec![entry.into()] }
    }

    async fn set(store: &MemStore, entry: &str) -> Result<(), ModifyError<()>> {
        modify::<ReservationKind, _, _, _, _>(store, &"r".into(), |_| Ok(Change::Write(value(entry), ()))).await
    }

    #[test]
    fn del_09_a_half_deleted_row_in_the_way_is_purged() {
        let store = MemStore::new();
        let old = Row { key: "r".into(), value: value("old"), revision: Revision("7".into()), uid: Uid("u".into()), extra: Extra::NONE };
        store.put::<ReservationKind>(old, true);
        block_on(async {
            assert_eq!(Table::<ReservationKind>::get(&store, &"r".into()).await, Ok(None), "readers do not see it");
            set(&store, "new").await.expect("written");
            let row = Table::<ReservationKind>::get(&store, &"r".into()).await.expect("readable").expect("there");
            assert_eq!(row.value, value("new"));
        });
    }

    #[test]
    fn a_lost_race_is_read_again_and_an_equal_write_keeps_the_revision() {
        let store = MemStore::new();
        block_on(async {
            set(&store, "a").await.expect("written");
            let mut calls = 0;
            let raced = store.clone();
            modify::<ReservationKind, _, _, (), _>(&store, &"r".into(), |row| {
                calls += 1;
                if calls == 1 {
                    let row = row.expect("there").clone();
                    raced.put(Row { value: value("b"), revision: Revision("raced".into()), ..row }, false);
                }
                Ok(Change::Write(value("c"), ()))
            })
            .await
            .expect("written");
            assert_eq!(calls, 2);
            let before = Table::<ReservationKind>::get(&store, &"r".into()).await;
            set(&store, "c").await.expect("written");
            assert_eq!(Table::<ReservationKind>::get(&store, &"r".into()).await, before);
            assert_eq!(store.requests()[&(Verb::Update, "IPReservation")], 3);
        });
    }
}
