//! Names, help texts and labels of every series, and their encoding. No controller in sight.
//!
//! The ten series are the reference's, to the letter: no prefix, and the counter has no `_total` (gc.md 14).

mod encode;
pub mod further;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use further::Samples;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use self::encode::Pieces;

/// Pool and node.
pub type PoolNode = (String, String);

/// Plain numbers: what a page says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// By pool: its size and how many of its addresses are reserved.
    pub pools: BTreeMap<String, PoolSize>,
    /// Nodes for which every pool gets an explicit 0; sorted.
    pub nodes: Vec<String>,
    /// Allocated addresses.
    pub in_use: BTreeMap<PoolNode, u64>,
    /// Those of them in blocks of somebody else.
    pub borrowed: BTreeMap<PoolNode, u64>,
    /// Blocks.
    pub blocks: BTreeMap<PoolNode, u64>,
    /// Leaks that wait or are confirmed.
    pub candidates: BTreeMap<PoolNode, u64>,
    /// Addresses given back since the start.
    pub reclamations: BTreeMap<PoolNode, u64>,
    /// Allocated addresses by node.
    pub per_node: BTreeMap<String, u64>,
    /// Borrowed addresses by node.
    pub borrowed_per_node: BTreeMap<String, u64>,
    /// Blocks by owner.
    pub blocks_per_node: BTreeMap<String, u64>,
}

/// Size of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolSize {
    /// Addresses in all.
    pub size: f64,
    /// Addresses covered by reservations.
    pub reserved: f64,
}

/// Name, help text, labels. No help text holds another series' name (gc.md 14).
type Series = (&'static str, &'static str, &'static [&'static str]);

const IN_USE: Series =
    ("ipam_allocations_in_use", "Addresses allocated to a workload, a tunnel or a host, cooling ones left out.", &["ippool", "node"]);
const BORROWED: Series =
    ("ipam_allocations_borrowed", "Allocated addresses that lie in a block of another owner, or of none.", &["ippool", "node"]);
const BLOCKS: Series = ("ipam_blocks", "Blocks, by the node that owns them.", &["ippool", "node"]);
const CANDIDATES: Series = (
    "ipam_allocations_gc_candidates",
    "Allocated addresses that nobody seems to use any more and that have not been given back yet.",
    &["ippool", "node"],
);
const RECLAMATIONS: Series = ("ipam_allocations_gc_reclamations", "Leaked addresses given back since the start.", &["ippool", "node"]);
const SIZE: Series = ("ipam_ippool_size", "Addresses of the pool.", &["ippool"]);
const RESERVED: Series = ("ipam_ippool_reserved", "Addresses of the pool that reservations cover.", &["ippool"]);
const PER_NODE: Series = ("ipam_allocations_per_node", "Allocated addresses, by the node they are allocated on.", &["node"]);
const BORROWED_PER_NODE: Series =
    ("ipam_allocations_borrowed_per_node", "Allocated addresses in blocks of another owner, by the node they are allocated on.", &["node"]);
const BLOCKS_PER_NODE: Series = ("ipam_blocks_per_node", "Blocks, by the node that owns them, over all pools.", &["node"]);

/// Every series.
pub const ALL: [Series; 10] =
    [IN_USE, BORROWED, BLOCKS, CANDIDATES, RECLAMATIONS, SIZE, RESERVED, PER_NODE, BORROWED_PER_NODE, BLOCKS_PER_NODE];

/// Where the latest report lies. Clones share it. Without report there are no series.
#[derive(Clone, Debug, Default)]
pub struct Page {
    latest: Arc<Mutex<Option<Arc<Report>>>>,
    further: Arc<Mutex<Arc<Samples>>>,
    /// Series by pool and node that only say 0 are left out.
    without_zeros: Arc<AtomicBool>,
}

impl Page {
    /// Replaces the report.
    pub fn publish(&self, report: Report) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(report));
    }

    /// The report.
    pub fn latest(&self) -> Option<Arc<Report>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the further series.
    pub fn publish_further(&self, samples: Samples) {
        *self.further.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(samples);
    }

    /// Whether series by pool and node that only say 0 are shown.
    pub fn show_zeros(&self, yes: bool) {
        self.without_zeros.store(!yes, Ordering::Relaxed);
    }

    /// Takes the gauges of the cluster back: they are the active replica's. What was counted stays.
    pub fn withdraw(&self) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = latest.take() {
            *latest = Some(Arc::new(Report { reclamations: report.reclamations.clone(), ..Report::default() }));
        }
    }

    /// The page in the text format, in pieces; the reference's series are not there without report.
    pub fn pieces(&self) -> impl Iterator<Item = String> + Send + use<> {
        let zeros = !self.without_zeros.load(Ordering::Relaxed);
        let further = self.further.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ten = self.latest().into_iter().flat_map(move |report| Pieces::new(report, zeros));
        ten.chain(std::iter::once_with(move || further.text())).filter(|piece| !piece.is_empty())
    }

    /// The same at once.
    pub fn text(&self) -> String {
        self.pieces().collect()
    }
}

impl Collector for Page {
    fn desc(&self) -> Vec<&Desc> {
        // Label values come and go with the cluster, so there are no fixed descriptors; the golden test holds the names.
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(r) = self.latest() else { return Vec::new() };
        let sizes = |of: fn(&PoolSize) -> f64| r.pools.iter().map(move |(pool, size)| (vec![pool.as_str()], of(size)));
        let families = [
            pairs(IN_USE, MetricType::GAUGE, &r.in_use, Some(&r)),
            pairs(BORROWED, MetricType::GAUGE, &r.borrowed, Some(&r)),
            pairs(BLOCKS, MetricType::GAUGE, &r.blocks, None),
            pairs(CANDIDATES, MetricType::GAUGE, &r.candidates, Some(&r)),
            pairs(RECLAMATIONS, MetricType::COUNTER, &r.reclamations, None),
            family(SIZE, MetricType::GAUGE, sizes(|s| s.size)),
            family(RESERVED, MetricType::GAUGE, sizes(|s| s.reserved)),
            nodes(PER_NODE, &r.per_node),
            nodes(BORROWED_PER_NODE, &r.borrowed_per_node),
            nodes(BLOCKS_PER_NODE, &r.blocks_per_node),
        ];
        families.into_iter().flatten().collect()
    }
}

fn nodes(series: Series, values: &BTreeMap<String, u64>) -> Option<MetricFamily> {
    family(series, MetricType::GAUGE, values.iter().map(|(node, n)| (vec![node.as_str()], *n as f64)))
}

/// A series by pool and node, with zeros for every pool and node that `seeds` knows.
fn pairs(series: Series, kind: MetricType, values: &BTreeMap<PoolNode, u64>, seeds: Option<&Report>) -> Option<MetricFamily> {
    let mut all: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    if let Some(report) = seeds {
        let zeros = report.pools.keys().flat_map(|p| report.nodes.iter().map(move |n| ((p.as_str(), n.as_str()), 0)));
        all.extend(zeros);
    }
    all.extend(values.iter().map(|((pool, node), n)| ((pool.as_str(), node.as_str()), *n)));
    family(series, kind, all.into_iter().map(|((pool, node), n)| (vec![pool, node], n as f64)))
}

fn family<'a>((name, help, labels): Series, kind: MetricType, samples: impl Iterator<Item = (Vec<&'a str>, f64)>) -> Option<MetricFamily> {
    let label = |(name, value): (&&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).into());
        pair.set_value(value.into());
        pair
    };
    let sample = |(values, n): (Vec<&str>, f64)| {
        let mut metric = Metric::from_label(labels.iter().zip(values).map(label).collect());
        if kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(n);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(n);
            metric.set_gauge(gauge);
        }
        metric
    };
    let metrics: Vec<Metric> = samples.map(sample).collect();
    if metrics.is_empty() {
        return None;
    }
    let mut family = MetricFamily::default();
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(kind);
    family.set_metric(metrics);
    Some(family)
}

#[cfg(test)]
mod tests;
