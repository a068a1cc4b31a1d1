//! Block-based IP address management, wire-compatible with Calico's.
//!
//! # The model on one page
//!
//! A *pool* is cut into *blocks* of equal size. A node claims a block by an *affinity* row and hands out its
//! addresses; each allocated address points at an attribute entry of its block that names its *handle* (the
//! key under which it will be released) and its owner. A *handle* row counts the addresses of a handle per block;
//! it is an index, the block is the truth. A released address first *cools*; collecting puts it at the end of the
//! block's free queue.
//!
//! Every write is a compare-and-swap on the revision that was read; [`modify()`] is the only loop that does it.
//! Every allocation is stamped with its block's sequence number, so that a release that was decided on old
//! knowledge is refused ([`Release::exact`]).
//!
//! | module | what |
//! |---|---|
//! | [`ids`], [`model`], [`block`] | the stored things as plain types |
//! | [`store`], [`mem`] | the datastore's contract, and the store in memory that is the contract |
//! | [`modify`](mod@modify) | the only read-change-write loop |
//! | [`pools`], [`selector`], [`order`] | which pools and blocks a request may use |
//! | [`assign`], [`release`], [`owners`], [`promote`], [`affinity`], [`cold`], [`queries`], [`config`] | operations |
//! | [`audit`](mod@audit), [`repair`] | consistency of a whole store, and bringing it back |
//!
//! No Kubernetes, no runtime, no clock of its own: whoever calls brings a [`Datastore`] and a [`Clock`].

pub mod affinity;
pub mod assign;
pub mod audit;
pub mod block;
mod claim;
pub mod clock;
pub mod cold;
pub mod config;
mod handles;
pub mod ids;
pub mod mem;
pub mod model;
pub mod modify;
pub mod order;
pub mod owners;
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(not(feature = "planted"))]
mod planted;
pub mod pools;
pub mod promote;
pub mod queries;
pub mod release;
pub mod repair;
pub mod selector;
pub mod store;

pub use assign::{AssignError, AssignIp, Assigned, AutoAssign, Got, Snapshot};
pub use block::{Attribute, Block, HostReserve};
pub use clock::{Clock, SystemClock, Time};
pub use ids::{BlockCidr, HandleId, Owner};
pub use mem::MemStore;
pub use model::{Affinity, AffinityState, ClusterInfo, Config, Handle, Pool, Reservation};
pub use modify::{Change, ModifyError, modify};
pub use pools::Family;
pub use release::{KnownHandles, Outcome, Release};
pub use selector::Selector;
pub use store::{Datastore, Event, Extra, Freshness, Kind, Revision, Row, StoreError, Table, Uid, Watch};

/// The library: operations over a store, with a clock.
///
/// Cheap to clone where the store is. Clones are one client, whose assignments for one host and family take turns; two
/// instances over one store are two clients. Between calls it holds no state.
#[derive(Clone, Debug)]
pub struct Ipam<S, C> {
    pub(crate) store: S,
    pub(crate) clock: C,
    pub(crate) turns: std::sync::Arc<assign::Turns>,
    pub(crate) in_flight: usize,
}

/// So many blocks, or handles, are written at a time, unless somebody wants another number.
const IN_FLIGHT: usize = 16;

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Operations over `store`, with the time of `clock`.
    pub fn new(store: S, clock: C) -> Self {
        Self { store, clock, turns: Default::default(), in_flight: IN_FLIGHT }
    }

    /// Writes at most so many blocks, or handles, at a time (at least 1; otherwise 16).
    #[must_use]
    pub fn with_in_flight(mut self, n: usize) -> Self {
        self.in_flight = n.max(1);
        self
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The configuration in force: the stored one, or the defaults when there is none.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] when the stored one breaks a rule between its fields (D-10); a store error when it
    /// cannot be read.
    pub async fn get_config(&self) -> Result<Config, ConfigError> {
        let row = Table::<model::ConfigKind>::get(&self.store, &()).await?;
        let config = row.map_or_else(Config::default, |r| r.value);
        config.validate().map_err(ConfigError::Invalid)?;
        Ok(config)
    }
}

/// Why the configuration could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It breaks a rule.
    #[error("the IPAM configuration is not valid: {0}")]
    Invalid(String),
    /// The store failed.
    #[error("reading the IPAM configuration")]
    Store(#[from] StoreError),
}

/// The page of examples, run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/library.md")]
mod library_page {}
