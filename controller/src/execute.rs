//! Actions → outcomes. May refuse, never chooses.
//!
//! Before a release the last look ([`look`](crate::look)) is asked; then the compare-and-swap of the library has the last word.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::affinity::{Conditions, GaveBack, GiveBackError};
use ipam::ids::{BlockCidr, Owner};
use ipam::model::Config;
use ipam::release::{ReleaseError, chain};
use ipam::{Clock, Datastore, Ipam, KnownHandles, ModifyError, Outcome, Release};

use crate::look::{Fresh, LastLook};
use crate::plan::{Action, Leaked};
use crate::view::View;

/// How the executor is watched and stopped.
pub trait Pulse: Sync {
    /// It is alive.
    fn beat(&self) {}
    /// By a clock that never jumps, for how long something takes.
    fn seconds(&self) -> f64 {
        0.0
    }
    /// Whether another action may begin: nobody wants us to stop, and we lead.
    fn go_on(&self) -> bool {
        true
    }
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Pulse for Unwatched {}

/// Why the last look, or the store, left something as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It, or another address of its handle, is in use.
    InUse,
    /// Of it, or of another address of its handle, it cannot be told.
    Unknown,
    /// It is another allocation now.
    Stale,
    /// Its row has changed.
    Conflict,
    /// Somebody has just said that it must stay.
    OptedOut,
    /// We do not lead any more, or are about to stop.
    NotLeader,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::InUse, Self::Unknown, Self::Stale, Self::Conflict, Self::OptedOut, Self::NotLeader];

    /// As metrics call it.
    pub fn word(self) -> &'static str {
        match self {
            Refusal::InUse => "in_use",
            Refusal::Unknown => "unknown",
            Refusal::Stale => "stale",
            Refusal::Conflict => "conflict",
            Refusal::OptedOut => "opted_out",
            Refusal::NotLeader => "not_leader",
        }
    }

    /// Whether somebody may want to know: the others only say that something has changed, which the feed tells too.
    pub fn by_the_last_look(self) -> bool {
        matches!(self, Refusal::InUse | Refusal::Unknown | Refusal::OptedOut)
    }

    /// In words.
    pub fn why(self) -> &'static str {
        match self {
            Refusal::InUse => "the last look found it, or another address of its handle, in use",
            Refusal::Unknown => "the last look could not tell whether it, or another address of its handle, is in use",
            Refusal::Stale => "it is another allocation now",
            Refusal::Conflict => "its row has changed",
            Refusal::OptedOut => "the last look found that its node must keep it",
            Refusal::NotLeader => "this one does not lead any more, or is about to stop",
        }
    }
}

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was done; for a collection with the addresses that are free now.
    Done(Vec<IpAddr>),
    /// There was nothing to do any more.
    Gone,
    /// It was left as it is; what has changed the feed will tell.
    Refused(Refusal),
    /// It could not be done.
    Failed(String),
    /// It may have been done.
    Unknown(String),
}

/// An action, or one address of one, with what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Result {
    /// What was to be done; a release names one address.
    pub action: Action,
    /// What became of it.
    pub done: Done,
    /// What the last look saw.
    pub evidence: String,
}

/// So many addresses are looked at and released together: enough that handles are listed and not asked for one by one, few enough that
/// somebody else who leads by then is noticed.
const TOGETHER: usize = 2048;

/// What actions are done with.
pub struct Execution<'a, S, C, L, P> {
    /// The cache.
    pub view: &'a View,
    /// The library.
    pub ipam: &'a Ipam<S, C>,
    /// The last look.
    pub look: &'a L,
    /// The configuration of the cluster.
    pub config: &'a Config,
    /// Who watches.
    pub pulse: &'a P,
}

impl<S: Datastore, C: Clock, L: LastLook, P: Pulse> Execution<'_, S, C, L, P> {
    /// Does what a plan says, in its order; releases many together, so that each block is written once.
    pub async fn run(&self, actions: &[Action], known: &mut KnownHandles) -> Vec<Result> {
        let handles: Vec<&Vec<Leaked>> =
            actions.iter().filter_map(|a| if let Action::Release(members) = a { Some(members) } else { None }).collect();
        let mut results = Vec::new();
        let mut rest = &handles[..];
        while !rest.is_empty() {
            let (mut some, mut addresses) = (0, 0);
            while some < rest.len() && addresses < TOGETHER {
                addresses += rest[some].len();
                some += 1;
            }
            let (chunk, later) = rest.split_at(some);
            rest = later;
            self.pulse.beat();
            if self.pulse.go_on() {
                results.extend(self.release(chunk, known).await);
            } else {
                results.extend(chunk.iter().flat_map(|h| h.iter()).map(|m| one(m, Done::Refused(Refusal::NotLeader), String::new())));
            }
        }
        for action in actions {
            self.pulse.beat();
            let done = match action {
                Action::Release(_) => continue,
                _ if !self.pulse.go_on() => Done::Refused(Refusal::NotLeader),
                Action::CollectCold(block) => collect(self.ipam, *block, self.config).await,
                Action::ReleaseBlock { node, block, seq, .. } => give_back(self.ipam, node, *block, *seq).await,
                Action::ReleaseHost(node) => release_host(self.ipam, node).await,
            };
            results.push(Result { action: action.clone(), done, evidence: String::new() });
        }
        results
    }

    async fn release(&self, handles: &[&Vec<Leaked>], known: &mut KnownHandles) -> Vec<Result> {
        let fresh = Fresh::gather(&self.view.cache, self.look, handles.iter().flat_map(|h| h.iter())).await;
        let mut results = Vec::new();
        let mut confirmed: Vec<&Leaked> = Vec::new();
        for members in handles {
            match members.iter().find_map(|m| fresh.refuses(m)) {
                None => confirmed.extend(members.iter()),
                Some(why) => results.extend(members.iter().map(|m| one(m, Done::Refused(why), fresh.evidence(m)))),
            }
        }
        let exact: Vec<Release> = confirmed.iter().map(|m| m.release()).collect();
        let outcomes =
            if exact.is_empty() { Ok(BTreeMap::new()) } else { self.ipam.release_ips_knowing(&exact, known).await.map(|r| r.outcomes) };
        results.extend(confirmed.into_iter().map(|m| one(m, done(&outcomes, m.ip), fresh.evidence(m))));
        results
    }
}

/// What became of one address.
fn done(outcomes: &std::result::Result<BTreeMap<IpAddr, Outcome>, ReleaseError>, ip: IpAddr) -> Done {
    match outcomes {
        Err(e) => Done::Failed(chain(e)),
        Ok(outcomes) => match outcomes.get(&ip) {
            Some(Outcome::Released) => Done::Done(vec![ip]),
            Some(Outcome::AlreadyFree) | None => Done::Gone,
            Some(Outcome::Stale(_)) => Done::Refused(Refusal::Stale),
            Some(Outcome::Failed(why)) => Done::Failed(why.clone()),
            Some(Outcome::Unknown(why)) => Done::Unknown(why.clone()),
        },
    }
}

fn one(leaked: &Leaked, done: Done, evidence: String) -> Result {
    Result { action: Action::Release(vec![leaked.clone()]), done, evidence }
}

async fn collect<S: Datastore, C: Clock>(ipam: &Ipam<S, C>, block: BlockCidr, config: &Config) -> Done {
    match ipam.collect_cold(config, block).await {
        Ok(collected) if collected.ips.is_empty() && !collected.block_deleted => Done::Gone,
        Ok(collected) => Done::Done(collected.ips),
        Err(ModifyError::Unknown(e)) => Done::Unknown(chain(&e)),
        Err(e) => Done::Failed(chain(&e)),
    }
}

async fn give_back<S: Datastore, C: Clock>(ipam: &Ipam<S, C>, node: &str, block: BlockCidr, seq: Option<i64>) -> Done {
    let conditions = Conditions { must_be_empty: true, seq };
    match ipam.release_block_affinity(&Owner::Host(node.into()), block, conditions).await {
        Ok(GaveBack::Block | GaveBack::Ownership | GaveBack::Row) => Done::Done(Vec::new()),
        Ok(GaveBack::Nothing | GaveBack::NotOurs) => Done::Gone,
        Err(GiveBackError::NotEmpty | GiveBackError::Stale) => Done::Refused(Refusal::Conflict),
        Err(e) if e.unknown() => Done::Unknown(chain(&e)),
        Err(e) => Done::Failed(chain(&e)),
    }
}

async fn release_host<S: Datastore, C: Clock>(ipam: &Ipam<S, C>, node: &str) -> Done {
    match ipam.release_host(node, true).await {
        Ok(report) if report.complete() => Done::Done(Vec::new()),
        Ok(report) => match report.blocks.into_iter().find_map(|(cidr, done)| Some((cidr, done.err()?))) {
            Some((_, GiveBackError::NotEmpty | GiveBackError::Stale)) | None => Done::Refused(Refusal::Conflict),
            Some((cidr, e)) => Done::Failed(format!("{cidr}: {}", chain(&e))),
        },
        Err(e) => Done::Failed(chain(&e)),
    }
}
