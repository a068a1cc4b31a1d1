//! What the loop says of itself: liveness, conditions, gates, brake (operator.md f).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::TimeDelta;
use ipam_accounting::schedule::Time;
use ipam_datastore::text::stamp;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::clocks::RealClocks;
use crate::execute::Pulse;
use crate::leadership::Leadership;
use crate::scene::Scene;

/// A loop that has not beaten for this long is dead.
const SILENCE: TimeDelta = TimeDelta::seconds(120);

/// How long the loop may take to answer a question.
const PATIENCE: Duration = Duration::from_secs(10);

/// Conditions that are good when they hold.
pub const GOOD: [&str; 9] = [
    "Synced",
    "DatastoreReady",
    "IPAMConfigValid",
    "ConfigAccepted",
    "ClusterMatches",
    "SelfCheck",
    "APIGroupStable",
    "ClockInStep",
    "WritesPermitted",
];
/// Conditions that are bad when they hold.
pub const BAD: [&str; 5] = ["Paused", "BrakeEngaged", "BrakeAllowed", "MassDeparture", "OtherCollectorActive"];

/// One condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Whether it holds.
    pub status: bool,
    /// Why, or what it means.
    pub message: String,
    /// Since when, by the wall clock.
    pub since: Time,
}

impl Condition {
    /// Whether the condition of this name is not as it should be.
    fn is_bad(&self, name: &str) -> bool {
        BAD.contains(&name) == self.status
    }
}

/// All conditions, by type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions(BTreeMap<&'static str, Condition>);

impl Conditions {
    /// Says how one stands now; answers whether that is news.
    pub fn set(&mut self, name: &'static str, status: bool, message: impl Into<String>, now: Time) -> bool {
        let before = self.0.get(name).filter(|c| c.status == status).map(|c| c.since);
        self.0.insert(name, Condition { status, message: message.into(), since: before.unwrap_or(now) });
        before.is_none()
    }

    /// How one stands.
    pub fn get(&self, name: &str) -> Option<&Condition> {
        self.0.get(name)
    }

    /// Whether one holds.
    pub fn holds(&self, name: &str) -> bool {
        self.get(name).is_some_and(|c| c.status)
    }

    /// Those that are not as they should be.
    pub fn bad(&self) -> impl Iterator<Item = (&'static str, &Condition)> {
        self.all().filter(|(name, c)| c.is_bad(name))
    }

    /// All that were said.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &Condition)> {
        self.0.iter().map(|(name, c)| (*name, c))
    }
}

/// What the last pass said.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// `enforce` or `audit`.
    pub mode: &'static str,
    /// Nothing is written.
    pub paused: bool,
    /// This one acts.
    pub active: bool,
    /// How every condition stands.
    pub conditions: Conditions,
    /// By kind, why it is not known in full; `None`: it is.
    pub kinds: Vec<(String, Option<String>)>,
    /// By gate, why it is closed; `None`: it is open.
    pub gates: Vec<(&'static str, Option<String>)>,
    /// Why this process is not ready; `None`: it is.
    pub unready: Option<String>,
    /// The brake.
    pub brake: Value,
    /// When something is due next.
    pub next_due: Option<Time>,
    /// How much of the feed's channel is full, and how much it takes.
    pub queue: (usize, usize),
    /// The configuration in force.
    pub config: Value,
}

/// A question to the loop: it looks at a moment, and sends its own answer.
pub type Question = Box<dyn FnOnce(&Scene<'_>) + Send>;

#[derive(Debug, Default)]
struct Inner {
    beat: Option<Time>,
    stopping: bool,
    report: Option<Arc<Report>>,
}

/// What the loop says of itself. Clones share it.
#[derive(Clone, Debug)]
pub struct Status {
    inner: Arc<Mutex<Inner>>,
    /// What is asked of the loop.
    questions: mpsc::Sender<Question>,
    clocks: RealClocks,
    leadership: Leadership,
}

impl Status {
    /// One that says nothing yet, and where its questions arrive.
    pub fn new(clocks: RealClocks, leadership: Leadership) -> (Self, mpsc::Receiver<Question>) {
        let (questions, asked) = mpsc::channel(16);
        (Self { inner: Arc::default(), questions, clocks, leadership }, asked)
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the last pass said.
    pub fn set(&self, report: Report) {
        self.with(|inner| inner.report = Some(Arc::new(report)));
    }

    /// What the last pass said.
    pub fn report(&self) -> Option<Arc<Report>> {
        self.with(|inner| inner.report.clone())
    }

    /// Before the first pass, or between two lives: not ready, and why.
    pub fn unready(&self, why: &str) {
        let before = self.report().map(|r| (*r).clone()).unwrap_or_default();
        self.set(Report { unready: Some(why.into()), kinds: Vec::new(), gates: Vec::new(), ..before });
    }

    /// From now on nothing new is begun.
    pub fn stop(&self) {
        self.with(|inner| inner.stopping = true);
    }

    /// Whether nothing new is to be begun.
    pub fn stopping(&self) -> bool {
        self.with(|inner| inner.stopping)
    }

    /// Liveness: the loop has beaten lately, or has not begun yet.
    pub fn alive(&self) -> bool {
        self.alive_at(self.clocks.both().steady)
    }

    fn alive_at(&self, now: Time) -> bool {
        self.with(|inner| inner.beat.is_none_or(|beat| now - beat < SILENCE))
    }

    /// Readiness, and a text of why: one line a kind and one a gate.
    pub fn ready(&self) -> (bool, String) {
        if self.stopping() {
            return (false, "not ready: stopping\n".into());
        }
        let Some(report) = self.report() else { return (false, "not ready: the first pass is not over\n".into()) };
        let mut text = match &report.unready {
            Some(why) => format!("not ready: {why}\n"),
            None => "ok\n".to_owned(),
        };
        let line = |what: &str, why: &Option<String>, good: &str, bad: &str| match why {
            None => format!("{what} {good}\n"),
            Some(why) => format!("{what} {bad}: {why}\n"),
        };
        report.kinds.iter().for_each(|(kind, why)| text += &line(kind, why, "ok", "not synced"));
        report.gates.iter().for_each(|(gate, why)| text += &line(gate, why, "open", "closed"));
        text += if report.active { "active\n" } else { "passive\n" };
        for (name, condition) in report.conditions.bad().filter(|(name, _)| !report.gates.iter().any(|(gate, _)| gate == name)) {
            text += &format!("{name}: {}\n", condition.message);
        }
        (report.unready.is_none(), text)
    }

    /// Everything for a program.
    pub fn json(&self) -> Value {
        let report = self.report().unwrap_or_default();
        let condition = |(name, c): (&'static str, &Condition)| {
            let status = if c.status { "True" } else { "False" };
            let reason = if c.is_bad(name) { "NotGood" } else { "AsExpected" };
            json!({ "type": name, "status": status, "reason": reason, "message": c.message, "since": stamp(c.since) })
        };
        json!({
            "mode": report.mode,
            "paused": report.paused,
            "leader": report.active,
            "conditions": report.conditions.all().map(condition).collect::<Vec<_>>(),
            "brake": report.brake,
            "nextDue": report.next_due.map(stamp),
            "queue": { "depth": report.queue.0, "capacity": report.queue.1 },
        })
    }

    /// Asks the loop; `None`: it does not answer.
    pub async fn ask<T: Send + 'static>(&self, look: impl FnOnce(&Scene<'_>) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |scene| drop(answer.send(look(scene))));
        self.questions.try_send(question).ok()?;
        timeout(PATIENCE, answered).await.ok()?.ok()
    }
}

impl Pulse for Status {
    fn beat(&self) {
        let now = self.clocks.both().steady;
        self.with(|inner| inner.beat = Some(now));
    }

    fn seconds(&self) -> f64 {
        (self.clocks.both().steady - Time::UNIX_EPOCH).as_seconds_f64()
    }

    fn go_on(&self) -> bool {
        !self.stopping() && self.leadership.active()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let clocks = RealClocks::starting_at(None);
        Status::new(clocks, Leadership::alone(clocks)).0
    }

    #[test]
    fn f_a_loop_that_has_not_beaten_for_two_minutes_is_dead() {
        let status = status();
        let now = status.clocks.both().steady;
        assert!(status.alive_at(now + TimeDelta::hours(1)), "it has not begun");
        status.beat();
        let beat = status.with(|inner| inner.beat).expect("beaten");
        assert!(status.alive_at(beat + TimeDelta::seconds(119)));
        assert!(!status.alive_at(beat + TimeDelta::seconds(120)));
    }

    #[test]
    fn f_what_closes_readiness_and_what_is_only_shown() {
        let status = status();
        assert_eq!(status.ready(), (false, "not ready: the first pass is not over\n".into()));
        let mut conditions = Conditions::default();
        conditions.set("Paused", true, "nothing is written", Time::UNIX_EPOCH);
        conditions.set("ConfigAccepted", true, "", Time::UNIX_EPOCH);
        let kinds = vec![("block".into(), None), ("pod".into(), Some("403".into()))];
        let gates = vec![("DatastoreReady", Some("the datastore is locked".into()))];
        status.set(Report { conditions, kinds, gates, ..Report::default() });
        let text =
            "ok\nblock ok\npod not synced: 403\nDatastoreReady closed: the datastore is locked\npassive\nPaused: nothing is written\n";
        assert_eq!(status.ready(), (true, text.into()));
        status.unready("everything begins anew");
        assert!(!status.ready().0);
        status.stop();
        assert_eq!(status.ready(), (false, "not ready: stopping\n".into()));
        assert!(!status.go_on(), "nothing new is begun");
    }
}
