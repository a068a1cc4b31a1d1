//! On a dump: fast-forward, and the real loop with its HTTP.

use super::{Running, get, operator, repo};

const RUN: [&str; 5] = ["run", "--load", "examples/leaky-cluster.yaml", "--now", "2026-11-29T20:35:20Z"];

fn golden(name: &str, got: &str) {
    let path = repo("controller/tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, got).expect("written");
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(want == got, "{name} differs; BLESS=1 writes it anew, then read the difference:\n{got}");
}

#[test]
fn d_36_fast_forward_prints_a_timeline_or_one_document() {
    let text = |extra: &[&str]| {
        let out = operator(&RUN).args(extra).output().expect("runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    };
    golden("timeline.txt", &text(&["--fast-forward"]));
    golden("timeline.json", &text(&["--fast-forward", "-o", "json"]));
    golden("timeline.audit.txt", &text(&["--fast-forward", "--mode", "audit"]));
}

#[test]
fn wrong_command_lines_and_input_exit_1_in_one_line() {
    for args in [&["run"][..], &["run", "--load", "x", "-o", "json"], &["run", "--load", "x", "--leak-grace-period", "soon"]] {
        assert_eq!(operator(args).env("KUBECONFIG", "/no/such/file").output().expect("runs").status.code(), Some(1), "{args:?}");
    }
    let out = operator(&["run", "--load", "/no/such/file", "--fast-forward"]).output().expect("runs");
    let err = String::from_utf8(out.stderr).expect("text");
    assert_eq!((out.status.code(), err.lines().count()), (Some(1), 1), "{err}");
}

#[test]
fn the_real_loop_serves_and_saves_at_the_end() {
    let saved = tempfile::NamedTempFile::new().expect("a file");
    let path = saved.path().to_str().expect("text").to_owned();
    let mut running = Running::start(operator(&RUN).args(["--listen", "127.0.0.1:0", "--save", &path]));
    running.says("no cluster is being changed");
    let address = running.address();
    // The first pass is over when the first release was told.
    let told = running.says("10.48.25.128");
    assert!(told.contains("simulated=true") && told.contains("release-address"), "{told}");
    let ready = (0..100_000).find_map(|_| get(&address, "/readyz").filter(|(head, _)| head.contains("200"))).expect("becomes ready");
    assert_eq!(ready.1, "ok\n");
    assert!(get(&address, "/healthz").is_some_and(|(head, body)| head.contains("200") && body == "ok\n"));
    let page = get(&address, "/metrics").expect("answers").1;
    assert!(page.contains("ipam_ippool_size{ippool=\"default-v4\"} 16384\n"), "{page}");
    assert!(page.contains("ipam_allocations_gc_reclamations{ippool=\"default-v4\",node=\"node-gone\"} 2\n"), "{page}");
    running.stop("-INT");
    let saved = std::fs::read_to_string(saved.path()).expect("there");
    assert!(saved.starts_with("# Simulated") && !saved.contains("10-48-51-0-26"), "node-drained's block is gone");
}
