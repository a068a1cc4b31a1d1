//! The only cache. [`View::apply`] is its only writer.

use std::collections::BTreeSet;

use ipam::model::{ClusterInfo, Config};
use ipam::store::Event;
use ipam_accounting::Inventory;
use ipam_accounting::inventory::Dirty;
use ipam_datastore::Update;
use ipam_datastore::update::Settings;

/// Why nothing may be done at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// Some kinds have not been delivered in full yet.
    #[error("not in step with the store yet: {0} missing")]
    NotSynced(String),
    /// `datastoreReady` is false (GCX-02).
    #[error("the datastore is locked")]
    DatastoreLocked,
    /// The cluster information was not understood, so the datastore may be locked.
    #[error("the cluster information was not understood ({0}): the datastore may be locked")]
    ClusterUnclear(String),
    /// The IPAM configuration is not valid, or was not understood (D-10).
    #[error("the IPAM configuration is not valid: {0}")]
    ConfigInvalid(String),
}

/// The kinds without which nothing is decided.
const REQUIRED: [&str; 6] = ["blocks", "affinities", "pools", "reservations", "configuration", "cluster information"];

/// What is known of the cluster.
#[derive(Debug, Default)]
pub struct View {
    /// Who holds which address.
    pub cache: Inventory,
    config: Option<Result<Config, String>>,
    cluster: Option<Result<ClusterInfo, String>>,
    settings: Option<Settings>,
    synced: BTreeSet<&'static str>,
}

impl View {
    /// An empty one; its gate is closed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over one change.
    pub fn apply(&mut self, update: &Update) {
        match update {
            Update::Block(Event::Synced) => drop(self.synced.insert("blocks")),
            Update::Affinity(Event::Synced) => drop(self.synced.insert("affinities")),
            Update::Pool(Event::Synced) => drop(self.synced.insert("pools")),
            Update::Reservation(Event::Synced) => drop(self.synced.insert("reservations")),
            Update::Config(Ok(Event::Synced)) => drop(self.synced.insert("configuration")),
            Update::Cluster(Ok(Event::Synced)) => drop(self.synced.insert("cluster information")),
            Update::Config(config) => {
                self.config = match config {
                    Ok(Event::Put(row)) => Some(Ok(row.value.clone())),
                    Ok(_) => self.config.take().filter(Result::is_err),
                    Err(e) => Some(Err(e.clone())),
                };
                // The cooldown decides what is due.
                self.cache.mark_all();
            }
            Update::Cluster(cluster) => {
                self.cluster = match cluster {
                    Ok(Event::Put(row)) => Some(Ok(row.value.clone())),
                    Ok(_) => self.cluster.take().filter(Result::is_err),
                    Err(e) => Some(Err(e.clone())),
                };
            }
            Update::Settings(settings) => self.settings = Some(*settings),
            _ => update.apply(&mut self.cache),
        }
    }

    /// Whether something may be done, and with which configuration.
    ///
    /// # Errors
    /// The first gate that is closed.
    pub fn gate(&self) -> Result<Config, NotReady> {
        let missing: Vec<&str> = REQUIRED.into_iter().filter(|k| !self.synced.contains(k)).collect();
        if !missing.is_empty() {
            return Err(NotReady::NotSynced(missing.join(", ")));
        }
        match &self.cluster {
            Some(Err(e)) => return Err(NotReady::ClusterUnclear(e.clone())),
            // Without a row, or without the field, it is ready (D-82 for dumps).
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
