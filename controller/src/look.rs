//! The last look before a release (D-40): the evidence is gathered once more, live, and the same `judge` asked again.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt as _;
use ipam_accounting::facts::{Class, Lookup, NodeId, PodFacts, PodId, VmId, VmiFacts};
use ipam_accounting::{Evidence, Inventory, Verdict, judge};
use ipam_datastore::live::{Connection, look};
use ipam_datastore::update::Watched;

use crate::execute::Refusal;
use crate::plan::Leaked;
use crate::run::pause;

/// Live evidence for the last look. `None`, which is what everything answers that does not say otherwise: nothing is fresher than the
/// view.
pub trait LastLook: Send + Sync {
    /// The pod of this namespace and name.
    fn pod(&self, _namespace: &str, _name: &str) -> impl Future<Output = Option<Lookup<PodFacts<String>>>> + Send {
        std::future::ready(None)
    }
    /// The node of this name; within: whether it says that nothing of it must be released.
    fn node(&self, _name: &str) -> impl Future<Output = Option<Lookup<bool>>> + Send {
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
    /// How many questions are open at once.
    fn at_once(&self) -> usize {
        16
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
pub struct Live {
    /// How it is reached.
    pub connection: Connection,
    /// How many questions are open at once.
    pub at_once: usize,
}

impl LastLook for Live {
    async fn pod(&self, namespace: &str, name: &str) -> Option<Lookup<PodFacts<String>>> {
        Some(look(&self.connection, Watched::Pod, namespace, name).await.map(|o| o.pod()))
    }
    async fn node(&self, name: &str) -> Option<Lookup<bool>> {
        Some(look(&self.connection, Watched::Node, "", name).await.map(|node| node.opt_out().is_some_and(|says| says.holds())))
    }
    async fn vm(&self, namespace: &str, name: &str) -> Option<Lookup<()>> {
        Some(look(&self.connection, Watched::Vm, namespace, name).await.map(|_| ()))
    }
    async fn vmi(&self, namespace: &str, name: &str) -> Option<Lookup<VmiFacts>> {
        Some(look(&self.connection, Watched::Vmi, namespace, name).await.map(|o| o.vmi()))
    }
    fn at_once(&self) -> usize {
        self.at_once
    }
    async fn patience(&self) {
        pause(PATIENCE).await;
    }
}

/// How long a kind's questions may take together: the loop must beat.
const PATIENCE: Duration = Duration::from_secs(15);

/// The view with live answers over it.
pub(crate) struct Fresh<'a> {
    cache: &'a Inventory,
    pods: BTreeMap<PodId, Lookup<PodFacts>>,
    nodes: BTreeMap<NodeId, Lookup<()>>,
    /// Nodes that must keep what they have.
    opted_out: BTreeSet<NodeId>,
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
        let pods = asked(pods, look, |pod| async move {
            let (namespace, name) = both(cache.pod_text(pod))?;
            let answer = look.pod(namespace, name).await?;
            Some(answer.map(|f| f.map_node(|n| cache.node_id(&n).unwrap_or(UNHEARD))))
        });
        let nodes = asked(nodes, look, |node| look.node(cache.node_text(node)));
        let vmis = asked(vms.clone(), look, |vm| async move {
            let (namespace, name) = both(cache.vm_text(vm))?;
            look.vmi(namespace, name).await
        });
        let vms = asked(vms, look, |vm| async move {
            let (namespace, name) = both(cache.vm_text(vm))?;
            look.vm(namespace, name).await
        });
        let nodes = nodes.await;
        let opted_out = nodes.iter().filter(|(_, n)| matches!(n, Lookup::Seen(true))).map(|(node, _)| *node).collect();
        let nodes = nodes.into_iter().map(|(node, n)| (node, n.map(|_| ()))).collect();
        Self { cache, pods: pods.await, nodes, opted_out, vms: vms.await, vmis: vmis.await }
    }

    /// Why the leak must not go, if it must not.
    pub(crate) fn refuses(&self, leak: &Leaked) -> Option<Refusal> {
        let Some((block, slot)) = self.cache.slot(leak.at) else { return Some(Refusal::Stale) };
        if slot.seq != leak.seq || block.ip(slot) != leak.ip {
            return Some(Refusal::Stale);
        }
        if slot.node().is_some_and(|n| self.opted_out.contains(&n)) {
            return Some(Refusal::OptedOut);
        }
        match judge(&self.cache.allocation(block, slot), self) {
            Verdict::Leaked(_) => None,
            Verdict::Unknown(_) => Some(Refusal::Unknown),
            Verdict::InUse(_) | Verdict::Cooling => Some(Refusal::InUse),
        }
    }

    /// What was seen of the owner and the node of a leak.
    pub(crate) fn evidence(&self, leak: &Leaked) -> String {
        let Some((_, slot)) = self.cache.slot(leak.at) else { return String::new() };
        let mut seen = Vec::new();
        let mut say = |what: &str, name: &str, state: Option<&'static str>| {
            seen.push(format!("{what} {name}: {}", state.unwrap_or("as the feed told")));
        };
        fn word<T>(lookup: Option<&Lookup<T>>) -> Option<&'static str> {
            lookup.map(|l| match l {
                Lookup::Seen(_) => "there",
                Lookup::Absent => "absent",
                Lookup::Unsure => "not known",
            })
        }
        match slot.class() {
            Class::Pod(pod) => say("pod", self.cache.pod_text(pod), word(self.pods.get(&pod))),
            Class::Vm(Some(vm)) => {
                say("VM", self.cache.vm_text(vm), word(self.vms.get(&vm)));
                say("VM instance", self.cache.vm_text(vm), word(self.vmis.get(&vm)));
            }
            _ => {}
        }
        if let Some(node) = slot.node() {
            say("node", self.cache.node_text(node), word(self.nodes.get(&node)));
        }
        seen.join("; ")
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
    look: &impl LastLook,
    ask: impl Fn(K) -> F,
) -> BTreeMap<K, Lookup<T>> {
    let questions = futures::stream::iter(about.iter().copied()).map(|key| {
        let answer = ask(key);
        async move { (key, answer.await) }
    });
    let in_time = questions.buffer_unordered(look.at_once()).take_until(Box::pin(look.patience()));
    let mut answers: BTreeMap<K, Option<Lookup<T>>> = in_time.collect().await;
    about.into_iter().filter_map(|key| Some((key, answers.remove(&key).unwrap_or(Some(Lookup::Unsure))?))).collect()
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[test]
    fn d_40_what_is_not_answered_in_time_is_unsure_and_silence_leaves_it_to_the_view() {
        struct Impatient;
        impl LastLook for Impatient {
            fn patience(&self) -> impl Future<Output = ()> + Send {
                let mut times = 0;
                std::future::poll_fn(move |context| {
                    times += 1;
                    context.waker().wake_by_ref();
                    if times < 20 { Poll::Pending } else { Poll::Ready(()) }
                })
            }
        }
        let answers = asked([1, 2, 3, 4].into(), &Impatient, |n| async move {
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
