//! Memory across passes. Time lives only here.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use chrono::TimeDelta;
use ipam::KnownHandles;
use ipam_accounting::facts::NodeId;
use ipam_accounting::inventory::{Block, Slot, UNKNOWN_NODE};
use ipam_accounting::judge::Leak;
use ipam_accounting::schedule::{HeldBy, Time, Wait};
use ipnet::IpNet;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::plan::{Brake, Bucket, Departures};
use crate::view::View;

/// A leak that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakEntry {
    /// Sequence number of the allocation.
    pub seq: i64,
    /// Stands for handle and owner: when they change, it is another allocation (D-27).
    identity: u64,
    /// When it was first seen.
    pub since: Time,
    /// Why it is one.
    pub leak: Leak,
    /// What it waits for.
    pub wait: Wait,
    /// Why it stays, if it does.
    pub held: Option<HeldBy>,
}

/// An empty block that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emptiness {
    /// When it was first seen empty.
    pub since: Time,
    /// Its sequence number then, and ever since.
    pub seq: i64,
}

/// What a timer wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A block.
    Block(IpNet),
    /// A departed node.
    Node(NodeId),
}

/// Timers, at most one a subject.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    by_time: BTreeSet<(Time, Subject)>,
    of: FxHashMap<Subject, Time>,
}

impl Timers {
    /// Wakes `subject` at `at`, or earlier if that is set already.
    pub fn lower(&mut self, subject: Subject, at: Time) {
        match self.of.get(&subject) {
            Some(before) if *before <= at => return,
            Some(before) => drop(self.by_time.remove(&(*before, subject))),
            None => {}
        }
        self.of.insert(subject, at);
        self.by_time.insert((at, subject));
    }

    /// Forgets the timer of `subject`.
    pub fn clear(&mut self, subject: Subject) {
        if let Some(at) = self.of.remove(&subject) {
            self.by_time.remove(&(at, subject));
        }
    }

    /// Takes the subjects whose time has come (D-41: at the very moment).
    pub fn take_due(&mut self, now: Time) -> Vec<Subject> {
        let mut due = Vec::new();
        while let Some(&(at, subject)) = self.by_time.first() {
            if at > now {
                break;
            }
            self.clear(subject);
            due.push(subject);
        }
        due
    }

    /// The next moment at which somebody is woken.
    pub fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[derive(Clone, Debug)]
struct Acted {
    revision: Box<str>,
    until: Time,
}

/// What was shown in audit mode: action, place, sequence number (D-49).
pub type Shown = (&'static str, String, i64);

/// How long a block is left alone until the feed shows what was done to it.
const SETTLE: TimeDelta = TimeDelta::seconds(30);
/// Longest wait before a failed action is tried again.
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// Wait after the first failure.
const FIRST_RETRY: Duration = Duration::from_secs(2);

/// What is remembered from pass to pass.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    leaks: FxHashMap<IpNet, BTreeMap<u16, LeakEntry>>,
    /// Empty blocks of nodes that have others.
    pub empties: BTreeMap<IpNet, Emptiness>,
    /// When to look again.
    pub timers: Timers,
    acted: FxHashMap<IpNet, Acted>,
    attempts: FxHashMap<IpNet, u32>,
    shown: FxHashSet<Shown>,
    /// Of the rate.
    pub bucket: Bucket,
    /// Handles that are released next.
    pub handles: KnownHandles,
    /// Of the brake.
    pub brake: Brake,
    /// Nodes that came and went.
    pub departures: Departures,
    /// Addresses given back, by pool and node.
    pub reclaimed: BTreeMap<(String, String), u64>,
    /// What was done since the start.
    pub done: Totals,
}

/// What was done since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Addresses given back, by pool and reason.
    pub by_reason: BTreeMap<(String, &'static str), u64>,
    /// Cooled addresses that were freed, by pool.
    pub collected: BTreeMap<String, u64>,
    /// Blocks given back, by pool.
    pub blocks_freed: BTreeMap<String, u64>,
    /// Departed nodes cleaned up.
    pub nodes_cleaned: u64,
}

/// How long is waited after so many failures: 2 s, doubled each time.
fn retry_after(failures: u32) -> TimeDelta {
    let pauses = ExponentialBuilder::default().with_min_delay(FIRST_RETRY).with_max_delay(LONGEST_RETRY).without_max_times();
    let pause = pauses.build().nth(failures.saturating_sub(1).min(20) as usize);
    TimeDelta::from_std(pause.unwrap_or(LONGEST_RETRY)).unwrap_or(TimeDelta::MAX)
}

fn identity(view: &View, slot: &Slot) -> u64 {
    let handle = slot.handle().map(|h| view.cache.handle_text(h));
    let node = slot.node().map(|n| view.cache.node_text(n));
    FxBuildHasher.hash_one((handle, view.cache.owner_text(slot), node))
}

impl Ledger {
    /// Remembers that an allocation is leaked, and since when. The timer runs on only for the same allocation.
    pub fn see_leak(&mut self, view: &View, block: &Block, slot: &Slot, leak: Leak, wait: Wait, now: Time) -> Time {
        let identity = identity(view, slot);
        let entries = self.leaks.entry(block.cidr).or_default();
        let known = entries.get(&slot.ordinal).filter(|e| e.seq == slot.seq && e.identity == identity);
        let (since, held) = known.map_or((now, None), |e| (e.since, e.held));
        entries.insert(slot.ordinal, LeakEntry { seq: slot.seq, identity, since, leak, wait, held });
        since
    }

    /// A leak that is remembered.
    pub fn leak(&self, block: IpNet, ordinal: u16) -> Option<&LeakEntry> {
        self.leaks.get(&block)?.get(&ordinal)
    }

    /// Forgets what was shown in audit mode.
    pub fn forget_shown(&mut self) {
        self.shown.clear();
    }

    /// Remembers why a leak stays.
    pub fn set_held(&mut self, block: IpNet, ordinal: u16, held: Option<HeldBy>) {
        if let Some(entry) = self.leaks.get_mut(&block).and_then(|e| e.get_mut(&ordinal)) {
            entry.held = held;
        }
    }

    /// Forgets the leaks of a block except those of `still`, ascending.
    pub fn keep_leaks(&mut self, block: IpNet, still: &[u16]) {
        if let Some(entries) = self.leaks.get_mut(&block) {
            entries.retain(|o, _| still.binary_search(o).is_ok());
            if entries.is_empty() {
                self.leaks.remove(&block);
            }
        }
    }

    /// How many leaks of this block are remembered.
    pub fn leaks_in(&self, block: IpNet) -> usize {
        self.leaks.get(&block).map_or(0, BTreeMap::len)
    }

    /// Whether any leak of this block is remembered.
    pub fn has_leaks(&self, block: IpNet) -> bool {
        self.leaks.contains_key(&block)
    }

    /// The leaks that are remembered, in no particular order.
    #[expect(clippy::disallowed_methods, reason = "said to be in no particular order; readers count, or sort")]
    pub fn leaks(&self) -> impl Iterator<Item = (IpNet, u16, &LeakEntry)> {
        self.leaks.iter().flat_map(|(cidr, entries)| entries.iter().map(|(o, e)| (*cidr, *o, e)))
    }

    /// Forgets everything about a block that is gone.
    pub fn forget(&mut self, block: IpNet) {
        self.leaks.remove(&block);
        self.empties.remove(&block);
        self.acted.remove(&block);
        self.attempts.remove(&block);
        self.timers.clear(Subject::Block(block));
    }

    /// Whether something was done to this very state of a block, so that it must be waited for; then until when.
    pub fn acted_on(&self, block: &Block, now: Time) -> Option<Time> {
        self.acted.get(&block.cidr).filter(|a| a.revision == block.revision && now < a.until).map(|a| a.until)
    }

    /// Remembers what was done to a block in this state. After a failure it is tried again, later each time.
    pub fn act(&mut self, block: IpNet, revision: &str, now: Time, worked: bool) {
        let pause = if worked {
            self.attempts.remove(&block);
            SETTLE
        } else {
            let n = self.attempts.entry(block).or_default();
            *n += 1;
            retry_after(*n)
        };
        let until = now + pause;
        self.acted.insert(block, Acted { revision: revision.into(), until });
        self.timers.lower(Subject::Block(block), until);
    }

    /// Whether something was not shown yet in audit mode; from now on it was.
    pub fn show(&mut self, what: Shown) -> bool {
        self.shown.insert(what)
    }

    /// Whether something was shown in audit mode.
    pub fn was_shown(&self, what: &Shown) -> bool {
        self.shown.contains(what)
    }

    /// Drops the counters of pools and nodes that are gone.
    pub fn keep_counters(&mut self, keep: impl Fn(&str, &str) -> bool) {
        self.reclaimed.retain(|(pool, node), _| keep(pool, node));
        let there = |pool: &str| keep(pool, UNKNOWN_NODE);
        self.done.by_reason.retain(|(pool, _), _| there(pool));
        self.done.collected.retain(|pool, _| there(pool));
        self.done.blocks_freed.retain(|pool, _| there(pool));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gcx_04_each_failure_waits_twice_as_long_up_to_five_minutes() {
        let waits = [1, 2, 3, 7, 8, 9, 1000].map(|n| retry_after(n).num_seconds());
        assert_eq!(waits, [2, 4, 8, 128, 256, 300, 300]);
    }

    #[test]
    fn timers_wake_once_at_the_earliest_time() {
        let (mut timers, at) = (Timers::default(), |s| Time::UNIX_EPOCH + TimeDelta::seconds(s));
        let (a, b) = (Subject::Node(NodeId(1)), Subject::Node(NodeId(2)));
        timers.lower(a, at(5));
        timers.lower(a, at(9));
        timers.lower(b, at(9));
        timers.lower(b, at(7));
        assert_eq!(timers.next(), Some(at(5)));
        assert_eq!(timers.take_due(at(4)), []);
        assert_eq!(timers.take_due(at(5)), [a]);
        assert_eq!(timers.take_due(at(60)), [b]);
        assert_eq!((timers.take_due(at(60)), timers.next()), (vec![], None));
    }
}
