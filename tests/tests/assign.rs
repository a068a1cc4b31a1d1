//! Auto-assign, borrowing, limits, EnsureBlock, reservations, host reserves, explicit addresses, reclaiming.

use futures::executor::block_on;
use ipam::model::{Affinity, AffinityKind, AffinityState, BlockKind, PoolKind, ReservationKind};
use ipam::store::{Kind as _, StoreError};
use ipam::{AssignError, AssignIp, AutoAssign, Family, HandleId, HostReserve, Owner};
use ipam_tests::faulty::row_name;
use ipam_tests::lab::{Lab, all_in, cidr, ip, net, want, windows};
use ipnet::IpNet;

const V6: &str = "fd80:24e2:f998:72d6::/120";

#[test]
fn aa_01_aa_02_aa_03_aa_04_aa_05_first_block_then_the_same_until_its_pool_is_gone() {
    let lab = Lab::new(&["10.0.0.0/24"], &["host-a", "host-b"]);
    let first = lab.ips(&want("host-a", 1))[0];
    let block = lab.block_of(first);
    assert_eq!((block.affinity.as_deref(), block.claim_time.is_some()), (Some("host:host-a"), true));
    assert_eq!(lab.rows(), [format!("host:host-a {} confirmed", block.cidr)]);
    let second = lab.ips(&want("host-a", 1))[0];
    assert!(block.cidr.ordinal(second).is_some() && second != first);
    assert_eq!(lab.rows().len(), 1);
    lab.store.take::<PoolKind>(&"10.0.0.0/24".into());
    lab.put::<PoolKind>("20.0.0.0/24".into(), ipam_tests::lab::pool("20.0.0.0/24"));
    all_in(&lab.ips(&want("host-b", 1)), "20.0.0.0/24");
    all_in(&lab.ips(&want("host-a", 1)), "20.0.0.0/24");
    lab.assert_clean();
}

#[test]
fn aa_07_aa_08_aa_13_results_carry_their_block_s_prefix() {
    for (v4, v6, m4, m6) in [
        ("192.168.1.0/24@32", "fd80:24e2:f998:72d6::/120@128", 32, 128),
        ("192.168.0.0/16@20", "fd80:24e2:f998:72d6::/110@116", 20, 116),
        ("192.168.1.0/24@26", "fd80:24e2:f998:72d6::/120@122", 26, 122),
    ] {
        let lab = Lab::new(&[v4, v6], &["a"]);
        let got = lab
            .assign(&AutoAssign::new("a", "Workload", 1, 1).pools(Family::V4, &[net(v4.split('@').next().expect("text"))]))
            .expect("assigned");
        let (g4, g6) = (got.v4.expect("asked for"), got.v6.expect("asked for"));
        assert_eq!((g4.ips[0].prefix_len(), g6.ips[0].prefix_len(), g4.requested, g4.messages.len()), (m4, m6, 1, 0));
    }
    let lab = Lab::new(&["10.0.0.0/30@30"], &["a"]);
    lab.reserve("r", &["10.0.0.0/31", "10.0.0.3"]);
    let got = lab.assign(&want("a", 64)).expect("assigned");
    assert_eq!(got.v4.expect("asked for").ips, [net("10.0.0.2/30")], "AA-07");
    assert!(got.v6.is_none(), "AA-13: nothing asked, no result");
}

#[test]
fn aa_09_aa_10_aa_11_aa_12_draining_pools() {
    let lab = Lab::new(&["192.168.1.0/24", V6], &["a"]);
    let got = lab.assign(&AutoAssign::new("a", "Workload", 256, 256)).expect("assigned");
    for g in [got.v4.expect("asked for"), got.v6.expect("asked for")] {
        assert_eq!((g.ips.len(), g.messages.len(), g.shortfall(Family::V4)), (256, 0, None));
    }
    let small = Lab::new(&["192.168.1.0/24@30", "fd80:24e2:f998:72d6::/120@126"], &["a"]);
    let got = small.assign(&AutoAssign::new("a", "Workload", 256, 256).max_blocks(256)).expect("assigned");
    assert_eq!((got.v4.map(|g| g.ips.len()), got.v6.map(|g| g.ips.len())), (Some(256), Some(256)));
    for (v6, pool) in [(false, "192.168.1.0/24"), (true, V6)] {
        let lab = Lab::new(&["192.168.1.0/24", V6], &["a"]);
        let (n4, n6) = if v6 { (0, 257) } else { (257, 0) };
        let got = lab.assign(&AutoAssign::new("a", "Workload", n4, n6)).expect("no error");
        let g = if v6 { got.v6 } else { got.v4 }.expect("asked for");
        assert_eq!((g.ips.len(), g.requested, g.stopped), (256, 257, None));
        assert!(g.messages.len() == 1 && g.messages[0].contains(pool), "{:?}", g.messages);
        lab.assert_clean();
    }
}

#[test]
fn aa_14_aa_15_aa_16_aa_17_aa_18_what_is_refused_claims_nothing() {
    let lab = Lab::new(&["10.0.0.0/24"], &["a"]);
    let refused = |args: AutoAssign| lab.assign(&args).expect_err("refused");
    assert_eq!(refused(AutoAssign::new("a", "", 1, 0)), AssignError::UseRequired);
    assert!(matches!(refused(want("a", 1).pools(Family::V4, &[net(V6)])), AssignError::Pool(_)));
    assert!(matches!(
        refused(AutoAssign::new("a", "Workload", 0, 1).pools(Family::V6, &[net("fe80::/120"), net("10.0.0.0/24")])),
        AssignError::Pool(_)
    ));
    assert_eq!(refused(want("nobody", 1)), AssignError::NoNode("nobody".into()));
    assert!(matches!(refused(AutoAssign::new("a", "Workload", 0, 1)), AssignError::Pool(_)));
    // D-70, D-32.
    for host in ["", "a b", &"h".repeat(254)] {
        assert!(matches!(refused(want(host, 1)), AssignError::Name(e) if e.argument == "host"), "{host:?}");
    }
    for handle in ["", "with/slash", "with_underscore", "with\rreturn", "with space", ".dot", &"k".repeat(254)] {
        assert!(matches!(refused(want("a", 1).handle(handle)), AssignError::Name(e) if e.argument == "handle"), "{handle:?}");
    }
    assert!(matches!(refused(want("a", 0)), AssignError::Argument(_)) && matches!(refused(want("a", 65_537)), AssignError::Argument(_)));
    assert!(lab.store.only_read() && lab.blocks().is_empty());
    assert_eq!(lab.ips(&want("a", 1).handle("Upper.Case")).len(), 1, "upper case alone is folded");
}

#[test]
fn aa_19_aa_20_cni_02_one_family_fails() {
    let lab = Lab::new(&["10.0.0.0/24"], &["a"]);
    // AA-20 (D-66): IPv4 is held, so the result comes back with the reason.
    let got = lab.assign(&AutoAssign::new("a", "Workload", 1, 1)).expect("IPv4 is held");
    assert_eq!(got.v4.map(|g| (g.ips.len(), g.stopped)), Some((1, None)));
    assert!(got.v6.is_some_and(|g| g.ips.is_empty() && matches!(g.stopped, Some(AssignError::Pool(_)))));
    let lab = Lab::new(&[V6], &["a"]);
    assert!(lab.assign(&AutoAssign::new("a", "Workload", 1, 1)).is_err(), "AA-19: IPv6 is not tried");
    assert!(lab.blocks().is_empty());
}

#[test]
fn aa_21_aa_24_aa_25_rotation_and_blocks() {
    let lab = Lab::new(&["10.0.0.0/24@30"], &["wrap-node"]);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let got = lab.ips(&want("wrap-node", 1))[0];
        seen.push(got);
        lab.release(got);
    }
    let mut four = seen[..4].to_vec();
    four.sort();
    four.dedup();
    assert_eq!((four.len(), seen[4]), (4, seen[0]));
    assert_eq!(lab.blocks().len(), 1, "AA-24");
    let got = lab.ips(&want("wrap-node", 13));
    all_in(&got, "10.0.0.0/24");
    assert!(got.len() == 13 && lab.blocks().len() >= 4);
    lab.assert_clean();
}

#[test]
fn aa_22_long_host_names() {
    let hosts = [format!("{}a", "h".repeat(251)), format!("{}b", "h".repeat(251))];
    let lab = Lab::new(&["10.0.0.0/24", "fe80:ba:ad:beef::/120"], &[&hosts[0], &hosts[1]]);
    for h in &hosts {
        let got = lab.assign(&AutoAssign::new(h, "Workload", 1, 1)).expect("assigned");
        assert_eq!((got.v4.map(|g| g.ips.len()), got.v6.map(|g| g.ips.len())), (Some(1), Some(1)));
    }
    for h in &hosts {
        let six: Vec<String> = lab.rows().into_iter().filter(|r| r.starts_with(&format!("host:{h} fe80"))).collect();
        assert_eq!(six.len(), 1);
    }
}

#[test]
fn aa_23_aa_29_strict_and_automatic_blocks_off() {
    let lab = Lab::new(&["192.168.1.0/26", "192.168.1.64/26"], &["a"]);
    lab.strict(true);
    let got = lab.assign(&want("a", 256).pools(Family::V4, &[net("192.168.1.0/26")])).expect("no error").v4.expect("asked for");
    assert_eq!(
        (got.ips.len(), got.stopped, got.messages),
        (64, None, vec!["No more free affine blocks and strict affinity enabled".to_owned()])
    );
    let lab = Lab::new(&["10.0.0.0/24@30"], &["a"]);
    lab.strict(true);
    lab.ips(&want("a", 2));
    lab.config(|c| c.auto_allocate_blocks = false);
    let got = lab.assign(&want("a", 3)).expect("two are held").v4.expect("asked for");
    assert_eq!((got.ips.len(), got.stopped), (2, Some(AssignError::AutoAllocateOff)));
    assert_eq!(lab.assign(&want("a", 1)), Err(AssignError::AutoAllocateOff));
    assert_eq!(lab.blocks().len(), 1);
}

#[test]
fn aa_26_aa_27_aa_28_d_57_writes_that_fail() {
    let lab = Lab::new(&["10.0.0.0/26"], &["a"]);
    lab.ips(&want("a", 1));
    let name = row_name::<BlockKind>(&cidr("10.0.0.0/26"));
    for (error, check) in [
        (StoreError::Conflict, (|e| e == AssignError::TooManyRetries) as fn(AssignError) -> bool),
        (StoreError::Refused("no".into()), |e| matches!(e, AssignError::Store(_))),
    ] {
        lab.faulty.fail(name.clone(), Some(error));
        assert!(lab.assign(&want("a", 1).handle("h")).is_err_and(check));
        assert_eq!(lab.count("h"), None, "given back");
        lab.faulty.fail(name.clone(), None);
    }
    // D-57: without answer the handle keeps its count, and the addresses are said to be in doubt.
    lab.faulty.fail(name.clone(), Some(StoreError::Unavailable("cut".into())));
    let got = lab.assign(&want("a", 1).handle("h")).expect("may be held").v4.expect("asked for");
    assert!(got.ips.is_empty() && got.unknown.len() == 1 && matches!(got.stopped, Some(AssignError::Unknown(_))));
    assert_eq!(lab.count("h"), Some(1));
    lab.faulty.fail(name, None);
    // AA-26: one lost race.
    let before = lab.block("10.0.0.0/26").expect("there");
    lab.faulty.race_write(cidr("10.0.0.0/26"));
    assert_eq!(lab.ips(&want("a", 1).handle("g")).len(), 1);
    assert_eq!(lab.block("10.0.0.0/26").expect("there").seq, before.seq + 2, "one lost, one written");
    assert_eq!(lab.count("g"), Some(1));
}

#[test]
fn aa_30_aa_31_aa_32_aa_33_rows_and_blocks_that_do_not_fit() {
    let row = |lab: &Lab, state| lab.put::<AffinityKind>((Owner::Host("a".into()), cidr("10.0.0.0/26")), Affinity { state, indexed: true });
    // AA-30, and a claim that stopped after its first step.
    for state in [AffinityState::Confirmed, AffinityState::Pending, AffinityState::PendingDeletion] {
        let lab = Lab::new(&["10.0.0.0/24"], &["a"]);
        row(&lab, state);
        all_in(&lab.ips(&want("a", 1)), "10.0.0.0/26");
        assert_eq!(lab.rows(), ["host:a 10.0.0.0/26 confirmed"]);
        lab.assert_clean();
    }
    // AA-31: the empty state of old rows counts as confirmed.
    let lab = Lab::new(&["10.0.0.0/26"], &["a"]);
    lab.ips(&want("a", 1));
    row(&lab, AffinityState::Old);
    lab.ips(&want("a", 1));
    assert_eq!(lab.rows(), ["host:a 10.0.0.0/26 old"]);
    // AA-32: pending, the block is ours already: rewritten once, confirmed.
    row(&lab, AffinityState::Pending);
    let seq = lab.block("10.0.0.0/26").expect("there").seq;
    lab.ips(&want("a", 1));
    assert_eq!((lab.rows(), lab.block("10.0.0.0/26").map(|b| b.seq)), (vec!["host:a 10.0.0.0/26 confirmed".to_owned()], Some(seq + 2)));
    // AA-33: the block belongs to somebody else.
    let lab = Lab::new(&["10.0.0.0/25"], &["a", "b"]);
    lab.strict(true);
    let theirs = lab.block_of(lab.ips(&want("b", 1))[0]).cidr;
    lab.put::<AffinityKind>((Owner::Host("a".into()), theirs), Affinity { state: AffinityState::Confirmed, indexed: true });
    let ours = lab.block_of(lab.ips(&want("a", 1))[0]).cidr;
    assert_ne!(ours, theirs);
    lab.assert_clean();
}

#[test]
fn aa_34_asn_14_load_balancers_have_a_virtual_owner_and_no_node() {
    let lab = Lab::new(&["10.0.0.0/26"], &[]);
    lab.change_pool("10.0.0.0/26", |p| p.allowed_uses = vec!["LoadBalancer".into()]);
    lab.ips(&AutoAssign::new("load-balancer", "LoadBalancer", 1, 0));
    assert_eq!(lab.rows(), ["virtual:load-balancer 10.0.0.0/26 confirmed"]);
    let lab = Lab::new(&["10.0.0.0/26"], &[]);
    lab.change_pool("10.0.0.0/26", |p| p.allowed_uses = vec!["LoadBalancer".into()]);
    block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.5"), "load-balancer").intended_use("LoadBalancer"))).expect("assigned");
    assert_eq!(lab.blocks(), [("10.0.0.0/26".to_owned(), "virtual:load-balancer".to_owned())]);
}

#[test]
fn aa_46_rsv_01_rsv_02_rsv_04_rsv_05_rsv_06_reservations() {
    let lab = Lab::new(&["10.0.0.0/26"], &["a"]);
    assert_eq!(lab.ips(&want("a", 64).handle("h")).len(), 64);
    let lab = Lab::new(&["10.0.0.0/26"], &["a"]);
    lab.reserve("r1", &["10.0.0.1/32", "10.0.0.32/30"]);
    lab.reserve("r2", &["11.0.0.0/30", "10.0.0.17/32"]);
    let got = lab.ips(&want("a", 64));
    assert_eq!(got.len(), 58);
    for text in ["10.0.0.1", "10.0.0.17", "10.0.0.32", "10.0.0.35"] {
        assert!(!got.contains(&ip(text)), "{text}");
    }
    block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.17"), "a"))).expect("RSV-05: an explicit wish");
    // RSV-06: reserved later: stays, is released, is not handed out again.
    lab.reserve("r3", &["10.0.0.5"]);
    assert!(lab.block_of(ip("10.0.0.5")).in_use().contains(&ip("10.0.0.5")));
    lab.release(ip("10.0.0.5"));
    assert!(lab.ips(&want("a", 1)).is_empty());
    // RSV-04, AA-46: a block that is wholly reserved is never made, nor borrowed from.
    let lab = Lab::new(&["10.0.0.0/25"], &["a", "b"]);
    lab.reserve("r", &["10.0.0.0/26"]);
    assert_eq!(lab.ips(&want("a", 128)).len(), 64);
    assert_eq!(lab.blocks().len(), 1);
}

#[test]
fn rsv_08_plst_07_lists_that_fail_and_lists_of_all() {
    let lab = Lab::new(&["10.0.0.0/26", "10.0.1.0/26", "10.0.2.0/26", V6], &["a"]);
    lab.change_pool("10.0.1.0/26", |p| p.disabled = true);
    lab.change_pool("10.0.2.0/26", |p| p.deleting = true);
    let names = |lab: &Lab| block_on(lab.ipam.utilization(&[])).map(|u| u.into_iter().filter_map(|p| p.name).collect::<Vec<_>>());
    assert_eq!(names(&lab), Ok(["10.0.0.0/26", "10.0.1.0/26", "10.0.2.0/26", V6].map(String::from).to_vec()), "PLST-07");
    lab.faulty.fail_reading(ReservationKind::NAME.into(), StoreError::Refused("no".into()));
    let failed = AssignError::Store(StoreError::Refused("no".into()));
    assert_eq!(lab.assign(&want("a", 1)), Err(failed.clone()));
    assert_eq!(block_on(lab.ipam.ensure_block(&want("a", 0).reserve(Family::V4, windows()))), Err(failed));
    assert_eq!(names(&lab), Err(StoreError::Refused("no".into())));
    assert!(lab.blocks().is_empty() && lab.store.only_read());
}

#[test]
fn rsv_03_win_03_win_04_win_06_win_08_host_reservations() {
    let lab = Lab::new(&["10.0.0.0/26"], &["a"]);
    block_on(lab.ipam.ensure_block(&want("a", 0).reserve(Family::V4, windows()))).expect("ensured");
    lab.reserve("r1", &["10.0.0.1/32", "10.0.0.32/30"]);
    lab.reserve("r2", &["10.0.0.17/32"]);
    assert_eq!(lab.ips(&want("a", 64)).len(), 55);

    let lab = Lab::new(&["10.0.0.0/30@30"], &["a"]);
    let reserve = HostReserve { first: 2, last: 1, handle: "test-handle".into(), note: "ipam ut".into() };
    let got = lab.assign(&AutoAssign::new("a", "Tunnel", 1, 0).reserve(Family::V4, reserve)).expect("assigned").v4.expect("asked for");
    assert_eq!((got.ips, got.reserved_by.as_deref()), (vec![net("10.0.0.2/30")], Some("test-handle")));

    let lab = Lab::new(&["100.0.0.0/24"], &["w"]);
    lab.strict(true);
    let got = lab.ips(&want("w", 256).reserve(Family::V4, windows()).windows());
    assert_eq!(got.len(), 240);
    for n in [0u8, 1, 2, 63, 64, 65, 66, 127, 128, 129, 130, 191, 192, 193, 194, 255] {
        assert!(!got.contains(&std::net::IpAddr::from([100, 0, 0, n])), "{n}");
    }
    let big = HostReserve { first: 32, last: 33, ..windows() };
    assert!(matches!(lab.assign(&want("w", 1).reserve(Family::V4, big)), Err(AssignError::Pool(_))));
    lab.strict(false);
    assert_eq!(lab.assign(&want("w", 1).windows()), Err(AssignError::StrictAffinityRequired), "WIN-01");

    let hosts = ["w1", "w2", "l1", "l2"];
    let lab = Lab::new(&["100.0.0.0/24"], &hosts);
    lab.strict(true);
    for h in hosts {
        lab.ips(&want(h, 1).reserve(Family::V4, windows()));
    }
    for h in hosts {
        assert_eq!(lab.ips(&want(h, 100).reserve(Family::V4, windows())).len(), 59);
    }
}

#[test]
fn win_01_win_05_win_09_win_10_win_11_win_13_win_14_more_of_host_reservations() {
    let lab = Lab::new(&["192.168.1.0/24", V6], &["w"]);
    lab.strict(true);
    let both = |n4, n6| AutoAssign::new("w", "Workload", n4, n6).reserve(Family::V4, windows()).reserve(Family::V6, windows());
    let got = lab.assign(&both(256, 256)).expect("no error");
    for g in [got.v4.expect("asked for"), got.v6.expect("asked for")] {
        assert_eq!((g.ips.len(), g.messages.len()), (240, 1));
    }
    let lab = Lab::new(&["100.0.0.0/24", "200.0.0.0/24"], &["w"]);
    let request = |p: &str, n| lab.ips(&want("w", n).reserve(Family::V4, windows()).pools(Family::V4, &[net(p)]));
    let (one, two) = (request("100.0.0.0/24", 1)[0], request("200.0.0.0/24", 1)[0]);
    assert!(lab.block_of(one).attributes.iter().any(|a| a.handle.as_deref() == Some("windows-reserved-ipam-handle")), "WIN-09");
    assert_eq!(
        (lab.block_of(request("100.0.0.0/24", 1)[0]).cidr, lab.block_of(request("200.0.0.0/24", 1)[0]).cidr),
        (lab.block_of(one).cidr, lab.block_of(two).cidr)
    );
    lab.strict(true);
    all_in(&request("200.0.0.0/24", 238), "200.0.0.0/24");
    assert!(request("200.0.0.0/24", 1).is_empty(), "WIN-10");
    // WIN-11: an existing block is used as it is.
    let lab = Lab::new(&["10.0.0.0/26"], &["w"]);
    lab.ips(&want("w", 1));
    assert_eq!(lab.ips(&want("w", 63).reserve(Family::V4, windows())).len(), 63);
    // WIN-13, WIN-14.
    let lab = Lab::new(&["10.0.0.0/24@29"], &[]);
    let assign = |text: &str| block_on(lab.ipam.assign_ip(&AssignIp::new(ip(text), "w").reserve(windows())));
    assert_eq!(assign("10.0.0.5"), Ok(()));
    let block = lab.block("10.0.0.0/29").expect("made");
    assert_eq!(block.allocations.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true, false, false, true, false, true]);
    assert_eq!(assign("10.0.0.1"), Err(AssignError::AlreadyExists(ip("10.0.0.1"))));
}

#[test]
fn ens_01_ens_02_ens_03_ens_04_ens_05_ens_06_ens_07_ens_08_ens_09_ensure_block() {
    let lab = Lab::new(&["10.0.0.0/24", "20.0.0.0/24", "30.0.0.0/24", "fe80::/112", "90.0.0.0/24@31"], &["w"]);
    lab.change_pool("30.0.0.0/24", |p| p.disabled = true);
    let ensure = |pools: &[&str]| {
        let pools: Vec<IpNet> = pools.iter().map(|p| net(p)).collect();
        block_on(lab.ipam.ensure_block(&want("w", 0).reserve(Family::V4, windows()).pools(Family::V4, &pools)))
    };
    for (pools, named) in [
        (&["10.0.0.0/24", "30.0.0.0/24"][..], "30.0.0.0/24"),
        (&["fe80::/112"], "fe80::/112"),
        (&["90.0.0.0/24", "10.0.0.0/24"], "90.0.0.0/24"),
        (&["10.0.0.0/24", "40.0.0.0/24"], "40.0.0.0/24"),
    ] {
        assert!(ensure(pools).is_err_and(|e| e.to_string().contains(named)), "{pools:?}");
    }
    assert!(lab.blocks().is_empty());
    let block = ensure(&["10.0.0.0/24", "20.0.0.0/24"]).expect("ensured")[0].expect("IPv4");
    assert!(net("10.0.0.0/24").contains(&block.net()), "ENS-06");
    assert_eq!(ensure(&["10.0.0.0/24", "20.0.0.0/24"]), Ok([Some(block), None]), "ENS-07, ENS-09");
    assert_eq!(ensure(&[]), Ok([Some(block), None]), "ENS-05: never the pool of small blocks");
    let six = block_on(lab.ipam.ensure_block(
        &want("w", 0).reserve(Family::V6, windows()).pools(Family::V4, &[net("10.0.0.0/24")]).pools(Family::V6, &[net("fe80::/112")]),
    ))
    .expect("ensured");
    assert!(six[0].is_none() && six[1].is_some_and(|b| net("fe80::/112").contains(&b.net())), "ENS-08");
}

#[test]
fn pf_01_pf_02_pf_03_pf_04_pf_05_pf_06_pf_07_pf_08_one_line_on_what_is_missing() {
    let got = |have: usize, requested, messages: &[&str], reserved_by: Option<&str>| {
        let mut g =
            ipam::Got { ips: vec![net("10.0.0.1/26"); have], requested, reserved_by: reserved_by.map(Into::into), ..ipam::Got::default() };
        g.messages = messages.iter().map(|m| (*m).to_owned()).collect();
        g.shortfall(Family::V4)
    };
    assert_eq!((got(1, 1, &[], None), got(256, 256, &[], None)), (None, None));
    assert_eq!(got(0, 1, &["strict"], None).as_deref(), Some("Assigned 0 out of 1 requested IPv4 addresses; strict"));
    assert_eq!(got(0, 1, &["limit of 20"], None).as_deref(), Some("Assigned 0 out of 1 requested IPv4 addresses; limit of 20"));
    assert_eq!(
        got(0, 1, &["No IPs available in pools: [192.168.0.0/24 192.168.1.0/24]"], None).as_deref(),
        Some("Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [192.168.0.0/24 192.168.1.0/24]")
    );
    assert_eq!(got(0, 1, &[], Some("w")).as_deref(), Some("Assigned 0 out of 1 requested IPv4 addresses; HostReservedAttr: w"));
    assert_eq!(
        got(0, 1, &["limit", "exhausted"], Some("w")).as_deref(),
        Some("Assigned 0 out of 1 requested IPv4 addresses; limit; exhausted; HostReservedAttr: w")
    );
    let lab = Lab::new(&["10.0.0.0/26", "10.0.1.0/26"], &["a"]);
    let messages = lab.assign(&want("a", 200)).expect("no error").v4.expect("asked for").messages;
    assert_eq!(messages, ["No IPs available in pools: [10.0.0.0/26 10.0.1.0/26]"], "PF-08: once");
}

#[test]
fn bor_01_bor_02_bor_03_bor_05_bor_06_bor_07_borrowing() {
    let lab = Lab::new(&["10.0.0.0/28@28"], &["host1:foo=bar", "host2:foo=bar"]);
    lab.change_pool("10.0.0.0/28", |p| p.node_selector = "foo=='bar'".into());
    let both = |h1: &str, h2: &str| (lab.ips(&want("host1", 1).handle(h1)).len(), lab.ips(&want("host2", 1).handle(h2)).len());
    assert_eq!(both("handle-1", "handle-2"), (1, 1));
    let rows = lab.rows();
    lab.strict(true);
    assert_eq!(both("handle-3", "handle-4"), (1, 0));
    lab.strict(false);
    assert_eq!(both("handle-5", "handle-6"), (1, 1));
    assert_eq!((lab.rows(), lab.blocks().len()), (rows, 1), "BOR-05");
    for h in ["handle-2", "handle-1"] {
        assert_eq!(block_on(lab.ipam.release_by_handle(&HandleId::new(h))).map(|ips| ips.len()), Ok(1), "BOR-02");
    }
    lab.assert_clean();
    let lab = Lab::new(&["10.0.0.0/25"], &["a", "b"]);
    lab.ips(&want("a", 1));
    lab.ips(&want("b", 1));
    let got = lab.ips(&want("a", 64));
    let own = lab.blocks().iter().find(|(_, o)| o == "host:a").map(|(c, _)| net(c)).expect("there");
    assert_eq!((got.len(), got.iter().filter(|i| own.contains(*i)).count()), (64, 63), "BOR-03");
    lab.assert_clean();
}

#[test]
fn bor_04_a_node_that_is_not_selected_gets_nothing() {
    let lab = Lab::new(&["10.0.0.0/30@30"], &["host1:foo=bar", "host2"]);
    lab.change_pool("10.0.0.0/30", |p| p.node_selector = "foo=='bar'".into());
    assert_eq!(lab.ips(&want("host1", 3)).len(), 3);
    lab.node("host1");
    lab.node("host2:foo=bar");
    assert!(lab.assign(&want("host1", 1)).is_err_and(|e| e.to_string().contains("host1")));
    assert_eq!(lab.ips(&want("host2", 1)).len(), 1);
    assert_eq!(lab.blocks(), [("10.0.0.0/30".to_owned(), "host:host1".to_owned())]);
}

#[test]
fn lim_01_lim_02_bor_08_the_limit_ends_the_call() {
    for (v6, pool) in [(false, "192.168.1.0/24"), (true, V6)] {
        for (limit, n) in [(1, 64), (2, 128)] {
            let lab = Lab::new(&[pool], &["a"]);
            let (n4, n6) = if v6 { (0, 256) } else { (256, 0) };
            let got = lab.assign(&AutoAssign::new("a", "Workload", n4, n6).max_blocks(limit)).expect("some are held");
            let g = if v6 { got.v6 } else { got.v4 }.expect("asked for");
            assert_eq!((g.ips.len(), g.stopped), (n, Some(AssignError::BlockLimit(limit))));
            assert!(g.messages.len() == 1 && g.messages[0].contains(&format!("limit of {limit} ")));
        }
    }
    let lab = Lab::new(&["10.0.0.0/25"], &["a", "b"]);
    lab.ips(&want("a", 64));
    lab.ips(&want("b", 1));
    assert_eq!(lab.assign(&want("a", 1).max_blocks(1)), Err(AssignError::BlockLimit(1)), "BOR-08: nothing is borrowed");
}
