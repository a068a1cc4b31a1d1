//! Following a whole cluster on a real API server: what closes the gate, what is held, and when everything begins anew.

use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use ipam_accounting::facts::Lookup;
use ipam_accounting::inventory::Trust;
use ipam_datastore::facts::CoreObject;
use ipam_datastore::live::{Anew, Connection, Follower, look};
use ipam_datastore::update::Watched;
use ipam_datastore::{Group, KubeStore};
use ipam_operator::view::{NotReady, View};
use ipam_tests::control_plane::{ControlPlane, create, get, remove, replace};
use ipam_tests::lab::cidr;
use serde_json::{Value, json};
use tokio::time::timeout;

const V1: &str = "/apis/crd.projectcalico.org/v1";

struct Followed {
    follower: Follower,
    view: View,
}

impl Followed {
    fn new(store: &KubeStore, discovery: Option<Duration>) -> Self {
        Self { follower: Follower::new(store, discovery, true), view: View::live() }
    }

    /// Follows until something holds, or everything must begin anew.
    async fn until(&mut self, mut holds: impl FnMut(&View) -> bool) -> Result<(), Anew> {
        loop {
            let view = &mut self.view;
            self.follower.drain(&mut |update| view.apply(&update))?;
            if holds(&self.view) {
                return Ok(());
            }
            if timeout(Duration::from_secs(60), self.follower.ready()).await.is_err() {
                panic!("it does not come to that; the gate says {:?}", self.view.gate().err());
            }
        }
    }

    async fn ready(&mut self) {
        self.until(|view| view.gate().is_ok()).await.expect("goes on");
    }

    /// Follows until the gate says why it is closed, and that contains `part`.
    async fn closed(&mut self, part: &str) -> NotReady {
        self.until(|view| view.gate().is_err_and(|why| why.to_string().contains(part))).await.expect("goes on");
        self.view.gate().expect_err("closed")
    }
}

/// A v1 cluster whose gate can open: cluster information and nothing else.
async fn cluster() -> (ControlPlane, KubeStore) {
    let plane = ControlPlane::start(Group::V1).await;
    information(&plane, json!({"clusterGUID": "g", "datastoreReady": true})).await;
    let store = KubeStore::new(plane.connection().await, Group::V1);
    (plane, store)
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

async fn information(plane: &ControlPlane, spec: Value) {
    create(&plane.client().await, &format!("{V1}/clusterinformations"), &object("ClusterInformation", "default", spec)).await;
}

/// A block of one address, of handle `h` and node `n`.
fn block() -> Value {
    let attributes = json!([{"handle_id": "h", "secondary": {"node": "n", "namespace": "ns", "pod": "p"}}]);
    json!({
        "cidr": "10.0.0.0/30", "affinity": "host:n", "allocations": [0, null, null, null], "unallocated": [1, 2, 3],
        "attributes": attributes, "sequenceNumber": 1, "strictAffinity": false, "deleted": false,
    })
}

#[tokio::test]
async fn d_77_what_is_not_understood_holds_what_it_names_and_no_more_once_it_is_mended() {
    let (plane, store) = cluster().await;
    let client = plane.client().await;
    let blocks = format!("{V1}/ipamblocks");
    // In the initial set: an entry that is not there; which handles it has only their rows can tell.
    let mut bad = block();
    bad["attributes"] = json!([]);
    let stored = create(&client, &blocks, &object("IPAMBlock", "10-0-0-0-30", bad)).await;
    let handle = |id: &str, block: &str| object("IPAMHandle", id, json!({"handleID": id, "block": {block: 1}, "deleted": false}));
    create(&client, &format!("{V1}/ipamhandles"), &handle("elsewhere", "10.0.1.0/30")).await;
    create(&client, &format!("{V1}/ipamhandles"), &handle("inside", "10.0.0.0/30")).await;
    let mut followed = Followed::new(&store, None);
    followed.ready().await;
    let told = |view: &View| view.cache.holds.block(cidr("10.0.0.0/30").net()) && !view.cache.holds.all_handles;
    followed.until(told).await.expect("goes on");
    let holds = followed.view.cache.holds.clone();
    assert!(holds.handle("inside") && !holds.handle("elsewhere") && holds.node("n") && !holds.node("m"));
    assert!(followed.view.cache.block_of(cidr("10.0.0.0/30").net()).is_none());

    // Mended.
    let mut good = stored;
    good["spec"] = block();
    let stored = replace(&client, &format!("{blocks}/10-0-0-0-30"), &good).await;
    let known = |view: &View| view.cache.block_of(cidr("10.0.0.0/30").net()).is_some();
    followed.until(|view| known(view) && !view.cache.holds.block(cidr("10.0.0.0/30").net())).await.expect("goes on");
    let holds = &followed.view.cache.holds;
    assert!(!holds.handle("inside") && !holds.handle("h") && !holds.node("n") && !holds.all_handles);

    // Later, on the feed; until the handles were listed, none may be touched.
    let mut bad = stored;
    bad["spec"]["allocations"] = json!([7, null, null, null]);
    replace(&client, &format!("{blocks}/10-0-0-0-30"), &bad).await;
    let mut all = false;
    followed
        .until(|view| {
            all |= view.cache.holds.all_handles;
            told(view)
        })
        .await
        .expect("goes on");
    let holds = followed.view.cache.holds.clone();
    assert!(holds.handle("h") && holds.handle("inside") && !holds.handle("elsewhere") && holds.node("n"));
    assert!(!known(&followed.view));

    // And gone.
    remove(&client, &format!("{blocks}/10-0-0-0-30")).await;
    followed.until(|view| !view.cache.holds.block(cidr("10.0.0.0/30").net())).await.expect("goes on");
    assert!(followed.view.gate().is_ok());
}

#[tokio::test]
async fn d_77_a_vm_that_is_not_understood_is_one_that_may_be_there() {
    let (plane, store) = cluster().await;
    let client = plane.client().await;
    // The API server decodes pods itself; VMs it stores as they come.
    create(&client, "/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})).await;
    let vm = |spec: Value| json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "v", "namespace": "ns"}, "spec": spec});
    let path = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines";
    let mut spec = block();
    spec["attributes"] = json!([{"handle_id": "k8s-pod-network.vmi.ns.v", "secondary": {"node": "n", "namespace": "ns", "vmi-name": "v"}}]);
    create(&client, &format!("{V1}/ipamblocks"), &object("IPAMBlock", "10-0-0-0-30", spec)).await;
    let stored = create(&client, path, &vm(json!({"nodeName": 7}))).await;
    let mut followed = Followed::new(&store, None);
    followed.ready().await;
    // A kind without a single object proves nothing (D-91): there is another VM, and another instance.
    for (plural, kind) in [("virtualmachines", "VirtualMachine"), ("virtualmachineinstances", "VirtualMachineInstance")] {
        let other = json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": "w", "namespace": "ns"}});
        create(&client, &format!("/apis/kubevirt.io/v1/namespaces/ns/{plural}"), &other).await;
    }
    let verdict = |view: &View| {
        let (_, block) = view.cache.block_of(cidr("10.0.0.0/30").net()).expect("known");
        ipam_accounting::judge(&view.cache.allocation(block, &block.slots[0]), &view.cache).name()
    };
    assert_eq!(verdict(&followed.view), "unknown");
    let mut good = stored;
    good["spec"] = json!({});
    replace(&client, &format!("{path}/v"), &good).await;
    followed.until(|view| verdict(view) == "in-use").await.expect("goes on");
    remove(&client, &format!("{path}/v")).await;
    followed.until(|view| verdict(view) == "leaked").await.expect("goes on");
    remove(&client, &format!("{path}/w")).await;
    followed.until(|view| verdict(view) == "unknown").await.expect("goes on");
}

#[tokio::test]
async fn d_44_a_row_that_somebody_else_deleted_by_halves_is_gone() {
    let (plane, store) = cluster().await;
    let client = plane.client().await;
    let blocks = format!("{V1}/ipamblocks");
    let mut stored = create(&client, &blocks, &object("IPAMBlock", "10-0-0-0-30", block())).await;
    let mut followed = Followed::new(&store, None);
    followed.ready().await;
    let known = |view: &View| view.cache.block_of(cidr("10.0.0.0/30").net()).is_some();
    assert!(known(&followed.view));
    stored["spec"]["deleted"] = true.into();
    stored = replace(&client, &format!("{blocks}/10-0-0-0-30"), &stored).await;
    followed.until(|view| !known(view)).await.expect("goes on");
    stored["spec"]["deleted"] = false.into();
    replace(&client, &format!("{blocks}/10-0-0-0-30"), &stored).await;
    followed.until(known).await.expect("goes on");
}

#[tokio::test]
async fn gcx_01_d_82_the_datastore_is_ready_only_when_it_says_so() {
    let plane = ControlPlane::start(Group::V1).await;
    let store = KubeStore::new(plane.connection().await, Group::V1);
    let mut followed = Followed::new(&store, None);
    assert_eq!(followed.closed("there is no cluster information").await, NotReady::NoClusterInformation);
    information(&plane, json!({"datastoreReady": false})).await;
    assert_eq!(followed.closed("the datastore is locked").await, NotReady::DatastoreLocked);
    let (client, path) = (plane.client().await, format!("{V1}/clusterinformations/default"));
    let mut stored: Value = client.request(get(&path)).await.expect("there");
    stored["spec"] = json!({"clusterGUID": "g"});
    replace(&client, &path, &stored).await;
    followed.ready().await;
    remove(&client, &path).await;
    assert_eq!(followed.closed("there is no cluster information").await, NotReady::NoClusterInformation);
}

#[tokio::test]
async fn d_76_kinds_that_are_not_served_any_more() {
    let (plane, store) = cluster().await;
    let mut followed = Followed::new(&store, None);
    followed.ready().await;
    assert!(followed.view.cache.trusts().vmis && followed.view.cache.trusts().pods == Trust::Full);
    // VM instances may be missing, but then nothing can be told of them.
    plane.undefine("virtualmachineinstances.kubevirt.io").await;
    followed.until(|view| !view.cache.trusts().vmis && view.gate().is_ok()).await.expect("goes on");
    assert!(followed.view.cache.trusts().vms);
    plane.undefine("ipamblocks.crd.projectcalico.org").await;
    followed.closed("blocks are not served").await;
}

#[tokio::test]
async fn d_76_a_kind_that_may_not_be_read_is_named() {
    let (plane, _) = cluster().await;
    let client = plane.client().await;
    let meta = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "all-but-pods"}});
    let mut role = meta("ClusterRole");
    role["rules"] = json!([
        {"apiGroups": ["crd.projectcalico.org", "kubevirt.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes", "namespaces"], "verbs": ["get", "list", "watch"]},
    ]);
    let role = create(&client, "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
    let mut binding = meta("ClusterRoleBinding");
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all-but-pods"});
    binding["subjects"] = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}]);
    create(&client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let connection = Connection::new(plane.access_as("nobody")).await.expect("a client");
    let mut followed = Followed::new(&KubeStore::new(connection, Group::V1), None);
    followed.until(|v| v.gate().is_err_and(|e| e.to_string().starts_with("not in step with the store: pods: 403"))).await.expect("goes on");
    let why = followed.view.gate().expect_err("closed").to_string();
    assert!(why.contains("cannot list resource \"pods\"") || why.contains("cannot watch resource \"pods\""), "{why}");
    assert_eq!(followed.view.cache.trusts().pods, Trust::Nothing);
    let mut allowed = role;
    allowed["rules"][1]["resources"] = json!(["nodes", "namespaces", "pods"]);
    replace(&client, "/apis/rbac.authorization.k8s.io/v1/clusterroles/all-but-pods", &allowed).await;
    followed.ready().await;
    assert_eq!(followed.view.cache.trusts().pods, Trust::Full);
}

#[tokio::test]
async fn d_78_a_store_that_was_replaced_begins_everything_anew() {
    let (mut plane, store) = cluster().await;
    // Revisions run ahead of those of a store that was just set up.
    let client = plane.client().await;
    for n in 0..400 {
        let name = format!("h{n}");
        create(&client, &format!("{V1}/ipamhandles"), &object("IPAMHandle", &name, json!({"handleID": name, "block": {}}))).await;
    }
    create(&client, &format!("{V1}/ipamblocks"), &object("IPAMBlock", "10-0-0-0-30", block())).await;
    let mut followed = Followed::new(&store, None);
    followed.ready().await;
    plane.replace_etcd().await;
    let anew = followed.until(|_| false).await.expect_err("begins anew");
    assert!(anew.0.contains("went back"), "{anew}");
    assert_eq!(followed.follower.drain(&mut |_| {}), Err(anew), "and says so ever after");
}

#[tokio::test]
async fn d_81_a_server_that_speaks_another_group_begins_everything_anew() {
    let (plane, store) = cluster().await;
    let mut followed = Followed::new(&store, Some(Duration::from_millis(500)));
    followed.ready().await;
    // Both: the old one is the one that stores.
    plane.define("tests/data/crds/v3.yaml", |_| {}).await;
    let client = plane.client().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let list: Value = client.request(get(crds)).await.expect("listed");
    for crd in list["items"].as_array().expect("a list") {
        if crd["spec"]["group"] == "crd.projectcalico.org" {
            plane.undefine(crd["metadata"]["name"].as_str().expect("a name")).await;
        }
    }
    // The gate closes at once, and after a while of the same answer everything begins anew.
    let mut closed = false;
    let look = |view: &View| {
        closed |= view.gate() == Err(NotReady::OtherGroup(Group::V3));
        false
    };
    let anew = followed.until(look).await.expect_err("begins anew");
    assert!(closed && anew.0.contains("projectcalico.org/v3"), "{anew}");
}

#[tokio::test]
async fn d_40_only_the_server_s_own_word_is_an_absence() {
    let (plane, store) = cluster().await;
    let client = plane.client().await;
    create(&client, "/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})).await;
    let container = json!({"name": "c", "image": "i"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"nodeName": "n", "containers": [container]},
    });
    create(&client, "/api/v1/namespaces/ns/pods", &pod).await;
    create(&client, "/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})).await;
    let connection = store.connection();
    let word = |lookup: Lookup<CoreObject>| match lookup {
        Lookup::Seen(_) => "seen",
        Lookup::Absent => "absent",
        Lookup::Unsure => "unsure",
    };
    plane.undefine("virtualmachines.kubevirt.io").await;
    for (watched, namespace, name, want) in [
        (Watched::Pod, "ns", "p", "seen"),
        (Watched::Pod, "ns", "q", "absent"),
        (Watched::Pod, "nowhere", "p", "absent"),
        (Watched::Node, "", "n", "seen"),
        (Watched::Node, "", "m", "absent"),
        (Watched::Vmi, "ns", "v", "absent"),
        // Attributes of allocations may say anything: what is no name is asked for by no other name.
        (Watched::Pod, "ns", "../../nodes/n", "unsure"),
        (Watched::Pod, "", "p", "unsure"),
        (Watched::Pod, "ns", "", "unsure"),
        (Watched::Node, "", "", "unsure"),
        (Watched::Node, "ns", "n", "unsure"),
    ] {
        assert_eq!(word(look(connection, watched, namespace, name).await), want, "{watched} {namespace}/{name}");
    }
    let gone = || async { if word(look(connection, Watched::Vm, "ns", "v").await) == "unsure" { Ok(()) } else { Err("served still") } };
    let done = gone.retry(ConstantBuilder::default().with_delay(Duration::from_millis(200)).with_max_times(100)).await;
    assert_eq!(done, Ok(()), "a kind that is not served proves nothing");
    let nobody = Connection::new(plane.access_as("nobody")).await.expect("a client");
    assert_eq!(word(look(&nobody, Watched::Pod, "ns", "q").await), "unsure", "nor does a refusal");
}

#[tokio::test]
async fn d_06_the_controllers_configuration_is_followed() {
    let (plane, store) = cluster().await;
    let client = plane.client().await;
    let mut followed = Followed::new(&store, None);
    followed.ready().await;
    assert_eq!(followed.view.settings(), None);
    let path = format!("{V1}/kubecontrollersconfigurations");
    let spec = json!({"controllers": {"node": {"leakGracePeriod": "7m0s"}}});
    create(&client, &path, &object("KubeControllersConfiguration", "default", spec)).await;
    let grace = |view: &View| view.settings().and_then(|s| s.leak_grace).map(|g| g.num_minutes());
    followed.until(|view| grace(view) == Some(7)).await.expect("goes on");
    remove(&client, &format!("{path}/default")).await;
    followed.until(|view| view.settings().is_none()).await.expect("goes on");
}
