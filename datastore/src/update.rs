//! What a feed says: the only input of a cache.

use std::fmt;

use ipam::ids::Owner;
use ipam::model::{AffinityKind, AffinityState, BlockKind, ClusterKind, ConfigKind, PoolKind, ReservationKind};
use ipam::store::Event;
use ipam_accounting::Inventory;
use ipam_accounting::facts::{Lookup, NodeFacts, PodFacts, VmiFacts};
use ipam_accounting::inventory::{Holds, RowState, Trusts};
use serde_json::{Map, Value};

use crate::group::Group;
use crate::opt_out::OptOut;
use crate::text::go_duration;

/// Leak grace period as the controllers' configuration says it (D-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Absent in an object that is there: off.
    pub leak_grace: Option<chrono::TimeDelta>,
    /// The grace period could not be read.
    pub unclear: bool,
    /// Calico's own controller is configured to collect leaks too (operator.md k).
    pub other_collector: bool,
}

impl Settings {
    /// From a KubeControllersConfiguration. A duration that is none counts as off, and is told.
    pub fn read(object: &Map<String, Value>) -> (Self, Option<String>) {
        let grace = object.get("spec").map(|s| &s["controllers"]["node"]["leakGracePeriod"]);
        let mut settings = Self { leak_grace: None, unclear: false, other_collector: other_collector(object) };
        let Some(text) = grace.and_then(Value::as_str) else { return (settings, None) };
        let leak_grace = go_duration(text);
        (settings.leak_grace, settings.unclear) = (leak_grace, leak_grace.is_none());
        let note = || format!("KubeControllersConfiguration: leakGracePeriod {text:?} is not a duration: leak collection counts as off");
        (settings, leak_grace.is_none().then(note))
    }
}

/// Whether Calico's controllers include the one that collects, with a grace: as their status says, else as they are asked to.
fn other_collector(object: &Map<String, Value>) -> bool {
    let at = |path: &str| object.get(path.split('/').next()?).and_then(|v| v.pointer(&path[path.find('/')?..]));
    let node = match at("status/environmentVars/ENABLED_CONTROLLERS").and_then(Value::as_str) {
        Some(list) => list.split(',').any(|name| name.trim() == "node"),
        None => at("spec/controllers/node").is_some_and(|node| !node.is_null()),
    };
    let grace = at("status/runningConfig/controllers/node/leakGracePeriod").or_else(|| at("spec/controllers/node/leakGracePeriod"));
    node && grace.and_then(Value::as_str).and_then(go_duration).is_some_and(|grace| grace > chrono::TimeDelta::zero())
}

/// What a feed follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// Blocks.
    Block,
    /// Affinities.
    Affinity,
    /// Pools.
    Pool,
    /// Reservations.
    Reservation,
    /// The IPAM configuration.
    Config,
    /// The cluster information.
    Cluster,
    /// The controllers' configuration.
    Settings,
    /// Pods.
    Pod,
    /// Nodes.
    Node,
    /// Namespaces.
    Namespace,
    /// Virtual machines.
    Vm,
    /// Virtual machine instances.
    Vmi,
}

impl Watched {
    /// Everything.
    pub const ALL: [Self; 12] = [
        Self::Block,
        Self::Affinity,
        Self::Pool,
        Self::Reservation,
        Self::Config,
        Self::Cluster,
        Self::Settings,
        Self::Pod,
        Self::Node,
        Self::Namespace,
        Self::Vm,
        Self::Vmi,
    ];

    /// Whether a cluster may do without the kind (D-76).
    pub fn optional(self) -> bool {
        !matches!(self, Self::Block | Self::Affinity | Self::Pool | Self::Pod | Self::Node | Self::Namespace)
    }
}

impl Watched {
    /// As metrics and probes call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Affinity => "affinity",
            Self::Pool => "pool",
            Self::Reservation => "reservation",
            Self::Config => "config",
            Self::Cluster => "cluster",
            Self::Settings => "settings",
            Self::Pod => "pod",
            Self::Node => "node",
            Self::Namespace => "namespace",
            Self::Vm => "vm",
            Self::Vmi => "vmi",
        }
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block => "blocks",
            Self::Affinity => "affinities",
            Self::Pool => "pools",
            Self::Reservation => "reservations",
            Self::Config => "configuration",
            Self::Cluster => "cluster information",
            Self::Settings => "controllers' configuration",
            Self::Pod => "pods",
            Self::Node => "nodes",
            Self::Namespace => "namespaces",
            Self::Vm => "VMs",
            Self::Vmi => "VM instances",
        })
    }
}

/// How far the objects of a kind are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sync {
    /// All of them.
    Full,
    /// The server does not serve the kind.
    NotServed,
    /// Not all, and why.
    Behind(String),
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A block.
    Block(Event<BlockKind>),
    /// An affinity.
    Affinity(Event<AffinityKind>),
    /// A pool.
    Pool(Event<PoolKind>),
    /// A reservation.
    Reservation(Event<ReservationKind>),
    /// The IPAM configuration; an error: it is there and was not understood.
    Config(Result<Event<ConfigKind>, String>),
    /// The cluster information; an error: it is there and was not understood.
    Cluster(Result<Event<ClusterKind>, String>),
    /// A pod, by namespace and name.
    Pod(String, String, Lookup<PodFacts<String>>),
    /// A node.
    Node(String, Lookup<NodeFacts>),
    /// A VM, by namespace and name.
    Vm(String, String, Lookup<()>),
    /// A VM instance, by namespace and name.
    Vmi(String, String, Lookup<VmiFacts>),
    /// How far absences prove something.
    Trusts(Trusts),
    /// What must not be acted on.
    Holds(Holds),
    /// What a pool, node or namespace of this name says about releasing; `None`: nothing, or it is gone.
    OptOut(Watched, String, Option<OptOut>),
    /// The controllers' configuration; `None`: there is none.
    Settings(Option<Settings>),
    /// How far a kind is known.
    Sync(Watched, Sync),
    /// The server speaks of another API group than the one that is followed; `None`: it does no longer.
    OtherGroup(Option<Group>),
}

impl Update {
    /// Takes the change over into a cache. Configuration, cluster information and settings are nothing of the cache.
    pub fn apply(&self, cache: &mut Inventory) {
        match self {
            Update::Block(Event::Put(row)) => cache.put_block(&row.value.facts(&row.revision.0)),
            Update::Block(Event::Gone(cidr)) => cache.remove_block(cidr.net()),
            Update::Affinity(Event::Put(row)) => {
                let unconfirmed = matches!(row.value.state, AffinityState::Pending | AffinityState::PendingDeletion);
                let state = if unconfirmed { RowState::Unconfirmed } else { RowState::Confirmed };
                if let (Owner::Host(host), cidr) = &row.key {
                    cache.put_row(host, cidr.net(), state);
                }
            }
            Update::Affinity(Event::Gone((Owner::Host(host), cidr))) => cache.remove_row(host, cidr.net()),
            Update::Pool(Event::Put(row)) if row.value.deleting => cache.remove_pool(&row.key),
            Update::Pool(Event::Put(row)) => cache.put_pool(&row.key, row.value.cidr.clone().ok()),
            Update::Pool(Event::Gone(name)) => cache.remove_pool(name),
            Update::Reservation(Event::Put(row)) => cache.tracker.put_reservation(&row.key, row.value.set()),
            Update::Reservation(Event::Gone(name)) => cache.tracker.remove_reservation(name),
            Update::Pod(namespace, name, facts) => {
                let facts = match facts {
                    Lookup::Seen(f) => Lookup::Seen(borrow(f)),
                    Lookup::Absent => Lookup::Absent,
                    Lookup::Unsure => Lookup::Unsure,
                };
                cache.put_pod(namespace, name, facts);
            }
            Update::Node(name, facts) => cache.put_node(name, facts.clone()),
            Update::Vm(namespace, name, facts) => cache.put_vm(namespace, name, *facts),
            Update::Vmi(namespace, name, facts) => cache.put_vmi(namespace, name, *facts),
            Update::Trusts(trusts) => cache.set_trusts(trusts.clone()),
            Update::Holds(holds) => cache.set_holds(holds.clone()),
            Update::Block(Event::Synced)
            | Update::Affinity(_)
            | Update::Pool(Event::Synced)
            | Update::Reservation(Event::Synced)
            | Update::Config(_)
            | Update::Cluster(_)
            | Update::Settings(_)
            | Update::OptOut(..)
            | Update::Sync(..)
            | Update::OtherGroup(_) => {}
        }
    }
}

fn borrow(f: &PodFacts<String>) -> PodFacts<&str> {
    PodFacts {
        node: f.node.as_deref(),
        ips: f.ips.clone(),
        reported: f.reported,
        host_network: f.host_network,
        finished: f.finished,
        unclear: f.unclear,
    }
}
