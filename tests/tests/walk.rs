//! Random walks over all operations against a model: a map from address to handle.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures::executor::block_on;
use ipam::affinity::Conditions;
use ipam::audit::{self, Snapshot};
use ipam::model::BlockKind;
use ipam::owners::{OwnerRef, OwnerUpdate, Side};
use ipam::{AssignIp, AutoAssign, Clock as _, HandleId, Outcome, Owner, Release};
use ipam_tests::lab::{Lab, ip, net};

/// A linear congruential generator: the printed seed tells the walk.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len())]
    }
}

const HOSTS: [&str; 3] = ["a", "b", "c"];
const HANDLES: [&str; 8] = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"];

struct Walk {
    lab: Lab,
    dice: Dice,
    /// Who has which address.
    model: BTreeMap<IpAddr, String>,
    done: BTreeMap<&'static str, usize>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let lab = Lab::new(&["10.0.0.0/27@29", "10.1.0.0/28@30", "fd00::/122@125"], &HOSTS);
        lab.config(|c| c.cooldown_seconds = 30);
        Self { lab, dice: Dice(seed), model: BTreeMap::new(), done: BTreeMap::new() }
    }

    fn held(&mut self) -> Option<(IpAddr, String)> {
        let held: Vec<_> = self.model.iter().map(|(i, h)| (*i, h.clone())).collect();
        (!held.is_empty()).then(|| self.dice.pick(&held).clone())
    }

    fn attrs(handle: &str) -> ipam_accounting::facts::Attrs {
        [("pod".into(), handle.into()), ("namespace".into(), "ns".into())].into()
    }

    fn auto_assign(&mut self) {
        let (host, handle) = (*self.dice.pick(&HOSTS), *self.dice.pick(&HANDLES));
        let (v4, v6) = (1 + self.dice.roll(4), self.dice.roll(2));
        let mut args = AutoAssign::new(host, "Workload", v4, v6).handle(handle).attrs(Self::attrs(handle));
        if self.dice.roll(4) == 0 {
            args = args.max_blocks(2);
        }
        let Ok(got) = self.lab.assign(&args) else { return };
        for ip in [got.v4, got.v6].into_iter().flatten().flat_map(|g| g.ips).map(|n| n.addr()) {
            assert_eq!(self.model.insert(ip, handle.into()), None, "{ip} was somebody's");
        }
    }

    fn assign_ip(&mut self) {
        let (host, handle) = (*self.dice.pick(&HOSTS), *self.dice.pick(&HANDLES));
        let at = ip(&format!("10.0.0.{}", self.dice.roll(32)));
        let args = AssignIp::new(at, host).handle(handle).attrs(Self::attrs(handle));
        if block_on(self.lab.ipam.assign_ip(&args)).is_ok() {
            assert_eq!(self.model.insert(at, handle.into()), None, "{at} was somebody's");
        }
    }

    fn release(&mut self) {
        let Some((ip, handle)) = self.held() else { return };
        let block = self.lab.block_of(ip);
        let seq = block.seq_of(block.cidr.ordinal(ip).expect("in it"));
        let (old, wrong) = (self.dice.roll(3) == 0, self.dice.roll(4) == 0);
        let named = if wrong { "nobody" } else { &handle };
        let exact = Release::exact(ip, Some(named), if old { seq - 1 } else { seq }, (self.dice.roll(2) == 0).then_some(block.cidr));
        let report = block_on(self.lab.ipam.release_ips(&[exact])).expect("released");
        if old || wrong {
            assert!(matches!(report.outcomes[&ip], Outcome::Stale(_)), "{ip} {:?}", report.outcomes);
        } else {
            assert_eq!(report.outcomes[&ip], Outcome::Released);
            self.model.remove(&ip);
        }
        assert_eq!(report.handles_behind, []);
    }

    fn release_handle(&mut self) {
        let handle = *self.dice.pick(&HANDLES);
        let has = self.model.values().any(|h| h == handle);
        match block_on(self.lab.ipam.release_by_handle(&HandleId::new(handle))) {
            Ok(mut ips) => {
                ips.sort();
                let own: Vec<IpAddr> = self.model.iter().filter(|(_, h)| *h == handle).map(|(i, _)| *i).collect();
                assert_eq!(ips, own);
                self.model.retain(|_, h| h != handle);
            }
            Err(e) => assert!(!has, "{handle}: {e}"),
        }
    }

    fn move_or_own(&mut self) {
        let Some((ip, handle)) = self.held() else { return };
        let to = *self.dice.pick(&HANDLES);
        // The attributes stay those of the first owner.
        let block = self.lab.block_of(ip);
        let name = block.attributes_of(ip).expect("allocated").active.get("pod").cloned().expect("with a pod");
        if self.dice.roll(2) == 0 {
            let owner = OwnerRef { namespace: "ns".into(), name };
            block_on(self.lab.ipam.move_ip_to_handle(ip, to, &owner, None)).expect("moved");
            self.model.insert(ip, to.into());
        } else {
            let update = OwnerUpdate { alternate: Side { set: Some(Self::attrs(to)), ..Side::default() }, ..OwnerUpdate::default() };
            block_on(self.lab.ipam.set_owner_attributes(ip, &handle, &update)).expect("set");
        }
    }

    fn blocks_change(&mut self) {
        let host = *self.dice.pick(&HOSTS);
        let ipam = &self.lab.ipam;
        match self.dice.roll(5) {
            0 => {
                if let Some(row) = self.lab.store.rows::<BlockKind>().first() {
                    let conditions = Conditions { must_be_empty: true, seq: None };
                    drop(block_on(ipam.release_block_affinity(&Owner::Host(host.into()), row.key, conditions)));
                }
            }
            1 => assert!(block_on(ipam.release_host(host, false)).expect("listed").complete()),
            2 => drop(block_on(ipam.claim_affinity(net("10.1.0.0/29"), host))),
            3 => drop(block_on(ipam.release_affinity(net("10.0.0.0/28"), host, true))),
            _ => drop(block_on(ipam.release_pool_affinities(net("10.1.0.0/28")))),
        }
    }

    fn collect(&mut self) {
        self.lab.wait(1 + self.dice.roll(40) as i64);
        let config = block_on(self.lab.ipam.get_config()).expect("valid");
        for row in self.lab.store.rows::<BlockKind>() {
            block_on(self.lab.ipam.collect_cold(&config, row.key)).expect("collected");
        }
    }

    fn step(&mut self) {
        let (name, run): (_, fn(&mut Self)) = match self.dice.roll(16) {
            0..=4 => ("auto_assign", Self::auto_assign),
            5..=6 => ("assign_ip", Self::assign_ip),
            7..=9 => ("release", Self::release),
            10 => ("release_handle", Self::release_handle),
            11..=12 => ("move or set owner", Self::move_or_own),
            13 => ("blocks", Self::blocks_change),
            _ => ("collect", Self::collect),
        };
        run(self);
        *self.done.entry(name).or_default() += 1;
    }

    /// The store says what the model says, and nothing in it contradicts anything.
    fn check(&self) {
        let mut stored = BTreeMap::new();
        for row in self.lab.store.rows::<BlockKind>() {
            for (ordinal, entry) in row.value.allocated().filter(|(_, a)| a.released_at.is_none()) {
                stored.insert(row.key.ip(ordinal).expect("in it"), entry.handle.clone().unwrap_or_default());
            }
        }
        assert_eq!(stored, self.model);
        let snapshot = block_on(Snapshot::read(&self.lab.store, Vec::new(), false)).expect("readable");
        let findings = audit::audit(&snapshot, None, self.lab.clock.now() + chrono::TimeDelta::seconds(1));
        let problems: Vec<_> = findings.into_iter().filter(audit::Finding::is_problem).collect();
        assert_eq!(problems, []);
        for handle in HANDLES {
            let mut ips = block_on(self.lab.ipam.ips_by_handle(handle)).expect("read").unwrap_or_default();
            ips.sort();
            let own: Vec<IpAddr> = self.model.iter().filter(|(_, h)| *h == handle).map(|(i, _)| *i).collect();
            assert_eq!(ips, own, "{handle}");
        }
    }
}

#[test]
fn a_random_walk_of_10000_steps_agrees_with_the_model() {
    for seed in 1..=10 {
        println!("seed {seed}");
        let mut walk = Walk::new(seed);
        for _ in 0..1000 {
            walk.step();
            walk.check();
        }
        assert!(walk.done.len() == 7 && walk.done.values().all(|n| *n > 20), "every operation has its turn: {:?}", walk.done);
    }
}
