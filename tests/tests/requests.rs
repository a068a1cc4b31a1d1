//! The library's rows of the table of requests (spec/performance.md). A round trip is one turn of the store: calls that go
//! out together end together.

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use futures::executor::block_on;
use futures::future::join_all;
use ipam::{AutoAssign, Outcome, Release};
use ipam_tests::lab::{Lab, want};
use ipam_tests::say;

/// Requests and round trips of a request for one address.
fn cost(lab: &Lab, request: &AutoAssign) -> (u64, usize) {
    let before = lab.store.requests();
    let mut call = pin!(lab.ipam.auto_assign(request));
    let mut context = Context::from_waker(Waker::noop());
    let mut trips = 0;
    let got = loop {
        match call.as_mut().poll(&mut context) {
            Poll::Ready(got) => break got,
            Poll::Pending => trips += 1,
        }
    };
    assert_eq!(got.expect("assigned").v4.expect("asked for").ips.len(), 1);
    (lab.requests_since(&before), trips)
}

#[test]
fn one_address() {
    let lab = Lab::new(&["10.0.0.0/24"], &["a"]);
    let (requests, trips) = cost(&lab, &want("a", 1).handle("h1"));
    say(format_args!("first block of a host: {requests} requests in {trips} round trips"));
    assert!(requests <= 14 && trips <= 7, "{requests} requests, {trips} round trips");
    let (requests, trips) = cost(&lab, &want("a", 1).handle("h2"));
    say(format_args!("block at hand: {requests} requests in {trips} round trips"));
    assert!(requests <= 8 && trips <= 4, "{requests} requests, {trips} round trips");
    let known = cost(&lab, &want("a", 1).handle("h3").snapshot(lab.snapshot("a")));
    assert_eq!(known, (3, 3), "with a snapshot: GET block, POST handle, PUT block");
    let again = cost(&lab, &want("a", 1).handle("h3").snapshot(lab.snapshot("a")));
    assert_eq!(again, (5, 5), "a handle that exists costs two more");
    let before = lab.store.requests();
    block_on(lab.ipam.utilization(&[])).expect("read");
    assert_eq!(lab.requests_since(&before), 3, "utilization");
}

#[test]
fn d_62_four_hundred_at_once_on_eight_hosts() {
    let hosts: Vec<String> = (0..8).map(|n| format!("host-{n}")).collect();
    let lab = Lab::new(&["10.0.0.0/16"], &hosts.iter().map(String::as_str).collect::<Vec<_>>());
    let requests: Vec<_> = (0..400).map(|n| want(&hosts[n % 8], 1).handle(&format!("handle-{n}"))).collect();
    let before = lab.store.requests();
    let got = block_on(join_all(requests.iter().map(|r| lab.ipam.auto_assign(r))));
    let cost = lab.requests_since(&before);
    say(format_args!("400 at once on 8 hosts: {cost} requests"));
    let ips: BTreeSet<_> = got.into_iter().flat_map(|g| g.expect("assigned").v4.expect("asked for").ips).collect();
    assert_eq!(ips.len(), 400);
    assert!(cost <= 1_600, "{cost} requests: {:?}", lab.store.requests());
    assert_eq!(lab.blocks().len(), 8, "no host claims a second block while its first has room");
    lab.assert_clean();
}

#[test]
fn release_of_1920_addresses_in_38_blocks_a_handle_each() {
    let lab = Lab::new(&["10.0.0.0/16"], &["a"]);
    let handles: Vec<String> = (0..1_920).map(|n| format!("h{n}")).collect();
    let calls: Vec<_> = handles.iter().map(|h| want("a", 1).handle(h).max_blocks(100)).collect();
    let got = block_on(join_all(calls.iter().map(|r| lab.ipam.auto_assign(r))));
    let ips = got.into_iter().map(|g| g.expect("assigned").v4.expect("asked for").ips[0].addr());
    let releases: Vec<Release> = ips
        .zip(&handles)
        .map(|(ip, handle)| {
            let block = lab.block_of(ip);
            Release::exact(ip, Some(handle), block.seq_of(block.cidr.ordinal(ip).expect("inside")), Some(block.cidr))
        })
        .collect();
    let blocks = lab.blocks().len();
    let before = lab.store.requests();
    let report = block_on(lab.ipam.release_ips(&releases)).expect("released");
    assert!(report.outcomes.len() == 1_920 && report.outcomes.values().all(|o| *o == Outcome::Released));
    let requests = lab.requests_since(&before);
    say(format_args!("release of 1920 addresses in {blocks} blocks: {requests} requests"));
    assert!(requests <= 2_200, "{requests} requests: {:?}", lab.store.requests());
    lab.assert_clean();
}
