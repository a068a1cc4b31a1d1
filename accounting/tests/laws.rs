//! Laws, checked against slow obvious implementations on small universes.

use std::collections::{BTreeMap, BTreeSet};

use ipam_accounting::set::{AddrSet, Ranges, number, size};
use ipam_accounting::tracker::{BlockUse, Tracker};
use ipnet::IpNet;
use proptest::prelude::*;

/// CIDRs inside 10.0.0.0/26 and fd00::/122.
fn small_net() -> impl Strategy<Value = IpNet> {
    (any::<bool>(), 0u32..64, 0u8..=6).prop_map(|(v6, at, bits)| {
        let at = at >> bits << bits;
        let text = if v6 { format!("fd00::{at:x}/{}", 128 - bits) } else { format!("10.0.0.{at}/{}", 32 - bits) };
        text.parse().expect("a CIDR")
    })
}

type Model = BTreeSet<(bool, u128)>;

fn addresses(net: IpNet) -> impl Iterator<Item = (bool, u128)> {
    let (v6, first) = (net.network().is_ipv6(), number(net.network()));
    (0..size(net)).map(move |o| (v6, first + o))
}

proptest! {
    #[test]
    fn sets_behave_like_sets_of_addresses(steps in prop::collection::vec((any::<bool>(), small_net()), 0..24), asked in small_net()) {
        let (mut set, mut model) = (AddrSet::new(), Model::new());
        for (add, net) in steps {
            if add {
                set.insert(net);
                model.extend(addresses(net));
            } else {
                set.remove(net);
                addresses(net).for_each(|a| { model.remove(&a); });
            }
            prop_assert_eq!(set.len(), model.len() as u128);
            prop_assert_eq!(set.is_empty(), model.is_empty());
        }
        let found: Model = set.nets().flat_map(addresses).collect();
        prop_assert_eq!(&found, &model);
        prop_assert_eq!(set.nets().map(size).sum::<u128>(), model.len() as u128, "disjoint");
        let ranges: Ranges = set.ranges();
        let inside = addresses(asked).filter(|a| model.contains(a)).count() as u128;
        prop_assert_eq!(ranges.count_in(asked), inside);
        prop_assert_eq!(ranges.covers(asked), inside == size(asked));
        prop_assert_eq!(ranges.overlaps(asked), inside > 0);
    }

    #[test]
    fn the_tracker_counts_like_a_person(
        pools in prop::collection::btree_map("[abc]", small_net(), 0..3),
        dropped in prop::collection::vec("[abc]", 0..2),
        reserved in prop::collection::vec(small_net(), 0..4),
        extra in prop::collection::vec(small_net(), 0..3),
        blocks in prop::collection::btree_map((any::<bool>(), 0u32..16), (0u8..16, 0u8..16), 0..8),
        pools_first in any::<bool>(),
    ) {
        let mut tracker = Tracker::default();
        let put_pools = |t: &mut Tracker| {
            pools.iter().for_each(|(name, cidr)| drop(t.put_pool(name, Some(*cidr))));
            dropped.iter().for_each(|name| drop(t.remove_pool(name)));
        };
        if pools_first { put_pools(&mut tracker); }
        // Blocks of four addresses; the masks say which ordinals are in use and which cool.
        let mut state: BTreeMap<IpNet, (u8, u8)> = BTreeMap::new();
        for ((v6, at), (used, cool)) in blocks {
            let text = if v6 { format!("fd00::{:x}/126", at * 4) } else { format!("10.0.0.{}/30", at * 4) };
            let cidr: IpNet = text.parse().expect("a CIDR");
            let cool = cool & !used;
            let queue: Vec<u32> = (0..4).filter(|o| (used | cool) & (1 << o) == 0).collect();
            tracker.put_block(cidr, BlockUse::new(cidr, used.count_ones(), cool.count_ones(), &queue));
            state.insert(cidr, (used, cool));
        }
        if !pools_first { put_pools(&mut tracker); }
        tracker.put_reservation("r", reserved.iter().copied().collect());
        tracker.set_extra_reserved("x", extra.iter().copied().collect());
        tracker.set_class("a", Some("x"));

        let left: BTreeMap<_, _> = pools.iter().filter(|(n, _)| !dropped.contains(n)).collect();
        for (name, id, cidr) in tracker.pools() {
            let mut taken: Model = reserved.iter().flat_map(|r| addresses(*r)).collect();
            if name == "a" { taken.extend(extra.iter().flat_map(|r| addresses(*r))); }
            let cidr = cidr.expect("set above");
            let mine = |block: IpNet| {
                let best = left.iter().filter(|(_, c)| c.contains(&block)).max_by(|x, y| x.1.prefix_len().cmp(&y.1.prefix_len()).then(y.0.cmp(x.0)));
                best.is_some_and(|(n, _)| n.as_str() == name)
            };
            let (mut in_use, mut cooling, mut available, mut blocked) = (0, 0, 0, Model::new());
            for (block, (used, cool)) in &state {
                blocked.extend(addresses(*block));
                if mine(*block) {
                    in_use += u128::from(used.count_ones());
                    cooling += u128::from(cool.count_ones());
                    available += addresses(*block).enumerate().filter(|(o, a)| (used | cool) & (1 << o) == 0 && !taken.contains(a)).count() as u128;
                }
            }
            available += addresses(cidr).filter(|a| !blocked.contains(a) && !taken.contains(a)).count() as u128;
            let counts = tracker.pool_counts(id);
            prop_assert_eq!(counts.capacity, size(cidr));
            prop_assert_eq!((counts.in_use, counts.cooling), (in_use, cooling));
            prop_assert_eq!(counts.reserved, addresses(cidr).filter(|a| taken.contains(a)).count() as u128);
            prop_assert_eq!(counts.available, available);
        }
    }
}
