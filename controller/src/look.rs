//! The last look before a release (D-40): the evidence is gathered once more, live, and the same `judge` asked again.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt as _;
use ipam_accounting::facts::{Class, Lookup, NodeId, PodFacts, PodId, VmId, VmiFacts};
use ipam_accounting::{Evidence, Inventory, judge};
use ipam_datastore::live::{Connection, look};
use ipam_datastore::update::Watched;

use crate::plan::Leaked;
use crate::run::pause;

/// Live evidence for the last look. `None`, which is what everything answers that does not say otherwise: nothing is fresher than the
/// view.
pub trait LastLook: Send + Sync {
    /// The pod of this namespace and name.
    fn pod(&self, _namespace: &str, _name: &str) -> impl Future<Output = Option<Lookup<PodFacts<String>>>> + Send {
        std::future::ready(None)
    }
    /// The node of this name.
    fn node(&self, _name: &str) -> impl Future<Output = Option<Lookup<()>>> + Send {
        std::future::ready(None)
    }
    /// The VM of this namespace and name.
    fn vm(&self, _namespace: &str, _name: &str) -> impl Future<Output = Option<Lookup<()>>> + Send {
        std::future::ready(None)
    }
    /// The VM instance of this namespace and name.
    fn vmi(&self, _namespace: &str, _name: &str) -> impl Future<Output = Option<Lookup<VmiFacts>>> + Send {
        std::future::ready(None)
    }
    /// Ready when no more answers of a kind are waited for; what is not answered by then is unsure.
    fn patience(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// The last look of a dump: it cannot have changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unchanging;

impl LastLook for Unchanging {}

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
    async fn patience(&self) {
        pause(PATIENCE).await;
    }
}

/// How many questions of a last look are open at once.
const AT_ONCE: usize = 16;
/// How long a kind's questions may take together: the loop must beat.
const PATIENCE: Duration = Duration::from_secs(15);

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
        let pods = asked(pods, look.patience(), |pod| async move {
            let (namespace, name) = both(cache.pod_text(pod))?;
            let answer = look.pod(namespace, name).await?;
            Some(answer.map(|f| f.map_node(|n| cache.node_id(&n).unwrap_or(UNHEARD))))
        });
        let nodes = asked(nodes, look.patience(), |node| look.node(cache.node_text(node)));
        let vmis = asked(vms.clone(), look.patience(), |vm| async move {
            let (namespace, name) = both(cache.vm_text(vm))?;
            look.vmi(namespace, name).await
        });
        let vms = asked(vms, look.patience(), |vm| async move {
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

/// The answers by what was asked about, where there is something fresher than the view. What is not answered in time is unsure.
async fn asked<K: Copy + Ord, T, F: Future<Output = Option<Lookup<T>>>>(
    about: BTreeSet<K>,
    patience: impl Future<Output = ()>,
    ask: impl Fn(K) -> F,
) -> BTreeMap<K, Lookup<T>> {
    let questions = futures::stream::iter(about.iter().copied()).map(|key| {
        let answer = ask(key);
        async move { (key, answer.await) }
    });
    let in_time = questions.buffer_unordered(AT_ONCE).take_until(Box::pin(patience));
    let mut answers: BTreeMap<K, Option<Lookup<T>>> = in_time.collect().await;
    about.into_iter().filter_map(|key| Some((key, answers.remove(&key).unwrap_or(Some(Lookup::Unsure))?))).collect()
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[test]
    fn d_40_what_is_not_answered_in_time_is_unsure_and_silence_leaves_it_to_the_view() {
        let mut times = 0;
        let patience = std::future::poll_fn(move |context| {
            times += 1;
            context.waker().wake_by_ref();
            if times < 20 { Poll::Pending } else { Poll::Ready(()) }
        });
        let answers = asked([1, 2, 3, 4].into(), patience, |n| async move {
            match n {
                1 => Some(Lookup::Seen("here")),
                2 => Some(Lookup::Absent),
                3 => None,
                _ => std::future::pending().await,
            }
        });
        let want = [(1, Lookup::Seen("here")), (2, Lookup::Absent), (4, Lookup::Unsure)];
        assert_eq!(futures::executor::block_on(answers), want.into());
    }
}
