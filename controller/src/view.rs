//! The only cache. [`View::apply`] is its only writer.

use std::collections::BTreeMap;

use ipam::model::{ClusterInfo, Config};
use ipam::store::Event;
use ipam_accounting::Inventory;
use ipam_accounting::inventory::Dirty;
use ipam_datastore::update::{Settings, Sync, Watched};
use ipam_datastore::{Group, Update};

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

/// What is known of the cluster.
#[derive(Debug, Default)]
pub struct View {
    /// Who holds which address.
    pub cache: Inventory,
    config: Option<Result<Config, String>>,
    cluster: Option<Result<ClusterInfo, String>>,
    settings: Option<Settings>,
    sync: BTreeMap<Watched, Sync>,
    other_group: Option<Group>,
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
            _ => update.apply(&mut self.cache),
        }
    }

    fn full(&mut self, watched: Watched) {
        self.sync.insert(watched, Sync::Full);
    }

    /// Why a kind is not known well enough, if it is not.
    fn lacks(&self, watched: Watched) -> Option<String> {
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
        if let Some(group) = self.other_group {
            return Err(NotReady::OtherGroup(group));
        }
        let required: &[Watched] = if self.live { &Watched::ALL } else { &OF_A_STORE };
        let lacking: Vec<String> = required.iter().filter_map(|w| self.lacks(*w)).collect();
        if !lacking.is_empty() {
            return Err(NotReady::NotSynced(lacking.join(", ")));
        }
        match &self.cluster {
            Some(Err(e)) => return Err(NotReady::ClusterUnclear(e.clone())),
            None if self.live => return Err(NotReady::NoClusterInformation),
            // Without the field it is ready, a dump also without a row (D-82).
            Some(Ok(ClusterInfo { ready: Some(false), .. })) => return Err(NotReady::DatastoreLocked),
            _ => {}
        }
        let config = match &self.config {
            None => Config::default(),
            Some(Ok(config)) => config.clone(),
            Some(Err(e)) => return Err(NotReady::ConfigInvalid(e.clone())),
        };
        config.validate().map_err(NotReady::ConfigInvalid)?;
        Ok(config)
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
