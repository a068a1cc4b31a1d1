//! How quickly leaked addresses go (operator.md e): a bucket of tokens, one an address, and a limit per pass. Handles stay whole.

use chrono::TimeDelta;
use ipam_accounting::Evidence as _;
use ipam_accounting::schedule::Time;

use super::{Action, Leaked, Planner};

/// How quickly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Addresses a second; 0: no limit.
    pub per_second: u64,
    /// So many may go at once.
    pub burst: u64,
    /// At most so many in a pass.
    pub per_pass: usize,
}

impl Default for Rate {
    /// 50 a second, 500 at once, 10 000 in a pass.
    fn default() -> Self {
        Self { per_second: 50, burst: 500, per_pass: 10_000 }
    }
}

impl Rate {
    /// The tokens that must be there before any of so many addresses goes: for a second's worth of them, so that a mass release
    /// is not a block write and a last look for every few addresses.
    fn batch(&self, addresses: usize) -> i64 {
        (addresses as u64).min(self.per_second).min(self.burst).max(1) as i64 * TOKEN
    }
}

/// The bucket. It may be overdrawn by a handle, which takes its tokens whole.
#[derive(Clone, Debug, Default)]
pub struct Bucket {
    /// Thousandths of tokens, and when that was so.
    level: Option<(i64, Time)>,
}

const TOKEN: i64 = 1000;

impl Bucket {
    /// What is there at `now`.
    fn fill(&mut self, rate: &Rate, now: Time) -> i64 {
        let full = rate.burst as i64 * TOKEN;
        let level = match self.level {
            None => full,
            Some((level, at)) => {
                let new = (now - at).num_milliseconds().max(0).saturating_mul(rate.per_second as i64);
                level.saturating_add(new).min(full)
            }
        };
        self.level = Some((level, now));
        level
    }

    /// When there is this much.
    fn next(&self, rate: &Rate, wanted: i64) -> Time {
        let (level, at) = self.level.unwrap_or((0, Time::MIN_UTC));
        at + TimeDelta::milliseconds(((wanted - level).max(0) as u64).div_ceil(rate.per_second.max(1)) as i64)
    }
}

fn members(action: &Action) -> &[Leaked] {
    if let Action::Release(members) = action { members } else { &[] }
}

impl Planner<'_> {
    /// Takes out of the plan what must wait for tokens, or for another pass: departed nodes go first, then what has been due for
    /// longest, then by address.
    pub(super) fn limit(&mut self) {
        let rate = self.policy.rate;
        let mut releases: Vec<(bool, Time, usize)> = Vec::new();
        for (i, action) in self.plan.actions.iter().enumerate() {
            if let Action::Release(members) = action {
                releases.push((!self.of_a_departed_node(members), self.since(members), i));
            }
        }
        releases.sort();
        let all = releases.iter().map(|(_, _, i)| members(&self.plan.actions[*i]).len()).sum();
        let mut tokens = if rate.per_second == 0 { i64::MAX } else { self.ledger.bucket.fill(&rate, self.now) };
        let (mut taken, mut out) = (0, Vec::new());
        let enough = tokens >= rate.batch(all);
        for (_, _, i) in releases {
            let n = members(&self.plan.actions[i]).len();
            if !enough || tokens < TOKEN || taken >= rate.per_pass {
                out.push(i);
            } else {
                tokens -= n as i64 * TOKEN;
                taken += n;
            }
        }
        if rate.per_second > 0 {
            self.ledger.bucket.level = Some((tokens, self.now));
        }
        if !out.is_empty() {
            let later = out.iter().flat_map(|i| members(&self.plan.actions[*i]));
            self.plan.soon = later.take(rate.per_pass).cloned().collect();
            let wanted = rate.batch(out.iter().map(|i| members(&self.plan.actions[*i]).len()).sum());
            let again = if rate.per_second == 0 { self.now } else { self.ledger.bucket.next(&rate, wanted) };
            out.sort_unstable();
            self.drop_actions(&out, again);
        }
    }

    /// Takes actions out of the plan; their blocks are looked at again at `again`.
    pub(super) fn drop_actions(&mut self, out: &[usize], again: Time) {
        let mut blocks = Vec::new();
        let mut i = 0;
        self.plan.actions.retain(|action| {
            let keep = out.binary_search(&i).is_err();
            if let (false, Action::Release(members)) = (keep, action) {
                blocks.extend(members.iter().map(|m| m.block.net()));
            }
            i += 1;
            keep
        });
        self.plan.waiting += blocks.len() as u64;
        blocks.into_iter().for_each(|block| self.wake_block(block, again));
    }

    fn of_a_departed_node(&self, members: &[Leaked]) -> bool {
        members.iter().any(|m| self.view.cache.slot(m.at).and_then(|(_, s)| s.node()).is_some_and(|n| self.view.cache.node(n).is_absent()))
    }

    /// Since when all of them are due.
    pub(super) fn since(&self, members: &[Leaked]) -> Time {
        let due = |m: &Leaked| {
            let entry = self.ledger.leak(m.block.net(), m.at.ordinal)?;
            self.policy.limits.due(entry.wait, entry.since)
        };
        members.iter().filter_map(due).max().unwrap_or(Time::MIN_UTC)
    }
}
