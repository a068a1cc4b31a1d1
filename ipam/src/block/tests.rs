//! The BLK, COL and CHK cases on one block in memory.

use super::*;
use ipam_accounting::reserved::reserved_set;

fn b24() -> Block {
    Block::new("100.64.0.0/24".parse().expect("a CIDR"), None, 1000).expect("fits")
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([100, 64, 0, last])
}

fn at(seconds: i64) -> Time {
    Time::UNIX_EPOCH + TimeDelta::seconds(100_000 + seconds)
}

fn place(block: &mut Block, ordinals: &[u32], entry: Attribute) {
    block.attributes.push(entry);
    let index = block.attributes.len() as u32 - 1;
    for o in ordinals {
        block.allocations[*o as usize] = Some(index);
    }
    block.unallocated.retain(|o| !ordinals.contains(o));
}

fn of(handle: &str) -> Attribute {
    Attribute { handle: Some(handle.into()), ..Attribute::default() }
}

fn cooling(since: Time) -> Attribute {
    Attribute { released_at: Some(since), ..Attribute::default() }
}

fn ranges(cidr: &str) -> Ranges {
    reserved_set([cidr]).ranges()
}

fn any(last: u8) -> ReleaseOption {
    ReleaseOption { ip: ip(last), handle: HandleCheck::Any, seq: None, owner: None }
}

fn with_handle(last: u8, handle: &str) -> ReleaseOption {
    ReleaseOption { handle: HandleCheck::Is(HandleId::new(handle)), ..any(last) }
}

/// ok(block) of the catalogue.
fn ok(block: &Block) {
    assert_eq!(block.faults(at(1_000_000)), []);
}

fn counts(pairs: &[(&str, i64)]) -> BTreeMap<HandleId, i64> {
    pairs.iter().map(|(h, n)| (HandleId::new(h), *n)).collect()
}

const NO_COOLDOWN: TimeDelta = TimeDelta::zero();

#[test]
fn blk_01_blk_04_blk_05_a_new_block_and_its_first_addresses() {
    let mut b = b24();
    assert!(b.is_empty() && b.in_use().is_empty() && b.unallocated == (0..256).collect::<Vec<_>>());
    place(&mut b, &[10, 20], of("tens"));
    assert!(!b.is_empty());
    assert_eq!(b.in_use(), [ip(10), ip(20)]);
    ok(&b);
}

#[test]
fn blk_02_blk_03_host_reservations_are_no_use() {
    for handle in ["windows-reserved-ipam-handle", "Windows-Reserved-IPAM-Handle"] {
        let mut b = b24();
        place(&mut b, &[255], of(handle));
        assert!(b.is_empty());
    }
    let mut b = b24();
    place(&mut b, &[3], cooling(at(0)));
    assert!(!b.is_empty(), "cooling addresses make a block non-empty");
    let mut b = b24();
    place(&mut b, &[3], Attribute::default());
    assert!(!b.is_empty(), "so do addresses without handle");
}

#[test]
fn blk_06_blk_07_blk_08_blk_09_blk_10_blk_11_free_and_reserved() {
    let mut b = b24();
    place(&mut b, &[10, 20, 210, 220], of("tens"));
    assert_eq!((b.free(&Ranges::default()), b.reserved(&Ranges::default())), (252, 0));
    let half = ranges("100.64.0.128/25");
    assert_eq!((b.free(&half), b.reserved(&half)), (126, 128));
    let all = ranges("100.64.0.128/24");
    assert_eq!((b.free(&all), b.reserved(&all)), (0, 256));
}

#[test]
fn blk_12_by_handle() {
    let mut b = b24();
    for (ordinals, handle) in [(&[3][..], "singleton"), (&[10, 20], "tens"), (&[33], "thirties"), (&[34], "thirties")] {
        place(&mut b, ordinals, of(handle));
    }
    for (handle, ips) in [("unknown", &[][..]), ("singleton", &[ip(3)]), ("tens", &[ip(10), ip(20)]), ("thirties", &[ip(33), ip(34)])] {
        assert_eq!(b.by_handle(&HandleId::new(handle)), ips);
    }
}

#[test]
fn blk_13_blk_14_blk_15_blk_16_attributes() {
    let mut b = b24();
    assert_eq!(b.attributes_of(ip(32)), Err(BlockError::NotExist(ip(32))));
    let attrs = |k: &str| Attrs::from([("is".to_owned(), k.to_owned())]);
    let entry = Attribute { active: attrs("active"), alternate: attrs("alternate"), ..of("hand") };
    place(&mut b, &[32], entry.clone());
    place(&mut b, &[33], cooling(at(0)));
    assert_eq!(b.attributes_of(ip(32)), Ok(&entry));
    assert_eq!(b.attributes_of(ip(33)), Err(BlockError::InCooldown(ip(33))));
    let outside = IpAddr::from([100, 64, 1, 0]);
    let before = b.clone();
    assert!(b.attributes_of(outside).is_err());
    assert!(b.assign(outside, None, &Attrs::new(), None).is_err());
    assert!(b.release(&[any(32), ReleaseOption { ip: outside, ..any(0) }], at(0), NO_COOLDOWN).is_err());
    assert_eq!(b, before);
}

#[test]
fn blk_17_carriage_returns() {
    let mut b = b24();
    place(&mut b, &[5], of("abc\r junk"));
    assert_eq!(b.by_handle(&HandleId::new("abc")), [ip(5)]);
    let out = b.release(&[with_handle(5, "abc")], at(0), NO_COOLDOWN).expect("inside");
    assert_eq!(out.counts, counts(&[("abc", 1)]));
    assert!(b.is_empty());
}

#[test]
fn blk_20_addresses_held_by_other_nodes() {
    let of_node = |n: &str| Attribute { active: Attrs::from([("node".to_owned(), n.to_owned())]), ..Attribute::default() };
    let mut b = Block::new("10.0.0.0/29".parse().expect("a CIDR"), None, 1).expect("fits");
    b.affinity = Some("host:myhost".into());
    b.attributes = vec![of_node("myhost"), of_node("otherhost"), of_node("anotherhost")];
    b.allocations = vec![Some(1), Some(0), Some(2), Some(3), None, None, None, Some(2)];
    let held: Vec<(String, String)> = b.held_by_others().into_iter().map(|(n, ip)| (n, ip.to_string())).collect();
    let want = [("otherhost", "10.0.0.0"), ("anotherhost", "10.0.0.2"), ("anotherhost", "10.0.0.7")];
    assert_eq!(held, want.map(|(n, ip)| (n.to_owned(), ip.to_owned())));
}

#[test]
fn blk_22_clone_is_deep() {
    let mut b = b24();
    b.affinity = Some("host:a".into());
    place(&mut b, &[5], of("h"));
    let copy = b.clone();
    b.release(&[any(5)], at(0), TimeDelta::seconds(60)).expect("inside");
    b.affinity = None;
    assert_eq!(copy.by_handle(&HandleId::new("h")), [ip(5)]);
    assert_eq!(copy.affinity.as_deref(), Some("host:a"));
}

#[test]
fn blk_24_blk_25_blk_26_blk_27_handing_out_from_the_head() {
    let mut b = b24();
    let got = b.auto_assign(2, Some("h"), &Attrs::new(), None, &Ranges::default()).expect("no check");
    assert_eq!(got.iter().map(ToString::to_string).collect::<Vec<_>>(), ["100.64.0.0/24", "100.64.0.1/24"]);
    assert_eq!((b.seq_of(0), b.seq_of(1), b.seq), (1000, 1000, 1000));
    b.unallocated = vec![4, 5, 6, 7];
    let got = b.auto_assign(2, Some("h"), &Attrs::new(), None, &ranges("100.64.0.5")).expect("no check");
    assert_eq!(got.len(), 2);
    assert_eq!(b.unallocated, [5, 7]);
    assert_eq!(b.auto_assign(10, None, &Attrs::new(), None, &Ranges::default()).map(|g| g.len()), Ok(2));
    assert_eq!(b.auto_assign(10, None, &Attrs::new(), None, &Ranges::default()).map(|g| g.len()), Ok(0));
}

#[test]
fn blk_28_blk_29_entries_are_shared_only_when_equal_and_plain() {
    let mut b = b24();
    let attrs = Attrs::from([("pod".to_owned(), "p".to_owned())]);
    for a in [&attrs, &attrs, &Attrs::new()] {
        b.auto_assign(1, Some("h"), a, None, &Ranges::default()).expect("no check");
    }
    assert_eq!(b.attributes.len(), 2);
    place(&mut b, &[9], Attribute { alternate: attrs.clone(), ..of("g") });
    b.auto_assign(1, Some("g"), &Attrs::new(), None, &Ranges::default()).expect("no check");
    assert_eq!(b.attributes.len(), 4);
}

#[test]
fn blk_30_blk_31_blk_32_blk_33_strict_asks_for_the_very_owner() {
    let (a, other, virt) = (Owner::Host("a".into()), Owner::Host("b".into()), Owner::Virtual("a".into()));
    for (affinity, who, fits) in
        [(Some("host:a"), &a, true), (Some("host:a"), &other, false), (None, &a, false), (Some("host:a"), &virt, false)]
    {
        let mut b = Block { affinity: affinity.map(Into::into), ..b24() };
        let before = b.clone();
        assert_eq!(b.auto_assign(1, None, &Attrs::new(), Some(who), &Ranges::default()).is_ok(), fits, "{affinity:?} {who}");
        assert_eq!(b == before, !fits);
        let mut b = before.clone();
        assert_eq!(b.assign(ip(7), None, &Attrs::new(), Some(who)).is_ok(), fits);
        let mut b = before;
        assert!(b.assign(ip(7), None, &Attrs::new(), None).is_ok(), "not strict: anybody");
    }
}

#[test]
fn blk_34_blk_35_explicit_assign() {
    let mut b = b24();
    b.assign(ip(7), Some("h"), &Attrs::new(), None).expect("free");
    assert!(!b.unallocated.contains(&7) && b.seq_of(7) == 1000);
    b.seqs.insert(7, 5);
    let before = b.clone();
    assert_eq!(b.assign(ip(7), Some("h"), &Attrs::new(), None), Err(BlockError::AlreadyExists(ip(7))));
    assert_eq!(b, before);
    place(&mut b, &[8], cooling(at(0)));
    assert_eq!(b.assign(ip(8), Some("h"), &Attrs::new(), None), Err(BlockError::AlreadyExists(ip(8))), "cooling");
}

#[test]
fn blk_36_blk_37_blk_38_blk_39_blk_44_releasing() {
    let mut b = b24();
    place(&mut b, &[13, 26, 39], of("lucky"));
    let out = b.release(&[any(13)], at(0), NO_COOLDOWN).expect("inside");
    assert_eq!((out.results, out.counts), (vec![(ip(13), Released::Yes)], counts(&[("lucky", 1)])));
    assert_eq!((b.in_use(), b.attributes.len()), (vec![ip(26), ip(39)], 1));
    let out = b.release(&[any(13), any(26), any(39)], at(0), NO_COOLDOWN).expect("inside");
    assert_eq!(out.results, [(ip(13), Released::AlreadyFree), (ip(26), Released::Yes), (ip(39), Released::Yes)]);
    assert!(b.in_use().is_empty() && b.attributes.is_empty());
    place(&mut b, &[5], Attribute::default());
    let out = b.release(&[any(5)], at(0), NO_COOLDOWN).expect("inside");
    assert_eq!((out.results, out.counts), (vec![(ip(5), Released::Yes)], counts(&[])));
    ok(&b);
}

#[test]
fn blk_40_blk_41_blk_42_stale_options_are_left_alone_and_the_rest_goes() {
    let mut b = b24();
    place(&mut b, &[13, 14, 15, 16], of("new"));
    b.seqs.extend([(13, 10), (14, 10), (15, 10)]);
    let options = [
        with_handle(13, "new"),
        with_handle(14, "old"),
        ReleaseOption { seq: Some(999), ..with_handle(15, "new") },
        ReleaseOption { seq: Some(0), ..any(16) },
    ];
    let out = b.release(&options, at(0), NO_COOLDOWN).expect("inside");
    assert_eq!(
        out.results,
        [
            (ip(13), Released::Yes),
            (ip(14), Released::Stale(Stale::Handle)),
            (ip(15), Released::Stale(Stale::Sequence { stored: 10, expected: 999 })),
            (ip(16), Released::Yes),
        ]
    );
    assert_eq!(b.in_use(), [ip(14), ip(15)], "a missing number reads as 0, so .16 went");
    let none = ReleaseOption { handle: HandleCheck::None, ..any(14) };
    let out = b.release(&[none], at(0), NO_COOLDOWN).expect("inside");
    assert_eq!(out.results, [(ip(14), Released::Stale(Stale::Handle))], "D-88: none was expected");
}

#[test]
fn blk_43_an_address_given_twice_counts_once() {
    let mut b = b24();
    place(&mut b, &[13], of("h"));
    let out = b.release(&[with_handle(13, "wrong"), any(13)], at(0), NO_COOLDOWN).expect("inside");
    assert_eq!((out.results, out.counts), (vec![(ip(13), Released::Yes)], counts(&[("h", 1)])));
}

#[test]
fn rel_22_rel_23_free_or_cooling_is_already_free_whatever_is_expected() {
    let mut b = b24();
    place(&mut b, &[13], of("h"));
    b.release(&[any(13)], at(0), TimeDelta::seconds(60)).expect("inside");
    let before = b.clone();
    let options = [ReleaseOption { seq: Some(77), ..with_handle(13, "other") }, ReleaseOption { seq: Some(77), ..any(99) }];
    let out = b.release(&options, at(1), TimeDelta::seconds(60)).expect("inside");
    assert_eq!(out.results, [(ip(13), Released::AlreadyFree), (ip(99), Released::AlreadyFree)]);
    assert_eq!(b, before);
}

#[test]
fn blk_45_blk_46_blk_47_blk_48_blk_49_by_handle() {
    let mut b = b24();
    let go = |b: &mut Block, h: &str, seq| b.release_by_handle(&HandleId::new(h), seq, at(0), NO_COOLDOWN).len();
    assert_eq!(go(&mut b, "nosuch", None), 0);
    place(&mut b, &[15], of("fifteen"));
    place(&mut b, &[20], of("twenty"));
    assert_eq!(go(&mut b, "fifteen", None), 1);
    assert_eq!((b.in_use(), b.unallocated.last()), (vec![ip(20)], Some(&15)));

    let mut b = b24();
    for ordinals in [&[15][..], &[16], &[17, 18]] {
        place(&mut b, ordinals, of("teens"));
    }
    b.seqs.extend([(15, 10), (16, 10), (17, 999), (18, 10)]);
    assert_eq!(go(&mut b, "teens", Some(10)), 3);
    assert_eq!(b.in_use(), [ip(17)]);

    for groups in [&[&[15][..], &[25], &[35]][..], &[&[15, 25, 35]]] {
        let mut b = b24();
        groups.iter().for_each(|g| place(&mut b, g, of("h")));
        assert_eq!(go(&mut b, "h", None), 3);
        assert_eq!(b.unallocated[253..], [15, 25, 35]);
        ok(&b);
    }
}

#[test]
fn blk_50_blk_51_blk_52_blk_53_collecting() {
    let mut b = b24();
    assert!(!b.collect(at(0), NO_COOLDOWN));
    b.attributes = vec![of("stray"), of("stray2")];
    place(&mut b, &[32], of("thirty-two"));
    assert!(b.collect(at(0), NO_COOLDOWN));
    assert_eq!((b.attributes.len(), b.allocations[32]), (1, Some(0)));

    let mut b = b24();
    place(&mut b, &[31, 33], cooling(at(-60)));
    place(&mut b, &[42, 44], cooling(at(60)));
    place(&mut b, &[52, 54], of("fifties"));
    b.seqs.extend([(31, 1), (33, 1), (42, 1)]);
    assert!(b.collect(at(0), TimeDelta::seconds(30)));
    assert_eq!((b.in_use().len(), b.unallocated.len()), (4, 252));
    assert_eq!(b.unallocated[250..], [31, 33]);
    assert_eq!(b.seqs.keys().collect::<Vec<_>>(), [&42]);
}

#[test]
fn blk_54_blk_55_cooldown_zero_and_the_exact_boundary() {
    let mut b = b24();
    place(&mut b, &[1], cooling(at(0)));
    place(&mut b, &[2], cooling(at(3600)));
    assert!(b.collect(at(0), NO_COOLDOWN) && b.in_use().is_empty());
    place(&mut b, &[1], cooling(at(-30)));
    place(&mut b, &[2], cooling(at(-29)));
    assert!(b.collect(at(0), TimeDelta::seconds(30)), "D-41: due at elapsed = cooldown");
    assert_eq!(b.in_use(), [ip(2)]);
}

#[test]
fn col_01_col_02_col_03_cooling_in_a_block() {
    let mut b = Block { seq: 7, ..b24() };
    b.unallocated = vec![1];
    place(&mut b, &[0], Attribute { active: Attrs::from([("pod".into(), "p".into())]), ..of("h") });
    b.seqs.insert(0, 3);
    b.release(&[any(0)], at(0), TimeDelta::seconds(60)).expect("inside");
    assert_eq!(b.entry(0), Some(&cooling(at(0))));
    assert_eq!((b.seq_of(0), b.unallocated.as_slice()), (7, &[1][..]));
    assert_eq!(b.clone().auto_assign(2, None, &Attrs::new(), None, &Ranges::default()).map(|g| g.len()), Ok(1));
    b.collect(at(61), TimeDelta::seconds(60));
    let got = b.auto_assign(2, None, &Attrs::new(), None, &Ranges::default()).expect("no check");
    assert_eq!(got.iter().map(|n| n.addr()).collect::<Vec<_>>(), [ip(1), ip(0)], "the longest idle first");
}

#[test]
fn releasing_nothing_does_not_collect_and_by_handle_always_does() {
    let mut b = b24();
    place(&mut b, &[1], cooling(at(-60)));
    b.release(&[any(99)], at(0), TimeDelta::seconds(30)).expect("inside");
    assert_eq!(b.in_use(), [ip(1)]);
    b.release_by_handle(&HandleId::new("nosuch"), None, at(0), TimeDelta::seconds(30));
    assert!(b.in_use().is_empty());
}

#[test]
fn own_25_an_owner_change_leaves_the_others_of_the_entry_alone() {
    let mut b = b24();
    place(&mut b, &[1, 2], of("h"));
    b.update_ownership(ip(1), of("g")).expect("allocated");
    assert_eq!((b.by_handle(&HandleId::new("h")), b.by_handle(&HandleId::new("g"))), (vec![ip(2)], vec![ip(1)]));
    b.update_ownership(ip(2), of("g")).expect("allocated");
    assert_eq!(b.attributes.len(), 1, "equal entries are shared, unused ones dropped");
    assert!(b.update_ownership(ip(9), of("g")).is_err());
}

#[test]
fn win_02_win_12_a_host_reservation_takes_both_ends_or_does_not_fit() {
    let reserve =
        |first, last| HostReserve { first, last, handle: "windows-reserved-ipam-handle".into(), note: "windows host rsvd".into() };
    let cidr = "10.0.0.0/29".parse().expect("a CIDR");
    let b = Block::new(cidr, Some(&reserve(3, 1)), 1).expect("fits");
    assert_eq!(b.unallocated, [3, 4, 5, 6]);
    assert!(b.is_empty() && b.seqs.is_empty());
    ok(&b);
    let other = HostReserve { first: 2, last: 1, handle: "test-handle".into(), note: "ipam ut".into() };
    let b = Block::new("10.0.0.0/30".parse().expect("a CIDR"), Some(&other), 1).expect("fits");
    assert_eq!((b.unallocated.as_slice(), b.allocations.as_slice()), (&[2][..], &[Some(0), Some(0), None, Some(0)][..]));
    assert_eq!(
        (b.attributes.len(), b.attributes[0].active["note"].as_str(), b.is_empty()),
        (1, "ipam ut", false),
        "WIN-12: another handle is use"
    );
    assert!(Block::new(cidr, Some(&reserve(7, 1)), 1).is_err(), "as large as the block");
    assert!(Block::new(cidr, Some(&reserve(u32::MAX, 1)), 1).is_err());
}

#[test]
fn chk_01_to_chk_10_invariants() {
    let base = || Block::new("10.0.0.0/30".parse().expect("a CIDR"), None, 1).expect("fits");
    let with = |change: &dyn Fn(&mut Block)| {
        let mut b = base();
        change(&mut b);
        b.faults(at(0)).into_iter().map(|f| (f.bad, f.message)).collect::<Vec<_>>()
    };
    assert_eq!(with(&|_| {}), []);
    let bad = |change: &dyn Fn(&mut Block), word: &str| {
        let faults = with(change);
        assert!(faults.iter().any(|(bad, m)| *bad && m.contains(word)), "{word}: {faults:?}");
    };
    bad(
        &|b| {
            b.allocations[0] = Some(99);
            b.unallocated.remove(0);
        },
        "attribute 99",
    );
    bad(&|b| b.unallocated = vec![0, 1, 1, 2, 3], "ordinal 1 twice");
    bad(
        &|b| {
            b.attributes.push(of("h"));
            b.allocations[1] = Some(0);
        },
        "both allocated",
    );
    bad(&|b| b.unallocated = vec![0, 1, 2, 3, 99], "ordinal 99, which is outside");
    bad(
        &|b| {
            b.allocations.pop();
        },
        "3 entries",
    );
    let invalid = |change: &dyn Fn(&mut Block), word: &str| {
        let faults = with(change);
        assert!(faults.len() == 1 && !faults[0].0 && faults[0].1.contains(word), "{word}: {faults:?}");
    };
    invalid(&|b| b.attributes.push(of("h")), "used by no address");
    invalid(&|b| place(b, &[0], cooling(at(60))), "future");
    invalid(
        &|b| {
            b.unallocated.pop();
        },
        "1 addresses are neither",
    );
    assert_eq!(with(&|b| place(b, &[0], cooling(at(5)))), [], "skew counts beyond 5 s only");
}
