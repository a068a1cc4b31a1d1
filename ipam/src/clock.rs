//! The door to the system's clock.

use chrono::{DateTime, TimeDelta, Timelike, Utc};

/// A moment.
pub type Time = DateTime<Utc>;

/// Where operations get the time from.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Time;
}

/// The system's clock; the only caller of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one door to the system's clock")]
    fn now(&self) -> Time {
        Utc::now()
    }
}

impl<C: Clock> Clock for &C {
    fn now(&self) -> Time {
        (*self).now()
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }
}

/// The next whole second: what is stored has no fractions, and a cooldown must not end early (D-20).
pub fn round_up(t: Time) -> Time {
    match t.with_nanosecond(0) {
        Some(whole) if whole < t => whole + TimeDelta::seconds(1),
        _ => t,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn col_07_stored_times_are_rounded_up() {
        let whole = Time::UNIX_EPOCH + TimeDelta::seconds(5);
        assert_eq!(round_up(whole), whole);
        assert_eq!(round_up(whole + TimeDelta::nanoseconds(1)), whole + TimeDelta::seconds(1));
    }
}
