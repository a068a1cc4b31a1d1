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
    let (address, admin) = (running.address(), running.address());
    // The first pass is over when the first release was told.
    let told = running.says("10.48.25.128");
    assert!(told.contains("simulated=true") && told.contains("release-address"), "{told}");
    let ready = (0..100_000).find_map(|_| get(&address, "/readyz").filter(|(head, _)| head.contains("200"))).expect("becomes ready");
    assert!(ready.1.starts_with("ok\n") && ready.1.contains("block ok\n") && ready.1.contains("DatastoreReady open\n"), "{}", ready.1);
    assert!(get(&address, "/healthz").is_some_and(|(head, body)| head.contains("200") && body == "ok\n"));
    let well = operator(&["healthcheck", "--url", &format!("http://{address}/readyz")]).output().expect("runs");
    assert!(well.status.success() && well.stdout.starts_with(b"ok\n"), "{well:?}");
    let lost = operator(&["healthcheck", "--url", &format!("http://{address}/nothing")]).output().expect("runs");
    assert!(lost.status.code() == Some(1) && String::from_utf8_lossy(&lost.stderr).contains("does not say that it is well"), "{lost:?}");
    let page = get(&address, "/metrics").expect("answers").1;
    assert!(page.contains("ipam_ippool_size{ippool=\"default-v4\"} 16384\n"), "{page}");
    for series in
        ["process_resident_memory_bytes ", "ipam_operator_pass_duration_seconds_count{phase=\"execute\"} ", "ipam_operator_build_info{"]
    {
        assert!(page.lines().any(|l| l.starts_with(series)), "{series}: {page}");
    }
    assert!(page.contains("ipam_allocations_gc_reclamations{ippool=\"default-v4\",node=\"node-gone\"} 2\n"), "{page}");
    let json = |path: &str| serde_json::from_str::<serde_json::Value>(&get(&admin, path).expect("answers").1).expect("JSON");
    let explained = json("/explain?ip=10.48.7.0");
    assert_eq!((&explained["ip"], &explained["block"]), (&"10.48.7.0".into(), &"10.48.7.0/26".into()), "{explained:#}");
    assert!(explained["rule"].is_string() && explained["evidence"].is_array() && explained["wouldChange"].is_string(), "{explained:#}");
    assert!(get(&admin, "/explain?ip=x").expect("answers").0.contains("400"));
    let status = json("/status");
    assert_eq!(
        (&status["mode"], &status["leader"], &status["brake"]["state"]),
        (&"enforce".into(), &true.into(), &"Clear".into()),
        "{status:#}"
    );
    assert!(
        json("/config").as_array().is_some_and(|keys| keys.iter().any(|k| k["key"] == "server.listen" && k["source"] == "flag --listen"))
    );
    running.stop("-INT");
    let saved = std::fs::read_to_string(saved.path()).expect("there");
    assert!(saved.starts_with("# Simulated") && !saved.contains("10-48-51-0-26"), "node-drained's block is gone");
}

#[test]
fn config_shows_every_value_with_its_source() {
    let file = config_file("gc: {auditInterval: 2h}\nmode: audit\n");
    let path = file.path().to_str().expect("text");
    let out =
        operator(&["config", "--config", path, "--brake-max-share", "0.7"]).env("IPAM_OPERATOR_PAUSED", "true").output().expect("runs");
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(out.status.success(), "{text}");
    let line = |key: &str| {
        text.lines().find(|l| l.split_whitespace().next() == Some(key)).map(|l| l.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(line("brake.maxShare").as_deref(), Some("0.7 flag --brake-max-share"));
    assert_eq!(line("paused").as_deref(), Some("true env IPAM_OPERATOR_PAUSED"));
    assert_eq!(line("gc.auditInterval"), Some(format!("2h file {path}")));
    assert_eq!(line("release.burst").as_deref(), Some("500 default"));
    for form in ["json", "yaml"] {
        let out = operator(&["config", "--config", path, "-o", form]).output().expect("runs");
        let list: serde_json::Value = yaml_serde::from_slice(&out.stdout).expect("a list");
        assert!(list.as_array().is_some_and(|l| l.iter().any(|k| k["key"] == "mode" && k["value"] == "audit")), "{form}");
    }
    let wrong = operator(&["config", "--config", path, "--mode", "watch"]).output().expect("runs");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("mode (flag --mode): \"watch\" is not one of enforce, audit"));
}

fn config_file(body: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("apiVersion: ipam-operator/v1\nkind: OperatorConfig\n{body}")).expect("written");
    file
}

#[test]
fn a_changed_file_is_obeyed_live_and_a_bad_one_is_not() {
    let file = config_file("paused: true\nlog: {format: json}\n");
    let path = file.path().to_str().expect("text").to_owned();
    let mut running = Running::start(operator(&RUN).args(["--listen", "127.0.0.1:0", "--config", &path]));
    let field =
        |line: &str, name: &str| serde_json::from_str::<serde_json::Value>(line).expect("a line of JSON")[name].as_str().map(str::to_owned);
    let address = field(&running.says("serving metrics"), "address").expect("an address");
    let write = |body: &str| drop(std::fs::write(&path, format!("apiVersion: ipam-operator/v1\nkind: OperatorConfig\n{body}")));
    let metric = |line: &str| (0..100_000).find(|_| get(&address, "/metrics").is_some_and(|(_, page)| page.lines().any(|l| l == line)));
    metric("ipam_operator_condition{condition=\"Paused\"} 1").expect("paused");
    metric("ipam_gc_leaks{ippool=\"default-v4\",state=\"paused\"} 2").expect("what would go waits");
    write("paused: maybe\nlog: {format: json}\n");
    running.says("the old values stay");
    metric("ipam_operator_config_last_reload_successful 0").expect("said");
    metric("ipam_operator_condition{condition=\"Paused\"} 1").expect("still paused");
    write("paused: false\nlog: {format: json}\n");
    let line = running.says("address released");
    // The audit trail: everything that a person needs to follow a release.
    for name in ["action", "ip", "handle", "block", "pool", "node", "owner", "why", "since", "evidence"] {
        assert!(field(&line, name).is_some_and(|v| !v.is_empty()), "{name} of {line}");
    }
    assert!(serde_json::from_str::<serde_json::Value>(&line).expect("JSON")["seq"].is_i64(), "{line}");
    metric("ipam_operator_config_last_reload_successful 1").expect("said");
    running.stop("-TERM");
}

/// Metrics and probes over TLS; a certificate that changes is served without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_tls_serves_and_reads_its_certificate_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = ["cert.pem", "key.pem"].map(|name| folder.path().join(name).display().to_string());
    let write = |name: &str| {
        let key = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        std::fs::write(&paths[1], key.signing_key.serialize_pem()).expect("written");
        std::fs::write(&paths[0], key.cert.pem()).expect("written");
    };
    write("first.test");
    let mut running =
        Running::start(operator(&RUN).args(["--listen", "127.0.0.1:0", "--tls-cert-file", &paths[0], "--tls-key-file", &paths[1]]));
    let address = running.address();
    let well = |more: &[&str]| {
        operator(&[&["healthcheck", "--url", &format!("https://{address}/readyz")][..], more].concat()).output().expect("runs")
    };
    assert!(well(&["--insecure"]).status.success() && !well(&[]).status.success(), "nobody vouches for this certificate");
    let mut config = kube::Config::new(format!("https://{address}").parse().expect("an address"));
    config.accept_invalid_certs = true;
    let client = kube::Client::try_from(config).expect("a client");
    let ask = async || client.request_text(axum::http::Request::get("/healthz").body(Vec::new()).expect("a request")).await;
    super::chart::until("it answers", async || ask().await.is_ok_and(|text| text == "ok\n")).await;
    assert!(get(&address, "/healthz").is_none_or(|(head, _)| !head.contains("200")), "not without TLS");
    write("second.test");
    running.says("the certificate was read again");
    running.stop("-TERM");
}
