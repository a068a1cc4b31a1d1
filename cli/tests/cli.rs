//! The built binary: what it prints, and its exit status.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ipam_datastore::dump::save;
use ipam_datastore::text::time;
use ipam_operator::config::OperatorConfig;
use ipam_operator::session::Session;

fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn ipamctl(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipamctl"));
    command.args(args).current_dir(repo("."));
    command
}

fn run(args: &[&str]) -> (String, String, Option<i32>) {
    text(&ipamctl(args).output().expect("runs"))
}

fn text(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

fn golden(name: &str, got: &str) {
    let path = repo("cli/tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, got).expect("written");
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(want == got, "{name} differs; BLESS=1 writes it anew, then read the difference:\n{got}");
}

const V1: &str = "examples/leaky-cluster.yaml";
const V3: &str = "examples/leaky-cluster.v3.yaml";
const NOW: [&str; 2] = ["--now", "2026-11-29T20:35:20Z"];

#[test]
fn chk_21_chk_22_check_names_what_is_wrong_and_exits_2() {
    for file in [V1, V3] {
        let (out, err, code) = run(&["check", "--from", file, NOW[0], NOW[1]]);
        assert_eq!((code, err.as_str()), (Some(2), ""), "{file}");
        golden("check.txt", &out);
        let (json, _, code) = run(&["check", "--from", file, NOW[0], NOW[1], "-o", "json"]);
        assert_eq!(code, Some(2));
        golden("check.json", &json);
    }
}

#[test]
fn chk_20_a_dump_without_faults_exits_0_and_one_that_cannot_be_read_1() {
    // What the operator leaves behind, with the faults and the held address taken out by hand.
    let clean = tempfile::NamedTempFile::new().expect("a file");
    let list: serde_json::Value = {
        let mut session = Session::load(&[repo(V1)], &[], &OperatorConfig::default(), &mut |_| {}).expect("loads");
        session.fast_forward(time(NOW[1]).expect("a time"));
        save(&session.dump, clean.path()).expect("saves");
        yaml_serde::from_str(&std::fs::read_to_string(clean.path()).expect("there")).expect("YAML")
    };
    let later = ["--now", "2026-11-29T21:00:00Z"];
    let (_, _, code) = run(&["check", "--from", clean.path().to_str().expect("text"), later[0], later[1]]);
    assert_eq!(code, Some(2), "the faults are still there");
    let items = list["items"].as_array().expect("items").iter().filter_map(by_hand).collect::<Vec<_>>();
    std::fs::write(clean.path(), serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).expect("written");
    let (out, err, code) = run(&["check", "--from", clean.path().to_str().expect("text"), later[0], later[1]]);
    assert_eq!((code, out.lines().last()), (Some(0), Some("Check complete; found 0 problems.")), "{out}{err}");

    let (out, err, code) = run(&["check", "--from", "/no/such/file"]);
    assert_eq!((out.as_str(), code, err.lines().count()), ("", Some(1), 1), "{err}");
    assert_eq!(run(&["check"]).2, Some(1), "a wrong command line found no problem");
    assert_eq!(run(&["--help"]).2, Some(0));
}

/// Takes a fault out of an object, or the object out.
fn by_hand(object: &serde_json::Value) -> Option<serde_json::Value> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let mut object = object.clone();
    if name.contains("dead000") || matches!(name, "node-c-10-48-60-0-26" | "node-b-10-48-61-0-26") {
        return None;
    }
    if name.ends_with("abc003") {
        object["spec"]["block"]["10.48.7.0/26"] = 1.into();
    }
    if name == "fd00-10-48--e80-122" {
        // fd00:10:48::e89, the held one.
        let index = object["spec"]["allocations"][9].as_u64().expect("allocated");
        object["spec"]["allocations"][9] = serde_json::Value::Null;
        object["spec"]["unallocated"].as_array_mut().expect("a list").push(9.into());
        object["spec"]["attributes"].as_array_mut().expect("a list").remove(index as usize);
        for a in object["spec"]["allocations"].as_array_mut().expect("a list") {
            if let Some(n) = a.as_u64().filter(|n| *n > index) {
                *a = (n - 1).into();
            }
        }
    }
    if name.ends_with("abc033") {
        object["spec"]["block"].as_object_mut().expect("an object").retain(|cidr, _| !cidr.contains(':'));
    }
    Some(object)
}

#[test]
fn shw_01_shw_02_shw_05_pools_and_blocks() {
    for file in [V1, V3] {
        let (out, _, code) = run(&["show", "--from", file]);
        assert_eq!(code, Some(0));
        golden("show.txt", &out);
        golden("show-blocks.txt", &run(&["show", "--from", file, "--show-blocks"]).0);
        golden("show.json", &run(&["show", "--from", file, "-o", "json"]).0);
    }
}

#[test]
fn shw_07_shw_08_shw_09_shw_10_one_address() {
    for (ip, name) in [("10.48.7.13", "show-ip-used.txt"), ("10.48.7.15", "show-ip-stopped-vm.txt")] {
        golden(name, &run(&["show", "--from", V1, "--ip", ip]).0);
    }
    assert_eq!(run(&["show", "--from", V1, "--ip", "10.48.50.9"]), ("10.48.50.9 is not assigned\n".into(), String::new(), Some(0)));
    assert_eq!(run(&["show", "--from", V1, "--ip", "192.0.2.1"]).0, "192.0.2.1 is not assigned\n");
    assert_eq!(run(&["show", "--from", V1, "--ip", "10.48.7.16"]).0, "10.48.7.16 is cooling down: released, and not yet free\n");
    let (_, err, code) = run(&["show", "--from", V1, "--ip", "10.240.0.300"]);
    assert!(code == Some(1) && err.contains("invalid IP address"), "{err}");
}

#[test]
fn standard_input_and_what_is_missing() {
    let dump_text = std::fs::read_to_string(repo(V1)).expect("there");
    let mut child = ipamctl(&["check", "--from", "-", NOW[0], NOW[1]])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    child.stdin.take().expect("piped").write_all(dump_text.as_bytes()).expect("written");
    let (out, _, code) = text(&child.wait_with_output().expect("ends"));
    assert_eq!(code, Some(2));
    golden("check.txt", &out);
    // Without pods nothing that hangs on them is called leaked, and a note says so.
    let dump = tempfile::NamedTempFile::new().expect("a file");
    let list: serde_json::Value = yaml_serde::from_str(&dump_text).expect("YAML");
    let items: Vec<_> = list["items"].as_array().expect("items").iter().filter(|o| o["kind"] != "Pod").collect();
    std::fs::write(dump.path(), serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).expect("written");
    let (out, err, _) = run(&["check", "--from", dump.path().to_str().expect("text"), NOW[0], NOW[1]]);
    assert!(err.contains("note: the dump has no Pod"), "{err}");
    assert!(!out.contains("no such pod") && out.contains("10.51.0.48"), "{out}");
    let (out, err, _) = run(&["check", "--from", dump.path().to_str().expect("text"), "--complete", "Pod", NOW[0], NOW[1]]);
    assert!(out.contains("no such pod") && !err.contains("no Pod:"), "{err}");
}

/// Every class of verdict of the example, and the reason that `check` gives for the same address.
#[test]
fn explain_says_why_and_agrees_with_check() {
    let (json, _, _) = run(&["check", "--from", V1, NOW[0], NOW[1], "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let mut classes = std::collections::BTreeMap::new();
    for a in report["allocations"].as_array().expect("a list").iter().filter(|a| a["verdict"] != "cooling") {
        classes.entry((a["why"].to_string(), a["when"].to_string())).or_insert(a);
    }
    assert!(classes.len() >= 15, "{}", classes.len());
    let mut texts = String::new();
    for a in classes.values() {
        let ip = a["ip"].as_str().expect("an address");
        let (json, err, code) = run(&["explain", ip, "--from", V1, "-o", "json"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{ip}");
        let explained: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        for field in ["verdict", "when", "owner", "node", "block", "pool"] {
            // An owner that is none of pod, VM and tunnel is nobody to the judge; `check` shows its stored type.
            assert!(
                explained[field] == a[field] || (field == "owner" && explained[field].is_null() && a["verdict"] == "unknown"),
                "{field} of {ip}: {json}"
            );
        }
        texts += &run(&["explain", ip, "--from", V1]).0;
        texts += "\n";
    }
    golden("explain.txt", &texts);
    assert_eq!(run(&["explain", "10.0.0.300", "--from", V1]).2, Some(1));
    assert!(run(&["explain", "192.0.2.1", "--from", V1]).0.contains("in no block"));
}
