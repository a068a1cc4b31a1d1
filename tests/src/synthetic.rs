//! A made-up cluster of realistic names, for benchmarks: handles of 60 characters, pods of 30, nodes of 40, 64 addresses
//! a block, each of a pod of its own that reports it.

use std::net::{IpAddr, Ipv4Addr};

use chrono::TimeDelta;
use ipam::block::{Attribute, Block};
use ipam::clock::Time;
use ipam::model::{BlockKind, Pool, PoolKind};
use ipam::store::{Event, Extra, Revision, Row, Uid};
use ipam::{BlockCidr, model::Allocatable};
use ipam_accounting::facts::{Attrs, Lookup, NodeFacts, PodFacts};
use ipam_accounting::inventory::{Trust, Trusts};
use ipam_datastore::Update;
use ipam_operator::view::View;
use ipnet::Ipv4Net;

/// Addresses a block.
pub const BLOCK: u32 = 64;
/// Blocks a node.
const PER_NODE: u32 = 4;
const BASE: u32 = 10 << 24;

/// When the cluster is looked at.
pub fn now() -> Time {
    Time::UNIX_EPOCH + TimeDelta::days(20_000)
}

fn node(n: u32) -> String {
    format!("ip-10-{n:06}.eu-central-1.compute.internal")
}

fn pod(n: u32) -> String {
    format!("deployment-name-{n:07}-abcdef")
}

fn ip(n: u32) -> IpAddr {
    IpAddr::from(Ipv4Addr::from(BASE + n))
}

/// The block that holds address number `n`, with `seq` as its number; every 64th address of it is without pod when
/// `leaky`.
pub fn block(first: u32, seq: i64, leaky: bool) -> Update {
    let cidr = BlockCidr::new(Ipv4Net::new(Ipv4Addr::from(BASE + first), 26).expect("a prefix").into()).expect("a block");
    let mut block = Block::new(cidr, None, seq).expect("fits");
    let owner = node(first / BLOCK / PER_NODE);
    block.affinity = Some(format!("host:{owner}"));
    block.unallocated.clear();
    for o in 0..BLOCK {
        let name = if leaky && o == 0 { format!("gone-{first}") } else { pod(first + o) };
        let active =
            Attrs::from([("namespace".to_owned(), "production".to_owned()), ("pod".to_owned(), name), ("node".to_owned(), owner.clone())]);
        let handle = Some(format!("k8s-pod-network.{:044x}", u128::from(first + o) << 64 | 0xfeed));
        block.attributes.push(Attribute { handle, active, ..Attribute::default() });
        block.allocations[o as usize] = Some(o);
        block.seqs.insert(o, seq);
    }
    let row =
        Row::<BlockKind> { key: cidr, value: block, revision: Revision(format!("{seq}")), uid: Uid(String::new()), extra: Extra::NONE };
    Update::Block(Event::Put(row))
}

fn pool(name: String, cidr: Ipv4Net) -> Update {
    let value = Pool {
        cidr: Ok(cidr.into()),
        block_size: 26,
        node_selector: "all()".into(),
        namespace_selector: String::new(),
        allowed_uses: vec!["Workload".into()],
        manual: false,
        disabled: false,
        deleting: false,
        allocatable: Allocatable::Unstated,
    };
    let row = Row::<PoolKind> { key: name, value, revision: Revision("1".into()), uid: Uid(String::new()), extra: Extra::NONE };
    Update::Pool(Event::Put(row))
}

/// Makes one address a block leaked: it is allocated to a pod that never was, and nobody reports it.
pub fn leak_one_a_block(view: &mut View, n: u32) {
    for first in (0..n).step_by(BLOCK as usize) {
        view.apply(&Update::Pod("production".into(), pod(first), Lookup::Absent));
        view.apply(&block(first, 2, true));
    }
}

/// A view of `n` allocated addresses in which nothing is due, ready for passes.
pub fn view(n: u32) -> View {
    let mut view = View::new();
    for kind in
        [Update::Block(Event::Synced), Update::Affinity(Event::Synced), Update::Pool(Event::Synced), Update::Reservation(Event::Synced)]
    {
        view.apply(&kind);
    }
    view.apply(&Update::Config(Ok(Event::Synced)));
    view.apply(&Update::Cluster(Ok(Event::Synced)));
    for i in 0..50u32 {
        view.apply(&pool(format!("pool-{i:02}"), Ipv4Net::new(Ipv4Addr::from(BASE + (i << 15)), 17).expect("a prefix")));
    }
    for i in 0..=n / BLOCK / PER_NODE {
        view.apply(&Update::Node(node(i), Lookup::Seen(NodeFacts::default())));
    }
    for i in 0..n {
        let facts =
            PodFacts { node: Some(node(i / BLOCK / PER_NODE)), ips: [ip(i)].into_iter().collect(), reported: true, ..PodFacts::default() };
        view.apply(&Update::Pod("production".into(), pod(i), Lookup::Seen(facts)));
    }
    for first in (0..n).step_by(BLOCK as usize) {
        view.apply(&block(first, 1, false));
    }
    view.apply(&Update::Trusts(Trusts { pods: Trust::Full, nodes: true, vms: true, vmis: true, affinities: false, not_if_empty: false }));
    view
}
