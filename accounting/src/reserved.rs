//! Reserved addresses: the one implementation of the arithmetic (seed, "Public API surface").

use std::net::IpAddr;

use ipnet::IpNet;

use crate::set::{AddrSet, size};

/// One entry of a reservation. Lenient (D-30): a bare address means itself, white space is trimmed, host bits
/// are ignored; an empty or unreadable entry is `None`.
pub fn parse_entry(entry: &str) -> Option<IpNet> {
    let text = entry.trim();
    let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    Some(net.trunc())
}

/// The addresses that the entries of reservations cover; unreadable ones are passed over.
pub fn reserved_set<'a>(entries: impl IntoIterator<Item = &'a str>) -> AddrSet {
    entries.into_iter().filter_map(parse_entry).collect()
}

/// How many addresses of `cidr` the entries cover (`NumReservedIPsInCIDR` of the seed).
///
/// Overlapping and nested entries count once; entries of the other family count nothing.
pub fn reserved_in_cidr<'a>(cidr: IpNet, entries: impl IntoIterator<Item = &'a str>) -> u128 {
    entries.into_iter().filter_map(parse_entry).collect::<crate::set::Ranges>().count_in(cidr).min(size(cidr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rsv_07_entries_are_read_leniently() {
        assert_eq!(parse_entry(" 10.0.0.7 ").map(|n| n.to_string()).as_deref(), Some("10.0.0.7/32"));
        assert_eq!(parse_entry("10.0.0.7/30").map(|n| n.to_string()).as_deref(), Some("10.0.0.4/30"));
        assert_eq!(parse_entry("fd00::1").map(|n| n.to_string()).as_deref(), Some("fd00::1/128"));
        for rubbish in ["", "  ", "10.0.0.0/33", "ten", "10.0.0", "10.0.0.0/8/8"] {
            assert_eq!(parse_entry(rubbish), None, "{rubbish:?}");
        }
    }

    #[test]
    fn the_other_family_reserves_nothing() {
        let pool: IpNet = "10.0.0.0/24".parse().expect("a CIDR");
        assert_eq!(reserved_in_cidr(pool, ["fd00::/120", "192.168.0.0/24"]), 0);
        assert_eq!(reserved_in_cidr(pool, ["::/0", "10.0.0.0/25", "10.0.0.64/26", "10.0.0.200"]), 129);
        assert_eq!(reserved_in_cidr("::/0".parse().expect("a CIDR"), ["::/0"]), u128::MAX);
    }
}
