//! The loop: over a dump in real time, or with a clock that jumps from one due moment to the next.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::TimeDelta;
use futures::executor::block_on;
use ipam::audit::{Finding, Snapshot, audit, count};
use ipam::{Clock, Ipam, MemStore, SystemClock};
use ipam_accounting::schedule::{Limits, Time};
use ipam_accounting::{Verdict, judge};
use ipam_datastore::dump::{Kinds, load};
use ipam_datastore::text::stamp;
use ipam_datastore::{Dump, DumpError};
use ipam_metrics::Page;

use crate::admin::{Status, serve};
use crate::execute::Unchanging;
use crate::feed::{MemFeed, is_row};
use crate::ledger::Ledger;
use crate::pass::{PassReport, pass};
use crate::plan::{Mode, Policy};
use crate::report::report;
use crate::timeline::{Document, Event, Held, Summary};
use crate::view::View;

/// How long a simulated run may last.
const A_DAY: TimeDelta = TimeDelta::hours(24);
/// How many passes without the clock moving are plausible.
const PASSES_AT_ONCE: u32 = 10_000;
/// The loop beats at least this often.
const BEAT: Duration = Duration::from_secs(5);

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

/// Metrics and probes could not be served.
#[derive(Debug, thiserror::Error)]
#[error("serving on {0}")]
pub struct ServeError(String, #[source] std::io::Error);

/// A loaded dump with everything that works on it.
pub struct Session {
    /// The dump.
    pub dump: Dump,
    /// The cache.
    pub view: View,
    /// The memory.
    pub ledger: Ledger,
    feed: MemFeed,
    policy: Policy,
}

/// What a run obeys, as far as it was given.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Mode; default enforce.
    pub audit: bool,
    /// Grace period; default: the controllers' configuration, else 15 min.
    pub grace: Option<TimeDelta>,
    /// VM floor; default 5 min.
    pub vm_floor: Option<TimeDelta>,
}

impl Session {
    /// Loads dumps.
    ///
    /// # Errors
    /// Input that cannot be used at all.
    pub fn load(files: &[PathBuf], complete: &[Kinds], wishes: &Wishes, progress: &mut dyn FnMut(u64)) -> Result<Self, DumpError> {
        let mut view = View::new();
        let dump = load(
            files,
            complete,
            &mut |update| {
                if !is_row(&update) {
                    view.apply(&update)
                }
            },
            progress,
        )?;
        let feed = MemFeed::new(&dump.store);
        let from_cluster = view.settings().map(|s| s.leak_grace.unwrap_or(TimeDelta::zero()));
        let default = Limits::default();
        let limits =
            Limits { grace: wishes.grace.or(from_cluster).unwrap_or(default.grace), vm_floor: wishes.vm_floor.unwrap_or(default.vm_floor) };
        let mode = if wishes.audit { Mode::Audit } else { Mode::Enforce };
        Ok(Self { dump, view, ledger: Ledger::default(), feed, policy: Policy { mode, limits } })
    }

    /// What the run obeys.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Takes over what waits, and runs a pass.
    pub async fn step<C: Clock>(&mut self, ipam: &Ipam<MemStore, C>, now: Time) -> PassReport {
        let Self { view, feed, .. } = self;
        feed.drain(|update| view.apply(update));
        let done = pass(&mut self.view, &mut self.ledger, ipam, &Unchanging, &self.policy, now).await;
        let Self { view, feed, .. } = self;
        feed.drain(|update| view.apply(update));
        done
    }

    /// What is wrong now.
    pub fn findings(&self, now: Time) -> Vec<Finding> {
        let snapshot = block_on(Snapshot::read(&self.dump.store, self.dump.bad.clone(), true)).expect("memory can be read");
        audit(&snapshot, Some(&self.view.cache), now)
    }

    /// Leaked addresses that stay, by address.
    pub fn held(&self) -> Vec<Held> {
        let cache = &self.view.cache;
        let mut held: Vec<Held> = self
            .ledger
            .leaks()
            .filter_map(|(cidr, ordinal, entry)| {
                let (_, block) = cache.block_of(cidr)?;
                let slot = block.slot(ordinal)?;
                Some(Held { ip: block.ip(slot), handle: slot.handle().map(|h| cache.handle_text(h).into()), why: entry.held?.why() })
            })
            .collect();
        held.sort_by_key(|h| h.ip);
        held
    }

    /// How many addresses have which verdict.
    pub fn verdicts(&self) -> BTreeMap<&'static str, u64> {
        let cache = &self.view.cache;
        let mut counts = BTreeMap::new();
        for (_, block) in cache.blocks() {
            for slot in &block.slots {
                *counts.entry(judge(&cache.allocation(block, slot), cache).name()).or_default() += 1;
            }
            if block.cooling > 0 {
                *counts.entry(Verdict::Cooling.name()).or_default() += u64::from(block.cooling);
            }
        }
        counts
    }

    /// Runs with a clock that jumps from one due moment to the next, until nothing is due (D-36).
    pub fn fast_forward(&mut self, start: Time) -> Document {
        let clock = Arc::new(SimClock::new(start));
        let ipam = Ipam::new(self.dump.store.clone(), clock.clone());
        let (mut events, mut summary) = (Vec::<Event>::new(), Summary { simulated: true, start: stamp(start), ..Summary::default() });
        let mut passes = 0;
        loop {
            let now = clock.now();
            let done = block_on(self.step(&ipam, now));
            let did = !done.events.is_empty();
            events.extend(done.events);
            summary.failures.extend(done.failures);
            summary.not_ready = done.not_ready.map(|why| why.to_string());
            passes += 1;
            if did && passes < PASSES_AT_ONCE {
                continue;
            }
            match done.next_due {
                Some(due) if due > start + A_DAY => {
                    summary.stopped = true;
                    break;
                }
                Some(due) if due > now => clock.set(due),
                _ => break,
            }
            passes = 0;
        }
        self.document(events, summary, clock.now())
    }

    fn document(&self, events: Vec<Event>, mut summary: Summary, now: Time) -> Document {
        let findings = self.findings(now);
        events.iter().for_each(|e| *summary.actions.entry(e.action).or_default() += 1);
        summary.mode = if self.policy.mode == Mode::Audit { "audit" } else { "enforce" };
        summary.end = stamp(now);
        summary.verdicts = self.verdicts();
        summary.findings = count(&findings);
        summary.blocks = self.view.cache.blocks().count() as u64;
        Document { events, held: self.held(), findings: findings.iter().map(Finding::fields).collect(), summary }
    }

    /// Runs in real time until `stop` is ready, and serves metrics and probes.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn real_time(&mut self, clock: MovedClock, listen: &str, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let (page, status) = (Page::default(), Status::default());
        let listener = tokio::net::TcpListener::bind(listen).await.map_err(|e| ServeError(listen.into(), e))?;
        let address = listener.local_addr().map_err(|e| ServeError(listen.into(), e))?;
        tracing::info!(%address, "serving metrics and probes");
        let server = serve(listener, page.clone(), status.clone());
        let ipam = Ipam::new(self.dump.store.clone(), clock);
        tokio::select! {
            ended = server => ended.map_err(|e| ServeError(listen.into(), e)),
            () = self.passes(&ipam, clock, &page, &status) => Ok(()),
            () = stop => Ok(()),
        }
    }

    async fn passes(&mut self, ipam: &Ipam<MemStore, MovedClock>, clock: MovedClock, page: &Page, status: &Status) {
        let every = self.full_scan_interval();
        let mut next_scan = clock.now() + every;
        loop {
            let now = clock.now();
            status.beat(SystemClock.now());
            if now >= next_scan {
                self.view.cache.mark_all();
                next_scan = now + every;
            }
            let done = self.step(ipam, now).await;
            done.events.iter().for_each(|e| tell(e, &self.policy));
            done.failures.iter().for_each(|f| tracing::warn!(what = %f, "action failed"));
            if done.not_ready.is_none() {
                page.publish(report(&self.view, &mut self.ledger));
            }
            status.set(done.not_ready);
            if done.events.is_empty() {
                let wait = done.next_due.map_or(BEAT, |due| (due - clock.now()).to_std().unwrap_or(Duration::ZERO));
                pause(wait.min(BEAT)).await;
            }
        }
    }

    /// Half the grace, at most 15 min; 5 min without grace (gc.md 3.3, operator.md a).
    fn full_scan_interval(&self) -> TimeDelta {
        let grace = self.policy.limits.grace;
        if grace <= TimeDelta::zero() { TimeDelta::minutes(5) } else { (grace / 2).clamp(TimeDelta::seconds(1), TimeDelta::minutes(15)) }
    }
}

#[expect(clippy::disallowed_methods, reason = "the loop's one wait; it ends at the next due moment")]
async fn pause(wait: Duration) {
    tokio::time::sleep(wait).await;
}

/// The audit trail: one line per event, with everything that a person needs to follow it.
fn tell(e: &Event, policy: &Policy) {
    let would = policy.mode == Mode::Audit;
    let (ip, block) = (e.ip.map(|ip| ip.to_string()), e.block.as_deref());
    let (handle, node, owner) = (e.handle.as_deref(), e.node.as_deref(), e.owner.as_deref());
    tracing::info!(action = e.action, audit = would, simulated = true, ip, block, handle, node, owner, why = %e.why, "decision carried out");
}
