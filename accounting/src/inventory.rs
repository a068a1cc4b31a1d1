//! The compact cache of a whole cluster: who holds which address, and what is known of the owners.
//!
//! Names are numbers, a block's allocations are one array, sums are kept by difference. It answers as
//! [`Evidence`], and it remembers which blocks and nodes a change may concern, so that nobody has to look at
//! everything. It is written by whoever holds it `&mut`: the operator's view, or the command line's snapshot.

mod blocks;
mod holds;
mod objects;
mod sums;

pub use blocks::{BlockFacts, EntryFacts, Owner};
pub use holds::Holds;
pub use sums::{NO_AFFINITY, NO_POOL, Sum, UNKNOWN_NODE};

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::facts::{Class, HandleId, Lookup, NodeId, PodFacts, PodId, VmId, VmiFacts};
use crate::judge::{Allocation, Evidence, judge};
use crate::names::Names;
use crate::schedule::{Member, Time, Wait, wait};
use crate::set::{addr_at, number};
use crate::tracker::Tracker;

/// Number of a block; used again after the block is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Where an allocation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocRef {
    /// Its block.
    pub block: BlockId,
    /// Its ordinal in the block.
    pub ordinal: u16,
}

pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Pod,
    Tunnel,
    Vm,
    Windows,
    Other,
}

/// One allocated address that is not cooling, in 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Sequence number of the allocation.
    pub seq: i64,
    handle: u32,
    subject: u32,
    node: u32,
    /// Ordinal in the block.
    pub ordinal: u16,
    tag: Tag,
}

fn id(n: u32) -> Option<u32> {
    (n != NONE).then_some(n)
}

impl Slot {
    /// Its handle, if it has one.
    pub fn handle(&self) -> Option<HandleId> {
        id(self.handle).map(HandleId)
    }

    /// The node that its owner attributes name.
    pub fn node(&self) -> Option<NodeId> {
        id(self.node).map(NodeId)
    }

    /// Its owner.
    pub fn class(&self) -> Class {
        match self.tag {
            Tag::Pod => Class::Pod(PodId(self.subject)),
            Tag::Tunnel => Class::Tunnel,
            Tag::Vm => Class::Vm(id(self.subject).map(VmId)),
            Tag::Windows => Class::Windows,
            Tag::Other => Class::Other,
        }
    }
}

/// A block as we keep it.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its CIDR.
    pub cidr: IpNet,
    /// Its sequence number.
    pub seq: i64,
    /// The store's revision of the row.
    pub revision: Box<str>,
    /// Who owns it.
    pub owner: Owner<NodeId>,
    /// When it was claimed; `None`: very long ago.
    pub claim_time: Option<Time>,
    /// Its allocations that are not cooling, by ordinal.
    pub slots: Box<[Slot]>,
    /// Number of cooling addresses.
    pub cooling: u32,
    /// The earliest `releasedAt` of the cooling ones.
    pub cold_since: Option<Time>,
}

impl Block {
    /// Whether nothing but host reservations is allocated in it (allocation.md 3.9).
    pub fn is_empty(&self) -> bool {
        self.cooling == 0 && self.slots.iter().all(|s| s.tag == Tag::Windows)
    }

    /// The allocation at `ordinal`.
    pub fn slot(&self, ordinal: u16) -> Option<&Slot> {
        let at = self.slots.binary_search_by_key(&ordinal, |s| s.ordinal).ok()?;
        self.slots.get(at)
    }

    /// The address of a slot.
    pub fn ip(&self, slot: &Slot) -> IpAddr {
        addr_at(self.cidr, u128::from(slot.ordinal)).unwrap_or(self.cidr.network())
    }
}

/// State of an affinity row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// Confirmed, also the empty state of old rows.
    Confirmed,
    /// Pending or pending deletion: absent when deciding about ownership (D-12).
    Unconfirmed,
}

/// How far the absence of an object proves something (D-35, D-51).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Fully: the kind is complete.
    Full,
    /// Only in this namespace.
    Namespace(String),
    /// Not at all.
    #[default]
    Nothing,
}

/// The kinds whose absence is evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trusts {
    /// Pods.
    pub pods: Trust,
    /// Nodes.
    pub nodes: bool,
    /// Virtual machines.
    pub vms: bool,
    /// Virtual machine instances.
    pub vmis: bool,
    /// Affinity rows: whether missing rows say anything.
    pub affinities: bool,
    /// A kind of which there is not a single object proves nothing (D-91): rather is something wrong with what is told.
    pub not_if_empty: bool,
}

/// How many pods, nodes, VMs and VM instances are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Population {
    pods: usize,
    nodes: usize,
    vms: usize,
    vmis: usize,
}

impl Population {
    /// Which kinds are there at all.
    fn kinds(self) -> [bool; 4] {
        [self.pods, self.nodes, self.vms, self.vmis].map(|n| n > 0)
    }
}

#[derive(Clone, Debug, Default)]
enum Known<T> {
    #[default]
    No,
    Yes(T),
    Bad,
}

impl<T> Known<T> {
    fn lookup(&self, trusted: bool) -> Lookup<&T> {
        match self {
            Known::Yes(facts) => Lookup::Seen(facts),
            Known::No if trusted => Lookup::Absent,
            Known::No | Known::Bad => Lookup::Unsure,
        }
    }
}

type Allocs = SmallVec<[AllocRef; 1]>;

#[derive(Debug, Default)]
struct PodSlot {
    facts: Known<PodFacts>,
    allocs: Allocs,
}

#[derive(Debug, Default)]
struct NodeSlot {
    facts: Known<crate::facts::NodeFacts>,
    owned: BTreeMap<IpNet, BlockId>,
    touched: BTreeMap<BlockId, u32>,
    rows: BTreeMap<IpNet, RowState>,
}

#[derive(Debug, Default)]
struct VmSlot {
    vm: Known<()>,
    vmi: Known<VmiFacts>,
    allocs: Allocs,
}

/// What changed since the last look.
#[derive(Debug, Default)]
pub struct Dirty {
    /// Blocks in which some verdict may have changed.
    pub blocks: FxHashSet<BlockId>,
    /// Nodes that came, went, or whose blocks or rows changed.
    pub nodes: FxHashSet<NodeId>,
    /// Blocks that are gone.
    pub removed: Vec<IpNet>,
}

/// The cache.
#[derive(Debug, Default)]
pub struct Inventory {
    handles: Names,
    pods: Names,
    nodes: Names,
    vms: Names,
    handle_members: Vec<SmallVec<[AllocRef; 2]>>,
    pod_slots: Vec<PodSlot>,
    node_slots: Vec<NodeSlot>,
    vm_slots: Vec<VmSlot>,
    blocks: Vec<Option<Block>>,
    free_blocks: Vec<u32>,
    block_ids: BTreeMap<IpNet, BlockId>,
    /// How many blocks of each family (IPv6?) and prefix length there are.
    block_lengths: BTreeMap<(bool, u8), u32>,
    reporters_v4: FxHashMap<u32, PodId>,
    reporters_v6: FxHashMap<u128, PodId>,
    more_reporters: FxHashMap<IpAddr, Vec<PodId>>,
    sums: sums::Sums,
    /// Counts by pool and block.
    pub tracker: Tracker,
    /// What must not be acted on.
    pub holds: Holds,
    trusts: Trusts,
    population: Population,
    dirty: Dirty,
}

/// Grows a large table by a quarter instead of doubling it.
fn grow<T: Default>(table: &mut Vec<T>, index: u32) {
    let wanted = index as usize + 1;
    if wanted > table.capacity() {
        table.reserve_exact((table.len() / 4).max(64).max(wanted - table.len()));
    }
    while table.len() < wanted {
        table.push(T::default());
    }
}

impl Inventory {
    /// An empty cache in which no absence proves anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says how far absences prove something; everything is dirty afterwards.
    pub fn set_trusts(&mut self, trusts: Trusts) {
        self.trusts = trusts;
        self.mark_all();
    }

    /// Says what must not be acted on; everything is dirty if that is something else than before.
    pub fn set_holds(&mut self, holds: Holds) {
        if self.holds != holds {
            self.holds = holds;
            self.mark_all();
        }
    }

    /// How far absences prove something.
    pub fn trusts(&self) -> &Trusts {
        &self.trusts
    }

    /// Counts an object that came or went. With the first and the last of a kind every verdict may change.
    fn count(&mut self, of: impl Fn(&mut Population) -> &mut usize, was: bool, is: bool) {
        let before = self.population.kinds();
        let n = of(&mut self.population);
        *n = (*n + usize::from(is)).saturating_sub(usize::from(was));
        if self.trusts.not_if_empty && self.population.kinds() != before {
            self.mark_all();
        }
    }

    /// Marks everything as changed: a full scan runs the same path as a small change.
    pub fn mark_all(&mut self) {
        self.dirty.blocks = self.block_ids.values().copied().collect();
        self.dirty.nodes = (0..self.nodes.bound() as u32).map(NodeId).filter(|n| self.concerns(*n)).collect();
    }

    /// Takes what changed since the last call.
    pub fn take_dirty(&mut self) -> Dirty {
        std::mem::take(&mut self.dirty)
    }

    /// The block of this number.
    pub fn block(&self, block: BlockId) -> Option<&Block> {
        self.blocks.get(block.0 as usize)?.as_ref()
    }

    /// The block of this CIDR.
    pub fn block_of(&self, cidr: IpNet) -> Option<(BlockId, &Block)> {
        let id = *self.block_ids.get(&cidr)?;
        Some((id, self.block(id)?))
    }

    /// All blocks, by CIDR.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.block_ids.values().filter_map(|id| Some((*id, self.block(*id)?)))
    }

    /// The block that holds `ip`; the most specific one where blocks overlap.
    pub fn block_with(&self, ip: IpAddr) -> Option<(BlockId, &Block)> {
        let mut lengths = self.block_lengths.range((ip.is_ipv6(), 0)..=(ip.is_ipv6(), 128)).rev();
        lengths.find_map(|(&(_, length), _)| self.block_of(IpNet::new(ip, length).ok()?.trunc()))
    }

    /// The allocation at this place.
    pub fn slot(&self, at: AllocRef) -> Option<(&Block, &Slot)> {
        let block = self.block(at.block)?;
        Some((block, block.slot(at.ordinal)?))
    }

    /// The allocations of a handle.
    pub fn members(&self, handle: HandleId) -> &[AllocRef] {
        self.handle_members.get(handle.0 as usize).map_or(&[], |m| m.as_slice())
    }

    /// Text of a handle id.
    pub fn handle_text(&self, handle: HandleId) -> &str {
        self.handles.text(handle.0)
    }

    /// Number of a handle id, if some allocation has it.
    pub fn handle_id(&self, handle: &str) -> Option<HandleId> {
        self.handles.find(handle).map(HandleId)
    }

    /// Name of the pool of a block; [`NO_POOL`] without one.
    pub fn pool_text(&self, block: IpNet) -> &str {
        self.tracker.pool_of(block).map_or(NO_POOL, |p| self.tracker.pool_name(p))
    }

    /// Name of a node.
    pub fn node_text(&self, node: NodeId) -> &str {
        self.nodes.text(node.0)
    }

    /// Number of a node name, if anything mentions it.
    pub fn node_id(&self, name: &str) -> Option<NodeId> {
        self.nodes.find(name).map(NodeId)
    }

    /// Key of a pod, `namespace/name`.
    pub fn pod_text(&self, pod: PodId) -> &str {
        self.pods.text(pod.0)
    }

    /// Key of a VM, `namespace/name`.
    pub fn vm_text(&self, vm: VmId) -> &str {
        self.vms.text(vm.0)
    }

    /// Facts of a node object that is there.
    pub fn node_facts(&self, node: NodeId) -> Option<&crate::facts::NodeFacts> {
        match &self.node_slots.get(node.0 as usize)?.facts {
            Known::Yes(facts) => Some(facts),
            _ => None,
        }
    }

    /// Names of the nodes that exist.
    pub fn live_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0u32..).zip(&self.node_slots).filter(|(_, n)| matches!(n.facts, Known::Yes(_))).map(|(n, _)| NodeId(n))
    }

    /// Whether blocks, rows or allocations name this node.
    pub fn concerns(&self, node: NodeId) -> bool {
        self.node_slots.get(node.0 as usize).is_some_and(|n| !n.owned.is_empty() || !n.touched.is_empty() || !n.rows.is_empty())
    }

    /// The nodes that blocks, rows or allocations name.
    pub fn concerned_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.node_slots.len() as u32).map(NodeId).filter(|n| self.concerns(*n))
    }

    /// The blocks that a node owns, by CIDR.
    pub fn owned_blocks(&self, node: NodeId) -> impl Iterator<Item = (IpNet, BlockId)> + '_ {
        self.node_slots.get(node.0 as usize).into_iter().flat_map(|n| n.owned.iter().map(|(c, b)| (*c, *b)))
    }

    /// State of the affinity row of a node for a block.
    pub fn row_state(&self, node: NodeId, cidr: IpNet) -> Option<RowState> {
        self.node_slots.get(node.0 as usize)?.rows.get(&cidr).copied()
    }

    /// The affinity rows of a node.
    pub fn rows(&self, node: NodeId) -> impl Iterator<Item = (IpNet, RowState)> + '_ {
        self.node_slots.get(node.0 as usize).into_iter().flat_map(|n| n.rows.iter().map(|(c, s)| (*c, *s)))
    }

    /// Every allocation whose owner attributes name this node, in no particular order.
    pub fn allocations_of(&self, node: NodeId) -> impl Iterator<Item = (BlockId, &Block, &Slot)> + '_ {
        let touched = self.node_slots.get(node.0 as usize).into_iter().flat_map(|n| n.touched.keys().copied());
        touched
            .filter_map(|id| Some((id, self.block(id)?)))
            .flat_map(move |(id, block)| block.slots.iter().filter(move |s| s.node == node.0).map(move |s| (id, block, s)))
    }

    /// The owner of an allocation, as outputs name it (D-47): `namespace/pod`, `vm:namespace/name`, or the type of a
    /// tunnel; `None` for everybody else.
    pub fn owner_text(&self, slot: &Slot) -> Option<String> {
        match slot.class() {
            Class::Pod(pod) => Some(self.pod_text(pod).into()),
            Class::Vm(vm) => vm.map(|vm| format!("vm:{}", self.vm_text(vm))),
            Class::Tunnel => crate::facts::TUNNEL_TYPES.get(slot.subject as usize).map(|t| (*t).into()),
            Class::Windows | Class::Other => None,
        }
    }

    /// What [`judge`](crate::judge()) takes.
    pub fn allocation(&self, block: &Block, slot: &Slot) -> Allocation {
        Allocation { ip: block.ip(slot), class: slot.class(), node: slot.node() }
    }

    /// An allocation for the schedule, as it is now.
    pub fn member(&self, block: &Block, slot: &Slot, since: Time) -> Member {
        let verdict = judge(&self.allocation(block, slot), self);
        let departed = || slot.node().is_some_and(|n| self.node(n).is_absent());
        let wait = verdict.leak().map_or(Wait::Grace, |leak| wait(leak, slot.class(), slot.handle().is_some(), departed()));
        Member { verdict, wait, since, host_reserved: slot.tag == Tag::Windows }
    }

    /// Whether nothing of a handle, or of an address without one, may be released (D-38).
    pub fn is_held(&self, handle: Option<HandleId>) -> bool {
        handle.map_or(self.holds.all_handles, |h| self.holds.handle(self.handle_text(h)))
    }

    /// Every pod that vouches for an address, with the address, in no particular order.
    #[expect(clippy::disallowed_methods, reason = "said to be in no particular order; readers sort what they find")]
    pub fn reported(&self) -> impl Iterator<Item = (IpAddr, PodId)> + '_ {
        let v4 = self.reporters_v4.iter().map(|(ip, pod)| (IpAddr::from(std::net::Ipv4Addr::from(*ip)), *pod));
        v4.chain(self.reporters_v6.iter().map(|(ip, pod)| (IpAddr::from(std::net::Ipv6Addr::from(*ip)), *pod)))
    }

    fn first_reporter(&self, ip: IpAddr) -> Option<PodId> {
        match ip {
            IpAddr::V4(ip) => self.reporters_v4.get(&u32::from(ip)).copied(),
            IpAddr::V6(_) => self.reporters_v6.get(&number(ip)).copied(),
        }
    }

    /// Whether a kind of which so many are known proves absences, if it is trusted.
    fn proves(&self, known: usize) -> bool {
        known > 0 || !self.trusts.not_if_empty
    }

    fn pod_trusted(&self, pod: PodId) -> bool {
        self.proves(self.population.pods)
            && match &self.trusts.pods {
                Trust::Full => true,
                Trust::Nothing => false,
                Trust::Namespace(only) => self.pod_text(pod).split_once('/').is_some_and(|(ns, _)| ns == only),
            }
    }
}

impl Evidence for Inventory {
    fn node(&self, node: NodeId) -> Lookup<()> {
        self.node_slots
            .get(node.0 as usize)
            .map_or(Lookup::Unsure, |n| n.facts.lookup(self.trusts.nodes && self.proves(self.population.nodes)).map(|_| ()))
    }

    fn pod(&self, pod: PodId) -> Lookup<&PodFacts> {
        let Some(slot) = self.pod_slots.get(pod.0 as usize) else { return Lookup::Unsure };
        match &slot.facts {
            Known::Yes(facts) => Lookup::Seen(facts),
            other => other.lookup(self.pod_trusted(pod)),
        }
    }

    fn vm(&self, vm: VmId) -> Lookup<()> {
        self.vm_slots
            .get(vm.0 as usize)
            .map_or(Lookup::Unsure, |v| v.vm.lookup(self.trusts.vms && self.proves(self.population.vms)).map(|_| ()))
    }

    fn vmi(&self, vm: VmId) -> Lookup<VmiFacts> {
        self.vm_slots
            .get(vm.0 as usize)
            .map_or(Lookup::Unsure, |v| v.vmi.lookup(self.trusts.vmis && self.proves(self.population.vmis)).map(|f| *f))
    }

    fn reporter(&self, ip: IpAddr, owner: Option<PodId>) -> Option<PodId> {
        // The owner's own word spares the look-up by address.
        if let Some(pod) = owner
            && let Some(PodSlot { facts: Known::Yes(facts), .. }) = self.pod_slots.get(pod.0 as usize)
            && facts.vouches()
            && facts.ips.contains(&ip)
        {
            return owner;
        }
        self.first_reporter(ip)
    }
}

#[cfg(test)]
#[path = "inventory/tests.rs"]
mod tests;
