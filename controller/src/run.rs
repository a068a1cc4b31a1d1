//! The loop in real time.

use std::time::Duration;

use chrono::TimeDelta;
use futures::future::BoxFuture;
use futures::{FutureExt as _, future};
use ipam::audit::Snapshot;
use ipam::{Clock, Datastore, Ipam, StoreError};
use ipam_accounting::schedule::{Limits, Time};
use ipam_datastore::live::Anew;

use crate::config::OperatorConfig;
use crate::execute::{Pulse, Unwatched};
use crate::feed::Source;
use crate::ledger::Ledger;
use crate::look::LastLook;
use crate::pass::{Class, Pass, PassReport};
use crate::plan::{Now, Policy};
use crate::run::around::Around;
use crate::scene::Scene;
use crate::status::Question;
use crate::upkeep::Upkeep;
use crate::view::View;

pub mod around;
mod standing;

/// The loop beats at least this often.
pub(crate) const BEAT: Duration = Duration::from_secs(5);
/// Changes that come within so long are looked at together.
const TOGETHER: Duration = Duration::from_millis(250);
/// After so long an audit that could not be read is tried again.
const AUDIT_AGAIN: TimeDelta = TimeDelta::minutes(5);
/// Further apart than this the clocks are not in step (D-93).
const OUT_OF_STEP: TimeDelta = TimeDelta::seconds(30);

/// Why a life ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// What was known does not hold any more.
    Anew(Anew),
    /// Somebody wants us to stop.
    Stopped,
}

/// What is known, what is remembered, and what is obeyed.
pub struct Operator {
    /// The cache.
    pub view: View,
    /// The memory.
    pub ledger: Ledger,
    /// Rows held against the blocks.
    pub upkeep: Upkeep,
    config: OperatorConfig,
    /// This one acts.
    pub active: bool,
    /// How far the server's clock is from ours.
    pub skew: Option<TimeDelta>,
    audit: Option<BoxFuture<'static, Result<Snapshot, StoreError>>>,
}

impl Operator {
    /// One that remembers nothing yet.
    pub fn new(view: View, config: &OperatorConfig) -> Self {
        let mut new = Self {
            view,
            ledger: Ledger::default(),
            upkeep: Upkeep::default(),
            config: config.clone(),
            active: true,
            skew: None,
            audit: None,
        };
        new.view.cluster_guid.clone_from(&config.cluster_guid);
        new
    }

    /// Obeys another configuration from now on. Timers go on; what was shown in audit mode is due again (operator.md a).
    pub fn obey(&mut self, config: &OperatorConfig) {
        if self.config.mode != config.mode {
            self.ledger.forget_shown();
        }
        self.config = config.clone();
        self.view.cluster_guid.clone_from(&config.cluster_guid);
        self.view.cache.mark_all();
    }

    /// Acts from now on, or no longer. Timers go on.
    pub fn set_active(&mut self, active: bool) {
        if active != self.active {
            self.active = active;
            self.ledger.brake.clear();
            self.view.cache.mark_all();
        }
    }

    /// What it obeys now: what was asked for, else what the cluster says (D-6), else the defaults.
    pub fn policy(&self) -> Policy {
        let from_cluster = self.view.settings().map(|s| s.leak_grace.unwrap_or(TimeDelta::zero()));
        let grace = self.config.leak_grace.or(from_cluster).unwrap_or(Limits::default().grace);
        Policy {
            active: self.active,
            paused: self.config.paused,
            in_step: self.skew.is_none_or(|skew| skew.abs() <= OUT_OF_STEP),
            mode: self.config.mode,
            limits: Limits { grace, vm_floor: self.config.vm_floor },
            brake: self.config.brake,
            allow: self.config.allow,
            departed: self.config.departed,
            rate: self.config.rate,
            opt_outs: self.config.opt_outs.clone(),
        }
    }

    /// Takes over what waits, and runs a pass that nobody watches.
    ///
    /// # Errors
    /// What is known does not hold any more.
    pub async fn step<S: Datastore, C: Clock>(
        &mut self,
        ipam: &Ipam<S, C>,
        look: &impl LastLook,
        source: &mut impl Source,
        now: Now,
    ) -> Result<PassReport, Anew> {
        self.watched_step(ipam, look, source, now, &Unwatched).await
    }

    async fn watched_step<S: Datastore, C: Clock>(
        &mut self,
        ipam: &Ipam<S, C>,
        look: &impl LastLook,
        source: &mut impl Source,
        now: Now,
        pulse: &impl Pulse,
    ) -> Result<PassReport, Anew> {
        self.drain(source)?;
        let policy = self.policy();
        let pass = Pass { view: &mut self.view, ledger: &mut self.ledger, ipam, look, pulse };
        let done = pass.run(&policy, now).await;
        // If it all begins anew, the next step says so: what this one did must be told first.
        drop(self.drain(source));
        Ok(done)
    }

    fn drain(&mut self, source: &mut impl Source) -> Result<bool, Anew> {
        let view = &mut self.view;
        source.drain(&mut |update| view.apply(&update))
    }

    /// Pass after pass, until what is known does not hold any more, or somebody wants us to stop.
    pub async fn passes<S: Datastore, C: Clock>(
        &mut self,
        ipam: &Ipam<S, C>,
        look: &impl LastLook,
        source: &mut impl Source,
        around: &mut Around,
    ) -> Ended {
        let mut last_scan = around.clocks.both().steady;
        loop {
            around.status.beat();
            if around.status.stopping() {
                return Ended::Stopped;
            }
            let now = around.clocks.both();
            if around.reload(now.wall) {
                self.obey(&around.config);
            }
            self.set_active(around.leadership.active());
            self.skew = source.skew();
            if now.steady >= last_scan + self.full_scan_interval() {
                self.view.cache.mark_all();
                last_scan = now.steady;
            }
            let done = match self.watched_step(ipam, look, source, now, &around.status).await {
                Ok(done) => done,
                Err(anew) => return Ended::Anew(anew),
            };
            around.tell(self, source, &done, now);
            if done.not_ready.is_none() {
                self.keep_up(ipam, source, around).await;
            }
            if done.events.is_empty() {
                self.wait(source, around, done.next_due).await;
            }
        }
    }

    /// Until something is to be looked at: a change, the next due moment, a question, a change of leadership, or somebody who wants
    /// us to stop.
    async fn wait(&mut self, source: &mut impl Source, around: &mut Around, due: Option<Time>) {
        let now = around.clocks.both().steady;
        let due = due.map_or(BEAT, |due| (due - now).to_std().unwrap_or(Duration::ZERO));
        let audit = match &mut self.audit {
            Some(read) => read.map(Some).boxed(),
            None => future::pending().boxed(),
        };
        let read = tokio::select! {
            () = source.ready() => {
                pause(TOGETHER).await;
                None
            }
            () = pause(due.min(BEAT)) => None,
            () = around.leadership.changed() => None,
            () = around.stop.notified() => None,
            asked = around.questions.recv() => {
                if let Some(look) = asked {
                    self.show(around, look);
                }
                None
            }
            read = audit => read,
        };
        if let Some(read) = read {
            self.audit = None;
            self.audited(read, around);
        }
    }

    /// Answers a question, and all that came with it.
    fn show(&self, around: &mut Around, first: Question) {
        let policy = self.policy();
        let mut next = Some(first);
        while let Some(look) = next {
            let Around { clocks, recent, .. } = &*around;
            look(&Scene { view: &self.view, ledger: &self.ledger, policy: &policy, now: clocks.both(), upkeep: &self.upkeep, recent });
            next = around.questions.try_recv().ok();
        }
    }

    fn audited(&mut self, read: Result<Snapshot, StoreError>, around: &mut Around) {
        let now = around.clocks.both();
        match read {
            Ok(snapshot) => {
                let new = self.upkeep.observe(&snapshot, &self.view, now);
                self.upkeep.schedule(self.config.audit_interval, self.config.index_repair, &self.policy(), now.steady);
                around.found(&self.upkeep, &new);
            }
            Err(e) => {
                tracing::warn!(error = %e, "the rows could not be audited");
                self.upkeep.postpone(now.steady + AUDIT_AGAIN);
            }
        }
    }

    /// Begins an audit that is due, and repairs what may be repaired (D-18).
    async fn keep_up<S: Datastore, C: Clock>(&mut self, ipam: &Ipam<S, C>, source: &impl Source, around: &mut Around) {
        let now = around.clocks.both();
        let wanted = self.config.index_repair != crate::config::IndexRepair::Off && self.active;
        if wanted && self.audit.is_none() && self.upkeep.due(now.steady) {
            let (store, bad) = (ipam.store().clone(), source.bad());
            self.audit = Some(async move { Snapshot::read(&store, bad, false).await }.boxed());
        }
        let due = self.upkeep.due_repairs(&self.view, self.config.index_repair, &self.policy(), now.steady);
        if due.is_empty() {
            return;
        }
        let repairs = self.upkeep.repair(due, ipam, &around.status, now.steady).await;
        for (finding, e) in &repairs.failed {
            let text = ipam::release::chain(e);
            let class = if e.unknown() { Class::UnknownOutcome } else { Class::of(&text) };
            tracing::warn!(object = finding.object, kind = finding.kind.name(), error = text, "a row could not be repaired");
            around.tally.failure("repair", class, &text);
        }
        around.repaired(&repairs.done);
        // What failed, or has changed meanwhile, is looked at again soon.
        if repairs.stale > 0 {
            self.upkeep.postpone(now.steady + self.policy().limits.grace.min(AUDIT_AGAIN));
        } else if !repairs.failed.is_empty() {
            self.upkeep.postpone(now.steady + AUDIT_AGAIN);
        }
    }

    /// As it was asked for, else half the grace, at most 15 min; 5 min without grace (gc.md 3.3, operator.md a).
    fn full_scan_interval(&self) -> TimeDelta {
        let grace = self.policy().limits.grace;
        self.config.full_scan.unwrap_or_else(|| {
            if grace <= TimeDelta::zero() {
                TimeDelta::minutes(5)
            } else {
                (grace / 2).clamp(TimeDelta::seconds(1), TimeDelta::minutes(15))
            }
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "the loop's one wait; it ends at the next due moment")]
pub(crate) async fn pause(wait: Duration) {
    tokio::time::sleep(wait).await;
}
