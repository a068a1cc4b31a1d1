//! A dump with everything that works on it; fast-forward.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use chrono::TimeDelta;
use futures::executor::block_on;
use ipam::audit::{Finding, Snapshot, audit, count};
use ipam::{Clock, Ipam};
use ipam_accounting::schedule::Time;
use ipam_accounting::{Verdict, judge};
use ipam_datastore::dump::{Kinds, load};
use ipam_datastore::text::stamp;
use ipam_datastore::{Dump, DumpError};

use crate::clocks::SimClock;
use crate::config::OperatorConfig;
use crate::feed::{MemFeed, is_row};
use crate::look::Unchanging;
use crate::plan::Now;
use crate::run::Operator;
use crate::run::around::{Around, mode};
use crate::timeline::{Document, Event, Held, Summary};
use crate::view::View;

/// How long a simulated run may last.
const A_DAY: TimeDelta = TimeDelta::hours(24);
/// How many passes without the clock moving are plausible.
const PASSES_AT_ONCE: u32 = 10_000;

/// A loaded dump with everything that works on it.
pub struct Session {
    /// The dump.
    pub dump: Dump,
    /// What works on it.
    pub operator: Operator,
    feed: MemFeed,
}

impl Session {
    /// Loads dumps.
    ///
    /// # Errors
    /// Input that cannot be used at all.
    pub fn load(files: &[PathBuf], complete: &[Kinds], config: &OperatorConfig, progress: &mut dyn FnMut(u64)) -> Result<Self, DumpError> {
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
        Ok(Self { dump, operator: Operator::new(view, config), feed })
    }

    /// What is wrong now.
    pub fn findings(&self, now: Time) -> Vec<Finding> {
        let snapshot = block_on(Snapshot::read(&self.dump.store, self.dump.bad.clone(), true)).expect("memory can be read");
        audit(&snapshot, Some(&self.operator.view.cache), now)
    }

    /// Leaked addresses that stay, by address.
    pub fn held(&self) -> Vec<Held> {
        let cache = &self.operator.view.cache;
        let mut held: Vec<Held> = self
            .operator
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
        let cache = &self.operator.view.cache;
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
            let done =
                block_on(self.operator.step(&ipam, &Unchanging, &mut self.feed, Now::both(now))).expect("memory does not begin anew");
            let did = !done.events.is_empty();
            events.extend(done.events);
            summary.failures.extend(done.failures.into_iter().map(|f| f.text));
            summary.failures.extend(done.refusals.into_iter().filter(|(r, _)| r.by_the_last_look()).map(|(_, why)| why));
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
        summary.mode = mode(self.operator.policy().mode);
        summary.end = stamp(now);
        summary.verdicts = self.verdicts();
        summary.findings = count(&findings);
        summary.blocks = self.operator.view.cache.blocks().count() as u64;
        Document { events, held: self.held(), findings: findings.iter().map(Finding::fields).collect(), summary }
    }

    /// Runs in real time until somebody wants it to stop.
    pub async fn real_time(&mut self, around: &mut Around) {
        let ipam = Ipam::new(self.dump.store.clone(), around.clocks);
        let Self { operator, feed, .. } = self;
        operator.passes(&ipam, &Unchanging, feed, around).await;
    }
}
