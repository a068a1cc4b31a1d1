//! Calls of one process share what they can, and nothing more (D-62). The store lets others go at each request.

use std::pin::pin;

use futures::executor::block_on;
use futures::future::join;
use ipam::mem::Verb;
use ipam::model::{AffinityKind, BlockKind, PoolKind};
use ipam::store::Kind;
use ipam::{AssignError, Assigned, AutoAssign, Freshness, Release};
use ipam_tests::lab::{Lab, all_in, go, ip, want};

fn ips(got: Result<Assigned, AssignError>) -> Vec<std::net::IpAddr> {
    got.expect("assigned").v4.expect("asked for").ips.iter().map(ipnet::IpNet::addr).collect()
}

fn counted<K: Kind>(lab: &Lab, verb: Verb) -> u64 {
    lab.store.requests().get(&(verb, K::NAME)).copied().unwrap_or(0)
}

fn lab() -> Lab {
    let lab = Lab::new(&["10.0.0.0/24"], &["a"]);
    lab.ips(&want("a", 1));
    lab
}

#[test]
fn d_62_who_came_before_the_lists_were_read_uses_them() {
    let lab = lab();
    let before = (counted::<PoolKind>(&lab, Verb::List), counted::<BlockKind>(&lab, Verb::Get));
    let (one, two) = (want("a", 1), want("a", 1));
    let (one, two) = block_on(join(lab.ipam.auto_assign(&one), lab.ipam.auto_assign(&two)));
    assert_eq!([ips(one), ips(two)].concat().len(), 2);
    assert_eq!((counted::<PoolKind>(&lab, Verb::List), counted::<BlockKind>(&lab, Verb::Get)), (before.0 + 1, before.1 + 1));
}

#[test]
fn d_62_who_came_later_reads_again() {
    let lab = lab();
    let (one, two) = (want("a", 1), want("a", 1));
    let mut one = pin!(lab.ipam.auto_assign(&one));
    go(&mut one, 2);
    lab.change_pool("10.0.0.0/24", |p| p.disabled = true);
    lab.change_pool("20.0.0.0/24", |p| p.disabled = false);
    let (one, two) = block_on(join(one, lab.ipam.auto_assign(&two)));
    all_in(&ips(one), "10.0.0.0/24");
    all_in(&ips(two), "20.0.0.0/24");
}

#[test]
fn d_62_who_wants_the_latest_uses_only_what_was_read_since_it_came() {
    let lab = lab();
    let latest = want("a", 1).fresh(Freshness::Latest);
    let before = counted::<PoolKind>(&lab, Verb::List);
    let mut one = pin!(lab.ipam.auto_assign(&latest));
    // Its lists are on their way when the others come.
    go(&mut one, 1);
    let rest = join(lab.ipam.auto_assign(&latest), lab.ipam.auto_assign(&latest));
    let (one, (two, three)) = block_on(join(one, rest));
    assert_eq!([ips(one), ips(two), ips(three)].concat().len(), 3);
    assert_eq!(counted::<PoolKind>(&lab, Verb::List), before + 2, "the first, and the second for itself and the third");
}

#[test]
fn d_62_a_block_that_was_full_is_read_again() {
    let lab = Lab::new(&["10.0.0.0/30@30"], &["a"]);
    lab.ips(&want("a", 3));
    let (one, two) = (want("a", 1), want("a", 1));
    let mut one = pin!(lab.ipam.auto_assign(&one));
    let mut two = pin!(lab.ipam.auto_assign(&two));
    go(&mut one, 1);
    go(&mut two, 1);
    let first = ips(block_on(one));
    // Another process gives one back before the second's turn.
    block_on(lab.client().release_ips(&[Release::anything(ip("10.0.0.0"))])).expect("released");
    assert_ne!(first, [ip("10.0.0.0")]);
    assert_eq!(ips(block_on(two)), [ip("10.0.0.0")]);
}

#[test]
fn d_62_a_block_that_changed_since_it_was_written_costs_a_retry() {
    let lab = lab();
    let (one, two) = (want("a", 1), want("a", 1).handle("h"));
    let mut one = pin!(lab.ipam.auto_assign(&one));
    let mut two = pin!(lab.ipam.auto_assign(&two));
    go(&mut one, 1);
    go(&mut two, 1);
    let first = ips(block_on(one));
    let theirs = ips(block_on(lab.client().auto_assign(&want("a", 1))));
    let second = ips(block_on(two));
    assert_eq!([first, theirs, second].concat().iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    assert_eq!(lab.count("h"), Some(1));
    lab.assert_clean();
}

#[test]
fn d_62_a_call_that_is_dropped_lets_the_next_go() {
    let lab = lab();
    let requests: [AutoAssign; 3] = [want("a", 1), want("a", 1), want("a", 1)];
    let mut calls: Vec<_> = requests.iter().map(|r| Box::pin(lab.ipam.auto_assign(r))).collect();
    for call in &mut calls {
        go(&mut call.as_mut(), 1);
    }
    // One that waits and one that is at it.
    drop(calls.remove(1));
    drop(calls.remove(0));
    assert_eq!(ips(block_on(calls.remove(0))).len(), 1);
    assert_eq!(ips(block_on(lab.ipam.auto_assign(&requests[0]))).len(), 1);
    lab.assert_clean();
}

#[test]
fn d_62_a_block_claimed_by_one_is_the_next_one_s() {
    let lab = Lab::new(&["10.0.0.0/24"], &["a"]);
    let (one, two) = (want("a", 1), want("a", 1));
    let (one, two) = block_on(join(lab.ipam.auto_assign(&one), lab.ipam.auto_assign(&two)));
    assert_eq!([ips(one), ips(two)].concat().len(), 2);
    assert_eq!((lab.blocks().len(), counted::<AffinityKind>(&lab, Verb::List)), (1, 2), "listed cached and consistently, once each");
}
