//! Releasing addresses and blocks, claiming CIDRs, the configuration, upgrading rows (REL, AFF, CFG, UPG, RACE).

use std::io::Write as _;
use std::net::IpAddr;
use std::pin::pin;

use futures::executor::block_on;
use ipam::affinity::{AffinityError, Conditions, GaveBack, GiveBackError};
use ipam::model::{Affinity, AffinityKind, AffinityState, BlockKind, ConfigKind, PoolKind};
use ipam::store::StoreError;
use ipam::{AssignIp, AutoAssign, Block, Config, ConfigError, HandleId, Outcome, Owner, Release};
use ipam_tests::faulty::row_name;
use ipam_tests::lab::{Lab, all_in, cidr, go, ip, net, want};

fn host(name: &str) -> Owner {
    Owner::Host(name.into())
}

fn release(lab: &Lab, releases: &[Release]) -> Vec<Outcome> {
    let report = block_on(lab.ipam.release_ips(releases)).expect("released");
    releases.iter().map(|r| report.outcomes[&r.ip()].clone()).collect()
}

fn assign(lab: &Lab, at: &str, host: &str, handle: Option<&str>) {
    let args = AssignIp::new(ip(at), host);
    block_on(lab.ipam.assign_ip(&handle.map_or(args.clone(), |h| args.handle(h)))).expect("assigned");
    lab.wait_ms(1);
}

fn seq(lab: &Lab, at: &str) -> i64 {
    let block = lab.block_of(ip(at));
    block.seq_of(block.cidr.ordinal(ip(at)).expect("inside"))
}

fn exact(at: &str, handle: Option<&str>, seq: i64) -> Release {
    Release::exact(ip(at), handle, seq, None)
}

#[test]
fn rel_02_rel_03_rel_04_rel_05_rel_06_rel_07_rel_09_only_the_right_identity_is_released() {
    let lab = Lab::new(&["192.168.0.0/16"], &["n"]);
    assert_eq!(release(&lab, &[Release::anything(ip("1.1.1.1"))]), [Outcome::AlreadyFree], "REL-05");
    assert_eq!(release(&lab, &[Release::anything(ip("192.168.1.0"))]), [Outcome::AlreadyFree], "REL-06");
    assign(&lab, "192.168.0.1", "n", None);
    assign(&lab, "192.168.0.2", "n", None);
    let right = seq(&lab, "192.168.0.1");
    assert!(matches!(release(&lab, &[exact("192.168.0.1", None, right + 1)])[..], [Outcome::Stale(_)]), "REL-03");
    assert!(matches!(release(&lab, &[exact("192.168.0.1", Some("fakehandle"), right)])[..], [Outcome::Stale(_)]), "REL-04");
    assert_eq!(lab.block_of(ip("192.168.0.1")).in_use().len(), 2);
    assert_eq!(release(&lab, &[exact("192.168.0.1", None, right)]), [Outcome::Released], "REL-02");
    assert_eq!(lab.block_of(ip("192.168.0.2")).in_use(), [ip("192.168.0.2")], "the neighbour stays");
    assert_eq!(release(&lab, &[Release::anything(ip("192.168.0.3"))]), [Outcome::AlreadyFree], "REL-09");
    assert_eq!(release(&lab, &[Release::anything(ip("192.168.0.2"))]), [Outcome::Released], "REL-07");
}

#[test]
fn rel_08_rel_13_rel_14_rel_15_many_at_once() {
    let lab =
        Lab::new(&["10.0.0.0/24@30", "11.0.0.0/24@30", "fe80:ba:ad:beef::/120"], &["node1:p=x", "node2:p=x", "node3:p=y", "node4:p=y"]);
    lab.change_pool("10.0.0.0/24", |p| p.node_selector = "p == 'x'".into());
    lab.change_pool("11.0.0.0/24", |p| p.node_selector = "p == 'y'".into());
    let mut ips: Vec<IpAddr> = Vec::new();
    for node in ["node1", "node2", "node3", "node4"] {
        for (n4, n6, times) in [(1, 1, 6), (13, 0, 1)] {
            for _ in 0..times {
                let got = lab.assign(&AutoAssign::new(node, "Workload", n4, n6)).expect("assigned");
                ips.extend([got.v4, got.v6].into_iter().flatten().flat_map(|g| g.ips).map(|n| n.addr()));
            }
        }
    }
    assert_eq!(ips.len(), 100);
    lab.change_pool("11.0.0.0/24", |p| p.disabled = true);
    lab.store.take::<PoolKind>(&"10.0.0.0/24".to_owned());
    let releases: Vec<_> = ips.iter().map(|i| Release::anything(*i)).collect();
    assert!(release(&lab, &releases).iter().all(|o| *o == Outcome::Released), "REL-13, REL-15: disabled or without pool");
    // REL-14: twice in one call, and never handed out twice after it.
    let lab = Lab::new(&["10.0.0.0/26"], &["n"]);
    assert_eq!(lab.ips(&want("n", 64).handle("all")).len(), 64);
    let twice = [Release::anything(ip("10.0.0.1")), Release::anything(ip("10.0.0.1"))];
    assert_eq!(release(&lab, &twice), [Outcome::Released, Outcome::Released]);
    assert_eq!(lab.count("all"), Some(63));
    assign(&lab, "10.0.0.1", "n", None);
    assert!(lab.ips(&want("n", 1)).is_empty());
    lab.assert_clean();
}

#[test]
fn rel_20_rel_21_an_old_decision_never_releases_a_new_allocation() {
    for give_block_back in [false, true] {
        let lab = Lab::new(&["10.0.0.0/30@30"], &["testnode"]);
        for round in 0..10 {
            let at = lab.ips(&want("testnode", 1).handle("t"))[0].to_string();
            let old = seq(&lab, &at);
            if give_block_back {
                let done = block_on(lab.ipam.release_block_affinity(&host("testnode"), cidr("10.0.0.0/30"), Conditions::default()));
                assert_eq!(done, Ok(GaveBack::Ownership));
            }
            block_on(lab.ipam.release_by_handle(&HandleId::new("t"))).expect("released");
            assert_eq!(lab.blocks().is_empty(), give_block_back);
            lab.wait_ms(1);
            assign(&lab, &at, "testnode", Some("t"));
            assert!(matches!(release(&lab, &[exact(&at, Some("t"), old)])[..], [Outcome::Stale(_)]), "round {round}");
            assert_eq!(lab.count("t"), Some(1));
            assert_eq!(release(&lab, &[exact(&at, Some("t"), seq(&lab, &at))]), [Outcome::Released]);
        }
        lab.assert_clean();
    }
}

#[test]
fn aff_03_aff_11_aff_12_blocks_of_a_pool_that_is_gone() {
    let lab = Lab::new(&["10.0.0.0/24@30", "20.0.0.0/24"], &["a", "b"]);
    for _ in 0..12 {
        lab.ips(&want("a", 1).handle("h").pools(ipam::Family::V4, &[net("10.0.0.0/24")]));
    }
    lab.ips(&want("b", 1).pools(ipam::Family::V4, &[net("20.0.0.0/24")]));
    lab.store.take::<PoolKind>(&"10.0.0.0/24".to_owned());
    assert!(block_on(lab.ipam.release_host("a", false)).expect("listed").complete());
    assert_eq!(lab.rows(), [lab.rows()[0].clone()], "b's stays");
    let ownerless = |lab: &Lab| lab.blocks().iter().filter(|(_, owner)| owner.is_empty()).count();
    assert_eq!((lab.blocks().len(), ownerless(&lab)), (4, 3));
    block_on(lab.ipam.release_by_handle(&HandleId::new("h"))).expect("released");
    assert_eq!((lab.blocks().len(), lab.count("h")), (1, None));
    block_on(lab.ipam.release_pool_affinities(net("10.0.0.0/24"))).expect("AFF-12: nothing there");
    assert_eq!(lab.rows().len(), 1, "AFF-11: others stay");
    block_on(lab.ipam.release_pool_affinities(net("20.0.0.0/24"))).expect("given back");
    assert_eq!((lab.rows().len(), ownerless(&lab)), (0, 1));
}

#[test]
fn aff_04_aff_08_aff_21_aff_22_aff_23_claiming_cidrs() {
    let lab = Lab::new(&["192.168.1.0/24", "10.0.0.0/24", "30.0.0.0/26"], &["host-a", "host-b"]);
    let claim = |c: &str, host: &str| block_on(lab.ipam.claim_affinity(net(c), host)).map(|(c, f)| (c.len(), f.len()));
    assert_eq!(claim("192.168.1.0/26", "host-a"), Ok((1, 0)));
    assert_eq!(claim("192.168.1.0/27", "host-a"), Err(AffinityError::InvalidSize(net("192.168.1.0/27"), 26)));
    assign(&lab, "10.0.0.1", "host-a", None);
    assert_eq!(claim("10.0.0.5/24", "host-b"), Ok((3, 1)), "AFF-04 c, AFF-22");
    block_on(lab.ipam.release_affinity(net("10.0.0.0/24"), "host-b", true)).expect("given back");
    assert_eq!(claim("10.0.0.0/24", "host-a"), Ok((4, 0)));
    assert_eq!(claim("10.0.0.0/24", "host-b"), Ok((0, 4)));
    assert_eq!(claim("1.2.3.0/24", "host-a"), Err(AffinityError::NotInPool(net("1.2.3.0/24"))));
    assert!(block_on(lab.ipam.release_affinity(net("1.2.3.0/24"), "host-a", true)).is_err(), "AFF-08");
    assert!(claim("30.0.0.0/24", "host-a").is_err() && lab.block("30.0.0.0/26").is_none(), "AFF-21");
    lab.change_pool("192.168.1.0/24", |p| p.disabled = true);
    block_on(lab.ipam.release_affinity(net("192.168.1.0/24"), "host-a", true)).expect("AFF-23");
    assert!(lab.block("192.168.1.0/26").is_none());
    lab.assert_clean();
}

#[test]
fn aff_09_aff_13_aff_14_aff_19_whose_block_it_is() {
    let lab = Lab::new(&["10.0.0.0/26"], &["a", "b"]);
    block_on(lab.ipam.claim_affinity(net("10.0.0.0/26"), "b")).expect("claimed");
    let before = (lab.rows(), lab.blocks());
    block_on(lab.ipam.release_affinity(net("10.0.0.0/26"), "a", true)).expect("AFF-09: no error");
    assert_eq!((lab.rows(), lab.blocks()), before);
    // AFF-19: the exact call answers with the lost race, the one by CIDR tries again.
    let exactly = || block_on(lab.ipam.release_block_affinity(&host("b"), cidr("10.0.0.0/26"), Conditions::default()));
    assign(&lab, "10.0.0.1", "b", None);
    lab.faulty.race_write(cidr("10.0.0.0/26"));
    assert_eq!(exactly(), Err(GiveBackError::Stale));
    lab.faulty.race_write(cidr("10.0.0.0/26"));
    block_on(lab.ipam.release_affinity(net("10.0.0.0/26"), "b", false)).expect("at the second attempt");
    let left = lab.block("10.0.0.0/26").expect("it has an address");
    assert_eq!((left.affinity.clone(), left.claim_time, left.in_use()), (None, None, vec![ip("10.0.0.1")]));
    // AFF-13: nobody's.
    let before = lab.store.rows::<BlockKind>();
    assert_eq!(exactly(), Ok(GaveBack::NotOurs));
    assert_eq!(lab.store.rows::<BlockKind>(), before);
    // AFF-14.
    let lab = Lab::new(&["10.0.0.0/26"], &[]);
    lab.change_pool("10.0.0.0/26", |p| p.allowed_uses = vec!["LoadBalancer".into()]);
    let got = lab.ips(&AutoAssign::new("load-balancer", "LoadBalancer", 1, 0));
    assert_eq!(lab.rows(), ["virtual:load-balancer 10.0.0.0/26 confirmed"]);
    lab.release(got[0]);
    let lb = Owner::Virtual("load-balancer".into());
    let done = block_on(lab.ipam.release_block_affinity(&lb, cidr("10.0.0.0/26"), Conditions { must_be_empty: true, seq: None }));
    assert_eq!((done, lab.blocks().len(), lab.rows().len()), (Ok(GaveBack::Block), 0, 0));
}

#[test]
fn cfg_03_cfg_06_cfg_09_cfg_10_cfg_11_setting_and_reading_back() {
    let lab = Lab::default();
    let config = Config {
        strict_affinity: true,
        auto_allocate_blocks: false,
        max_blocks_per_host: 7,
        vm_address_persistence: false,
        cooldown_seconds: 30,
    };
    assert!(block_on(lab.ipam.get_config_on_windows()).is_err(), "CFG-10: strict is off");
    block_on(lab.ipam.set_config(&config)).expect("CFG-11: it can be set all the same");
    assert_eq!(block_on(lab.ipam.get_config()), Ok(config.clone()));
    assert_eq!(block_on(lab.ipam.get_config_on_windows()), Ok(config.clone()));
    let row = lab.store.rows::<ConfigKind>();
    block_on(lab.ipam.set_config(&config)).expect("equal");
    assert_eq!(lab.store.rows::<ConfigKind>(), row, "CFG-06: nothing was written");
    let wrong = Config { strict_affinity: false, ..config };
    assert!(matches!(block_on(lab.ipam.set_config(&wrong)), Err(ConfigError::Invalid(_))));
    assert_eq!(lab.store.rows::<ConfigKind>(), row);
}

#[test]
fn cfg_08_a_configuration_that_changed_meanwhile_is_not_overwritten() {
    let lab = Lab::default();
    lab.strict(true);
    let wanted = Config { strict_affinity: true, max_blocks_per_host: 7, ..Config::default() };
    let mut set = pin!(lab.ipam.set_config(&wanted));
    // It has read and is about to write.
    go(&mut set, 2);
    lab.config(|c| c.cooldown_seconds = 60);
    let theirs = lab.store.rows::<ConfigKind>();
    assert_eq!(block_on(set), Err(ConfigError::Store(StoreError::Conflict)));
    assert_eq!(lab.store.rows::<ConfigKind>(), theirs);
}

#[test]
fn rel_01_rel_17_rbh_06_empty_blocks_of_somebody_stay_and_nobody_s_go() {
    let lab = Lab::new(&["192.168.0.0/16"], &["n"]);
    lab.put::<BlockKind>(cidr("192.168.0.0/26"), Block::new(cidr("192.168.0.0/26"), None, 0).expect("fits"));
    assign(&lab, "192.168.0.1", "n", None);
    let number = seq(&lab, "192.168.0.1");
    assert_eq!(release(&lab, &[exact("192.168.0.1", None, number)]), [Outcome::Released], "REL-01");
    assert!(lab.block("192.168.0.0/26").is_some_and(|b| b.is_empty() && b.affinity.as_deref() == Some("host:n")), "REL-17");
    // RBH-06: the only handle of a block that lost its owner.
    assign(&lab, "192.168.0.9", "n", Some("h"));
    let given = block_on(lab.ipam.release_block_affinity(&host("n"), cidr("192.168.0.0/26"), Conditions::default()));
    assert_eq!(given, Ok(GaveBack::Ownership));
    assert_eq!(block_on(lab.ipam.release_by_handle(&HandleId::new("h"))), Ok(vec![ip("192.168.0.9")]));
    assert_eq!((lab.blocks().len(), lab.count("h")), (0, None));
    lab.assert_clean();
}

#[test]
fn aff_05_aff_17_rows_of_old_data_and_owners_without_name() {
    let lab = Lab::new(&["10.0.0.0/16@24"], &["n"]);
    let old = |c: &str| {
        lab.put::<BlockKind>(cidr(c), Block::new(cidr(c), None, 1000).expect("fits"));
        lab.put::<AffinityKind>((host("n"), cidr(c)), Affinity { state: AffinityState::Confirmed, indexed: false });
    };
    old("10.0.0.0/24");
    old("10.0.1.0/24");
    let mut used = lab.block("10.0.1.0/24").expect("there");
    used.assign(ip("10.0.1.7"), None, &Default::default(), None).expect("free");
    lab.put::<BlockKind>(cidr("10.0.1.0/24"), used);
    assert_eq!(block_on(lab.ipam.release_pool_affinities(net("10.0.0.0/16"))), Ok(()));
    assert_eq!((lab.rows().len(), lab.blocks()), (0, vec![("10.0.1.0/24".into(), String::new())]), "the block in use stays");
    for name in ["", "a b"] {
        let before = lab.store.requests();
        let refused = block_on(lab.ipam.release_block_affinity(&host(name), cidr("10.0.1.0/24"), Conditions::default()));
        assert!(matches!(refused, Err(GiveBackError::Name(e)) if e.argument == "host"), "AFF-17");
        assert!(matches!(block_on(lab.ipam.remove_host(name)), Err(AffinityError::Name(_))));
        assert!(matches!(block_on(lab.ipam.upgrade_host(name)), Err(AffinityError::Name(_))));
        assert_eq!(lab.requests_since(&before), 0, "nothing was read");
    }
}

#[test]
fn upg_04_one_row_that_fails_does_not_stop_the_others() {
    let lab = Lab::new(&["10.10.0.0/16"], &["host-a"]);
    let blocks = ["10.10.0.0/26", "10.10.0.64/26", "10.10.0.128/26"];
    for c in blocks {
        lab.put::<AffinityKind>((host("host-a"), cidr(c)), Affinity { state: AffinityState::Confirmed, indexed: false });
    }
    lab.faulty.fail_once(row_name::<AffinityKind>(&(host("host-a"), cidr(blocks[0]))), StoreError::Refused("no".into()));
    assert_eq!(block_on(lab.ipam.upgrade_host("host-a")), Err(AffinityError::Store(StoreError::Refused("no".into()))));
    let indexed = || lab.store.rows::<AffinityKind>().iter().filter(|r| r.value.indexed).count();
    assert_eq!(indexed(), 2);
    assert_eq!((block_on(lab.ipam.upgrade_host("host-a")), indexed()), (Ok(1), 3), "the caller tries again (D-62)");
}

#[test]
fn upg_01_upg_02_upg_03_only_this_host_s_rows_and_once() {
    let lab = Lab::new(&["10.10.0.0/16"], &["host-a", "host-b"]);
    for (h, c) in [("host-a", "10.10.0.0/26"), ("host-a", "10.10.0.64/26"), ("host-b", "10.10.1.0/26")] {
        lab.put::<AffinityKind>((host(h), cidr(c)), Affinity { state: AffinityState::Confirmed, indexed: false });
    }
    assert_eq!(block_on(lab.ipam.upgrade_host("host-a")), Ok(2));
    let indexed: Vec<bool> = lab.store.rows::<AffinityKind>().iter().map(|r| r.value.indexed).collect();
    assert_eq!(indexed, [true, true, false]);
    let before = lab.store.requests();
    assert_eq!(block_on(lab.ipam.upgrade_host("host-a")), Ok(0));
    assert_eq!(lab.requests_since(&before), 1, "one list, no write");
}

#[test]
fn race_08_race_09_race_12_claims_again_and_by_others() {
    let lab = Lab::new(&["10.1.0.0/16"], &["test-hostname", "other"]);
    lab.change_pool("10.1.0.0/16", |p| p.allowed_uses.push("LoadBalancer".into()));
    let claim = |host: &str| block_on(lab.ipam.claim_affinity(net("10.1.0.0/26"), host)).map(|(c, f)| (c.len(), f.len()));
    assert_eq!((claim("test-hostname"), claim("test-hostname")), (Ok((1, 0)), Ok((1, 0))));
    assert_eq!((lab.rows().len(), lab.blocks().len()), (1, 1), "RACE-08");
    assert_eq!(claim("other"), Ok((0, 1)));
    assert_eq!(lab.rows(), ["host:test-hostname 10.1.0.0/26 confirmed"], "RACE-12: the loser's row is gone");
    // RACE-09: a host and a virtual owner of one name.
    let got = lab.ips(&AutoAssign::new("test-hostname", "LoadBalancer", 1, 0));
    all_in(&got, "10.1.0.0/16");
    let of_virtual = lab.block_of(got[0]).cidr;
    assert_ne!(of_virtual, cidr("10.1.0.0/26"));
    lab.release(got[0]);
    for (owner, block) in [(host("test-hostname"), cidr("10.1.0.0/26")), (Owner::Virtual("test-hostname".into()), of_virtual)] {
        let again = |conditions| block_on(lab.ipam.release_block_affinity(&owner, block, conditions));
        assert_eq!(again(Conditions { must_be_empty: true, seq: None }), Ok(GaveBack::Block));
        assert_eq!(again(Conditions::default()), Ok(GaveBack::Nothing));
    }
    assert!(lab.rows().is_empty() && lab.blocks().is_empty());
}

/// A node of a dump, whose pool selects it or not; a block of its with one address.
fn dumped(selector: &str) -> String {
    format!(
        r#"apiVersion: v1
kind: List
items:
- {{apiVersion: v1, kind: Node, metadata: {{name: n, labels: {{zone: one}}}}}}
- apiVersion: projectcalico.org/v3
  kind: IPPool
  metadata: {{name: p, uid: up, resourceVersion: "1"}}
  spec: {{cidr: 10.0.0.0/24, blockSize: 30, nodeSelector: {selector}}}
- apiVersion: projectcalico.org/v3
  kind: BlockAffinity
  metadata: {{name: n-10-0-0-0-30, uid: ua, resourceVersion: "2"}}
  spec: {{cidr: 10.0.0.0/30, node: n, type: host, state: confirmed, deleted: false}}
- apiVersion: projectcalico.org/v3
  kind: IPAMBlock
  metadata: {{name: 10-0-0-0-30, uid: ub, resourceVersion: "3"}}
  spec:
    cidr: 10.0.0.0/30
    affinity: host:n
    allocations: [0, null, null, null]
    attributes: [{{handle_id: h, secondary: {{node: n}}}}]
    unallocated: [1, 2, 3]
    sequenceNumber: 9
    sequenceNumberForAllocation: {{"0": 7}}
    deleted: false
    strictAffinity: false
"#
    )
}

#[test]
fn nodes_of_a_dump_decide_about_blocks_that_their_pool_no_longer_selects() {
    for (selector, left) in [("zone == 'one'", 1), ("zone == 'two'", 0)] {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(dumped(selector).as_bytes()).expect("written");
        let dump = ipam_datastore::dump::load(&[file.path().to_path_buf()], &[], &mut |_| {}, &mut |_| {}).expect("loads");
        assert!(dump.bad.is_empty(), "{:?}", dump.bad);
        let ipam = ipam::Ipam::new(dump.store.clone(), ipam::SystemClock);
        let done = block_on(ipam.release_ips(&[Release::exact(ip("10.0.0.0"), Some("h"), 7, None)])).expect("released");
        assert_eq!(done.outcomes[&ip("10.0.0.0")], Outcome::Released);
        assert_eq!((dump.store.rows::<BlockKind>().len(), dump.store.rows::<AffinityKind>().len()), (left, left), "{selector}");
    }
}
