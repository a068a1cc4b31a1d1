//! The page as text, straight from the report.
//!
//! The crate's encoder wants every label of every sample as a string of its own: half a million zeros of a large cluster
//! took it 600 ms. A test holds this one against it, byte for byte.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::{
    BLOCKS, BLOCKS_PER_NODE, BORROWED, BORROWED_PER_NODE, CANDIDATES, IN_USE, PER_NODE, PoolNode, RECLAMATIONS, RESERVED, Report, SIZE,
    Series,
};

/// The whole page; series without samples are left out.
pub(crate) fn page(r: &Report, zeros: bool) -> String {
    let pools: Vec<(&str, String)> = r.pools.keys().map(|p| (p.as_str(), escaped(p))).collect();
    let seeded = if zeros { &r.nodes[..] } else { &[] };
    let nodes: Vec<(&str, String)> = seeded.iter().map(|n| (n.as_str(), format!("{}\"}} 0\n", escaped(n)))).collect();
    let seeds = Seeds { pools, nodes };
    let mut out = String::with_capacity(3 * seeds.pools.len() * seeds.nodes.len() * 96 + 4096);
    // In the order of names, as a registry gathers them.
    pairs(&mut out, BORROWED, "gauge", &r.borrowed, Some(&seeds));
    nodes_only(&mut out, BORROWED_PER_NODE, &r.borrowed_per_node);
    pairs(&mut out, CANDIDATES, "gauge", &r.candidates, Some(&seeds));
    pairs(&mut out, RECLAMATIONS, "counter", &r.reclamations, None);
    pairs(&mut out, IN_USE, "gauge", &r.in_use, Some(&seeds));
    nodes_only(&mut out, PER_NODE, &r.per_node);
    pairs(&mut out, BLOCKS, "gauge", &r.blocks, None);
    nodes_only(&mut out, BLOCKS_PER_NODE, &r.blocks_per_node);
    for (series, of) in [(RESERVED, (|s| s.reserved) as fn(&crate::PoolSize) -> f64), (SIZE, |s| s.size)] {
        head(&mut out, series, "gauge", r.pools.is_empty());
        for (pool, size) in &r.pools {
            let _ = writeln!(out, "{}{{ippool=\"{}\"}} {}", series.0, escaped(pool), of(size));
        }
    }
    out
}

/// Pools with their escaped names, nodes with the end of the line of a zero; both sorted.
struct Seeds<'a> {
    pools: Vec<(&'a str, String)>,
    nodes: Vec<(&'a str, String)>,
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

fn nodes_only(out: &mut String, series: Series, values: &BTreeMap<String, u64>) {
    head(out, series, "gauge", values.is_empty());
    for (node, n) in values {
        let _ = writeln!(out, "{}{{node=\"{}\"}} {n}", series.0, escaped(node));
    }
}

/// A series by pool and node: the values, and zeros for every seed without one, in the order of labels.
fn pairs(out: &mut String, series: Series, kind: &str, values: &BTreeMap<PoolNode, u64>, seeds: Option<&Seeds<'_>>) {
    let zeros = seeds.map_or(0, |s| s.pools.len() * s.nodes.len());
    head(out, series, kind, values.is_empty() && zeros == 0);
    let mut values = values.iter().peekable();
    let line = |out: &mut String, pool: &str, node: &str, n: u64| {
        let _ = writeln!(out, "{}{{ippool=\"{}\",node=\"{}\"}} {n}", series.0, escaped(pool), escaped(node));
    };
    for (pool, pool_text) in seeds.into_iter().flat_map(|s| &s.pools) {
        let start = format!("{}{{ippool=\"{pool_text}\",node=\"", series.0);
        for (node, rest) in seeds.into_iter().flat_map(|s| &s.nodes) {
            while let Some(((p, n), value)) = values.next_if(|((p, n), _)| (p.as_str(), n.as_str()) < (pool, node)) {
                line(out, p, n, *value);
            }
            match values.next_if(|((p, n), _)| (p.as_str(), n.as_str()) == (pool, node)) {
                Some((_, value)) => line(out, pool, node, *value),
                None => {
                    out.push_str(&start);
                    out.push_str(rest);
                }
            }
        }
    }
    values.for_each(|((p, n), value)| line(out, p, n, *value));
}
