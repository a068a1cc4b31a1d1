//! Actions → outcomes. May refuse, never chooses.
//!
//! Before a release the evidence is gathered once more, live, and the same `judge` asked again (D-40); then the
//! compare-and-swap of the library has the last word.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;

use ipam::affinity::{Conditions, GaveBack, GiveBackError};
use ipam::ids::{BlockCidr, Owner};
use ipam::model::Config;
use ipam::release::chain;
use ipam::{Clock, Datastore, Ipam, ModifyError, Outcome, Release};
use ipam_accounting::facts::{Class, Lookup, NodeId, PodFacts, PodId, VmId, VmiFacts};
use ipam_accounting::{Evidence, Inventory, judge};

use crate::plan::{Action, Leaked};
use crate::view::View;

/// Live evidence for the last look. `None`: nothing is fresher than the view.
pub trait LastLook: Send + Sync {
    /// The pod of this namespace and name.
    fn pod(&self, namespace: &str, name: &str) -> impl Future<Output = Option<Lookup<PodFacts<String>>>> + Send;
    /// The node of this name.
    fn node(&self, name: &str) -> impl Future<Output = Option<Lookup<()>>> + Send;
    /// The VM of this namespace and name.
    fn vm(&self, namespace: &str, name: &str) -> impl Future<Output = Option<Lookup<()>>> + Send;
    /// The VM instance of this namespace and name.
    fn vmi(&self, namespace: &str, name: &str) -> impl Future<Output = Option<Lookup<VmiFacts>>> + Send;
}

/// The last look of a dump: it cannot have changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unchanging;

impl LastLook for Unchanging {
    async fn pod(&self, _: &str, _: &str) -> Option<Lookup<PodFacts<String>>> {
        None
    }
    async fn node(&self, _: &str) -> Option<Lookup<()>> {
        None
    }
    async fn vm(&self, _: &str, _: &str) -> Option<Lookup<()>> {
        None
    }
    async fn vmi(&self, _: &str, _: &str) -> Option<Lookup<VmiFacts>> {
        None
    }
}

/// The view with live answers over it.
struct Fresh<'a> {
    cache: &'a Inventory,
    pods: BTreeMap<PodId, Lookup<PodFacts>>,
    nodes: BTreeMap<NodeId, Lookup<()>>,
    vms: BTreeMap<VmId, Lookup<()>>,
    vmis: BTreeMap<VmId, Lookup<VmiFacts>>,
}

/// A node that the view has never heard of: certainly not the one of an allocation.
const UNHEARD: NodeId = NodeId(u32::MAX);

impl<'a> Fresh<'a> {
    /// Asks for everything that the leaks of a pass hang on, each once.
    async fn gather(cache: &'a Inventory, look: &impl LastLook, leaks: impl Iterator<Item = &Leaked>) -> Self {
        let mut fresh = Self { cache, pods: BTreeMap::new(), nodes: BTreeMap::new(), vms: BTreeMap::new(), vmis: BTreeMap::new() };
        for leak in leaks {
            let Some((_, slot)) = cache.slot(leak.at) else { continue };
            if let Some(node) = slot.node().filter(|n| !fresh.nodes.contains_key(n))
                && let Some(answer) = look.node(cache.node_text(node)).await
            {
                fresh.nodes.insert(node, answer);
            }
            match slot.class() {
                Class::Pod(pod) if !fresh.pods.contains_key(&pod) => fresh.ask_pod(look, pod).await,
                Class::Vm(Some(vm)) if !fresh.vms.contains_key(&vm) => fresh.ask_vm(look, vm).await,
                _ => {}
            }
        }
        fresh
    }

    async fn ask_pod(&mut self, look: &impl LastLook, pod: PodId) {
        let Some((namespace, name)) = self.cache.pod_text(pod).split_once('/') else { return };
        if let Some(answer) = look.pod(namespace, name).await {
            let facts = answer.map(|f| f.map_node(|n| self.cache.node_id(&n).unwrap_or(UNHEARD)));
            self.pods.insert(pod, facts);
        }
    }

    async fn ask_vm(&mut self, look: &impl LastLook, vm: VmId) {
        let Some((namespace, name)) = self.cache.vm_text(vm).split_once('/') else { return };
        if let Some(answer) = look.vm(namespace, name).await {
            self.vms.insert(vm, answer);
        }
        if let Some(answer) = look.vmi(namespace, name).await {
            self.vmis.insert(vm, answer);
        }
    }

    /// Whether the leak is one still.
    fn confirms(&self, leak: &Leaked) -> bool {
        self.cache.slot(leak.at).is_some_and(|(block, slot)| {
            slot.seq == leak.seq && block.ip(slot) == leak.ip && judge(&self.cache.allocation(block, slot), self).leak().is_some()
        })
    }
}

impl Evidence for Fresh<'_> {
    fn node(&self, node: NodeId) -> Lookup<()> {
        self.nodes.get(&node).copied().unwrap_or_else(|| self.cache.node(node))
    }

    fn pod(&self, pod: PodId) -> Lookup<&PodFacts> {
        match self.pods.get(&pod) {
            Some(Lookup::Seen(facts)) => Lookup::Seen(facts),
            Some(Lookup::Absent) => Lookup::Absent,
            Some(Lookup::Unsure) => Lookup::Unsure,
            None => self.cache.pod(pod),
        }
    }

    fn vm(&self, vm: VmId) -> Lookup<()> {
        self.vms.get(&vm).copied().unwrap_or_else(|| self.cache.vm(vm))
    }

    fn vmi(&self, vm: VmId) -> Lookup<VmiFacts> {
        self.vmis.get(&vm).copied().unwrap_or_else(|| self.cache.vmi(vm))
    }

    fn reporter(&self, ip: IpAddr, owner: Option<PodId>) -> Option<PodId> {
        let live = self.pods.iter().find(|(_, p)| matches!(p, Lookup::Seen(f) if f.vouches() && f.ips.contains(&ip)));
        live.map(|(pod, _)| *pod).or_else(|| self.cache.reporter(ip, owner))
    }
}

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
