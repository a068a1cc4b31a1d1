//! On a real API server, in both groups: the example cluster as the reference stored it, read and changed by us.

use std::path::PathBuf;
use std::pin::pin;

use ipam::model::{AffinityKind, BlockKind, ConfigKind, HandleKind};
use ipam::store::{Freshness, Kind, Row, Table};
use ipam::{AssignIp, AutoAssign, Block, HandleId, Ipam, Outcome, Owner, Release, SystemClock};
use ipam_accounting::schedule::Limits;
use ipam_datastore::text::time;
use ipam_datastore::wire::Wire;
use ipam_datastore::{Group, KubeStore};
use ipam_tests::control_plane::{ControlPlane, get, replace};
use ipam_tests::lab::{all_in, ip};
use ipam_tests::repo;
use ipamctl::args::Source;
use ipamctl::check::check;
use ipamctl::snapshot::loaded;
use serde_json::{Value, json};

const EXAMPLES: [(Group, &str); 2] = [(Group::V1, "examples/leaky-cluster.yaml"), (Group::V3, "examples/leaky-cluster.v3.yaml")];

fn source(from: Vec<PathBuf>, kubeconfig: Option<PathBuf>) -> Source {
    Source { from, kubeconfig, ..Source::default() }
}

/// What `ipamctl check` says, on a thread of its own: it starts its own runtime.
fn report(source: Source) -> Value {
    std::thread::scope(|scope| {
        let run = || {
            let now = time("2026-11-29T20:35:20Z").expect("a time");
            serde_json::to_value(check(&loaded(&source, &[]).expect("loads"), &Limits::default(), now)).expect("JSON")
        };
        scope.spawn(run).join().expect("runs")
    })
}

/// An object without what changes with every write.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["resourceVersion", "generation", "managedFields"] {
        object["metadata"].as_object_mut().expect("metadata").remove(field);
    }
    object
}

async fn raw<K: Wire>(plane: &ControlPlane, key: &K::Key) -> Value {
    let path = format!("/apis/{}/{}/{}", plane.group.api_version(), K::plural(plane.group), K::object_name(key));
    plane.client().await.request(get(&path)).await.expect("there")
}

/// Writes every row of a kind back with a change that `change` makes to both the row and the object; nothing else may differ.
async fn rewrite<K: Wire>(plane: &ControlPlane, store: &KubeStore, change: impl Fn(&mut K::Value, &mut Value)) -> usize
where
    KubeStore: Table<K>,
    K::Select: Default,
{
    let rows: Vec<Row<K>> = Table::<K>::list(store, &K::Select::default(), Freshness::Latest).await.expect("listed");
    for mut row in rows.clone() {
        let mut want = raw::<K>(plane, &row.key).await;
        change(&mut row.value, &mut want);
        Table::<K>::update(store, row.clone()).await.expect("updated");
        assert_eq!(essence(&raw::<K>(plane, &row.key).await), essence(&want), "{} {:?}", <K as Kind>::NAME, row.key);
    }
    rows.len()
}

async fn on_the_example(group: Group, file: &str) {
    let plane = ControlPlane::start(group).await;
    plane.fill(file).await;
    // Read live, the cluster is the dump.
    let live = report(source(Vec::new(), plane.access().kubeconfig));
    assert_eq!(live, report(source(vec![repo(file)], None)), "ipamctl check says the same of the cluster as of its dump");

    // What we do not change survives: unknown members, labels and annotations of others, spellings.
    let store = KubeStore::new(plane.connection().await, group);
    let touched = rewrite::<BlockKind>(&plane, &store, |block: &mut Block, object| {
        block.seq += 1;
        object["spec"]["sequenceNumber"] = block.seq.into();
    });
    assert_eq!(touched.await, 17);
    let counted = rewrite::<HandleKind>(&plane, &store, |handle, object| {
        // The reference always writes it; one row was made by hand.
        object["spec"]["deleted"] = false.into();
        for (cidr, n) in &mut handle.blocks {
            *n += 1;
            object["spec"]["block"][cidr.to_string()] = (*n).into();
        }
    });
    assert!(counted.await >= 74, "one is half deleted");
    let configured = rewrite::<ConfigKind>(&plane, &store, |config, object| {
        config.cooldown_seconds = 121;
        object["spec"]["ipCooldownSeconds"] = 121.into();
    });
    assert_eq!(configured.await, 1);
    assert_eq!(rewrite::<AffinityKind>(&plane, &store, |_, _| {}).await, 19);
}

#[tokio::test]
async fn the_example_cluster_in_v1() {
    let (group, file) = EXAMPLES[0];
    on_the_example(group, file).await;
}

#[tokio::test]
async fn the_example_cluster_in_v3() {
    let (group, file) = EXAMPLES[1];
    on_the_example(group, file).await;
}

#[tokio::test]
async fn the_library_s_operations_on_a_live_cluster() {
    for (group, file) in EXAMPLES {
        let plane = ControlPlane::start(group).await;
        plane.fill(file).await;
        let store = KubeStore::new(plane.connection().await, group);
        let ipam = Ipam::new(store.clone(), SystemClock);
        let request = AutoAssign::new("node-a", "Workload", 2, 1).handle("k8s-pod-network.live");
        let got = ipam.auto_assign(&request).await.expect("assigned");
        let (v4, v6) = (got.v4.expect("asked for").ips, got.v6.expect("asked for").ips);
        assert_eq!((v4.len(), v6.len()), (2, 1), "{group}");
        all_in(&v4.iter().map(|n| n.addr()).collect::<Vec<_>>(), "10.48.0.0/16");
        let mut has = ipam.ips_by_handle("k8s-pod-network.live").await.expect("read").expect("there");
        has.sort();
        let mut want: Vec<_> = v4.iter().chain(&v6).map(|n| n.addr()).collect();
        want.sort();
        assert_eq!(has, want);
        // One by its identity, a stale one left alone, the rest by handle.
        let held = ipam.assignment_attributes(v4[0].addr()).await.expect("assigned");
        let exact = |seq| [Release::exact(v4[0].addr(), Some("k8s-pod-network.live"), seq, None)];
        let stale = ipam.release_ips(&exact(held.seq + 1)).await.expect("ran");
        assert!(matches!(stale.outcomes[&v4[0].addr()], Outcome::Stale(_)));
        let done = ipam.release_ips(&exact(held.seq)).await.expect("ran");
        assert_eq!((&done.outcomes[&v4[0].addr()], done.handles_behind.len()), (&Outcome::Released, 0));
        assert_eq!(ipam.release_by_handle(&HandleId::new("k8s-pod-network.live")).await.expect("released").len(), 2);
        assert_eq!(Table::<HandleKind>::get(&store, &HandleId::new("k8s-pod-network.live")).await, Ok(None));
        // An address by name, in a block of its own, which is given back with its host's others.
        let mut config = ipam.get_config().await.expect("read");
        config.cooldown_seconds = 0;
        ipam.set_config(&config).await.expect("set");
        let single = ip("10.48.20.9");
        ipam.assign_ip(&AssignIp::new(single, "node-new").handle("one")).await.expect("assigned");
        assert_eq!(ipam.release_by_handle(&HandleId::new("one")).await, Ok(vec![single]));
        let owner = Owner::Host("node-new".into());
        let rows = Table::<AffinityKind>::list(&store, &ipam::model::Rows::Of(owner), Freshness::Latest).await.expect("listed");
        assert_eq!(rows.len(), 1);
        assert!(pin!(ipam.release_host("node-new", true)).await.expect("listed").complete());
        assert_eq!(Table::<BlockKind>::get(&store, &rows[0].key.1).await, Ok(None));
    }
}

/// The server prunes what its definitions do not know, so these know more than we do.
#[tokio::test]
async fn d_85_fields_of_the_future_survive() {
    let plane = ControlPlane::bare(Group::V3).await;
    let future = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    plane
        .define("tests/data/crds/v3.yaml", |crd| {
            let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
            spec["properties"]["futureField"] = future.clone();
            if crd["spec"]["names"]["kind"] == "IPAMBlock" {
                let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
                spec["properties"]["attributes"]["items"]["properties"]["futureField"] = future.clone();
            }
        })
        .await;
    plane.define("tests/data/crds/kubevirt.yaml", |_| {}).await;
    plane.fill(EXAMPLES[1].1).await;
    let store = KubeStore::new(plane.connection().await, Group::V3);
    let client = plane.client().await;
    let path = "/apis/projectcalico.org/v3/ipamblocks/10-48-46-128-26";
    let mut block: Value = client.request(get(path)).await.expect("there");
    block["spec"]["futureField"] = json!({"a": [1, "two"]});
    block["spec"]["attributes"][0]["futureField"] = json!({"b": true});
    block["metadata"]["labels"] = json!({"theirs": "yes"});
    block["metadata"]["annotations"] = json!({"theirs": "too"});
    replace(&client, path, &block).await;
    // An address more, and one less.
    let ipam = Ipam::new(store, SystemClock);
    let got = ipam.auto_assign(&AutoAssign::new("node-a", "Workload", 1, 0).handle("h")).await.expect("assigned");
    all_in(&[got.v4.expect("asked for").ips[0].addr()], "10.48.46.128/26");
    assert_eq!(ipam.release_by_handle(&HandleId::new("h")).await.map(|ips| ips.len()), Ok(1));
    let after: Value = client.request(get(path)).await.expect("there");
    assert_eq!(after["spec"]["futureField"], block["spec"]["futureField"]);
    let kept = |v: &Value| v["futureField"] == json!({"b": true});
    assert!(after["spec"]["attributes"].as_array().expect("a list").iter().any(kept));
    assert_eq!((&after["metadata"]["labels"], &after["metadata"]["annotations"]["theirs"]), (&json!({"theirs": "yes"}), &json!("too")));
}
