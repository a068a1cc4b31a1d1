//! Many calls at once, taking turns at every store call (RACE). Every order of two is the explorer's business.

use std::collections::BTreeSet;
use std::pin::pin;

use futures::executor::block_on;
use futures::future::join_all;
use ipam::affinity::{Conditions, GiveBackError};
use ipam::mem::Verb;
use ipam::model::{Affinity, AffinityKind, AffinityState, BlockKind};
use ipam::store::StoreError;
use ipam::{AssignIp, Block, BlockCidr, Clock as _, HandleId, Outcome, Owner, Release};
use ipam_tests::faulty::row_name;
use ipam_tests::lab::{Lab, cidr, go_until, ip, net, want};

/// Every affinity is confirmed, and is its block's owner's.
fn matching(lab: &Lab) {
    let blocks: BTreeSet<String> = lab.blocks().into_iter().map(|(cidr, owner)| format!("{owner} {cidr} confirmed")).collect();
    assert_eq!(lab.rows().into_iter().collect::<BTreeSet<_>>(), blocks);
}

const BLOCK: &str = "10.0.0.0/26";

fn key(host: &str) -> (Owner, BlockCidr) {
    (Owner::Host(host.into()), cidr(BLOCK))
}

/// Another process writes the row.
fn set_row(lab: &Lab, host: &str, state: AffinityState) {
    lab.put::<AffinityKind>(key(host), Affinity { state, indexed: true });
}

/// Another process makes the block.
fn make_block(lab: &Lab, host: &str) {
    let block = Block::new(cidr(BLOCK), None, lab.clock.now().timestamp_nanos_opt().expect("in range")).expect("fits");
    lab.store.take::<BlockKind>(&cidr(BLOCK));
    lab.put::<BlockKind>(cidr(BLOCK), Block { affinity: Some(format!("host:{host}")), ..block });
}

#[test]
fn race_01_twice_as_many_hosts_as_blocks() {
    let hosts: Vec<String> = (0..32).map(|n| format!("host-{n}")).collect();
    let lab = Lab::new(&["10.0.0.0/22"], &hosts.iter().map(String::as_str).collect::<Vec<_>>());
    let requests: Vec<_> = hosts.iter().map(|h| want(h, 1).handle(h)).collect();
    let got = block_on(join_all(requests.iter().map(|r| lab.ipam.auto_assign(r))));
    let ips: Vec<_> = got.into_iter().map(|g| g.expect("assigned").v4.expect("asked for").ips).collect();
    assert!(ips.iter().all(|i| i.len() == 1), "exactly one each");
    assert_eq!(ips.iter().flatten().map(|n| n.addr()).collect::<BTreeSet<_>>().len(), 32);
    assert_eq!((lab.rows().len(), lab.blocks().len()), (16, 16));
    matching(&lab);
    for (host, ips) in hosts.iter().zip(&ips) {
        let own = lab.store.rows::<BlockKind>().into_iter().find(|b| b.value.affinity.as_deref() == Some(&format!("host:{host}")));
        assert!(own.is_none_or(|b| b.key.ordinal(ips[0].addr()).is_some()), "{host} owns a block and got {}", ips[0]);
        assert_eq!(lab.count(host), Some(1));
    }
    lab.assert_clean();
}

#[test]
fn race_02_rbh_09_one_host_four_at_once() {
    let lab = Lab::new(&["10.0.0.0/25"], &["a"]);
    let request = want("a", 1).handle("h");
    let processes: Vec<_> = (0..4).map(|_| lab.client()).collect();
    let got = block_on(join_all(processes.iter().map(|ipam| ipam.auto_assign(&request))));
    let ips: BTreeSet<_> = got.into_iter().flat_map(|g| g.expect("assigned").v4.expect("asked for").ips).map(|n| n.addr()).collect();
    assert_eq!((ips.len(), lab.count("h")), (4, Some(4)));
    assert!(lab.blocks().len() <= 2);
    matching(&lab);
    // RBH-09: two releases at once.
    let handle = HandleId::new("h");
    let done = block_on(join_all((0..2).map(|_| lab.ipam.release_by_handle(&handle))));
    let released: usize = done.into_iter().flatten().map(|ips| ips.len()).sum();
    assert_eq!((released, lab.count("h")), (4, None), "each address once");
    lab.assert_clean();
}

#[test]
fn race_03_four_claims_of_one_cidr_by_one_host() {
    let lab = Lab::new(&["10.0.0.0/22"], &["a"]);
    let claims = block_on(join_all((0..4).map(|_| lab.ipam.claim_affinity(net("10.0.0.0/22"), "a"))));
    for claim in claims {
        assert_eq!(claim.map(|(claimed, failed)| (claimed.len(), failed.len())), Ok((16, 0)));
    }
    assert_eq!(lab.rows().len(), 16);
    matching(&lab);
    let given = block_on(join_all((0..4).map(|_| lab.ipam.release_affinity(net("10.0.0.0/22"), "a", false))));
    assert!(given.iter().all(Result::is_ok), "{given:?}");
    assert!(lab.rows().is_empty() && lab.blocks().is_empty());
}

#[test]
fn race_04_a_claim_that_loses_to_a_give_back_looks_again() {
    let lab = Lab::new(&[BLOCK], &["a"]);
    let mut claim = pin!(lab.ipam.claim_affinity(net(BLOCK), "a"));
    go_until(&mut claim, || lab.block(BLOCK).is_some());
    assert_eq!(lab.rows(), ["host:a 10.0.0.0/26 pending"]);
    set_row(&lab, "a", AffinityState::PendingDeletion);
    lab.store.take::<BlockKind>(&cidr(BLOCK));
    let updates = |lab: &Lab| lab.store.requests().get(&(Verb::Update, "BlockAffinity")).copied().unwrap_or(0);
    let before = updates(&lab);
    go_until(&mut claim, || updates(&lab) > before);
    assert_eq!(lab.rows(), ["host:a 10.0.0.0/26 pendingDeletion"], "not confirmed: the block is gone");
    assert_eq!(block_on(claim).map(|(claimed, _)| claimed.len()), Ok(1), "claimed anew");
    assert_eq!(lab.blocks().len(), 1);
    matching(&lab);
}

#[test]
fn race_05_a_give_back_that_loses_to_a_claim_deletes_nothing() {
    let lab = Lab::new(&[BLOCK], &["a"]);
    set_row(&lab, "a", AffinityState::Confirmed);
    make_block(&lab, "a");
    let (owner, block) = key("a");
    let mut release = pin!(lab.ipam.release_block_affinity(&owner, block, Conditions::default()));
    go_until(&mut release, || lab.rows() == ["host:a 10.0.0.0/26 pendingDeletion"]);
    lab.wait_ms(1);
    set_row(&lab, "a", AffinityState::Pending);
    make_block(&lab, "a");
    assert_eq!(block_on(release), Err(GiveBackError::Stale));
    assert_eq!((lab.rows(), lab.blocks().len()), (vec!["host:a 10.0.0.0/26 pending".to_owned()], 1));
}

#[test]
fn race_06_two_hosts_one_block_and_a_clean_up_that_fails() {
    let lab = Lab::new(&[BLOCK], &["a", "b"]);
    let request = want("a", 1);
    let mut call = pin!(lab.ipam.auto_assign(&request));
    go_until(&mut call, || !lab.rows().is_empty());
    set_row(&lab, "b", AffinityState::Confirmed);
    make_block(&lab, "b");
    lab.faulty.fail_once(row_name::<AffinityKind>(&key("a")), StoreError::Refused("no".into()));
    let got = block_on(call).expect("borrowed").v4.expect("asked for");
    assert_eq!(got.ips, [net("10.0.0.0/26")]);
    assert_eq!(lab.rows(), ["host:a 10.0.0.0/26 pending", "host:b 10.0.0.0/26 confirmed"]);
    assert_eq!(lab.ips(&want("a", 1)), [ip("10.0.0.1")]);
    assert_eq!((lab.rows(), lab.blocks()), (vec!["host:b 10.0.0.0/26 confirmed".into()], vec![(BLOCK.into(), "host:b".into())]));
    lab.assert_clean();
}

#[test]
fn race_07_an_address_assigned_while_the_block_is_given_back_keeps_it() {
    let lab = Lab::new(&[BLOCK], &["a"]);
    set_row(&lab, "a", AffinityState::Confirmed);
    make_block(&lab, "a");
    let mut release = pin!(lab.ipam.release_affinity(net(BLOCK), "a", false));
    go_until(&mut release, || lab.rows() == ["host:a 10.0.0.0/26 pendingDeletion"]);
    let other = lab.client();
    block_on(other.assign_ip(&AssignIp::new(ip("10.0.0.7"), "a").handle("h"))).expect("assigned");
    assert_eq!(block_on(release), Ok(()));
    let left = lab.block(BLOCK).expect("it has an address");
    assert_eq!((left.affinity.clone(), left.in_use(), lab.rows().len()), (None, vec![ip("10.0.0.7")], 0));
    lab.assert_clean();
}

#[test]
fn race_10_race_11_a_row_that_is_there_already_when_claiming() {
    for (state, writes) in [(AffinityState::Confirmed, 1), (AffinityState::PendingDeletion, 2), (AffinityState::Pending, 2)] {
        let lab = Lab::new(&[BLOCK], &["a"]);
        set_row(&lab, "a", state);
        assert_eq!(block_on(lab.ipam.claim_affinity(net(BLOCK), "a")).map(|(c, _)| c.len()), Ok(1));
        matching(&lab);
        // Pending is written again, so that whoever gives it up on old knowledge loses; then confirmed.
        assert_eq!(lab.store.requests()[&(Verb::Update, "BlockAffinity")], writes, "{state:?}");
    }
    // RACE-11: another process of the host confirms first.
    let lab = Lab::new(&[BLOCK], &["a"]);
    let mut claim = pin!(lab.ipam.claim_affinity(net(BLOCK), "a"));
    go_until(&mut claim, || lab.block(BLOCK).is_some());
    set_row(&lab, "a", AffinityState::Confirmed);
    assert_eq!(block_on(claim).map(|(claimed, _)| claimed.len()), Ok(1));
    matching(&lab);
}

/// An orphan: a block of nobody with one address of `h`.
fn orphan() -> (Lab, Release) {
    let lab = Lab::new(&[BLOCK], &["a"]);
    block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.7"), "a").handle("h"))).expect("assigned");
    block_on(lab.ipam.release_affinity(net(BLOCK), "a", false)).expect("given back");
    let block = lab.block(BLOCK).expect("it has an address");
    let number = block.seq_of(7);
    (lab, Release::exact(ip("10.0.0.7"), Some("h"), number, Some(cidr(BLOCK))))
}

#[test]
fn the_last_address_of_an_orphan_is_released_by_one_of_two() {
    let (lab, release) = orphan();
    let releases = [release];
    let mut slow = pin!(lab.ipam.release_ips(&releases));
    let reads = |lab: &Lab| lab.store.requests().get(&(Verb::Get, "IPAMBlock")).copied().unwrap_or(0);
    let before = reads(&lab);
    go_until(&mut slow, || reads(&lab) > before);
    // It has seen the address and is about to delete the block; another process does.
    let quick = block_on(lab.client().release_ips(&releases)).expect("released");
    assert_eq!(quick.outcomes[&ip("10.0.0.7")], Outcome::Released);
    // Later the address is handed out again, under the same handle.
    lab.wait_ms(1);
    block_on(lab.client().assign_ip(&AssignIp::new(ip("10.0.0.7"), "a").handle("h"))).expect("assigned");
    let slow = block_on(slow).expect("released");
    assert!(matches!(slow.outcomes[&ip("10.0.0.7")], Outcome::Stale(_) | Outcome::AlreadyFree), "{slow:?}");
    assert_eq!((lab.count("h"), lab.block_of(ip("10.0.0.7")).in_use()), (Some(1), vec![ip("10.0.0.7")]));
    lab.assert_clean();
}

#[test]
fn a_count_dropped_with_its_handle_is_not_taken_from_the_next() {
    let (lab, release) = orphan();
    let releases = [release];
    let mut slow = pin!(lab.ipam.release_ips(&releases));
    go_until(&mut slow, || lab.blocks().is_empty());
    // It has yet to count the handle down. Another one finds the block gone and drops the handle; a third counts it anew.
    assert_eq!(block_on(lab.client().release_by_handle(&HandleId::new("h"))), Ok(Vec::new()));
    assert_eq!(lab.count("h"), None);
    lab.wait_ms(1);
    block_on(lab.client().assign_ip(&AssignIp::new(ip("10.0.0.9"), "a").handle("h"))).expect("assigned");
    assert_eq!(block_on(slow).expect("released").outcomes[&ip("10.0.0.7")], Outcome::Released);
    assert_eq!(lab.count("h"), Some(1));
    lab.assert_clean();
}
