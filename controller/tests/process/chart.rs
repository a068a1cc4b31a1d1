//! The chart on a real API server: what it installs runs, with exactly the rights that it gives, in both groups and every mode.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::Method;
use ipam_datastore::Group;
use ipam_datastore::live::{Access, Connection};
use ipam_tests::control_plane::{ControlPlane, create, get as get_request, remove, replace};
use ipam_tests::proxy::{Proxy, Spoil};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::live::filled;
use super::{Running, get, operator};

const CHART: &str = "charts/ipam-operator";
const NAMESPACE: &str = "ops";
const NAME: &str = "ipam-operator";

/// What `helm install` made, as a kubelet would run it.
pub struct Installed {
    pub plane: ControlPlane,
    access: Access,
    folder: TempDir,
}

impl Installed {
    /// Installs the chart on a cluster with these objects.
    pub async fn new(group: Group, file: &str, values: &[&str]) -> Self {
        let plane = filled(group, file).await;
        plane.helm(&[&["install", NAME, CHART, "--namespace", NAMESPACE, "--create-namespace"][..], values].concat());
        let access = plane.access_as(&plane.token_of(NAMESPACE, NAME).await);
        Self { plane, access, folder: tempfile::tempdir().expect("a folder") }
    }

    /// Changes the values.
    pub fn upgrade(&self, values: &[&str]) {
        self.plane.helm(&[&["upgrade", NAME, CHART, "--namespace", NAMESPACE, "--reset-values"][..], values].concat());
    }

    pub async fn object(&self, path: &str) -> Value {
        self.plane.client().await.request(get_request(path)).await.expect("there")
    }

    /// Writes the config map into its folder, as a kubelet mounts it.
    pub async fn mount(&self) {
        let map = self.object(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")).await;
        for (name, text) in map["data"].as_object().expect("data") {
            std::fs::write(self.folder.path().join(name), text.as_str().expect("text")).expect("written");
        }
    }

    /// A pod of the deployment, with its own object in the cluster.
    pub async fn pod(&self, name: &str) {
        self.pod_at(name, "192.168.77.7").await;
    }

    /// A pod that reports this address.
    pub async fn pod_at(&self, name: &str, ip: &str) {
        let client = self.plane.client().await;
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let spec = json!({ "nodeName": "node-a", "containers": [{ "name": "x", "image": "x" }], "automountServiceAccountToken": false });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec });
        let mut pod = create(&client, &pods, &pod).await;
        pod["status"] = json!({ "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }] });
        replace(&client, &format!("{pods}/{name}/status"), &pod).await;
    }

    /// Starts the container of a pod, with its arguments and environment, under its service account; `past` instead of directly.
    pub async fn start(&self, pod: &str, past: Option<&Proxy>) -> Running {
        self.start_with(pod, past, &[]).await
    }

    /// The same with further arguments.
    async fn start_with(&self, pod: &str, past: Option<&Proxy>, more: &[&str]) -> Running {
        Running::start(self.command(pod, past).await.args(more))
    }

    /// Runs the container of a pod, which ends by itself: its code, and what it said.
    pub async fn ends(&self, pod: &str) -> (Option<i32>, String) {
        let done = self.command(pod, None).await.output().expect("runs");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    }

    async fn command(&self, pod: &str, past: Option<&Proxy>) -> std::process::Command {
        self.mount().await;
        let deployment = self.object(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}")).await;
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let folder = self.folder.path().display().to_string();
        let args: Vec<String> = container["args"]
            .as_array()
            .expect("args")
            .iter()
            .map(|a| a.as_str().expect("text").replace("/etc/ipam-operator", &folder))
            .collect();
        let kubeconfig = past.map_or_else(|| self.access.clone(), Proxy::access).kubeconfig.expect("a file");
        let mut command = operator(&[]);
        command.args(args).arg("--kubeconfig").arg(kubeconfig).args(["--listen", "127.0.0.1:0", "--log-format", "text"]);
        command.env_remove("IPAM_OPERATOR_LEADER_ELECT");
        let own = self.object(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}")).await;
        let fields = BTreeMap::from([
            ("metadata.name", &own["metadata"]["name"]),
            ("metadata.namespace", &own["metadata"]["namespace"]),
            ("metadata.uid", &own["metadata"]["uid"]),
        ]);
        for variable in container["env"].as_array().expect("env") {
            let field = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str().expect("a field");
            command.env(variable["name"].as_str().expect("a name"), fields[field].as_str().expect("text"));
        }
        command
    }

    async fn proxy(&self) -> Proxy {
        Proxy::start(Connection::new(self.access.clone()).await.expect("a client").client()).await
    }

    /// The rights that the chart gives for this group: verb, group, resource.
    async fn given(&self, group: Group) -> BTreeSet<(String, String, String)> {
        let ours = group.api_version().split('/').next().expect("a group");
        let role = self.object(&format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}")).await;
        let lease = self.object(&format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/{NAME}")).await;
        let mut given = BTreeSet::new();
        for rule in [&role["rules"], &lease["rules"]].into_iter().flat_map(|r| r.as_array().expect("rules")) {
            let texts = |name: &str| {
                rule[name].as_array().expect("a list").iter().map(|v| v.as_str().expect("text").to_owned()).collect::<Vec<_>>()
            };
            for of in texts("apiGroups").iter().filter(|g| !g.contains("projectcalico.org") || *g == ours) {
                for resource in texts("resources") {
                    // The configuration is called otherwise in the other group.
                    let foreign = if group == Group::V1 { "ipamconfigurations" } else { "ipamconfigs" };
                    if resource != foreign {
                        given.extend(texts("verbs").into_iter().map(|verb| (verb, of.clone(), resource.clone())));
                    }
                }
            }
        }
        given
    }
}

pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut every = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..600 {
        if holds().await {
            return;
        }
        every.tick().await;
    }
    panic!("{what}: not within a minute");
}

fn page_has(address: &str, line: &str) -> bool {
    get(address, "/metrics").is_some_and(|(_, page)| page.lines().any(|l| l == line))
}

const QUICK: [&str; 6] =
    ["--set", "config.gc.leakGracePeriod=2s", "--set", "config.gc.vmGracePeriod=2s", "--set-json", "config.events.poolNearlyFull=0.5"];

/// Rows that contradict the blocks, for repair and for counts that are lowered and do not become nothing.
async fn wrong_rows(installed: &Installed, group: Group) {
    let client = installed.plane.client().await;
    let root = format!("/apis/{}", group.api_version());
    let blocks: Value = client.request(get_request(&format!("{root}/ipamblocks"))).await.expect("blocks");
    let affinities: Value = client.request(get_request(&format!("{root}/blockaffinities"))).await.expect("affinities");
    let handles: Value = client.request(get_request(&format!("{root}/ipamhandles"))).await.expect("handles");
    // A block loses its affinity, an allocation its handle; another handle counts too much.
    let affinity = affinities["items"].as_array().expect("a list").iter().find(|a| a["spec"]["cidr"] == "10.48.7.0/26");
    let name = |o: &Value| o["metadata"]["name"].as_str().expect("a name").to_owned();
    remove(&client, &format!("{root}/blockaffinities/{}", name(affinity.expect("one")))).await;
    let used = |id: &str| {
        blocks["items"].as_array().expect("a list").iter().any(|b| b["spec"]["attributes"].to_string().contains(&format!("\"{id}\"")))
    };
    let mut in_use =
        handles["items"].as_array().expect("a list").iter().filter(|h| used(h["spec"]["handleID"].as_str().unwrap_or_default()));
    let gone = in_use.next().expect("one");
    remove(&client, &format!("{root}/ipamhandles/{}", name(gone))).await;
}

/// A pool of which three of four addresses are taken by somebody unknown, and a pod that reports one of them: events about a pool and a pod.
async fn a_full_pool_and_a_conflict(installed: &Installed, group: Group) {
    let client = installed.plane.client().await;
    let (version, root) = (group.api_version(), format!("/apis/{}", group.api_version()));
    let pool = json!({ "cidr": "10.99.0.0/30", "blockSize": 30, "nodeSelector": "all()", "allowedUses": ["Workload"], "assignmentMode": "Automatic" });
    create(
        &client,
        &format!("{root}/ippools"),
        &json!({ "apiVersion": version, "kind": "IPPool", "metadata": { "name": "tiny" }, "spec": pool }),
    )
    .await;
    let spec = json!({
        "cidr": "10.99.0.0/30", "affinity": "host:node-a", "allocations": [0, 0, 0, null], "unallocated": [3], "strictAffinity": false,
        "attributes": [{ "handle_id": "somebody", "secondary": { "node": "node-a", "pod": "kept", "namespace": "shop" } }],
        "deleted": false, "sequenceNumber": 1,
    });
    create(
        &client,
        &format!("{root}/ipamblocks"),
        &json!({ "apiVersion": version, "kind": "IPAMBlock", "metadata": { "name": "10-99-0-0-30" }, "spec": spec }),
    )
    .await;
    for i in 0..3 {
        installed.pod_at(&format!("twin-{i}"), &format!("10.99.0.{i}")).await;
    }
}

/// The handle of a leak counts more than there is, so that its release lowers it and leaves the row.
async fn too_high(installed: &Installed, group: Group, handle: &str) {
    let client = installed.plane.client().await;
    let root = format!("/apis/{}/ipamhandles", group.api_version());
    let handles: Value = client.request(get_request(&root)).await.expect("handles");
    let mut row = handles["items"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|h| h["spec"]["handleID"].as_str().is_some_and(|id| id.ends_with(handle)))
        .expect("there")
        .clone();
    for count in row["spec"]["block"].as_object_mut().expect("counts").values_mut() {
        *count = (count.as_i64().expect("a number") + 5).into();
    }
    let path = format!("{root}/{}", row["metadata"]["name"].as_str().expect("a name"));
    replace(&client, &path, &row).await;
}

async fn rights(group: Group, file: &str) {
    let installed = Installed::new(group, file, &[&QUICK[..], &["--set", "config.mode=audit"]].concat()).await;
    let plane = &installed.plane;
    installed.pod("ipam-0").await;
    wrong_rows(&installed, group).await;
    a_full_pool_and_a_conflict(&installed, group).await;
    too_high(&installed, group, "abc02b").await;
    let mut asked = 0;
    for (mode, values) in
        [("audit", &["--set", "config.mode=audit"][..]), ("enforce", &[]), ("repair", &["--set", "config.gc.indexRepair=repair"])]
    {
        installed.upgrade(&[&QUICK[..], values].concat());
        // A server that cannot stream the initial set is listed.
        let proxy = installed.proxy().await;
        (0..16).for_each(|_| proxy.spoil(Method::GET, "sendInitialEvents", Spoil::Answer(422)));
        let mut listing = installed.start("ipam-0", Some(&proxy)).await;
        let address = listing.address();
        until("ready past lists", async || get(&address, "/readyz").is_some_and(|(_, text)| text.starts_with("ok"))).await;
        listing.stop("-TERM");

        let mut running = installed.start("ipam-0", None).await;
        let address = running.address();
        let wanted = match mode {
            "audit" => "ipam_gc_leaks{ippool=\"default-v4\",state=\"audit\"} ",
            _ => "ipam_gc_nodes_cleaned_total ",
        };
        let value = |name: &str| {
            let (_, page) = get(&address, "/metrics")?;
            page.lines().find_map(|l| l.strip_prefix(name)?.parse::<f64>().ok())
        };
        match mode {
            "repair" => {
                until("a missing handle is there again", async || {
                    value("ipam_gc_repairs_total{kind=\"handle-missing\"} ").is_some_and(|n| n > 0.0)
                })
                .await;
                until("an affinity too", async || {
                    value("ipam_gc_repairs_total{kind=\"block-without-affinity\"} ").is_some_and(|n| n > 0.0)
                })
                .await;
            }
            _ => until(mode, async || value(wanted).is_some_and(|n| n > 0.0)).await,
        }
        if mode != "audit" {
            until("nothing is due", async || value("ipam_gc_leaks{ippool=\"default-v4\",state=\"due\"} ").is_some_and(|n| n == 0.0)).await;
        }
        until("audited", async || value("ipam_findings_last_audit_timestamp_seconds ").is_some()).await;
        until("events", async || {
            plane.audited()[asked..].iter().any(|(verb, _, resource, _)| (verb.as_str(), resource.as_str()) == ("get", "ippools"))
        })
        .await;
        running.stop("-TERM");

        let all = plane.audited();
        let refused: Vec<_> = all[asked..].iter().filter(|(.., code)| *code == 403).collect();
        assert!(refused.is_empty(), "{mode}: {refused:#?}");
        // What a right was used for in the mode before stays true.
        let used: BTreeSet<_> = all.iter().map(|(verb, group, resource, _)| (verb.clone(), group.clone(), resource.clone())).collect();
        let given = installed.given(group).await;
        let unused: Vec<_> = given.iter().filter(|right| !used.contains(*right)).collect();
        assert!(unused.is_empty(), "{mode}: given and never used: {unused:?}");
        asked = all.len();
    }
    events_say_what_happened(&installed).await;
    plane.helm(&["uninstall", NAME, "--namespace", NAMESPACE]);
    let roles =
        installed.plane.client().await.request_text(get_request(&format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"))).await;
    assert!(roles.is_err(), "nothing is left of it");
}

async fn events_say_what_happened(installed: &Installed) {
    let events = installed.object("/apis/events.k8s.io/v1/namespaces/default/events").await;
    let of = |reason: &str| {
        events["items"].as_array().expect("a list").iter().find(|e| e["reason"] == reason && e["regarding"]["kind"] == "Node").cloned()
    };
    let told = of("AddressesReclaimed").unwrap_or_else(|| panic!("{events:#}"));
    assert_eq!((&told["reportingController"], &told["reportingInstance"]), (&json!("ipam-operator"), &json!("ipam-0")));
    assert!(told["note"].as_str().is_some_and(|n| n.starts_with("Reclaimed ")), "{told:#}");
    let node = told["regarding"]["name"].as_str().expect("a node");
    let nodes = installed.object("/api/v1/nodes").await;
    let uid =
        nodes["items"].as_array().expect("a list").iter().find(|n| n["metadata"]["name"] == node).map(|n| n["metadata"]["uid"].clone());
    assert_eq!(told["regarding"]["uid"], uid.unwrap_or_default(), "the node's own, or none for one that is gone");
    assert!(of("AddressesWouldBeReclaimed").is_some(), "audit mode told too");
    let own = installed.object(&format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")).await;
    assert!(
        own["items"].as_array().is_some_and(|all| all.iter().any(|e| e["reason"] == "BecameLeader" && e["regarding"]["kind"] == "Lease")),
        "{own:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn g_the_rights_of_the_chart_are_enough_and_none_is_unused_v1() {
    rights(Group::V1, "examples/leaky-cluster.yaml").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g_the_rights_of_the_chart_are_enough_and_none_is_unused_v3() {
    rights(Group::V3, "examples/leaky-cluster.v3.yaml").await;
}

const LEADS: &str = "ipam_operator_leader 1";
const FOLLOWS: &str = "ipam_operator_leader 0";

/// D-83: two replicas; one leads. The other is ready, warm, and says nothing of the cluster; it takes over when the first is killed, or
/// ends.
#[tokio::test(flavor = "multi_thread")]
async fn d_83_d_94_the_other_replica_takes_over() {
    let installed = Installed::new(Group::V3, "examples/leaky-cluster.v3.yaml", &["--set", "config.gc.leakGracePeriod=1h"]).await;
    for name in ["ipam-0", "ipam-1"] {
        installed.pod(name).await;
    }
    let mut first = installed.start("ipam-0", None).await;
    let one = first.address();
    until("the first leads", async || {
        page_has(&one, LEADS) && get(&one, "/readyz").is_some_and(|(_, t)| t.ends_with("active\n") || t.contains("active\n"))
    })
    .await;
    let mut second = installed.start("ipam-1", None).await;
    let mut two = second.address();
    until("the second is ready", async || {
        get(&two, "/readyz").is_some_and(|(head, text)| head.contains("200") && text.contains("passive\n"))
    })
    .await;
    assert!(page_has(&two, FOLLOWS) && page_has(&one, LEADS));
    let of_the_cluster = ["ipam_ippool_size", "ipam_allocations_in_use", "ipam_gc_leaks", "ipam_operator_brake_share"];
    let (_, passive) = get(&two, "/metrics").expect("answers");
    assert!(of_the_cluster.iter().all(|name| !passive.contains(name)), "every sum would double: {passive}");
    assert!(passive.contains("ipam_operator_watch_synced{kind=\"block\"} 1"), "it is warm");
    let (_, active) = get(&one, "/metrics").expect("answers");
    assert!(of_the_cluster.iter().all(|name| active.contains(name)));

    // Somebody deletes the Lease: it is made anew, and one of them leads.
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}");
    let client = installed.plane.client().await;
    remove(&client, &lease).await;
    until("the lease is there again", async || client.request_text(get_request(&lease)).await.is_ok()).await;
    until("one of them leads", async || page_has(&one, LEADS) != page_has(&two, LEADS)).await;
    let mut pods = ["ipam-0", "ipam-1"];
    if page_has(&two, LEADS) {
        (first, second, two) = (second, first, one);
        pods.reverse();
    }

    // A clean end: within a second after the process is gone.
    first.stop("-TERM");
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time");
    until("the second leads", async || page_has(&two, LEADS)).await;
    let took = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time") - since;
    assert!(took < Duration::from_secs(1), "a clean hand-over took {took:?}");
    assert!(of_the_cluster.iter().all(|name| get(&two, "/metrics").expect("answers").1.contains(name)));

    // Killed: within the time that the Lease holds, and a little.
    let mut third = installed.start(pods[0], None).await;
    let three = third.address();
    until("the third follows", async || page_has(&three, FOLLOWS) && get(&three, "/readyz").is_some_and(|(head, _)| head.contains("200")))
        .await;
    second.kill();
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time");
    until("the third leads", async || page_has(&three, LEADS)).await;
    let took = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time") - since;
    assert!(took < Duration::from_secs(15), "after a kill it took {took:?}");
    eprintln!("hand-over after a kill: {took:?}");
    third.stop("-TERM");
}

/// Two that both act, for each has a Lease of its own: they end as one does, and nothing in use goes.
#[tokio::test(flavor = "multi_thread")]
async fn d_83_two_that_act_do_no_harm() {
    let installed = Installed::new(Group::V1, "examples/leaky-cluster.yaml", &QUICK).await;
    for name in ["ipam-0", "ipam-1"] {
        installed.pod(name).await;
    }
    let kubeconfig = installed.plane.access().kubeconfig.expect("a file").display().to_string();
    let run = ["run", "--kubeconfig", &kubeconfig, "--listen", "127.0.0.1:0", "--leak-grace-period", "2s", "--vm-grace-period", "2s"];
    let mut both = [Running::start(&mut operator(&run)), Running::start(&mut operator(&run))];
    let addresses = both.each_mut().map(Running::address);
    let sum = |name: &str| -> f64 {
        let value = |address: &String| {
            get(address, "/metrics").and_then(|(_, page)| page.lines().find_map(|l| l.strip_prefix(name)?.parse::<f64>().ok()))
        };
        addresses.iter().filter_map(value).sum()
    };
    until("the departed nodes are cleaned up", async || sum("ipam_gc_nodes_cleaned_total ") >= 2.0).await;
    until("nothing is due", async || {
        addresses.iter().all(|a| {
            page_has(a, "ipam_gc_leaks{ippool=\"default-v4\",state=\"due\"} 0")
                && page_has(a, "ipam_gc_leaks{ippool=\"default-v4\",state=\"grace\"} 0")
        })
    })
    .await;
    let released: f64 = ["pod_gone", "pod_finished", "pod_other_address", "vm_gone", "pod_unscheduled", "node_gone", "pod_other_node"]
        .iter()
        .flat_map(|reason| {
            ["default-v4", "default-v6", "tunnels", "no_ippool"]
                .map(|pool| format!("ipam_gc_reclamations_total{{ippool=\"{pool}\",reason=\"{reason}\"}} "))
        })
        .map(|name| sum(&name))
        .sum();
    assert_eq!(released, 25.0, "each leak once, whoever was first");
    both.iter_mut().for_each(|running| running.stop("-TERM"));
}

/// Rights that vanish, or were never given: it acts with those of audit mode. Every write is refused and told, and nothing else suffers.
#[tokio::test(flavor = "multi_thread")]
async fn g_without_the_right_to_write_it_says_so_and_goes_on() {
    let values = [&QUICK[..], &["--set", "config.mode=audit"]].concat();
    let installed = Installed::new(Group::V3, "examples/leaky-cluster.v3.yaml", &values).await;
    installed.pod("ipam-0").await;
    let mut running = installed.start_with("ipam-0", None, &["--mode", "enforce"]).await;
    let address = running.address();
    until("it says so", async || page_has(&address, "ipam_operator_condition{condition=\"WritesPermitted\"} 0")).await;
    let (head, text) = get(&address, "/readyz").expect("answers");
    assert!(head.contains("200") && text.contains("WritesPermitted: "), "nobody's unreadiness: {text}");
    let failed = |page: &str| {
        page.lines().any(|l| l.starts_with("ipam_gc_failures_total{") && l.contains("class=\"forbidden\"") && !l.ends_with(" 0"))
    };
    until("it is counted", async || get(&address, "/metrics").is_some_and(|(_, page)| failed(&page))).await;
    let events = format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events");
    let told = async || {
        installed.object(&events).await["items"].as_array().is_some_and(|all| all.iter().any(|e| e["reason"] == "WritesForbidden"))
    };
    until("it is an event", told).await;
    let refused = installed.plane.audited().iter().filter(|(.., code)| *code == 403).count();
    assert!(refused > 0 && refused < 500, "{refused} refusals: it does not hammer");
    running.stop("-TERM");
}

/// helm lint, and what values do: a live key does not restart the pods, others do; what is odd is in `values.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn j_values_of_the_chart() {
    let plane = ControlPlane::bare(Group::V3).await;
    plane.helm(&["lint", "--strict", CHART]);
    let checksum = |values: &[&str]| {
        let text = plane.helm(&[&["template", NAME, CHART][..], values].concat());
        text.lines().find(|l| l.contains("checksum/config:")).expect("a checksum").trim().to_owned()
    };
    let plain = checksum(&[]);
    for live in
        ["config.paused=true", "config.mode=audit", "config.brake.minAddresses=5", "config.log.level=debug", "config.gc.indexRepair=repair"]
    {
        assert_eq!(checksum(&["--set", live]), plain, "{live} restarts nothing");
    }
    for restart in
        ["config.log.format=text", "config.datastore.maxInFlight=4", "config.leaderElection.leaseDuration=20s", "config.gc.kubevirt=off"]
    {
        assert_ne!(checksum(&["--set", restart]), plain, "{restart} needs a restart");
    }
    let verbs = |values: &[&str]| plane.helm(&[&["template", NAME, CHART, "--show-only", "templates/rbac.yaml"][..], values].concat());
    let audit = verbs(&["--set", "config.mode=audit"]);
    let ours = audit.split("coordination.k8s.io").next().expect("text");
    assert!(
        !ours.contains("update") && !ours.contains("delete") && ours.matches("create").count() == 1,
        "audit mode writes nothing but events: {ours}"
    );
}

/// The schema of the values has the configuration as the operator itself describes it.
#[test]
fn j_the_schema_of_the_values_knows_the_configuration() {
    let path = super::repo(CHART).join("values.schema.json");
    let text = std::fs::read_to_string(&path).expect("there");
    let mut schema: Value = serde_json::from_str(&text).expect("JSON");
    let want = ipam_operator::config::show::schema();
    if std::env::var_os("BLESS").is_some() {
        schema["properties"]["config"] = want.clone();
        std::fs::write(&path, format!("{schema:#}\n")).expect("written");
    }
    assert_eq!(schema["properties"]["config"], want, "BLESS=1 writes it anew");
}
