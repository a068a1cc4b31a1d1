//! Recording rules and alerts.

use serde_json::{Value, json};

use super::{SELECTOR, expand};

/// How bad it is. Critical only where pods fail now or traffic breaks: a collector that is down harms nobody within the hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Somebody is woken.
    Critical,
    /// Somebody looks today.
    Warning,
    /// Somebody looks some day.
    Info,
}

/// An alert.
#[derive(Debug)]
pub struct Alert {
    /// Its name.
    pub name: &'static str,
    /// When it is so, in short form.
    pub query: &'static str,
    /// For how long.
    pub lasts: &'static str,
    /// How bad.
    pub severity: Severity,
    /// In a line.
    pub summary: &'static str,
    /// What it means and what to do first.
    pub description: &'static str,
}

/// Share of a pool's usable addresses that is taken.
pub const FILL: &str = "1 - M(ipam_ippool_available) / (M(ipam_ippool_size) - M(ipam_ippool_reserved) > 0)";

/// Recording rules: name and query.
pub const RECORDED: [(&str, &str); 3] = [
    ("ippool:ipam_usable:max", "M(ipam_ippool_size) - M(ipam_ippool_reserved)"),
    ("ippool:ipam_available:max", "M(ipam_ippool_available)"),
    ("ippool:ipam_fill:ratio", FILL),
];

macro_rules! alerts {
    ($($name:ident $severity:ident $lasts:literal $query:literal $summary:literal $description:literal;)*) => {
        /// All alerts.
        pub const ALERTS: &[Alert] = &[$(Alert {
            name: stringify!($name),
            query: $query,
            lasts: $lasts,
            severity: Severity::$severity,
            summary: $summary,
            description: $description,
        }),*];
    };
}

alerts! {
    IPAMNoAddressesLeft Critical "5m"
        "sum without (ippool) (M(ipam_ippool_available) * on (cluster, ippool) group_left (ip_version) M(ipam_ippool_info{assignment_mode=\"Automatic\", allowed_uses=~\"(.*,)?Workload(,.*)?\"}) and on (cluster, ippool) M(ipam_ippool_allocatable) == 1) == 0"
        "No IPv{{ $labels.ip_version }} address is left for pods"
        "Every pool that pods may use without asking for one is full: new pods get no address.";
    IPAMAddressConflict Critical "10m"
        "M(ipam_findings{kind=\"used-by-other\"}) > 0"
        "Pods use addresses that are allocated to others"
        "{{ $value }} addresses are reported by a pod that they are not allocated to; traffic may go astray.";
    IPAMPoolFull Warning "10m"
        "M(ipam_ippool_available) == 0 and on (cluster, ippool) M(ipam_ippool_allocatable) == 1"
        "Pool {{ $labels.ippool }} is full"
        "Pods that must get an address from pool {{ $labels.ippool }} get none.";
    IPAMPoolNearlyFull Warning "15m"
        "ippool:ipam_fill:ratio > 0.9 and on (cluster, ippool) M(ipam_ippool_size) >= 64 and on (cluster, ippool) M(ipam_ippool_allocatable) == 1 and on (cluster, ippool) M(ipam_ippool_available) > 0"
        "Pool {{ $labels.ippool }} is {{ $value | humanizePercentage }} taken"
        "Make pool {{ $labels.ippool }} larger, add another one, or give leaked addresses back.";
    IPAMPoolFullSoon Warning "1h"
        "predict_linear(ippool:ipam_available:max[6h], 86400) < 0 and deriv(ippool:ipam_available:max[30m]) < 0 and on (cluster, ippool) ippool:ipam_fill:ratio > 0.6 and on (cluster, ippool) M(ipam_ippool_allocatable) == 1"
        "Pool {{ $labels.ippool }} will be full within a day"
        "As in the last six hours, pool {{ $labels.ippool }} has no address left in less than 24 hours.";
    IPAMCoolingFillsPool Warning "15m"
        "M(ipam_allocations_cooling) / on (cluster, ippool) group_left () ippool:ipam_usable:max > 0.2 and on (cluster, ippool) ippool:ipam_fill:ratio > 0.9"
        "Cooling addresses fill pool {{ $labels.ippool }}"
        "{{ $value | humanizePercentage }} of pool {{ $labels.ippool }} are released addresses that are not free yet: the cooldown is long for this many changes.";
    IPAMBlockLimitReached Warning "15m"
        "M(ipam_nodes_at_block_limit) > 0"
        "{{ $value }} nodes may claim no further IPv{{ $labels.ip_version }} block"
        "When their blocks are full their pods get no address, although the pool has some.";
    IPAMLeaksNotReclaimed Warning "15m"
        "min_over_time(M(ipam_gc_leaks{state=\"due\"})[1h:1m]) > 0"
        "Leaked addresses of pool {{ $labels.ippool }} are due and do not go"
        "For an hour at least {{ $value }} addresses have been due for release.";
    IPAMLeaksHigh Warning "15m"
        "sum without (ippool, state) (M(ipam_gc_leaks{state!~\"opted_out|handle_held\"})) > 100 and sum without (ippool, state) (M(ipam_gc_leaks{state!~\"opted_out|handle_held\"})) > 0.25 * sum without (ippool, node) (M(ipam_allocations_in_use))"
        "A quarter of all addresses is leaked"
        "{{ $value }} addresses are leaked; more than half of them at once engage the brake. Something leaks, or something is not seen.";
    IPAMReleasesBraked Warning "5m"
        "M(ipam_operator_condition{condition=\"BrakeEngaged\"}) == 1 and on (cluster) M(ipam_operator_mode{mode=\"enforce\"}) == 1"
        "The brake is engaged: no leaked address of a pod or VM goes"
        "So many at once are rather a mistake. Look, and let them through if they are right.";
    IPAMHandlesHeld Info "24h"
        "M(ipam_gc_held_handles{reason!=\"opted_out\"}) > 0"
        "{{ $value }} handles are leaked in part, and held ({{ $labels.reason }})"
        "A handle goes whole or not at all; a part of these is in use, or it cannot be told.";
    IPAMDepartedNodesStuck Warning "2h"
        "M(ipam_departed_nodes{state=~\"due|in_use|unknown|cooling\"}) > 0"
        "{{ $value }} departed nodes are not cleaned up ({{ $labels.state }})"
        "Their blocks and addresses stay taken.";
    IPAMFindings Warning "3h"
        "M(ipam_findings{severity=~\"warning|error\", kind!=\"used-by-other\"}) > 0"
        "{{ $value }} times: {{ $labels.kind }}"
        "Rows of IPAM contradict each other, and did so in several audits.";
    IPAMOperatorAbsent Warning "15m"
        "absent(up{$sel} == 1)"
        "ipam-operator does not run"
        "No replica is there to be scraped: nothing is given back.";
    IPAMOperatorReplicaDown Info "30m"
        "up{$sel} == 0"
        "A replica of ipam-operator is down"
        "{{ $labels.instance }} is not there to take over.";
    IPAMOperatorLeaderless Warning "5m"
        "sum without ($replica) (ipam_operator_leader{$sel}) == 0"
        "No replica of ipam-operator leads"
        "All of them are passive: nothing is given back. Is the Lease held by something else, or may they not write it?";
    IPAMOperatorTwoLeaders Warning "5m"
        "sum without ($replica) (ipam_operator_leader{$sel}) > 1"
        "{{ $value }} replicas of ipam-operator lead"
        "That harms no address, but doubles series and events. Two releases in two namespaces?";
    IPAMOperatorNoClusterSeries Warning "15m"
        "absent(ipam_ippool_size{$sel}) and on () max(up{$sel}) == 1"
        "ipam-operator runs and says nothing of the cluster"
        "Its gates are closed since it started, nobody leads, or the cluster has no pool.";
    IPAMOperatorStale Warning "10m"
        "time() - M(ipam_operator_last_successful_pass_timestamp_seconds) > 1800 and on (cluster) m(ipam_operator_condition{condition=\"Synced\"}) == 1 and on (cluster) m(ipam_operator_condition{condition=\"DatastoreReady\"}) == 1"
        "ipam-operator has had no good pass for half an hour"
        "Every pass since {{ $value | humanizeDuration }} had something that failed.";
    IPAMOperatorNotSynced Warning "15m"
        "ipam_operator_watch_synced{$sel} == 0"
        "ipam-operator does not know every {{ $labels.kind }}"
        "Until it does, nothing is decided ({{ $labels.instance }}).";
    IPAMOperatorWritesForbidden Warning "15m"
        "m(ipam_operator_condition{condition=\"WritesPermitted\"}) == 0 and on (cluster) M(ipam_operator_mode{mode=\"enforce\"}) == 1"
        "ipam-operator may not write"
        "The API server answers 403: its role lacks a right that its configuration needs.";
    IPAMOperatorReleasesFailing Warning "30m"
        "sum without (action, $replica) (increase(ipam_gc_failures_total{$sel, class!=\"forbidden\"}[15m])) > 0"
        "Actions of ipam-operator fail ({{ $labels.class }})"
        "They are tried again, later each time.";
    IPAMOperatorConfigRejected Warning "15m"
        "ipam_operator_config_last_reload_successful{$sel} == 0"
        "The configuration file of ipam-operator is not valid"
        "The old values stay in force ({{ $labels.instance }}).";
    IPAMConfigInvalid Warning "10m"
        "m(ipam_operator_condition{condition=\"IPAMConfigValid\"}) == 0"
        "The IPAM configuration of the cluster is not valid"
        "Nothing is decided, and Calico may refuse addresses too.";
    IPAMDatastoreLocked Warning "1h"
        "m(ipam_operator_condition{condition=\"DatastoreReady\"}) == 0"
        "The datastore is locked"
        "ClusterInformation says that it is not ready: nothing is decided. A migration that was not ended?";
    IPAMOperatorPaused Warning "24h"
        "M(ipam_operator_condition{condition=\"Paused\"}) == 1"
        "ipam-operator has been paused for a day"
        "Leaked addresses stay until it is not.";
    IPAMOperatorRestarting Warning "5m"
        "changes(process_start_time_seconds{$sel}[1h]) > 3"
        "ipam-operator restarts again and again"
        "Every restart begins all timers anew: with restarts more often than the grace period nothing is ever given back.";
    IPAMOperatorClockSkew Warning "10m"
        "abs(ipam_operator_clock_skew_seconds{$sel}) > 30"
        "The clocks of ipam-operator and the API server are {{ $value | humanizeDuration }} apart"
        "Cooled addresses are not freed until they agree.";
    IPAMOtherCollectorActive Info "1h"
        "M(ipam_operator_condition{condition=\"OtherCollectorActive\"}) == 1 and on (cluster) M(ipam_operator_mode{mode=\"enforce\"}) == 1"
        "Calico's own controller is configured to collect leaks too"
        "Audit, pause, brake and opt-outs hold only ipam-operator back.";
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "critical",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}

/// The groups of rules, as a PrometheusRule or a rule file has them.
pub fn groups() -> Value {
    let recorded: Vec<Value> = RECORDED.iter().map(|(name, query)| json!({ "record": name, "expr": expand(query, SELECTOR) })).collect();
    let alert = |a: &Alert| {
        json!({
            "alert": a.name,
            "expr": expand(a.query, SELECTOR),
            "for": a.lasts,
            "labels": { "severity": word(a.severity) },
            "annotations": {
                "summary": a.summary,
                "description": a.description,
                "runbook_url": format!("docs/runbooks.md#{}", a.name.to_lowercase()),
            },
        })
    };
    json!({ "groups": [
        { "name": "ipam-operator.rules", "rules": recorded },
        { "name": "ipam-operator.alerts", "rules": ALERTS.iter().map(alert).collect::<Vec<_>>() },
    ] })
}
