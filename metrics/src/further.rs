//! The further series (operator.md b): names, labels, help texts, and their samples.
//!
//! No name contains one of the ten of the reference; none has a label by which series multiply with addresses or pods.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::encode::escaped;

/// What kind of series it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value.
    Gauge,
    /// Only grows while the process lives.
    Counter,
    /// Values told apart by size.
    Histogram,
}

/// Which replicas show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The active one: it speaks of the cluster, and two would double every sum.
    Active,
    /// Every process that was ever active.
    EverActive,
    /// Every process.
    Always,
}

/// One series.
#[derive(Debug, PartialEq, Eq)]
pub struct Further {
    /// Its name.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// Who shows it.
    pub shown: Shown,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

macro_rules! series {
    ($($id:ident $name:literal $kind:ident $shown:ident [$($label:literal),*] $help:literal;)*) => {
        $(#[doc = $help] pub const $id: Further =
            Further { name: $name, kind: Kind::$kind, shown: Shown::$shown, labels: &[$($label),*], help: $help };)*
        /// All of them.
        pub const FURTHER: &[&Further] = &[$(&$id),*];
    };
}

series! {
    POOL_INFO "ipam_ippool_info" Gauge Active ["ippool", "cidr", "ip_version", "block_size", "allowed_uses", "assignment_mode"] "A pool, for joins; always 1.";
    POOL_ALLOCATABLE "ipam_ippool_allocatable" Gauge Active ["ippool"] "1 if new blocks may be claimed in the pool: enabled, not being deleted, not masked.";
    POOL_AVAILABLE "ipam_ippool_available" Gauge Active ["ippool"] "Addresses that are neither in use nor cooling nor reserved.";
    POOL_CLAIMED_AVAILABLE "ipam_ippool_claimed_available" Gauge Active ["ippool"] "The part of them that lies in blocks that somebody has claimed.";
    POOL_UNCLAIMED "ipam_ippool_blocks_unclaimed" Gauge Active ["ippool"] "Blocks of the size of the pool that could still be claimed.";
    POOL_EMPTY "ipam_ippool_blocks_empty" Gauge Active ["ippool"] "Blocks of a node without an allocated address.";
    COOLING "ipam_allocations_cooling" Gauge Active ["ippool"] "Addresses that were released and are not free yet.";
    LEAKS "ipam_gc_leaks" Gauge Active ["ippool", "state"] "Addresses judged to be leaked, each in one state.";
    OLDEST "ipam_gc_oldest_candidate_age_seconds" Gauge Active ["ippool"] "Age of the oldest leak that waits for nothing but time or permission.";
    HELD_HANDLES "ipam_gc_held_handles" Gauge Active ["reason"] "Handles of which a part is leaked and stays, for all or none goes.";
    GRACE "ipam_gc_grace_period_seconds" Gauge Active [] "How long an address must be leaked; 0: collection is off.";
    OPT_OUTS "ipam_gc_opt_outs" Gauge Active ["object"] "Objects of which nothing may be released, by annotation or configuration.";
    DEPARTED "ipam_departed_nodes" Gauge Active ["state"] "Nodes that are gone and not cleaned up yet.";
    AT_LIMIT "ipam_nodes_at_block_limit" Gauge Active ["ip_version"] "Nodes that may claim no further block.";
    FINDINGS "ipam_findings" Gauge Active ["kind", "severity"] "What the last audit found.";
    LAST_AUDIT "ipam_findings_last_audit_timestamp_seconds" Gauge Active [] "When the last audit ended.";

    RECLAIMED "ipam_gc_reclamations_total" Counter EverActive ["ippool", "reason"] "Leaked addresses given back.";
    REFUSALS "ipam_gc_refusals_total" Counter EverActive ["reason"] "Releases that the last look, or the store, refused.";
    FAILURES "ipam_gc_failures_total" Counter EverActive ["action", "class"] "Actions that failed.";
    COLLECTED "ipam_gc_cold_collected_total" Counter EverActive ["ippool"] "Cooled addresses freed.";
    FREED "ipam_gc_blocks_freed_total" Counter EverActive ["ippool"] "Blocks given back.";
    CLEANED "ipam_gc_nodes_cleaned_total" Counter EverActive [] "Departed nodes cleaned up.";
    REPAIRS "ipam_gc_repairs_total" Counter EverActive ["kind"] "Rows brought in line with the blocks.";

    BUILD "ipam_operator_build_info" Gauge Always ["version", "revision"] "The build; always 1.";
    LEADER "ipam_operator_leader" Gauge Always [] "1 for the active replica, 0 for a passive one.";
    MODE "ipam_operator_mode" Gauge Always ["mode"] "1 for the mode in force.";
    CONDITION "ipam_operator_condition" Gauge Always ["condition"] "1 if the condition holds.";
    BRAKE_SHARE "ipam_operator_brake_share" Gauge Active [] "Share of the addresses of pods and VMs that is due or was released lately.";
    LAST_PASS "ipam_operator_last_successful_pass_timestamp_seconds" Gauge Active [] "When the last pass ended in which nothing failed.";
    PASSES "ipam_operator_passes_total" Counter Always ["result"] "Passes by result.";
    PASS_SECONDS "ipam_operator_pass_duration_seconds" Histogram Always ["phase"] "How long passes take.";
    WAITING "ipam_operator_actions_waiting" Gauge Always ["action"] "What is planned and waits for the brake, the rate or a retry.";
    QUEUE "ipam_operator_queue_depth" Gauge Always [] "Changes that wait to be taken over.";
    QUEUE_CAPACITY "ipam_operator_queue_capacity" Gauge Always [] "How many may wait.";
    SYNCED "ipam_operator_watch_synced" Gauge Always ["kind"] "1 if a kind is known in full, or may be missing and is not served.";
    LAST_EVENT "ipam_operator_watch_last_event_timestamp_seconds" Gauge Always ["kind"] "When something of a kind was told last.";
    RELISTS "ipam_operator_watch_relists_total" Counter Always ["kind", "reason"] "Full sets read.";
    BAD_OBJECTS "ipam_operator_bad_objects" Gauge Always ["kind"] "Objects that were not understood.";
    REQUESTS "ipam_operator_api_requests_total" Counter Always ["verb", "resource", "code"] "Requests to the API server.";
    REQUEST_SECONDS "ipam_operator_api_request_duration_seconds" Histogram Always ["verb"] "How long they take.";
    RELOADED "ipam_operator_config_last_reload_successful" Gauge Always [] "1 if the configuration file is in force as it is.";
    RELOADED_AT "ipam_operator_config_last_reload_success_timestamp_seconds" Gauge Always [] "When it was taken over last.";
    SKEW "ipam_operator_clock_skew_seconds" Gauge Always [] "The API server's clock minus ours.";
    DROPPED "ipam_operator_events_dropped_total" Counter Always [] "Kubernetes events that were not sent.";
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(f64),
    /// Upper bounds with cumulative counts; count and sum of all.
    Histogram(Vec<(f64, u64)>, u64, f64),
}

/// Samples of the further series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(BTreeMap<&'static str, (&'static Further, BTreeMap<Vec<String>, Value>)>);

impl Samples {
    fn put(&mut self, series: &'static Further, labels: &[&str], value: Value) {
        debug_assert_eq!(labels.len(), series.labels.len(), "{}", series.name);
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        self.0.entry(series.name).or_insert_with(|| (series, BTreeMap::new())).1.insert(labels, value);
    }

    /// A value.
    pub fn set(&mut self, series: &'static Further, labels: &[&str], value: f64) {
        self.put(series, labels, Value::Number(value));
    }

    /// A count, or 1 and 0 for yes and no.
    pub fn count(&mut self, series: &'static Further, labels: &[&str], n: impl Into<u64>) {
        self.set(series, labels, n.into() as f64);
    }

    /// Adds to a value.
    pub fn add(&mut self, series: &'static Further, labels: &[&str], n: f64) {
        let key: Vec<String> = labels.iter().map(|l| (*l).to_owned()).collect();
        let before = self.0.get(series.name).and_then(|(_, values)| values.get(&key));
        let before = if let Some(Value::Number(before)) = before { *before } else { 0.0 };
        self.set(series, labels, before + n);
    }

    /// Values told apart by `bounds`, each with how many were above the one before and at most as large.
    pub fn histogram(&mut self, series: &'static Further, labels: &[&str], bounds: &[f64], counts: &[u64], count: u64, sum: f64) {
        let mut so_far = 0;
        let buckets = bounds.iter().zip(counts).map(|(bound, n)| {
            so_far += n;
            (*bound, so_far)
        });
        let buckets = buckets.collect();
        self.put(series, labels, Value::Histogram(buckets, count, sum));
    }

    /// Takes others over.
    pub fn extend(&mut self, others: Samples) {
        for (name, (series, values)) in others.0 {
            self.0.entry(name).or_insert_with(|| (series, BTreeMap::new())).1.extend(values);
        }
    }

    /// Only those that a replica shows which is not active.
    #[must_use]
    pub fn of_a_passive_one(&self) -> Self {
        Self(self.0.iter().filter(|(_, (series, _))| series.shown != Shown::Active).map(|(n, v)| (*n, v.clone())).collect())
    }

    /// As text, by name.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, (series, values)) in &self.0 {
            let kind = match series.kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
                Kind::Histogram => "histogram",
            };
            let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", series.help);
            for (labels, value) in values {
                let pairs: Vec<String> = series.labels.iter().zip(labels).map(|(l, v)| format!("{l}=\"{}\"", escaped(v))).collect();
                match value {
                    Value::Number(n) => line(&mut out, name, &pairs, *n),
                    Value::Histogram(buckets, count, sum) => {
                        let with = |bound: String| [&pairs[..], &[format!("le=\"{bound}\"")]].concat();
                        for (bound, n) in buckets {
                            line(&mut out, &format!("{name}_bucket"), &with(bound.to_string()), *n as f64);
                        }
                        line(&mut out, &format!("{name}_bucket"), &with("+Inf".into()), *count as f64);
                        line(&mut out, &format!("{name}_sum"), &pairs, *sum);
                        line(&mut out, &format!("{name}_count"), &pairs, *count as f64);
                    }
                }
            }
        }
        out
    }
}

fn line(out: &mut String, name: &str, pairs: &[String], value: f64) {
    let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
    let _ = writeln!(out, "{name}{labels} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ALL;

    #[test]
    fn b_1_no_name_and_no_help_contains_one_of_the_references() {
        for series in FURTHER {
            for (reference, _, _) in ALL {
                // `ipam_blocks` and the like: their tests grep the whole page.
                assert!(!series.name.contains(reference), "{} contains {reference}", series.name);
                assert!(!series.help.contains(reference), "{}", series.help);
            }
        }
    }

    #[test]
    fn b_2_b_3_labels_and_suffixes() {
        let never = ["ip", "handle", "pod", "namespace", "block", "instance", "job", "service", "container", "endpoint", "node"];
        let mut names = std::collections::BTreeSet::new();
        for series in FURTHER {
            assert!(series.labels.iter().all(|l| !never.contains(l)), "{}", series.name);
            assert_eq!(series.name.ends_with("_total"), series.kind == Kind::Counter, "{}", series.name);
            assert!(series.kind != Kind::Histogram || series.name.ends_with("_seconds"), "{}", series.name);
            assert!(names.insert(series.name), "{} twice", series.name);
        }
    }

    #[test]
    fn they_are_written_as_prometheus_reads_them() {
        let mut samples = Samples::default();
        samples.count(&LEAKS, &["a\"b", "due"], 3_u64);
        samples.set(&GRACE, &[], 900.0);
        samples.histogram(&PASS_SECONDS, &["plan"], &[0.1, 1.0], &[2, 3], 6, 7.5);
        samples.add(&PASSES, &["ok"], 1.0);
        samples.add(&PASSES, &["ok"], 1.0);
        let text = samples.text();
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "ipam_gc_grace_period_seconds 900",
                "ipam_gc_leaks{ippool=\"a\\\"b\",state=\"due\"} 3",
                "ipam_operator_pass_duration_seconds_bucket{phase=\"plan\",le=\"0.1\"} 2",
                "ipam_operator_pass_duration_seconds_bucket{phase=\"plan\",le=\"1\"} 5",
                "ipam_operator_pass_duration_seconds_bucket{phase=\"plan\",le=\"+Inf\"} 6",
                "ipam_operator_pass_duration_seconds_sum{phase=\"plan\"} 7.5",
                "ipam_operator_pass_duration_seconds_count{phase=\"plan\"} 6",
                "ipam_operator_passes_total{result=\"ok\"} 2",
            ]
        );
        assert!(!samples.of_a_passive_one().text().contains("ipam_gc_"), "only the active one speaks of the cluster");
        assert!(samples.of_a_passive_one().text().contains("ipam_operator_passes_total"));
    }
}
