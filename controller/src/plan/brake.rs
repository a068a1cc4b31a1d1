//! The brake: a pass that would release more than a set share of what is allocated releases nothing of it (D-23, D-53, D-89).
//!
//! It looks at all that is due, not at what this pass would do, so that leaks that come due one after the other cannot slip by.

use chrono::TimeDelta;
use ipam_accounting::Evidence as _;
use ipam_accounting::facts::Class;
use ipam_accounting::inventory::Slot;
use ipam_accounting::schedule::Time;

use super::{Action, Planner};
use crate::view::View;

/// When the brake engages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Share of the allocations that may go, 0 to 1; 1: all of them.
    pub share: f64,
    /// Fewer addresses than these never engage it.
    pub addresses: u64,
    /// Releases of so long before count too.
    pub window: TimeDelta,
}

impl Default for Limit {
    /// Half, 100, one hour.
    fn default() -> Self {
        Self { share: 0.5, addresses: 100, window: TimeDelta::hours(1) }
    }
}

/// What the brake looked at: addresses of pods and VMs whose nodes are not known to be gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Leaks whose wait is over.
    pub due: u64,
    /// Allocated ones.
    pub total: u64,
    /// Released within the window.
    pub released: u64,
}

impl Counted {
    fn trips(&self, limit: &Limit) -> bool {
        let would = self.due + self.released;
        self.due > 0 && would >= limit.addresses && would as f64 > limit.share * (self.total + self.released) as f64
    }
}

/// While the brake is engaged, everything is looked at again at least so often; it lets go after two looks in a row, so far apart,
/// at which it would not engage.
const AGAIN: TimeDelta = TimeDelta::seconds(60);

/// The brake's memory.
#[derive(Debug, Default)]
pub struct Brake {
    /// What was counted when it engaged, or last while it was engaged.
    engaged: Option<Counted>,
    /// Since when it would not engage again.
    calm: Option<Time>,
    released: Vec<(Time, u64)>,
}

impl Brake {
    /// What holds the brake, if it is engaged.
    pub fn engaged(&self) -> Option<Counted> {
        self.engaged
    }

    /// Remembers an address that counts and was released.
    pub fn released(&mut self, at: Time) {
        match self.released.last_mut() {
            Some((last, n)) if *last == at => *n += 1,
            _ => self.released.push((at, 1)),
        }
    }

    fn released_since(&mut self, start: Time) -> u64 {
        self.released.retain(|(at, _)| *at > start);
        self.released.iter().map(|(_, n)| n).sum()
    }

    /// Engages, stays engaged or lets go; answers whether it is engaged.
    fn decide(&mut self, counted: Counted, limit: &Limit, now: Time) -> bool {
        if counted.trips(limit) {
            (self.engaged, self.calm) = (Some(counted), None);
        } else if self.engaged.is_some() && now - *self.calm.get_or_insert(now) >= AGAIN {
            (self.engaged, self.calm) = (None, None);
        }
        self.engaged.is_some()
    }
}

/// Whether the brake counts an allocation: one of a pod or VM whose node is not known to be gone.
pub(crate) fn counts(view: &View, slot: &Slot) -> bool {
    matches!(slot.class(), Class::Pod(_) | Class::Vm(_)) && !slot.node().is_some_and(|n| view.cache.node(n).is_absent())
}

impl Planner<'_> {
    /// Takes the releases that the brake counts out of the plan while it is engaged.
    pub(super) fn brake(&mut self) {
        if self.audit() {
            return;
        }
        let limit = self.policy.brake;
        let mut counted = Counted { due: self.all_due(), released: self.ledger.brake.released_since(self.now - limit.window), total: 0 };
        // Counting everything costs something, and is needed only where it can decide.
        if counted.due + counted.released >= limit.addresses {
            let slots = self.view.cache.blocks().flat_map(|(_, b)| &b.slots);
            counted.total = slots.filter(|s| counts(self.view, s)).count() as u64;
        }
        if !self.ledger.brake.decide(counted, &limit, self.now) {
            return;
        }
        let view = self.view;
        let mut held = Vec::new();
        self.plan.actions.retain(|action| {
            let Action::Release(members) = action else { return true };
            let braked = members.iter().any(|m| view.cache.slot(m.at).is_some_and(|(_, s)| counts(view, s)));
            if braked {
                held.extend(members.iter().map(|m| m.block.net()));
            }
            !braked
        });
        held.into_iter().for_each(|block| self.wake_block(block, self.now + AGAIN));
    }

    /// How many of the leaks that count have waited long enough and are held by nothing. What was just released and is not told yet
    /// is none of them.
    fn all_due(&self) -> u64 {
        let over = self.ledger.leaks().filter(|(cidr, ordinal, entry)| {
            entry.held.is_none()
                && self.policy.limits.due(entry.wait, entry.since).is_some_and(|due| due <= self.now)
                && self.view.cache.block_of(*cidr).is_some_and(|(_, block)| {
                    self.ledger.acted_on(block, self.now).is_none() && block.slot(*ordinal).is_some_and(|slot| counts(self.view, slot))
                })
        });
        over.count() as u64
    }
}
