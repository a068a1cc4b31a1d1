//! Sets of addresses of both families, and the arithmetic of one CIDR.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use iprange::IpRange;

/// Number of addresses of `net`, saturating: `::/0` has one more than a `u128` holds (D-56).
pub fn size(net: IpNet) -> u128 {
    let host_bits = u32::from(net.max_prefix_len() - net.prefix_len());
    1u128.checked_shl(host_bits).unwrap_or(u128::MAX)
}

/// `ip` as an integer within its family.
pub fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

/// The address that stands `ordinal` places after the first one of `net`; `None` outside of it.
pub fn addr_at(net: IpNet, ordinal: u128) -> Option<IpAddr> {
    if ordinal >= size(net) {
        return None;
    }
    let n = number(net.network()).checked_add(ordinal)?;
    Some(match net {
        IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(n).ok()?)),
        IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from(n)),
    })
}

/// How many places `ip` stands after the first address of `net`; `None` outside of it.
pub fn ordinal_of(net: IpNet, ip: IpAddr) -> Option<u128> {
    net.contains(&ip).then(|| number(ip) - number(net.network()))
}

/// Whether the two have an address in common: one contains the other.
pub fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b) || b.contains(&a)
}

/// A set of addresses of both families. Overlapping and nested CIDRs count once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddrSet {
    v4: IpRange<Ipv4Net>,
    v6: IpRange<Ipv6Net>,
}

impl AddrSet {
    /// The empty set.
    pub fn new() -> Self {
        Self { v4: IpRange::new(), v6: IpRange::new() }
    }

    /// Adds every address of `net`; host bits are ignored.
    pub fn insert(&mut self, net: IpNet) {
        match net {
            IpNet::V4(n) => {
                self.v4.add(n);
            }
            IpNet::V6(n) => {
                self.v6.add(n);
            }
        }
    }

    /// Takes every address of `net` out.
    pub fn remove(&mut self, net: IpNet) {
        match net {
            IpNet::V4(n) => {
                self.v4.remove(n);
            }
            IpNet::V6(n) => {
                self.v6.remove(n);
            }
        }
    }

    /// Whether no address is in the set.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Number of addresses of both families, saturating.
    pub fn len(&self) -> u128 {
        self.nets().map(size).fold(0, u128::saturating_add)
    }

    /// Disjoint CIDRs that make up the set, in no particular order.
    pub fn nets(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.v4.iter().map(IpNet::V4).chain(self.v6.iter().map(IpNet::V6))
    }

    /// The set as sorted ranges, for quick questions about single CIDRs.
    pub fn ranges(&self) -> Ranges {
        self.nets().collect()
    }
}

impl FromIterator<IpNet> for AddrSet {
    fn from_iter<I: IntoIterator<Item = IpNet>>(nets: I) -> Self {
        let mut set = Self::new();
        nets.into_iter().for_each(|n| set.insert(n));
        set.v4.simplify();
        set.v6.simplify();
        set
    }
}

/// First and last address of a range.
type Span = (u128, u128);

/// Disjoint ranges in ascending order: the set as a list, with answers in logarithmic time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    v4: Vec<Span>,
    v6: Vec<Span>,
}

impl Ranges {
    fn of(&self, net: IpNet) -> (&[Span], Span) {
        let first = number(net.network());
        let span = (first, first + (size(net) - 1));
        // The one network whose size saturates ends at the last address all the same.
        let span = if net.prefix_len() == 0 { (0, number(net.broadcast())) } else { span };
        (if matches!(net, IpNet::V4(_)) { &self.v4 } else { &self.v6 }, span)
    }

    /// The parts of the set that lie in `net`, as first and last address, ascending.
    pub fn within(&self, net: IpNet) -> impl Iterator<Item = (u128, u128)> + '_ {
        let (spans, (first, last)) = self.of(net);
        let from = spans.partition_point(|s| s.1 < first);
        spans[from..].iter().take_while(move |s| s.0 <= last).map(move |s| (s.0.max(first), s.1.min(last)))
    }

    /// How many addresses of `net` are in the set, saturating.
    pub fn count_in(&self, net: IpNet) -> u128 {
        self.within(net).map(|(a, b)| (b - a).saturating_add(1)).fold(0, u128::saturating_add)
    }

    /// Whether `ip` is in the set.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.within(IpNet::from(ip)).next().is_some()
    }

    /// Whether the union of the set covers the whole of `net` (FLT-03).
    pub fn covers(&self, net: IpNet) -> bool {
        self.count_in(net) == size(net)
    }

    /// Whether some address of `net` is in the set.
    pub fn overlaps(&self, net: IpNet) -> bool {
        self.within(net).next().is_some()
    }
}

impl FromIterator<IpNet> for Ranges {
    fn from_iter<I: IntoIterator<Item = IpNet>>(nets: I) -> Self {
        let mut ranges = Self::default();
        for net in nets {
            let span = ranges.of(net).1;
            if matches!(net, IpNet::V4(_)) { &mut ranges.v4 } else { &mut ranges.v6 }.push(span);
        }
        merge(&mut ranges.v4);
        merge(&mut ranges.v6);
        ranges
    }
}

/// Sorts, and joins spans that touch or overlap.
fn merge(spans: &mut Vec<Span>) {
    spans.sort_unstable();
    spans.dedup_by(|next, kept| {
        let joined = next.0 <= kept.1.saturating_add(1);
        if joined {
            kept.1 = kept.1.max(next.1);
        }
        joined
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(s: &str) -> IpNet {
        s.parse().expect("a CIDR")
    }

    #[test]
    fn flt_01_flt_02_the_whole_family_matches_everything() {
        let all: Ranges = [net("0.0.0.0/0"), net("::/0")].into_iter().collect();
        for ip in ["0.0.0.0", "255.255.255.255", "10.0.0.1", "::", "ffff::", "cafe:f00d::"] {
            assert!(all.contains(ip.parse().expect("an address")), "{ip}");
        }
        for cidr in ["0.0.0.0/0", "255.255.255.255/32", "10.0.0.0/8", "::/0", "ffff::/32", "cafe:f00d::/96"] {
            assert!(all.covers(net(cidr)), "{cidr}");
        }
    }

    #[test]
    fn flt_03_two_halves_cover_their_parent() {
        let halves: Ranges = [net("192.168.1.64/26"), net("192.168.1.0/26")].into_iter().collect();
        for ip in ["192.168.1.0", "192.168.1.63", "192.168.1.64", "192.168.1.127"] {
            assert!(halves.contains(ip.parse().expect("an address")), "{ip}");
        }
        for cidr in ["192.168.1.64/26", "192.168.1.0/26", "192.168.1.0/25", "192.168.1.64/27", "192.168.1.96/27"] {
            assert!(halves.covers(net(cidr)), "{cidr}");
        }
        for ip in ["10.0.0.1", "0.0.0.0", "192.168.1.128"] {
            assert!(!halves.contains(ip.parse().expect("an address")), "{ip}");
        }
        for cidr in ["10.0.0.0/8", "0.0.0.0/32", "192.168.2.64/26", "192.168.1.0/24"] {
            assert!(!halves.covers(net(cidr)), "{cidr}");
        }
    }

    #[test]
    fn flt_04_nested_and_repeated_cidrs_count_once() {
        let rows: [(&[&str], &[&str]); 6] = [
            (&[], &[]),
            (&["0.0.0.0/0", "10.0.0.0/8"], &["0.0.0.0/0"]),
            (&["::/0", "f0f0::/16"], &["::/0"]),
            (&["10.0.0.0/24", "10.0.0.0/25", "10.0.0.128/25", "11.0.0.0/8"], &["10.0.0.0/24", "11.0.0.0/8"]),
            (&["10.0.0.0/24", "10.0.0.0/25", "10.0.0.128/25", "11.0.0.0/24"], &["10.0.0.0/24", "11.0.0.0/24"]),
            (&["10.0.0.128/25", "10.0.0.0/25", "11.0.0.0/25", "10.0.0.0/25", "11.0.0.0/8"], &["10.0.0.0/24", "11.0.0.0/8"]),
        ];
        for (given, left) in rows {
            let mut nets: Vec<_> = given.iter().map(|n| net(n)).collect::<AddrSet>().nets().collect();
            nets.sort();
            assert_eq!(nets, left.iter().map(|n| net(n)).collect::<Vec<_>>(), "{given:?}");
            let again: AddrSet = nets.iter().copied().collect();
            assert_eq!(again.nets().count(), nets.len());
        }
    }

    #[test]
    fn flt_05_flt_06_empty_and_partial() {
        let none = Ranges::default();
        assert!(!none.contains(IpAddr::from([10, 0, 0, 1])) && !none.overlaps(net("0.0.0.0/0")));
        let some: Ranges = [net("10.0.0.32/30")].into_iter().collect();
        assert!(some.overlaps(net("10.0.0.0/26")));
        assert!(!some.overlaps(net("10.0.1.0/26")));
    }

    #[test]
    fn counts_beyond_64_bits_and_saturation() {
        assert_eq!(size(net("fd00::/8")), 1 << 120);
        assert_eq!(size(net("::/0")), u128::MAX);
        let all: AddrSet = [net("::/0"), net("0.0.0.0/0")].into_iter().collect();
        assert_eq!(all.len(), u128::MAX);
        assert_eq!(all.ranges().count_in(net("::/0")), u128::MAX);
        assert_eq!(all.ranges().count_in(net("::/1")), 1 << 127);
    }

    #[test]
    fn blk_18_ordinal_and_address() {
        for (cidr, ordinal, ip) in [
            ("10.0.0.0/30", 0, "10.0.0.0"),
            ("10.0.0.0/30", 3, "10.0.0.3"),
            ("10.0.0.64/30", 3, "10.0.0.67"),
            ("10.0.0.64/32", 0, "10.0.0.64"),
            ("10.0.128.0/17", 0, "10.0.128.0"),
            ("10.0.128.0/17", 256, "10.0.129.0"),
            ("10.0.128.0/17", 257, "10.0.129.1"),
            ("fd00::40/122", 63, "fd00::7f"),
        ] {
            let ip: IpAddr = ip.parse().expect("an address");
            assert_eq!(addr_at(net(cidr), ordinal), Some(ip));
            assert_eq!(ordinal_of(net(cidr), ip), Some(ordinal));
        }
        assert_eq!(addr_at(net("10.0.0.0/30"), 4), None);
        assert_eq!(ordinal_of(net("10.0.0.0/30"), IpAddr::from([10, 0, 0, 4])), None);
        assert_eq!(ordinal_of(net("10.0.0.0/30"), "::a00:1".parse().expect("an address")), None);
    }

    #[test]
    fn blk_19_size() {
        assert_eq!((size(net("10.0.0.0/16")), size(net("10.0.0.0/32"))), (65536, 1));
    }
}
