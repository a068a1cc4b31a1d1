//! What goes between us and the server: counts, durations, and how far its clock is from ours.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, TimeDelta};
use http::StatusCode;
use ipam::clock::Time;

/// Upper bounds of the durations that are told apart, in seconds.
pub const BUCKETS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0];
/// Of so many answers the clock is compared.
const LAST: usize = 5;

/// Durations, told apart by [`BUCKETS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// How many were at most as long as each bound and longer than the one before.
    pub counts: [u64; BUCKETS.len()],
    /// How many there were, longer ones too.
    pub count: u64,
    /// All together, in seconds.
    pub sum: f64,
}

impl Durations {
    /// Counts one.
    pub fn add(&mut self, seconds: f64) {
        if let Some(i) = BUCKETS.iter().position(|b| seconds <= *b) {
            self.counts[i] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }
}

/// Why a full set is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relist {
    /// For the first time.
    Start,
    /// The revision had expired.
    Expired,
    /// Errors, or what is no event.
    Errors,
    /// Nothing was told for too long.
    Silent,
    /// It is of an older revision than one seen before.
    RevisionBack,
}

impl Relist {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Start, Self::Expired, Self::Errors, Self::Silent, Self::RevisionBack];

    /// As metrics call it.
    pub fn word(self) -> &'static str {
        match self {
            Relist::Start => "start",
            Relist::Expired => "expired",
            Relist::Errors => "errors",
            Relist::Silent => "silent",
            Relist::RevisionBack => "revision_back",
        }
    }
}

/// Numbers since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    /// Requests by verb, kind and class of the answer.
    pub requests: BTreeMap<(&'static str, &'static str, &'static str), u64>,
    /// Durations by verb.
    pub durations: BTreeMap<&'static str, Durations>,
    /// Full sets by kind and reason.
    pub relists: BTreeMap<(&'static str, Relist), u64>,
    /// When something of a kind was told last, bookmarks too.
    pub told: BTreeMap<&'static str, Time>,
    skews: VecDeque<TimeDelta>,
}

impl Numbers {
    /// The server's clock minus ours, median of the last answers (D-93).
    pub fn skew(&self) -> Option<TimeDelta> {
        let mut skews: Vec<TimeDelta> = self.skews.iter().copied().collect();
        skews.sort();
        (skews.len() == LAST).then(|| skews[LAST / 2])
    }
}

/// Shared by everything that speaks to the server.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<Numbers>);

/// The class of an answer; `None`: there was none.
pub fn class(code: Option<StatusCode>) -> &'static str {
    match code.map(|c| c.as_u16()) {
        None => "none",
        Some(403) => "403",
        Some(404) => "404",
        Some(409) => "409",
        Some(429) => "429",
        Some(200..400) => "2xx",
        Some(400..500) => "4xx",
        Some(_) => "5xx",
    }
}

impl Traffic {
    fn with<T>(&self, change: impl FnOnce(&mut Numbers) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The numbers now.
    pub fn numbers(&self) -> Numbers {
        self.with(|n| n.clone())
    }

    /// A request that ended; `seconds` where how long it took says something.
    pub fn request(&self, verb: &'static str, kind: &'static str, code: Option<StatusCode>, seconds: Option<f64>) {
        self.with(|n| {
            *n.requests.entry((verb, kind, class(code))).or_default() += 1;
            if let Some(seconds) = seconds {
                n.durations.entry(verb).or_default().add(seconds);
            }
        });
    }

    /// A full set was read.
    pub fn relist(&self, kind: &'static str, why: Relist) {
        self.with(|n| *n.relists.entry((kind, why)).or_default() += 1);
    }

    /// Something of a kind was told.
    pub fn told(&self, kind: &'static str, now: Time) {
        self.with(|n| n.told.insert(kind, now));
    }

    /// What the server said that the time is; it says whole seconds.
    pub fn date(&self, header: &str, now: Time) {
        let Ok(theirs) = DateTime::parse_from_rfc2822(header) else { return };
        let skew = theirs.to_utc() + TimeDelta::milliseconds(500) - now;
        self.with(|n| {
            n.skews.push_back(skew);
            while n.skews.len() > LAST {
                n.skews.pop_front();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_93_the_skew_is_the_median_of_five() {
        let (traffic, now) = (Traffic::default(), Time::UNIX_EPOCH + TimeDelta::days(20_000));
        let mut say = |seconds| traffic.date(&(now + TimeDelta::seconds(seconds)).to_rfc2822(), now);
        [90, 0, 90, -3].into_iter().for_each(&mut say);
        assert_eq!(traffic.numbers().skew(), None, "four are too few");
        say(60);
        assert_eq!(traffic.numbers().skew(), Some(TimeDelta::milliseconds(60_500)));
        [1, 1, 1].into_iter().for_each(&mut say);
        assert_eq!(traffic.numbers().skew(), Some(TimeDelta::milliseconds(1_500)), "the last five count");
        traffic.date("rubbish", now);
        assert_eq!(traffic.numbers().skew(), Some(TimeDelta::milliseconds(1_500)));
    }

    #[test]
    fn durations_fall_into_their_bucket() {
        let mut durations = Durations::default();
        [0.001, 0.002, 0.003, 61.0].into_iter().for_each(|s| durations.add(s));
        assert_eq!((durations.counts[0], durations.counts[1], durations.count), (1, 2, 4));
    }

    #[test]
    fn answers_have_classes() {
        let of = |code: u16| class(StatusCode::from_u16(code).ok());
        let want = [(200, "2xx"), (201, "2xx"), (403, "403"), (404, "404"), (409, "409"), (410, "4xx"), (429, "429"), (503, "5xx")];
        want.into_iter().for_each(|(code, word)| assert_eq!(of(code), word));
        assert_eq!(class(None), "none");
    }
}
