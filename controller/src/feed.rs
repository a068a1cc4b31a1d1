//! Where updates come from. A store in memory is followed without waiting; a live one comes later, behind the same
//! call.

use futures::FutureExt;
use futures::stream::{BoxStream, StreamExt, select_all};
use ipam::MemStore;
use ipam::model::{AffinityKind, BlockKind, ClusterKind, ConfigKind, PoolKind, ReservationKind};
use ipam::store::Watch;
use ipam_datastore::Update;

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

    /// Hands over what waits; answers whether there was anything.
    pub fn drain(&mut self, mut sink: impl FnMut(&Update)) -> bool {
        let mut any = false;
        while let Some(Some(update)) = self.streams.next().now_or_never() {
            sink(&update);
            any = true;
        }
        any
    }
}

/// Whether an update speaks of rows that a [`MemFeed`] delivers: a loader need not hand those over twice.
pub fn is_row(update: &Update) -> bool {
    matches!(
        update,
        Update::Block(_) | Update::Affinity(_) | Update::Pool(_) | Update::Reservation(_) | Update::Config(Ok(_)) | Update::Cluster(Ok(_))
    )
}
