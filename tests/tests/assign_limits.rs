//! Limits, explicit addresses, other hosts' blocks, requested pools and caps (LIM, ASN, RCL, POOL, CAP, HDL).

use futures::executor::block_on;
use ipam::model::{AffinityKind, BlockKind, HandleKind, PoolKind};
use ipam::store::StoreError;
use ipam::{AssignError, AssignIp, AutoAssign, Family, HandleId, Owner};
use ipam_tests::faulty::row_name;
use ipam_tests::lab::{Lab, all_in, cidr, ip, net, want};
use ipnet::IpNet;

const V6: &str = "fd80:24e2:f998:72d6::/120";

#[test]
fn lim_03_lim_04_lim_05_lim_06_lim_07_lim_08_lim_09_lim_10_lim_11_lim_12_limits() {
    let lab = Lab::new(&["10.0.0.0/28@30"], &["host1", "host2"]);
    lab.config(|c| (c.strict_affinity, c.max_blocks_per_host) = (true, 2));
    for _ in 0..8 {
        assert_eq!(lab.ips(&want("host1", 1).handle("h")).len(), 1);
    }
    assert_eq!(lab.assign(&want("host1", 1).handle("h")), Err(AssignError::BlockLimit(2)), "LIM-03");
    assert_eq!(lab.ips(&want("host2", 1)).len(), 1, "LIM-04");
    assert_eq!(lab.assign(&want("host1", 1).max_blocks(3)), Err(AssignError::BlockLimit(2)), "LIM-05");
    lab.config(|c| c.max_blocks_per_host = 3);
    assert_eq!(lab.assign(&want("host1", 1).max_blocks(2)), Err(AssignError::BlockLimit(2)), "LIM-06");
    assert_eq!(lab.ips(&want("host1", 1)).len(), 1, "LIM-07");
    let lab = Lab::new(&["10.0.0.0/24@32"], &["a"]);
    let got = lab.assign(&want("a", 25)).expect("some").v4.expect("asked for");
    assert_eq!((got.ips.len(), got.stopped), (20, Some(AssignError::BlockLimit(20))), "LIM-08");
    // LIM-09, LIM-10: only the request's limit; at the limit, one own block has room.
    let lab = Lab::new(&["10.0.0.0/28@30"], &["a"]);
    assert_eq!(lab.ips(&want("a", 8)).len(), 8);
    lab.release(lab.block(&lab.blocks()[0].0).expect("there").in_use()[0]);
    assert_eq!(lab.ips(&want("a", 1).max_blocks(2)).len(), 1);
    assert_eq!(lab.assign(&want("a", 1).max_blocks(2)), Err(AssignError::BlockLimit(2)));
    // LIM-11 as D-5 reads it: blocks in the pools that the request may draw from.
    let lab = Lab::new(&["10.0.0.0/26", "20.0.0.0/26"], &["a"]);
    lab.ips(&want("a", 1).pools(Family::V4, &[net("10.0.0.0/26")]));
    assert_eq!(lab.ips(&want("a", 1).max_blocks(1).pools(Family::V4, &[net("20.0.0.0/26")])).len(), 1);
    assert_eq!(lab.assign(&want("a", 127).max_blocks(1)).expect("some").v4.and_then(|g| g.stopped), Some(AssignError::BlockLimit(1)));
    // LIM-12: families are counted apart.
    let lab = Lab::new(&["10.0.0.0/26", V6], &["a"]);
    assert!(lab.assign(&AutoAssign::new("a", "Workload", 1, 1).max_blocks(1)).is_ok_and(|g| g.v6.is_some_and(|g| g.ips.len() == 1)));
}

#[test]
fn lim_13_d_63_explicit_addresses_obey_a_limit_that_somebody_set() {
    let lab = Lab::new(&["10.0.0.0/24@30"], &["a"]);
    let assign = |text: &str, max| block_on(lab.ipam.assign_ip(&AssignIp::new(ip(text), "a").max_blocks(max)));
    for n in 0..25 {
        assert_eq!(assign(&format!("10.0.0.{}", n * 4), 0), Ok(()), "the default of 20 does not count here");
    }
    assert_eq!(assign("10.0.0.200", 25), Err(AssignError::BlockLimit(25)));
    assert_eq!(assign("10.0.0.1", 25), Ok(()), "a block that is there needs no claim");
    lab.config(|c| (c.strict_affinity, c.auto_allocate_blocks) = (true, false));
    assert_eq!(assign("10.0.0.200", 0), Err(AssignError::AutoAllocateOff));
}

#[test]
fn asn_01_asn_02_asn_03_asn_04_asn_09_asn_10_asn_12_explicit_addresses() {
    let lab = Lab::new(&["192.168.1.0/24", V6], &[]);
    let assign = |text: &str, host: &str| block_on(lab.ipam.assign_ip(&AssignIp::new(ip(text), host)));
    assert_eq!(assign("192.168.1.0", "a"), Ok(()), "ASN-12: no node is needed");
    assert_eq!(lab.rows(), ["host:a 192.168.1.0/26 confirmed"]);
    assert_eq!(assign("fd80:24e2:f998:72d6::", "a"), Ok(()));
    assert!(matches!(assign("1.1.1.1", "a"), Err(AssignError::Pool(_))));
    assert_eq!(assign("192.168.1.0", "a"), Err(AssignError::AlreadyExists(ip("192.168.1.0"))));
    assert_eq!(assign("192.168.1.1", "b"), Ok(()), "ASN-09");
    lab.strict(true);
    assert!(matches!(assign("192.168.1.2", "b"), Err(AssignError::Block(_))));
    assert_eq!(lab.block("192.168.1.0/26").map(|b| (b.affinity.clone(), b.in_use().len())), Some((Some("host:a".into()), 2)));
    lab.assert_clean();
}

#[test]
fn asn_15_asn_16_asn_17_asn_18_asn_19_races_and_failures() {
    for max in [0, 1] {
        let lab = Lab::new(&["10.0.0.0/26"], &[]);
        block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.1"), "a"))).expect("assigned");
        lab.faulty.race_write(cidr("10.0.0.0/26"));
        block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.2"), "a").handle("h").max_per_handle(max))).expect("assigned");
        assert_eq!(lab.count("h"), Some(1), "ASN-15, ASN-16");
    }
    let lab = Lab::new(&["10.0.0.0/26"], &[]);
    block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.1"), "b"))).expect("assigned");
    block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.2"), "a"))).expect("ASN-17: in b's block");
    lab.faulty.fail(row_name::<HandleKind>(&HandleId::new("h")), Some(StoreError::Refused("no".into())));
    assert!(matches!(block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.3"), "a").handle("h"))), Err(AssignError::Store(_))));
    assert!(!lab.block("10.0.0.0/26").expect("there").in_use().contains(&ip("10.0.0.3")), "ASN-18");
    lab.faulty.fail(row_name::<HandleKind>(&HandleId::new("h")), None);
    lab.faulty.fail(row_name::<BlockKind>(&cidr("10.0.0.0/26")), Some(StoreError::Refused("no".into())));
    assert!(block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.3"), "a").handle("h"))).is_err());
    assert_eq!(lab.count("h"), None, "ASN-19: given back");
}

#[test]
fn rcl_01_rcl_04_rcl_05_rcl_06_rcl_07_rcl_08_rcl_09_other_hosts_empty_blocks() {
    let lab = Lab::new(&["10.0.0.0/26"], &["a", "b"]);
    lab.strict(true);
    let a = lab.ips(&want("a", 1))[0];
    assert!(lab.ips(&want("b", 1)).is_empty());
    lab.release(a);
    lab.wait(58);
    assert!(lab.ips(&want("b", 1)).is_empty(), "claimed less than a minute ago");
    lab.wait(3);
    assert_eq!(lab.ips(&want("b", 1)).len(), 1);
    assert_eq!(lab.rows(), ["host:b 10.0.0.0/26 confirmed"]);
    lab.assert_clean();
    // RCL-07: without claim time it counts as old; RCL-05: with host reservations only, as empty; RCL-06: unless reserved.
    let change = |lab: &Lab, change: &dyn Fn(&mut ipam::Block)| {
        let mut b = lab.block("10.0.0.0/26").expect("there");
        change(&mut b);
        b.seq += 1;
        lab.put::<BlockKind>(cidr("10.0.0.0/26"), b);
    };
    lab.release(lab.block("10.0.0.0/26").expect("there").in_use()[0]);
    change(&lab, &|b| b.claim_time = None);
    lab.reserve("all", &["10.0.0.0/24"]);
    assert!(lab.ips(&want("a", 1)).is_empty(), "RCL-06");
    lab.reserve("all", &[]);
    assert_eq!(lab.ips(&want("a", 1)).len(), 1, "RCL-07");
    // RCL-08, D-68: an empty block of nobody.
    lab.release(lab.block("10.0.0.0/26").expect("there").in_use()[0]);
    change(&lab, &|b| (b.affinity, b.claim_time) = (None, None));
    lab.store.take::<AffinityKind>(&(Owner::Host("a".into()), cidr("10.0.0.0/26")));
    assert_eq!(lab.ips(&want("b", 1)).len(), 1);
    // RCL-09: a cooling address keeps it.
    lab.config(|c| c.cooldown_seconds = 600);
    lab.release(lab.block("10.0.0.0/26").expect("there").in_use()[0]);
    lab.wait(120);
    assert!(lab.ips(&want("a", 1)).is_empty());
    lab.wait(600);
    assert_eq!(lab.ips(&want("a", 1)).len(), 1);
    lab.assert_clean();
}

#[test]
fn rcl_02_a_take_over_that_fails_is_passed_over() {
    let lab = Lab::new(&["10.0.0.0/26"], &["a", "b"]);
    lab.strict(true);
    lab.release(lab.ips(&want("a", 1))[0]);
    lab.wait(61);
    lab.faulty.fail(row_name::<BlockKind>(&cidr("10.0.0.0/26")), Some(StoreError::Refused("no".into())));
    // A definite error of a foreign block is not ours to fail on... but it must not hand anything out.
    assert!(lab.assign(&want("b", 1)).map_or(true, |g| g.v4.is_some_and(|g| g.ips.is_empty())));
    assert_eq!(lab.blocks(), [("10.0.0.0/26".to_owned(), "host:a".to_owned())]);
}

#[test]
fn pool_20_pool_21_pool_22_pool_23_pool_27_selectors_over_time() {
    let lab = Lab::new(&["10.0.0.0/24", "20.0.0.0/24"], &["a:foo=bar"]);
    lab.change_pool("10.0.0.0/24", |p| p.node_selector = "foo=='bar'".into());
    lab.change_pool("20.0.0.0/24", |p| p.node_selector = "foo!='bar'".into());
    let got = lab.ips(&want("a", 300));
    all_in(&got, "10.0.0.0/24");
    assert_eq!(got.len(), 256);
    // POOL-21, POOL-22: deselected later; the block goes with its last address.
    for by_handle in [false, true] {
        let lab = Lab::new(&["10.0.0.0/24"], &["a:foo=bar"]);
        lab.change_pool("10.0.0.0/24", |p| p.node_selector = "foo=='bar'".into());
        let ips: Vec<_> = ["h0", "h1", "h2"].iter().map(|h| (lab.ips(&want("a", 1).handle(h))[0], *h)).collect();
        let release = |(ip, handle): (std::net::IpAddr, &str)| {
            if by_handle { drop(block_on(lab.ipam.release_by_handle(&HandleId::new(handle))).expect("released")) } else { lab.release(ip) }
        };
        release(ips[0]);
        assert_eq!(lab.rows().len(), 1);
        lab.change_pool("10.0.0.0/24", |p| p.node_selector = "foo!='bar'".into());
        release(ips[1]);
        assert_eq!((lab.rows().len(), lab.blocks().len()), (1, 1));
        release(ips[2]);
        assert_eq!((lab.rows().len(), lab.blocks().len()), (0, 0), "by handle: {by_handle}");
    }
    // POOL-23: deselected after everything was released: the next request cleans up.
    let lab = Lab::new(&["10.0.0.0/24"], &["a:foo=bar"]);
    lab.ips(&want("a", 3)).into_iter().for_each(|i| lab.release(i));
    lab.change_pool("10.0.0.0/24", |p| p.node_selector = "foo!='bar'".into());
    assert_eq!(lab.rows().len(), 1);
    lab.put::<PoolKind>("20.0.0.0/24".into(), ipam_tests::lab::pool("20.0.0.0/24"));
    all_in(&lab.ips(&want("a", 3)), "20.0.0.0/24");
    assert_eq!((lab.rows().len(), lab.blocks().len()), (1, 1));
    // POOL-27: in use is not given up.
    lab.change_pool("20.0.0.0/24", |p| p.node_selector = "foo!='bar'".into());
    lab.put::<PoolKind>("30.0.0.0/24".into(), ipam_tests::lab::pool("30.0.0.0/24"));
    all_in(&lab.ips(&want("a", 1)), "30.0.0.0/24");
    assert_eq!(lab.rows().len(), 2);
}

#[test]
fn pool_31_pool_32_pool_34_pool_40_pool_41_pool_42_pool_43_pool_44_pool_45_pool_46_requested_pools() {
    let lab = Lab::new(&["10.0.0.0/24", "20.0.0.0/24", "30.0.0.0/24"], &["a"]);
    lab.change_pool("30.0.0.0/24", |p| p.disabled = true);
    let from = |pools: &[&str], n| {
        let pools: Vec<IpNet> = pools.iter().map(|p| net(p)).collect();
        lab.assign(&want("a", n).pools(Family::V4, &pools))
    };
    let ips = |pools: &[&str], n| -> Vec<std::net::IpAddr> {
        from(pools, n).expect("assigned").v4.expect("asked for").ips.iter().map(IpNet::addr).collect()
    };
    assert!(from(&["10.0.0.0/24", "30.0.0.0/24"], 1).is_err(), "POOL-40");
    assert!(from(&["10.0.0.0/24", "40.0.0.0/24"], 1).is_err_and(|e| e.to_string().contains("40.0.0.0/24")), "POOL-44");
    let one = ips(&["10.0.0.0/24"], 1)[0];
    let two = ips(&["20.0.0.0/24"], 1)[0];
    assert_eq!(
        (lab.block_of(ips(&["10.0.0.0/24"], 1)[0]).cidr, lab.block_of(ips(&["20.0.0.0/24"], 1)[0]).cidr),
        (lab.block_of(one).cidr, lab.block_of(two).cidr),
        "POOL-45"
    );
    all_in(&ips(&["10.0.0.0/24", "20.0.0.0/24"], 1), "10.0.0.0/24");
    assert_eq!(ips(&["10.0.0.0/24", "20.0.0.0/24"], 300).len(), 300, "POOL-42");
    assert_eq!(ips(&["10.0.0.0/24", "20.0.0.0/24"], 300).len(), 512 - 305, "POOL-43");
    assert!(ips(&["20.0.0.0/24"], 1).is_empty(), "POOL-46: never from another pool");
    lab.assert_clean();
}

#[test]
fn cap_01_cap_02_cap_03_cap_04_cap_06_cap_07_cap_08_cap_09_cap_10_hdl_03_hdl_04_handles_and_their_cap() {
    let lab = Lab::new(&["10.0.0.0/24", V6], &["a"]);
    let capped = AutoAssign::new("a", "Workload", 1, 1).handle("h").max_per_handle(1);
    let first = lab.assign(&capped).expect("assigned");
    let blocks = (lab.store.rows::<BlockKind>(), lab.count("h"));
    let again = lab.assign(&capped).expect("the same");
    for (a, b) in [(first.v4, again.v4), (first.v6, again.v6)] {
        let (a, b) = (a.expect("asked for"), b.expect("asked for"));
        assert_eq!(
            (a.ips[0].addr(), b.ips[0].addr(), b.ips[0].prefix_len()),
            (b.ips[0].addr(), a.ips[0].addr(), b.ips[0].max_prefix_len()),
            "CAP-04"
        );
    }
    assert_eq!((lab.store.rows::<BlockKind>(), lab.count("h")), blocks, "CAP-10: untouched");
    assert_eq!(block_on(lab.ipam.ips_by_handle("h")).map(|ips| ips.map(|i| i.len())), Ok(Some(2)));
    block_on(lab.ipam.release_by_handle(&HandleId::new("h"))).expect("released");
    assert_eq!(block_on(lab.ipam.ips_by_handle("h")), Ok(None));
    // CAP-02.
    let assign = |text: &str| block_on(lab.ipam.assign_ip(&AssignIp::new(ip(text), "a").handle("g").max_per_handle(1)));
    assert_eq!((assign("10.0.0.1"), assign("10.0.0.1")), (Ok(()), Ok(())));
    assert!(assign("10.0.0.2").is_err_and(|e| e.to_string().contains("already has IP(s) allocated")));
    assert_eq!(lab.count("g"), Some(1));
    // CAP-03, CAP-06.
    let two = want("a", 1).handle("two").max_per_handle(2);
    let (x, y, z) = (lab.ips(&two)[0], lab.ips(&two)[0], lab.ips(&two)[0]);
    assert!(x != y && (z == x || z == y) && lab.count("two") == Some(2));
    let plain = |text: &str| block_on(lab.ipam.assign_ip(&AssignIp::new(ip(text), "a").handle("own")));
    assert_eq!(plain("10.0.0.200"), Ok(()));
    assert_eq!(plain("10.0.0.200"), Err(AssignError::AlreadyExists(ip("10.0.0.200"))));
    // CAP-07, CAP-09: fewer than asked for exist: no new block, no wrong error.
    let lab = Lab::new(&["10.0.0.0/24"], &["a"]);
    lab.ips(&want("a", 1).handle("h"));
    let blocks = lab.blocks();
    assert!(matches!(
        lab.assign(&want("a", 2).handle("h").max_per_handle(2)),
        Err(AssignError::InsufficientByHandle { have: 1, need: 2, .. })
    ));
    assert_eq!((lab.blocks(), lab.count("h")), (blocks, Some(1)));
    // CAP-08, HDL-01 … HDL-04.
    let lab = Lab::new(&["10.0.0.0/28@30"], &["a"]);
    assert_eq!((lab.ips(&want("a", 5).handle("five").max_per_handle(5)).len(), lab.count("five")), (5, Some(5)));
    assert_eq!((lab.ips(&want("a", 10).handle("ten")).len(), lab.count("ten")), (10, Some(10)));
    assert_eq!(
        (lab.ips(&want("a", 5).handle("rest")).len(), lab.count("rest")),
        (1, Some(1)),
        "HDL-04: what was assigned, not what was asked"
    );
    block_on(lab.ipam.release_by_handle(&HandleId::new("ten"))).expect("released");
    assert_eq!(lab.count("ten"), None, "HDL-03");
    lab.assert_clean();
}

#[test]
fn lim_01_lim_02_a_limit_in_the_middle_of_a_request_leaves_what_was_got() {
    for (limit, got) in [(1, 64), (2, 128)] {
        let lab = Lab::new(&["192.168.1.0/24"], &["a"]);
        let v4 = lab.assign(&want("a", 256).max_blocks(limit)).expect("a part").v4.expect("asked for");
        assert_eq!((v4.ips.len(), v4.stopped, v4.messages.len()), (got, Some(AssignError::BlockLimit(limit)), 1));
    }
    let lab = Lab::new(&[V6], &["a"]);
    let args = AutoAssign::new("a", "Workload", 0, 256).max_blocks(1);
    let got = lab.assign(&args).expect("a part");
    let v6 = got.v6.expect("asked for");
    assert_eq!((v6.ips.len(), v6.stopped, got.v4), (64, Some(AssignError::BlockLimit(1)), None));
}

#[test]
fn cap_05_hdl_01_hdl_02_counts_are_per_block_and_caps_per_family() {
    let lab = Lab::new(&["10.0.0.0/24", V6], &["a"]);
    let one = |n4, n6| lab.assign(&AutoAssign::new("a", "Workload", n4, n6).handle("h").max_per_handle(1)).expect("assigned");
    assert!(one(1, 0).v4.is_some_and(|g| g.ips.len() == 1));
    assert!(one(0, 1).v6.is_some_and(|g| g.ips.len() == 1));
    assert_eq!(lab.count("h"), Some(2));
    let counts = |lab: &Lab, handle: &str| {
        let (row, _) = lab.store.peek::<HandleKind>(&HandleId::new(handle)).expect("there");
        let mut counts: Vec<i64> = row.value.blocks.into_values().collect();
        counts.sort_unstable();
        counts
    };
    lab.ips(&want("a", 1).handle("g"));
    lab.ips(&want("a", 1).handle("g"));
    assert_eq!(counts(&lab, "g"), [2], "HDL-01");
    let lab = Lab::new(&["10.0.0.0/24@30"], &["a"]);
    lab.ips(&want("a", 10).handle("ten"));
    assert_eq!(counts(&lab, "ten"), [2, 4, 4], "HDL-02");
}
