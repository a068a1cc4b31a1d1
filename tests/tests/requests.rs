//! The library's rows of the table of requests (spec/performance.md). A round trip is one turn of the store: calls that go
//! out together end together.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use futures::executor::block_on;
use futures::future::join_all;
use ipam::ids::HandleId;
use ipam::mem::Verb;
use ipam::{AutoAssign, KnownHandles, Outcome, Release};
use ipam_tests::lab::{Lab, want};
use ipam_tests::say;

/// What a call answers, with its requests and round trips.
fn counted<T>(lab: &Lab, call: impl Future<Output = T>) -> (T, u64, usize) {
    let before = lab.store.requests();
    let mut call = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    let mut trips = 0;
    let got = loop {
        match call.as_mut().poll(&mut context) {
            Poll::Ready(got) => break got,
            Poll::Pending => trips += 1,
        }
    };
    (got, lab.requests_since(&before), trips)
}

/// Requests and round trips of a request for one address.
fn cost(lab: &Lab, request: &AutoAssign) -> (u64, usize) {
    let (got, requests, trips) = counted(lab, lab.ipam.auto_assign(request));
    assert_eq!(got.expect("assigned").v4.expect("asked for").ips.len(), 1);
    (requests, trips)
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

/// So many addresses, a handle each, assigned to host `a`; with the releases of exactly them.
fn assigned(lab: &Lab, handles: &[String]) -> Vec<Release> {
    let calls: Vec<_> = handles.iter().map(|h| want("a", 1).handle(h).max_blocks(100)).collect();
    let got = block_on(join_all(calls.iter().map(|r| lab.ipam.auto_assign(r))));
    let ips = got.into_iter().map(|g| g.expect("assigned").v4.expect("asked for").ips[0].addr());
    ips.zip(handles).map(|(ip, handle)| exact(lab, ip, handle)).collect()
}

fn exact(lab: &Lab, ip: IpAddr, handle: &str) -> Release {
    let block = lab.block_of(ip);
    Release::exact(ip, Some(handle), block.seq_of(block.cidr.ordinal(ip).expect("inside")), Some(block.cidr))
}

#[test]
fn release_of_1920_addresses_in_38_blocks_a_handle_each() {
    let lab = Lab::new(&["10.0.0.0/16"], &["a"]);
    let handles: Vec<String> = (0..1_920).map(|n| format!("h{n}")).collect();
    let releases = assigned(&lab, &handles);
    let blocks = lab.blocks().len();
    let before = lab.store.requests();
    let report = block_on(lab.ipam.release_ips(&releases)).expect("released");
    assert!(report.outcomes.len() == 1_920 && report.outcomes.values().all(|o| *o == Outcome::Released));
    let requests = lab.requests_since(&before);
    say(format_args!("release of 1920 addresses in {blocks} blocks: {requests} requests"));
    assert!(requests <= 2_200, "{requests} requests: {:?}", lab.store.requests());
    lab.assert_clean();
}

/// A list of all handles serves the calls that follow, except for allocations that are newer than it: of those the handle is read.
#[test]
fn handles_that_were_listed_serve_later_releases() {
    let lab = Lab::new(&["10.0.0.0/16"], &["a"]);
    let handles: Vec<String> = (0..600).map(|n| format!("h{n:03}")).collect();
    let mut releases = assigned(&lab, &handles);
    let mut known = KnownHandles::default();
    known.expect(releases[1..].to_vec());
    let mut release = |some: &[Release]| {
        let before = lab.store.requests();
        let report = block_on(lab.ipam.release_ips_knowing(some, &mut known)).expect("released");
        assert!(report.outcomes.values().all(|o| *o == Outcome::Released) && report.handles_behind.is_empty(), "{report:?}");
        let cost = |verb| lab.store.requests().get(&(verb, "IPAMHandle")).unwrap_or(&0) - before.get(&(verb, "IPAMHandle")).unwrap_or(&0);
        (cost(Verb::List), cost(Verb::Get), cost(Verb::Delete))
    };
    assert_eq!(release(&releases[..1]), (1, 0, 1), "all are listed, for 599 more come soon");
    assert_eq!(release(&releases[1..11]), (0, 0, 10));
    // The next one goes and comes again: its old row counts nothing any more.
    let next = handles[11].clone();
    block_on(lab.ipam.release_by_handle(&HandleId::new(&next))).expect("released");
    let again = block_on(lab.ipam.auto_assign(&want("a", 1).handle(&next).max_blocks(100))).expect("assigned");
    releases[11] = exact(&lab, again.v4.expect("asked for").ips[0].addr(), &next);
    assert_eq!(release(&releases[11..12]), (0, 1, 1));
    assert_eq!(release(&releases[12..]), (0, 0, 588));
    lab.assert_clean();
}

/// `datastore.maxInFlight` bounds what is written at a time.
#[test]
fn writes_at_a_time_are_bounded() {
    let trips = [1, 16].map(|n| {
        let lab = Lab::new(&["10.0.0.0/16"], &["a"]);
        let handles: Vec<String> = (0..32).map(|n| format!("h{n}")).collect();
        let releases = assigned(&lab, &handles);
        let ipam = lab.ipam.clone().with_in_flight(n);
        let (report, _, trips) = counted(&lab, ipam.release_ips(&releases));
        assert!(report.expect("released").outcomes.values().all(|o| *o == Outcome::Released));
        lab.assert_clean();
        trips
    });
    // 32 handles are read and lowered, each in one round trip, beside a few for the block.
    assert!(trips[0] >= 64 && trips[1] < 40, "{trips:?}");
}
