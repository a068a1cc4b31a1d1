//! Every command of the documentation is run: those in blocks as they stand, on a cluster with the example's objects; those within the text
//! too, or read by the program that they are for.
//!
//! Three things are not what they are for a reader: `cargo run` runs what was built for the tests, and what runs until Ctrl-C gets it after
//! some seconds; without a kubelet `kubectl port-forward` runs the operator itself on that port, and `kubectl logs` only finds its Deployment.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::Parser as _;
use ipam_datastore::Group;
use ipam_tests::control_plane::{ControlPlane, create, tool};
use ipam_tests::say;
use serde_json::json;

use super::live::filled;
use super::repo;

fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = std::fs::read_dir(repo("docs")).expect("there").map(|e| e.expect("there").path()).collect();
    pages.retain(|p| p.extension().is_some_and(|e| e == "md"));
    pages.sort();
    pages.extend([repo("README.md"), repo("charts/ipam-operator/README.md")]);
    pages
}

/// What stands in blocks of shell.
fn blocks(text: &str) -> Vec<String> {
    text.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().expect("an end").to_owned()).collect()
}

/// Commands within the text: spans of code that begin with the name of a program and have arguments.
fn within(text: &str) -> Vec<String> {
    let prose: String = text.split("\n```").step_by(2).collect();
    let programs = ["kubectl ", "helm ", "ipamctl ", "ipam-operator ", "curl "];
    let spans = prose.split('`').skip(1).step_by(2).filter(|span| programs.iter().any(|p| span.starts_with(p)));
    spans.filter(|span| span.split_whitespace().count() > 2 || span.starts_with("ipamctl ")).map(str::to_owned).collect()
}

struct Shell {
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Shell {
    fn new(plane: &ControlPlane) -> Self {
        let shell = Self { folder: tempfile::tempdir().expect("a folder"), kubeconfig: plane.access().kubeconfig.expect("a file") };
        let bin = shell.folder.path().join("bin");
        std::fs::create_dir(&bin).expect("made");
        symlink(env!("CARGO_BIN_EXE_ipam-operator"), bin.join("ipam-operator")).expect("linked");
        let ipamctl = Path::new(env!("CARGO_BIN_EXE_ipam-operator")).with_file_name("ipamctl");
        assert!(ipamctl.exists(), "cargo test --workspace builds ipamctl, too");
        symlink(ipamctl, bin.join("ipamctl")).expect("linked");
        symlink(tool("helm"), bin.join("helm")).expect("linked");
        for name in ["examples", "charts"] {
            symlink(repo(name).canonicalize().expect("there"), shell.folder.path().join(name)).expect("linked");
        }
        std::fs::write(shell.folder.path().join(".curlrc"), "retry = 20\nretry-delay = 1\nretry-connrefused\nfail\nsilent\n")
            .expect("written");
        shell.script(
            "cargo",
            "program=ipam-operator; [[ \" $* \" == *' -p ipamctl '* ]] && program=ipamctl\n\
             while [[ $1 != -- ]]; do shift; done; shift\n\
             if [[ $1 == run && \" $* \" != *' --fast-forward '* && ${!#} != --fast-forward ]]; then exec timeout -s INT --preserve-status 5 $program \"$@\" --listen 127.0.0.1:0; fi\n\
             exec $program \"$@\"",
        );
        let kubectl = tool("kubectl").display().to_string();
        shell.script(
            "kubectl",
            &format!(
                "if [[ \" $* \" == *' port-forward '* ]]; then {kubectl} -n ipam-operator get deploy ipam-operator > /dev/null && \
                 exec timeout 60 ipam-operator run --mode audit --leader-elect=false --listen 127.0.0.1:0 --admin-listen 127.0.0.1:9095; fi\n\
                 if [[ \" $* \" == *' logs '* ]]; then exec {kubectl} -n ipam-operator get deploy ipam-operator; fi\n\
                 exec {kubectl} \"$@\""
            ),
        );
        shell
    }

    fn script(&self, name: &str, body: &str) {
        let path = self.folder.path().join("bin").join(name);
        std::fs::write(&path, format!("#!/usr/bin/env bash\n{body}\n")).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("may be run");
    }

    fn run(&self, script: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new("timeout")
            .args(["120", "bash", "-euo", "pipefail", "-c", &format!("trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{script}\n")])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()))
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .expect("bash runs")
    }

    fn must(&self, page: &Path, script: &str) {
        let done = self.run(script);
        let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{}:\n{script}\n{said}", page.display());
    }
}

/// Calico's own controller, as a manifest installs it.
async fn reference(plane: &ControlPlane) {
    let container = json!({ "name": "calico-kube-controllers", "image": "x", "env": [{ "name": "ENABLED_CONTROLLERS", "value": "node,loadbalancer" }] });
    let labels = json!({ "k8s-app": "calico-kube-controllers" });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "calico-kube-controllers", "namespace": "kube-system", "labels": labels },
        "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } } },
    });
    let client = plane.client().await;
    create(&client, "/apis/apps/v1/namespaces/kube-system/deployments", &deployment).await;
    let settings = json!({
        "apiVersion": Group::V3.api_version(), "kind": "KubeControllersConfiguration", "metadata": { "name": "default" },
        "spec": { "controllers": { "node": { "leakGracePeriod": "15m0s" } } },
    });
    create(&client, &format!("/apis/{}/kubecontrollersconfigurations", Group::V3.api_version()), &settings).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_documentation_is_run() {
    let plane = filled(Group::V3, "examples/leaky-cluster.v3.yaml").await;
    reference(&plane).await;
    let shell = Shell::new(&plane);
    let count = tokio::task::spawn_blocking(move || {
        let install = "helm uninstall ipam-operator -n ipam-operator --ignore-not-found";
        let mut count = (0, 0);
        for page in pages() {
            let text = std::fs::read_to_string(&page).expect("there");
            shell.must(&page, install);
            for block in blocks(&text) {
                shell.must(&page, &block);
                count.0 += 1;
            }
        }
        shell.must(&repo("README.md"), "helm upgrade --install ipam-operator charts/ipam-operator -n ipam-operator --create-namespace");
        // It leaves its Lease.
        let lease = "timeout -s INT --preserve-status 5 ipam-operator run --mode audit --lease-namespace ipam-operator --listen 127.0.0.1:0 --admin-listen ''";
        shell.must(&repo("README.md"), lease);
        for page in pages() {
            for command in within(&std::fs::read_to_string(&page).expect("there")) {
                count.1 += 1;
                let words = command.split('|').next().expect("a part").split_whitespace();
                if command.starts_with("ipam-operator ") {
                    ipam_operator::args::Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{}: {command}: {e}", page.display()));
                } else if command.starts_with("ipamctl check") {
                    shell.must(&page, &format!("{command} || test $? = 2"));
                } else if command.contains(" port-forward ") {
                    shell.must(&page, &format!("{command} &"));
                } else {
                    shell.must(&page, &command);
                }
            }
        }
        count
    });
    let (blocks, within) = count.await.expect("done");
    assert!(blocks >= 10 && within >= 20, "{blocks} blocks, {within} within the text");
    say(format_args!("{blocks} blocks and {within} commands within the text were run"));
}
