//! The last look before a release (D-40): the evidence is gathered once more, live, and the same `judge` asked again.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;

use futures::StreamExt as _;
use ipam_accounting::facts::{Class, Lookup, NodeId, PodFacts, PodId, VmId, VmiFacts};
use ipam_accounting::{Evidence, Inventory, judge};
use ipam_datastore::live::{Connection, look};
use ipam_datastore::update::Watched;

use crate::plan::Leaked;

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

/// The last look at a live cluster.
#[derive(Clone, Debug)]
pub struct Live(pub Connection);

impl LastLook for Live {
    async fn pod(&self, namespace: &str, name: &str) -> Option<Lookup<PodFacts<String>>> {
        Some(look(&self.0, Watched::Pod, namespace, name).await.map(|o| o.pod()))
    }
    async fn node(&self, name: &str) -> Option<Lookup<()>> {
        Some(look(&self.0, Watched::Node, "", name).await.map(|_| ()))
    }
    async fn vm(&self, namespace: &str, name: &str) -> Option<Lookup<()>> {
        Some(look(&self.0, Watched::Vm, namespace, name).await.map(|_| ()))
    }
    async fn vmi(&self, namespace: &str, name: &str) -> Option<Lookup<VmiFacts>> {
        Some(look(&self.0, Watched::Vmi, namespace, name).await.map(|o| o.vmi()))
    }
}

/// How many questions of a last look are open at once.
const AT_ONCE: usize = 16;

/// The view with live answers over it.
pub(crate) struct Fresh<'a> {
    cache: &'a Inventory,
    pods: BTreeMap<PodId, Lookup<PodFacts>>,
    nodes: BTreeMap<NodeId, Lookup<()>>,
    vms: BTreeMap<VmId, Lookup<()>>,
    vmis: BTreeMap<VmId, Lookup<VmiFacts>>,
}

/// A node that the view has never heard of: certainly not the one of an allocation.
const UNHEARD: NodeId = NodeId(u32::MAX);

impl<'a> Fresh<'a> {
    /// Asks for everything that the leaks of a pass hang on, each once, a few at a time.
    pub(crate) async fn gather(cache: &'a Inventory, look: &impl LastLook, leaks: impl Iterator<Item = &Leaked>) -> Self {
        let (mut pods, mut nodes, mut vms) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for leak in leaks {
            let Some((_, slot)) = cache.slot(leak.at) else { continue };
            nodes.extend(slot.node());
            match slot.class() {
                Class::Pod(pod) => drop(pods.insert(pod)),
                Class::Vm(Some(vm)) => drop(vms.insert(vm)),
                _ => {}
            }
        }
        let both = |key: &'a str| key.split_once('/');
        let pods = asked(pods, |pod| async move {
            let (namespace, name) = both(cache.pod_text(pod))?;
            let answer = look.pod(namespace, name).await?;
            Some(answer.map(|f| f.map_node(|n| cache.node_id(&n).unwrap_or(UNHEARD))))
        });
        let nodes = asked(nodes, |node| look.node(cache.node_text(node)));
        let vmis = asked(vms.clone(), |vm| async move {
            let (namespace, name) = both(cache.vm_text(vm))?;
            look.vmi(namespace, name).await
        });
        let vms = asked(vms, |vm| async move {
            let (namespace, name) = both(cache.vm_text(vm))?;
            look.vm(namespace, name).await
        });
        Self { cache, pods: pods.await, nodes: nodes.await, vms: vms.await, vmis: vmis.await }
    }

    /// Whether the leak is one still.
    pub(crate) fn confirms(&self, leak: &Leaked) -> bool {
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

/// The answers that there were, by what was asked about.
async fn asked<K: Copy + Ord, A, F: Future<Output = Option<A>>>(about: BTreeSet<K>, ask: impl Fn(K) -> F) -> BTreeMap<K, A> {
    let questions = futures::stream::iter(about).map(|key| {
        let answer = ask(key);
        async move { Some((key, answer.await?)) }
    });
    questions.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}
