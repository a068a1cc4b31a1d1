//! Kubernetes events (operator.md c): what is told, how often, and in which words. Sending is somebody else's business.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use ipam_accounting::schedule::Time;

/// Longest note, in bytes.
const NOTE: usize = 1024;
/// So many addresses are named at most.
const NAMED: usize = 5;
/// Events a second, and at once.
const BUDGET: (f64, f64) = (5.0, 50.0);

/// Every reason, what it is about, and what it means.
pub const REASONS: &[(&str, &str, &str)] = &[
    ("AddressesReclaimed", "Node, else IPPool", "Leaked addresses were given back; with counts by reason"),
    ("AddressesWouldBeReclaimed", "Node, else IPPool", "The same in audit mode: nothing was written"),
    ("BlocksFreed", "Node", "Empty blocks were given back"),
    ("NodeCleaned", "Node", "Nothing is left of a departed node"),
    ("NodeKept", "Node", "A departed node is not cleaned up yet, and why"),
    ("HandleHeld", "Pod, else Node", "A part of a handle has been leaked for an hour and stays, for all or none goes"),
    ("PoolNearlyFull", "IPPool", "So much of it is taken"),
    ("PoolFull", "IPPool", "No address is available"),
    ("PoolRecovered", "IPPool", "It has room again"),
    ("BlockLimitReached", "Node", "It may claim no further block"),
    ("AddressConflict", "Pod", "It reports an address that is allocated to somebody else"),
    ("AddressNotAllocated", "Pod", "It reports an address that is allocated to nobody"),
    ("InconsistencyFound", "the operator's pod", "An audit found kinds of inconsistencies that were not there before"),
    ("IndexRepaired", "the operator's pod", "Rows were brought in line with the blocks"),
    ("ReleaseBraked", "the operator's pod", "The brake is engaged"),
    ("ReleaseAllowed", "the operator's pod", "brake.allow lets some through"),
    ("ReleaseResumed", "the operator's pod", "The brake is clear again"),
    ("MassDeparture", "the operator's pod", "Many nodes vanished at once"),
    ("GateClosed", "the operator's pod", "Nothing has been decided for a minute, and why"),
    ("GateOpened", "the operator's pod", "It is over"),
    ("DatastoreLocked", "ClusterInformation", "datastoreReady is false"),
    ("IPAMConfigInvalid", "the IPAM configuration", "It is not valid"),
    ("ConfigRejected", "the operator's pod", "The configuration file is not valid: the old values stay"),
    ("ConfigNeedsRestart", "the operator's pod", "Keys changed that need a restart"),
    ("ConfigReloaded", "the operator's pod", "The configuration file was taken over"),
    ("ReleasesPaused", "the operator's pod", "Nothing is written"),
    ("ReleasesUnpaused", "the operator's pod", "Releases go on"),
    ("ModeChanged", "the operator's pod", "Enforce or audit"),
    ("WritesForbidden", "the operator's pod", "A right is missing"),
    ("OptOutInvalid", "the annotated object", "Its annotation is neither true nor false, and counts as true"),
    ("OtherCollectorActive", "KubeControllersConfiguration", "Calico's own controller is configured to collect too"),
    ("BecameLeader", "Lease", "This replica acts now"),
    ("StoppedLeading", "Lease", "This replica does not act any more"),
];

/// Which object an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Regarding {
    /// The operator itself.
    Own,
    /// A node of this name.
    Node(String),
    /// A pool of this name.
    Pool(String),
    /// A namespace of this name.
    Namespace(String),
    /// A pod, by namespace and name.
    Pod(String, String),
    /// The cluster information.
    Cluster,
    /// The IPAM configuration.
    IpamConfig,
    /// The controllers' configuration.
    Controllers,
    /// The Lease.
    Lease,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// About what.
    pub regarding: Regarding,
    /// One word.
    pub reason: &'static str,
    /// `Warning`, else `Normal`.
    pub warning: bool,
    /// The action, or `Observe`.
    pub action: &'static str,
    /// In a sentence.
    pub text: String,
}

/// What is summed into one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pile {
    warning: bool,
    action: &'static str,
    /// How often each was counted, by what it was.
    counts: BTreeMap<String, u64>,
    named: Vec<String>,
    text: Option<String>,
}

/// Collects what is to be told, and hands it out in time.
#[derive(Debug)]
pub struct Teller {
    interval: TimeDelta,
    piles: BTreeMap<(Regarding, &'static str), Pile>,
    told: BTreeMap<(Regarding, &'static str), Time>,
    tokens: (f64, Option<Time>),
    /// Events that were not sent, for there were too many.
    pub dropped: u64,
}

impl Teller {
    /// At most one event of a reason about an object in `interval`.
    pub fn new(interval: TimeDelta) -> Self {
        Self { interval, piles: BTreeMap::new(), told: BTreeMap::new(), tokens: (BUDGET.1, None), dropped: 0 }
    }

    /// Another interval.
    pub fn set_interval(&mut self, interval: TimeDelta) {
        self.interval = interval;
    }

    fn pile(&mut self, regarding: Regarding, reason: &'static str) -> &mut Pile {
        debug_assert!(REASONS.iter().any(|(known, ..)| *known == reason), "{reason} is not documented");
        self.piles.entry((regarding, reason)).or_default()
    }

    /// Something that is counted: `what` it was, and of which address or block.
    pub fn count(&mut self, regarding: Regarding, reason: &'static str, action: &'static str, what: &str, named: String) {
        let pile = self.pile(regarding, reason);
        pile.action = action;
        *pile.counts.entry(what.into()).or_default() += 1;
        if pile.named.len() < NAMED {
            pile.named.push(named);
        }
    }

    /// Something that is said as it is; a later one takes its place until it is told.
    pub fn say(&mut self, regarding: Regarding, reason: &'static str, warning: bool, text: impl Into<String>) {
        let pile = self.pile(regarding, reason);
        (pile.warning, pile.action, pile.text) = (warning, "Observe", Some(text.into()));
    }

    /// What may be told now.
    pub fn take(&mut self, now: Time) -> Vec<Note> {
        let (tokens, at) = self.tokens;
        let gained = at.map_or(0.0, |at| (now - at).as_seconds_f64().max(0.0) * BUDGET.0);
        let mut tokens = (tokens + gained).min(BUDGET.1);
        self.told.retain(|_, at| now - *at < self.interval);
        let due: Vec<(Regarding, &'static str)> = self.piles.keys().filter(|key| !self.told.contains_key(key)).cloned().collect();
        let mut notes = Vec::new();
        for key in due {
            let Some(pile) = self.piles.remove(&key) else { continue };
            self.told.insert(key.clone(), now);
            if tokens < 1.0 {
                self.dropped += 1;
                continue;
            }
            tokens -= 1.0;
            let text = pile.text.clone().unwrap_or_else(|| sentence(key.1, &pile));
            notes.push(Note { regarding: key.0, reason: key.1, warning: pile.warning, action: pile.action, text: cut(text) });
        }
        self.tokens = (tokens, Some(now));
        notes
    }

    /// When something may be told next.
    pub fn next(&self) -> Option<Time> {
        self.piles.keys().filter_map(|key| self.told.get(key)).map(|at| *at + self.interval).min()
    }

    /// Forgets what was not told: this one does not lead any more.
    pub fn clear(&mut self) {
        self.piles.clear();
    }
}

fn sentence(reason: &str, pile: &Pile) -> String {
    let all: u64 = pile.counts.values().sum();
    let more = all - pile.named.len() as u64;
    let named = pile.named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() };
    let counts: Vec<String> = pile.counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
    let s = if all == 1 { "" } else { "s" };
    let es = if all == 1 { "" } else { "es" };
    match reason {
        "AddressesReclaimed" => format!("Reclaimed {all} leaked address{es} ({}): {named}", counts.join(", ")),
        "AddressesWouldBeReclaimed" => format!("Would reclaim {all} leaked address{es} ({}): {named}", counts.join(", ")),
        "BlocksFreed" => format!("Gave back {all} empty block{s}: {named}"),
        "IndexRepaired" => format!("Repaired {all} row{s} ({}): {named}", counts.join(", ")),
        _ => format!("{}: {named}", counts.join(", ")),
    }
}

/// Not longer than a note may be, cut at a word.
fn cut(text: String) -> String {
    if text.len() <= NOTE {
        return text;
    }
    const END: &str = " …";
    let mut at = NOTE - END.len();
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let head = &text[..at];
    format!("{}{END}", head.rsplit_once(' ').map_or(head, |(head, _)| head))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: i64) -> Time {
        Time::UNIX_EPOCH + TimeDelta::seconds(s)
    }

    fn leak(teller: &mut Teller, node: &str, i: u32) {
        let why = if i.is_multiple_of(6) { "pod has another address" } else { "pod gone" };
        teller.count(Regarding::Node(node.into()), "AddressesReclaimed", "release-address", why, format!("10.48.0.{i}"));
    }

    #[test]
    fn many_leaks_of_a_node_are_one_event_and_what_comes_between_is_summed_into_the_next() {
        let mut teller = Teller::new(TimeDelta::minutes(5));
        (0..12).for_each(|i| leak(&mut teller, "a", i));
        let notes = teller.take(at(0));
        assert_eq!(notes.len(), 1);
        assert_eq!(
            notes[0].text,
            "Reclaimed 12 leaked addresses (10 pod gone, 2 pod has another address): 10.48.0.0, 10.48.0.1, 10.48.0.2, 10.48.0.3, 10.48.0.4 and 7 more"
        );
        leak(&mut teller, "a", 1);
        leak(&mut teller, "b", 1);
        assert_eq!(teller.take(at(299)).len(), 1, "of the other node only");
        assert_eq!(teller.next(), Some(at(300)));
        leak(&mut teller, "a", 2);
        let notes = teller.take(at(300));
        assert_eq!(notes[0].text, "Reclaimed 2 leaked addresses (2 pod gone): 10.48.0.1, 10.48.0.2");
        assert_eq!(teller.take(at(700)), []);
    }

    #[test]
    fn over_the_budget_events_are_dropped_and_counted() {
        let mut teller = Teller::new(TimeDelta::minutes(5));
        (0..60).for_each(|i| leak(&mut teller, &format!("n{i:02}"), 1));
        assert_eq!((teller.take(at(0)).len(), teller.dropped), (50, 10));
        (0..60).for_each(|i| leak(&mut teller, &format!("m{i:02}"), 1));
        assert_eq!((teller.take(at(2)).len(), teller.dropped), (10, 60), "five a second");
    }

    #[test]
    fn notes_are_cut_at_a_word() {
        let mut teller = Teller::new(TimeDelta::minutes(1));
        teller.say(Regarding::Own, "GateClosed", true, "é word".repeat(400));
        let text = &teller.take(at(0))[0].text;
        assert!(text.len() <= NOTE && text.ends_with(" …"), "{} {text}", text.len());
    }
}
