//! On a live cluster, in both API groups: it does what a simulation on the same objects does.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write as _;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use chrono::TimeDelta;
use ipam::model::{AffinityKind, BlockKind, HandleKind};
use ipam::store::{Datastore, Freshness, Kind, Table};
use ipam::{Block, MemStore};
use ipam_datastore::text::time;
use ipam_datastore::{Group, KubeStore};
use ipam_operator::config::OperatorConfig;
use ipam_operator::session::Session;
use ipam_tests::control_plane::ControlPlane;

use super::{Running, get, operator, repo};

const COOLDOWN: &str = "ipCooldownSeconds";

/// Every row of a kind, as text by key.
async fn rows<K: Kind>(store: &impl Table<K>, all: &mut BTreeMap<String, String>, text: impl Fn(&K::Value) -> String)
where
    K::Key: Debug,
{
    for row in Table::<K>::list(store, &K::Select::default(), Freshness::Latest).await.expect("listed") {
        all.insert(format!("{} {:?}", K::NAME, row.key), text(&row.value));
    }
}

/// What is stored, without what depends on when it was stored.
async fn state(store: &impl Datastore) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    rows::<BlockKind>(store, &mut all, |block: &Block| format!("{block:#?}")).await;
    rows::<AffinityKind>(store, &mut all, |affinity| format!("{affinity:?}")).await;
    rows::<HandleKind>(store, &mut all, |handle| format!("{handle:?}")).await;
    all
}

/// What a simulation on the dump ends with, everything that waits waiting for 2 s.
async fn simulated(file: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(repo(file)).expect("the example").replace("ipCooldownSeconds: 120", "ipCooldownSeconds: 2");
    let mut dump = tempfile::NamedTempFile::new().expect("a file");
    dump.write_all(text.as_bytes()).expect("written");
    let store: MemStore = std::thread::scope(|scope| {
        let run = || {
            let two = TimeDelta::seconds(2);
            let config = OperatorConfig { leak_grace: Some(two), vm_floor: two, ..OperatorConfig::default() };
            let mut session = Session::load(&[dump.path().to_path_buf()], &[], &config, &mut |_| {}).expect("loads");
            session.fast_forward(time("2026-11-29T20:35:20Z").expect("a time"));
            session.dump.store.clone()
        };
        scope.spawn(run).join().expect("runs")
    });
    state(&store).await
}

/// A control plane with these objects, and a cooldown of 2 s where they say two minutes.
pub async fn filled(group: Group, file: &str) -> ControlPlane {
    let plane = ControlPlane::start(group).await;
    plane
        .fill_with(file, |object| {
            if object["spec"][COOLDOWN] == 120 {
                object["spec"][COOLDOWN] = 2.into();
            }
        })
        .await;
    plane
}

/// Runs the operator on the example; `away`: the API server is not there when it starts.
async fn on_a_live_cluster(group: Group, file: &str, away: bool) {
    let mut plane = filled(group, file).await;
    let want = simulated(file).await;
    let store = KubeStore::new(plane.connection().await, group);
    assert_ne!(state(&store).await, want, "there is something to do");

    if away {
        plane.stop_server();
    }
    let kubeconfig = plane.access().kubeconfig.expect("a file").display().to_string();
    let waits = ["--leak-grace-period", "2s", "--vm-grace-period", "2s"];
    let mut running = Running::start(operator(&["run", "--kubeconfig", &kubeconfig, "--listen", "127.0.0.1:0"]).args(waits));
    let address = running.address();
    if away {
        // It was started while the API server was not there.
        running.says("cannot be found out");
        assert!(get(&address, "/readyz").expect("answers").1.starts_with("not ready: "));
        plane.start_server();
    }
    let ends = || async { if state(&store).await == want { Ok(()) } else { Err(()) } };
    let ended = ends.retry(ConstantBuilder::default().with_delay(Duration::from_millis(500)).with_max_times(120)).await;
    if ended.is_err() {
        let got = state(&store).await;
        let differs = |(key, value): &(&String, &String)| got.get(*key) != Some(*value);
        let missing: Vec<_> = want.iter().filter(differs).map(|(k, v)| (k, v, got.get(k))).collect();
        let more: Vec<_> = got.keys().filter(|k| !want.contains_key(*k)).collect();
        panic!("it does not end as the simulation did: {missing:#?}, more than wanted: {more:#?}");
    }
    let ready = get(&address, "/readyz").expect("answers").1;
    assert!(ready.starts_with("ok\n") && ready.contains("namespace ok\n") && ready.ends_with("active\n"), "{ready}");
    let page = get(&address, "/metrics").expect("answers").1;
    assert!(page.contains("ipam_ippool_size{ippool=\"default-v4\"} 16384\n"), "{page}");
    running.stop("-TERM");
    assert_eq!(state(&store).await, want, "and nothing more happens");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_live_v1_cluster_it_ends_as_the_simulation_does() {
    on_a_live_cluster(Group::V1, "examples/leaky-cluster.yaml", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_live_v3_cluster_it_ends_as_the_simulation_does() {
    on_a_live_cluster(Group::V3, "examples/leaky-cluster.v3.yaml", true).await;
}

/// A release that runs while somebody wants it to stop, on a store that stands still, is abandoned: the end is clean and in time, and the
/// next start goes on from there.
#[tokio::test(flavor = "multi_thread")]
async fn f_it_ends_in_time_although_a_release_hangs() {
    let file = "examples/leaky-cluster.v3.yaml";
    let plane = filled(Group::V3, file).await;
    let want = simulated(file).await;
    let kubeconfig = plane.access().kubeconfig.expect("a file").display().to_string();
    let args = ["run", "--kubeconfig", &kubeconfig, "--listen", "127.0.0.1:0", "--leak-grace-period", "2s", "--vm-grace-period", "2s"];
    let mut running = Running::start(&mut operator(&args));
    let address = running.address();
    // The first releases are those of departed nodes; the others wait for two seconds.
    running.says("address released");
    let frozen = plane.freeze_etcd();
    super::chart::until("a request hangs", async || {
        get(&address, "/metrics")
            .is_some_and(|(_, page)| page.lines().any(|l| l.starts_with("ipam_gc_leaks") && l.contains("due") && !l.ends_with(" 0")))
            || get(&address, "/readyz").is_some()
    })
    .await;
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time");
    running.stop("-TERM");
    let took = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a time") - since;
    assert!(took < Duration::from_secs(15), "it took {took:?}");
    drop(frozen);
    let store = KubeStore::new(plane.connection().await, Group::V3);
    let mut again = Running::start(&mut operator(&args));
    again.address();
    super::chart::until("it goes on from there", async || state(&store).await == want).await;
    again.stop("-TERM");
}
