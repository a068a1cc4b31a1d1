//! Many workers over a few hosts that allocate, borrow, release by every route and claim and give back at random, while servers
//! are killed and started again. At no time has an address two owners; at the end the store agrees with the workers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use chrono::TimeDelta;
use ipam::affinity::Conditions;
use ipam::audit::{Finding, audit};
use ipam::model::{AffinityKind, Rows};
use ipam::store::{Freshness, Table};
use ipam::{AssignIp, AutoAssign, Clock as _, HandleId, Ipam, Outcome, Owner, Release, SystemClock, audit::Snapshot};
use ipam_datastore::KubeStore;

/// The CIDR of the pool that is hammered, with blocks of eight addresses: few, so that all contend.
pub const POOL: &str = "10.9.0.0/25@29";

type Library = Ipam<KubeStore, SystemClock>;

/// Who holds what, as the workers were told.
#[derive(Default)]
pub struct Held(Mutex<BTreeMap<IpAddr, String>>);

impl Held {
    /// A worker was told that an address is its own.
    fn take(&self, ip: IpAddr, handle: &str) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(ip, handle.into());
        assert_eq!(before, None, "{ip} was handed out to {handle} while another holds it");
    }

    /// A worker is about to release an address: from now on another may get it.
    fn give(&self, ip: IpAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&ip);
    }

    /// What is held now.
    pub fn all(&self) -> BTreeMap<IpAddr, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Random numbers of a worker: its seed tells them all.
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// One worker: its own client, one host, its own handles.
pub struct Worker<'a> {
    /// Its library.
    pub ipam: Library,
    /// What all hold.
    pub held: &'a Held,
    /// Its host.
    pub host: String,
    /// Its name, part of its handles.
    pub name: String,
    /// Its numbers.
    pub dice: Dice,
    /// How many operations it did, and how many had no certain end.
    pub done: usize,
    /// See `done`.
    pub unknown: usize,
    mine: BTreeMap<String, Vec<(IpAddr, i64)>>,
    next: usize,
}

impl<'a> Worker<'a> {
    /// A new one.
    pub fn new(ipam: Library, held: &'a Held, host: &str, name: String, seed: u64) -> Self {
        Self { ipam, held, host: host.into(), name, dice: Dice::new(seed), done: 0, unknown: 0, mine: BTreeMap::new(), next: 0 }
    }

    /// One operation.
    pub async fn step(&mut self) {
        self.done += 1;
        match self.dice.roll(12) {
            0..3 => self.allocate().await,
            3 => self.allocate_this().await,
            4..7 => self.release_exactly().await,
            7..10 => self.release_by_handle().await,
            10 => self.give_back().await,
            _ => drop(self.ipam.claim_affinity("10.9.0.64/29".parse().expect("a CIDR"), &self.host).await),
        }
    }

    fn handle(&mut self) -> String {
        self.next += 1;
        format!("hammer.{}-{}", self.name, self.next)
    }

    /// What it got; its identity is read back, or else it is nobody's any more.
    async fn keep(&mut self, handle: &str, ips: Vec<IpAddr>) {
        for ip in ips {
            self.held.take(ip, handle);
            match self.ipam.assignment_attributes(ip).await {
                Ok(found) => {
                    assert_eq!(found.handle.as_deref(), Some(handle), "{ip} is held by another");
                    self.mine.entry(handle.into()).or_default().push((ip, found.seq));
                }
                // It cannot be told: it stays held, and is released by handle only.
                Err(_) => self.mine.entry(handle.into()).or_default().push((ip, -1)),
            }
        }
    }

    async fn allocate(&mut self) {
        let handle = self.handle();
        let n = 1 + self.dice.roll(3);
        match self.ipam.auto_assign(&AutoAssign::new(&self.host, "Workload", n, 0).handle(&handle)).await {
            Ok(got) => {
                let got = got.v4.unwrap_or_default();
                self.unknown += usize::from(!got.unknown.is_empty());
                self.keep(&handle, got.ips.iter().map(ipnet::IpNet::addr).collect()).await;
            }
            Err(ipam::AssignError::Unknown(_)) => self.unknown += 1,
            Err(_) => {}
        }
    }

    async fn allocate_this(&mut self) {
        let handle = self.handle();
        let ip = IpAddr::from([10, 9, 0, self.dice.roll(128) as u8]);
        match self.ipam.assign_ip(&AssignIp::new(ip, &self.host).handle(&handle)).await {
            Ok(()) => self.keep(&handle, vec![ip]).await,
            Err(ipam::AssignError::Unknown(_)) => self.unknown += 1,
            Err(_) => {}
        }
    }

    fn pick(&mut self) -> Option<String> {
        let n = self.mine.len();
        if n == 0 { None } else { self.mine.keys().nth(self.dice.roll(n)).cloned() }
    }

    async fn release_exactly(&mut self) {
        let Some(handle) = self.pick() else { return };
        let Some((ip, seq)) = self.mine.get_mut(&handle).and_then(Vec::pop) else { return drop(self.mine.remove(&handle)) };
        self.held.give(ip);
        if seq < 0 {
            return;
        }
        match self.ipam.release_ips(&[Release::exact(ip, Some(&handle), seq, None)]).await {
            Ok(report) => match &report.outcomes[&ip] {
                Outcome::Released | Outcome::AlreadyFree => {}
                Outcome::Stale(why) => panic!("{ip} of {handle} was not its own any more: {why:?}"),
                Outcome::Failed(_) | Outcome::Unknown(_) => self.unknown += 1,
            },
            Err(_) => self.unknown += 1,
        }
    }

    async fn release_by_handle(&mut self) {
        let Some(handle) = self.pick() else { return };
        for (ip, _) in self.mine.remove(&handle).unwrap_or_default() {
            self.held.give(ip);
        }
        if self.ipam.release_by_handle(&HandleId::new(&handle)).await.is_err() {
            self.unknown += 1;
        }
    }

    async fn give_back(&mut self) {
        let owner = Owner::Host(self.host.clone());
        let rows = Table::<AffinityKind>::list(self.ipam.store(), &Rows::Of(owner.clone()), Freshness::Latest).await.unwrap_or_default();
        if rows.is_empty() {
            return;
        }
        let row = &rows[self.dice.roll(rows.len())];
        let must_be_empty = self.dice.roll(2) == 0;
        drop(self.ipam.release_block_affinity(&owner, row.key.1, Conditions { must_be_empty, seq: None }).await);
    }
}

/// Index repair until nothing is wrong, at most so often; what is left.
pub async fn repaired(ipam: &Library) -> Vec<Finding> {
    let mut left = Vec::new();
    for _ in 0..10 {
        let snapshot = Snapshot::read(ipam.store(), Vec::new(), false).await.expect("readable");
        left = audit(&snapshot, None, ipam::SystemClock.now() + TimeDelta::seconds(1));
        if left.is_empty() {
            break;
        }
        for finding in &left {
            drop(ipam.repair(finding).await);
        }
    }
    left
}
