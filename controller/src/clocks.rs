//! Clocks that can be moved.

use std::sync::{Mutex, PoisonError};

use chrono::TimeDelta;
use ipam::{Clock, SystemClock};
use ipam_accounting::schedule::Time;

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

/// The system's clock, moved by a fixed amount.
#[derive(Clone, Copy, Debug)]
pub struct MovedClock(TimeDelta);

impl MovedClock {
    /// Shows `start` now, and runs on from there.
    pub fn starting_at(start: Option<Time>) -> Self {
        Self(start.map_or(TimeDelta::zero(), |s| s - SystemClock.now()))
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Time {
        SystemClock.now() + self.0
    }
}
