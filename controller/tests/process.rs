//! The built binary: fast-forward, and the real loop with its HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn operator(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipam-operator"));
    command.args(args).current_dir(repo("."));
    command
}

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
        assert_eq!(operator(args).output().expect("runs").status.code(), Some(1), "{args:?}");
    }
    let out = operator(&["run", "--load", "/no/such/file", "--fast-forward"]).output().expect("runs");
    let err = String::from_utf8(out.stderr).expect("text");
    assert_eq!((out.status.code(), err.lines().count()), (Some(1), 1), "{err}");
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn get(address: &str, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_owned(), body.to_owned()))
}

#[test]
fn the_real_loop_serves_and_saves_at_the_end() {
    let saved = tempfile::NamedTempFile::new().expect("a file");
    let path = saved.path().to_str().expect("text").to_owned();
    let child = operator(&RUN)
        .args(["--listen", "127.0.0.1:0", "--save", &path])
        .env("NO_COLOR", "1")
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut running = Running(child);
    let mut lines = BufReader::new(running.0.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let banner = lines.next().expect("a line");
    assert!(banner.contains("no cluster is being changed"), "{banner}");
    let line = lines.by_ref().find(|l| l.contains("address=")).expect("says where it serves");
    let address = line.split("address=").nth(1).and_then(|a| a.split_whitespace().next()).expect("an address").to_owned();
    // The first pass is over when the first release was told.
    let told = lines.by_ref().find(|l| l.contains("10.48.25.128")).expect("tells the first release");
    assert!(told.contains("simulated=true") && told.contains("release-address"), "{told}");
    let ready = (0..100_000).find_map(|_| get(&address, "/readyz").filter(|(head, _)| head.contains("200"))).expect("becomes ready");
    assert_eq!(ready.1, "ok\n");
    assert!(get(&address, "/healthz").is_some_and(|(head, body)| head.contains("200") && body == "ok\n"));
    let page = get(&address, "/metrics").expect("answers").1;
    assert!(page.contains("ipam_ippool_size{ippool=\"default-v4\"} 16384\n"), "{page}");
    assert!(page.contains("ipam_allocations_gc_reclamations{ippool=\"default-v4\",node=\"node-gone\"} 2\n"), "{page}");
    let stop = Command::new("kill").args(["-INT", &running.0.id().to_string()]).status().expect("runs");
    assert!(stop.success());
    assert!(running.0.wait().expect("ends").success(), "Ctrl-C is a clean end");
    let saved = std::fs::read_to_string(saved.path()).expect("there");
    assert!(saved.starts_with("# Simulated") && !saved.contains("10-48-51-0-26"), "node-drained's block is gone");
}
