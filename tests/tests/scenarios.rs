//! The scenarios of `tests/scenarios`, in memory and on a real API server, in both groups.

use std::path::PathBuf;

use ipam_datastore::Group;
use ipam_tests::control_plane::ControlPlane;
use ipam_tests::{repo, script};

/// Every scenario: its file with its number in it, and its text. `SCENARIOS` names another folder, such as `tests/cases`.
fn scenarios() -> Vec<(String, String)> {
    let folder = std::env::var("SCENARIOS").unwrap_or_else(|_| "tests/scenarios".into());
    let mut files: Vec<PathBuf> = std::fs::read_dir(repo(&folder)).expect("a folder").map(|e| e.expect("readable").path()).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        all.extend(text.split("\n====\n").enumerate().map(|(i, one)| (format!("{name} {}", i + 1), one.to_owned())));
    }
    assert!(!all.is_empty());
    all
}

/// Whether a scenario is only for a server.
fn needs_a_server(text: &str) -> bool {
    text.lines().any(|l| l.starts_with("meanwhile") || l.starts_with("without-marker"))
}

#[test]
fn every_scenario_holds_in_memory() {
    let wrong: Vec<String> = scenarios()
        .iter()
        .filter(|(_, text)| !needs_a_server(text))
        .filter_map(|(name, text)| Some(format!("{name}: {}", script::run(text).err()?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn on_a_server(group: Group) {
    let plane = ControlPlane::start(group).await;
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let (mut wrong, mut n) = (Vec::new(), 0);
    for (name, text) in scenarios().into_iter().filter(|(name, _)| name.contains(&only)) {
        n += 1;
        println!("{name}");
        if let Err(e) = script::on_server::run(&plane, &text).await {
            wrong.push(format!("{name}: {e}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {n}:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_holds_on_a_v1_server() {
    on_a_server(Group::V1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_holds_on_a_v3_server() {
    on_a_server(Group::V3).await;
}
