//! What is around the passes and outlives what is known of a cluster: configuration, leadership, and where everything is told.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use chrono::TimeDelta;
use ipam::audit::Finding;
use ipam_accounting::judge::Leak;
use ipam_accounting::schedule::Time;
use ipam_datastore::text::stamp;
use ipam_datastore::update::{Sync, Watched};
use ipam_metrics::further as series;
use ipam_metrics::{Page, Samples};
use serde_json::json;
use tokio::sync::{Notify, mpsc};

use super::standing::Standing;
use super::{OUT_OF_STEP, Operator};
use crate::clocks::RealClocks;
use crate::config::file::Configured;
use crate::config::{OperatorConfig, Reload, show};
use crate::events::{Note, Regarding, Teller};
use crate::feed::{Source, bad_by_kind};
use crate::gauges::Gauges;
use crate::leadership::Leadership;
use crate::pass::PassReport;
use crate::plan::{BrakeState, Mode, Now};
use crate::report::report;
use crate::scene;
use crate::status::{BAD, Conditions, GOOD, Question, Report, Status};
use crate::timeline::Event;
use crate::told::{self, Tally};
use crate::upkeep::Upkeep;
use crate::view::{Gate, NotReady};

/// A gate that is closed for so long is an event.
const CLOSED: TimeDelta = TimeDelta::seconds(60);

/// How often the further gauges of the cluster are counted.
const COUNTED: TimeDelta = TimeDelta::seconds(5);

/// Takes a new level or filter of the log.
pub type SetLog = Box<dyn Fn(&str) + Send>;

/// Everything around the passes.
pub struct Around {
    /// The clocks.
    pub clocks: RealClocks,
    /// What is obeyed.
    pub config: OperatorConfig,
    configured: Configured,
    /// Who acts.
    pub leadership: Leadership,
    /// What the loop says of itself.
    pub status: Status,
    /// What is asked of the loop.
    pub questions: mpsc::Receiver<Question>,
    /// Wakes the loop when somebody wants it to stop.
    pub stop: Arc<Notify>,
    /// Metrics.
    pub page: Page,
    /// What this process counts.
    pub tally: Tally,
    /// What was done lately, the last first.
    pub recent: VecDeque<Event>,
    teller: Teller,
    notes: mpsc::Sender<Note>,
    dropped: u64,
    conditions: Conditions,
    simulated: bool,
    set_log: SetLog,
    /// The gauges of the cluster as they were when the gate was open last.
    cluster: Samples,
    totals: crate::ledger::Totals,
    /// Since when the gate is closed, and whether that was told.
    closed: Option<(Time, bool)>,
    open_told: bool,
    standing: Standing,
    was_active: Option<bool>,
    /// When the further gauges of the cluster were counted.
    counted: Option<Time>,
}

impl Around {
    /// Around a run that has not begun. Kubernetes events go to `notes`.
    pub fn new(
        clocks: RealClocks,
        (configured, config): (Configured, OperatorConfig),
        leadership: Leadership,
        notes: mpsc::Sender<Note>,
        simulated: bool,
        set_log: SetLog,
    ) -> Self {
        let (status, questions) = Status::new(clocks, leadership.clone());
        let page = Page::default();
        page.show_zeros(config.zeros);
        Self {
            clocks,
            teller: Teller::new(config.events.interval),
            config,
            configured,
            leadership,
            status,
            questions,
            stop: Arc::default(),
            page,
            tally: Tally::default(),
            recent: VecDeque::new(),
            notes,
            dropped: 0,
            conditions: Conditions::default(),
            simulated,
            set_log,
            cluster: Samples::default(),
            totals: Default::default(),
            closed: None,
            open_told: false,
            standing: Standing::default(),
            was_active: None,
            counted: None,
        }
    }

    /// Looks at the configuration file; whether there is something new to obey.
    pub fn reload(&mut self, now: Time) -> bool {
        let about = Regarding::Own;
        match self.configured.look(now) {
            Reload::Same => false,
            Reload::Rejected(why) => {
                tracing::error!(%why, "the configuration file is not valid: the old values stay");
                self.teller.say(about, "ConfigRejected", true, format!("The old values stay: {why}"));
                false
            }
            Reload::Taken(config, changed, restart) => {
                tracing::info!(?changed, "the configuration file was taken over");
                for (key, note) in self.configured.values.notes.iter().filter(|(_, note)| note.starts_with("overridden")) {
                    tracing::warn!(key, note, "a key of the file has no effect");
                }
                if !restart.is_empty() {
                    tracing::warn!(keys = ?restart, "these keys of the file need a restart");
                    self.teller.say(
                        about.clone(),
                        "ConfigNeedsRestart",
                        true,
                        format!("Changed, and in force after a restart: {}", restart.join(", ")),
                    );
                }
                self.changes(&config, &changed);
                self.page.show_zeros(config.zeros);
                self.teller.set_interval(config.events.interval);
                (self.set_log)(&config.log_level);
                // What needed a right that it has not may be wanted no longer; otherwise the next refusal says so again.
                self.tally.forbidden = None;
                self.config = *config;
                true
            }
        }
    }

    fn changes(&mut self, new: &OperatorConfig, changed: &[&str]) {
        if !changed.is_empty() {
            self.teller.say(Regarding::Own, "ConfigReloaded", false, format!("Changed: {}", changed.join(", ")));
        }
        if new.mode != self.config.mode {
            let text = format!("The mode is {} now", mode(new.mode));
            self.teller.say(Regarding::Own, "ModeChanged", false, text);
        }
        if new.paused != self.config.paused {
            let (reason, text) = if new.paused { ("ReleasesPaused", "Nothing is written") } else { ("ReleasesUnpaused", "Releases go on") };
            self.teller.say(Regarding::Own, reason, false, text);
        }
    }

    /// Everything that there is to tell of a pass.
    pub(super) fn tell(&mut self, operator: &mut Operator, source: &impl Source, done: &PassReport, now: Now) {
        let policy = operator.policy();
        done.events.iter().for_each(|e| told::log(e, policy.mode, self.simulated));
        scene::keep(&mut self.recent, &done.events);
        done.failures.iter().for_each(|f| tracing::warn!(what = %f.text, "action failed"));
        done.refusals.iter().for_each(|(_, why)| tracing::info!(%why, "left as it is"));
        self.tally.pass(done, now.wall);
        if done.not_ready.is_none() {
            self.tally.took("plan", done.took.0);
            done.took.1.into_iter().for_each(|seconds| self.tally.took("execute", seconds));
        }
        self.leadership_told(operator.active);
        self.set_conditions(operator, done, now);
        told::events(done, policy.mode, &mut self.teller);
        if done.not_ready.is_none() && operator.active {
            self.page.publish(report(&operator.view, &mut operator.ledger));
        } else if !operator.active {
            self.page.withdraw();
            self.counted = None;
        }
        // These cost more, and nobody scrapes as often as there are passes.
        if done.not_ready.is_none() && operator.active && self.counted.is_none_or(|at| now.steady - at >= COUNTED) {
            self.counted = Some(now.steady);
            let gauges = Gauges::new(&operator.view, &operator.ledger, &policy, now);
            let ipam_config = operator.view.gate().unwrap_or_default();
            self.cluster = gauges.samples(&ipam_config);
            self.standing.tell(&gauges, &ipam_config, self.config.events.nearly_full, &mut self.teller);
            self.cluster.extend(findings(&operator.upkeep));
        }
        self.totals.clone_from(&operator.ledger.done);
        self.publish(operator, source, done);
        self.set_status(operator, source, done);
        self.send(now.steady);
    }

    fn leadership_told(&mut self, active: bool) {
        self.tally.was_active |= active;
        if self.was_active.is_some_and(|before| before != active) {
            let (reason, text) =
                if active { ("BecameLeader", "This replica acts now") } else { ("StoppedLeading", "This replica does not act any more") };
            if !active {
                self.teller.clear();
            }
            self.teller.say(Regarding::Lease, reason, false, text);
        }
        self.was_active = Some(active);
    }

    /// Sends what may be told; what the sender has no room for is dropped, and counted.
    fn send(&mut self, now: Time) {
        let (active, enabled) = (self.was_active == Some(true), self.config.events.enabled && !self.simulated);
        for note in self.teller.take(now) {
            let anyway =
                ["BecameLeader", "StoppedLeading", "GateClosed", "GateOpened", "ConfigRejected", "ConfigNeedsRestart", "ConfigReloaded"];
            if enabled && (active || anyway.contains(&note.reason)) && self.notes.try_send(note).is_err() {
                self.dropped += 1;
            }
        }
    }

    fn set_conditions(&mut self, operator: &Operator, done: &PassReport, now: Now) {
        let mut set = |name, status, message: String| self.conditions.set(name, status, message, now.wall);
        for gate in Gate::ALL {
            let at = operator.view.at(gate);
            set(name(gate), at.is_ok(), at.err().map(|e| e.to_string()).unwrap_or_default());
        }
        let settings = operator.view.settings();
        let unclear = settings
            .is_some_and(|s| s.unclear)
            .then_some("the leak grace period of KubeControllersConfiguration is no duration: collection is off");
        let rejected = self.configured.rejected.clone().or_else(|| unclear.map(Into::into));
        set("ConfigAccepted", rejected.is_none(), rejected.unwrap_or_default());
        let skew = operator.skew.map(|s| s.as_seconds_f64());
        let in_step = skew.is_none_or(|s| s.abs() <= OUT_OF_STEP.as_seconds_f64());
        set(
            "ClockInStep",
            in_step,
            skew.map(|s| format!("the API server's clock is {s:.1} s ahead of ours: what cools is not collected")).unwrap_or_default(),
        );
        set("WritesPermitted", self.tally.forbidden.is_none(), self.tally.forbidden.clone().unwrap_or_default());
        set("Paused", self.config.paused, "nothing is written".into());
        if let Some(why) = &self.tally.forbidden {
            self.teller.say(Regarding::Own, "WritesForbidden", true, why.clone());
        }
        self.dangers(operator, done, now);
        self.tell_gate(done, now);
    }

    /// What holds releases back, or makes them unwise; told when it begins.
    fn dangers(&mut self, operator: &Operator, done: &PassReport, now: Now) {
        let mut set = |name, status, message: String| self.conditions.set(name, status, message, now.wall);
        let counted = operator.ledger.brake.counted;
        let text =
            format!("of {} addresses of pods and VMs {} are due, {} were released lately", counted.total, counted.due, counted.released);
        let state = operator.ledger.brake.state();
        let engaged = set("BrakeEngaged", state == BrakeState::Engaged, format!("not one of them is released: {text}"));
        let allowed = set("BrakeAllowed", matches!(state, BrakeState::Allowed(_)), format!("some are let through: {text}"));
        let mass = set(
            "MassDeparture",
            operator.ledger.departures.many(),
            "many nodes vanished at once: what was theirs waits for the grace period".into(),
        );
        let other = operator.view.settings().is_some_and(|s| s.other_collector);
        let both = set(
            "OtherCollectorActive",
            other,
            "Calico's own controller is configured to collect leaks too: its rules are rougher than these".into(),
        );
        if (engaged || allowed) && done.not_ready.is_none() {
            self.tell_brake(state, &text);
        }
        if mass && operator.ledger.departures.many() {
            self.teller.say(
                Regarding::Own,
                "MassDeparture",
                true,
                "Many nodes vanished at once: what was theirs waits for the grace period",
            );
        }
        if both && other {
            self.teller.say(
                Regarding::Controllers,
                "OtherCollectorActive",
                true,
                "Calico's own controller is configured to collect leaks too",
            );
        }
    }

    fn tell_brake(&mut self, state: BrakeState, text: &str) {
        let due = text;
        match state {
            BrakeState::Engaged => {
                tracing::warn!(
                    what = due,
                    "the brake is engaged: so many at once are rather a mistake; if they are right, brake.allow in the configuration file lets them through"
                );
                let how = "to let them through: brake.allow {upTo, until} in the configuration file";
                self.teller.say(Regarding::Own, "ReleaseBraked", true, format!("{text}; {how}"));
            }
            BrakeState::Allowed(n) => {
                tracing::warn!(what = due, left = n, "the brake lets some through, as it was told");
                self.teller.say(Regarding::Own, "ReleaseAllowed", false, format!("{n} more may go: {text}"));
            }
            BrakeState::Clear if self.open_told => {
                tracing::info!("the brake is clear");
                self.teller.say(Regarding::Own, "ReleaseResumed", false, "The brake is clear");
            }
            BrakeState::Clear => {}
        }
    }

    /// In the log at once; as an event only if it stays closed.
    fn tell_gate(&mut self, done: &PassReport, now: Now) {
        match (&done.not_ready, self.closed) {
            (None, closed) => {
                if closed.is_some() || !self.open_told {
                    tracing::info!("ready");
                }
                if closed.is_some_and(|(_, told)| told) {
                    self.teller.say(Regarding::Own, "GateOpened", false, "Everything is known that is needed");
                }
                (self.closed, self.open_told) = (None, true);
            }
            (Some(why), None) => {
                tracing::warn!(%why, "nothing is decided");
                self.closed = Some((now.steady, false));
            }
            (Some(why), Some((since, false))) if now.steady - since >= CLOSED => {
                self.closed = Some((since, true));
                let text = format!("{why}, since {}", stamp(now.wall(since)));
                self.teller.say(Regarding::Own, "GateClosed", true, text.clone());
                match why {
                    NotReady::DatastoreLocked => self.teller.say(Regarding::Cluster, "DatastoreLocked", true, text),
                    NotReady::ConfigInvalid(_) => self.teller.say(Regarding::IpamConfig, "IPAMConfigInvalid", true, text),
                    _ => {}
                }
            }
            (Some(_), Some(_)) => {}
        }
    }

    /// An audit has ended.
    pub(super) fn found(&mut self, upkeep: &Upkeep, new: &BTreeSet<&'static str>) {
        for f in upkeep.findings().filter(|f| new.contains(f.kind.name())) {
            tracing::warn!(kind = f.kind.name(), severity = %f.kind.severity(), object = f.object, message = f.message, "found");
            let pod =
                f.message.strip_prefix("reported by pod ").and_then(|rest| rest.split_once(", ")).and_then(|(pod, _)| pod.split_once('/'));
            let reason = match f.kind.name() {
                "used-by-other" => "AddressConflict",
                "used-unallocated" => "AddressNotAllocated",
                _ => continue,
            };
            if let Some((namespace, name)) = pod {
                self.teller.say(Regarding::Pod(namespace.into(), name.into()), reason, true, format!("{} {}", f.object, f.message));
            }
        }
        let counts: Vec<String> =
            new.iter().map(|kind| format!("{} {kind}", upkeep.findings().filter(|f| f.kind.name() == *kind).count())).collect();
        if !counts.is_empty() {
            self.teller.say(Regarding::Own, "InconsistencyFound", true, counts.join(", "));
        }
    }

    /// Rows were repaired.
    pub(super) fn repaired(&mut self, done: &[Finding]) {
        for f in done {
            tracing::info!(action = "repair", kind = f.kind.name(), object = f.object, message = f.message, "row repaired");
            *self.tally.repairs.entry(f.kind.name()).or_default() += 1;
            self.teller.count(Regarding::Own, "IndexRepaired", "repair", f.kind.name(), f.object.clone());
        }
    }

    fn publish(&mut self, operator: &Operator, source: &impl Source, done: &PassReport) {
        let mut out = if operator.active { self.cluster.clone() } else { Samples::default() };
        if self.tally.was_active {
            zeros(operator, &mut out);
        }
        out.extend(self.tally.samples(&self.totals, operator.active));
        out.extend(source.samples());
        out.set(&series::BUILD, &[env!("CARGO_PKG_VERSION"), option_env!("IPAM_REVISION").unwrap_or("unknown")], 1.0);
        out.count(&series::LEADER, &[], operator.active);
        for mode in [Mode::Enforce, Mode::Audit] {
            out.count(&series::MODE, &[self::mode(mode)], self.config.mode == mode);
        }
        for condition in GOOD.into_iter().chain(BAD) {
            out.count(&series::CONDITION, &[condition], self.conditions.holds(condition));
        }
        for action in told::ACTIONS {
            // Nothing but releases waits for brake or rate.
            out.count(&series::WAITING, &[action], if action == "release-address" { done.waiting } else { 0 });
        }
        for kind in operator.view.required() {
            out.count(&series::SYNCED, &[kind.word()], operator.view.lacks(*kind).is_none());
        }
        for kind in operator.view.required() {
            out.count(&series::BAD_OBJECTS, &[kind.word()], 0_u64);
        }
        bad_by_kind(&source.bad()).into_iter().for_each(|(kind, n)| out.count(&series::BAD_OBJECTS, &[kind], n));
        out.count(&series::RELOADED, &[], self.configured.rejected.is_none());
        out.set(&series::RELOADED_AT, &[], self.configured.taken.timestamp() as f64);
        if let Some(skew) = operator.skew {
            out.set(&series::SKEW, &[], skew.as_seconds_f64());
        }
        out.count(&series::DROPPED, &[], self.teller.dropped + self.dropped);
        self.page.publish_further(if operator.active { out } else { out.of_a_passive_one() });
    }

    fn set_status(&mut self, operator: &Operator, source: &impl Source, done: &PassReport) {
        let why = |kind: &Watched| match operator.view.sync(*kind) {
            Some(Sync::NotServed) if kind.optional() => None,
            _ => operator.view.lacks(*kind),
        };
        let brake = &operator.ledger.brake;
        let (state, left) = match brake.state() {
            BrakeState::Clear => ("Clear", None),
            BrakeState::Engaged => ("Engaged", None),
            BrakeState::Allowed(left) => ("Allowed", Some(left)),
        };
        let allow = self.config.allow.map(|a| json!({ "upTo": a.up_to, "until": stamp(a.until), "left": left }));
        self.status.set(Report {
            mode: mode(self.config.mode),
            paused: self.config.paused,
            active: operator.active,
            conditions: self.conditions.clone(),
            kinds: operator.view.required().iter().map(|kind| (kind.word().to_owned(), why(kind))).collect(),
            gates: Gate::ALL.into_iter().map(|gate| (name(gate), operator.view.at(gate).err().map(|e| e.to_string()))).collect(),
            unready: done.not_ready.as_ref().filter(|why| why.unready()).map(ToString::to_string),
            brake: json!({
                "state": state,
                "due": brake.counted.due,
                "total": brake.counted.total,
                "window": brake.counted.released,
                "limit": self.config.brake.share,
                "allow": allow,
            }),
            next_due: done.next_due,
            queue: source.queue(),
            config: show::list(&show::lines(&self.configured.values, operator.view.settings())),
        });
    }
}

/// Counters by pool begin with 0, so that the first one is seen as an increase.
fn zeros(operator: &Operator, out: &mut Samples) {
    for pool in operator.view.pools() {
        for reason in Leak::WORDS {
            out.set(&series::RECLAIMED, &[&pool.key, reason], 0.0);
        }
        out.set(&series::COLLECTED, &[&pool.key], 0.0);
        out.set(&series::FREED, &[&pool.key], 0.0);
    }
}

/// Findings of the last audit, by kind.
fn findings(upkeep: &Upkeep) -> Samples {
    let mut out = Samples::default();
    let Some(at) = upkeep.at else { return out };
    out.set(&series::LAST_AUDIT, &[], at.timestamp() as f64);
    for kind in ipam::audit::FindingKind::ALL {
        let n = upkeep.findings().filter(|f| f.kind == *kind).count();
        out.count(&series::FINDINGS, &[kind.name(), &kind.severity().to_string()], n as u64);
    }
    out
}

/// A mode as it is written.
pub fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Audit => "audit",
    }
}

/// A gate as a condition.
fn name(gate: Gate) -> &'static str {
    match gate {
        Gate::Synced => "Synced",
        Gate::ApiGroupStable => "APIGroupStable",
        Gate::ClusterMatches => "ClusterMatches",
        Gate::DatastoreReady => "DatastoreReady",
        Gate::IpamConfigValid => "IPAMConfigValid",
        Gate::SelfCheck => "SelfCheck",
    }
}
