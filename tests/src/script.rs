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
//! opt-out pool p                           as its annotation, `opt-out node n no`; `opt-out config pool p` as the configuration
//! paused yes   active no   rate 2 4        nothing is written; another replica acts; 2 a second, 4 at once; `per-pass 100`
//! allow 3 10m   departed 0.5 10 10m        so many may pass the brake within so long
//! wall +1h   skew 31s   guid g             the wall clock jumps; the server's is ahead; the only cluster to work on
//! me ns/p                                  our own pod
//! repair repair                            `off`, `report`
//! hold handle h                            as if a bad object held it; `hold node n`, `hold block c`
//! live pod ns/p on a ips 10.0.0.1          what the last look will find
//! fail block 10.0.0.0/30 conflict          every write of it fails; also `row a 10.0.0.0/30`; `unavailable`, `refused`; `no`: no more
//! race block 10.0.0.0/30 a .0=…            somebody else writes this before the next time we read the block
//! meanwhile LINE                           on a server: happens between decision and release
//! without-marker                           on a server: no pod but those of the script
//! step   wait 15m                          passes until nothing is done; the clock moves first
//! expect release 10.0.0.0 10.0.0.1         exactly these events since the last `expect`, any order; several kinds: joined by `;`
//! expect nothing
//! expect leaks 10.0.0.0                    exactly these candidates; `held 10.0.0.0`; `blocks 10.0.0.0/30`; `due 15m` from now
//! expect refused 10.0.0.0                  the last look said no; `failed 1`: so many different failures
//! expect lists 0                           so many list requests in all; `nothing-written`
//! expect gate the datastore is locked      why nothing is decided; `open`
//! audit                                    holds rows against the blocks, and repairs what may be; `expect findings KIND …`, `expect repaired KIND OBJECT`
//! expect explain 10.0.0.0 verdict leaked   a field of the explanation
//! expect metric NAME{labels} 4             a sample of the page; `no NAME`: nothing on the page contains it
//! ```

mod given;
pub mod on_server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use chrono::TimeDelta;
use futures::executor::block_on;
use ipam::audit::Snapshot;
use ipam::{Clock, Ipam, MemStore};
use ipam_accounting::facts::{Lookup, PodFacts};
use ipam_accounting::inventory::Trusts;
use ipam_accounting::schedule::Time;
use ipam_datastore::Update;
use ipam_datastore::text::go_duration;
use ipam_metrics::Page;
use ipam_operator::clocks::SimClock;
use ipam_operator::config::IndexRepair;
use ipam_operator::execute::Unwatched;
use ipam_operator::explain::explain;
use ipam_operator::feed::{MemFeed, Source as _};
use ipam_operator::gauges::Gauges;
use ipam_operator::ledger::Ledger;
use ipam_operator::look::LastLook;
use ipam_operator::pass::{Pass, PassReport};
use ipam_operator::plan::{Now, Policy};
use ipam_operator::report::report;
use ipam_operator::scene::Scene;
use ipam_operator::timeline::Event;
use ipam_operator::told::Tally;
use ipam_operator::upkeep::Upkeep;
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

/// The wall clock of a script.
struct Wall(Arc<SimClock>, TimeDelta);

impl Clock for Wall {
    fn now(&self) -> Time {
        self.0.now() + self.1
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
    not_ready: Option<String>,
    repaired: Vec<String>,
    due: Option<Time>,
    page: Page,
    /// How far the wall clock is ahead of the steady one.
    wall_ahead: TimeDelta,
    upkeep: Upkeep,
    repair: IndexRepair,
    next_row: u64,
    /// What is to be told to a server instead of the view.
    outbox: Option<Vec<Update>>,
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
            policy: Policy::default(),
            wall_ahead: TimeDelta::zero(),
            upkeep: Upkeep::default(),
            repair: IndexRepair::Report,
            trusts,
            live: Live::default(),
            events: Vec::new(),
            failures: Vec::new(),
            not_ready: None,
            repaired: Vec::new(),
            due: None,
            page: Page::default(),
            next_row: 0,
            outbox: None,
        }
    }
}

/// Runs a script.
///
/// # Errors
/// The first line that does not hold, with its number.
pub fn run(script: &str) -> Result<(), String> {
    World::default().say(script)
}

/// The lines of a script that say something, by number.
fn lines(script: &str) -> impl Iterator<Item = (usize, &str)> {
    let said = script.lines().map(|line| line.split(" # ").next().unwrap_or(line).trim());
    (1..).zip(said).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
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
            ["audit"] => self.audit(),
            ["full-scan"] => self.view.cache.mark_all(),
            ["expect", rest @ ..] => return self.expect(rest),
            // Before the next release; in memory the last look finds what the view has.
            ["meanwhile", ..] => return Err("only on a server".into()),
            _ => return self.given(&words),
        }
        Ok(())
    }

    /// Does what these lines say.
    ///
    /// # Errors
    /// The first line that does not hold, with its number.
    pub fn say(&mut self, script: &str) -> Result<(), String> {
        lines(script).try_for_each(|(number, line)| self.line(line).map_err(|e| format!("line {number}: {line}\n  {e}")))
    }

    /// Forgets what happened so far.
    pub fn forget_events(&mut self) {
        (self.events, self.failures) = (Vec::new(), Vec::new());
    }

    /// The time now.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The wall clock.
    fn wall(&self) -> Wall {
        Wall(self.clock.clone(), self.wall_ahead)
    }

    /// The time now by both clocks.
    fn both(&self) -> Now {
        Now { steady: self.clock.now(), wall: self.clock.now() + self.wall_ahead }
    }

    /// An audit, and the repairs that are due.
    fn audit(&mut self) {
        let ipam = Ipam::new(self.faulty.clone(), self.wall());
        let now = self.both();
        let Self { view, feed, .. } = self;
        feed.drain(&mut |update| view.apply(&update)).expect("memory does not begin anew");
        let snapshot = block_on(Snapshot::read(&self.store, Vec::new(), false)).expect("memory can be read");
        self.upkeep.observe(&snapshot, &self.view, now);
        let due = self.upkeep.due_repairs(&self.view, self.repair, &self.policy, now.steady);
        let repairs = block_on(self.upkeep.repair(due, &ipam, &Unwatched, now.steady));
        self.repaired.extend(repairs.done.into_iter().map(|f| format!("{} {}", f.kind.name(), f.object)));
    }

    /// Passes at the present moment until nothing is done any more.
    pub fn step(&mut self) {
        let ipam = Ipam::new(self.faulty.clone(), self.wall());
        let now = self.both();
        for _ in 0..100 {
            let Self { view, feed, .. } = self;
            feed.drain(&mut |update| view.apply(&update)).expect("memory does not begin anew");
            let pass = Pass { view: &mut self.view, ledger: &mut self.ledger, ipam: &ipam, look: &self.live, pulse: &Unwatched };
            let done = block_on(pass.run(&self.policy, now));
            let Self { view, feed, .. } = self;
            feed.drain(&mut |update| view.apply(&update)).expect("memory does not begin anew");
            if self.passed(done, now) {
                return;
            }
        }
        panic!("a hundred passes at one moment");
    }

    /// Keeps what a pass did; whether it did nothing.
    fn passed(&mut self, done: PassReport, now: Now) -> bool {
        let quiet = done.events.is_empty();
        self.events.extend(done.events);
        self.failures.extend(done.failures.into_iter().map(|f| f.text));
        self.failures.extend(done.refusals.into_iter().filter(|(r, _)| r.by_the_last_look()).map(|(_, why)| why));
        self.not_ready = done.not_ready.as_ref().map(ToString::to_string);
        if done.not_ready.is_none() {
            self.due = done.next_due;
            self.page.publish(report(&self.view, &mut self.ledger));
            let gauges = Gauges::new(&self.view, &self.ledger, &self.policy, now);
            let mut samples = gauges.samples(&self.view.gate().unwrap_or_default());
            let tally = Tally::of_an_active_one();
            samples.extend(tally.samples(&self.ledger.done, self.policy.active));
            self.page.publish_further(samples);
        }
        quiet
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
            ["gate", why @ ..] => {
                let (want, got) = (why.join(" "), self.not_ready.clone().unwrap_or_else(|| "open".into()));
                if got.contains(&want) { Ok(()) } else { Err(got) }
            }
            ["findings", want @ ..] => same(want, self.upkeep.findings().map(|f| f.kind.name().to_owned())),
            ["repaired", want @ ..] => {
                let got = std::mem::take(&mut self.repaired);
                same(&[&want.join(" ")], [got.join(" , ")])
            }
            ["explain", ip, key, want @ ..] => {
                let ip = ip.parse().map_err(|_| format!("{ip} is no address"))?;
                let (view, ledger, policy, upkeep) = (&self.view, &self.ledger, &self.policy, &self.upkeep);
                let all = explain(&Scene { view, ledger, policy, now: self.both(), upkeep, recent: &VecDeque::new() }, ip);
                let got = &all[*key];
                let text = got.as_str().map_or_else(|| got.to_string(), str::to_owned);
                if text == want.join(" ") { Ok(()) } else { Err(format!("{all:#}")) }
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
