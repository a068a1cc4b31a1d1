//! Owners of addresses: setting, moving, reading (OWN), and how full pools are (UTL).

use futures::executor::block_on;
use ipam::model::{BlockKind, HandleKind, PoolKind};
use ipam::owners::{OwnerError, OwnerRef, OwnerUpdate, Side};
use ipam::queries::{Assignment, QueryError};
use ipam::store::StoreError;
use ipam::{AssignIp, AutoAssign, HandleId};
use ipam_accounting::facts::Attrs;
use ipam_tests::faulty::row_name;
use ipam_tests::lab::{Lab, all_in, cidr, ip, want, windows};

const H: &str = "h";

/// Attributes of a pod.
fn a(pod: &str) -> Attrs {
    [("pod".into(), format!("pod-{pod}")), ("namespace".into(), format!("ns-{pod}"))].into()
}

fn r(pod: &str) -> OwnerRef {
    OwnerRef { namespace: format!("ns-{pod}"), name: format!("pod-{pod}") }
}

fn set(pod: &str) -> Side {
    Side { set: Some(a(pod)), ..Side::default() }
}

fn clear() -> Side {
    Side { clear: true, ..Side::default() }
}

fn both(active: Side, alternate: Side) -> OwnerUpdate {
    OwnerUpdate { active, alternate }
}

fn keep() -> Side {
    Side::default()
}

/// A cluster with 10.0.0.1 assigned to `h`, without owners.
fn fresh() -> Lab {
    let lab = Lab::new(&["10.0.0.0/24"], &["n"]);
    block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.1"), "n").handle(H))).expect("assigned");
    lab
}

/// The same with these owners.
fn with(active: Option<&str>, alternate: Option<&str>) -> Lab {
    let lab = fresh();
    let side = |pod: Option<&str>| pod.map_or_else(keep, set);
    update(&lab, &both(side(active), side(alternate))).expect("set");
    lab
}

fn update(lab: &Lab, update: &OwnerUpdate) -> Result<(), OwnerError> {
    block_on(lab.ipam.set_owner_attributes(ip("10.0.0.1"), H, update))
}

fn read(lab: &Lab, at: &str) -> Result<Assignment, QueryError> {
    block_on(lab.ipam.assignment_attributes(ip(at)))
}

fn assert_owners(lab: &Lab, active: Option<&str>, alternate: Option<&str>) {
    let got = read(lab, "10.0.0.1").expect("assigned");
    let attrs = |pod: Option<&str>| pod.map(a).unwrap_or_default();
    assert_eq!((got.active, got.alternate), (attrs(active), attrs(alternate)));
}

fn refused(lab: &Lab, change: &OwnerUpdate, side: &'static str) {
    let before = lab.block("10.0.0.0/26");
    assert_eq!(update(lab, change), Err(OwnerError::Precondition(ip("10.0.0.1"), side)));
    assert_eq!(lab.block("10.0.0.0/26"), before, "nothing changed");
}

#[test]
fn own_01_own_02_own_03_own_04_own_05_own_06_own_07_own_08_setting_and_clearing() {
    type Owners = (Option<&'static str>, Option<&'static str>);
    let rows: [(Owners, OwnerUpdate, Owners); 9] = [
        ((None, None), both(set("a"), keep()), (Some("a"), None)),
        ((None, None), both(keep(), set("b")), (None, Some("b"))),
        ((None, None), both(set("a"), set("b")), (Some("a"), Some("b"))),
        ((Some("a"), None), both(clear(), keep()), (None, None)),
        ((None, Some("b")), both(keep(), clear()), (None, None)),
        ((Some("a"), Some("b")), both(clear(), clear()), (None, None)),
        ((Some("old"), None), both(set("new"), keep()), (Some("new"), None)),
        ((Some("a"), Some("b")), both(set("c"), keep()), (Some("c"), Some("b"))),
        ((Some("a"), Some("b")), both(keep(), set("c")), (Some("a"), Some("c"))),
    ];
    for ((active, alternate), change, (then_active, then_alternate)) in rows {
        let lab = with(active, alternate);
        update(&lab, &change).expect("set");
        assert_owners(&lab, then_active, then_alternate);
        assert_eq!(lab.count(H), Some(1));
        lab.assert_clean();
    }
}

#[test]
fn own_09_own_10_own_11_own_12_own_13_own_14_own_21_own_22_own_26_conditions() {
    let expecting = |pod: &str, side: Side| Side { expect: Some(r(pod)), ..side };
    let empty = |side: Side| Side { expect_empty: true, ..side };
    let lab = with(Some("source"), None);
    refused(&lab, &both(expecting("wrong", clear()), keep()), "active");
    update(&lab, &both(expecting("source", clear()), keep())).expect("OWN-09");
    assert_owners(&lab, None, None);
    let lab = with(None, Some("b"));
    refused(&lab, &both(keep(), expecting("wrong", clear())), "alternate");
    update(&lab, &both(keep(), expecting("b", clear()))).expect("OWN-11");
    assert_owners(&lab, None, None);
    update(&lab, &both(empty(set("a")), empty(set("b")))).expect("OWN-12, OWN-14");
    assert_owners(&lab, Some("a"), Some("b"));
    refused(&lab, &both(empty(set("c")), keep()), "active");
    refused(&lab, &both(keep(), empty(set("c"))), "alternate");
    refused(&lab, &both(expecting("a", clear()), expecting("wrong", clear())), "alternate");
    refused(&lab, &both(expecting("wrong", keep()), set("c")), "active");
    update(&lab, &both(expecting("a", clear()), expecting("b", clear()))).expect("OWN-21");
    assert_owners(&lab, None, None);
}

#[test]
fn own_15_own_16_contradictory_arguments_are_refused_unread() {
    let lab = with(Some("a"), Some("b"));
    let before = lab.store.requests();
    let twice = |side: Side| Side { clear: true, ..side };
    let expect_both = Side { expect: Some(r("a")), expect_empty: true, ..Side::default() };
    for change in
        [both(twice(set("c")), keep()), both(keep(), twice(set("c"))), both(expect_both.clone(), keep()), both(keep(), expect_both)]
    {
        let refused = update(&lab, &change).expect_err("contradictory");
        assert!(matches!(&refused, OwnerError::Argument(m) if m.contains("mutually exclusive")), "{refused}");
    }
    assert_eq!(lab.requests_since(&before), 0);
    // OWN-15: there is no call without an update object; the empty one is OWN-23.
}

#[test]
fn own_17_own_18_own_19_own_27_own_28_which_addresses() {
    let lab = with(Some("a"), None);
    let change = both(set("b"), keep());
    let at = |at: &str, handle: &str| block_on(lab.ipam.set_owner_attributes(ip(at), handle, &change));
    assert_eq!(at("10.0.0.1", "wrong-handle"), Err(OwnerError::OtherHandle(ip("10.0.0.1"), "wrong-handle".into())));
    assert_eq!(at("10.0.0.200", H), Err(OwnerError::NotExist(ip("10.0.0.200"))));
    assert_eq!(at("192.168.1.1", H), Err(OwnerError::NotExist(ip("192.168.1.1"))));
    lab.change_pool("10.0.0.0/24", |p| p.disabled = true);
    assert_eq!(at("10.0.0.1", H), Ok(()), "OWN-28");
    assert_owners(&lab, Some("b"), None);
    lab.config(|c| c.cooldown_seconds = 60);
    lab.release(ip("10.0.0.1"));
    assert_eq!(at("10.0.0.1", H), Err(OwnerError::InCooldown(ip("10.0.0.1"))));
}

#[test]
fn own_20_a_migration_from_source_to_target() {
    let lab = with(Some("src"), None);
    let steps: [(OwnerUpdate, Option<&str>, Option<&str>); 3] = [
        (both(keep(), Side { expect_empty: true, ..set("tgt") }), Some("src"), Some("tgt")),
        (both(Side { expect: Some(r("src")), ..clear() }, keep()), None, Some("tgt")),
        (both(Side { expect_empty: true, ..set("tgt") }, Side { expect: Some(r("tgt")), ..clear() }), Some("tgt"), None),
    ];
    for (change, active, alternate) in steps {
        update(&lab, &change).expect("set");
        assert_owners(&lab, active, alternate);
    }
}

#[test]
fn own_23_own_29_an_empty_update_writes_nothing_and_the_address_keeps_its_number() {
    let lab = with(Some("a"), None);
    let before = lab.block("10.0.0.0/26").expect("there");
    update(&lab, &OwnerUpdate::default()).expect("nothing to do");
    assert_eq!(lab.block("10.0.0.0/26").as_ref(), Some(&before));
    update(&lab, &both(set("b"), keep())).expect("set");
    let after = lab.block("10.0.0.0/26").expect("there");
    assert_eq!((after.seq, after.seq_of(1)), (before.seq + 1, before.seq_of(1)));
}

#[test]
fn own_24_conditions_are_checked_again_after_a_lost_race() {
    let lab = with(Some("a"), None);
    lab.faulty.race_write(cidr("10.0.0.0/26"));
    let change = both(Side { expect: Some(r("a")), ..set("b") }, keep());
    let before = lab.block("10.0.0.0/26").expect("there").seq;
    update(&lab, &change).expect("set at the second attempt");
    assert_owners(&lab, Some("b"), None);
    assert_eq!(lab.block("10.0.0.0/26").expect("there").seq, before + 2);
    refused(&lab, &change, "active");
}

#[test]
fn own_30_who_matches() {
    let nobody = OwnerRef { namespace: String::new(), name: String::new() };
    let only_pod: Attrs = [("pod".into(), "x".into())].into();
    assert_eq!([nobody.matches(&Attrs::new()), nobody.matches(&only_pod)], [true, false]);
    let pod_alone: Attrs = [("pod".into(), "pod-p".into())].into();
    let other: Attrs = [("pod".into(), "pod-p".into()), ("namespace".into(), "other".into())].into();
    assert_eq!([&a("p"), &other, &pod_alone, &Attrs::new()].map(|attrs| r("p").matches(attrs)), [true, false, false, false]);
}

#[test]
fn own_31_own_32_own_33_reading_attributes() {
    let none = Lab::new(&[], &["host"]);
    assert_eq!(read(&none, "10.0.0.1"), Err(QueryError::NotExist(ip("10.0.0.1"))));
    let lab = Lab::new(&["10.0.0.0/24"], &["host"]);
    assert_eq!(read(&lab, "10.0.0.1"), Err(QueryError::NotExist(ip("10.0.0.1"))));
    block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.2"), "host"))).expect("assigned");
    assert_eq!(read(&lab, "10.0.0.1"), Err(QueryError::NotExist(ip("10.0.0.1"))));
    let attrs: Attrs = [("node".into(), "host".into()), ("type".into(), "vxlanTunnelAddress".into())].into();
    block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.1"), "host").handle("my-test-handle").attrs(attrs.clone()))).expect("assigned");
    let got = read(&lab, "10.0.0.1").expect("assigned");
    assert_eq!((got.handle.as_deref(), got.active, got.alternate), (Some("my-test-handle"), attrs, Attrs::new()));
}

fn move_to(lab: &Lab, to: &str, owner: &str, max: Option<u32>) -> Result<(), OwnerError> {
    block_on(lab.ipam.move_ip_to_handle(ip("10.0.0.1"), to, &r(owner), max))
}

#[test]
fn a_moved_address_has_its_new_handle_at_once_and_a_new_number() {
    let lab = with(Some("a"), None);
    let before = lab.block("10.0.0.0/26").expect("there");
    move_to(&lab, "new", "a", None).expect("moved");
    let after = lab.block("10.0.0.0/26").expect("there");
    assert_eq!((after.seq_of(1), after.seq), (before.seq, before.seq + 1), "D-67");
    assert_eq!((lab.count(H), lab.count("new")), (None, Some(1)));
    assert_owners(&lab, Some("a"), None);
    assert_eq!(move_to(&lab, "new", "a", None), Ok(()), "again is no error");
    assert_eq!(lab.block("10.0.0.0/26"), Some(after));
    lab.assert_clean();
}

#[test]
fn a_move_by_anybody_else_or_beyond_the_cap_changes_nothing() {
    let lab = with(Some("a"), None);
    assert_eq!(move_to(&lab, "new", "b", None), Err(OwnerError::Precondition(ip("10.0.0.1"), "active")));
    block_on(lab.ipam.assign_ip(&AssignIp::new(ip("10.0.0.9"), "n").handle("new"))).expect("assigned");
    assert_eq!(move_to(&lab, "new", "a", Some(1)), Err(OwnerError::MaxReached("new".into())));
    let nobody = OwnerRef { namespace: String::new(), name: "pod-a".into() };
    let moved = block_on(lab.ipam.move_ip_to_handle(ip("10.0.0.1"), "new", &nobody, None));
    assert!(matches!(moved, Err(OwnerError::Argument(_))));
    assert_eq!((lab.count(H), lab.count("new")), (Some(1), Some(1)));
    lab.config(|c| c.cooldown_seconds = 60);
    lab.release(ip("10.0.0.1"));
    assert_eq!(move_to(&lab, "new", "a", None), Err(OwnerError::InCooldown(ip("10.0.0.1"))));
    assert_eq!(lab.count("new"), Some(1));
}

/// A pool's name, and its blocks with what is in use in each.
type Used = (Option<String>, Vec<(String, u128)>);

fn used(lab: &Lab, wanted: &[&str]) -> Vec<Used> {
    let pools = block_on(lab.ipam.utilization(wanted)).expect("read");
    let blocks = |p: &ipam::queries::PoolUtilization| p.blocks.iter().map(|(c, n)| (c.to_string(), n.in_use)).collect();
    pools.iter().map(|p| (p.name.clone(), blocks(p))).collect()
}

#[test]
fn utl_06_utl_07_utl_08_utl_09_utl_10_utl_11_pools_and_blocks_of_no_pool() {
    let lab = Lab::new(&["10.0.0.0/24", "20.0.0.0/24"], &["n"]);
    let assign = |at: &str| block_on(lab.ipam.assign_ip(&AssignIp::new(ip(at), "n"))).expect("assigned");
    assign("10.0.0.1");
    let first = (Some("10.0.0.0/24".to_owned()), vec![("10.0.0.0/26".to_owned(), 1)]);
    assert_eq!(used(&lab, &["20.0.0.0/24"]), [(Some("20.0.0.0/24".into()), vec![])]);
    assert_eq!(used(&lab, &[])[0], first);
    assign("20.0.0.1");
    let second = (Some("20.0.0.0/24".to_owned()), vec![("20.0.0.0/26".to_owned(), 1)]);
    assert_eq!(used(&lab, &["20.0.0.0/24"]), std::slice::from_ref(&second));
    lab.change_pool("10.0.0.0/24", |p| p.disabled = true);
    assert_eq!(used(&lab, &[]), [first, second, (None, vec![])], "UTL-09");
    lab.store.take::<PoolKind>(&"10.0.0.0/24".to_owned());
    lab.put::<BlockKind>(
        cidr("fd00::/122"),
        ipam::Block { affinity: None, ..ipam::Block::new(cidr("fd00::/122"), None, 0).expect("valid") },
    );
    let orphans = used(&lab, &[]).pop().expect("the last");
    assert_eq!(orphans, (None, vec![("10.0.0.0/26".into(), 1), ("fd00::/122".into(), 0)]), "UTL-10, UTL-11");
    assert_eq!(used(&lab, &["20.0.0.0/24"]).len(), 1);
}

#[test]
fn utl_13_utl_14_reserved_addresses_never_make_counts_negative() {
    let lab = Lab::new(&["10.0.0.0/29@29"], &["n"]);
    assert_eq!(lab.ips(&want("n", 8).reserve(ipam::Family::V4, windows())).len(), 4, "three first and one last are the host's");
    lab.reserve("all", &["10.0.0.0/24"]);
    let pools = block_on(lab.ipam.utilization(&[])).expect("read");
    let (_, counts) = pools[0].blocks[0];
    assert_eq!((counts.in_use, counts.available), (8, 0));
}

#[test]
fn rbh_07_rbh_09_hdl_06_hdl_09_releases_by_handle_under_races() {
    let lab = Lab::new(&["10.0.0.0/24"], &["n"]);
    let got = lab.ips(&want("n", 3).handle(H));
    all_in(&got, "10.0.0.0/24");
    let block = lab.block_of(got[0]).cidr;
    lab.faulty.race_write(block);
    let mut released = block_on(lab.ipam.release_by_handle(&HandleId::new(H))).expect("released");
    released.sort();
    assert_eq!(released.len(), 3);
    assert_eq!(lab.count(H), None);
    assert!(block_on(lab.ipam.release_by_handle(&HandleId::new(H))).is_err(), "the other of two releases: no such handle");
    lab.assert_clean();
}

#[test]
fn hdl_07_hdl_08_hdl_10_counts_by_family_lost_creations_and_blocks_that_cannot_be_read() {
    let lab = Lab::new(&["10.0.0.0/26", "10.0.1.0/26", "fd00::/122"], &["n"]);
    let ask = |n4, n6, cap| lab.assign(&AutoAssign::new("n", "Workload", n4, n6).handle(H).max_per_handle(cap)).is_ok();
    assert!(ask(2, 1, 2));
    assert_eq!(lab.count(H), Some(3));
    // HDL-07: of IPv4 it has two, of IPv6 one.
    assert!(lab.assign(&AutoAssign::new("n", "Workload", 0, 2).handle("other").attrs(a("1"))).is_ok());
    let moved = |ip, cap| block_on(lab.ipam.move_ip_to_handle(ip, H, &r("1"), Some(cap)));
    let six = block_on(lab.ipam.ips_by_handle("other")).expect("readable").expect("there");
    assert_eq!(moved(six[0], 1), Err(OwnerError::MaxReached(H.into())), "a second of IPv6");
    assert_eq!((moved(six[0], 2), moved(six[1], 2)), (Ok(()), Err(OwnerError::MaxReached(H.into()))), "a third");
    // HDL-08: somebody made the row, and it is gone again.
    lab.faulty.fail_once(row_name::<HandleKind>(&HandleId::new("new")), StoreError::Exists);
    assert_eq!((lab.ips(&want("n", 1).handle("new")).len(), lab.count("new")), (1, Some(1)));
    // HDL-10.
    let lab = Lab::new(&["10.0.0.0/26", "10.0.1.0/26"], &["n"]);
    for pool in ["10.0.0.0/26", "10.0.1.0/26"] {
        lab.ips(&want("n", 1).handle(H).pools(ipam::Family::V4, &[ipam_tests::lab::net(pool)]));
    }
    lab.faulty.fail_reading(row_name::<BlockKind>(&cidr("10.0.0.0/26")), StoreError::Refused("no".into()));
    assert_eq!(block_on(lab.ipam.ips_by_handle(H)), Ok(Some(vec![ip("10.0.1.0")])));
}
