//! The page of the admin port: every link leads somewhere, names are only names, ten thousand blocks are bearable, and a browser
//! shows it, light and dark. Screenshots go to `IPAM_SCREENSHOTS`, or to `ipam-screenshots` among the temporary files.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::process::Command;
use std::time::UNIX_EPOCH;

use chrono::TimeDelta;
use ipam::model::Config;
use ipam_operator::clocks::RealClocks;
use ipam_operator::leadership::Leadership;
use ipam_operator::ledger::Ledger;
use ipam_operator::plan::{Now, Policy, plan};
use ipam_operator::scene::Scene;
use ipam_operator::status::{Report, Status};
use ipam_operator::upkeep::Upkeep;
use ipam_tests::say;
use ipam_tests::synthetic::{BLOCK, leak_one_a_block, now, view};

use super::{Running, operator};

fn screenshots() -> PathBuf {
    let folder = std::env::var_os("IPAM_SCREENSHOTS").map_or_else(|| std::env::temp_dir().join("ipam-screenshots"), PathBuf::from);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Runs a headless Chromium on a page; answers with what it printed on both outputs.
fn browser(more: &[&str], url: &str) -> (String, String) {
    let profile = tempfile::tempdir().expect("a folder");
    let quiet = ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
    let done = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"])
        .args(quiet)
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(more)
        .arg(url)
        .output()
        .expect("Chromium runs (tests/tools/install)");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    (String::from_utf8_lossy(&done.stdout).into_owned(), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// A screenshot; the console must say nothing about the page.
fn shoot(url: &str, name: &str, dark: bool) -> Vec<u8> {
    let path = screenshots().join(name);
    let mut args = vec!["--window-size=1280,1400".to_owned(), format!("--screenshot={}", path.display())];
    if dark {
        args.push("--blink-settings=preferredColorScheme=0".into());
    }
    let (_, said) = browser(&args.iter().map(String::as_str).collect::<Vec<_>>(), url);
    assert!(!said.contains("CONSOLE"), "{said}");
    std::fs::read(path).expect("a screenshot")
}

/// The page itself, as the server sends it to a browser.
fn page(address: &str, path: &str) -> (String, String) {
    super::get_as(address, path, "text/html").expect("answers")
}

fn links(page: &str) -> BTreeSet<String> {
    page.split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter(|l| l.starts_with('/'))
        .map(|l| l.replace("&amp;", "&"))
        .collect()
}

/// The operator over the example after its first pass, and where its page is.
fn over_the_example() -> (Running, String) {
    let mut running = Running::start(&mut operator(&["run", "--load", "examples/leaky-cluster.yaml", "--listen", "127.0.0.1:0"]));
    let (_, admin) = (running.address(), running.address());
    running.says("address released");
    running.says("ready");
    (running, admin)
}

#[test]
fn the_page_over_the_example_leads_everywhere() {
    let (mut running, admin) = over_the_example();
    let (_, overview) = page(&admin, "/");
    for part in ["default-v4", "rack-east", "batch/leaked-2", "due in ", "free cooled addresses", "release address", "10.48.7.0/26"] {
        assert!(overview.contains(part), "{part}: {overview}");
    }
    let (mut seen, mut next) = (BTreeSet::new(), VecDeque::from(["/".to_owned()]));
    while let Some(path) = next.pop_front() {
        if seen.len() < 400 && seen.insert(path.clone()) {
            let (head, text) = page(&admin, &path);
            assert!(head.contains("200"), "{path}: {head}");
            next.extend(links(&text));
        }
    }
    for path in ["/blocks?pool=default-v4", "/explain?ip=10.48.7.10", "/leaks", "/findings", "/releases", "/config", "/style.css"] {
        assert!(seen.contains(path), "nothing leads to {path}: {seen:#?}");
    }
    running.stop("-TERM");
}

#[test]
fn the_page_sorts_searches_and_explains() {
    let (mut running, admin) = over_the_example();
    let order = |path: &str, names: &[&str]| {
        let (_, text) = page(&admin, path);
        let table = text.split("<tbody>").nth(1).expect("a table").to_owned();
        let at: Vec<usize> = names.iter().map(|n| table.find(&format!(">{n}<")).unwrap_or_else(|| panic!("{n}: {text}"))).collect();
        assert!(at.is_sorted(), "{path}: {at:?}");
    };
    order("/?sort=pool", &["default-v4", "default-v6", "rack-east", "tunnels"]);
    order("/?sort=-fill", &["rack-east", "services", "tunnels", "default-v6"]);
    order("/leaks?sort=-ip", &["10.48.46.137", "10.48.7.14", "10.48.7.10"]);
    let (head, _) = page(&admin, "/search?q=10.48.7.10");
    assert!(head.contains("303"), "who searches an address is led to it: {head}");
    let (_, found) = page(&admin, "/search?q=web-02");
    assert!(found.contains("10.48.7.0<") && found.contains("fd00:10:48::700<") && !found.contains("leaked-2"), "{found}");
    assert!(page(&admin, "/search?q=node-c").1.contains("aria-label=\"10.48.7.0/26 · node-c"), "a node leads to its blocks");
    let (_, explained) = page(&admin, "/explain?ip=10.48.7.10");
    for part in ["no such pod", "batch/leaked-2", "Would change it", "due in "] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    assert!(page(&admin, "/block?cidr=10.99.0.0/26").0.contains("404") && page(&admin, "/block?cidr=x").0.contains("404"));
    let (post, _) = super::ask(&admin, "POST", "/", "*/*", "localhost").expect("answers");
    assert!(post.contains("405"), "nothing can be changed: {post}");
    running.stop("-TERM");
}

/// A pod may be called anything, in somebody's attributes.
#[test]
fn l_names_are_only_names() {
    let evil = "<script>alert(1)</script>\"'&";
    let text = std::fs::read_to_string(super::repo("examples/leaky-cluster.yaml")).expect("there");
    let text = text.replace("pod: leaked-2", &format!("pod: '{}'", evil.replace('\'', "''")));
    assert!(text.contains("<script>"), "the example names this pod");
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    let mut running = Running::start(operator(&["run", "--listen", "127.0.0.1:0", "--load"]).arg(file.path()));
    let (_, admin) = (running.address(), running.address());
    running.says("ready");
    for path in [
        "/",
        "/leaks",
        "/explain?ip=10.48.7.10",
        "/search?q=script",
        "/search?q=%3Cscript%3E",
        "/?sort=%3Cscript%3E",
        "/blocks?pool=%22%3E%3Cscript%3E",
    ] {
        let (_, text) = page(&admin, path);
        assert!(!text.contains("<script>") && text.contains("<h1>"), "{path}: {text}");
    }
    assert!(page(&admin, "/leaks").1.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    let (headers, _) = super::ask(&admin, "GET", "/", "text/html", "127.0.0.1:9095").expect("answers");
    for (host, code) in
        [("evil.example", "403"), ("evil.example:9095", "403"), ("", "403"), ("[::1]:9095", "200"), ("localhost:9095", "200")]
    {
        let (head, _) = super::ask(&admin, "GET", "/explain?ip=10.48.7.10", "*/*", host).expect("answers");
        assert!(head.contains(code), "a page whose name points to us reads nothing: {host:?} {head}");
    }
    for header in ["content-security-policy: default-src 'self'", "x-content-type-options: nosniff"] {
        assert!(headers.to_lowercase().contains(header), "{headers}");
    }
    running.stop("-TERM");
}

#[test]
fn a_browser_shows_the_example_light_and_dark() {
    let (mut running, admin) = over_the_example();
    let url = |path: &str| format!("http://{admin}{path}");
    let (dom, _) = browser(&["--dump-dom"], &url("/leaks?sort=ip"));
    assert!(dom.contains("aria-sort=\"ascending\"") && dom.contains("batch/leaked-2"), "{dom}");
    let (light, dark) = (shoot(&url("/"), "overview.png", false), shoot(&url("/"), "overview-dark.png", true));
    assert!(light.len() > 50_000 && dark.len() > 50_000 && light != dark, "{} and {} bytes", light.len(), dark.len());
    for (path, name) in [
        ("/leaks", "leaks.png"),
        ("/explain?ip=10.48.7.10", "explain.png"),
        ("/blocks?as=table", "blocks.png"),
        ("/findings", "findings.png"),
    ] {
        assert!(shoot(&url(path), name, false).len() > 20_000, "{name}");
    }
    running.stop("-TERM");
}

/// Ten thousand blocks with 640 000 addresses, one in 64 leaked.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_blocks_are_bearable() {
    let clocks = RealClocks::starting_at(None);
    let (status, mut questions) = Status::new(clocks, Leadership::alone(clocks));
    status.set(Report { mode: "enforce", active: true, ..Report::default() });
    let answers = async {
        let n = 10_000 * BLOCK;
        let (mut view, mut ledger, policy) = (view(n), Ledger::default(), Policy::default());
        leak_one_a_block(&mut view, n);
        let dirty = view.take_dirty();
        plan(&view, &mut ledger, dirty, Now::both(now()), &policy, &Config::default());
        let (upkeep, recent) = (Upkeep::default(), VecDeque::new());
        while let Some(look) = questions.recv().await {
            let now = Now::both(now() + TimeDelta::seconds(30));
            look(&Scene { view: &view, ledger: &ledger, policy: &policy, now, upkeep: &upkeep, recent: &recent });
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let admin = listener.local_addr().expect("an address").to_string();
    let server = ipam_operator::admin::serve(listener, ipam_operator::admin::admin(status, false));
    let looks = tokio::task::spawn_blocking(move || {
        page(&admin, "/");
        for (path, most) in [
            ("/", 1_500_000),
            ("/blocks", 1_000_000),
            ("/blocks?part=4&sort=-used", 1_000_000),
            ("/blocks?as=table", 200_000),
            ("/leaks", 300_000),
            ("/search?q=ip-10-0000", 1_500_000),
        ] {
            let start = UNIX_EPOCH.elapsed().expect("a time");
            let (head, text) = page(&admin, path);
            let took = UNIX_EPOCH.elapsed().expect("a time") - start;
            say(format_args!("{path}: {} bytes in {took:?}", text.len()));
            assert!(head.contains("200") && text.len() < most, "{path}: {} bytes", text.len());
            assert!(took.as_secs() < 5, "{path} took {took:?}");
        }
        assert_eq!(page(&admin, "/blocks").1.matches("class=\"u").count(), 2500, "a quarter at a time");
        assert!(page(&admin, "/leaks").1.contains("1 of 50 (10000)"), "one a block");
        let (dom, _) = browser(&["--dump-dom"], &format!("http://{admin}/blocks"));
        assert!(dom.contains("1 of 4 (10000)"), "a browser gets it all");
        assert!(shoot(&format!("http://{admin}/blocks"), "ten-thousand-blocks.png", false).len() > 20_000);
    });
    tokio::select! {
        done = looks => done.expect("done"),
        ended = server => panic!("{ended:?}"),
        () = answers => panic!("nobody asks any more"),
    }
}
