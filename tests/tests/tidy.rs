//! The invariants of ARCHITECTURE.md that a machine can hold.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ipam_tests::repo;

const CRATES: [&str; 7] = ["accounting", "ipam", "datastore", "metrics", "controller", "cli", "tests"];

fn sources(below: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![repo(below)];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).expect("readable").map(|e| e.expect("readable").path()) {
            if entry.is_dir() {
                open.push(entry);
            } else if entry.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&entry).expect("text");
                found.push((entry, text));
            }
        }
    }
    assert!(!found.is_empty(), "{below} has no sources");
    found
}

/// Names of the dependencies of a crate, without those of its tests.
fn dependencies(of: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(repo(of).join("Cargo.toml")).expect("there");
    let section = text.split("[dependencies]").nth(1).expect("a section").split("\n[").next().expect("text").to_owned();
    section.lines().filter_map(|l| l.split(['.', ' ', '=']).next()).filter(|n| !n.is_empty()).map(Into::into).collect()
}

#[test]
fn dependencies_point_one_way() {
    let allowed: [(&str, &[&str]); 6] = [
        ("accounting", &[]),
        ("ipam", &["ipam-accounting"]),
        ("datastore", &["ipam", "ipam-accounting"]),
        ("metrics", &[]),
        ("controller", &["ipam", "ipam-accounting", "ipam-datastore", "ipam-metrics"]),
        ("cli", &["ipam", "ipam-accounting", "ipam-datastore"]),
    ];
    for (of, want) in allowed {
        let ours: BTreeSet<String> = dependencies(of).into_iter().filter(|d| d.starts_with("ipam")).collect();
        assert_eq!(ours, want.iter().map(|w| (*w).to_owned()).collect(), "{of}");
    }
    for (of, never) in [
        ("accounting", &["tokio", "futures", "serde", "kube"][..]),
        ("ipam", &["tokio", "serde", "serde_json", "kube"]),
        ("cli", &["ipam-operator", "axum"]),
    ] {
        let has = dependencies(of);
        assert!(never.iter().all(|n| !has.contains(*n)), "{of}: {has:?}");
    }
}

fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

#[test]
fn only_datastore_knows_kubernetes() {
    for of in ["accounting", "ipam", "metrics"] {
        for (file, text) in sources(&format!("{of}/src")) {
            for word in ["projectcalico.org", "apiVersion", "kube::", "k8s_openapi", "kubevirt.io"] {
                assert!(!without_tests(&text).contains(word), "{}: {word}", file.display());
            }
        }
    }
}

#[test]
fn two_lines_ask_the_system_for_the_time_and_one_waits() {
    let mut asks = Vec::new();
    for of in CRATES {
        for (file, text) in sources(of) {
            for (n, line) in text
                .lines()
                .enumerate()
                .filter(|(_, l)| l.contains("expect(clippy::disallowed_methods") && !l.contains("in no particular order"))
            {
                asks.push(format!("{}:{} {}", file.file_name().unwrap_or_default().display(), n + 1, line.trim()));
            }
        }
    }
    asks.retain(|a| !a.contains("tidy.rs"));
    assert_eq!(asks.len(), 3, "{asks:#?}");
}

#[test]
fn the_planner_and_what_it_uses_are_no_futures() {
    for (file, text) in sources("accounting/src").into_iter().chain(sources("controller/src/plan")) {
        assert!(!text.contains("async fn") && !text.contains(".await"), "{}", file.display());
    }
}

#[test]
fn anyhow_only_in_main() {
    for of in CRATES {
        for (file, text) in sources(of) {
            let main = file.file_name().is_some_and(|f| f == "main.rs" || f == "tidy.rs");
            assert!(main || !text.contains("anyhow"), "{}", file.display());
        }
    }
}

#[test]
fn files_and_the_map_keep_their_size() {
    let map = std::fs::read_to_string(repo("ARCHITECTURE.md")).expect("there");
    for of in CRATES {
        assert!(map.contains(&format!("`{of}`")), "the map lacks {of}");
        for (file, text) in sources(of) {
            assert!(text.lines().count() <= 600, "{}: {} lines", file.display(), text.lines().count());
        }
    }
}

#[test]
fn every_dependency_has_its_line_of_why() {
    let reasons = std::fs::read_to_string(repo("docs/dependencies.md")).expect("there");
    let manifest = std::fs::read_to_string(repo("Cargo.toml")).expect("there");
    let section = manifest.split("[workspace.dependencies]").nth(1).expect("a section").split("\n[").next().expect("text").to_owned();
    let names = section.lines().filter_map(|l| l.split_once(" = ")).map(|(n, _)| n).filter(|n| !n.starts_with("ipam"));
    for name in names {
        assert!(reasons.contains(&format!("| `{name}` |")), "docs/dependencies.md lacks {name}");
    }
}

#[test]
fn commands_of_the_readme_run() {
    let readme = std::fs::read_to_string(repo("README.md")).expect("there");
    for path in readme
        .split(['`', ' ', '\n', '(', ')'])
        .filter(|w| w.starts_with("examples/") || w.starts_with("docs/") || w.starts_with("tests/run"))
    {
        assert!(repo(path.trim_end_matches(['.', ',', ':'])).exists(), "README names {path}");
    }
    assert!(Path::new(&repo("LICENSE")).exists());
}

#[test]
fn no_product_enables_planted_faults() {
    for of in ["accounting", "ipam", "datastore", "metrics", "controller", "cli"] {
        let manifest = std::fs::read_to_string(repo(of).join("Cargo.toml")).expect("there");
        let uses = manifest.lines().filter(|l| l.contains("planted") && !l.starts_with("planted = [")).count();
        assert_eq!(uses, 0, "{of} enables planted faults");
        assert!(!manifest.contains("default = ["), "{of} has default features");
    }
    let workspace = std::fs::read_to_string(repo("Cargo.toml")).expect("there");
    assert!(!workspace.contains("planted") && workspace.contains("default-members = [\"controller\"]"));
}
