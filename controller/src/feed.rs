//! Where updates come from: a store in memory, or a cluster.

use futures::FutureExt;
use futures::stream::{BoxStream, StreamExt, select_all};
use ipam::MemStore;
use ipam::model::{AffinityKind, BlockKind, ClusterKind, ConfigKind, PoolKind, ReservationKind};
use ipam::store::Watch;
use ipam_datastore::Update;
use ipam_datastore::live::{Anew, Follower};

/// A source of updates.
pub trait Source: Send {
    /// Hands over what waits; answers whether there was anything.
    ///
    /// # Errors
    /// Nothing that was handed over holds any more; said ever after.
    fn drain(&mut self, sink: &mut (dyn FnMut(Update) + Send)) -> Result<bool, Anew>;

    /// Waits until something is there to be handed over; may be dropped and called again.
    fn ready(&mut self) -> impl Future<Output = ()> + Send;
}

impl Source for Follower {
    fn drain(&mut self, sink: &mut (dyn FnMut(Update) + Send)) -> Result<bool, Anew> {
        self.drain(sink)
    }

    async fn ready(&mut self) {
        self.ready().await;
    }
}

/// Follows a store in memory.
pub struct MemFeed {
    streams: BoxStream<'static, Update>,
}

impl MemFeed {
    /// Starts with the full set.
    pub fn new(store: &MemStore) -> Self {
        let streams = [
            Watch::<PoolKind>::watch(store).map(Update::Pool).boxed(),
            Watch::<ReservationKind>::watch(store).map(Update::Reservation).boxed(),
            Watch::<BlockKind>::watch(store).map(Update::Block).boxed(),
            Watch::<AffinityKind>::watch(store).map(Update::Affinity).boxed(),
            Watch::<ConfigKind>::watch(store).map(|e| Update::Config(Ok(e))).boxed(),
            Watch::<ClusterKind>::watch(store).map(|e| Update::Cluster(Ok(e))).boxed(),
        ];
        Self { streams: select_all(streams).boxed() }
    }
}

impl Source for MemFeed {
    fn drain(&mut self, sink: &mut (dyn FnMut(Update) + Send)) -> Result<bool, Anew> {
        let mut any = false;
        while let Some(Some(update)) = self.streams.next().now_or_never() {
            sink(update);
            any = true;
        }
        Ok(any)
    }

    /// Nobody but the loop writes into the store, and it drains after it wrote.
    async fn ready(&mut self) {
        std::future::pending().await
    }
}

/// Whether an update speaks of rows that a [`MemFeed`] delivers: a loader need not hand those over twice.
pub fn is_row(update: &Update) -> bool {
    matches!(
        update,
        Update::Block(_) | Update::Affinity(_) | Update::Pool(_) | Update::Reservation(_) | Update::Config(Ok(_)) | Update::Cluster(Ok(_))
    )
}
