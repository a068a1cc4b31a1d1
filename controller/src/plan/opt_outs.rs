//! What somebody said must not be released (operator.md d). It is counted and judged like everything else; it only stays.

use std::collections::{BTreeMap, BTreeSet};

use ipam_accounting::Inventory;
use ipam_accounting::facts::{Class, NodeId};
use ipam_accounting::inventory::{Block, Owner, Slot};
use ipam_accounting::set::{AddrSet, Ranges};
use ipam_datastore::opt_out::OptOut;
use ipam_datastore::update::Watched;
use ipnet::IpNet;

use super::Planner;

/// By name, and by address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptOuts {
    pools: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    nodes: BTreeSet<String>,
    cidrs: Ranges,
    nets: usize,
}

/// What keeps an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Because {
    /// Its pool.
    Pool,
    /// The namespace of its owner.
    Namespace,
    /// Its node.
    Node,
    /// Itself.
    Cidr,
}

impl Because {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pool, Self::Namespace, Self::Node, Self::Cidr];

    /// As metrics call it.
    pub fn word(self) -> &'static str {
        match self {
            Because::Pool => "pool",
            Because::Namespace => "namespace",
            Because::Node => "node",
            Because::Cidr => "cidr",
        }
    }
}

impl OptOuts {
    /// Those of the configuration: they hold although the object may not exist.
    pub fn configured(pools: Vec<String>, namespaces: Vec<String>, nodes: Vec<String>, cidrs: impl Iterator<Item = IpNet>) -> Self {
        let (mut set, mut nets) = (AddrSet::new(), 0);
        for net in cidrs {
            set.insert(net);
            nets += 1;
        }
        let (pools, namespaces, nodes) = (pools.into_iter().collect(), namespaces.into_iter().collect(), nodes.into_iter().collect());
        Self { pools, namespaces, nodes, cidrs: set.ranges(), nets }
    }

    fn names(&self, because: Because) -> Option<&BTreeSet<String>> {
        match because {
            Because::Pool => Some(&self.pools),
            Because::Namespace => Some(&self.namespaces),
            Because::Node => Some(&self.nodes),
            Because::Cidr => None,
        }
    }
}

/// What the objects of the cluster say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotated(BTreeMap<(Because, String), OptOut>);

impl Annotated {
    /// Takes over what an object says.
    pub fn put(&mut self, watched: Watched, name: &str, says: Option<OptOut>) {
        let because = match watched {
            Watched::Pool => Because::Pool,
            Watched::Namespace => Because::Namespace,
            Watched::Node => Because::Node,
            _ => return,
        };
        match says {
            Some(says) => drop(self.0.insert((because, name.into()), says)),
            None => drop(self.0.remove(&(because, name.into()))),
        }
    }

    /// What an object says, if it says anything.
    pub fn get(&self, because: Because, name: &str) -> Option<&OptOut> {
        self.0.get(&(because, name.into()))
    }

    /// Everything that is said.
    pub fn all(&self) -> impl Iterator<Item = (Because, &str, &OptOut)> {
        self.0.iter().map(|((because, name), says)| (*because, name.as_str(), says))
    }
}

/// Everything that is in force: any source that says yes wins.
#[derive(Clone, Copy)]
pub struct InForce<'a> {
    cache: &'a Inventory,
    annotated: &'a Annotated,
    configured: &'a OptOuts,
}

impl<'a> InForce<'a> {
    /// What the cluster and the configuration say, about what the cache knows.
    pub fn new(cache: &'a Inventory, annotated: &'a Annotated, configured: &'a OptOuts) -> Self {
        Self { cache, annotated, configured }
    }

    /// Whether an object is opted out.
    pub fn object(&self, because: Because, name: &str) -> bool {
        self.configured.names(because).is_some_and(|names| names.contains(name))
            || self.annotated.get(because, name).is_some_and(OptOut::holds)
    }

    /// How many are in force.
    pub fn count(&self, because: Because) -> u64 {
        let Some(names) = self.configured.names(because) else { return self.configured.nets as u64 };
        let said = self.annotated.all().filter(|(b, name, says)| *b == because && says.holds() && !names.contains(*name));
        (names.len() + said.count()) as u64
    }

    fn pool(&self, block: IpNet) -> bool {
        let tracker = &self.cache.tracker;
        let holding = || tracker.pools().filter(|(_, _, cidr)| cidr.is_some_and(|c| c.contains(&block)));
        // A row may be all that there is of a block.
        let pool =
            tracker.pool_of(block).or_else(|| holding().max_by_key(|(_, _, cidr)| cidr.map(|c| c.prefix_len())).map(|(_, id, _)| id));
        pool.is_some_and(|pool| self.object(Because::Pool, tracker.pool_name(pool)))
    }

    fn node(&self, node: NodeId) -> bool {
        self.object(Because::Node, self.cache.node_text(node))
    }

    /// What keeps an allocation, if something does.
    pub fn allocation(&self, block: &Block, slot: &Slot) -> Option<Because> {
        let owner = match slot.class() {
            Class::Pod(pod) => Some(self.cache.pod_text(pod)),
            Class::Vm(Some(vm)) => Some(self.cache.vm_text(vm)),
            _ => None,
        };
        let namespace = owner.and_then(|o| o.split_once('/')).map(|(namespace, _)| namespace);
        if self.pool(block.cidr) {
            Some(Because::Pool)
        } else if namespace.is_some_and(|ns| self.object(Because::Namespace, ns)) {
            Some(Because::Namespace)
        } else if slot.node().is_some_and(|node| self.node(node)) {
            Some(Because::Node)
        } else {
            self.configured.cidrs.contains(block.ip(slot)).then_some(Because::Cidr)
        }
    }

    /// Whether a block stays as it is: nothing is collected in it, and it is not given back.
    pub fn block(&self, block: &Block) -> bool {
        self.pool(block.cidr) || matches!(block.owner, Owner::Host(node) if self.node(node))
    }

    /// Whether rows about these blocks, or of this node, stay as they are.
    pub fn rows(&self, blocks: &[IpNet], node: Option<&str>) -> bool {
        node.is_some_and(|node| self.object(Because::Node, node))
            || blocks.iter().any(|cidr| self.pool(*cidr) || self.cache.block_of(*cidr).is_some_and(|(_, b)| self.block(b)))
    }

    /// Whether anything of a departed node must stay.
    pub fn touches(&self, node: NodeId) -> bool {
        self.node(node)
            || self.cache.allocations_of(node).any(|(_, block, slot)| self.allocation(block, slot).is_some())
            || self.cache.owned_blocks(node).any(|(_, id)| self.cache.block(id).is_some_and(|b| self.block(b)))
            || self.cache.rows(node).any(|(cidr, _)| self.pool(cidr))
    }
}

impl Planner<'_> {
    /// What must stay.
    pub(super) fn opt_outs(&self) -> InForce<'_> {
        InForce::new(&self.view.cache, &self.view.annotated, &self.policy.opt_outs)
    }
}
