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

/// What may pass the brake although it would engage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// So many addresses.
    pub up_to: u64,
    /// Until then, by the wall clock.
    pub until: Time,
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

    /// What would be gone of what was there.
    pub fn share(&self) -> f64 {
        let of = self.total + self.released;
        if of == 0 { 0.0 } else { (self.due + self.released) as f64 / of as f64 }
    }
}

/// What the brake does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// It lets everything go.
    #[default]
    Clear,
    /// It holds everything that counts.
    Engaged,
    /// It would engage, and lets so many more go.
    Allowed(u64),
}

/// While the brake is engaged, everything is looked at again at least so often; it lets go after two looks in a row, so far apart,
/// at which it would not engage.
const AGAIN: TimeDelta = TimeDelta::seconds(60);

/// The brake's memory.
#[derive(Clone, Debug, Default)]
pub struct Brake {
    state: State,
    /// What was counted last.
    pub counted: Counted,
    /// Since when it would not engage again.
    calm: Option<Time>,
    released: Vec<(Time, u64)>,
    /// What was let go by an allowance.
    used: Option<(Allowance, u64)>,
}

impl Brake {
    /// What it does.
    pub fn state(&self) -> State {
        self.state
    }

    /// Lets go, and forgets why it held.
    pub fn clear(&mut self) {
        (self.state, self.calm) = (State::Clear, None);
    }

    /// Remembers an address that counts and was released.
    pub fn released(&mut self, at: Time) {
        match self.released.last_mut() {
            Some((last, n)) if *last == at => *n += 1,
            _ => self.released.push((at, 1)),
        }
        if let (State::Allowed(left), Some((_, used))) = (&mut self.state, &mut self.used) {
            *left = left.saturating_sub(1);
            *used += 1;
        }
    }

    fn released_since(&mut self, start: Time) -> u64 {
        self.released.retain(|(at, _)| *at > start);
        self.released.iter().map(|(_, n)| n).sum()
    }

    /// What is left of an allowance; another one than before starts afresh.
    fn left(&mut self, allow: Option<Allowance>, wall: Time) -> u64 {
        let Some(allow) = allow.filter(|a| wall < a.until) else { return 0 };
        let used = match self.used {
            Some((before, used)) if before == allow => used,
            _ => 0,
        };
        self.used = Some((allow, used));
        allow.up_to.saturating_sub(used)
    }

    /// Engages, stays engaged, lets some go, or lets go.
    fn decide(&mut self, counted: Counted, limit: &Limit, left: u64, now: Time) -> State {
        self.counted = counted;
        self.state = match (counted.trips(limit), self.state) {
            (true, _) => {
                self.calm = None;
                if left > 0 { State::Allowed(left) } else { State::Engaged }
            }
            (false, State::Engaged) if now - *self.calm.get_or_insert(now) < AGAIN => State::Engaged,
            (false, _) => State::Clear,
        };
        if self.state == State::Clear {
            self.calm = None;
        }
        self.state
    }
}

/// Whether the brake counts an allocation: one of a pod or VM whose node is not known to be gone.
pub(crate) fn counts(view: &View, slot: &Slot) -> bool {
    matches!(slot.class(), Class::Pod(_) | Class::Vm(_)) && !slot.node().is_some_and(|n| view.cache.node(n).is_absent())
}

impl Planner<'_> {
    /// Takes the releases that the brake counts out of the plan while it is engaged. It looks in audit mode and while paused too, so
    /// that it can be told what it would do; it engages where something would be written only.
    pub(super) fn brake(&mut self) {
        let limit = self.policy.brake;
        let mut counted = Counted { due: self.all_due(), released: self.ledger.brake.released_since(self.now - limit.window), total: 0 };
        // Counting everything costs something, and is needed only where it can decide.
        if counted.due + counted.released >= limit.addresses {
            let slots = self.view.cache.blocks().flat_map(|(_, b)| &b.slots);
            counted.total = slots.filter(|s| counts(self.view, s)).count() as u64;
        }
        if !self.policy.writes() {
            self.ledger.brake.counted = counted;
            return self.ledger.brake.clear();
        }
        let left = self.ledger.brake.left(self.policy.allow, self.wall);
        let mut left = match self.ledger.brake.decide(counted, &limit, left, self.now) {
            State::Clear => return,
            State::Engaged => 0,
            State::Allowed(left) => left,
        };
        let mut braked: Vec<(Time, usize, u64)> = Vec::new();
        for (i, action) in self.plan.actions.iter().enumerate() {
            let Action::Release(members) = action else { continue };
            if members.iter().any(|m| self.view.cache.slot(m.at).is_some_and(|(_, s)| counts(self.view, s))) {
                braked.push((self.since(members), i, members.len() as u64));
            }
        }
        // What has been due for longest goes first, as far as it is allowed; a handle never by half.
        braked.sort_unstable();
        let mut out = Vec::new();
        for (_, i, n) in braked {
            match left.checked_sub(n) {
                Some(rest) => left = rest,
                None => {
                    left = 0;
                    out.push(i);
                }
            }
        }
        out.sort_unstable();
        self.drop_actions(&out, self.now + AGAIN);
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
