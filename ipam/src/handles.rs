//! Counting addresses of handles: up before the block write, down after it.

use crate::Ipam;
use crate::clock::Clock;
use crate::ids::{BlockCidr, HandleId};
use crate::model::{Handle, HandleKind};
use crate::modify::{Change, ModifyError, modify};
use crate::planted::{Planted, planted};
use crate::pools::Family;
use crate::store::{Datastore, StoreError, Table};
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

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Counts `n` more addresses of a block. A new handle is created unread; one that exists costs two requests more.
    pub(crate) async fn count_up(&self, handle: &str, cidr: BlockCidr, n: i64, max: Option<u32>) -> Result<(), ModifyError<CountError>> {
        let key = HandleId::new(handle);
        if max.is_some_and(|max| n > i64::from(max)) {
            return Err(ModifyError::Own(CountError::MaxReached));
        }
        let new = || Handle { id: handle.into(), blocks: [(cidr, n)].into() };
        match Table::<HandleKind>::create(&self.store, &key, new()).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Exists) if planted(Planted::CountOnce) => return Ok(()),
            Err(StoreError::Exists) => {}
            Err(e @ StoreError::Unavailable(_)) => return Err(ModifyError::Unknown(e)),
            Err(e) => return Err(ModifyError::Refused(e)),
        }
        modify::<HandleKind, _, _, _, _>(&self.store, &key, |row| {
            let Some(row) = row else { return Ok(Change::Write(new(), ())) };
            if sanitise(&row.value.id) != key.as_str() {
                return Err(CountError::Foreign(row.value.id.clone()));
            }
            let family = Family::of(cidr.net());
            let has: i64 = row.value.blocks.iter().filter(|(c, _)| Family::of(c.net()) == family).map(|(_, n)| n).sum();
            if max.is_some_and(|max| has + n > i64::from(max)) {
                return Err(CountError::MaxReached);
            }
            let mut handle = row.value.clone();
            *handle.blocks.entry(cidr).or_default() += n;
            Ok(Change::Write(handle, ()))
        })
        .await
    }

    /// Counts `n` addresses of a block back, best effort: what stays is for index repair.
    pub(crate) async fn count_back(&self, handle: &str, cidr: BlockCidr, n: i64) {
        if n > 0 {
            self.lower(HandleId::new(handle), vec![(cidr, n)]).await;
        }
    }
}
