//! Alerts and dashboards of the chart: made from what is written in `tests/src/monitoring`, checked and run by promtool.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ipam_datastore::Group;
use ipam_metrics::further::{FURTHER, Kind};
use ipam_tests::control_plane::tool;
use ipam_tests::monitoring::alert_cases::{CASES, Case};
use ipam_tests::monitoring::dashboards;
use ipam_tests::monitoring::rules::{ALERTS, RECORDED, groups};
use ipam_tests::monitoring::{SELECTOR, series};
use ipam_tests::say;
use serde_json::{Value, json};

use super::chart::{Installed, until};
use super::{get, repo};

const FILES: &str = "charts/ipam-operator/files";

/// Runs promtool, which succeeds; what it says.
fn promtool(args: &[&str]) -> String {
    let done = Command::new(tool("promtool")).args(args).output().expect("promtool runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "promtool {args:?}: {said}");
    said
}

/// Files of the chart, and what must be in them.
fn files() -> Vec<(PathBuf, String)> {
    let rules = format!(
        "# Made from tests/src/monitoring: BLESS=1 cargo test -p ipam-operator --test process monitoring\n{}",
        yaml_serde::to_string(&groups()).expect("YAML")
    );
    let mut files = vec![(repo(FILES).join("rules.yaml"), rules)];
    for dashboard in dashboards::all() {
        files.push((repo(FILES).join(format!("dashboards/{}.json", dashboard.uid)), format!("{:#}\n", dashboard.json())));
    }
    files
}

#[test]
fn h_i_the_files_of_the_chart_are_as_written() {
    for (path, want) in files() {
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &want).expect("written");
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(there == want, "{}: BLESS=1 writes it anew", path.display());
    }
}

/// Series in promtool's notation with the labels of a scrape; replica `a`, unless they say otherwise.
fn scraped(series: &str) -> Value {
    let (name, values) = series
        .rsplit_once("} ")
        .map_or_else(|| series.split_once(' ').map(|(n, v)| (n.to_owned(), v)).expect("a value"), |(n, v)| (format!("{n}}}"), v));
    let (name, labels) = name.split_once('{').map_or((name.as_str(), ""), |(n, l)| (n, l.trim_end_matches('}')));
    let pod = if labels.contains(",pod=") || labels.starts_with("pod=") { String::new() } else { ",pod=\"a\"".into() };
    let comma = if labels.is_empty() { "" } else { "," };
    json!({ "series": format!("{name}{{{SELECTOR},instance=\"x\"{pod}{comma}{labels}}}"), "values": values })
}

/// Has promtool run this over the rules.
fn run_tests(tests: &[Value]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tests.json");
    let all = json!({ "rule_files": [repo(FILES).join("rules.yaml").canonicalize().expect("there")], "evaluation_interval": "1m", "tests": tests });
    std::fs::write(&file, all.to_string()).expect("written");
    promtool(&["test", "rules", &file.display().to_string()])
}

#[test]
fn h_every_alert_fires_when_it_must_and_only_then() {
    let said = promtool(&["check", "rules", &repo(FILES).join("rules.yaml").display().to_string()]);
    assert!(said.contains(&format!("{} rules found", ALERTS.len() + RECORDED.len())), "{said}");
    for alert in ALERTS {
        for fires in [true, false] {
            assert!(CASES.iter().any(|c| c.alert == alert.name && c.fires == fires), "{} {fires}: no case", alert.name);
        }
    }
    let case = |c: &Case| {
        let firing = format!("count(ALERTS{{alertname=\"{}\", alertstate=\"firing\"}})", c.alert);
        json!({
            "name": format!("{}: {}", c.alert, c.what),
            "interval": "1m",
            "input_series": c.series.iter().map(|s| scraped(s)).collect::<Vec<_>>(),
            // Whether it fired at any time until then.
            "promql_expr_test": [{
                "expr": format!("(max_over_time(({firing} or vector(0))[{}m:1m])) > bool 0", c.at + 1),
                "eval_time": format!("{}m", c.at),
                "exp_samples": [{ "labels": "{}", "value": u8::from(c.fires) }],
            }],
        })
    };
    let said = run_tests(&CASES.iter().map(case).collect::<Vec<_>>());
    say(format_args!("{} alerts, {} cases: {}", ALERTS.len(), CASES.len(), said.trim()));
}

/// What a person reads, filled in.
#[test]
fn h_an_alert_says_what_and_where() {
    let series = [
        "ipam_ippool_size{ippool=\"p\"} 256x60",
        "ipam_ippool_reserved{ippool=\"p\"} 56x60",
        "ipam_ippool_available{ippool=\"p\"} 10x60",
        "ipam_ippool_allocatable{ippool=\"p\"} 1x60",
    ];
    run_tests(&[json!({
        "interval": "1m",
        "input_series": series.map(scraped),
        "alert_rule_test": [{ "eval_time": "20m", "alertname": "IPAMPoolNearlyFull", "exp_alerts": [{
            "exp_labels": { "severity": "warning", "job": "ipam-operator", "ippool": "p" },
            "exp_annotations": {
                "summary": "Pool p is 95% taken",
                "description": "Make pool p larger, add another one, or give leaked addresses back.",
                "runbook_url": "docs/runbooks.md#ipampoolnearlyfull",
            },
        }] }],
    })]);
}

/// All queries of a dashboard: title, and query without variables.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let plain = |q: &Value| {
        let text = q.as_str().expect("text").replace("$__rate_interval", "5m");
        text.replace("$job", "ipam-operator").replace("$cluster", ".*").replace("$ippool", ".+").replace("$node", ".+")
    };
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            all.push((panel["title"].as_str().expect("a title").to_owned(), plain(&target["expr"])));
        }
    }
    for a in dashboard["annotations"]["list"].as_array().expect("a list") {
        all.push((format!("annotation {}", a["name"]), plain(&a["expr"])));
    }
    all
}

/// Names that a page may have, and that rules make.
fn known() -> BTreeSet<String> {
    let ten = [
        "ipam_allocations_in_use",
        "ipam_allocations_borrowed",
        "ipam_allocations_gc_candidates",
        "ipam_allocations_gc_reclamations",
        "ipam_blocks",
        "ipam_ippool_size",
        "ipam_ippool_reserved",
        "ipam_allocations_per_node",
        "ipam_allocations_borrowed_per_node",
        "ipam_blocks_per_node",
    ];
    let of_a_process = ["up", "process_start_time_seconds", "process_resident_memory_bytes", "process_cpu_seconds_total"];
    let mut known: BTreeSet<String> = ten.into_iter().chain(of_a_process).map(Into::into).collect();
    for s in FURTHER {
        known.insert(if s.kind == Kind::Histogram { format!("{}_bucket", s.name) } else { s.name.into() });
    }
    known.extend(RECORDED.iter().map(|(name, _)| (*name).to_owned()));
    known
}

#[test]
fn h_i_no_query_names_a_series_that_does_not_exist() {
    let known = known();
    let mut used = BTreeSet::new();
    let rules = groups();
    let exprs = rules["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .flat_map(|g| g["rules"].as_array().expect("rules"))
        .map(|r| r["expr"].as_str().expect("text").to_owned());
    let panels = dashboards::all().into_iter().flat_map(|d| queries(&d.json())).map(|(_, q)| q);
    for query in exprs.chain(panels) {
        for name in series(&query) {
            assert!(known.contains(&name), "{name}: {query}");
            used.insert(name);
        }
    }
    let unused: Vec<_> = known.difference(&used).collect();
    assert!(unused.is_empty(), "series that nobody looks at: {unused:?}");
}

#[test]
fn i_dashboards_are_what_grafana_expects() {
    let titles: BTreeSet<String> = dashboards::all().iter().map(|d| d.title.to_owned()).collect();
    assert_eq!(titles.len(), 4);
    for dashboard in dashboards::all() {
        let json = dashboard.json();
        let panels = json["panels"].as_array().expect("panels");
        let ids: BTreeSet<_> = panels.iter().map(|p| p["id"].as_u64()).collect();
        assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
        let mut taken = BTreeSet::new();
        for p in panels {
            let at = |name: &str| p["gridPos"][name].as_u64().expect("a number");
            assert!(at("x") + at("w") <= 24, "{}", p["title"]);
            for cell in (at("y")..at("y") + at("h")).flat_map(|y| (at("x")..at("x") + at("w")).map(move |x| (x, y))) {
                assert!(taken.insert(cell), "{}: {} lies on another panel", dashboard.uid, p["title"]);
            }
        }
        for name in ["datasource", "cluster", "job"] {
            assert!(json["templating"]["list"].as_array().is_some_and(|l| l.iter().any(|v| v["name"] == name)), "{name}");
        }
    }
}

/// The series of a page for promtool: counters grow and what is available falls, by one a minute.
fn series_of(page: &str) -> Vec<Value> {
    let counters: BTreeSet<&str> = page.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    // On the example nobody borrows, and this family shows only who does.
    assert!(!page.contains("ipam_allocations_borrowed_per_node{"));
    let mut all = vec![scraped("up 1x400"), scraped("ipam_allocations_borrowed_per_node{node=\"node-a\"} 1x400")];
    for line in page.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let of = name.split('{').next().expect("a name");
        let grows = counters.contains(of) || of.ends_with("_bucket") || of.ends_with("_total");
        let mut values = value.to_owned();
        let _ = write!(
            values,
            "{}x400",
            match of {
                _ if grows => "+1",
                "ipam_ippool_available" => "-0.001",
                _ => "+0",
            }
        );
        all.push(scraped(&format!("{name} {values}")));
    }
    all
}

/// On a page of the operator on a real cluster.
#[tokio::test(flavor = "multi_thread")]
async fn i_every_query_of_the_dashboards_returns_data() {
    let installed = Installed::new(Group::V3, "examples/leaky-cluster.v3.yaml", &["--set", "config.gc.leakGracePeriod=2s"]).await;
    installed.pod("ipam-0").await;
    let mut running = installed.start("ipam-0", None).await;
    let address = running.address();
    let page = || get(&address, "/metrics").map_or_else(String::new, |(_, page)| page);
    until("an audit is over and something was released", async || {
        let page = page();
        [
            "ipam_findings_last_audit_timestamp_seconds ",
            "ipam_operator_pass_duration_seconds_count{phase=\"execute\"} ",
            "ipam_operator_clock_skew_seconds ",
        ]
        .iter()
        .all(|s| page.lines().any(|l| l.starts_with(s)))
    })
    .await;
    let page = page();
    running.stop("-TERM");
    let mut tests = Vec::new();
    let mut n = 0;
    for dashboard in dashboards::all() {
        let mut exprs = Vec::new();
        for (title, query) in queries(&dashboard.json()) {
            n += 1;
            let marks = title.starts_with("annotation");
            // A mark is there only when something changed.
            let query = if marks { query.replace(" > 0", " >= 0") } else { query };
            exprs.push(
                json!({ "expr": format!("count({query}) > bool 0"), "eval_time": "390m", "exp_samples": [{ "labels": "{}", "value": 1 }] }),
            );
        }
        tests.push(json!({ "name": dashboard.uid, "interval": "1m", "input_series": series_of(&page), "promql_expr_test": exprs }));
    }
    let said = tokio::task::spawn_blocking(move || run_tests(&tests)).await.expect("done");
    say(format_args!("{n} queries return data: {}", said.trim()));
}

/// Every alert has its section in the runbooks, and no section is of an alert that is gone.
#[test]
fn h_every_alert_has_a_runbook() {
    let text = std::fs::read_to_string(Path::new(&repo("docs/runbooks.md"))).expect("there");
    let sections: BTreeSet<&str> = text.lines().filter_map(|l| l.strip_prefix("## IPAM")).collect();
    let alerts: BTreeSet<&str> = ALERTS.iter().filter_map(|a| a.name.strip_prefix("IPAM")).collect();
    assert_eq!(sections, alerts);
    for part in text.split("\n## ").skip(1) {
        assert!(part.lines().count() >= 4, "says something: {part}");
    }
}
