//! Text cases of the operator: a sentence of why over each, then given, steps and expectations, one a line.
//!
//! ```text
//! node a                                   a node; `node a gone`, `node a unsure`, `node a migrating`
//! pod ns/p on a ips 10.0.0.1 phase Failed  a pod; `pod ns/p gone`; `host`: host network
//! vm ns/v   vmi ns/v owned                 a VM, a VM instance; `gone`, `unsure`
//! pool p 10.0.0.0/24   reservation r 10.0.0.0/30
//! block 10.0.0.0/30 a .0=h:ns/p@a#5 .1~60s a block of node a (`virtual`, `nobody`): ordinal, handle, owner, node, number;
//!                                          .1 was released 60 s ago; handle `-`: none; `claimed 30s` ago; `norow`
//! row a 10.0.0.4/30 pending                an affinity row
//! cooldown 120   config broken   datastore locked|ready   grace 15m   vm-grace 5m   mode audit   trust vms no   trust empty no   brake 0.5 4 1h
//! hold handle h                            as if a bad object held it; `hold node n`, `hold block c`
//! live pod ns/p on a ips 10.0.0.1          what the last look will find
//! fail block 10.0.0.0/30 conflict          every write of it fails; also `row a 10.0.0.0/30`; `unavailable`, `refused`; `no`: no more
//! race block 10.0.0.0/30 a .0=…            somebody else writes this before the next time we read the block
//! step   wait 15m                          passes until nothing is done; the clock moves first
//! expect release 10.0.0.0 10.0.0.1         exactly these events since the last `expect`, any order; several kinds: joined by `;`
//! expect nothing
//! expect leaks 10.0.0.0                    exactly these candidates; `held 10.0.0.0`; `blocks 10.0.0.0/30`; `due 15m` from now
//! expect refused 10.0.0.0                  the last look said no; `failed 1`: so many different failures
//! expect lists 0                           so many list requests in all; `nothing-written`
//! expect metric NAME{labels} 4             a sample of the page; `no NAME`: nothing on the page contains it
//! ```

mod given;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use chrono::TimeDelta;
use futures::executor::block_on;
use ipam::{Clock, Ipam, MemStore};
use ipam_accounting::facts::{Lookup, PodFacts};
use ipam_accounting::inventory::Trusts;
use ipam_accounting::schedule::{Limits, Time};
use ipam_datastore::Update;
use ipam_datastore::text::go_duration;
use ipam_metrics::Page;
use ipam_operator::clocks::SimClock;
use ipam_operator::feed::{MemFeed, Source as _};
use ipam_operator::ledger::Ledger;
use ipam_operator::look::LastLook;
use ipam_operator::pass::pass;
use ipam_operator::plan::{Mode, Policy};
use ipam_operator::report::report;
use ipam_operator::timeline::Event;
use ipam_operator::view::View;

use crate::faulty::Faulty;

/// When every script starts.
pub fn start() -> Time {
    Time::UNIX_EPOCH + TimeDelta::days(20_000)
}

/// What the last look finds, where it differs from the view.
#[derive(Debug, Default)]
struct Live {
    pods: BTreeMap<(String, String), Lookup<PodFacts<String>>>,
}

impl LastLook for Live {
    async fn pod(&self, namespace: &str, name: &str) -> Option<Lookup<PodFacts<String>>> {
        self.pods.get(&(namespace.into(), name.into())).cloned()
    }
}

/// A cluster in memory with an operator on it.
pub struct World {
    /// The store.
    pub store: MemStore,
    /// The operator's cache.
    pub view: View,
    /// The operator's memory.
    pub ledger: Ledger,
    faulty: Faulty,
    clock: Arc<SimClock>,
    feed: MemFeed,
    policy: Policy,
    trusts: Trusts,
    live: Live,
    events: Vec<Event>,
    failures: Vec<String>,
    due: Option<Time>,
    page: Page,
    next_row: u64,
}

impl Default for World {
    fn default() -> Self {
        let store = MemStore::new();
        let feed = MemFeed::new(&store);
        let faulty = Faulty::new(store.clone());
        let trusts = Trusts {
            pods: ipam_accounting::inventory::Trust::Full,
            nodes: true,
            vms: true,
            vmis: true,
            affinities: true,
            not_if_empty: false,
        };
        let mut view = View::new();
        view.apply(&Update::Trusts(trusts.clone()));
        Self {
            store,
            faulty,
            view,
            ledger: Ledger::default(),
            clock: Arc::new(SimClock::new(start())),
            feed,
            policy: Policy { mode: Mode::Enforce, limits: Limits::default(), brake: ipam_operator::plan::Limit::default() },
            trusts,
            live: Live::default(),
            events: Vec::new(),
            failures: Vec::new(),
            due: None,
            page: Page::default(),
            next_row: 0,
        }
    }
}

/// Runs a script.
///
/// # Errors
/// The first line that does not hold, with its number.
pub fn run(script: &str) -> Result<(), String> {
    let mut world = World::default();
    for (i, line) in script.lines().enumerate() {
        let line = line.split(" # ").next().unwrap_or(line).trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        world.line(line).map_err(|e| format!("line {}: {line}\n  {e}", i + 1))?;
    }
    Ok(())
}

impl World {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["step"] => self.step(),
            ["wait", d] => {
                let now = self.clock.now() + duration(d)?;
                self.clock.set(now);
                self.step();
            }
            ["full-scan"] => self.view.cache.mark_all(),
            ["expect", rest @ ..] => return self.expect(rest),
            _ => return self.given(&words),
        }
        Ok(())
    }

    /// The time now.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Passes at the present moment until nothing is done any more.
    pub fn step(&mut self) {
        let ipam = Ipam::new(self.faulty.clone(), self.clock.clone());
        let now = self.clock.now();
        for _ in 0..100 {
            let Self { view, feed, .. } = self;
            feed.drain(&mut |update| view.apply(&update)).expect("memory does not begin anew");
            let done = block_on(pass(&mut self.view, &mut self.ledger, &ipam, &self.live, &self.policy, now));
            let Self { view, feed, .. } = self;
            feed.drain(&mut |update| view.apply(&update)).expect("memory does not begin anew");
            let quiet = done.events.is_empty();
            self.events.extend(done.events);
            self.failures.extend(done.failures);
            if done.not_ready.is_none() {
                self.due = done.next_due;
                self.page.publish(report(&self.view, &mut self.ledger));
            }
            if quiet {
                return;
            }
        }
        panic!("a hundred passes at one moment");
    }

    fn expect(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["leaks", want @ ..] => same(want, self.leaks(|_| true)),
            ["held", want @ ..] => same(want, self.leaks(|held| held)),
            ["blocks", want @ ..] => same(want, self.store.rows::<ipam::model::BlockKind>().iter().map(|r| r.key.to_string())),
            ["rows", want @ ..] => {
                same(want, self.store.rows::<ipam::model::AffinityKind>().iter().map(|r| format!("{}/{}", r.key.0.name(), r.key.1)))
            }
            ["due", "never"] => match self.due {
                None => Ok(()),
                Some(due) => Err(format!("due in {}", due - self.now())),
            },
            ["due", d] => {
                let want = self.now() + duration(d)?;
                if self.due == Some(want) { Ok(()) } else { Err(format!("due in {:?}", self.due.map(|t| t - self.now()))) }
            }
            ["refused", want @ ..] => {
                let failures: BTreeSet<String> = std::mem::take(&mut self.failures).into_iter().collect();
                let ok = failures.len() == want.len()
                    && want.iter().all(|ip| failures.iter().any(|f| f.contains(ip) && f.contains("last look")));
                if ok { Ok(()) } else { Err(format!("{failures:?}")) }
            }
            ["metric", name, value] => {
                let text = self.page.text();
                let line = format!("{name} {value}");
                if text.lines().any(|l| l == line) { Ok(()) } else { Err(similar(&text, name)) }
            }
            ["no", name] => {
                let text = self.page.text();
                match text.lines().find(|l| !l.starts_with('#') && l.contains(name)) {
                    None => Ok(()),
                    Some(line) => Err(line.into()),
                }
            }
            ["failed", n] => {
                let failures: BTreeSet<String> = std::mem::take(&mut self.failures).into_iter().collect();
                if failures.len().to_string() == *n { Ok(()) } else { Err(format!("{failures:?}")) }
            }
            ["lists", n] => {
                let lists: u64 =
                    self.store.requests().into_iter().filter(|((verb, _), _)| *verb == ipam::mem::Verb::List).map(|(_, n)| n).sum();
                if lists.to_string() == *n { Ok(()) } else { Err(format!("{lists}")) }
            }
            ["nothing-written"] => {
                if self.store.only_read() {
                    Ok(())
                } else {
                    Err(format!("{:?}", self.store.requests()))
                }
            }
            events => self.expect_events(&events.join(" ")),
        }
    }

    fn expect_events(&mut self, text: &str) -> Result<(), String> {
        let mut want = Vec::new();
        for part in text.split(';').map(str::trim).filter(|p| *p != "nothing") {
            let mut words = part.split_whitespace();
            let action = match words.next().unwrap_or_default() {
                "release" => "release-address",
                other => other,
            };
            want.extend(words.map(|w| format!("{action} {w}")));
        }
        let got = std::mem::take(&mut self.events).into_iter().map(|e| {
            let subject = e.ip.map(|ip| ip.to_string()).or(e.block.clone()).or(e.node.clone());
            format!("{} {}", e.action, subject.unwrap_or_default())
        });
        let want: Vec<&str> = want.iter().map(String::as_str).collect();
        same(&want, got)
    }

    fn leaks(&self, want: impl Fn(bool) -> bool) -> Vec<String> {
        let cache = &self.view.cache;
        let ip = |cidr, ordinal: u16| -> Option<IpAddr> { ipam_accounting::set::addr_at(cidr, ordinal.into()) };
        let leaks = self.ledger.leaks().filter(|(cidr, _, e)| cache.block_of(*cidr).is_some() && want(e.held.is_some()));
        leaks.filter_map(|(cidr, ordinal, _)| Some(ip(cidr, ordinal)?.to_string())).collect()
    }
}

fn duration(text: &str) -> Result<TimeDelta, String> {
    go_duration(text).ok_or_else(|| format!("{text} is no duration"))
}

fn same(want: &[&str], got: impl IntoIterator<Item = String>) -> Result<(), String> {
    let mut got: Vec<String> = got.into_iter().collect();
    let mut want: Vec<&str> = want.to_vec();
    got.sort();
    want.sort_unstable();
    if got == want { Ok(()) } else { Err(format!("got {}", if got.is_empty() { "nothing".into() } else { got.join(", ") })) }
}

fn similar(text: &str, name: &str) -> String {
    let family = name.split('{').next().unwrap_or(name);
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with(family)).collect();
    format!("the page has\n    {}", lines.join("\n    "))
}
