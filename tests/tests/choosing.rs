//! Which block a request takes from: candidates in order, new ones, other hosts' (AA-06, AA-40 … AA-51).

use chrono::TimeDelta;
use futures::executor::block_on;
use futures::future::join_all;
use ipam::model::{Affinity, AffinityKind, AffinityState, BlockKind, PoolKind};
use ipam::order::BlockOrder;
use ipam::{AssignError, AssignIp, Block, BlockCidr, Clock as _, Family, HostReserve, Owner};
use ipam_tests::lab::{Lab, all_in, cidr, ip, net, pool, want};
use ipnet::IpNet;

/// Two blocks of host-a with one usable address each, .2 and .6.
fn two_blocks() -> Lab {
    let lab = Lab::new(&["10.0.0.0/24@30"], &["host-a"]);
    for c in ["10.0.0.0/30", "10.0.0.4/30"] {
        own(&lab, "host-a", cidr(c), Some(&reserve()), true);
    }
    lab
}

fn reserve() -> HostReserve {
    HostReserve { first: 2, last: 1, handle: "findorclaimblock".into(), note: "test".into() }
}

/// An empty block of a host, claimed two minutes ago; with its row, or without.
fn own(lab: &Lab, host: &str, cidr: BlockCidr, reserve: Option<&HostReserve>, row: bool) {
    let block = Block::new(cidr, reserve, 1000).expect("fits");
    let claim_time = Some(lab.clock.now() - TimeDelta::minutes(2));
    lab.put::<BlockKind>(cidr, Block { affinity: Some(format!("host:{host}")), claim_time, ..block });
    if row {
        lab.put::<AffinityKind>((Owner::Host(host.into()), cidr), Affinity { state: AffinityState::Confirmed, indexed: true });
    }
}

#[test]
fn aa_06_two_pools_none_requested() {
    let lab = Lab::new(&["10.0.0.0/24", "20.0.0.0/24"], &["a"]);
    let got = [lab.ips(&want("a", 1)), lab.ips(&want("a", 1))].concat();
    assert_eq!(got.len(), 2);
    all_in(&got, "10.0.0.0/24");
}

#[test]
fn aa_40_a_block_that_is_wholly_reserved_is_passed_over() {
    let lab = two_blocks();
    lab.reserve("r", &["10.0.0.0/30"]);
    assert_eq!(lab.ips(&want("host-a", 1)), [ip("10.0.0.6")]);
    assert_eq!(lab.blocks().len(), 2, "none is claimed");
}

#[test]
fn aa_41_candidates_in_order_then_a_new_block() {
    let lab = two_blocks();
    let request = want("host-a", 1).reserve(Family::V4, reserve());
    assert_eq!((lab.ips(&request), lab.ips(&request)), (vec![ip("10.0.0.2")], vec![ip("10.0.0.6")]));
    assert_eq!(lab.blocks().len(), 2);
    assert_eq!((lab.ips(&request).len(), lab.blocks().len()), (1, 3));
}

#[test]
fn aa_42_full_blocks_are_passed_over_and_the_limit_holds() {
    let lab = two_blocks();
    let assign = |text: &str| block_on(lab.ipam.assign_ip(&AssignIp::new(ip(text), "host-a"))).expect("free");
    assign("10.0.0.2");
    assert_eq!((lab.ips(&want("host-a", 1)), lab.blocks().len()), (vec![ip("10.0.0.6")], 2));
    let third = lab.block_of(lab.ips(&want("host-a", 1))[0]).cidr;
    assert_eq!(lab.blocks().len(), 3);
    lab.ips(&want("host-a", 3));
    assert_eq!(lab.assign(&want("host-a", 1).max_blocks(3)), Err(AssignError::BlockLimit(3)));
    assert_eq!((lab.blocks().len(), lab.block(&third.to_string()).map(|b| b.in_use().len())), (3, Some(4)));
}

#[test]
fn aa_43_a_copied_snapshot_gives_the_same_answer() {
    let (one, two) = (two_blocks(), two_blocks());
    let snapshot = one.snapshot("host-a");
    let request = want("host-a", 1).snapshot(snapshot);
    assert_eq!((one.ips(&request.clone()), two.ips(&request)), (vec![ip("10.0.0.2")], vec![ip("10.0.0.2")]));
    assert_eq!(two.ips(&want("host-a", 1)), [ip("10.0.0.6")]);
}

#[test]
fn aa_44_a_block_that_would_have_nothing_to_give_is_not_claimed() {
    let lab = Lab::new(&["10.0.0.0/28@30"], &["a"]);
    // The reserve leaves the third address of a block; all but one of those are reserved.
    lab.reserve("r", &["10.0.0.2", "10.0.0.6", "10.0.0.14"]);
    let got = lab.ips(&want("a", 4).reserve(Family::V4, reserve()));
    assert_eq!((got, lab.blocks()), (vec![ip("10.0.0.10")], vec![("10.0.0.8/30".into(), "host:a".into())]));
}

#[test]
fn aa_45_what_is_not_there_or_ours_comes_before_another_s_empty_block() {
    let nets: Vec<BlockCidr> = BlockOrder::new(net("10.0.0.0/28"), 30, "a", 0).collect();
    let lab = Lab::new(&["10.0.0.0/28@30"], &["a", "b"]);
    own(&lab, "b", nets[0], None, true);
    own(&lab, "b", nets[1], None, true);
    // Ours although its row is missing (D-64).
    own(&lab, "a", nets[2], None, false);
    let taken = |lab: &Lab, n| lab.block_of(lab.ips(&want("a", n))[0]).cidr;
    assert_eq!(taken(&lab, 4), nets[2]);
    assert_eq!(taken(&lab, 4), nets[3], "not there");
    assert_eq!(taken(&lab, 4), nets[0], "only then another's");
    assert_eq!(lab.blocks().into_iter().filter(|(_, o)| o == "host:b").map(|(c, _)| c).collect::<Vec<_>>(), [nets[1].to_string()]);
    lab.assert_clean();
    // The other way round: what is not there comes first in the order.
    let lab = Lab::new(&["10.0.0.0/28@30"], &["a"]);
    own(&lab, "a", nets[1], None, false);
    assert_eq!((taken(&lab, 4), taken(&lab, 4)), (nets[0], nets[1]));
    lab.assert_clean();
}

/// 100 pools 10.i.0.0/16 of /26, 100 pools 11.i.0.0/16 of /32, 50 pools 12.i.0.0/16 of /20.
fn many_pools(hosts: usize) -> (Lab, Vec<String>) {
    let lab = Lab::default();
    for (first, count, size) in [(10, 100, 26), (11, 100, 32), (12, 50, 20)] {
        for i in 0..count {
            let text = format!("{first}.{i}.0.0/16@{size}");
            lab.put::<PoolKind>(text.replace(['/', '@'], "-"), pool(&text));
        }
    }
    let hosts: Vec<String> = (0..hosts).map(|n| format!("node-{n}")).collect();
    hosts.iter().for_each(|h| lab.node(h));
    (lab, hosts)
}

fn nets(first: u8, count: u8) -> Vec<IpNet> {
    (0..count).map(|i| net(&format!("{first}.{i}.0.0/16"))).collect()
}

#[test]
fn aa_50_one_address_out_of_many_pools() {
    let (lab, hosts) = many_pools(1);
    let from = |first, count, n| lab.ips(&want(&hosts[0], n).pools(Family::V4, &nets(first, count)));
    for (first, count, n) in [(11, 100, 1), (10, 100, 1), (12, 50, 1), (12, 50, 64)] {
        let got = from(first, count, n);
        assert_eq!(got.len(), n);
        all_in(&got, &format!("{first}.0.0.0/8"));
    }
    let any = lab.ips(&want(&hosts[0], 1))[0];
    lab.release(any);
    assert!(!lab.block_of(any).in_use().contains(&any));
    lab.assert_clean();
}

#[test]
fn aa_51_a_thousand_nodes_at_once() {
    let (lab, hosts) = many_pools(1_000);
    let pools = nets(10, 100);
    for round in 1..=2 {
        let requests: Vec<_> = hosts.iter().map(|h| want(h, 1).pools(Family::V4, &pools)).collect();
        let got = block_on(join_all(requests.iter().map(|r| lab.ipam.auto_assign(r))));
        let ips: Vec<_> = got.into_iter().flat_map(|g| g.expect("assigned").v4.expect("asked for").ips).map(|n| n.addr()).collect();
        assert_eq!(ips.len(), 1_000);
        all_in(&ips, "10.0.0.0/8");
        assert_eq!(lab.blocks().len(), 1_000, "round {round}");
    }
    lab.assert_clean();
}
