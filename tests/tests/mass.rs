//! Two thousand leaks at once, on a real API server: what they cost.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use ipam::block::{Attribute, Block};
use ipam::ids::{BlockCidr, HandleId, Owner};
use ipam::mem::Verb;
use ipam::model::{Affinity, AffinityKind, AffinityState, BlockKind, ClusterInfo, ClusterKind, Handle, HandleKind};
use ipam::store::Table;
use ipam::{Clock, Ipam};
use ipam_accounting::schedule::Time;
use ipam_datastore::live::Follower;
use ipam_datastore::{Group, KubeStore};
use ipam_operator::clocks::SimClock;
use ipam_operator::config::OperatorConfig;
use ipam_operator::look::Live;
use ipam_operator::plan::Now;
use ipam_operator::run::Operator;
use ipam_operator::view::View;
use ipam_tests::control_plane::{ControlPlane, create};
use serde_json::json;

const BLOCKS: u16 = 32;
const LEAKS: usize = 2000;

async fn a_cluster_of_leaks(store: &KubeStore, plane: &ControlPlane) {
    let client = plane.client().await;
    for (path, kind) in [("/api/v1/nodes", "Node"), ("/api/v1/namespaces/default/pods", "Pod")] {
        let spec = json!({ "containers": [{ "name": "x", "image": "x" }], "nodeName": "a", "automountServiceAccountToken": false });
        let spec = if kind == "Pod" { spec } else { json!({}) };
        create(&client, path, &json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "a" }, "spec": spec })).await;
    }
    Table::<ClusterKind>::create(store, &(), ClusterInfo { guid: "g".into(), ready: Some(true) }).await.expect("created");
    let mut left = LEAKS;
    for b in 0..BLOCKS {
        let cidr: BlockCidr = format!("10.{}.{}.0/26", b / 256, b % 256).parse().expect("a block");
        let mut block = Block::new(cidr, None, 1000).expect("a block");
        block.affinity = Some("host:a".into());
        for o in 0..64_u32.min(left as u32) {
            let handle = format!("h-{b}-{o}");
            let active = [("namespace", "ns".to_owned()), ("pod", format!("p-{b}-{o}")), ("node", "a".into())];
            let active = active.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            block.attributes.push(Attribute { handle: Some(handle.clone()), active, ..Attribute::default() });
            block.allocations[o as usize] = Some(o);
            block.seqs.insert(o, 1);
            block.unallocated.retain(|free| *free != o);
            let value = Handle { id: handle.clone(), blocks: BTreeMap::from([(cidr, 1)]) };
            Table::<HandleKind>::create(store, &HandleId::new(&handle), value).await.expect("created");
            left -= 1;
        }
        Table::<BlockKind>::create(store, &cidr, block).await.expect("created");
        let row = Affinity { state: AffinityState::Confirmed, indexed: true };
        Table::<AffinityKind>::create(store, &(Owner::Host("a".into()), cidr), row).await.expect("created");
    }
}

/// Releases all of them; answers with the requests, the last look aside, and with the number of passes that released something.
async fn release_all(plane: &ControlPlane, setup: &KubeStore, config: &OperatorConfig) -> (BTreeMap<(Verb, &'static str), u64>, usize) {
    let (feeding, own) = (KubeStore::new(plane.connection().await, Group::V3), plane.connection().await);
    let mut source = Follower::new(&feeding, None, true);
    let clock = std::sync::Arc::new(SimClock::new(Time::UNIX_EPOCH + TimeDelta::days(20_000)));
    let ipam = Ipam::new(KubeStore::new(own.clone(), Group::V3), clock.clone());
    let look = Live { connection: own.clone(), at_once: 16 };
    let mut operator = Operator::new(View::live(), config);
    while operator.view.gate().is_err() {
        source.ready().await;
        operator.step(&ipam, &look, &mut source, Now::both(clock.now())).await.expect("follows");
    }
    clock.set(clock.now() + TimeDelta::minutes(15));
    let (mut released, mut passes) = (0, 0);
    while released < LEAKS {
        let done = operator.step(&ipam, &look, &mut source, Now::both(clock.now())).await.expect("follows");
        assert_eq!(done.failures, [], "{:?}", done.refusals);
        let now = done.events.iter().filter(|e| e.action == "release-address").count();
        if now == 0 {
            clock.set(done.next_due.expect("more is due").max(clock.now() + TimeDelta::milliseconds(100)));
        }
        released += now;
        passes += usize::from(now > 0);
    }
    assert_eq!(released, LEAKS);
    let blocks = Table::<BlockKind>::list(setup, &(), ipam::store::Freshness::Latest).await.expect("listed");
    assert!(blocks.iter().all(|b| b.value.allocated().next().is_none()));
    assert_eq!(Table::<HandleKind>::list(setup, &(), ipam::store::Freshness::Latest).await.expect("listed").len(), 0);
    let looks = ["Pod", "Node", "VirtualMachine", "VirtualMachineInstance"];
    (own.requests().into_iter().filter(|((_, kind), _)| !looks.contains(kind)).collect(), passes)
}

async fn cost_of(config: OperatorConfig) -> usize {
    let plane = ControlPlane::start(Group::V3).await;
    let setup = KubeStore::new(plane.connection().await, Group::V3);
    a_cluster_of_leaks(&setup, &plane).await;
    let (all, passes) = release_all(&plane, &setup, &config).await;
    let requests: u64 = all.values().sum();
    let most = LEAKS as u64 * 12 / 10 + u64::from(BLOCKS);
    println!("{requests} requests for {LEAKS} handles in {BLOCKS} blocks and {passes} passes, at most {most}: {all:?}");
    assert!(requests <= most, "{requests} requests: {all:?}");
    passes
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_leaks_cost_at_most_a_request_and_a_fifth_each_and_one_a_block() {
    let mut config = OperatorConfig::default();
    // All at once: neither brake nor rate.
    config.brake.share = 1.0;
    config.rate.per_second = 0;
    assert!(cost_of(config).await <= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_leaks_at_fifty_a_second_cost_no_more() {
    let mut config = OperatorConfig::default();
    config.brake.share = 1.0;
    // 500 at once, then 50 a second.
    assert!(cost_of(config).await >= 31);
}
