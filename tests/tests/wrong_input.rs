//! Input that is wrong (D-35, D-37, D-38): unreadable files are refused in one line; single bad objects are findings,
//! and nothing is done that might hang on them.

use std::io::Write as _;
use std::path::PathBuf;

use ipam_datastore::text::time;
use ipam_operator::config::OperatorConfig;
use ipam_operator::session::Session;
use ipam_operator::timeline::Document;
use tempfile::NamedTempFile;

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn load(texts: &[&str]) -> Result<Session, String> {
    let files: Vec<NamedTempFile> = texts.iter().map(|t| file(t)).collect();
    let paths: Vec<PathBuf> = files.iter().map(|f| f.path().to_path_buf()).collect();
    Session::load(&paths, &[], &OperatorConfig::default(), &mut |_| {}).map_err(|e| e.to_string())
}

fn run(texts: &[&str]) -> Document {
    load(texts).expect("loads").fast_forward(time("2026-11-29T20:00:00Z").expect("a time"))
}

fn released(document: &Document) -> Vec<String> {
    document.events.iter().filter_map(|e| Some(e.ip?.to_string())).collect()
}

fn kinds(document: &Document) -> Vec<(&str, &str)> {
    document.findings.iter().map(|f| (f["kind"].as_str(), f["object"].as_str())).collect()
}

/// A block of four addresses whose first two are of pods that are gone, of a node that is gone.
fn block(cidr: &str, handles: [&str; 2], change: &[(&str, &str)]) -> String {
    let name = cidr.replace(['.', '/', ':'], "-");
    let mut text = format!(
        "- apiVersion: crd.projectcalico.org/v1
  kind: IPAMBlock
  metadata:
    name: {name}
    resourceVersion: \"5\"
    uid: u-{name}
  spec:
    affinity: host:gone
    allocations: [0, 1, null, null]
    attributes:
    - handle_id: {}
      secondary: {{namespace: ns, pod: p0, node: gone}}
    - handle_id: {}
      secondary: {{namespace: ns, pod: p1, node: gone}}
    cidr: {cidr}
    deleted: false
    sequenceNumber: 9
    sequenceNumberForAllocation: {{\"0\": 7, \"1\": 8}}
    strictAffinity: false
    unallocated: [2, 3]
",
        handles[0], handles[1]
    );
    for (from, to) in change {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

/// Everything that makes the pods and the node certainly gone.
const WORLD: &str = "- {apiVersion: v1, kind: Node, metadata: {name: alive}}
- {apiVersion: v1, kind: Pod, metadata: {namespace: a, name: x}, spec: {nodeName: alive}, status: {podIP: 10.9.9.9}}
- {apiVersion: v1, kind: Pod, metadata: {namespace: b, name: x}, spec: {nodeName: alive}, status: {podIP: 10.9.9.8}}
";

fn handle(id: &str, cidr: &str) -> String {
    format!(
        "- {{apiVersion: crd.projectcalico.org/v1, kind: IPAMHandle, metadata: {{name: {id}}}, spec: {{handleID: {id}, block: {{{cidr}: 1}}, deleted: false}}}}\n"
    )
}

fn list(items: &[&str]) -> String {
    format!("apiVersion: v1\nitems:\n{}kind: List\n", items.concat())
}

#[test]
fn a_good_dump_releases_what_is_gone() {
    let document = run(&[&list(&[WORLD, &block("10.0.0.0/30", ["h0", "h1"], &[])])]);
    assert_eq!(released(&document), ["10.0.0.0", "10.0.0.1"]);
    assert_eq!(document.summary.actions["release-host"], 1);
}

#[test]
fn d_37_files_that_cannot_be_read_are_refused_in_one_line() {
    let whole = list(&[WORLD, &block("10.0.0.0/30", ["h0", "h1"], &[])]);
    let rows: [(&str, String); 9] = [
        ("truncated", whole.replace("kind: List\n", "")),
        ("is not a Kubernetes object", "just some words\n".into()),
        ("is empty", String::new()),
        ("line", "items:\n- a: [1, 2\nkind: List\n".into()),
        ("did not find", "\u{1}\u{2}: {{{".into()),
        ("no kind", "items:\n- {apiVersion: v1, metadata: {name: x}}\nkind: List\n".into()),
        ("EOF", "{\"items\": [{\"apiVersion\": \"v1\"".into()),
        (
            "a cluster uses one of the two",
            whole.replace(
                "kind: List\n",
                "- {apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: p}, spec: {cidr: 10.0.0.0/8}}\nkind: List\n",
            ),
        ),
        ("invalid", "apiVersion: v1\nkind: Pod\n\tmetadata: {}\n".into()),
    ];
    for (word, text) in rows {
        let Err(error) = load(&[&text]) else { panic!("{word}: loaded") };
        assert!(error.lines().count() == 1, "{error}");
        if !matches!(word, "did not find" | "invalid") {
            assert!(error.contains(word), "{word}: {error}");
        }
    }
    let missing = Session::load(&["/no/such/file".into()], &[], &OperatorConfig::default(), &mut |_| {});
    assert!(missing.is_err_and(|e| e.to_string().contains("/no/such/file")));
}

#[test]
fn d_38_each_kind_of_bad_block_is_a_finding_and_holds_its_handles_and_its_node() {
    let rows: [(&[(&str, &str)], &str); 13] = [
        (&[("[0, 1, null, null]", "[0, 9, null, null]")], "attribute 9"),
        (&[("[0, 1, null, null]", "[0, -1, null, null]")], "negative"),
        (&[("unallocated: [2, 3]", "unallocated: [2, 2, 3]")], "ordinal 2 twice"),
        (&[("unallocated: [2, 3]", "unallocated: [1, 2, 3]")], "both allocated"),
        (&[("[0, 1, null, null]", "[0, 1, null, null, null]")], "5 entries"),
        (&[("[0, 1, null, null]", "[0]")], "1 entries"),
        (&[("cidr: 10.0.0.0/30", "cidr: rubbish")], "spec.cidr"),
        (&[("sequenceNumber: 9\n", "sequenceNumber: -9\n")], "spec.sequenceNumber: -9 is negative"),
        (&[("sequenceNumber: 9\n", "sequenceNumber: 9223372036854775808\n")], "2^63"),
        (&[("sequenceNumber: 9\n", "sequenceNumber: 99999999999999999999999999999999\n")], "spec.sequenceNumber"),
        (&[("\"0\": 7", "\"0\": 7.5")], "sequenceNumberForAllocation[0]"),
        (&[("  spec:\n", "  specs:\n")], "spec: is missing"),
        (&[("handle_id: h0", "handle_id: [h0]")], "handle_id"),
    ];
    for (change, word) in rows {
        // Another block holds the other address of handle h1, and a third one nothing of it.
        let bad = block("10.0.0.0/30", ["h0", "h1"], change);
        let other = block("10.0.0.4/30", ["h1", "h2"], &[("host:gone", "host:elsewhere")]);
        let free = block("10.0.0.8/30", ["h3", "h4"], &[("host:gone", "host:elsewhere"), ("node: gone", "node: elsewhere")]);
        let handles = ["h0", "h1", "h2"].map(|h| handle(h, "10.0.0.0/30"));
        let document = run(&[&list(&[WORLD, &bad, &other, &free, &handles[1], &handle("h3", "10.0.0.8/30")])]);
        let found = document.findings.iter().find(|f| f["kind"] == "bad-object").unwrap_or_else(|| panic!("{word}: no finding"));
        assert!(found["object"] == "IPAMBlock/10-0-0-0-30" && found["message"].contains(word), "{word}: {found:?}");
        let gone = released(&document);
        assert!(!gone.iter().any(|ip| ip.starts_with("10.0.0.0") || ip == "10.0.0.1"), "{word}: nothing of the bad block");
        assert!(!gone.contains(&"10.0.0.4".to_owned()), "{word}: h1 may have an address in the bad block");
        let understood = !word.contains("spec.cidr") && !word.contains("spec: is") && !word.contains("handle_id");
        if understood {
            assert!(gone.contains(&"10.0.0.8".to_owned()) && gone.contains(&"10.0.0.9".to_owned()), "{word}: the rest works, {gone:?}");
        }
        assert!(
            !document.events.iter().any(|e| e.node.as_deref() == Some("gone") && matches!(e.action, "release-block" | "release-host")),
            "{word}: its node stays"
        );
    }
}

#[test]
fn d_38_bad_rows_hold_what_hangs_on_them() {
    let good = block("10.0.0.0/30", ["h0", "h1"], &[]);
    // A handle that is not understood.
    let bad_handle = "- {apiVersion: crd.projectcalico.org/v1, kind: IPAMHandle, metadata: {name: h0}, spec: {handleID: h0, block: {10.0.0.0/30: many}}}\n";
    let document = run(&[&list(&[WORLD, &good, bad_handle])]);
    assert_eq!(released(&document), ["10.0.0.1"]);
    assert_eq!(document.held.iter().map(|h| h.ip.to_string()).collect::<Vec<_>>(), ["10.0.0.0"]);
    // One without a name holds all.
    let nameless = "- {apiVersion: crd.projectcalico.org/v1, kind: IPAMHandle, metadata: {}, spec: {block: {}}}\n";
    assert!(released(&run(&[&list(&[WORLD, &good, nameless])])).is_empty());
    // An affinity that is not understood: addresses go, its block and its node do not.
    let bad_row = "- {apiVersion: crd.projectcalico.org/v1, kind: BlockAffinity, metadata: {name: gone-10-0-0-0-30}, spec: {cidr: 10.0.0.0/30, node: gone, state: 7, deleted: \"false\"}}\n";
    let document = run(&[&list(&[WORLD, &good, bad_row])]);
    assert_eq!(released(&document).len(), 2);
    assert!(!document.summary.actions.contains_key("release-block") && !document.summary.actions.contains_key("release-host"));
    // A pod that is not understood vouches for its name; one without a name for all.
    let bad_pod = "- {apiVersion: v1, kind: Pod, metadata: {namespace: ns, name: p0}, spec: {nodeName: [1]}}\n";
    let document = run(&[&list(&[WORLD, &good, bad_pod])]);
    assert_eq!((released(&document), kinds(&document).contains(&("bad-object", "Pod/ns/p0"))), (vec!["10.0.0.1".into()], true));
    let nameless = "- {apiVersion: v1, kind: Pod, metadata: {namespace: ns}, spec: {}}\n";
    assert!(released(&run(&[&list(&[WORLD, &good, nameless])])).is_empty());
    // A node that is not understood may exist.
    let bad_node = "- {apiVersion: v1, kind: Node, metadata: {name: gone, labels: 7}}\n";
    let document = run(&[&list(&[WORLD, &good, bad_node])]);
    assert!(document.events.iter().all(|e| e.action == "release-address" || e.action == "collect-cold"));
    assert!(
        document.events.iter().filter(|e| e.action == "release-address").all(|e| e.at > time("2026-11-29T20:14:59Z").expect("a time")),
        "only after the grace"
    );
    // A configuration, or a cluster information, that is not understood: nothing is decided.
    for row in [
        "kind: IPAMConfig, metadata: {name: default}, spec: {strictAffinity: perhaps}",
        "kind: ClusterInformation, metadata: {name: default}, spec: {datastoreReady: maybe}",
    ] {
        let document = run(&[&list(&[WORLD, &good, &format!("- {{apiVersion: crd.projectcalico.org/v1, {row}}}\n")])]);
        assert!(document.events.is_empty() && document.summary.not_ready.is_some(), "{row}");
    }
}

#[test]
fn d_38_the_same_object_twice() {
    let good = block("10.0.0.0/30", ["h0", "h1"], &[]);
    let session = load(&[&list(&[WORLD, &good]), &list(&[&good, WORLD])]).expect("loads");
    assert!(session.dump.notes.iter().any(|n| n.starts_with("4 objects are in the dump more than once")), "{:?}", session.dump.notes);
    assert!(session.dump.bad.is_empty());
    // Different content: not understood.
    let other = block("10.0.0.0/30", ["h0", "h1"], &[("resourceVersion: \"5\"", "resourceVersion: \"6\"")]);
    let document = run(&[&list(&[WORLD, &good]), &list(&[&other])]);
    assert!(released(&document).is_empty() && kinds(&document).contains(&("bad-object", "IPAMBlock/10-0-0-0-30")));
    let pod = "- {apiVersion: v1, kind: Pod, metadata: {namespace: ns, name: p0}, status: {phase: Failed}}\n";
    let again = pod.replace("Failed", "Running");
    let document = run(&[&list(&[WORLD, &good, pod, &again])]);
    assert_eq!(released(&document), ["10.0.0.1"]);
}

#[test]
fn d_35_d_51_what_a_dump_does_not_have_proves_nothing() {
    let good = block("10.0.0.0/30", ["h0", "h1"], &[]);
    let node = WORLD.lines().next().map(|l| format!("{l}\n")).expect("a line");
    let pods: String = WORLD.lines().skip(1).map(|l| format!("{l}\n")).collect();
    assert!(released(&run(&[&list(&[&node, &good])])).is_empty(), "no pods");
    let document = run(&[&list(&[&pods, &good])]);
    assert_eq!(released(&document).len(), 2, "no nodes: the pods are gone all the same, but nothing goes at once");
    assert!(!document.summary.actions.contains_key("release-host"));
    let one_namespace = WORLD.lines().take(2).map(|l| format!("{l}\n")).collect::<String>();
    assert!(released(&run(&[&list(&[&one_namespace, &good])])).is_empty(), "pods of one namespace say nothing about others");
    let files = [file(&list(&[&node, &good]))];
    let complete = ["Pod".parse().expect("a kind")];
    let mut session = Session::load(&[files[0].path().to_path_buf()], &complete, &OperatorConfig::default(), &mut |_| {}).expect("loads");
    let document = session.fast_forward(time("2026-11-29T20:00:00Z").expect("a time"));
    assert_eq!(released(&document).len(), 2, "--complete Pod");
}

#[test]
fn documents_json_and_indented_lists_give_the_same() {
    let text = list(&[WORLD, &block("10.0.0.0/30", ["h0", "h1"], &[])]);
    let value: serde_json::Value = yaml_serde::from_str(&text).expect("YAML");
    let want = run(&[&text]).text("x", time("2026-11-29T20:00:00Z").expect("a time"));
    let items = value["items"].as_array().expect("items");
    let documents: String = items.iter().map(|i| format!("---\n{}", yaml_serde::to_string(i).expect("YAML"))).collect();
    let indented = text
        .lines()
        .map(|l| if l.starts_with("- ") || l.starts_with("  ") { format!("  {l}\n") } else { format!("{l}\n") })
        .collect::<String>();
    let flow = format!("{{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": {}}}", value["items"]);
    for other in [serde_json::to_string_pretty(&value).expect("JSON"), documents, indented, flow.clone(), format!("# a comment\n{flow}")] {
        assert_eq!(run(&[&other]).text("x", time("2026-11-29T20:00:00Z").expect("a time")), want, "{other}");
    }
}

#[test]
fn d_6_the_controllers_configuration_of_the_dump_sets_the_grace() {
    let kcc = |node: &str| {
        format!(
            "- {{apiVersion: crd.projectcalico.org/v1, kind: KubeControllersConfiguration, metadata: {{name: default}}, spec: {{controllers: {{node: {node}}}}}}}\n"
        )
    };
    let grace = |row: &str| {
        let session = load(&[&list(&[WORLD, row])]).expect("loads");
        session.operator.policy().limits.grace.num_seconds()
    };
    assert_eq!(
        (grace(""), grace(&kcc("{leakGracePeriod: 2m}")), grace(&kcc("{}")), grace(&kcc("{leakGracePeriod: soon}"))),
        (900, 120, 0, 0)
    );
}
