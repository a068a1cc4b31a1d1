//! Changing the owner or the handle of an allocated address, without releasing it.

use std::net::IpAddr;

use ipam_accounting::facts::{Attrs, sanitise};

use crate::block::{Attribute, Block, BlockError};
use crate::clock::Clock;
use crate::handles::{CountError, Counted};
use crate::ids::{BlockCidr, HandleId, NameError, check_handle};
use crate::model::{BlockKind, HandleKind};
use crate::modify::{Change, ModifyError, modify};
use crate::planted::{Planted, planted};
use crate::store::{Datastore, Row, StoreError, Table};
use crate::{ConfigError, Ipam};

/// A workload that owns an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRef {
    /// Namespace.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
}

impl OwnerRef {
    /// Whether attributes name this owner; the empty owner matches no attributes (OWN-30).
    pub fn matches(&self, attrs: &Attrs) -> bool {
        if self.namespace.is_empty() && self.name.is_empty() {
            return attrs.is_empty();
        }
        attrs.get("pod") == Some(&self.name) && attrs.get("namespace") == Some(&self.namespace)
    }
}

/// What to do with one side, active or alternate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// New attributes.
    pub set: Option<Attrs>,
    /// No attributes any more.
    pub clear: bool,
    /// This must be its owner before.
    pub expect: Option<OwnerRef>,
    /// It must have no owner before.
    pub expect_empty: bool,
}

/// Changes of an address's owners, each side under its own conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerUpdate {
    /// Active owner.
    pub active: Side,
    /// Alternate owner.
    pub alternate: Side,
}

/// Why owners were not changed; the address is as it was, unless the outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnerError {
    /// An argument cannot be used; nothing was read.
    #[error("{0}")]
    Argument(String),
    /// An argument cannot be used; nothing was read.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It is not assigned.
    #[error("{0} is not assigned")]
    NotExist(IpAddr),
    /// It cools.
    #[error("{0} is cooling down")]
    InCooldown(IpAddr),
    /// It has another handle.
    #[error("{0} is not assigned to handle {1}")]
    OtherHandle(IpAddr, String),
    /// A condition does not hold (D-66).
    #[error("{0} has not the expected {1} owner")]
    Precondition(IpAddr, &'static str),
    /// The new handle may not have more addresses.
    #[error("handle {0} may not have more addresses")]
    MaxReached(String),
    /// The object of the new handle's name belongs to another handle.
    #[error("handle {0} shares its object with handle {1}")]
    ForeignHandle(String, String),
    /// The configuration could not be had.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The race was lost too often.
    #[error("lost the race too often")]
    TooManyRetries,
    /// The store failed; nothing was written.
    #[error("the store failed")]
    Store(#[source] StoreError),
    /// No certain answer to a write: it may have happened.
    #[error("a write with unknown outcome")]
    Unknown(#[source] StoreError),
}

impl Side {
    fn check(&self, name: &str) -> Result<(), OwnerError> {
        let both = |what: &str| Err(OwnerError::Argument(format!("{name} owner: {what} are mutually exclusive")));
        match self {
            Side { set: Some(_), clear: true, .. } => both("setting and clearing"),
            Side { expect: Some(_), expect_empty: true, .. } => both("an expected owner and none"),
            _ => Ok(()),
        }
    }

    fn allows(&self, now: &Attrs) -> bool {
        self.expect.as_ref().is_none_or(|e| e.matches(now)) && (!self.expect_empty || now.is_empty())
    }

    fn apply(&self, now: &Attrs) -> Attrs {
        if self.clear { Attrs::new() } else { self.set.clone().unwrap_or_else(|| now.clone()) }
    }
}

fn modified<T>(done: Result<T, ModifyError<OwnerError>>) -> Result<T, OwnerError> {
    done.map_err(|e| match e {
        ModifyError::Own(e) => e,
        ModifyError::Read(e) | ModifyError::Refused(e) => OwnerError::Store(e),
        ModifyError::TooManyRetries => OwnerError::TooManyRetries,
        ModifyError::Unknown(e) => OwnerError::Unknown(e),
    })
}

fn not_counted(handle: &str, e: ModifyError<CountError>) -> OwnerError {
    match e {
        ModifyError::Own(CountError::MaxReached) => OwnerError::MaxReached(handle.into()),
        ModifyError::Own(CountError::Foreign(other)) => OwnerError::ForeignHandle(handle.into(), other),
        ModifyError::Read(e) | ModifyError::Refused(e) => OwnerError::Store(e),
        ModifyError::TooManyRetries => OwnerError::TooManyRetries,
        ModifyError::Unknown(e) => OwnerError::Unknown(e),
    }
}

fn entry(block: &Block, ip: IpAddr) -> Result<Attribute, OwnerError> {
    block.attributes_of(ip).cloned().map_err(|e| match e {
        BlockError::InCooldown(ip) => OwnerError::InCooldown(ip),
        _ => OwnerError::NotExist(ip),
    })
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    async fn cidr_of(&self, ip: IpAddr) -> Result<BlockCidr, OwnerError> {
        self.block_of(ip).await.map_err(OwnerError::Store)?.map(|r| r.key).ok_or(OwnerError::NotExist(ip))
    }

    /// Changes the owners of an address under its handle. Every stated condition is checked before anything changes; the
    /// other addresses of its entry keep theirs; its sequence number stays.
    ///
    /// # Errors
    /// See [`OwnerError`].
    pub async fn set_owner_attributes(&self, ip: IpAddr, handle: &str, update: &OwnerUpdate) -> Result<(), OwnerError> {
        update.active.check("active")?;
        update.alternate.check("alternate")?;
        let config = self.get_config().await?;
        let cidr = self.cidr_of(ip).await?;
        let handle = HandleId::new(handle);
        modified(
            modify::<BlockKind, _, _, _, _>(&self.store, &cidr, |row| {
                let mut block = row.ok_or(OwnerError::NotExist(ip))?.value.clone();
                block.collect(self.clock.now(), config.cooldown());
                let old = entry(&block, ip)?;
                if !old.is_of(&handle) {
                    return Err(OwnerError::OtherHandle(ip, handle.to_string()));
                }
                for (side, now, name) in [(&update.active, &old.active, "active"), (&update.alternate, &old.alternate, "alternate")] {
                    if !side.allows(now) {
                        return Err(OwnerError::Precondition(ip, name));
                    }
                }
                let new = Attribute {
                    active: update.active.apply(&old.active),
                    alternate: update.alternate.apply(&old.alternate),
                    ..old.clone()
                };
                if new == old {
                    return Ok(Change::Keep(()));
                }
                block.update_ownership(ip, new).map_err(|_| OwnerError::NotExist(ip))?;
                block.seq += 1;
                Ok(Change::Write(block, ()))
            })
            .await,
        )
    }

    /// Points an allocated address at another handle in one write: it is never unowned and never cools (seed). Only its
    /// current owner can; it gets a new sequence number like an allocation (D-67).
    ///
    /// # Errors
    /// See [`OwnerError`].
    pub async fn move_ip_to_handle(
        &self,
        ip: IpAddr,
        handle: &str,
        owner: &OwnerRef,
        max_per_handle: Option<u32>,
    ) -> Result<(), OwnerError> {
        if owner.namespace.is_empty() || owner.name.is_empty() {
            return Err(OwnerError::Argument("the expected owner must name a namespace and a pod".into()));
        }
        check_handle(handle)?;
        let config = self.get_config().await?;
        let row = self.block_of(ip).await.map_err(OwnerError::Store)?.ok_or(OwnerError::NotExist(ip))?;
        let (cidr, uid, new) = (row.key, row.uid.clone(), HandleId::new(handle));
        // Checked before the handle is counted, and again in the write.
        let movable = |block: &Block| -> Result<(Option<HandleId>, bool), OwnerError> {
            let old = entry(block, ip)?;
            if !owner.matches(&old.active) {
                return Err(OwnerError::Precondition(ip, "active"));
            }
            Ok((old.handle.as_deref().map(|h| HandleId::new(sanitise(h))), old.is_of(&new)))
        };
        let mut seen = row.value.clone();
        seen.collect(self.clock.now(), config.cooldown());
        let (from, there) = movable(&seen)?;
        if there {
            return Ok(());
        }
        let from = match from {
            Some(from) => Table::<HandleKind>::get(&self.store, &from).await.map_err(OwnerError::Store)?,
            None => None,
        };
        let mut counted = Counted::default();
        self.count_up(handle, cidr, 1, max_per_handle, &mut counted).await.map_err(|e| not_counted(handle, e))?;
        let moved = modified(
            modify::<BlockKind, _, _, _, _>(&self.store, &cidr, |row| {
                // A block that was deleted and made again is another one: the count was for the old one.
                let current = row.filter(|r| r.uid == uid).ok_or(OwnerError::NotExist(ip))?;
                let mut block = current.value.clone();
                block.collect(self.clock.now(), config.cooldown());
                let (from, there) = movable(if planted(Planted::MoveAnything) { &seen } else { &block })?;
                if there {
                    return Ok(Change::Keep(None));
                }
                let old = entry(&block, ip)?;
                block.update_ownership(ip, Attribute { handle: Some(handle.into()), ..old }).map_err(|_| OwnerError::NotExist(ip))?;
                if let Some(ordinal) = cidr.ordinal(ip) {
                    block.seqs.insert(ordinal, block.seq);
                }
                block.seq += 1;
                Ok(Change::Write(block, Some(from)))
            })
            .await,
        );
        self.settle(&moved, from, handle, cidr, counted).await;
        moved.map(drop)
    }

    /// One handle has one less: the old one after a move, the new one when there was none; after an unknown outcome neither.
    async fn settle(
        &self,
        moved: &Result<Option<Option<HandleId>>, OwnerError>,
        from: Option<Row<HandleKind>>,
        handle: &str,
        cidr: BlockCidr,
        mut counted: Counted,
    ) {
        match moved {
            // An address that changed hands in between leaves a count that is too high: index repair's.
            Ok(Some(was)) => {
                if let Some(from) = from.filter(|f| Some(&f.key) == was.as_ref()) {
                    self.lower(&from, &[(cidr, 1)]).await;
                }
            }
            Err(OwnerError::Unknown(_)) => {}
            Ok(None) | Err(_) => self.count_back(handle, cidr, &mut counted).await,
        }
    }
}
