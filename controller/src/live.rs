//! The operator on a live cluster.

use std::time::Duration;

use ipam::{Ipam, SystemClock};
use ipam_datastore::live::discovery::discover;
use ipam_datastore::live::{ConnectError, Connection, Follower};
use ipam_datastore::{Group, KubeStore};

use crate::look::Live;
use crate::run::{BEAT, Operator, ServeError, Surface, Wishes, pause};
use crate::view::{NotReady, View};

/// Which cluster, and how it is followed.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// How it is reached.
    pub connection: Connection,
    /// Its API group; `None`: asked of the server, again and again.
    pub group: Option<Group>,
    /// How often the server is asked for its group.
    pub discovery: Duration,
}

impl Cluster {
    /// Works on the cluster until `stop` is ready, and serves metrics and probes.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn operate(&self, wishes: &Wishes, listen: &str, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        Surface::new(false).while_served(listen, stop, async |surface| self.lives(wishes, surface).await).await
    }

    /// One life after the other: each begins with nothing known, and ends when what was known does not hold any more (D-78, D-81).
    async fn lives(&self, wishes: &Wishes, surface: &Surface) {
        loop {
            match self.group().await {
                Ok(group) => {
                    let store = KubeStore::new(self.connection.clone(), group);
                    let mut source = Follower::new(&store, self.group.is_none().then_some(self.discovery));
                    let ipam = Ipam::new(store, SystemClock);
                    let mut operator = Operator::new(View::live(), wishes.clone());
                    tracing::info!(%group, "following the cluster");
                    let look = Live(self.connection.clone());
                    let why = operator.passes(&ipam, &look, &mut source, SystemClock, surface).await;
                    tracing::warn!(%why, "everything begins anew");
                    surface.status.set(Some(NotReady::NotSynced(why.to_string())), None);
                }
                Err(e) => {
                    tracing::warn!(error = %e, "the API group cannot be found out");
                    surface.status.set(Some(NotReady::NotSynced(e.to_string())), None);
                }
            }
            surface.status.beat(ipam::Clock::now(&SystemClock));
            pause(BEAT).await;
        }
    }

    async fn group(&self) -> Result<Group, ConnectError> {
        match self.group {
            Some(group) => Ok(group),
            None => discover(&self.connection).await,
        }
    }
}
