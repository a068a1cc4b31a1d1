//! The hammer: see `ipam_tests::hammer`. `HAMMER_SECONDS` and `HAMMER_SEED` make it longer, and another one.

use std::time::Duration;

use chrono::TimeDelta;
use futures::future::join_all;
use ipam::clock::Time;
use ipam::model::PoolKind;
use ipam::store::Table;
use ipam::{Clock as _, Ipam, SystemClock};
use ipam_datastore::{Group, KubeStore};
use ipam_tests::control_plane::{ControlPlane, create};
use ipam_tests::hammer::{Held, POOL, Worker, repaired};
use ipam_tests::lab::pool;
use ipam_tests::say;
use serde_json::json;
use tokio::time::interval;

/// Workers, and hosts that they share.
const WORKERS: usize = 12;
const HOSTS: usize = 4;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Kills or slows down the API server and etcd in turn, and starts them again, until the time is over.
async fn trouble(plane: &mut ControlPlane, until: Time) -> usize {
    let mut every = interval(Duration::from_secs(4));
    every.tick().await;
    let mut times = 0;
    let mut slow = None;
    loop {
        every.tick().await;
        drop(slow.take());
        if SystemClock.now() >= until {
            return times;
        }
        times += 1;
        match times % 4 {
            1 => {
                plane.stop_server();
                plane.start_server();
            }
            2 => slow = Some(plane.slow_etcd()),
            3 => {
                plane.stop_etcd();
                plane.start_etcd();
            }
            _ => slow = Some(plane.slow_server()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_shares_an_address_whatever_happens_to_the_servers() {
    let (seconds, seed) = (number("HAMMER_SECONDS", 30), number("HAMMER_SEED", 1));
    say(format_args!("hammer: {seconds} s, seed {seed}"));
    let mut plane = ControlPlane::start(if seed % 2 == 0 { Group::V1 } else { Group::V3 }).await;
    let store = KubeStore::new(plane.connection().await, plane.group);
    Table::<PoolKind>::create(&store, &"pool".into(), pool(POOL)).await.expect("created");
    let client = plane.client().await;
    for n in 0..HOSTS {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("host-{n}")}});
        create(&client, "/api/v1/nodes", &node).await;
    }
    let held = Held::default();
    let mut workers = Vec::new();
    for n in 0..WORKERS {
        let ipam = Ipam::new(KubeStore::new(plane.connection().await, plane.group), SystemClock);
        workers.push(Worker::new(ipam, &held, &format!("host-{}", n % HOSTS), format!("w{n}"), seed * 1000 + n as u64));
    }
    let until = SystemClock.now() + TimeDelta::seconds(seconds as i64);
    let work = join_all(workers.iter_mut().map(|worker| async move {
        while SystemClock.now() < until {
            worker.step().await;
        }
    }));
    let (_, times) = tokio::join!(work, trouble(&mut plane, until));
    plane.ready().await;

    let (done, unknown) = workers.iter().fold((0, 0), |(a, b), w| (a + w.done, b + w.unknown));
    let ipam = Ipam::new(KubeStore::new(plane.connection().await, plane.group), SystemClock);
    let left = repaired(&ipam).await;
    assert!(left.is_empty(), "index repair leaves {left:?}");
    let all = held.all();
    for (ip, handle) in &all {
        let found = ipam.assignment_attributes(*ip).await.unwrap_or_else(|e| panic!("{ip} of {handle}: {e}"));
        assert_eq!(found.handle.as_deref(), Some(handle.as_str()), "{ip}");
    }
    let held = all.len();
    say(format_args!(
        "hammer: {done} operations, {unknown} without certain end, servers killed or slowed down {times} times, {held} addresses held, all of them stored"
    ));
    assert!(done > 100 && times > 2);
}
