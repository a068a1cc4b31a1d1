//! The four dashboards (operator.md i).

use super::panels::Look::{Lines, Stacked, Stat, States, Table};
use super::panels::{Dashboard, Panel};
use super::rules::FILL;

/// All of them.
pub fn all() -> [Dashboard; 4] {
    [overview(), pool(), node(), operator()]
}

const USABLE: &str = "sum(M(ipam_ippool_size)) - sum(M(ipam_ippool_reserved))";

fn overview() -> Dashboard {
    let now = vec![
        Panel::new("Usable", Stat, "short", 3, &[("", USABLE)]),
        Panel::new("In use", Stat, "short", 3, &[("", "sum(M(ipam_allocations_in_use))")]),
        Panel::new("Cooling", Stat, "short", 3, &[("", "sum(M(ipam_allocations_cooling))")]),
        Panel::new("Available", Stat, "short", 3, &[("", "sum(M(ipam_ippool_available))")]),
        Panel::new("Fullest pool", Stat, "percentunit", 3, &[("{{ippool}}", &format!("topk(1, {FILL})"))]).thresholds(0.8, 0.9),
        Panel::new("Leaks", Stat, "short", 3, &[("", "sum(M(ipam_gc_leaks))")]),
        Panel::new("Brake", Stat, "percentunit", 3, &[("", "max(M(ipam_operator_brake_share))")]).thresholds(0.25, 0.5),
        Panel::new("Findings", Stat, "short", 3, &[("", "sum(M(ipam_findings{severity=~\"warning|error\"}))")]).thresholds(1.0, 10.0),
    ];
    let pools = vec![
        Panel::new(
            "Pools",
            Table,
            "short",
            24,
            &[
                ("Size", "M(ipam_ippool_size)"),
                ("In use", "sum without (node) (M(ipam_allocations_in_use))"),
                ("Reserved", "M(ipam_ippool_reserved)"),
                ("Cooling", "M(ipam_allocations_cooling)"),
                ("Available", "M(ipam_ippool_available)"),
                ("Taken", FILL),
                ("Unclaimed blocks", "M(ipam_ippool_blocks_unclaimed)"),
                ("Full in", "M(ipam_ippool_available) / (-deriv((M(ipam_ippool_available))[6h:5m]) > 0) / 86400"),
            ],
        )
        .leads("ippool", "ipam-pool"),
    ];
    let leaks = vec![
        Panel::new("Leaks by state", Stacked, "short", 12, &[("{{state}}", "sum without (ippool) (M(ipam_gc_leaks))")]),
        Panel::new("Oldest candidate", Lines, "s", 12, &[("{{ippool}}", "M(ipam_gc_oldest_candidate_age_seconds)")]),
        Panel::new(
            "Reclaimed an hour, by reason",
            Lines,
            "short",
            12,
            &[("{{reason}}", "3600 * sum without (ippool) (C(ipam_gc_reclamations_total))")],
        ),
        Panel::new("Refused an hour, by reason", Lines, "short", 12, &[("{{reason}}", "3600 * C(ipam_gc_refusals_total)")]),
    ];
    let nodes = vec![
        Panel::new("Addresses, the first 20 nodes", Lines, "short", 12, &[("{{node}}", "topk(20, M(ipam_allocations_per_node))")]),
        Panel::new("Blocks, the first 20 nodes", Lines, "short", 12, &[("{{node}}", "topk(20, M(ipam_blocks_per_node))")]),
        Panel::new(
            "Borrowed addresses, the first 20 nodes",
            Lines,
            "short",
            8,
            &[("{{node}}", "topk(20, M(ipam_allocations_borrowed_per_node))")],
        ),
        Panel::new("Departed nodes by state", Stacked, "short", 8, &[("{{state}}", "M(ipam_departed_nodes)")]),
        Panel::new("Nodes at the block limit", Lines, "short", 8, &[("IPv{{ip_version}}", "M(ipam_nodes_at_block_limit)")])
            .thresholds(1.0, 1.0),
    ];
    let consistency = vec![
        Panel::new("Findings", Table, "short", 12, &[("Count", "M(ipam_findings)")]),
        Panel::new("Held handles", Lines, "short", 12, &[("{{reason}}", "M(ipam_gc_held_handles)")]),
    ];
    let rows = vec![("Now", now), ("Pools", pools), ("Leaks", leaks), ("Nodes", nodes), ("Consistency", consistency)];
    Dashboard { uid: "ipam-overview", title: "IPAM / overview", variable: None, rows }
}

fn pool() -> Dashboard {
    let of = |name: &str| format!("M({name}{{ippool=~\"$ippool\"}})");
    let available = of("ipam_ippool_available");
    let fill = format!("1 - {available} / ({} - {} > 0)", of("ipam_ippool_size"), of("ipam_ippool_reserved"));
    let ahead = format!(
        "1 - clamp_min(predict_linear(({available})[6h:5m], 86400), 0) / ({} - {} > 0)",
        of("ipam_ippool_size"),
        of("ipam_ippool_reserved")
    );
    let addresses = vec![
        Panel::new(
            "Addresses",
            Stacked,
            "short",
            12,
            &[
                ("in use {{ippool}}", &format!("sum without (node) ({})", of("ipam_allocations_in_use"))),
                ("cooling {{ippool}}", &of("ipam_allocations_cooling")),
                ("reserved {{ippool}}", &of("ipam_ippool_reserved")),
                ("available {{ippool}}", &available),
            ],
        ),
        Panel::new("Taken, and in 24 hours", Lines, "percentunit", 12, &[("{{ippool}}", &fill), ("{{ippool}} in 24 h", &ahead)])
            .thresholds(0.8, 0.9),
        Panel::new("Size", Stat, "short", 4, &[("{{ippool}}", &of("ipam_ippool_size"))]),
        Panel::new("Empty blocks", Stat, "short", 4, &[("{{ippool}}", &of("ipam_ippool_blocks_empty"))]),
        Panel::new("Unclaimed blocks", Stat, "short", 4, &[("{{ippool}}", &of("ipam_ippool_blocks_unclaimed"))]),
        Panel::new(
            "Fragmentation",
            Stat,
            "percentunit",
            4,
            &[("{{ippool}}", &format!("{} / ({available} > 0)", of("ipam_ippool_claimed_available")))],
        )
        .thresholds(0.8, 0.95),
        Panel::new("New blocks may be claimed", Stat, "bool_yes_no", 4, &[("{{ippool}}", &of("ipam_ippool_allocatable"))]),
        Panel::new("About it", Table, "short", 24, &[("", &of("ipam_ippool_info"))]),
    ];
    let leaks = vec![
        Panel::new("Leaks by state", Stacked, "short", 12, &[("{{state}}", &format!("sum without (ippool) ({})", of("ipam_gc_leaks")))]),
        Panel::new(
            "Reclaimed an hour, by reason",
            Lines,
            "short",
            12,
            &[("{{reason}}", "3600 * sum without (ippool) (C(ipam_gc_reclamations_total{ippool=~\"$ippool\"}))")],
        ),
        Panel::new(
            "Cooled addresses freed, and blocks given back, an hour",
            Lines,
            "short",
            12,
            &[
                ("addresses {{ippool}}", "3600 * C(ipam_gc_cold_collected_total{ippool=~\"$ippool\"})"),
                ("blocks {{ippool}}", "3600 * C(ipam_gc_blocks_freed_total{ippool=~\"$ippool\"})"),
            ],
        ),
        Panel::new("Oldest candidate", Lines, "s", 12, &[("{{ippool}}", &of("ipam_gc_oldest_candidate_age_seconds"))]),
    ];
    let nodes = vec![
        Panel::new("Blocks, the first 20 nodes", Lines, "short", 12, &[("{{node}}", &format!("topk(20, {})", of("ipam_blocks")))]),
        Panel::new(
            "Borrowed addresses, the first 20 nodes",
            Lines,
            "short",
            12,
            &[("{{node}}", &format!("topk(20, {})", of("ipam_allocations_borrowed")))],
        ),
    ];
    let rows = vec![("Addresses", addresses), ("Leaks", leaks), ("Nodes", nodes)];
    Dashboard { uid: "ipam-pool", title: "IPAM / pool", variable: Some(("ippool", "ipam_ippool_size")), rows }
}

fn node() -> Dashboard {
    let of = |name: &str| format!("M({name}{{node=~\"$node\"}})");
    let top = |name: &str| format!("topk(20, {})", of(name));
    let panels = vec![
        Panel::new("In use by pool", Stacked, "short", 12, &[("{{node}} {{ippool}}", &top("ipam_allocations_in_use"))]),
        Panel::new("Borrowed", Lines, "short", 12, &[("{{node}} {{ippool}}", &top("ipam_allocations_borrowed"))]),
        Panel::new("Blocks by pool", Lines, "short", 12, &[("{{node}} {{ippool}}", &top("ipam_blocks"))]),
        Panel::new("Candidates", Lines, "short", 12, &[("{{node}} {{ippool}}", &top("ipam_allocations_gc_candidates"))]),
        Panel::new(
            "Reclaimed an hour",
            Lines,
            "short",
            24,
            &[("{{node}} {{ippool}}", "topk(20, 3600 * C(ipam_allocations_gc_reclamations{node=~\"$node\"}))")],
        ),
        Panel::new(
            "By pool",
            Table,
            "short",
            24,
            &[
                ("In use", &top("ipam_allocations_in_use")),
                ("Borrowed", &top("ipam_allocations_borrowed")),
                ("Blocks", &top("ipam_blocks")),
                ("Candidates", &top("ipam_allocations_gc_candidates")),
            ],
        )
        .leads("ippool", "ipam-pool"),
    ];
    Dashboard {
        uid: "ipam-node",
        title: "IPAM / node",
        variable: Some(("node", "ipam_allocations_per_node")),
        rows: vec![("Node", panels)],
    }
}

fn operator() -> Dashboard {
    let roles = vec![
        Panel::new("Active replica", States, "short", 12, &[("{{pod}} {{instance}}", "ipam_operator_leader{$sel}")]),
        Panel::new("Mode", States, "short", 12, &[("{{mode}}", "M(ipam_operator_mode)")]),
        Panel::new(
            "Good when yes",
            States,
            "short",
            12,
            &[(
                "{{condition}}",
                "m(ipam_operator_condition{condition!~\"Paused|BrakeEngaged|BrakeAllowed|MassDeparture|OtherCollectorActive\"})",
            )],
        ),
        Panel::new(
            "Bad when yes",
            States,
            "short",
            12,
            &[(
                "{{condition}}",
                "M(ipam_operator_condition{condition=~\"Paused|BrakeEngaged|BrakeAllowed|MassDeparture|OtherCollectorActive\"})",
            )],
        ),
        Panel::new("Grace period", Stat, "s", 6, &[("", "M(ipam_gc_grace_period_seconds)")]),
        Panel::new("Opt-outs", Stat, "short", 6, &[("{{object}}", "M(ipam_gc_opt_outs)")]),
        Panel::new("Build", Table, "short", 12, &[("Replicas", "count by (version, revision) (ipam_operator_build_info{$sel})")]),
    ];
    let passes = vec![
        Panel::new("Passes by result", Lines, "cps", 12, &[("{{result}}", "C(ipam_operator_passes_total)")]),
        Panel::new(
            "How long they take",
            Lines,
            "s",
            12,
            &[
                ("{{phase}} median", "histogram_quantile(0.5, C(ipam_operator_pass_duration_seconds_bucket))"),
                ("{{phase}} 99 %", "histogram_quantile(0.99, C(ipam_operator_pass_duration_seconds_bucket))"),
            ],
        ),
        Panel::new("Since the last good one", Stat, "s", 6, &[("", "time() - M(ipam_operator_last_successful_pass_timestamp_seconds)")])
            .thresholds(900.0, 1800.0),
        Panel::new("Since the last audit", Stat, "s", 6, &[("", "time() - M(ipam_findings_last_audit_timestamp_seconds)")])
            .thresholds(7200.0, 14400.0),
        Panel::new(
            "Nodes cleaned, and rows repaired, an hour",
            Lines,
            "short",
            12,
            &[("nodes cleaned", "3600 * C(ipam_gc_nodes_cleaned_total)"), ("repaired: {{kind}}", "3600 * C(ipam_gc_repairs_total)")],
        ),
        Panel::new("Actions that wait", Lines, "short", 12, &[("{{action}}", "M(ipam_operator_actions_waiting)")]),
    ];
    let feeds = vec![
        Panel::new("Known in full", States, "short", 12, &[("{{kind}}", "m(ipam_operator_watch_synced)")]),
        Panel::new("Since the last event", Lines, "s", 12, &[("{{kind}}", "time() - M(ipam_operator_watch_last_event_timestamp_seconds)")]),
        Panel::new("Read anew an hour", Lines, "short", 8, &[("{{kind}} {{reason}}", "3600 * C(ipam_operator_watch_relists_total)")]),
        Panel::new("Not understood", Lines, "short", 8, &[("{{kind}}", "M(ipam_operator_bad_objects)")]).thresholds(1.0, 1.0),
        Panel::new("Queue", Lines, "percentunit", 8, &[("", "M(ipam_operator_queue_depth) / M(ipam_operator_queue_capacity)")])
            .thresholds(0.5, 0.9),
    ];
    let api = vec![
        Panel::new("Requests", Lines, "reqps", 12, &[("{{verb}} {{resource}} {{code}}", "C(ipam_operator_api_requests_total)")]),
        Panel::new(
            "Latency, 99 %",
            Lines,
            "s",
            12,
            &[("{{verb}}", "histogram_quantile(0.99, C(ipam_operator_api_request_duration_seconds_bucket))")],
        ),
        Panel::new(
            "Conflicts",
            Lines,
            "reqps",
            12,
            &[("{{resource}}", "sum without (verb, code) (C(ipam_operator_api_requests_total{code=\"409\"})) or on () vector(0)")],
        ),
        Panel::new(
            "Failures an hour, by class",
            Lines,
            "short",
            12,
            &[("{{class}}", "3600 * sum without (action) (C(ipam_gc_failures_total))")],
        ),
        Panel::new("Events not sent an hour", Lines, "short", 12, &[("", "3600 * C(ipam_operator_events_dropped_total)")]),
    ];
    let process = vec![
        Panel::new("Memory", Lines, "bytes", 8, &[("{{pod}} {{instance}}", "process_resident_memory_bytes{$sel}")]),
        Panel::new("CPU", Lines, "short", 8, &[("{{pod}} {{instance}}", "rate(process_cpu_seconds_total{$sel}[$__rate_interval])")]),
        Panel::new("Restarts", Lines, "short", 8, &[("{{pod}} {{instance}}", "changes(process_start_time_seconds{$sel}[1h])")])
            .thresholds(1.0, 3.0),
        Panel::new("Clock against the API server's", Lines, "s", 8, &[("{{pod}} {{instance}}", "ipam_operator_clock_skew_seconds{$sel}")]),
        Panel::new(
            "Configuration in force",
            States,
            "short",
            8,
            &[("{{pod}} {{instance}}", "ipam_operator_config_last_reload_successful{$sel}")],
        ),
        Panel::new(
            "Since it was taken over",
            Lines,
            "s",
            8,
            &[("{{pod}} {{instance}}", "time() - ipam_operator_config_last_reload_success_timestamp_seconds{$sel}")],
        ),
    ];
    let rows = vec![("Roles", roles), ("Passes", passes), ("Feeds", feeds), ("API", api), ("Process", process)];
    Dashboard { uid: "ipam-operator", title: "IPAM / operator", variable: None, rows }
}
