//! Blocks, affinity rows and pools come and go.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{AllocRef, Block, BlockId, Inventory, NONE, RowState, Slot, Tag, grow};
use crate::facts::{Attrs, Class, NodeId, TUNNEL_TYPES, classify, sanitise};
use crate::schedule::Time;
use crate::tracker::{BlockUse, PoolId};

/// Who owns a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner<N> {
    /// Nobody.
    Nobody,
    /// A node.
    Host(N),
    /// A virtual owner, such as the load balancer.
    Virtual,
}

/// One entry of a block's attribute list.
#[derive(Clone, Copy, Debug)]
pub struct EntryFacts<'a> {
    /// Handle id as stored.
    pub handle: Option<&'a str>,
    /// Active owner.
    pub active: &'a Attrs,
    /// Alternate owner.
    pub alternate: &'a Attrs,
    /// When the addresses of this entry were released.
    pub released_at: Option<Time>,
}

/// What a stored block says.
#[derive(Debug)]
pub struct BlockFacts<'a> {
    /// Its CIDR.
    pub cidr: IpNet,
    /// Sequence number.
    pub seq: i64,
    /// Revision of the row.
    pub revision: &'a str,
    /// Its owner.
    pub owner: Owner<&'a str>,
    /// When it was claimed.
    pub claim_time: Option<Time>,
    /// Attribute entries.
    pub entries: Vec<EntryFacts<'a>>,
    /// Allocated ordinals, ascending, each with its entry and its sequence number.
    pub allocated: Vec<(u16, u32, i64)>,
    /// The free queue.
    pub free: &'a [u32],
}

/// Which of the tunnel types an entry has.
fn tunnel_type(e: &EntryFacts<'_>) -> u32 {
    let owner = if e.active.is_empty() { e.alternate } else { e.active };
    let at = owner.get("type").and_then(|t| TUNNEL_TYPES.iter().position(|known| known == t));
    at.map_or(NONE, |at| at as u32)
}

struct Entry {
    tag: Tag,
    subject: u32,
    node: u32,
    handle: u32,
    cooling: bool,
}

impl Inventory {
    /// Takes over what a block says now.
    pub fn put_block(&mut self, facts: &BlockFacts<'_>) {
        let cidr = facts.cidr;
        let id = self.block_ids.get(&cidr).copied();
        let old = id.and_then(|id| self.blocks[id.0 as usize].take());
        let id = id.unwrap_or_else(|| self.new_block(cidr));
        let entries: Vec<Entry> = facts.entries.iter().map(|e| self.enter(e)).collect();
        let (mut slots, mut cooling, mut cold_since) = (Vec::with_capacity(facts.allocated.len()), 0, None::<Time>);
        for &(ordinal, entry, seq) in &facts.allocated {
            let Some(e) = entries.get(entry as usize) else { continue };
            if e.cooling {
                cooling += 1;
                let since = facts.entries[entry as usize].released_at;
                cold_since = cold_since.into_iter().chain(since).min();
            } else {
                slots.push(self.new_slot(e, ordinal, seq));
            }
        }
        entries.iter().for_each(|e| self.leave(e));
        let owner = match facts.owner {
            Owner::Nobody => Owner::Nobody,
            Owner::Virtual => Owner::Virtual,
            Owner::Host(name) => Owner::Host(self.acquire_node(name)),
        };
        let slots: Box<[Slot]> = slots.into();
        let old_slots = old.as_ref().map_or(&[][..], |b| &b.slots);
        self.relink(id, old_slots, &slots);
        let new = Block {
            cidr,
            seq: facts.seq,
            revision: facts.revision.into(),
            owner,
            claim_time: facts.claim_time,
            slots,
            cooling,
            cold_since,
        };
        let pool = old.as_ref().and_then(|b| self.tracker.pool_of(b.cidr));
        if let Some(old) = &old {
            self.count_block(old, pool, -1);
            self.disown(old);
        }
        let in_use = new.slots.len() as u32;
        self.tracker.put_block(cidr, BlockUse::new(cidr, in_use, cooling, facts.free));
        self.count_block(&new, self.tracker.pool_of(cidr), 1);
        if let Owner::Host(node) = owner {
            self.node_slots[node.0 as usize].owned.insert(cidr, id);
            self.dirty.nodes.insert(node);
        }
        self.blocks[id.0 as usize] = Some(new);
        self.dirty.blocks.insert(id);
    }

    /// Forgets a block.
    pub fn remove_block(&mut self, cidr: IpNet) {
        let Some(id) = self.block_ids.remove(&cidr) else { return };
        let Some(old) = self.blocks[id.0 as usize].take() else { return };
        self.count_block(&old, self.tracker.pool_of(cidr), -1);
        self.relink(id, &old.slots, &[]);
        self.disown(&old);
        self.tracker.remove_block(cidr);
        let length = (matches!(cidr, IpNet::V6(_)), cidr.prefix_len());
        if let Some(n) = self.block_lengths.get_mut(&length) {
            *n -= 1;
            if *n == 0 {
                self.block_lengths.remove(&length);
            }
        }
        self.free_blocks.push(id.0);
        self.dirty.blocks.remove(&id);
        self.dirty.removed.push(cidr);
    }

    /// Takes over an affinity row of a host.
    pub fn put_row(&mut self, node: &str, cidr: IpNet, state: RowState) {
        let node_id = self.acquire_node(node);
        let known = self.node_slots[node_id.0 as usize].rows.insert(cidr, state);
        if known.is_some() {
            self.release_node(node_id);
        }
        self.dirty.nodes.insert(node_id);
    }

    /// Forgets an affinity row of a host.
    pub fn remove_row(&mut self, node: &str, cidr: IpNet) {
        let Some(node) = self.node_id(node) else { return };
        if self.node_slots[node.0 as usize].rows.remove(&cidr).is_some() {
            self.dirty.nodes.insert(node);
            self.release_node(node);
        }
    }

    /// Takes over a pool; `None`: its CIDR does not parse, it has no blocks (GCP-11).
    pub fn put_pool(&mut self, name: &str, cidr: Option<IpNet>) {
        let moved = self.tracker.put_pool(name, cidr);
        self.recount_moved(&moved);
    }

    /// Forgets a pool; its blocks go to the next best one.
    pub fn remove_pool(&mut self, name: &str) {
        let moved = self.tracker.remove_pool(name);
        self.recount_moved(&moved);
    }

    fn recount_moved(&mut self, moved: &[(IpNet, Option<PoolId>, Option<PoolId>)]) {
        for &(cidr, from, to) in moved {
            let Some(&id) = self.block_ids.get(&cidr) else { continue };
            if let Some(block) = self.blocks[id.0 as usize].take() {
                self.count_block(&block, from, -1);
                self.count_block(&block, to, 1);
                self.blocks[id.0 as usize] = Some(block);
            }
        }
    }

    fn new_block(&mut self, cidr: IpNet) -> BlockId {
        let id = BlockId(self.free_blocks.pop().unwrap_or_else(|| {
            self.blocks.push(None);
            (self.blocks.len() - 1) as u32
        }));
        self.block_ids.insert(cidr, id);
        *self.block_lengths.entry((matches!(cidr, IpNet::V6(_)), cidr.prefix_len())).or_default() += 1;
        id
    }

    fn disown(&mut self, block: &Block) {
        if let Owner::Host(node) = block.owner {
            self.node_slots[node.0 as usize].owned.remove(&block.cidr);
            self.dirty.nodes.insert(node);
            self.release_node(node);
        }
    }

    /// Looks an entry's names up once for all of its addresses.
    fn enter(&mut self, e: &EntryFacts<'_>) -> Entry {
        if e.released_at.is_some() {
            return Entry { tag: Tag::Other, subject: NONE, node: NONE, handle: NONE, cooling: true };
        }
        let handle = e.handle.map(sanitise);
        let (class, node) = classify(handle, e.active, e.alternate);
        let (tag, subject) = match class {
            Class::Pod((ns, name)) => (Tag::Pod, self.acquire_pod(ns, name).0),
            Class::Vm(Some((ns, name))) => (Tag::Vm, self.acquire_vm(ns, name).0),
            Class::Vm(None) => (Tag::Vm, NONE),
            Class::Tunnel => (Tag::Tunnel, tunnel_type(e)),
            Class::Windows => (Tag::Windows, NONE),
            Class::Other => (Tag::Other, NONE),
        };
        let node = node.map_or(NONE, |n| self.acquire_node(n).0);
        let handle = handle.map_or(NONE, |h| {
            let id = self.handles.acquire(h);
            grow(&mut self.handle_members, id);
            id
        });
        Entry { tag, subject, node, handle, cooling: false }
    }

    fn new_slot(&mut self, e: &Entry, ordinal: u16, seq: i64) -> Slot {
        self.share(e);
        Slot { seq, handle: e.handle, subject: e.subject, node: e.node, ordinal, tag: e.tag }
    }

    fn share(&mut self, e: &Entry) {
        for (names, id) in [(&mut self.handles, e.handle), (&mut self.nodes, e.node)] {
            if id != NONE {
                names.share(id);
            }
        }
        match e.tag {
            Tag::Pod => self.pods.share(e.subject),
            Tag::Vm if e.subject != NONE => self.vms.share(e.subject),
            _ => {}
        }
    }

    fn leave(&mut self, e: &Entry) {
        self.release_names(e.tag, e.subject, e.node, e.handle);
    }

    fn release_names(&mut self, tag: Tag, subject: u32, node: u32, handle: u32) {
        match tag {
            Tag::Pod => self.release_pod(subject),
            Tag::Vm if subject != NONE => self.release_vm(subject),
            _ => {}
        }
        if node != NONE {
            self.release_node(NodeId(node));
        }
        if handle != NONE {
            self.handles.release(handle);
        }
    }

    /// Moves the indexes from the old allocations of a block to its new ones; both ascend by ordinal.
    fn relink(&mut self, block: BlockId, old: &[Slot], new: &[Slot]) {
        let (mut o, mut n) = (old.iter().peekable(), new.iter().peekable());
        loop {
            match (o.peek(), n.peek()) {
                (None, None) => break,
                (Some(a), Some(b)) if a.ordinal == b.ordinal => {
                    if a == b {
                        // The new slot took its names once more than needed.
                        self.release_names(a.tag, a.subject, a.node, a.handle);
                    } else {
                        self.unlink(block, a);
                        self.link(block, b);
                    }
                    o.next();
                    n.next();
                }
                (Some(a), b) if b.is_none_or(|b| a.ordinal < b.ordinal) => {
                    self.unlink(block, a);
                    o.next();
                }
                (_, Some(b)) => {
                    self.link(block, b);
                    n.next();
                }
                (Some(_), None) => unreachable!("taken by the arm before"),
            }
        }
    }

    fn link(&mut self, block: BlockId, slot: &Slot) {
        let at = AllocRef { block, ordinal: slot.ordinal };
        if slot.handle != NONE {
            self.handle_members[slot.handle as usize].push(at);
            self.mark_others(slot.handle, at);
        }
        match slot.tag {
            Tag::Pod => self.pod_slots[slot.subject as usize].allocs.push(at),
            Tag::Vm if slot.subject != NONE => self.vm_slots[slot.subject as usize].allocs.push(at),
            _ => {}
        }
        if slot.node != NONE {
            *self.node_slots[slot.node as usize].touched.entry(block).or_default() += 1;
        }
    }

    fn unlink(&mut self, block: BlockId, slot: &Slot) {
        let at = AllocRef { block, ordinal: slot.ordinal };
        if slot.handle != NONE {
            self.handle_members[slot.handle as usize].retain(|m| *m != at);
            self.mark_others(slot.handle, at);
        }
        match slot.tag {
            Tag::Pod => self.pod_slots[slot.subject as usize].allocs.retain(|m| *m != at),
            Tag::Vm if slot.subject != NONE => self.vm_slots[slot.subject as usize].allocs.retain(|m| *m != at),
            _ => {}
        }
        if slot.node != NONE {
            let touched = &mut self.node_slots[slot.node as usize].touched;
            if let Some(n) = touched.get_mut(&block) {
                *n -= 1;
                if *n == 0 {
                    touched.remove(&block);
                }
            }
            self.dirty.nodes.insert(NodeId(slot.node));
        }
        self.release_names(slot.tag, slot.subject, slot.node, slot.handle);
    }

    /// The other addresses of a handle have to be looked at again: all or none.
    fn mark_others(&mut self, handle: u32, at: AllocRef) {
        let others = self.handle_members[handle as usize].iter().filter(|m| **m != at).map(|m| m.block);
        self.dirty.blocks.extend(others);
    }

    /// The block that holds `ip` has to be looked at again.
    pub(super) fn mark_ip(&mut self, ip: IpAddr) {
        if let Some((id, _)) = self.block_with(ip) {
            self.dirty.blocks.insert(id);
        }
    }
}
