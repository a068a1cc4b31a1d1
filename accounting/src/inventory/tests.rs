//! Caches and indexes under change: after every step the indexes equal what the blocks say.

use std::collections::BTreeSet;

use super::*;
use crate::facts::{Attrs, NodeFacts};
use proptest::prelude::*;

fn net(s: &str) -> IpNet {
    s.parse().expect("a CIDR")
}

fn attrs(pairs: &[(&str, &str)]) -> Attrs {
    pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
}

/// A block `10.0.0.x/30` of `owner` whose ordinals hold (handle, pod, node, sequence number).
fn put(inv: &mut Inventory, cidr: &str, owner: Option<&str>, held: &[(u16, &str, &str, &str, i64)]) {
    let empty = Attrs::new();
    let owners: Vec<Attrs> = held.iter().map(|h| attrs(&[("namespace", "ns"), ("pod", h.2), ("node", h.3)])).collect();
    let entries = held.iter().zip(&owners).map(|(h, a)| EntryFacts { handle: Some(h.1), active: a, alternate: &empty, released_at: None });
    let allocated: Vec<(u16, u32, i64)> = held.iter().enumerate().map(|(i, h)| (h.0, i as u32, h.4)).collect();
    let facts = BlockFacts {
        cidr: net(cidr),
        seq: 1,
        revision: "1",
        owner: owner.map_or(Owner::Nobody, Owner::Host),
        claim_time: None,
        entries: entries.collect(),
        allocated,
        free: &[],
    };
    inv.put_block(&facts);
}

/// GCB-05: every index mirrors the blocks, and the sums equal a recount.
fn check(inv: &Inventory) {
    let held: BTreeSet<(AllocRef, Slot)> =
        inv.blocks().flat_map(|(id, b)| b.slots.iter().map(move |s| (AllocRef { block: id, ordinal: s.ordinal }, *s))).collect();
    let by_handle: BTreeSet<AllocRef> = inv.handle_members.iter().flatten().copied().collect();
    assert_eq!(by_handle, held.iter().filter(|(_, s)| s.handle != NONE).map(|(a, _)| *a).collect());
    let by_pod: BTreeSet<AllocRef> = inv.pod_slots.iter().flat_map(|p| p.allocs.iter().copied()).collect();
    assert_eq!(by_pod, held.iter().filter(|(_, s)| s.tag == Tag::Pod).map(|(a, _)| *a).collect());
    for node in (0..inv.node_slots.len() as u32).map(NodeId) {
        let mine: BTreeSet<_> = inv.allocations_of(node).map(|(b, _, s)| (b, s.ordinal)).collect();
        assert_eq!(mine, held.iter().filter(|(_, s)| s.node == node.0).map(|(a, s)| (a.block, s.ordinal)).collect());
        let owned: BTreeSet<IpNet> = inv.owned_blocks(node).map(|(c, _)| c).collect();
        assert_eq!(owned, inv.blocks().filter(|(_, b)| b.owner == Owner::Host(node)).map(|(_, b)| b.cidr).collect());
    }
    let sums: FxHashMap<_, _> = inv.sums().map(|(p, n, s)| ((p, n), s)).collect();
    assert_eq!(sums, inv.recount());
}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slot {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.ordinal, self.seq, self.handle).cmp(&(other.ordinal, other.seq, other.handle))
    }
}

#[test]
fn gcb_01_gcb_02_gcb_03_gcb_06_blocks_move_between_owners_and_addresses_between_nodes() {
    let mut inv = Inventory::new();
    put(&mut inv, "10.0.0.0/30", Some("a"), &[(0, "h", "p", "a", 1)]);
    check(&inv);
    let a = inv.node_id("a").expect("known");
    assert_eq!((inv.owned_blocks(a).count(), inv.allocations_of(a).count()), (1, 1));
    // GCB-02: the affinity goes, the address stays with its node.
    put(&mut inv, "10.0.0.0/30", None, &[(0, "h", "p", "a", 1)]);
    check(&inv);
    assert_eq!((inv.owned_blocks(a).count(), inv.allocations_of(a).count()), (0, 1));
    // GCB-03: straight from one owner to another.
    put(&mut inv, "10.0.0.0/30", Some("a"), &[(0, "h", "p", "a", 1)]);
    put(&mut inv, "10.0.0.0/30", Some("b"), &[(0, "h", "p", "a", 1)]);
    check(&inv);
    let b = inv.node_id("b").expect("known");
    assert_eq!((inv.owned_blocks(a).count(), inv.owned_blocks(b).count()), (0, 1));
    // GCB-06 and F-40: another owner at the same sequence number.
    put(&mut inv, "10.0.0.0/30", Some("b"), &[(0, "h", "q", "b", 1)]);
    check(&inv);
    assert_eq!((inv.node_id("a"), inv.pod_id("ns", "p")), (None, None), "nothing is left behind");
    put(&mut inv, "10.0.0.0/30", Some("b"), &[]);
    inv.remove_block(net("10.0.0.0/30"));
    check(&inv);
    assert_eq!((inv.node_id("b"), inv.handle_id("h")), (None, None));
}

#[test]
fn gch_04_a_new_sequence_number_on_the_same_handle_keeps_one_member() {
    let mut inv = Inventory::new();
    put(&mut inv, "10.0.0.0/30", Some("a"), &[(0, "h", "p", "a", 10)]);
    put(&mut inv, "10.0.0.0/30", Some("a"), &[(0, "h", "p", "a", 11)]);
    check(&inv);
    let h = inv.handle_id("h").expect("known");
    assert_eq!(inv.members(h).len(), 1);
    assert_eq!(inv.slot(inv.members(h)[0]).map(|(_, s)| s.seq), Some(11));
}

#[test]
fn d_39_reporters_are_found_while_any_of_them_reports() {
    let mut inv = Inventory::new();
    let ip: IpAddr = "10.0.0.1".parse().expect("an address");
    let facts = |ips: &[IpAddr]| Lookup::Seen(PodFacts { ips: ips.iter().copied().collect(), reported: true, ..PodFacts::default() });
    for _ in 0..2 {
        inv.put_pod("ns", "one", facts(&[ip]));
        inv.put_pod("ns", "two", facts(&[ip]));
    }
    let (one, two) = (inv.pod_id("ns", "one"), inv.pod_id("ns", "two"));
    assert_eq!((inv.reporter(ip, one), inv.reporter(ip, two)), (one, two), "the owner is preferred");
    inv.put_pod("ns", "one", facts(&[]));
    assert_eq!(inv.reporter(ip, None), two);
    inv.put_pod("ns", "two", Lookup::Absent);
    assert_eq!(inv.reporter(ip, None), None);
    let host = PodFacts { ips: [ip].into_iter().collect(), host_network: true, ..PodFacts::default() };
    inv.put_pod("ns", "one", Lookup::Seen(host));
    assert_eq!(inv.reporter(ip, None), None, "an address of the node vouches for nothing");
}

#[test]
fn d_35_d_51_absence_proves_something_only_where_the_kind_was_there() {
    let mut inv = Inventory::new();
    put(&mut inv, "10.0.0.0/30", Some("a"), &[(0, "h", "p", "a", 1)]);
    let (pod, node) = (inv.pod_id("ns", "p").expect("known"), inv.node_id("a").expect("known"));
    assert_eq!((inv.pod(pod), inv.node(node)), (Lookup::Unsure, Lookup::Unsure));
    inv.set_trusts(Trusts { pods: Trust::Namespace("other".into()), nodes: true, ..Trusts::default() });
    assert_eq!((inv.pod(pod), inv.node(node)), (Lookup::Unsure, Lookup::Absent));
    inv.set_trusts(Trusts { pods: Trust::Namespace("ns".into()), nodes: true, ..Trusts::default() });
    assert_eq!(inv.pod(pod), Lookup::Absent);
    inv.put_pod("ns", "p", Lookup::Unsure);
    inv.put_node("a", Lookup::Seen(NodeFacts::default()));
    assert_eq!((inv.pod(pod), inv.node(node)), (Lookup::Unsure, Lookup::Seen(())));
}

proptest! {
    #[test]
    fn gcb_05_indexes_mirror_the_blocks_after_every_step(steps in prop::collection::vec((0u8..4, 0u8..4, prop::collection::btree_map(0u16..4, (0u8..3, 0u8..3, 0u8..3, 0i64..3), 0..4)), 1..40)) {
        let mut inv = Inventory::new();
        inv.put_pool("p", Some(net("10.0.0.0/28")));
        for (block, owner, held) in steps {
            let cidr = format!("10.0.0.{}/30", block * 4);
            let names = ["x", "y", "z"];
            let held: Vec<_> = held.iter().map(|(o, (h, p, n, s))| (*o, names[*h as usize], names[*p as usize], names[*n as usize], *s)).collect();
            match owner {
                3 => inv.remove_block(net(&cidr)),
                0 => put(&mut inv, &cidr, None, &held),
                n => put(&mut inv, &cidr, Some(names[n as usize]), &held),
            }
            if block == 2 { inv.remove_pool("p") } else { inv.put_pool("p", Some(net("10.0.0.0/29"))) }
            check(&inv);
        }
    }
}
