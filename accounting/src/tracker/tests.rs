//! Counts of pools and blocks, and which block belongs to which pool.

use super::*;
use crate::reserved::{reserved_in_cidr, reserved_set};

fn net(s: &str) -> IpNet {
    s.parse().expect("a CIDR")
}

/// A block with one address, its sixth, in use and `cooling` more cooling after it.
fn one_used(cidr: IpNet, cooling: u32) -> BlockUse {
    let queue: Vec<u32> = (0..size(cidr) as u32).filter(|o| !(5..6 + cooling).contains(o)).collect();
    BlockUse::new(cidr, 1, cooling, &queue)
}

fn numbers(c: Counts) -> [u128; 4] {
    [c.capacity, c.in_use, c.reserved, c.available]
}

#[test]
fn utl_01_utl_02_utl_03_utl_04_reservations_around_one_used_address() {
    for (reserved, pool, block) in [
        (&["10.0.0.32/30"][..], [256, 1, 4, 251], [64, 1, 4, 59]),
        (&["10.0.0.128/25"], [256, 1, 128, 127], [64, 1, 0, 63]),
        (&["10.0.0.5/32"], [256, 1, 1, 255], [64, 1, 1, 63]),
        (&["10.0.0.0/25", "10.0.0.5/32", "10.0.0.64/26"], [256, 1, 128, 128], [64, 1, 64, 0]),
    ] {
        let mut tracker = Tracker::default();
        tracker.put_pool("p", Some(net("10.0.0.0/24")));
        tracker.put_block(net("10.0.0.0/26"), one_used(net("10.0.0.0/26"), 0));
        tracker.put_reservation("r", reserved_set(reserved.iter().copied()));
        let id = tracker.pool_of(net("10.0.0.0/26")).expect("in the pool");
        assert_eq!(numbers(tracker.pool_counts(id)), pool, "{reserved:?}");
        assert_eq!(numbers(tracker.block_counts(net("10.0.0.0/26")).expect("a block")), block, "{reserved:?}");
    }
}

#[test]
fn utl_05_pool_arithmetic() {
    type Case = (&'static str, &'static [&'static str], &'static [&'static str], [u128; 3]);
    let rows: [Case; 10] = [
        ("10.0.0.0/24", &[], &[], [256, 0, 256]),
        ("10.0.0.0/24", &["10.0.0.32/30"], &[], [256, 4, 252]),
        ("10.0.0.0/24", &["10.0.0.0/25", "10.0.0.5/32", "10.0.0.64/26", "10.0.0.0/25"], &[], [256, 128, 128]),
        ("10.0.0.0/24", &["10.0.0.0/16"], &[], [256, 256, 0]),
        ("10.0.0.0/24", &["192.168.0.0/24", "fd00::/120"], &[], [256, 0, 256]),
        ("10.0.0.0/24", &[], &["10.0.0.0/26", "10.0.0.64/26"], [256, 0, 128]),
        ("10.0.0.0/24", &["10.0.0.32/30"], &["10.0.0.0/26"], [256, 4, 192]),
        ("10.0.0.0/24", &["10.0.0.128/25"], &["10.0.0.0/26"], [256, 128, 64]),
        ("fd00::/120", &["fd00::/126"], &[], [256, 4, 252]),
        ("fd00::/8", &[], &[], [1 << 120, 0, 1 << 120]),
    ];
    for (pool, reserved, blocks, want) in rows {
        let mut tracker = Tracker::default();
        tracker.put_pool("p", Some(net(pool)));
        tracker.put_reservation("r", reserved_set(reserved.iter().copied()));
        for block in blocks {
            // Full blocks: what is available then lies outside of them.
            tracker.put_block(net(block), BlockUse::new(net(block), 64, 0, &[]));
        }
        let counts = tracker.pool_counts(PoolId(0));
        assert_eq!([counts.capacity, counts.reserved, counts.available], want, "{pool} {reserved:?} {blocks:?}");
        assert_eq!(reserved_in_cidr(net(pool), reserved.iter().copied()), counts.reserved);
    }
}

#[test]
fn utl_12_utl_14_cooling_is_its_own_state_and_nothing_goes_negative() {
    let cidr = net("10.0.0.0/26");
    let mut tracker = Tracker::default();
    tracker.put_block(cidr, one_used(cidr, 2));
    let counts = tracker.block_counts(cidr).expect("a block");
    assert_eq!((counts.in_use, counts.cooling, counts.available), (1, 2, 61));
    tracker.put_block(cidr, BlockUse::new(cidr, 64, 0, &[]));
    tracker.put_reservation("r", reserved_set(["10.0.0.5"]));
    assert_eq!(numbers(tracker.block_counts(cidr).expect("a block")), [64, 64, 1, 0]);
}

#[test]
fn gcp_01_gcp_02_gcp_05_gcp_08_blocks_find_their_pool() {
    let (v4, v6) = (net("192.168.0.0/30"), net("fd00::/122"));
    let mut tracker = Tracker::default();
    for b in [v4, v6] {
        tracker.put_block(b, BlockUse::new(b, 0, 0, &[]));
    }
    assert_eq!((tracker.pool_of(v4), tracker.pool_of(v6)), (None, None), "orphans of both families");
    assert_eq!(tracker.put_pool("small", Some(net("192.168.0.0/31"))), [], "a pool smaller than the block");
    assert_eq!(tracker.put_pool("p", Some(net("192.168.0.0/24"))).len(), 1);
    assert_eq!(tracker.pool_of(v4).map(|p| tracker.pool_name(p)), Some("p"));
    assert_eq!(tracker.pool_of(v6), None);
    assert_eq!(tracker.remove_pool("p").len(), 1);
    assert_eq!(tracker.pool_of(v4), None);
}

#[test]
fn gcp_09_gcp_10_gcp_11_most_specific_then_name_and_always_resolved_again() {
    let block = net("10.0.0.0/26");
    let mut tracker = Tracker::default();
    let name = |t: &Tracker| t.pool_of(block).map(|p| t.pool_name(p).to_owned());
    tracker.put_block(block, BlockUse::new(block, 0, 0, &[]));
    tracker.put_pool("wide", Some(net("10.0.0.0/8")));
    tracker.put_pool("b-narrow", Some(net("10.0.0.0/24")));
    tracker.put_pool("a-narrow", Some(net("10.0.0.0/24")));
    assert_eq!(name(&tracker).as_deref(), Some("a-narrow"));
    tracker.remove_pool("a-narrow");
    assert_eq!(name(&tracker).as_deref(), Some("b-narrow"));
    tracker.put_pool("b-narrow", Some(net("10.1.0.0/24")));
    assert_eq!(name(&tracker).as_deref(), Some("wide"));
    tracker.put_pool("wide", None);
    tracker.put_pool("wide", None);
    assert_eq!(name(&tracker), None);
}

#[test]
fn reserved_classes_follow_the_pool_of_a_block() {
    let block = net("10.0.0.0/26");
    let mut tracker = Tracker::default();
    tracker.put_block(block, one_used(block, 0));
    tracker.put_pool("wide", Some(net("10.0.0.0/8")));
    tracker.put_pool("narrow", Some(net("10.0.0.0/24")));
    tracker.put_reservation("r", reserved_set(["10.0.0.0/30"]));
    tracker.set_extra_reserved("skips-low", reserved_set(["10.0.0.0/29"]));
    tracker.set_class("narrow", Some("skips-low"));
    let counts = |t: &Tracker| t.block_counts(block).map(|c| (c.reserved, c.available));
    assert_eq!(counts(&tracker), Some((8, 56)), "of the eight, .5 is in use");
    tracker.remove_pool("narrow");
    assert_eq!(counts(&tracker), Some((4, 59)), "the class stays behind with its pool");
    tracker.set_class("wide", Some("skips-low"));
    assert_eq!(counts(&tracker), Some((8, 56)));
    assert_eq!(reserved_in_cidr(block, ["10.0.0.0/30"]), 4, "a CIDR has no class");
    tracker.set_extra_reserved("skips-low", AddrSet::new());
    assert_eq!(counts(&tracker), Some((4, 59)));
}

proptest::proptest! {
    /// Against looking at every block of the pool by itself.
    #[test]
    fn b_unclaimed_blocks_overlap_none_and_are_not_wholly_reserved(
        blocks in proptest::collection::vec((0u32..64, 26u8..=30), 0..6),
        reserved in proptest::collection::vec((0u32..64, 25u8..=32), 0..6),
    ) {
        let place = |(at, prefix): (u32, u8)| IpNet::new(std::net::Ipv4Addr::from(0x0a00_0000 + at * 4).into(), prefix).expect("a CIDR").trunc();
        let mut tracker = Tracker::default();
        tracker.put_pool("p", Some(net("10.0.0.0/24")));
        let id = tracker.pools().next().expect("there").1;
        let blocks: Vec<IpNet> = blocks.into_iter().map(place).collect();
        for cidr in &blocks {
            tracker.put_block(*cidr, one_used(*cidr, 0));
        }
        let mut set = AddrSet::new();
        let reserved: Vec<IpNet> = reserved.into_iter().map(place).collect();
        reserved.iter().for_each(|r| set.insert(*r));
        tracker.put_reservation("r", set);
        let candidates = (0..16).map(|i| net(&format!("10.0.0.{}/28", i * 16)));
        let covered = |c: IpNet| (0..16).all(|o| reserved.iter().any(|r| r.contains(&crate::set::addr_at(c, o).expect("inside"))));
        let slow = candidates.filter(|c| !blocks.iter().any(|b| crate::set::overlap(*b, *c)) && !covered(*c)).count();
        proptest::prop_assert_eq!(tracker.blocks_unclaimed(id, 28), slow as u128);
    }
}
