//! Many nodes that vanish at once (D-90): rather a mistake than a fact, so what was theirs waits for the grace instead of going at once.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use ipam_accounting::Evidence as _;
use ipam_accounting::facts::{Lookup, NodeId};
use ipam_accounting::inventory::Slot;
use ipam_accounting::schedule::Time;
use rustc_hash::FxHashSet;

use super::Planner;

/// When departures are many at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mass {
    /// This share of the nodes or less is no mass.
    pub share: f64,
    /// Nor are fewer.
    pub nodes: usize,
    /// Departures within so long count together.
    pub window: TimeDelta,
}

impl Default for Mass {
    /// Half, 10, 10 minutes.
    fn default() -> Self {
        Self { share: 0.5, nodes: 10, window: TimeDelta::minutes(10) }
    }
}

/// Which nodes that own blocks were seen alive, and which of them went.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    alive: BTreeSet<Box<str>>,
    gone: Vec<(Time, Box<str>)>,
    /// Nodes that went with many others, or that were opted out, and since when.
    patient: BTreeMap<Box<str>, Time>,
    mass: bool,
}

impl Departures {
    /// A node that is there.
    fn here(&mut self, name: &str, owns_blocks: bool) {
        self.patient.remove(name);
        self.gone.retain(|(_, gone)| **gone != *name);
        if owns_blocks {
            self.alive.insert(name.into());
        } else {
            self.alive.remove(name);
        }
    }

    /// A node that is gone.
    fn gone(&mut self, name: &str, now: Time) {
        if let Some(name) = self.alive.take(name) {
            self.gone.push((now, name));
        }
    }

    /// Whether too many went; then those wait.
    fn look(&mut self, mass: &Mass, now: Time) {
        self.gone.retain(|(at, _)| *at > now - mass.window);
        let (gone, seen) = (self.gone.len(), self.gone.len() + self.alive.len());
        self.mass = gone >= mass.nodes && gone as f64 > mass.share * seen as f64;
        if self.mass {
            for (at, name) in &self.gone {
                self.patient.entry(name.clone()).or_insert(*at);
            }
        }
    }

    /// Whether many are going at the moment.
    pub fn many(&self) -> bool {
        self.mass
    }

    /// Since when a node is gone that went with many others, or that was opted out.
    pub fn waits(&self, name: &str) -> Option<Time> {
        self.patient.get(name).copied()
    }
}

impl Planner<'_> {
    /// Notes which of these nodes are there and which are gone.
    pub(super) fn departures(&mut self, nodes: &FxHashSet<NodeId>) {
        let cache = &self.view.cache;
        let departures = &mut self.ledger.departures;
        // By name, so that what is told does not depend on numbers.
        let mut by_name = BTreeMap::new();
        for node in nodes {
            by_name.insert(cache.node_text(*node), *node);
        }
        for (name, node) in by_name {
            match cache.node(node) {
                Lookup::Seen(()) => departures.here(name, cache.owned_blocks(node).next().is_some()),
                Lookup::Absent => {
                    departures.gone(name, self.now);
                    if self.view.left_opted_out(name) {
                        departures.patient.entry(name.into()).or_insert(self.now);
                    }
                }
                Lookup::Unsure => {}
            }
        }
        departures.look(&self.policy.departed, self.now);
    }

    /// Whether the node of an allocation went in a way that nobody may have meant.
    pub(super) fn left_oddly(&self, slot: &Slot) -> bool {
        slot.node().is_some_and(|node| self.ledger.departures.waits(self.view.cache.node_text(node)).is_some())
    }
}
