//! The stored things other than blocks, as plain types.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use ipam_accounting::set::AddrSet;
use ipnet::IpNet;

use crate::block::Block;
use crate::ids::{BlockCidr, HandleId, Owner};
use crate::store::Kind;

/// State of an affinity row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AffinityState {
    /// Empty, as old releases wrote it: counts as confirmed.
    Old,
    /// Intent to claim: absent for ownership and routing (D-12).
    Pending,
    /// Owned.
    Confirmed,
    /// Being given back.
    PendingDeletion,
}

/// An affinity row; owner and CIDR are its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Affinity {
    /// Its state.
    pub state: AffinityState,
    /// It carries the three labels with the right values, so that lists by host see it (D-69).
    pub indexed: bool,
}

/// A handle row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The id as its creator spelled it.
    pub id: String,
    /// Addresses per block. An index: the block is the truth.
    pub blocks: BTreeMap<BlockCidr, i64>,
}

/// A condition on allocation that the pool controller keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocatable {
    /// Condition `Allocatable=True`.
    True,
    /// Condition `Allocatable=False`.
    False,
    /// No such condition, or `Unknown`.
    Unstated,
}

/// An address pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its CIDR, if that parses; as stored otherwise.
    pub cidr: Result<IpNet, String>,
    /// Prefix length of its blocks, defaults filled in.
    pub block_size: u8,
    /// Which nodes may use it.
    pub node_selector: String,
    /// Which namespaces may use it; empty: any.
    pub namespace_selector: String,
    /// What it may be used for, defaults filled in.
    pub allowed_uses: Vec<String>,
    /// Only for requests that name it.
    pub manual: bool,
    /// Switched off by its administrator.
    pub disabled: bool,
    /// Has a deletion timestamp.
    pub deleting: bool,
    /// What the pool controller says.
    pub allocatable: Allocatable,
}

/// What we read of a node: its labels, as node selectors see them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Merged labels (wire-format.md 11).
    pub labels: crate::selector::Labels,
}

/// Reserved addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Entries as stored.
    pub entries: Vec<String>,
}

impl Reservation {
    /// The addresses it covers; unreadable entries are passed over (D-30).
    pub fn set(&self) -> AddrSet {
        ipam_accounting::reserved::reserved_set(self.entries.iter().map(String::as_str))
    }
}

/// The IPAM configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// No borrowing.
    pub strict_affinity: bool,
    /// New blocks may be claimed.
    pub auto_allocate_blocks: bool,
    /// Limit of blocks per host; 0: the default of 20.
    pub max_blocks_per_host: u32,
    /// Whether VM addresses persist.
    pub vm_address_persistence: bool,
    /// Seconds before a released address is free again, 0 to 1200.
    pub cooldown_seconds: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            strict_affinity: false,
            auto_allocate_blocks: true,
            max_blocks_per_host: 0,
            vm_address_persistence: true,
            cooldown_seconds: 0,
        }
    }
}

impl Config {
    /// The cooldown.
    pub fn cooldown(&self) -> TimeDelta {
        TimeDelta::seconds(self.cooldown_seconds.into())
    }

    /// Checks ranges and the two rules between fields (seed, "IPAMConfig").
    ///
    /// # Errors
    /// A sentence that names the fields.
    pub fn validate(&self) -> Result<(), String> {
        if !self.strict_affinity && !self.auto_allocate_blocks {
            return Err("strictAffinity and autoAllocateBlocks must not both be false: nothing could ever be allocated".into());
        }
        if self.max_blocks_per_host > 0 && !self.strict_affinity {
            return Err(format!("maxBlocksPerHost {} requires strictAffinity true", self.max_blocks_per_host));
        }
        if self.cooldown_seconds > 1200 {
            return Err(format!("ipCooldownSeconds {} is more than 1200", self.cooldown_seconds));
        }
        Ok(())
    }
}

/// What we read of the cluster's information row.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ClusterInfo {
    /// Identity of the cluster.
    pub guid: String,
    /// `datastoreReady`; absent counts as ready (D-82).
    pub ready: Option<bool>,
}

macro_rules! kind {
    ($(#[$doc:meta])* $name:ident, $text:literal, $key:ty, $value:ty, $select:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {}

        impl Kind for $name {
            type Key = $key;
            type Value = $value;
            type Select = $select;
            const NAME: &'static str = $text;
        }
    };
}
kind!(/// Blocks by CIDR.
    BlockKind, "IPAMBlock", BlockCidr, Block, ());
kind!(/// Affinities by owner and CIDR.
    AffinityKind, "BlockAffinity", (Owner, BlockCidr), Affinity, Rows);
kind!(/// Handles by sanitised id.
    HandleKind, "IPAMHandle", HandleId, Handle, ());
kind!(/// Pools by name.
    PoolKind, "IPPool", String, Pool, ());
kind!(/// Reservations by name.
    ReservationKind, "IPReservation", String, Reservation, ());
kind!(/// Nodes by name; never written by us.
    NodeKind, "Node", String, Node, ());
kind!(/// The one configuration.
    ConfigKind, "IPAMConfig", (), Config, ());
kind!(/// The one cluster information.
    ClusterKind, "ClusterInformation", (), ClusterInfo, ());

/// Which affinity rows to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// All of them.
    #[default]
    All,
    /// The indexed ones of an owner (D-69).
    Of(Owner),
    /// Those that are not indexed, of any owner.
    NotIndexed,
}

impl Rows {
    /// Whether a row belongs to the selection.
    pub fn selects(&self, key: &(Owner, BlockCidr), value: &Affinity) -> bool {
        match self {
            Rows::All => true,
            Rows::Of(owner) => value.indexed && key.0 == *owner,
            Rows::NotIndexed => !value.indexed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cfg_01_cfg_04_cfg_05_cfg_07_defaults_and_rules() {
        let ok = Config::default();
        assert_eq!(
            (ok.strict_affinity, ok.auto_allocate_blocks, ok.max_blocks_per_host, ok.vm_address_persistence, ok.cooldown_seconds),
            (false, true, 0, true, 0)
        );
        assert_eq!(ok.validate(), Ok(()));
        let off = Config { auto_allocate_blocks: false, ..ok.clone() };
        assert!(off.validate().is_err_and(|e| e.contains("strictAffinity") && e.contains("autoAllocateBlocks")));
        assert_eq!(Config { strict_affinity: true, ..off }.validate(), Ok(()));
        let limited = Config { max_blocks_per_host: 2, ..ok.clone() };
        assert!(limited.validate().is_err_and(|e| e.contains("maxBlocksPerHost")));
        assert_eq!(Config { strict_affinity: true, ..limited }.validate(), Ok(()));
        assert_eq!(Config { cooldown_seconds: 1200, ..ok.clone() }.validate(), Ok(()));
        assert!(Config { cooldown_seconds: 1201, ..ok }.validate().is_err());
    }
}
