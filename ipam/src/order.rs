//! The order in which a host looks at the blocks of a pool.

use ipam_accounting::set::number;
use ipnet::IpNet;

use crate::ids::BlockCidr;

/// Each block of a pool exactly once, from a start that depends on the host, wrapping around: processes of one host
/// walk the same way and share a block instead of claiming several, hosts start in different places.
#[derive(Clone, Debug)]
pub struct BlockOrder {
    pool: IpNet,
    block_size: u8,
    count: u128,
    next: u128,
    left: u128,
}

/// A well-mixed number of some bytes.
fn mixed(bytes: impl IntoIterator<Item = u8>) -> u128 {
    let mut h: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for b in bytes {
        h = (h ^ u128::from(b)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
    }
    h ^= h >> 64;
    h = h.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    h ^ (h >> 67)
}

impl BlockOrder {
    /// The order for a host. Blocks of a single address start anywhere, by `nonce`: else each call would look at all
    /// that the host has taken already.
    pub fn new(pool: IpNet, block_size: u8, host: &str, nonce: i64) -> Self {
        let fits = block_size >= pool.prefix_len() && block_size <= pool.max_prefix_len();
        let count = if fits { 1u128.checked_shl(u32::from(block_size - pool.prefix_len())).unwrap_or(0) } else { 0 };
        let pool = pool.trunc();
        let single = block_size == pool.max_prefix_len();
        let text = if single { format!("{pool} {nonce}") } else { format!("{pool} {block_size} {host}") };
        let next = if count == 0 { 0 } else { mixed(text.bytes()) % count };
        Self { pool, block_size, count, next, left: count }
    }

    /// How far from the start a block of the pool comes.
    pub fn place(&self, block: BlockCidr) -> u128 {
        let shift = u32::from(self.pool.max_prefix_len() - self.block_size.min(self.pool.max_prefix_len()));
        let index = number(block.net().network()).saturating_sub(number(self.pool.network())).checked_shr(shift).unwrap_or(0);
        if index >= self.next { index - self.next } else { index.saturating_add(self.count).saturating_sub(self.next) }
    }

    /// The blocks of a CIDR from its first address on: for claims of whole CIDRs.
    pub fn ascending(cidr: IpNet, block_size: u8) -> Self {
        Self { next: 0, ..Self::new(cidr, block_size, "", 0) }
    }
}

impl Iterator for BlockOrder {
    type Item = BlockCidr;

    fn next(&mut self) -> Option<BlockCidr> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let shift = u32::from(self.pool.max_prefix_len() - self.block_size);
        let offset = self.next.checked_shl(shift).unwrap_or(0);
        self.next = (self.next + 1) % self.count;
        let first = number(self.pool.network()) + offset;
        let net = match self.pool {
            IpNet::V4(_) => IpNet::new(std::net::Ipv4Addr::from(u32::try_from(first).ok()?).into(), self.block_size),
            IpNet::V6(_) => IpNet::new(std::net::Ipv6Addr::from(first).into(), self.block_size),
        };
        BlockCidr::new(net.ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn net(s: &str) -> IpNet {
        s.parse().expect("a CIDR")
    }

    #[test]
    fn gen_01_gen_02_each_block_once_and_then_the_end() {
        for (pool, size, count) in [
            ("10.10.0.0/24", 26, 4),
            ("fd80:24e2:f998:72d6::/120", 122, 4),
            ("10.10.0.0/16", 20, 16),
            ("fd80:24e2:f998:72d6::/114", 116, 4),
            ("10.10.0.0/24", 32, 256),
            ("fd80:24e2:f998:72d6::/120", 128, 256),
        ] {
            let mut order = BlockOrder::new(net(pool), size, "testHost", 7);
            let blocks: Vec<BlockCidr> = order.by_ref().collect();
            assert_eq!((blocks.len(), blocks.iter().collect::<BTreeSet<_>>().len()), (count, count), "{pool}");
            assert!(blocks.iter().all(|b| net(pool).contains(&b.net())));
            assert!(order.next().is_none() && order.next().is_none(), "stays ended");
            let numbers: Vec<u128> = blocks.iter().map(|b| number(b.net().network())).collect();
            let step = u128::from(blocks[0].size());
            let order = BlockOrder::new(net(pool), size, "testHost", 7);
            assert!((0..).zip(&blocks).all(|(i, b)| order.place(*b) == i));
            let jumps = numbers.windows(2).filter(|w| w[0] + step != w[1]).count();
            assert!(jumps <= 1, "consecutive modulo the pool");
        }
    }

    #[test]
    fn gen_03_gen_04_stable_per_host_and_spread() {
        let pool = net("10.0.0.0/8");
        let first = |host: &str, size, nonce| BlockOrder::new(pool, size, host, nonce).next();
        assert_eq!(first("a", 26, 1), first("a", 26, 2));
        let starts: BTreeSet<_> = (0..1000).map(|n| first(&format!("node-{n}"), 26, 0)).collect();
        assert!(starts.len() > 990, "{}", starts.len());
        // Close to uniform over the pool: every sixteenth of it is somebody's start.
        let sixteenths: BTreeSet<u128> = starts.iter().flatten().map(|b| (number(b.net().network()) >> 20) & 15).collect();
        assert_eq!(sixteenths.len(), 16);
        assert_ne!(first("a", 32, 1), first("a", 32, 2), "single addresses start anywhere");
    }

    #[test]
    fn gen_05_gen_06_ascending_and_nothing_of_what_does_not_fit() {
        let blocks: Vec<String> = BlockOrder::ascending(net("10.0.0.0/24"), 26).map(|b| b.to_string()).collect();
        assert_eq!(blocks, ["10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26", "10.0.0.192/26"]);
        assert_eq!(BlockOrder::ascending(net("10.0.0.0/27"), 26).count(), 0);
        let mut huge = BlockOrder::new(net("fd00::/8"), 122, "a", 0);
        assert!(huge.next().is_some_and(|b| net("fd00::/8").contains(&b.net())));
    }
}
