//! The operator on a live cluster.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipam::{Ipam, SystemClock};
use ipam_datastore::live::discovery::discover;
use ipam_datastore::live::{ConnectError, Connection, Follower};
use ipam_datastore::{Group, KubeStore};

use crate::execute::Pulse as _;
use crate::look::Live;
use crate::run::around::Around;
use crate::run::{BEAT, Ended, Operator, pause};
use crate::view::{Me, View};

/// Which cluster, and how it is followed.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// How it is reached.
    pub connection: Connection,
    /// How often the server is asked for its group.
    pub discovery: Duration,
    /// Our pod, if we are in one.
    pub me: Option<Me>,
    /// The group that is followed, for whoever wants to know.
    pub group: Arc<Mutex<Group>>,
}

impl Cluster {
    /// Works on the cluster until somebody wants it to stop. One life after the other: each begins with nothing known, and ends when
    /// what was known does not hold any more (D-78, D-81). What was counted goes on.
    pub async fn operate(&self, around: &mut Around) {
        let (mut reclaimed, mut totals) = Default::default();
        while !around.status.stopping() {
            match self.find_group(around.config.api_group).await {
                Ok(group) => {
                    *self.group.lock().unwrap_or_else(PoisonError::into_inner) = group;
                    let store = KubeStore::new(self.connection.clone(), group);
                    let discovery = around.config.api_group.is_none().then_some(self.discovery);
                    let mut source = Follower::new(&store, discovery, around.config.kubevirt);
                    let status = around.status.clone();
                    // What the loop asks of the server is a sign of life; what its feeds ask is none.
                    let own = self.connection.clone().with_pulse(Arc::new(move || status.beat()));
                    let ipam = Ipam::new(KubeStore::new(own.clone(), group), SystemClock).with_in_flight(around.config.max_in_flight);
                    let mut operator = Operator::new(View::live(), &around.config);
                    operator.view.me.clone_from(&self.me);
                    (operator.ledger.reclaimed, operator.ledger.done) = (reclaimed, totals);
                    tracing::info!(%group, "following the cluster");
                    let look = Live { connection: own, at_once: around.config.max_in_flight };
                    let ended = operator.passes(&ipam, &look, &mut source, around).await;
                    (reclaimed, totals) = (operator.ledger.reclaimed, operator.ledger.done);
                    let Ended::Anew(why) = ended else { return };
                    tracing::warn!(%why, "everything begins anew");
                    around.status.unready(&why.to_string());
                }
                Err(e) => {
                    tracing::warn!(error = %e, "the API group cannot be found out");
                    around.status.unready(&e.to_string());
                }
            }
            around.status.beat();
            tokio::select! {
                () = pause(BEAT) => {}
                () = around.stop.notified() => {}
            }
        }
    }

    async fn find_group(&self, fixed: Option<Group>) -> Result<Group, ConnectError> {
        match fixed {
            Some(group) => Ok(group),
            None => discover(&self.connection).await,
        }
    }
}
