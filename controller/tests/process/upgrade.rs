//! An upgrade to the chart that comes next, and back: one configuration file, two versions of the operator.

use std::path::Path;
use std::process::Command;

use ipam_datastore::Group;
use serde_json::{Value, json};

use super::chart::{Installed, until};
use super::{get, repo};

/// The chart of a later version, whose operator knows one more key.
fn next_chart(folder: &Path) -> String {
    let copied = Command::new("cp").arg("-r").arg(repo("charts/ipam-operator")).arg(folder).status().expect("runs");
    assert!(copied.success());
    let chart = folder.join("ipam-operator");
    let edit = |name: &str, change: &dyn Fn(String) -> String| {
        let text = std::fs::read_to_string(chart.join(name)).expect("there");
        std::fs::write(chart.join(name), change(text)).expect("written");
    };
    edit("Chart.yaml", &|text| text.replace("ersion: 0.1.0", "ersion: 0.2.0"));
    edit("values.schema.json", &|text| {
        let mut schema: Value = serde_json::from_str(&text).expect("JSON");
        schema["properties"]["config"]["properties"]["gc"]["properties"]["patience"] = json!({ "type": "integer" });
        schema.to_string()
    });
    chart.display().to_string()
}

/// (l): the old pods see the new file first and keep their values; one that starts with it says what it does not know and ends, so that
/// nothing is collected and nothing else happens; back, everything is as before.
#[tokio::test(flavor = "multi_thread")]
async fn l_an_upgrade_and_back() {
    let installed = Installed::new(Group::V3, "examples/leaky-cluster.v3.yaml", &["--set", "config.gc.leakGracePeriod=1h"]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let next = next_chart(folder.path());
    installed.pod("ipam-0").await;
    let mut old = installed.start("ipam-0", None).await;
    let address = old.address();
    let says = |line: &str| get(&address, "/metrics").is_some_and(|(_, page)| page.lines().any(|l| l == line));
    until("it runs", async || says("ipam_operator_leader 1") && says("ipam_gc_grace_period_seconds 3600")).await;

    let values = ["--set", "config.gc.leakGracePeriod=2h", "--set", "config.gc.patience=3"];
    installed.plane.helm(&[&["upgrade", "ipam-operator", &next, "--namespace", "ops", "--reset-values"][..], &values].concat());
    installed.mount().await;
    until("the old one refuses the file", async || says("ipam_operator_config_last_reload_successful 0")).await;
    assert!(says("ipam_gc_grace_period_seconds 3600") && says("ipam_operator_condition{condition=\"ConfigAccepted\"} 0"));
    assert!(get(&address, "/readyz").is_some_and(|(head, _)| head.contains("200")), "it works on with the old values");
    let (code, text) = installed.ends("ipam-0").await;
    assert!(code == Some(1) && text.contains("gc.patience"), "an old one that starts now says why it does not: {code:?} {text}");

    installed.plane.helm(&["rollback", "ipam-operator", "1", "--namespace", "ops"]);
    installed.mount().await;
    until("the file is good again", async || says("ipam_operator_config_last_reload_successful 1")).await;
    assert!(says("ipam_gc_grace_period_seconds 3600") && says("ipam_operator_condition{condition=\"ConfigAccepted\"} 1"));
    let role = installed.object("/apis/rbac.authorization.k8s.io/v1/clusterroles/ipam-operator").await;
    assert_eq!(role["metadata"]["labels"]["helm.sh/chart"], "ipam-operator-0.1.0");
    old.stop("-TERM");
}
