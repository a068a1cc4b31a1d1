//! Making the target pod of a migrated VM the owner of its addresses (allocation.md 13.5).

use std::net::IpAddr;

use crate::Ipam;
use crate::clock::Clock;
use crate::owners::{OwnerError, OwnerRef, OwnerUpdate, Side};
use crate::queries::QueryError;
use crate::store::{Datastore, StoreError};

/// How often an address whose owners changed meanwhile is looked at again (VMO-09).
const TRIES: usize = 5;

/// Why a VM's addresses were not all promoted; those before it in order are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromoteError {
    /// Nothing is allocated to the handle.
    #[error("nothing is allocated to handle {0}")]
    NoSuchHandle(String),
    /// An address has no alternate owner: no migration was prepared.
    #[error("{0} has no alternate owner")]
    AlternateEmpty(IpAddr),
    /// The alternate owner of an address is another pod.
    #[error("the alternate owner of {0} is another pod")]
    AlternateMismatch(IpAddr),
    /// The addresses of the handle could not be read; nothing was written.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The owners of an address could not be read.
    #[error(transparent)]
    Read(#[from] QueryError),
    /// The owners of an address could not be changed.
    #[error(transparent)]
    Write(#[from] OwnerError),
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Makes `target` the active owner of every address of a VM's handle, and what was active the alternate. An address that is
    /// the target's already is left alone, so that a promotion that stopped halfway is finished by the next one.
    ///
    /// # Errors
    /// See [`PromoteError`].
    pub async fn promote(&self, handle: &str, target: &OwnerRef) -> Result<(), PromoteError> {
        let ips = self.ips_by_handle(handle).await?.filter(|ips| !ips.is_empty());
        for ip in ips.ok_or_else(|| PromoteError::NoSuchHandle(handle.into()))? {
            let mut tries = 1;
            while let Err(e) = self.promote_ip(ip, handle, target).await {
                let again = matches!(e, PromoteError::Write(OwnerError::Precondition(..))) && tries < TRIES;
                if !again {
                    return Err(e);
                }
                tries += 1;
            }
        }
        Ok(())
    }

    async fn promote_ip(&self, ip: IpAddr, handle: &str, target: &OwnerRef) -> Result<(), PromoteError> {
        let now = self.assignment_attributes(ip).await?;
        if target.matches(&now.active) {
            return Ok(());
        }
        if now.alternate.is_empty() {
            return Err(PromoteError::AlternateEmpty(ip));
        }
        if !target.matches(&now.alternate) {
            return Err(PromoteError::AlternateMismatch(ip));
        }
        let named = |key: &str| now.active.get(key).cloned().unwrap_or_default();
        let source = OwnerRef { namespace: named("namespace"), name: named("pod") };
        let gone = now.active.is_empty();
        let active = Side { set: Some(now.alternate), expect: (!gone).then_some(source), expect_empty: gone, ..Side::default() };
        let alternate = Side { set: (!gone).then_some(now.active), clear: gone, expect: Some(target.clone()), ..Side::default() };
        Ok(self.set_owner_attributes(ip, handle, &OwnerUpdate { active, alternate }).await?)
    }
}
