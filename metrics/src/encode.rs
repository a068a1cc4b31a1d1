//! The page as text, straight from the report, in pieces: a large cluster's page is sixty megabytes, and nobody needs them at once.
//!
//! The crate's encoder wants every label of every sample as a string of its own: half a million zeros of a large cluster
//! took it 600 ms. A test holds this one against it, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use crate::{
    BLOCKS, BLOCKS_PER_NODE, BORROWED, BORROWED_PER_NODE, CANDIDATES, IN_USE, PER_NODE, PoolNode, PoolSize, RECLAMATIONS, RESERVED, Report,
    SIZE, Series,
};

/// By pool and node; by node; by pool.
enum Values {
    Pairs { of: fn(&Report) -> &BTreeMap<PoolNode, u64>, seeded: bool },
    Nodes(fn(&Report) -> &BTreeMap<String, u64>),
    Pools(fn(&PoolSize) -> f64),
}

/// The series in the order of names, as a registry gathers them.
const ORDER: [(Series, &str, Values); 10] = [
    (BORROWED, "gauge", Values::Pairs { of: |r| &r.borrowed, seeded: true }),
    (BORROWED_PER_NODE, "gauge", Values::Nodes(|r| &r.borrowed_per_node)),
    (CANDIDATES, "gauge", Values::Pairs { of: |r| &r.candidates, seeded: true }),
    (RECLAMATIONS, "counter", Values::Pairs { of: |r| &r.reclamations, seeded: false }),
    (IN_USE, "gauge", Values::Pairs { of: |r| &r.in_use, seeded: true }),
    (PER_NODE, "gauge", Values::Nodes(|r| &r.per_node)),
    (BLOCKS, "gauge", Values::Pairs { of: |r| &r.blocks, seeded: false }),
    (BLOCKS_PER_NODE, "gauge", Values::Nodes(|r| &r.blocks_per_node)),
    (RESERVED, "gauge", Values::Pools(|s| s.reserved)),
    (SIZE, "gauge", Values::Pools(|s| s.size)),
];

/// The page in pieces: a series, or one pool of a series that has a line for every pool and node. Series without samples are left out.
pub struct Pieces {
    report: Arc<Report>,
    /// Names of nodes that are seeded with zero, each with the end of its line.
    nodes: Vec<(String, String)>,
    zeros: bool,
    next: usize,
    /// Pools of the series at hand that are still to come, last first.
    pools: Vec<String>,
}

impl Pieces {
    pub(crate) fn new(report: Arc<Report>, zeros: bool) -> Self {
        let seeded = if zeros { &report.nodes[..] } else { &[] };
        let nodes = seeded.iter().map(|n| (n.clone(), format!("{}\"}} 0\n", escaped(n)))).collect();
        Self { report, nodes, zeros, next: 0, pools: Vec::new() }
    }

    /// The pools of a series, last first.
    fn pools_of(&self, values: &BTreeMap<PoolNode, u64>, seeded: bool) -> Vec<String> {
        let mut pools: BTreeSet<&String> = values.keys().map(|(pool, _)| pool).collect();
        if seeded && self.zeros && !self.nodes.is_empty() {
            pools.extend(self.report.pools.keys());
        }
        pools.into_iter().rev().cloned().collect()
    }

    /// A line for each node of a pool: the values, and zeros for every seed without one, in the order of nodes.
    fn of_a_pool(&self, out: &mut String, series: Series, pool: &str, values: &BTreeMap<PoolNode, u64>, seeded: bool) {
        let seeds = if seeded && self.report.pools.contains_key(pool) { &self.nodes[..] } else { &[] };
        let start = format!("{}{{ippool=\"{}\",node=\"", series.0, escaped(pool));
        out.reserve(seeds.len() * (start.len() + 48));
        let mut values = values.range((pool.to_owned(), String::new())..).take_while(|((p, _), _)| p == pool).peekable();
        let line = |out: &mut String, node: &str, n: u64| {
            let _ = writeln!(out, "{start}{}\"}} {n}", escaped(node));
        };
        for (node, rest) in seeds {
            while let Some(((_, n), value)) = values.next_if(|((_, n), _)| n < node) {
                line(out, n, *value);
            }
            match values.next_if(|((_, n), _)| n == node) {
                Some((_, value)) => line(out, node, *value),
                None => {
                    out.push_str(&start);
                    out.push_str(rest);
                }
            }
        }
        values.for_each(|((_, n), value)| line(out, n, *value));
    }

    /// One series, or its first pool.
    fn series(&mut self, (series, kind, values): &(Series, &str, Values)) -> String {
        let mut out = String::new();
        let report = self.report.clone();
        match values {
            Values::Pairs { of, seeded } => {
                self.pools = self.pools_of(of(&report), *seeded);
                head(&mut out, *series, kind, self.pools.is_empty());
            }
            Values::Nodes(of) => {
                head(&mut out, *series, kind, of(&report).is_empty());
                for (node, n) in of(&report) {
                    let _ = writeln!(out, "{}{{node=\"{}\"}} {n}", series.0, escaped(node));
                }
            }
            Values::Pools(of) => {
                head(&mut out, *series, kind, report.pools.is_empty());
                for (pool, size) in &report.pools {
                    let _ = writeln!(out, "{}{{ippool=\"{}\"}} {}", series.0, escaped(pool), of(size));
                }
            }
        }
        out
    }
}

impl Iterator for Pieces {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if let Some(pool) = self.pools.pop() {
            let (series, _, Values::Pairs { of, seeded }) = &ORDER[self.next - 1] else { return None };
            let mut out = String::new();
            self.of_a_pool(&mut out, *series, &pool, of(&self.report), *seeded);
            return Some(out);
        }
        let entry = ORDER.get(self.next)?;
        self.next += 1;
        Some(self.series(entry))
    }
}

/// A label value as the text format writes it.
pub(crate) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

fn head(out: &mut String, (name, help, _): Series, kind: &str, empty: bool) {
    if !empty {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }
}
