//! The example cluster, in both API groups: who is released, when, and what stays.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use chrono::TimeDelta;
use ipam::audit::Snapshot;
use ipam::clock::Time;
use ipam_datastore::dump::save;
use ipam_datastore::text::{stamp, time};
use ipam_operator::config::OperatorConfig;
use ipam_operator::gauges::Gauges;
use ipam_operator::plan::{Mode, Now};
use ipam_operator::report::report;
use ipam_operator::session::Session;
use ipam_operator::timeline::Document;
use ipam_operator::told::Tally;
use ipam_tests::{data, repo};
use serde_json::{Value, json};

const GROUPS: [&str; 2] = ["examples/leaky-cluster.yaml", "examples/leaky-cluster.v3.yaml"];

fn start() -> Time {
    time("2026-11-29T20:35:20Z").expect("a time")
}

fn session(file: &str, audit: bool) -> Session {
    Session::load(
        &[repo(file)],
        &[],
        &OperatorConfig { mode: if audit { Mode::Audit } else { Mode::Enforce }, ..OperatorConfig::default() },
        &mut |_| {},
    )
    .expect("loads")
}

fn run(file: &str, audit: bool) -> (Session, Document) {
    let mut session = session(file, audit);
    let document = session.fast_forward(start());
    (session, document)
}

/// Events as (minutes since the start, action, subject).
fn told(document: &Document) -> BTreeSet<(i64, String, String)> {
    let subject =
        |e: &ipam_operator::timeline::Event| e.ip.map(|ip| ip.to_string()).or(e.block.clone()).or(e.node.clone()).unwrap_or_default();
    document.events.iter().map(|e| ((e.at - start()).num_minutes(), e.action.to_owned(), subject(e))).collect()
}

fn at(minute: i64, action: &str, subjects: &[&str]) -> impl Iterator<Item = (i64, String, String)> {
    subjects.iter().map(|s| (minute, action.to_owned(), (*s).to_owned())).collect::<Vec<_>>().into_iter()
}

/// Addresses by what `verdicts.json` says of them.
fn verdicts(verdict: &str, when: &str) -> Vec<String> {
    let rows = data("leaky-cluster.verdicts.json");
    let fits = |r: &&Value| r["verdict"] == verdict && r["when"] == when;
    rows.as_array().expect("rows").iter().filter(fits).map(|r| r["ip"].as_str().expect("an address").to_owned()).collect()
}

fn expected(released: impl Fn(&str) -> Vec<String>) -> BTreeSet<(i64, String, String)> {
    let mut want = BTreeSet::new();
    for (minute, when) in [(0, "now"), (15, "grace"), (15, "max(5 min, grace)"), (15, "with its node")] {
        want.extend(released(when).into_iter().map(|ip| (minute, "release-address".to_owned(), ip)));
    }
    want
}

#[test]
fn gcc_46_the_right_addresses_go_at_the_right_moments_in_both_groups() {
    for file in GROUPS {
        let (session, document) = run(file, false);
        let mut want = expected(|when| verdicts("leaked", when));
        assert_eq!(want.len(), 25);
        want.extend(at(0, "collect-cold", &["10.48.7.0/26", "10.48.39.192/26", "fd00:10:48::7c0/122"]));
        want.extend(at(0, "release-block", &["10.48.51.0/26"]));
        want.extend(at(0, "release-host", &["node-drained"]));
        want.extend(at(2, "collect-cold", &["10.48.25.128/26", "fd00:10:48::200/122"]));
        want.extend(at(15, "release-block", &["10.48.50.0/26", "10.48.52.0/26", "fd00:10:48::200/122"]));
        let cold = ["10.48.7.0/26", "10.48.25.128/26", "10.48.39.192/26", "10.48.42.0/26", "10.48.46.128/26", "10.51.0.48/29"];
        want.extend(at(17, "collect-cold", &cold));
        want.extend(at(17, "collect-cold", &["fd00:10:48::700/122", "fd00:10:48::7c0/122", "fd00:10:48::b80/122", "fd00:10:48::e80/122"]));
        want.extend(at(17, "release-block", &["10.48.25.128/26", "10.51.0.48/29"]));
        want.extend(at(17, "release-host", &["node-gone"]));
        assert_eq!(told(&document), want, "{file}");
        assert_eq!(document.events.len(), want.len(), "nothing twice");

        // What stays: by address, on each side of every limit.
        let held: Vec<_> = document.held.iter().map(|h| h.ip.to_string()).collect();
        assert_eq!(held, verdicts("leaked", "held"));
        let stays: BTreeMap<_, _> = [("in-use", 84), ("leaked", 1), ("unknown", 1)].into();
        assert_eq!((&document.summary.verdicts, document.summary.blocks), (&stays, 11), "{file}");
        let mut left = BTreeSet::new();
        for row in session.dump.store.rows::<ipam::model::BlockKind>() {
            left.extend(row.value.in_use().into_iter().map(|ip| ip.to_string()));
        }
        let kept = ["in use", "unknown"].into_iter().flat_map(|v| verdicts(v, "")).chain(verdicts("leaked", "held"));
        assert_eq!(left, kept.collect(), "{file}");
        assert_eq!(left.len(), 86);
        faults_only(&document, file);
    }
}

fn faults_only(document: &Document, file: &str) {
    let kinds: Vec<&str> = document.findings.iter().map(|f| f["kind"].as_str()).collect();
    assert_eq!(
        kinds,
        ["handle-count", "handle-orphan", "half-deleted", "affinity-pending-without-block", "affinity-without-block"],
        "{file}"
    );
}

#[test]
fn gcx_11_audit_mode_shows_the_same_addresses_and_writes_nothing() {
    for file in GROUPS {
        let (session, document) = run(file, true);
        let released = |want: &BTreeSet<(i64, String, String)>| {
            want.iter().filter(|(_, a, _)| a == "release-address").cloned().collect::<BTreeSet<_>>()
        };
        assert_eq!(released(&told(&document)), expected(|when| verdicts("leaked", when)), "{file}");
        assert_eq!(document.events.iter().filter(|e| e.action == "release-address").count(), 25, "each once");
        assert!(session.dump.store.only_read(), "{:?}", session.dump.store.requests());
        faults_only(&document, file);
        let out = tempfile::NamedTempFile::new().expect("a file");
        save(&session.dump, out.path()).expect("saves");
        let (saved, loaded) = (std::fs::read_to_string(out.path()).expect("there"), std::fs::read_to_string(repo(file)).expect("there"));
        assert_eq!(saved.split_once('\n').map(|(_, rest)| rest), Some(loaded.as_str()), "the output is the input");
    }
}

#[test]
fn d_36_the_same_output_twice_byte_for_byte() {
    let once = |file| {
        let (_, document) = run(file, false);
        (document.text("x", start()), serde_json::to_string(&document).expect("JSON"))
    };
    let (text, json) = once(GROUPS[0]);
    assert_eq!((text.clone(), json.clone()), once(GROUPS[0]));
    assert_eq!((text, json), once(GROUPS[1]), "the groups tell the same");
}

#[test]
fn d_45_what_is_saved_checks_clean_once_the_faults_are_out() {
    for file in GROUPS {
        let (session, document) = run(file, false);
        let out = tempfile::NamedTempFile::new().expect("a file");
        save(&session.dump, out.path()).expect("saves");
        let saved = std::fs::read_to_string(out.path()).expect("there");
        assert!(saved.starts_with("# Simulated"), "the first line says what it is");
        // Rows that changed keep the identity and revision of the cluster they came from.
        let revision = |text: &str, name: &str| {
            let list: Value = yaml_serde::from_str(text).expect("YAML");
            let item = list["items"].as_array().and_then(|i| i.iter().find(|o| o["metadata"]["name"] == name)).cloned();
            item.map(|o| (o["metadata"]["resourceVersion"].clone(), o["metadata"]["uid"].clone(), o["spec"]["sequenceNumber"].clone()))
        };
        let loaded = std::fs::read_to_string(repo(file)).expect("there");
        let (before, after) = (revision(&loaded, "10-48-46-128-26").expect("there"), revision(&saved, "10-48-46-128-26").expect("there"));
        assert_eq!((&before.0, &before.1), (&after.0, &after.1));
        assert_eq!(after.2.as_i64(), before.2.as_i64().map(|n| n + 2), "one release, one collection");
        assert!(revision(&saved, "10-48-50-0-26").is_none() && revision(&loaded, "10-48-50-0-26").is_some());

        // Loaded again: the same state, the same faults, the held address, and nothing more to do.
        let mut again = Session::load(&[out.path().to_path_buf()], &[], &OperatorConfig::default(), &mut |_| {}).expect("loads");
        let later = again.fast_forward(start() + TimeDelta::hours(1));
        assert_eq!((later.events.len(), &later.findings, &later.summary.verdicts), (0, &document.findings, &document.summary.verdicts));
    }
}

fn golden(name: &str, text: &str) {
    let path = repo("tests/data").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).expect("written");
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(want == text, "{name} differs; BLESS=1 writes it anew, then read the difference");
}

#[test]
fn met_02_met_06_the_whole_page_of_the_example_at_the_start_and_at_the_end() {
    for file in GROUPS {
        let mut session = session(file, true);
        session.fast_forward(start());
        let page = ipam_metrics::Page::default();
        page.publish(report(&session.operator.view, &mut session.operator.ledger));
        golden("leaky-cluster.metrics.start.txt", &page.text());

        let (mut session, _) = run(file, false);
        page.publish(report(&session.operator.view, &mut session.operator.ledger));
        golden("leaky-cluster.metrics.end.txt", &page.text());
    }
}

/// The further series of the cluster, at the start in audit mode and at the end: the same in both groups.
#[test]
fn b_the_further_series_of_the_example_at_the_start_and_at_the_end() {
    for file in GROUPS {
        for (audit, name) in [(true, "leaky-cluster.further.start.txt"), (false, "leaky-cluster.further.end.txt")] {
            let (mut session, _) = run(file, audit);
            session.operator.upkeep.observe(&session_snapshot(&session), &session.operator.view, Now::both(start()));
            let policy = session.operator.policy();
            let gauges = Gauges::new(&session.operator.view, &session.operator.ledger, &policy, Now::both(start() + TimeDelta::hours(1)));
            let mut samples = gauges.samples(&session.operator.view.gate().expect("open"));
            samples.extend(Tally::of_an_active_one().samples(&session.operator.ledger.done, true));
            golden(name, &samples.text());
            // Never by address, handle, pod or node.
            let pools = session.operator.view.pools().count();
            let ours = samples.text().lines().filter(|l| !l.starts_with('#') && !l.starts_with("ipam_operator")).count();
            assert!(ours <= 25 * pools + 400, "{ours} series of {pools} pools");
        }
    }
}

fn session_snapshot(session: &Session) -> Snapshot {
    futures::executor::block_on(Snapshot::read(&session.dump.store, session.dump.bad.clone(), true)).expect("memory can be read")
}

#[test]
fn met_02_the_start_page_agrees_with_the_reference_where_decisions_do_not_differ() {
    // The reference's page is of 75 s with a grace of 20 s; sizes, reserved counts and blocks that nothing had touched
    // by then must be the same, line for line.
    let ours = std::fs::read_to_string(repo("tests/data/leaky-cluster.metrics.end.txt")).expect("there");
    let theirs = std::fs::read_to_string(repo("tests/data/leaky-cluster.reference-metrics.txt")).expect("there");
    let pick = |text: &str, family: &str| text.lines().filter(|l| l.starts_with(family)).map(str::to_owned).collect::<BTreeSet<_>>();
    for family in ["ipam_ippool_size", "ipam_ippool_reserved", "ipam_allocations_borrowed{", "ipam_allocations_borrowed_per_node"] {
        assert_eq!(pick(&ours, family), pick(&theirs, family));
    }
    let live = |text: &str| pick(text, "ipam_blocks{").into_iter().filter(|l| !l.contains("node-gone")).collect::<BTreeSet<_>>();
    assert_eq!(live(&ours), live(&theirs));
    let families = |text: &str| text.lines().filter_map(|l| l.strip_prefix("# TYPE ")).map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(families(&ours), families(&theirs), "names and types");
}

#[test]
fn utl_01_utilization_is_the_reference_s_with_cooling_apart() {
    for file in GROUPS {
        let source = ipamctl::args::Source { from: vec![repo(file)], ..Default::default() };
        let loaded = ipamctl::snapshot::loaded(&source, &[]).expect("loads");
        let mut ours: Value =
            serde_json::from_str(&serde_json::to_string(&ipamctl::show::utilization(&loaded)).expect("JSON")).expect("JSON");
        // The reference counts cooling addresses as in use (D-1).
        let mut fold = |v: &mut Value| {
            let cooling = v["cooling"].as_u64().expect("a number");
            v["inUse"] = json!(v["inUse"].as_u64().expect("a number") + cooling);
            v.as_object_mut().expect("an object").remove("cooling");
        };
        for pool in ours.as_array_mut().expect("pools") {
            fold(pool);
            pool["blocks"].as_array_mut().into_iter().flatten().for_each(&mut fold);
        }
        assert_eq!(ours, data("leaky-cluster.utilization.json"), "{file}");
    }
}

#[test]
fn chk_20_check_agrees_with_every_row_of_the_verdicts() {
    for file in GROUPS {
        let source = ipamctl::args::Source { from: vec![repo(file)], ..Default::default() };
        let loaded = ipamctl::snapshot::loaded(&source, &[]).expect("loads");
        let report = ipamctl::check::check(&loaded, &ipam_accounting::schedule::Limits::default(), start());
        let rows = data("leaky-cluster.verdicts.json");
        let rows = rows.as_array().expect("rows");
        assert_eq!(report.allocations.len(), rows.len());
        for row in rows {
            let ours = report.allocations.iter().find(|a| json!(a.ip.to_string()) == row["ip"]).expect("listed");
            let verdict = row["verdict"].as_str().expect("a word").replace(' ', "-");
            let when = match row["when"].as_str().expect("a word") {
                "" => None,
                "max(5 min, grace)" => Some("vm-grace"),
                "with its node" => Some("with-node"),
                other => Some(other),
            };
            assert_eq!((ours.verdict, ours.when), (verdict.as_str(), when), "{file} {}", ours.ip);
            assert_eq!(json!(ours.handle), row["handle"], "{file} {}", ours.ip);
            assert_eq!(json!(ours.attributes), row["owner"], "{file} {}", ours.ip);
        }
        assert!(report.problems);
    }
}

#[test]
fn the_project_s_copies_equal_the_originals() {
    for (ours, original) in [
        ("examples/leaky-cluster.yaml", "data/leaky-cluster.v1.yaml"),
        ("examples/leaky-cluster.v3.yaml", "data/leaky-cluster.v3.yaml"),
        ("tests/data/leaky-cluster.verdicts.json", "data/leaky-cluster.verdicts.json"),
        ("tests/data/block-traces.json", "vectors/block-traces.json"),
        ("tests/data/names.json", "vectors/names.json"),
        ("tests/data/reserved-counts.json", "vectors/reserved-counts.json"),
    ] {
        let original: PathBuf = repo("../shared").join(original);
        if original.exists() {
            assert!(std::fs::read(repo(ours)).expect("there") == std::fs::read(original).expect("there"), "{ours}");
        }
    }
    assert_eq!(stamp(start()), "2026-11-29T20:35:20Z");
}
