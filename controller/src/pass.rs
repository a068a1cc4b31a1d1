//! One pass, start to end: plan, act, remember.

use std::collections::BTreeMap;

use ipam::{Clock, Datastore, Ipam};
use ipam_accounting::inventory::UNKNOWN_NODE;
use ipam_accounting::schedule::Time;
use ipnet::IpNet;

use crate::execute::{Done, Execution, Pulse, Refusal, Result};
use crate::ledger::Ledger;
use crate::look::LastLook;
use crate::plan::brake::counts;
use crate::plan::{Action, Leaked, Mode, Now, Policy, plan};
use crate::timeline::{Event, Trail};
use crate::view::{NotReady, View};

/// Class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The store could not be asked.
    Unavailable,
    /// We have no right to do it.
    Forbidden,
    /// The store did not accept it.
    Refused,
    /// It may have been done.
    UnknownOutcome,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Unavailable, Self::Forbidden, Self::Refused, Self::UnknownOutcome];

    /// As metrics call it.
    pub fn word(self) -> &'static str {
        match self {
            Class::Unavailable => "unavailable",
            Class::Forbidden => "forbidden",
            Class::Refused => "refused",
            Class::UnknownOutcome => "unknown_outcome",
        }
    }

    /// The class of a failure, by what the store said.
    pub fn of(why: &str) -> Self {
        if why.contains("refused by the store: 403") {
            Self::Forbidden
        } else if why.contains("no certain answer") {
            Self::Unavailable
        } else {
            Self::Refused
        }
    }
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was to be done.
    pub action: &'static str,
    /// What kind of failure it is.
    pub class: Class,
    /// In words.
    pub text: String,
}

/// What a pass did.
#[derive(Debug, Default)]
pub struct PassReport {
    /// What was done, or shown in audit mode.
    pub events: Vec<Event>,
    /// What was left as it is, and why.
    pub refusals: Vec<(Refusal, String)>,
    /// What went wrong.
    pub failures: Vec<Failure>,
    /// When something is due next.
    pub next_due: Option<Time>,
    /// Nothing was decided, and why.
    pub not_ready: Option<NotReady>,
    /// Addresses whose release waits for the brake or the rate.
    pub waiting: u64,
    /// How long planning took, and acting if there was anything to do, in seconds.
    pub took: (f64, Option<f64>),
}

/// What a pass works on.
pub struct Pass<'a, S, C, L, P> {
    /// The cache.
    pub view: &'a mut View,
    /// The memory.
    pub ledger: &'a mut Ledger,
    /// The library.
    pub ipam: &'a Ipam<S, C>,
    /// The last look.
    pub look: &'a L,
    /// Who watches.
    pub pulse: &'a P,
}

impl<S: Datastore, C: Clock, L: LastLook, P: Pulse> Pass<'_, S, C, L, P> {
    /// Runs it.
    pub async fn run(self, policy: &Policy, now: Now) -> PassReport {
        let Pass { view, ledger, ipam, look, pulse } = self;
        let config = match view.gate() {
            Ok(config) => config,
            Err(why) => return PassReport { not_ready: Some(why), ..PassReport::default() },
        };
        let started = pulse.seconds();
        let dirty = view.take_dirty();
        let mut plan = plan(view, ledger, dirty, now, policy, &config);
        let planned = pulse.seconds();
        let mut report = PassReport { waiting: plan.waiting, took: (planned - started, None), ..PassReport::default() };
        if policy.writes() {
            if !plan.actions.is_empty() {
                ledger.handles.expect(plan.soon.iter().map(Leaked::release).collect());
                let execution = Execution { view, ipam, look, config: &config, pulse };
                let results = execution.run(&plan.actions, &mut ledger.handles).await;
                absorb(results, view, ledger, now, &mut report);
                plan.next_due = ledger.timers.next();
                report.took.1 = Some(pulse.seconds() - planned);
            }
        } else if policy.mode == Mode::Audit && policy.active && !policy.paused {
            show(&plan.actions, view, ledger, now, &mut report);
        }
        report.next_due = plan.next_due;
        report
    }
}

/// What the log says of a release.
fn trail(view: &View, ledger: &Ledger, now: Now, leaked: &Leaked, evidence: String) -> Trail {
    let pool = view.cache.pool_text(leaked.block.net());
    let since = ledger.leak(leaked.block.net(), leaked.at.ordinal).map(|e| now.wall(e.since));
    Trail { seq: leaked.seq, pool: pool.into(), since, evidence, leak: leaked.leak }
}

/// Audit mode: each decision once (D-49), and nothing written.
fn show(actions: &[Action], view: &View, ledger: &mut Ledger, now: Now, report: &mut PassReport) {
    for action in actions {
        match action {
            Action::Release(members) => {
                for m in members {
                    if ledger.show(("release-address", m.ip.to_string(), m.seq)) {
                        let event = Event::of(now.wall, &Action::Release(vec![m.clone()]), Vec::new());
                        report.events.push(event.with(trail(view, ledger, now, m, "as the feeds told".into())));
                    }
                }
            }
            Action::CollectCold(block) => {
                let seq = view.cache.block_of(block.net()).map_or(0, |(_, b)| b.seq);
                if ledger.show(("collect-cold", block.to_string(), seq)) {
                    report.events.push(Event::of(now.wall, action, Vec::new()));
                }
            }
            Action::ReleaseBlock { node, block, seq, .. } => {
                if ledger.show(("release-block", format!("{node} {block}"), seq.unwrap_or(0))) {
                    report.events.push(Event::of(now.wall, action, Vec::new()));
                }
            }
            Action::ReleaseHost(_) => {}
        }
    }
}

/// Remembers what became of the actions. The view is not edited: the feed will tell.
fn absorb(results: Vec<Result>, view: &View, ledger: &mut Ledger, now: Now, report: &mut PassReport) {
    let mut blocks: BTreeMap<IpNet, bool> = BTreeMap::new();
    for Result { action, done, evidence } in results {
        let block = match &action {
            Action::Release(members) => Some(members[0].block.net()),
            Action::CollectCold(block) | Action::ReleaseBlock { block, .. } => Some(block.net()),
            Action::ReleaseHost(_) => None,
        };
        if let Some(block) = block {
            *blocks.entry(block).or_insert(true) &= matches!(done, Done::Done(_) | Done::Gone);
        }
        let mut event = Event::of(now.wall, &action, Vec::new());
        if let Action::Release(members) = &action {
            event = event.with(trail(view, ledger, now, &members[0], evidence));
        }
        let failed = |class, why: String| Failure { action: event.action, class, text: format!("{}: {why}", event.line(now.wall)) };
        match done {
            Done::Done(ips) => {
                count(&action, ips.len(), view, ledger, now);
                report.events.push(Event { ips: if event.ip.is_some() { Vec::new() } else { ips }, ..event });
            }
            Done::Gone => {}
            Done::Refused(why) => report.refusals.push((why, format!("{}: {}", event.line(now.wall), why.why()))),
            Done::Failed(why) => report.failures.push(failed(Class::of(&why), why)),
            Done::Unknown(why) => report.failures.push(failed(Class::UnknownOutcome, why)),
        }
    }
    for (block, worked) in blocks {
        if let Some((_, b)) = view.cache.block_of(block) {
            let revision = b.revision.clone();
            ledger.act(block, &revision, now.steady, worked);
        }
    }
}

/// Counts what was done.
fn count(action: &Action, ips: usize, view: &View, ledger: &mut Ledger, now: Now) {
    let pool = |block: IpNet| view.cache.pool_text(block).to_owned();
    match action {
        Action::Release(members) => {
            let m = &members[0];
            if view.cache.slot(m.at).is_some_and(|(_, slot)| counts(view, slot)) {
                ledger.brake.released(now.steady);
            }
            let pool = pool(m.block.net());
            let node = m.node.as_deref().unwrap_or(UNKNOWN_NODE);
            *ledger.reclaimed.entry((pool.clone(), node.into())).or_default() += 1;
            *ledger.done.by_reason.entry((pool, m.leak.word())).or_default() += 1;
        }
        Action::CollectCold(block) => *ledger.done.collected.entry(pool(block.net())).or_default() += ips as u64,
        Action::ReleaseBlock { block, .. } => *ledger.done.blocks_freed.entry(pool(block.net())).or_default() += 1,
        Action::ReleaseHost(_) => ledger.done.nodes_cleaned += 1,
    }
}
