//! What happened: events, as a person and as a program read them (D-47).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use ipam_accounting::judge::Leak;
use ipam_accounting::schedule::Time;
use ipam_datastore::text::stamp;
use serde::Serialize;

use crate::plan::Action;

/// One thing that was done, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When.
    #[serde(serialize_with = "rfc3339")]
    pub at: Time,
    /// `release-address`, `collect-cold`, `release-block` or `release-host`.
    pub action: &'static str,
    /// Block concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// Address concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// Addresses that are free now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    /// Its handle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// Node concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Of whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Why.
    pub why: String,
    /// What the log says besides.
    #[serde(skip)]
    pub trail: Option<Trail>,
}

/// What the log says of the release of an address, so that it can be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail {
    /// Sequence number of the allocation.
    pub seq: i64,
    /// Its pool.
    pub pool: String,
    /// When it was first seen leaked.
    pub since: Option<Time>,
    /// What the last look saw.
    pub evidence: String,
    /// Why it is a leak.
    pub leak: Leak,
}

fn rfc3339<S: serde::Serializer>(t: &Time, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&stamp(*t))
}

impl Event {
    /// What an action that was done tells; a release names one address.
    pub fn of(at: Time, action: &Action, ips: Vec<IpAddr>) -> Self {
        let blank = Event {
            at,
            action: "",
            block: None,
            ip: None,
            ips: Vec::new(),
            handle: None,
            node: None,
            owner: None,
            why: String::new(),
            trail: None,
        };
        match action {
            Action::Release(members) => {
                let m = &members[0];
                let why = m.leak.why().into();
                let block = Some(m.block.to_string());
                Event {
                    action: "release-address",
                    block,
                    ip: Some(m.ip),
                    handle: m.handle.clone(),
                    node: m.node.clone(),
                    owner: m.owner.clone(),
                    why,
                    ..blank
                }
            }
            Action::CollectCold(block) => {
                Event { action: "collect-cold", block: Some(block.to_string()), ips, why: "their cooldown is over".into(), ..blank }
            }
            Action::ReleaseBlock { node, block, seq, departed } => {
                let why = match (departed, seq) {
                    (false, _) => "empty for the grace period, and its node has another block",
                    (true, Some(_)) => "empty, and its node is gone",
                    (true, None) => "an affinity without block, and its node is gone",
                };
                Event { action: "release-block", block: Some(block.to_string()), node: Some(node.clone()), why: why.into(), ..blank }
            }
            Action::ReleaseHost(node) => Event {
                action: "release-host",
                node: Some(node.clone()),
                why: "the node is gone, and nothing of it is left".into(),
                ..blank
            },
        }
    }

    /// The same with what the log says besides.
    pub fn with(self, trail: Trail) -> Self {
        Self { trail: Some(trail), ..self }
    }

    /// One line for a person, `since` being the start.
    pub fn line(&self, since: Time) -> String {
        let subject = match (&self.ip, &self.block, &self.node) {
            (Some(ip), _, _) => ip.to_string(),
            (None, Some(block), _) => block.clone(),
            (None, None, node) => node.clone().unwrap_or_default(),
        };
        let mut line = format!("{}  {:>8}  {:15}  {subject:22}", stamp(self.at), elapsed(self.at, since), self.action);
        let owner = self.owner.as_deref().map(|o| format!("{o}: "));
        let node = self.node.as_deref().filter(|_| self.ip.is_some() || self.block.is_some());
        let _ = write!(line, "  {}{}", owner.unwrap_or_default(), self.why);
        if let Some(node) = node {
            let _ = write!(line, " (node {node})");
        }
        if !self.ips.is_empty() {
            let ips: Vec<String> = self.ips.iter().map(ToString::to_string).collect();
            let _ = write!(line, ": {}", ips.join(", "));
        }
        line
    }
}

fn elapsed(at: Time, since: Time) -> String {
    let seconds = (at - since).num_seconds();
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (h, m) {
        (0, 0) => format!("+{s}s"),
        (0, _) => format!("+{m}m{s:02}s"),
        _ => format!("+{h}h{m:02}m{s:02}s"),
    }
}

/// A leaked address that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The address.
    pub ip: IpAddr,
    /// Its handle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// Why it stays.
    pub why: &'static str,
}

/// A whole simulated run.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// What stays although it is leaked.
    pub held: Vec<Held>,
    /// What is wrong at the end.
    pub findings: Vec<BTreeMap<&'static str, String>>,
    /// Counts.
    pub summary: Summary,
}

/// Counts of a simulated run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// It was a simulation: no cluster was changed.
    pub simulated: bool,
    /// `enforce` or `audit`.
    pub mode: &'static str,
    /// When the clock started.
    pub start: String,
    /// Where the clock stood at the end.
    pub end: String,
    /// Events by action.
    pub actions: BTreeMap<&'static str, u64>,
    /// Addresses by verdict at the end.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Findings by kind at the end.
    pub findings: BTreeMap<&'static str, usize>,
    /// Blocks at the end.
    pub blocks: u64,
    /// Nothing could be done, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// The run was stopped after a day of simulated time although something was due.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Failures of actions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

impl Document {
    /// The timeline and the summary for a person.
    pub fn text(&self, source: &str, start: Time) -> String {
        let would = if self.summary.mode == "audit" { " (audit: what would be done)" } else { "" };
        let mut out = format!("Simulation on {source}{would}: no cluster is being changed.\n\n");
        for event in &self.events {
            out.push_str(&event.line(start));
            out.push('\n');
        }
        let counts = |map: &BTreeMap<&'static str, u64>| map.iter().map(|(k, n)| format!("{n} {k}")).collect::<Vec<_>>().join(", ");
        let s = &self.summary;
        let _ = writeln!(out, "\nDone:      {}", if s.actions.is_empty() { "nothing".into() } else { counts(&s.actions) });
        let _ = writeln!(out, "At {}: {} in {} blocks", s.end, counts(&s.verdicts), s.blocks);
        if let Some(why) = &s.not_ready {
            let _ = writeln!(out, "Nothing is decided: {why}");
        }
        if s.stopped {
            out.push_str("Stopped after 24 h of simulated time although something is due.\n");
        }
        for failure in &s.failures {
            let _ = writeln!(out, "Failed:    {failure}");
        }
        for held in &self.held {
            let handle = held.handle.as_deref().unwrap_or("no handle");
            let _ = writeln!(out, "Held:      {} of {handle}: {}", held.ip, held.why);
        }
        for f in &self.findings {
            let _ = writeln!(out, "Finding:   {} ({}) {}: {}", f["kind"], f["severity"], f["object"], f["message"]);
        }
        out
    }
}
