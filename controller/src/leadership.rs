//! Who of several replicas acts (D-83): the holder of a Lease, as long as it renews it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::TimeDelta;
use futures::StreamExt as _;
use ipam_accounting::schedule::Time;
use ipam_datastore::live::Connection;
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use kube::Api;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder};
use kube_runtime::{WatchStreamExt as _, watcher};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::clocks::RealClocks;
use crate::config::Lease;
use crate::run::pause;

/// How long is waited after the Lease could not be reached.
const AGAIN: Duration = Duration::from_secs(1);
/// How long giving it back may take.
const FAREWELL: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct State {
    clocks: RealClocks,
    /// A Lease that was not renewed for so long is none; `None`: there is no other replica.
    holds_for: Option<TimeDelta>,
    holding: AtomicBool,
    renewed: Mutex<Option<Time>>,
    changed: Notify,
}

/// Whether we are the one. Clones share it.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<State>);

impl Leadership {
    /// There is no other replica.
    pub fn alone(clocks: RealClocks) -> Self {
        Self::new(clocks, None)
    }

    fn new(clocks: RealClocks, holds_for: Option<TimeDelta>) -> Self {
        let alone = holds_for.is_none();
        let state = State { clocks, holds_for, holding: AtomicBool::new(alone), renewed: Mutex::default(), changed: Notify::new() };
        Self(Arc::new(state))
    }

    /// That of a Lease that is to be held.
    pub fn of(lease: &Lease, clocks: RealClocks) -> Self {
        Self::new(clocks, Some(TimeDelta::from_std(lease.duration).unwrap_or(TimeDelta::MAX)))
    }

    /// Whether we may act: we hold the Lease, and have renewed it lately.
    pub fn active(&self) -> bool {
        let state = &self.0;
        let Some(holds_for) = state.holds_for else { return true };
        let renewed = *state.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        state.holding.load(Ordering::Acquire) && renewed.is_some_and(|at| state.clocks.both().steady - at < holds_for)
    }

    /// Ready when it may have changed.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn renewed(&self) {
        *self.0.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.0.clocks.both().steady);
    }

    fn set(&self, holding: bool) {
        if holding {
            self.renewed();
        }
        if self.0.holding.swap(holding, Ordering::AcqRel) != holding {
            tracing::info!(holding, "{}", if holding { "this one leads now" } else { "this one does not lead any more" });
            self.0.changed.notify_one();
        }
    }
}

/// What the watch of the Lease has seen.
#[derive(Default)]
struct Seen {
    /// Nobody holds it, or somebody else although we thought that we did.
    look: Notify,
}

/// Holds a Lease, or waits for it, until `stop` is ready; then gives it back.
pub async fn hold(connection: &Connection, lease: &Lease, identity: &str, leadership: &Leadership, stop: impl Future<Output = ()>) {
    let seen = Seen::default();
    let manager = async {
        let mut stop = std::pin::pin!(stop);
        loop {
            let builder = LeaseManagerBuilder::new(connection.client(), &lease.name)
                .with_namespace(&lease.namespace)
                .with_identity(identity)
                .with_duration(lease.duration.as_secs())
                .with_grace(lease.grace.as_secs());
            let built = tokio::select! {
                built = builder.build() => built,
                () = &mut stop => return,
            };
            match built {
                Ok(manager) => {
                    if follow(&manager, leadership, &seen, &mut stop).await {
                        leadership.set(false);
                        if !matches!(timeout(FAREWELL, manager.release()).await, Ok(Ok(()))) {
                            tracing::warn!("the lease could not be given back: it ends by itself");
                        }
                        return;
                    }
                }
                Err(e) => {
                    tracing::warn!(error = %ipam::release::chain(&e), "the lease cannot be reached");
                    tokio::select! {
                        () = pause(AGAIN) => {}
                        () = &mut stop => return,
                    }
                }
            }
        }
    };
    tokio::select! {
        () = manager => {}
        () = watch(connection, lease, identity, leadership, &seen) => {}
    }
}

/// Follows the Lease until it must be looked at anew, perhaps made anew; whether it is to be given back.
async fn follow(manager: &LeaseManager, leadership: &Leadership, seen: &Seen, stop: &mut (impl Future<Output = ()> + Unpin)) -> bool {
    loop {
        tokio::select! {
            changed = manager.changed() => match changed {
                Ok(holding) => leadership.set(holding),
                Err(e) => {
                    tracing::warn!(error = %ipam::release::chain(&e), "the lease cannot be kept or taken");
                    pause(AGAIN).await;
                    return false;
                }
            },
            () = seen.look.notified() => return false,
            () = &mut *stop => return true,
        }
    }
}

/// Watches the Lease: each renewal of ours counts, and one that nobody holds is to be had at once.
async fn watch(connection: &Connection, lease: &Lease, identity: &str, leadership: &Leadership, seen: &Seen) {
    loop {
        let api: Api<LeaseObject> = Api::namespaced(connection.client(), &lease.namespace);
        let only = watcher::Config::default().fields(&format!("metadata.name={}", lease.name));
        let mut told = std::pin::pin!(watcher(api, only).default_backoff().touched_objects());
        while let Some(Ok(object)) = told.next().await {
            let holder = object.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            let ours = holder == identity;
            if ours {
                leadership.renewed();
            } else if holder.is_empty() {
                seen.look.notify_one();
            } else if leadership.0.holding.load(Ordering::Acquire) {
                leadership.set(false);
                seen.look.notify_one();
            }
        }
        pause(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_83_who_has_not_renewed_is_passive() {
        let lease = Lease { name: "l".into(), namespace: "n".into(), duration: Duration::from_secs(10), grace: Duration::from_secs(4) };
        let clocks = RealClocks::starting_at(None);
        let leadership = Leadership::of(&lease, clocks);
        assert!(!leadership.active());
        leadership.set(true);
        assert!(leadership.active());
        let long_ago = clocks.both().steady - TimeDelta::seconds(10);
        *leadership.0.renewed.lock().expect("not poisoned") = Some(long_ago);
        assert!(!leadership.active(), "held, and not renewed for ten seconds");
        leadership.renewed();
        assert!(leadership.active());
        leadership.set(false);
        assert!(!leadership.active());
        assert!(Leadership::alone(clocks).active());
    }
}
