//! A cluster in memory for tests of the library.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use chrono::TimeDelta;
use futures::executor::block_on;
use ipam::mem::{Kept, Verb};
use ipam::model::{
    AffinityKind, AffinityState, Allocatable, BlockKind, Config, ConfigKind, HandleKind, Node, NodeKind, Pool, PoolKind, Reservation,
    ReservationKind,
};
use ipam::store::{Extra, Revision, Row, Uid};
use ipam::{
    AssignError, Assigned, AutoAssign, Block, BlockCidr, Clock as _, Family, HandleId, HostReserve, Ipam, MemStore, Owner, Release,
    Snapshot,
};
use ipam_operator::clocks::SimClock;
use ipnet::IpNet;

use crate::faulty::Faulty;
use crate::script::start;

/// A store, a clock, and the library over them.
pub struct Lab {
    /// The store.
    pub store: MemStore,
    /// The store with faults that the library uses.
    pub faulty: Faulty,
    /// The clock.
    pub clock: Arc<SimClock>,
    /// The library.
    pub ipam: Ipam<Faulty, Arc<SimClock>>,
    rows: Cell<u64>,
}

/// An address.
pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A CIDR.
pub fn net(text: &str) -> IpNet {
    text.parse().expect("a CIDR")
}

/// A block's CIDR.
pub fn cidr(text: &str) -> BlockCidr {
    text.parse().expect("a CIDR")
}

/// The reservation W of the catalogue.
pub fn windows() -> HostReserve {
    HostReserve { first: 3, last: 1, handle: "windows-reserved-ipam-handle".into(), note: "windows host rsvd".into() }
}

/// A request for so many IPv4 addresses.
pub fn want(host: &str, n: usize) -> AutoAssign {
    AutoAssign::new(host, "Workload", n, 0)
}

/// A plain pool: `10.0.0.0/24@30`; without `@`: blocks of 26 or 122.
pub fn pool(text: &str) -> Pool {
    let (cidr, size) = text.split_once('@').map_or((text, None), |(c, s)| (c, s.parse().ok()));
    let parsed = cidr.parse::<IpNet>().map_err(|_| cidr.to_owned());
    let v6 = matches!(parsed, Ok(IpNet::V6(_)));
    Pool {
        cidr: parsed,
        block_size: size.unwrap_or(if v6 { 122 } else { 26 }),
        node_selector: "all()".into(),
        namespace_selector: String::new(),
        allowed_uses: vec!["Workload".into(), "Tunnel".into()],
        manual: false,
        disabled: false,
        deleting: false,
        allocatable: Allocatable::Unstated,
    }
}

impl Default for Lab {
    fn default() -> Self {
        let store = MemStore::new();
        let faulty = Faulty::new(store.clone());
        let clock = Arc::new(SimClock::new(start()));
        Self { ipam: Ipam::new(faulty.clone(), clock.clone()), store, faulty, clock, rows: Cell::new(0) }
    }
}

impl Lab {
    /// With these pools and nodes (`a`, or `a:foo=bar,x=y`).
    pub fn new(pools: &[&str], nodes: &[&str]) -> Self {
        let lab = Self::default();
        for p in pools {
            lab.put::<PoolKind>((*p).split('@').next().unwrap_or(p).into(), pool(p));
        }
        nodes.iter().for_each(|n| lab.node(n));
        lab
    }

    /// Adds a node.
    pub fn node(&self, text: &str) {
        let (name, labels) = text.split_once(':').unwrap_or((text, ""));
        let labels = labels.split(',').filter_map(|l| l.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
        self.put::<NodeKind>(name.into(), Node { labels });
    }

    /// Changes a pool.
    pub fn change_pool(&self, name: &str, change: impl FnOnce(&mut Pool)) {
        let mut value = self.store.peek::<PoolKind>(&name.to_owned()).map_or_else(|| pool(name), |(r, _)| r.value);
        change(&mut value);
        self.put::<PoolKind>(name.into(), value);
    }

    /// Sets the configuration.
    pub fn config(&self, change: impl FnOnce(&mut Config)) {
        let mut config = self.store.peek::<ConfigKind>(&()).map_or_else(Config::default, |(r, _)| r.value);
        change(&mut config);
        self.put::<ConfigKind>((), config);
    }

    /// Strict affinity on or off.
    pub fn strict(&self, on: bool) {
        self.config(|c| c.strict_affinity = on);
    }

    /// Reserves addresses.
    pub fn reserve(&self, name: &str, entries: &[&str]) {
        self.put::<ReservationKind>(name.into(), Reservation { entries: entries.iter().map(|e| (*e).into()).collect() });
    }

    /// Puts a row in, as somebody else would.
    pub fn put<K: Kept>(&self, key: K::Key, value: K::Value) {
        self.rows.set(self.rows.get() + 1);
        let known = self.store.peek::<K>(&key).map(|(r, _)| r.uid);
        let uid = known.unwrap_or_else(|| Uid(format!("lab-{}", self.rows.get())));
        self.store.put::<K>(Row { key, value, revision: Revision(format!("lab-{}", self.rows.get())), uid, extra: Extra::NONE }, false);
    }

    /// Another client of the store: another process.
    pub fn client(&self) -> Ipam<Faulty, Arc<SimClock>> {
        Ipam::new(self.faulty.clone(), self.clock.clone())
    }

    /// What the caller's own watch knows of a host.
    pub fn snapshot(&self, host: &str) -> Snapshot {
        let rows = |owner: &Owner| self.store.rows::<AffinityKind>().into_iter().filter(|r| r.key.0 == *owner).collect();
        Snapshot {
            config: self.store.peek::<ConfigKind>(&()).map_or_else(Config::default, |(r, _)| r.value),
            node: self.store.peek::<NodeKind>(&host.to_owned()).map(|(r, _)| r.value.labels).unwrap_or_default(),
            pools: self.store.rows::<PoolKind>(),
            reserved: self.store.rows::<ReservationKind>().iter().flat_map(|r| r.value.set().nets().collect::<Vec<_>>()).collect(),
            rows: rows(&Owner::Host(host.into())),
        }
    }

    /// Runs a request.
    pub fn assign(&self, args: &AutoAssign) -> Result<Assigned, AssignError> {
        let done = block_on(self.ipam.auto_assign(args));
        // Time passes, so that blocks made later have other numbers.
        self.wait_ms(1);
        done
    }

    /// IPv4 addresses of a request that must not fail.
    pub fn ips(&self, args: &AutoAssign) -> Vec<IpAddr> {
        let got = self.assign(args).unwrap_or_else(|e| panic!("{e}"));
        got.v4.or(got.v6).map(|g| g.ips.iter().map(IpNet::addr).collect()).unwrap_or_default()
    }

    /// Releases whatever is at an address.
    pub fn release(&self, ip: IpAddr) {
        block_on(self.ipam.release_ips(&[Release::anything(ip)])).expect("released");
    }

    /// Blocks, each with its owner's text.
    pub fn blocks(&self) -> Vec<(String, String)> {
        self.store.rows::<BlockKind>().into_iter().map(|r| (r.key.to_string(), r.value.affinity.unwrap_or_default())).collect()
    }

    /// A block.
    pub fn block(&self, c: &str) -> Option<Block> {
        self.store.peek::<BlockKind>(&cidr(c)).map(|(r, _)| r.value)
    }

    /// The block that holds an address.
    pub fn block_of(&self, ip: IpAddr) -> Block {
        self.store.rows::<BlockKind>().into_iter().find(|r| r.key.ordinal(ip).is_some()).expect("in a block").value
    }

    /// Affinity rows as `owner cidr state`.
    pub fn rows(&self) -> Vec<String> {
        let state = |s| match s {
            AffinityState::Confirmed => "confirmed",
            AffinityState::Pending => "pending",
            AffinityState::PendingDeletion => "pendingDeletion",
            AffinityState::Old => "old",
        };
        self.store.rows::<AffinityKind>().into_iter().map(|r| format!("{} {} {}", r.key.0, r.key.1, state(r.value.state))).collect()
    }

    /// Counts of a handle; `None`: there is none.
    pub fn count(&self, handle: &str) -> Option<i64> {
        self.store.peek::<HandleKind>(&HandleId::new(handle)).map(|(r, _)| r.value.blocks.values().sum())
    }

    /// Lets time pass.
    pub fn wait(&self, seconds: i64) {
        self.wait_ms(seconds * 1000);
    }

    /// Lets milliseconds pass.
    pub fn wait_ms(&self, ms: i64) {
        self.clock.set(self.clock.now() + TimeDelta::milliseconds(ms));
    }

    /// Requests since `before`, in all.
    pub fn requests_since(&self, before: &std::collections::BTreeMap<(Verb, &'static str), u64>) -> u64 {
        self.store.requests().iter().map(|(k, n)| n - before.get(k).copied().unwrap_or(0)).sum()
    }

    /// Nothing in the store contradicts anything: `audit` is clean.
    pub fn assert_clean(&self) {
        let snapshot = block_on(ipam::audit::Snapshot::read(&self.store, Vec::new(), false)).expect("readable");
        let findings = ipam::audit::audit(&snapshot, None, self.clock.now() + TimeDelta::seconds(1));
        let problems: Vec<_> = findings.into_iter().filter(ipam::audit::Finding::is_problem).collect();
        assert_eq!(problems, [], "the store is inconsistent");
    }
}

/// Lets a call go on for so many round trips; it must not end.
pub fn go<F: Future>(call: &mut Pin<&mut F>, trips: usize) {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..trips {
        assert!(call.as_mut().poll(&mut context).is_pending(), "under way");
    }
}

/// Lets a call go on until the store is as described; it must not end before.
pub fn go_until<F: Future>(call: &mut Pin<&mut F>, there: impl Fn() -> bool) {
    while !there() {
        go(call, 1);
    }
}

/// All different, and all inside.
pub fn all_in(ips: &[IpAddr], pool: &str) {
    let set: BTreeSet<_> = ips.iter().collect();
    assert_eq!(set.len(), ips.len(), "an address twice");
    assert!(ips.iter().all(|ip| net(pool).contains(ip)), "{ips:?} in {pool}");
}

/// The family's number as a family.
pub fn family(v6: bool) -> Family {
    if v6 { Family::V6 } else { Family::V4 }
}
