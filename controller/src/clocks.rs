//! Clocks: ones that can be moved, and one that never jumps.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use chrono::TimeDelta;
use ipam::{Clock, SystemClock};
use ipam_accounting::schedule::Time;

use crate::plan::Now;

/// A clock that stands still until it is told.
#[derive(Debug)]
pub struct SimClock(Mutex<Time>);

impl SimClock {
    /// Starts at `now`.
    pub fn new(now: Time) -> Self {
        Self(Mutex::new(now))
    }

    /// Jumps.
    pub fn set(&self, now: Time) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

impl Clock for SimClock {
    fn now(&self) -> Time {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The system's clocks, moved by a fixed amount. The steady one begins with the wall clock and runs on by itself (D-93).
#[derive(Clone, Copy, Debug)]
pub struct RealClocks {
    started: Time,
    since: Instant,
    moved: TimeDelta,
}

impl RealClocks {
    /// Shows `start` now, else the system's time, and runs on from there.
    #[expect(clippy::disallowed_methods, reason = "the one door to the clock that never jumps")]
    pub fn starting_at(start: Option<Time>) -> Self {
        let now = SystemClock.now();
        let moved = start.map_or(TimeDelta::zero(), |s| s - now);
        Self { started: now + moved, since: Instant::now(), moved }
    }

    /// What both say.
    pub fn both(&self) -> Now {
        let steady = self.started + TimeDelta::from_std(self.since.elapsed()).unwrap_or(TimeDelta::MAX);
        Now { steady, wall: SystemClock.now() + self.moved }
    }
}

impl Clock for RealClocks {
    fn now(&self) -> Time {
        self.both().wall
    }
}
