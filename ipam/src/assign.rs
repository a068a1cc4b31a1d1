//! Handing out addresses: any, or a given one.

mod family;
mod ip;
mod reads;
mod turns;

pub use ip::AssignIp;
pub use reads::Snapshot;
pub(crate) use turns::Turns;

use ipam_accounting::facts::Attrs;
use ipnet::IpNet;

use crate::block::{BlockError, HostReserve};
use crate::clock::Clock;
use crate::handles::CountError;
use crate::ids::{NameError, Owner, check_handle, check_host};
use crate::model::Config;
use crate::modify::ModifyError;
use crate::pools::{Family, PoolError};
use crate::selector::Labels;
use crate::store::{Datastore, Freshness, StoreError};
use crate::{ConfigError, Ipam};

/// Name of the virtual owner of load-balancer addresses.
pub const LOAD_BALANCER: &str = "load-balancer";
/// Blocks a host may have when nobody says otherwise.
pub const DEFAULT_MAX_BLOCKS: u32 = 20;
/// Most addresses of a family in one call (D-70).
pub const MOST: usize = 65_536;

/// Why addresses were not handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// An argument cannot be used; nothing was read.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An argument cannot be used; nothing was read.
    #[error("{0}")]
    Argument(String),
    /// What the addresses are for must be said.
    #[error("the intended use is missing")]
    UseRequired,
    /// Windows hosts need strict affinity.
    #[error("strict affinity is required on Windows, and strictAffinity is false")]
    StrictAffinityRequired,
    /// There is no such node.
    #[error("there is no node {0}")]
    NoNode(String),
    /// The configuration could not be had.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No pool qualifies.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The host has as many blocks as it may have.
    #[error("need to allocate an IPAM block but could not: limit of {0} blocks reached for this node")]
    BlockLimit(u32),
    /// New blocks are switched off, and the host's own have no room.
    #[error("no free address in the host's blocks, and autoAllocateBlocks is false")]
    AutoAllocateOff,
    /// The address is taken or cools.
    #[error("{0} is already assigned")]
    AlreadyExists(std::net::IpAddr),
    /// The block is somebody else's, and affinity is strict.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The handle has other addresses, and may not have more.
    #[error("handle {0} already has IP(s) allocated, cannot assign additional IP {1}")]
    HandleHasOthers(String, std::net::IpAddr),
    /// The handle may not have more addresses, and has fewer than were asked for: another call is under way.
    #[error("handle {handle} has {have} addresses of the {need} asked for and may not have more")]
    InsufficientByHandle {
        /// The handle.
        handle: String,
        /// How many it has.
        have: usize,
        /// How many were asked for.
        need: usize,
    },
    /// The object of the handle's name belongs to another handle.
    #[error("handle {0} shares its object with handle {1}")]
    ForeignHandle(String, String),
    /// The block cannot hold the host's reservation.
    #[error("{0}")]
    Reserve(String),
    /// The race was lost too often.
    #[error("lost the race too often")]
    TooManyRetries,
    /// The store failed; nothing of this step was written.
    #[error("the store failed")]
    Store(#[source] StoreError),
    /// No certain answer to a write: it may have happened (D-57).
    #[error("a write with unknown outcome")]
    Unknown(#[source] StoreError),
}

impl AssignError {
    pub(crate) fn store(e: StoreError) -> Self {
        if matches!(e, StoreError::Unavailable(_)) { Self::Unknown(e) } else { Self::Store(e) }
    }

    pub(crate) fn count(handle: &str, e: ModifyError<CountError>) -> Self {
        match e {
            ModifyError::Own(CountError::Foreign(other)) => Self::ForeignHandle(handle.into(), other),
            // The caller looks for this one first.
            ModifyError::Own(CountError::MaxReached) => Self::InsufficientByHandle { handle: handle.into(), have: 0, need: 1 },
            ModifyError::Read(e) | ModifyError::Refused(e) => Self::Store(e),
            ModifyError::TooManyRetries => Self::TooManyRetries,
            ModifyError::Unknown(e) => Self::Unknown(e),
        }
    }
}

/// A request for addresses. Start with [`AutoAssign::new`], add what else is known.
#[derive(Clone, Debug)]
pub struct AutoAssign {
    pub(crate) host: String,
    pub(crate) intended_use: String,
    pub(crate) num: [usize; 2],
    pub(crate) handle: Option<String>,
    pub(crate) attrs: Attrs,
    pub(crate) pools: [Vec<IpNet>; 2],
    pub(crate) reserve: [Option<HostReserve>; 2],
    pub(crate) max_blocks: u32,
    pub(crate) max_per_handle: Option<u32>,
    pub(crate) namespace: Option<Labels>,
    pub(crate) windows: bool,
    pub(crate) fresh: Freshness,
    pub(crate) snapshot: Option<Snapshot>,
}

fn at(family: Family) -> usize {
    usize::from(family == Family::V6)
}

impl AutoAssign {
    /// Addresses for `host`, to be used as `intended_use` (`Workload`, `Tunnel`, `LoadBalancer`); so many of each family.
    pub fn new(host: &str, intended_use: &str, num4: usize, num6: usize) -> Self {
        Self {
            host: host.into(),
            intended_use: intended_use.into(),
            num: [num4, num6],
            handle: None,
            attrs: Attrs::new(),
            pools: [Vec::new(), Vec::new()],
            reserve: [None, None],
            max_blocks: 0,
            max_per_handle: None,
            namespace: None,
            windows: false,
            fresh: Freshness::Cached,
            snapshot: None,
        }
    }

    /// The key under which they are released.
    #[must_use]
    pub fn handle(mut self, handle: &str) -> Self {
        self.handle = Some(handle.into());
        self
    }

    /// Attributes of their owner.
    #[must_use]
    pub fn attrs(mut self, attrs: Attrs) -> Self {
        self.attrs = attrs;
        self
    }

    /// Only from these pools of a family, in this order.
    #[must_use]
    pub fn pools(mut self, family: Family, pools: &[IpNet]) -> Self {
        self.pools[at(family)] = pools.to_vec();
        self
    }

    /// What the host keeps for itself in each new block of a family.
    #[must_use]
    pub fn reserve(mut self, family: Family, reserve: HostReserve) -> Self {
        self.reserve[at(family)] = Some(reserve);
        self
    }

    /// Most blocks of a family that the host may have; the lower of this and the configured one counts; 0: no wish.
    #[must_use]
    pub fn max_blocks(mut self, max: u32) -> Self {
        self.max_blocks = max;
        self
    }

    /// Most addresses of a family that the handle may have; what it has then is handed out again.
    #[must_use]
    pub fn max_per_handle(mut self, max: u32) -> Self {
        self.max_per_handle = (max > 0).then_some(max);
        self
    }

    /// Labels of the namespace of the workload.
    #[must_use]
    pub fn namespace(mut self, labels: Labels) -> Self {
        self.namespace = Some(labels);
        self
    }

    /// The caller is a Windows host, which cannot use other hosts' blocks.
    #[must_use]
    pub fn windows(mut self) -> Self {
        self.windows = true;
        self
    }

    /// How fresh pools, reservations and affinities must be.
    #[must_use]
    pub fn fresh(mut self, fresh: Freshness) -> Self {
        self.fresh = fresh;
        self
    }

    /// What the caller's own watch knows (D-61): spares the first reading.
    #[must_use]
    pub fn snapshot(mut self, snapshot: Snapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }

    pub(crate) fn owner(&self) -> Owner {
        if self.intended_use == "LoadBalancer" { Owner::Virtual(self.host.clone()) } else { Owner::Host(self.host.clone()) }
    }

    fn check(&self) -> Result<(), AssignError> {
        if self.intended_use.is_empty() {
            return Err(AssignError::UseRequired);
        }
        check_host(&self.host)?;
        if let Some(handle) = &self.handle {
            check_handle(handle)?;
        }
        match self.num {
            [0, 0] => return Err(AssignError::Argument("both counts are 0".into())),
            [a, b] if a > MOST || b > MOST => return Err(AssignError::Argument(format!("a count is above {MOST}"))),
            _ => {}
        }
        for family in [Family::V4, Family::V6] {
            if let Some(wrong) = self.pools[at(family)].iter().find(|p| Family::of(**p) != family) {
                return Err(PoolError::WrongFamily(*wrong, family.number()).into());
            }
        }
        Ok(())
    }
}

/// The lower of the configured and the requested limit of blocks, where 0 is none; `None`: neither was set.
pub(crate) fn block_limit(config: &Config, requested: u32) -> Option<u32> {
    [config.max_blocks_per_host, requested].into_iter().filter(|n| *n > 0).min()
}

/// What a request got of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// The addresses, each with its block's prefix length; addresses that the handle had already are whole (CAP-04).
    pub ips: Vec<IpNet>,
    /// Addresses that may have been handed out: the write has no certain answer.
    pub unknown: Vec<IpNet>,
    /// How many were asked for.
    pub requested: usize,
    /// What a person should know, each once.
    pub messages: Vec<String>,
    /// Why it stopped, if it did not just run out.
    pub stopped: Option<AssignError>,
    /// Handle of the host's reservation.
    pub reserved_by: Option<String>,
}

impl Got {
    pub(crate) fn say(&mut self, message: String) {
        if !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }

    /// One line on what is missing; `None`: nothing is (PF).
    pub fn shortfall(&self, family: Family) -> Option<String> {
        if self.ips.len() >= self.requested {
            return None;
        }
        let mut parts = vec![format!("Assigned {} out of {} requested IPv{} addresses", self.ips.len(), self.requested, family.number())];
        parts.extend(self.messages.iter().cloned());
        parts.extend(self.reserved_by.iter().map(|h| format!("HostReservedAttr: {h}")));
        Some(parts.join("; "))
    }
}

/// What a request got; absent where nothing was asked for, or where it was not tried any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// IPv4.
    pub v4: Option<Got>,
    /// IPv6.
    pub v6: Option<Got>,
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Hands out addresses, IPv4 first. Too few is no error: [`Got::stopped`] says why it stopped. Each address comes with its
    /// block's prefix length; callers narrow it.
    ///
    /// # Errors
    /// When no address is held, nor may be: the reason.
    pub async fn auto_assign(&self, args: &AutoAssign) -> Result<Assigned, AssignError> {
        args.check()?;
        let mut out = Assigned::default();
        for family in [Family::V4, Family::V6] {
            if args.num[at(family)] == 0 {
                continue;
            }
            let got = match self.assign_family(args, family).await {
                Ok(got) => got,
                Err(e) => Got { requested: args.num[at(family)], stopped: Some(e), ..Got::default() },
            };
            let stopped = got.stopped.clone();
            let slot = if family == Family::V4 { &mut out.v4 } else { &mut out.v6 };
            *slot = Some(got);
            if let Some(why) = stopped {
                let holds = [&out.v4, &out.v6].into_iter().flatten().any(|g| !g.ips.is_empty() || !g.unknown.is_empty());
                return if holds { Ok(out) } else { Err(why) };
            }
        }
        Ok(out)
    }
}
