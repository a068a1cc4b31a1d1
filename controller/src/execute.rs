//! Actions → outcomes. May refuse, never chooses.
//!
//! Before a release the last look ([`look`](crate::look)) is asked; then the compare-and-swap of the library has the last word.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::affinity::{Conditions, GaveBack, GiveBackError};
use ipam::ids::{BlockCidr, Owner};
use ipam::model::Config;
use ipam::release::chain;
use ipam::{Clock, Datastore, Ipam, ModifyError, Outcome, Release};

use crate::look::{Fresh, LastLook};
use crate::plan::{Action, Leaked};
use crate::view::View;

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was done; for a collection with the addresses that are free now.
    Done(Vec<IpAddr>),
    /// There was nothing to do any more.
    Gone,
    /// It has changed since: the feed will tell.
    Stale,
    /// The last look said no.
    Refused(&'static str),
    /// It could not be done.
    Failed(String),
    /// It may have been done.
    Unknown(String),
}

impl Done {
    /// Whether the store was changed, for certain.
    pub fn worked(&self) -> bool {
        matches!(self, Done::Done(_))
    }
}

/// An action, or one address of one, with what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Result {
    /// What was to be done; a release names one address.
    pub action: Action,
    /// What became of it.
    pub done: Done,
}

/// Does what a plan says, in its order; all releases together, so that each block is written once.
pub async fn execute<S: Datastore, C: Clock>(
    actions: &[Action],
    view: &View,
    ipam: &Ipam<S, C>,
    look: &impl LastLook,
    config: &Config,
) -> Vec<Result> {
    let handles: Vec<&Vec<Leaked>> =
        actions.iter().filter_map(|a| if let Action::Release(members) = a { Some(members) } else { None }).collect();
    let mut results = if handles.is_empty() { Vec::new() } else { release(&handles, view, ipam, look).await };
    for action in actions {
        let done = match action {
            Action::Release(_) => continue,
            Action::CollectCold(block) => collect(ipam, *block, config).await,
            Action::ReleaseBlock { node, block, seq, .. } => give_back(ipam, node, *block, *seq).await,
            Action::ReleaseHost(node) => release_host(ipam, node).await,
        };
        results.push(Result { action: action.clone(), done });
    }
    results
}

async fn release<S: Datastore, C: Clock>(handles: &[&Vec<Leaked>], view: &View, ipam: &Ipam<S, C>, look: &impl LastLook) -> Vec<Result> {
    let fresh = Fresh::gather(&view.cache, look, handles.iter().flat_map(|h| h.iter())).await;
    let mut results = Vec::new();
    let mut confirmed: Vec<&Leaked> = Vec::new();
    for members in handles {
        if members.iter().all(|m| fresh.confirms(m)) {
            confirmed.extend(members.iter());
        } else {
            let refused = |m: &Leaked| Result {
                action: Action::Release(vec![m.clone()]),
                done: Done::Refused("the last look found it, or another address of its handle, in use"),
            };
            results.extend(members.iter().map(refused));
        }
    }
    let exact: Vec<Release> = confirmed.iter().map(|m| Release::exact(m.ip, m.handle.as_deref(), m.seq, Some(m.block))).collect();
    let outcomes = if exact.is_empty() { Ok(BTreeMap::new()) } else { ipam.release_ips(&exact).await.map(|r| r.outcomes) };
    for m in confirmed {
        let done = match &outcomes {
            Err(e) => Done::Failed(chain(e)),
            Ok(outcomes) => match outcomes.get(&m.ip) {
                Some(Outcome::Released) => Done::Done(vec![m.ip]),
                Some(Outcome::AlreadyFree) | None => Done::Gone,
                Some(Outcome::Stale(_)) => Done::Stale,
                Some(Outcome::Failed(why)) => Done::Failed(why.clone()),
                Some(Outcome::Unknown(why)) => Done::Unknown(why.clone()),
            },
        };
        results.push(Result { action: Action::Release(vec![m.clone()]), done });
    }
    results
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
        Err(GiveBackError::NotEmpty | GiveBackError::Stale) => Done::Stale,
        Err(e) if e.unknown() => Done::Unknown(chain(&e)),
        Err(e) => Done::Failed(chain(&e)),
    }
}

async fn release_host<S: Datastore, C: Clock>(ipam: &Ipam<S, C>, node: &str) -> Done {
    match ipam.release_host(node, true).await {
        Ok(report) if report.complete() => Done::Done(Vec::new()),
        Ok(report) => match report.blocks.into_iter().find_map(|(cidr, done)| Some((cidr, done.err()?))) {
            Some((_, GiveBackError::NotEmpty | GiveBackError::Stale)) | None => Done::Stale,
            Some((cidr, e)) => Done::Failed(format!("{cidr}: {}", chain(&e))),
        },
        Err(e) => Done::Failed(chain(&e)),
    }
}
