//! The stores that schedules begin with.

use std::net::IpAddr;

use chrono::TimeDelta;
use ipam::clock::Time;
use ipam::mem::Kept;
use ipam::model::{Affinity, AffinityKind, AffinityState, BlockKind, Config, ConfigKind, Handle, HandleKind, NodeKind, PoolKind};
use ipam::store::{Extra, Revision, Row, Uid};
use ipam::{Block, BlockCidr, HandleId, MemStore, Owner};

use crate::lab::{cidr, pool};
use crate::script::start;

/// The block that everything happens in.
pub const BLOCK: &str = "10.0.0.0/30";
/// The address that handle `s` has in the seeds where it has one, and its sequence number.
pub const HELD: (&str, i64) = ("10.0.0.0", 0);

macro_rules! seeds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A store that schedules begin with: one pool of one block, hosts `a` and `b`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Seed {
            $($(#[$doc])* $name,)*
        }

        impl Seed {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}
seeds! {
    /// No block.
    Nothing,
    /// `a`'s block, empty, claimed long ago.
    Free,
    /// The same under strict affinity: it can be taken over, not borrowed from.
    FreeStrict,
    /// `a`'s block with one address of `s`.
    Used,
    /// All addresses taken but one.
    Last,
    /// All addresses taken.
    Full,
    /// One of `s`, and others whose cooldown is over.
    Cooling,
    /// A claim of `a` that stopped before its block.
    Pending,
    /// A claim of `a` that stopped after its block.
    PendingOverBlock,
    /// `a`'s block, half given back.
    GivingBack,
    /// An empty block of nobody.
    Unowned,
    /// A block of nobody with one address of `s`.
    Orphan,
    /// `a`'s block and a stale row of `b`.
    Stale,
    /// `a`'s row is half deleted.
    HalfDeletedRow,
    /// The block is half deleted.
    HalfDeletedBlock,
    /// Handle `h1` is half deleted.
    HalfDeletedHandle,
    /// `s` has an address and no row.
    HandleMissing,
}

/// When schedules begin.
pub fn now() -> Time {
    start() + TimeDelta::hours(1)
}

/// The rows of a seed.
#[derive(Default)]
pub struct Rows {
    /// Identities that are there: handle and address.
    pub held: Vec<(String, IpAddr)>,
    blocks: Vec<(Row<BlockKind>, bool)>,
    affinities: Vec<(Row<AffinityKind>, bool)>,
    handles: Vec<(Row<HandleKind>, bool)>,
    config: Config,
}

fn row<K: Kept>(key: K::Key, value: K::Value) -> Row<K> {
    let name = format!("{}-{key:?}", K::NAME);
    Row { key, value, revision: Revision(format!("r-{name}")), uid: Uid(format!("u-{name}")), extra: Extra::NONE }
}

impl Rows {
    /// A new store with them.
    pub fn store(&self) -> MemStore {
        let store = MemStore::new();
        let name = "10.0.0.0/30@30";
        store.put(row::<PoolKind>(name.into(), pool(name)), false);
        store.put(row::<ConfigKind>((), self.config.clone()), false);
        for node in ["a", "b"] {
            store.put(row::<NodeKind>(node.into(), ipam::model::Node { labels: Default::default() }), false);
        }
        self.blocks.iter().for_each(|(r, half)| store.put(r.clone(), *half));
        self.affinities.iter().for_each(|(r, half)| store.put(r.clone(), *half));
        self.handles.iter().for_each(|(r, half)| store.put(r.clone(), *half));
        store
    }

    fn block(&mut self, owner: Option<&str>, held: &[&str], half: bool) {
        let at: BlockCidr = cidr(BLOCK);
        let mut block = Block::new(at, None, 0).unwrap_or_else(|e| panic!("{e}"));
        for (handle, n) in held.iter().copied().zip(0..) {
            let ip = at.ip(n).unwrap_or_else(|| panic!("in the block"));
            let attrs = [("pod".into(), handle.into()), ("namespace".into(), "ns".into())].into();
            block.assign(ip, Some(handle), &attrs, None).unwrap_or_else(|e| panic!("{e}"));
            self.held.push((handle.into(), ip));
        }
        for handle in held.iter().collect::<std::collections::BTreeSet<_>>() {
            let n = held.iter().filter(|h| h == &handle).count() as i64;
            let value = Handle { id: (*handle).into(), blocks: [(at, n)].into() };
            self.handles.push((row::<HandleKind>(HandleId::new(handle), value), false));
        }
        block.affinity = owner.map(|o| format!("host:{o}"));
        block.claim_time = Some(start());
        block.seq = 5;
        self.blocks.push((row::<BlockKind>(at, block), half));
    }

    fn affinity(&mut self, host: &str, state: AffinityState, half: bool) {
        let key = (Owner::Host(host.into()), cidr(BLOCK));
        self.affinities.push((row::<AffinityKind>(key, Affinity { state, indexed: true }), half));
    }

    /// What a handle has cools, and has cooled for long enough.
    fn cooled(&mut self, handle: &str) {
        self.config.cooldown_seconds = 60;
        self.held.retain(|(h, _)| h != handle);
        let handle = HandleId::new(handle);
        self.handles.retain(|(r, _)| r.key != handle);
        for (block, _) in &mut self.blocks {
            block.value.release_by_handle(&handle, None, start(), TimeDelta::seconds(60));
        }
    }
}

/// A seed's rows.
pub fn rows(seed: Seed) -> Rows {
    use AffinityState::{Confirmed, Pending, PendingDeletion};
    let mut rows = Rows::default();
    match seed {
        Seed::Nothing => {}
        Seed::Pending => rows.affinity("a", Pending, false),
        Seed::Unowned => rows.block(None, &[], false),
        Seed::Orphan => rows.block(None, &["s"], false),
        Seed::HalfDeletedBlock => {
            rows.block(Some("a"), &[], true);
            rows.affinity("a", Confirmed, false);
        }
        _ => {
            let held: &[&str] = match seed {
                Seed::Used | Seed::Stale | Seed::HalfDeletedHandle | Seed::HandleMissing => &["s"],
                Seed::Last => &["s", "s", "t"],
                Seed::Full => &["s", "t", "t", "t"],
                Seed::Cooling => &["s", "c", "c"],
                _ => &[],
            };
            rows.block(Some("a"), held, false);
            let state = match seed {
                Seed::PendingOverBlock => Pending,
                Seed::GivingBack => PendingDeletion,
                _ => Confirmed,
            };
            rows.affinity("a", state, seed == Seed::HalfDeletedRow);
        }
    }
    match seed {
        Seed::FreeStrict => rows.config.strict_affinity = true,
        Seed::Cooling => rows.cooled("c"),
        Seed::Stale => rows.affinity("b", Confirmed, false),
        Seed::HandleMissing => rows.handles.clear(),
        Seed::HalfDeletedHandle => {
            let value = Handle { id: "h1".into(), blocks: [(cidr(BLOCK), 1)].into() };
            rows.handles.push((row::<HandleKind>(HandleId::new("h1"), value), true));
        }
        _ => {}
    }
    rows
}
