//! What the library costs on a real API server: the library's table of spec/performance.md, on a control plane that this starts.
//!
//! `cargo run --release -p ipam-tests --bin bench-api`. Times are also given as multiples of the same run's median GET by name.

use std::collections::BTreeMap;

use futures::future::join_all;
use ipam::clock::Time;
use ipam::mem::Verb;
use ipam::model::{HandleKind, PoolKind};
use ipam::store::{Freshness, Table};
use ipam::{AutoAssign, Clock as _, Handle, HandleId, Ipam, Release, Snapshot, SystemClock};
use ipam_datastore::{Group, KubeStore};
use ipam_tests::control_plane::{ControlPlane, create};
use ipam_tests::lab::pool;
use serde_json::json;

type Requests = BTreeMap<(Verb, &'static str), u64>;
type Library = Ipam<KubeStore, SystemClock>;

/// The requests and the times of one row of the table.
struct Measure {
    name: &'static str,
    runs: u64,
    requests: Requests,
    times: Vec<f64>,
}

fn milliseconds(since: Time) -> f64 {
    (SystemClock.now() - since).num_microseconds().unwrap_or(i64::MAX) as f64 / 1000.0
}

fn difference(now: Requests, before: &Requests) -> Requests {
    now.into_iter().map(|(k, n)| (k, n - before.get(&k).copied().unwrap_or(0))).filter(|(_, n)| *n > 0).collect()
}

impl Measure {
    fn percentile(&self, share: f64) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times[((times.len() - 1) as f64 * share).round() as usize]
    }

    fn print(&self, unit: f64) {
        let total: u64 = self.requests.values().sum();
        let each: Vec<String> =
            self.requests.iter().map(|((verb, kind), n)| format!("{verb:?} {kind} {}", *n as f64 / self.runs as f64)).collect();
        let (p50, p90) = (self.percentile(0.5), self.percentile(0.9));
        println!(
            "| {} | {:.1} | {p50:.1} ms ({:.0} GETs) | {p90:.1} ms | {} |",
            self.name,
            total as f64 / self.runs as f64,
            p50 / unit,
            each.join(", ")
        );
    }
}

/// Runs each call by itself.
async fn one_by_one(ipam: &Library, name: &'static str, calls: &[AutoAssign]) -> Measure {
    let before = ipam.store().connection().requests();
    let mut times = Vec::new();
    for call in calls {
        let start = SystemClock.now();
        ipam.auto_assign(call).await.expect("assigned");
        times.push(milliseconds(start));
    }
    let requests = difference(ipam.store().connection().requests(), &before);
    Measure { name, runs: calls.len() as u64, requests, times }
}

async fn node(plane: &ControlPlane, name: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    create(&plane.client().await, "/api/v1/nodes", &node).await;
}

fn request(host: &str, handle: &str) -> AutoAssign {
    AutoAssign::new(host, "Workload", 1, 0).handle(handle).max_blocks(100)
}

async fn snapshot(ipam: &Library, host: &str) -> Snapshot {
    use ipam::model::{AffinityKind, Rows};
    let rows = Rows::Of(ipam::Owner::Host(host.into()));
    Snapshot {
        config: ipam.get_config().await.expect("read"),
        node: Default::default(),
        pools: Table::<PoolKind>::list(ipam.store(), &(), Freshness::Latest).await.expect("listed"),
        reserved: Default::default(),
        rows: Table::<AffinityKind>::list(ipam.store(), &rows, Freshness::Latest).await.expect("listed"),
    }
}

async fn together(ipam: &Library, name: &'static str, calls: &[AutoAssign]) -> (Measure, Vec<std::net::IpAddr>) {
    let (before, start) = (ipam.store().connection().requests(), SystemClock.now());
    let got = join_all(calls.iter().map(|call| ipam.auto_assign(call))).await;
    let times = vec![milliseconds(start)];
    let ips = got.into_iter().map(|g| g.expect("assigned").v4.expect("asked for").ips[0].addr()).collect();
    (Measure { name, runs: 1, requests: difference(ipam.store().connection().requests(), &before), times }, ips)
}

async fn release(ipam: &Library, ips: &[std::net::IpAddr], handles: &[String]) -> Measure {
    let mut exact = Vec::new();
    for (ip, handle) in ips.iter().zip(handles) {
        let held = ipam.assignment_attributes(*ip).await.expect("assigned");
        exact.push(Release::exact(*ip, Some(handle), held.seq, Some(held.block)));
    }
    let (before, start) = (ipam.store().connection().requests(), SystemClock.now());
    let report = ipam.release_ips(&exact).await.expect("released");
    assert!(report.outcomes.values().all(|o| *o == ipam::Outcome::Released));
    let times = vec![milliseconds(start)];
    let requests = difference(ipam.store().connection().requests(), &before);
    Measure { name: "ReleaseIPs, 1 920 addresses, a handle each", runs: 1, requests, times }
}

#[tokio::main]
async fn main() {
    let plane = ControlPlane::start(Group::V3).await;
    let store = KubeStore::new(plane.connection().await, Group::V3);
    let ipam = Ipam::new(store.clone(), SystemClock);
    Table::<PoolKind>::create(&store, &"pool".into(), pool("10.0.0.0/16")).await.expect("created");
    let hosts: Vec<String> = (0..40).map(|n| format!("node-{n}")).collect();
    join_all(hosts.iter().map(|h| node(&plane, h))).await;

    let mut gets = Vec::new();
    for _ in 0..200 {
        let start = SystemClock.now();
        Table::<PoolKind>::get(&store, &"pool".into()).await.expect("read");
        gets.push(milliseconds(start));
    }
    let unit = Measure { name: "GET", runs: 1, requests: Requests::new(), times: gets }.percentile(0.5);
    println!("median GET by name: {unit:.2} ms");
    println!("| work | requests | p50 | p90 | by verb and kind |\n|---|---|---|---|---|");

    let calls = |hosts: &[String], n: usize, what: &str| -> Vec<AutoAssign> {
        (0..n).map(|i| request(&hosts[i % hosts.len()], &format!("{what}-{i}"))).collect()
    };
    one_by_one(&ipam, "AutoAssign, first block of a host", &calls(&hosts[..20], 20, "first")).await.print(unit);
    one_by_one(&ipam, "AutoAssign, block at hand", &calls(&hosts[..1], 50, "hand")).await.print(unit);
    let known = snapshot(&ipam, &hosts[1]).await;
    let with: Vec<AutoAssign> = calls(&hosts[1..2], 50, "known").into_iter().map(|c| c.snapshot(known.clone())).collect();
    one_by_one(&ipam, "AutoAssign, block at hand, with a snapshot", &with).await.print(unit);
    together(&ipam, "400 AutoAssigns at once, 8 hosts", &calls(&hosts[20..28], 400, "at-once")).await.0.print(unit);

    let handles: Vec<String> = (0..1_920).map(|i| format!("bulk-{i}")).collect();
    let bulk: Vec<AutoAssign> = handles.iter().map(|h| request(&hosts[30], h)).collect();
    let (_, ips) = together(&ipam, "bulk", &bulk).await;
    release(&ipam, &ips, &handles).await.print(unit);

    // What an audit costs that lists handles instead of watching them (D-50).
    for n in 0..100 {
        let some = (0..100).map(|i| {
            let block = "10.255.0.0/26".parse().expect("a block");
            let value = Handle { id: format!("k8s-pod-network.{:064x}", n * 100 + i), blocks: [(block, 1)].into() };
            let store = &store;
            async move { Table::<HandleKind>::create(store, &HandleId::new(&value.id), value.clone()).await.expect("created") }
        });
        join_all(some).await;
    }
    let (before, start) = (store.connection().requests(), SystemClock.now());
    Table::<HandleKind>::list(&store, &(), Freshness::Latest).await.expect("listed");
    let requests = difference(store.connection().requests(), &before);
    Measure { name: "list of 10 000 handles and more", runs: 1, requests, times: vec![milliseconds(start)] }.print(unit);

    let (before, start) = (store.connection().requests(), SystemClock.now());
    ipam.utilization(&[]).await.expect("read");
    let requests = difference(store.connection().requests(), &before);
    Measure { name: "utilization", runs: 1, requests, times: vec![milliseconds(start)] }.print(unit);
}
