//! The only cache. [`View::apply`] is its only writer.

use std::collections::{BTreeMap, BTreeSet};

use ipam::model::{ClusterInfo, Config, PoolKind};
use ipam::store::{Event, Row};
use ipam_accounting::facts::Lookup;
use ipam_accounting::inventory::Dirty;
use ipam_accounting::{Evidence as _, Inventory, Verdict, judge};
use ipam_datastore::opt_out::OptOut;
use ipam_datastore::update::{Settings, Sync, Watched};
use ipam_datastore::{Group, Update};

use crate::plan::{Annotated, Because};

/// Why nothing may be done at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// Some kinds are not known in full.
    #[error("not in step with the store: {0}")]
    NotSynced(String),
    /// The server speaks of another API group than the one that is followed (D-81).
    #[error("the server speaks {0} now: everything is about to begin anew")]
    OtherGroup(Group),
    /// `datastoreReady` is false (GCX-02).
    #[error("the datastore is locked")]
    DatastoreLocked,
    /// A live cluster without cluster information (D-82).
    #[error("there is no cluster information: the datastore counts as locked")]
    NoClusterInformation,
    /// The cluster information was not understood, so the datastore may be locked.
    #[error("the cluster information was not understood ({0}): the datastore may be locked")]
    ClusterUnclear(String),
    /// The IPAM configuration is not valid, or was not understood (D-10).
    #[error("the IPAM configuration is not valid: {0}")]
    ConfigInvalid(String),
    /// It is not the cluster that the configuration names (D-92).
    #[error("this is cluster {found:?}, and the configuration names {wanted:?}")]
    WrongCluster {
        /// The GUID of the cluster.
        found: String,
        /// The GUID that the configuration names.
        wanted: String,
    },
    /// We do not find ourselves in the cluster (D-92).
    #[error("{0}: this may be another cluster than the one that we run in")]
    SelfCheck(String),
}

/// What must hold before anything is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// Every kind is known in full.
    Synced,
    /// The server speaks the group that is followed.
    ApiGroupStable,
    /// It is the cluster that the configuration names.
    ClusterMatches,
    /// The datastore is not locked.
    DatastoreReady,
    /// The IPAM configuration is valid.
    IpamConfigValid,
    /// We find ourselves in the cluster.
    SelfCheck,
}

impl Gate {
    /// All of them, in the order in which they are looked at.
    pub const ALL: [Self; 6] =
        [Self::ApiGroupStable, Self::Synced, Self::ClusterMatches, Self::DatastoreReady, Self::IpamConfigValid, Self::SelfCheck];
}

/// Who we are, in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// Namespace of our pod.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl NotReady {
    /// Whether the process is not ready for it, too: a locked datastore or an invalid configuration is nobody's unreadiness
    /// (operator.md f).
    pub fn unready(&self) -> bool {
        !matches!(self, Self::DatastoreLocked | Self::ConfigInvalid(_))
    }
}

/// What a store in memory delivers; all else of a dump is there from the beginning.
const OF_A_STORE: [Watched; 6] =
    [Watched::Block, Watched::Affinity, Watched::Pool, Watched::Reservation, Watched::Config, Watched::Cluster];

/// Without any of these there is nothing of Calico's IPAM.
const IPAM: [Watched; 3] = [Watched::Block, Watched::Affinity, Watched::Pool];

/// What is known of the cluster.
#[derive(Debug, Default)]
pub struct View {
    /// Who holds which address.
    pub cache: Inventory,
    config: Option<Result<Config, String>>,
    cluster: Option<Result<ClusterInfo, String>>,
    settings: Option<Settings>,
    pools: BTreeMap<String, Row<PoolKind>>,
    sync: BTreeMap<Watched, Sync>,
    other_group: Option<Group>,
    /// What the cluster says must stay.
    pub annotated: Annotated,
    /// Nodes that said so when they were last seen.
    left_opted_out: BTreeSet<String>,
    /// The only cluster to work on; empty: any.
    pub cluster_guid: String,
    /// Our pod, if we are in one.
    pub me: Option<Me>,
    /// A live cluster is followed, not a dump.
    live: bool,
}

impl View {
    /// An empty one for a dump; its gate is closed.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty one for a live cluster; its gate is closed.
    pub fn live() -> Self {
        Self { live: true, ..Self::default() }
    }

    /// Takes over one change.
    pub fn apply(&mut self, update: &Update) {
        match update {
            Update::Block(Event::Synced) => self.full(Watched::Block),
            Update::Affinity(Event::Synced) => self.full(Watched::Affinity),
            Update::Pool(Event::Synced) => self.full(Watched::Pool),
            Update::Reservation(Event::Synced) => self.full(Watched::Reservation),
            Update::Config(Ok(Event::Synced)) => self.full(Watched::Config),
            Update::Cluster(Ok(Event::Synced)) => self.full(Watched::Cluster),
            Update::Sync(watched, sync) => drop(self.sync.insert(*watched, sync.clone())),
            Update::OtherGroup(group) => self.other_group = *group,
            Update::Config(config) => {
                self.config = match config {
                    Ok(Event::Put(row)) => Some(Ok(row.value.clone())),
                    Ok(_) => None,
                    Err(e) => Some(Err(e.clone())),
                };
                // The cooldown decides what is due.
                self.cache.mark_all();
            }
            Update::Cluster(cluster) => {
                self.cluster = match cluster {
                    Ok(Event::Put(row)) => Some(Ok(row.value.clone())),
                    Ok(_) => None,
                    Err(e) => Some(Err(e.clone())),
                };
            }
            Update::Settings(settings) => {
                self.settings = *settings;
                // The grace period decides what is due.
                self.cache.mark_all();
            }
            Update::Pool(event) => {
                match event {
                    Event::Put(row) => drop(self.pools.insert(row.key.clone(), row.clone())),
                    Event::Gone(name) => drop(self.pools.remove(name)),
                    Event::Synced => {}
                }
                update.apply(&mut self.cache);
            }
            Update::OptOut(watched, name, says) => self.opt_out(*watched, name, says.clone()),
            Update::Node(name, facts) => {
                if matches!(facts, Lookup::Seen(_)) {
                    self.left_opted_out.remove(name);
                }
                update.apply(&mut self.cache);
            }
            _ => update.apply(&mut self.cache),
        }
    }

    fn opt_out(&mut self, watched: Watched, name: &str, says: Option<OptOut>) {
        let said = self.annotated.get(Because::Node, name).is_some_and(OptOut::holds);
        let gone = || self.cache.node_id(name).is_some_and(|n| self.cache.node(n).is_absent());
        // With the node its annotation goes; what was its waits nevertheless.
        if watched == Watched::Node && says.is_none() && said && gone() {
            self.left_opted_out.insert(name.into());
        }
        self.annotated.put(watched, name, says);
        self.cache.mark_all();
    }

    /// Whether a node that is gone was opted out when it was last seen.
    pub fn left_opted_out(&self, node: &str) -> bool {
        self.left_opted_out.contains(node)
    }

    /// What is required of a cluster, or of a dump.
    pub fn required(&self) -> &'static [Watched] {
        if self.live { &Watched::ALL } else { &OF_A_STORE }
    }

    /// The pools, by name.
    pub fn pools(&self) -> impl Iterator<Item = &Row<PoolKind>> {
        self.pools.values()
    }

    /// How far a kind is known.
    pub fn sync(&self, watched: Watched) -> Option<&Sync> {
        self.sync.get(&watched)
    }

    /// The GUID of the cluster, if it is known.
    pub fn guid(&self) -> Option<&str> {
        self.cluster.as_ref()?.as_ref().ok().map(|c| c.guid.as_str())
    }

    fn full(&mut self, watched: Watched) {
        self.sync.insert(watched, Sync::Full);
    }

    /// Why a kind is not known well enough, if it is not.
    pub fn lacks(&self, watched: Watched) -> Option<String> {
        match self.sync.get(&watched) {
            Some(Sync::Full) => None,
            Some(Sync::NotServed) if watched.optional() => None,
            Some(Sync::NotServed) => Some(format!("{watched} are not served")),
            Some(Sync::Behind(why)) => Some(format!("{watched}: {why}")),
            None => Some(format!("{watched} missing")),
        }
    }

    /// Whether something may be done, and with which configuration.
    ///
    /// # Errors
    /// The first gate that is closed.
    pub fn gate(&self) -> Result<Config, NotReady> {
        Gate::ALL.into_iter().try_for_each(|gate| self.at(gate))?;
        self.ipam_config()
    }

    fn ipam_config(&self) -> Result<Config, NotReady> {
        let config = match &self.config {
            None => Config::default(),
            Some(Ok(config)) => config.clone(),
            Some(Err(e)) => return Err(NotReady::ConfigInvalid(e.clone())),
        };
        config.validate().map_err(NotReady::ConfigInvalid)?;
        Ok(config)
    }

    /// Whether one gate is open.
    ///
    /// # Errors
    /// Why it is closed.
    pub fn at(&self, gate: Gate) -> Result<(), NotReady> {
        match gate {
            Gate::ApiGroupStable => self.other_group.map_or(Ok(()), |group| Err(NotReady::OtherGroup(group))),
            Gate::Synced => {
                let served = |w: &Watched| self.sync.get(w) != Some(&Sync::NotServed);
                if self.live && !self.sync.is_empty() && !IPAM.iter().any(served) {
                    return Err(NotReady::NotSynced("no IPAM kinds are served: Calico IPAM is not in use here".into()));
                }
                let lacking: Vec<String> = self.required().iter().filter_map(|w| self.lacks(*w)).collect();
                if lacking.is_empty() { Ok(()) } else { Err(NotReady::NotSynced(lacking.join(", "))) }
            }
            Gate::ClusterMatches => match self.guid() {
                Some(found) if !self.cluster_guid.is_empty() && found != self.cluster_guid => {
                    Err(NotReady::WrongCluster { found: found.into(), wanted: self.cluster_guid.clone() })
                }
                None if !self.cluster_guid.is_empty() => {
                    Err(NotReady::WrongCluster { found: "unknown".into(), wanted: self.cluster_guid.clone() })
                }
                _ => Ok(()),
            },
            Gate::DatastoreReady => match &self.cluster {
                Some(Err(e)) => Err(NotReady::ClusterUnclear(e.clone())),
                None if self.live => Err(NotReady::NoClusterInformation),
                // Without the field it is ready, a dump also without a row (D-82).
                Some(Ok(ClusterInfo { ready: Some(false), .. })) => Err(NotReady::DatastoreLocked),
                _ => Ok(()),
            },
            Gate::IpamConfigValid => self.ipam_config().map(drop),
            Gate::SelfCheck => self.self_check().map_err(NotReady::SelfCheck),
        }
    }

    /// Whether we find ourselves: our pod and its node are there, and each of its addresses that lies in a block is in use (D-92).
    fn self_check(&self) -> Result<(), String> {
        let Some(me) = &self.me else { return Ok(()) };
        let pod = format!("{}/{}", me.namespace, me.name);
        let found = self.cache.pod_id(&me.namespace, &me.name).map(|id| self.cache.pod(id));
        let Some(Lookup::Seen(facts)) = found else { return Err(format!("our own pod {pod} is not among the pods")) };
        let node = facts.node.filter(|n| matches!(self.cache.node(*n), Lookup::Seen(())));
        if node.is_none() {
            return Err(format!("the node of our own pod {pod} is not among the nodes"));
        }
        for ip in facts.ips.iter().filter(|_| !facts.host_network) {
            let Some((_, block)) = self.cache.block_with(*ip) else { continue };
            let ours = block.slots.iter().find(|slot| block.ip(slot) == *ip);
            let in_use = |slot| matches!(judge(&self.cache.allocation(block, slot), &self.cache), Verdict::InUse(_));
            if !ours.is_some_and(in_use) {
                return Err(format!("our own address {ip} is in block {} and not in use there", block.cidr));
            }
        }
        Ok(())
    }

    /// The controllers' configuration, if there is one.
    pub fn settings(&self) -> Option<Settings> {
        self.settings
    }

    /// Takes what changed since the last call.
    pub fn take_dirty(&mut self) -> Dirty {
        self.cache.take_dirty()
    }
}
