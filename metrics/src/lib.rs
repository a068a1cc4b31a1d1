//! Names, help texts and labels of every series, and their encoding. No controller in sight.
//!
//! The ten series are the reference's, to the letter: no prefix, and the counter has no `_total` (gc.md 14).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// Pool and node.
pub type PoolNode = (String, String);

/// Plain numbers: what a page says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// By pool: its size and how many of its addresses are reserved.
    pub pools: BTreeMap<String, PoolSize>,
    /// Nodes for which every pool gets an explicit 0.
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

    /// The page in the text format.
    ///
    /// # Errors
    /// The encoder refused a series: a fault of ours.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        prometheus::TextEncoder::new().encode_to_string(&sorted(self.collect()))
    }
}

/// Families by name, as a registry gathers them; those without samples are left out.
fn sorted(mut families: Vec<MetricFamily>) -> Vec<MetricFamily> {
    families.sort_by(|a, b| a.name().cmp(b.name()));
    families
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
mod tests {
    use super::*;

    #[test]
    fn met_23_zero_seeding_and_families_without_samples() {
        let page = Page::default();
        assert_eq!(page.text().as_deref().ok(), Some(""));
        let mut report = Report { nodes: vec!["a".into(), "b".into()], ..Report::default() };
        report.pools.insert("p".into(), PoolSize { size: 256.0, reserved: 16.0 });
        report.in_use.insert(("p".into(), "a".into()), 4);
        page.publish(report);
        let text = page.text().expect("encodes");
        let lines: Vec<_> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "ipam_allocations_borrowed{ippool=\"p\",node=\"a\"} 0",
                "ipam_allocations_borrowed{ippool=\"p\",node=\"b\"} 0",
                "ipam_allocations_gc_candidates{ippool=\"p\",node=\"a\"} 0",
                "ipam_allocations_gc_candidates{ippool=\"p\",node=\"b\"} 0",
                "ipam_allocations_in_use{ippool=\"p\",node=\"a\"} 4",
                "ipam_allocations_in_use{ippool=\"p\",node=\"b\"} 0",
                "ipam_ippool_reserved{ippool=\"p\"} 16",
                "ipam_ippool_size{ippool=\"p\"} 256",
            ]
        );
    }

    #[test]
    fn met_01_help_texts_name_no_series_and_the_counter_has_no_suffix() {
        for (name, help, _) in ALL {
            assert!(!name.ends_with("_total"));
            assert!(ALL.iter().all(|(other, _, _)| !help.contains(other)), "{help}");
        }
        let page = Page::default();
        let mut report = Report::default();
        report.reclamations.insert(("p".into(), "a".into()), 7);
        page.publish(report);
        let text = page.text().expect("encodes");
        assert!(
            text.contains("# TYPE ipam_allocations_gc_reclamations counter\nipam_allocations_gc_reclamations{ippool=\"p\",node=\"a\"} 7\n")
        );
    }
}
