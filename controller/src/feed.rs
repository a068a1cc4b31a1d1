//! Where updates come from: a store in memory, or a cluster.

use chrono::TimeDelta;
use futures::FutureExt;
use futures::stream::{BoxStream, StreamExt, select_all};
use ipam::MemStore;
use ipam::audit::BadObject;
use ipam::model::{AffinityKind, BlockKind, ClusterKind, ConfigKind, PoolKind, ReservationKind};
use ipam::store::Watch;
use ipam_datastore::Update;
use ipam_datastore::live::of_kind;
use ipam_datastore::live::traffic::BUCKETS;
use ipam_datastore::live::{Anew, Follower};
use ipam_datastore::update::Watched;
use ipam_metrics::Samples;
use ipam_metrics::further as series;

/// A source of updates.
pub trait Source: Send {
    /// Hands over what waits; answers whether there was anything.
    ///
    /// # Errors
    /// Nothing that was handed over holds any more; said ever after.
    fn drain(&mut self, sink: &mut (dyn FnMut(Update) + Send)) -> Result<bool, Anew>;

    /// Waits until something is there to be handed over; may be dropped and called again.
    fn ready(&mut self) -> impl Future<Output = ()> + Send;

    /// The server's clock minus ours.
    fn skew(&self) -> Option<TimeDelta> {
        None
    }

    /// Objects that were not understood.
    fn bad(&self) -> Vec<BadObject> {
        Vec::new()
    }

    /// How many changes wait, and how many may.
    fn queue(&self) -> (usize, usize) {
        (0, 0)
    }

    /// What it counts.
    fn samples(&self) -> Samples {
        Samples::default()
    }
}

impl Source for Follower {
    fn drain(&mut self, sink: &mut (dyn FnMut(Update) + Send)) -> Result<bool, Anew> {
        self.drain(sink)
    }

    async fn ready(&mut self) {
        self.ready().await;
    }

    fn skew(&self) -> Option<TimeDelta> {
        self.numbers().skew()
    }

    fn bad(&self) -> Vec<BadObject> {
        self.bad()
    }

    fn queue(&self) -> (usize, usize) {
        self.queue()
    }

    fn samples(&self) -> Samples {
        let (numbers, mut out) = (self.numbers(), Samples::default());
        for ((verb, kind, code), n) in &numbers.requests {
            out.count(&series::REQUESTS, &[verb, &plural(kind), code], *n);
        }
        for (verb, d) in &numbers.durations {
            out.histogram(&series::REQUEST_SECONDS, &[verb], &BUCKETS, &d.counts, d.count, d.sum);
        }
        for ((kind, reason), n) in &numbers.relists {
            out.count(&series::RELISTS, &[word(kind), reason.word()], *n);
        }
        for (kind, at) in &numbers.told {
            out.set(&series::LAST_EVENT, &[word(kind)], at.timestamp() as f64);
        }
        let (depth, capacity) = self.queue();
        out.count(&series::QUEUE, &[], depth as u64);
        out.count(&series::QUEUE_CAPACITY, &[], capacity as u64);
        out
    }
}

/// A kind as metrics call it; of those that are not followed there are only handles.
fn word(kind: &str) -> &'static str {
    of_kind(kind).map_or("handle", Watched::word)
}

/// How many objects of each kind were not understood.
pub(crate) fn bad_by_kind(bad: &[BadObject]) -> std::collections::BTreeMap<&'static str, u64> {
    let mut counts = std::collections::BTreeMap::new();
    for object in bad {
        *counts.entry(word(object.object.split('/').next().unwrap_or_default())).or_default() += 1;
    }
    counts
}

/// The resource of a kind.
fn plural(kind: &str) -> String {
    if kind == "BlockAffinity" { "blockaffinities".into() } else { format!("{}s", kind.to_lowercase()) }
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
