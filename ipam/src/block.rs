//! A block and everything that can be done to it, in memory.
//!
//! Every method that can fail leaves the block unchanged when it does. Nothing here reads a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use chrono::TimeDelta;
use ipam_accounting::facts::{Attrs, is_windows_handle, owner_of, sanitise};
use ipam_accounting::inventory::{BlockFacts, EntryFacts, Owner as FactOwner};
use ipam_accounting::set::Ranges;
use ipnet::IpNet;

use crate::clock::Time;
use crate::ids::{BlockCidr, HandleId, Owner};
use crate::store::Extra;

/// One entry of a block's attribute list. Entries are shared between addresses: never edited in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attribute {
    /// Handle id as stored.
    pub handle: Option<String>,
    /// Active owner.
    pub active: Attrs,
    /// Alternate owner, such as the other side of a live migration.
    pub alternate: Attrs,
    /// Set: the addresses of this entry cool.
    pub released_at: Option<Time>,
    /// Fields that we do not model.
    pub extra: Extra,
}

impl Attribute {
    /// Whether this entry's handle, sanitised, is `handle`.
    pub fn is_of(&self, handle: &HandleId) -> bool {
        self.handle.as_deref().is_some_and(|h| sanitise(h) == handle.as_str())
    }

    fn is_host_reserved(&self) -> bool {
        self.handle.as_deref().is_some_and(is_windows_handle)
    }
}

/// A host's reservation at both ends of each of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReserve {
    /// Addresses at the start.
    pub first: u32,
    /// Addresses at the end.
    pub last: u32,
    /// Handle that marks them.
    pub handle: String,
    /// A word for people.
    pub note: String,
}

/// A block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Its CIDR.
    pub cidr: BlockCidr,
    /// Owner as stored, see [`Block::owner`].
    pub affinity: Option<String>,
    /// When it was claimed; absent: very long ago.
    pub claim_time: Option<Time>,
    /// By ordinal: the index of its attribute entry, or free.
    pub allocations: Vec<Option<u32>>,
    /// Free ordinals; the head is handed out next.
    pub unallocated: Vec<u32>,
    /// Attribute entries.
    pub attributes: Vec<Attribute>,
    /// Goes up by one with every update.
    pub seq: i64,
    /// By ordinal: the block's number when it was allocated. Missing reads as 0.
    pub seqs: BTreeMap<u32, i64>,
}

/// Why an operation on a block was refused; the block is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The address is not of this block.
    #[error("{0} is not in block {1}")]
    Outside(IpAddr, BlockCidr),
    /// The address is allocated or cooling.
    #[error("{0} is already assigned")]
    AlreadyExists(IpAddr),
    /// The address is free.
    #[error("{0} is not assigned")]
    NotExist(IpAddr),
    /// The address cools.
    #[error("{0} is cooling down")]
    InCooldown(IpAddr),
    /// The block belongs to somebody else, or to nobody, and the caller asked for its own.
    #[error("block {0} has not the owner {1}")]
    NotOwner(BlockCidr, Owner),
    /// The host reservation leaves no address.
    #[error("a reservation of {0} addresses does not fit block {1}")]
    ReserveTooLarge(u32, BlockCidr),
}

/// What a release expects of the handle of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandleCheck {
    /// Nothing.
    Any,
    /// That it has none (D-88).
    None,
    /// That it is this one.
    Is(HandleId),
}

/// One address to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseOption {
    /// The address.
    pub ip: IpAddr,
    /// What its handle must be.
    pub handle: HandleCheck,
    /// What its sequence number must be, if given.
    pub seq: Option<i64>,
    /// Whose it must be, if given: an owner may change at the same handle and number (D-27).
    pub owner: Option<OwnerSeen>,
}

/// Whose an address was seen to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerSeen {
    /// Its owner, as outputs name it.
    pub owner: Option<String>,
    /// The node that the owner attributes name.
    pub node: Option<String>,
}

/// Why a release was not done: somebody has changed the address since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// Another sequence number.
    #[error("its sequence number is {stored}, not {expected}")]
    Sequence {
        /// The stored one.
        stored: i64,
        /// The expected one.
        expected: i64,
    },
    /// Another handle, or one where none was expected.
    #[error("it has another handle")]
    Handle,
    /// Another owner.
    #[error("it has another owner")]
    Owner,
}

/// What became of one address of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was released.
    Yes,
    /// It was free or cooling already (D-7).
    AlreadyFree,
    /// It was left alone (D-8).
    Stale(Stale),
}

/// What became of a release in one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRelease {
    /// Per address, in the order of the options; an address given twice counts once, the last option wins.
    pub results: Vec<(IpAddr, Released)>,
    /// Released addresses per sanitised handle.
    pub counts: BTreeMap<HandleId, i64>,
}

/// A violated invariant of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The block must not be acted on (D-87: `bad-object`); otherwise it is only reported (`block-invalid`).
    pub bad: bool,
    /// What is wrong.
    pub message: String,
}

impl Block {
    /// A new block without owner. `born` is the number it starts from: the time in nanoseconds, so that a block that
    /// was deleted and created again never repeats a sequence number.
    ///
    /// # Errors
    /// The host reservation is as large as the block or larger.
    pub fn new(cidr: BlockCidr, reserve: Option<&HostReserve>, born: i64) -> Result<Self, BlockError> {
        let size = cidr.size();
        let mut block = Self {
            cidr,
            affinity: None,
            claim_time: None,
            allocations: vec![None; size as usize],
            unallocated: (0..size).collect(),
            attributes: Vec::new(),
            seq: born,
            seqs: BTreeMap::new(),
        };
        if let Some(r) = reserve {
            let taken = r.first.saturating_add(r.last);
            if taken >= size {
                return Err(BlockError::ReserveTooLarge(taken, cidr));
            }
            let note = Attrs::from([("note".to_owned(), r.note.clone())]);
            block.attributes.push(Attribute { handle: Some(r.handle.clone()), active: note, ..Attribute::default() });
            block.unallocated = (r.first..size - r.last).collect();
            let kept = (0..r.first).chain(size - r.last..size);
            kept.for_each(|o| block.allocations[o as usize] = Some(0));
        }
        Ok(block)
    }

    /// Its owner; any text that is not of the two forms names nobody.
    pub fn owner(&self) -> Option<Owner> {
        self.affinity.as_deref().and_then(Owner::parse)
    }

    /// The entry of an allocated ordinal.
    pub fn entry(&self, ordinal: u32) -> Option<&Attribute> {
        let index = (*self.allocations.get(ordinal as usize)?)?;
        self.attributes.get(index as usize)
    }

    /// The allocated ordinals with their entries, cooling ones too.
    pub fn allocated(&self) -> impl Iterator<Item = (u32, &Attribute)> {
        (0u32..).zip(&self.allocations).filter_map(|(o, index)| Some((o, self.attributes.get((*index)? as usize)?)))
    }

    /// The sequence number of an ordinal's allocation; missing reads as 0.
    pub fn seq_of(&self, ordinal: u32) -> i64 {
        self.seqs.get(&ordinal).copied().unwrap_or(0)
    }

    /// Whether nothing but host reservations is allocated; cooling addresses make it non-empty (allocation.md 3.9).
    pub fn is_empty(&self) -> bool {
        self.allocations.iter().flatten().all(|i| self.attributes.get(*i as usize).is_some_and(Attribute::is_host_reserved))
    }

    /// The allocated addresses.
    pub fn in_use(&self) -> Vec<IpAddr> {
        self.allocated().filter_map(|(o, _)| self.cidr.ip(o)).collect()
    }

    /// The addresses of a handle.
    pub fn by_handle(&self, handle: &HandleId) -> Vec<IpAddr> {
        self.allocated().filter(|(_, a)| a.is_of(handle)).filter_map(|(o, _)| self.cidr.ip(o)).collect()
    }

    /// The addresses whose owner names a node other than the block's, with that node.
    pub fn held_by_others(&self) -> Vec<(String, IpAddr)> {
        let owner = self.owner();
        let own = match &owner {
            Some(Owner::Host(name)) => Some(name.as_str()),
            _ => None,
        };
        let node = |a: &Attribute| a.active.get("node").filter(|n| Some(n.as_str()) != own).cloned();
        self.allocated().filter_map(|(o, a)| Some((node(a)?, self.cidr.ip(o)?))).collect()
    }

    /// How many addresses can be handed out.
    pub fn free(&self, reserved: &Ranges) -> u32 {
        self.unallocated.iter().filter(|o| self.cidr.ip(**o).is_some_and(|ip| !reserved.contains(ip))).count() as u32
    }

    /// How many addresses are reserved, allocated or not.
    pub fn reserved(&self, reserved: &Ranges) -> u32 {
        reserved.count_in(self.cidr.net()) as u32
    }

    /// The owner entry of an address.
    ///
    /// # Errors
    /// Outside, free, or cooling.
    pub fn attributes_of(&self, ip: IpAddr) -> Result<&Attribute, BlockError> {
        let ordinal = self.ordinal(ip)?;
        match self.entry(ordinal) {
            None => Err(BlockError::NotExist(ip)),
            Some(a) if a.released_at.is_some() => Err(BlockError::InCooldown(ip)),
            Some(a) => Ok(a),
        }
    }

    /// Hands out up to `num` addresses from the head of the free queue, passing over reserved ones. Answers with each
    /// address and the block's own prefix length. Fewer than `num`, even none, is no error.
    ///
    /// # Errors
    /// `check` names the owner that the block must have, and it has another one.
    pub fn auto_assign(
        &mut self,
        num: usize,
        handle: Option<&str>,
        attrs: &Attrs,
        check: Option<&Owner>,
        reserved: &Ranges,
    ) -> Result<Vec<IpNet>, BlockError> {
        self.check_owner(check)?;
        let (mut taken, mut left) = (Vec::new(), Vec::with_capacity(self.unallocated.len()));
        for &o in &self.unallocated {
            let open = taken.len() < num && self.cidr.ip(o).is_some_and(|ip| !reserved.contains(ip));
            if open { taken.push(o) } else { left.push(o) }
        }
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let index = self.find_or_add(owned_by(handle, attrs));
        self.unallocated = left;
        for &o in &taken {
            self.allocations[o as usize] = Some(index);
            self.seqs.insert(o, self.seq);
        }
        let mask = self.cidr.net().prefix_len();
        Ok(taken.into_iter().filter_map(|o| IpNet::new(self.cidr.ip(o)?, mask).ok()).collect())
    }

    /// Hands out this very address. Reservations are not consulted.
    ///
    /// # Errors
    /// Outside; taken or cooling; not the owner that `check` asks for.
    pub fn assign(&mut self, ip: IpAddr, handle: Option<&str>, attrs: &Attrs, check: Option<&Owner>) -> Result<(), BlockError> {
        self.check_owner(check)?;
        let ordinal = self.ordinal(ip)?;
        if self.allocations[ordinal as usize].is_some() {
            return Err(BlockError::AlreadyExists(ip));
        }
        let index = self.find_or_add(owned_by(handle, attrs));
        self.allocations[ordinal as usize] = Some(index);
        self.unallocated.retain(|o| *o != ordinal);
        self.seqs.insert(ordinal, self.seq);
        Ok(())
    }

    /// Releases addresses: they cool from `now` on. What is stale or free already is left alone and said so. When
    /// anything was released, what has cooled is collected.
    ///
    /// # Errors
    /// An address outside of the block.
    pub fn release(&mut self, options: &[ReleaseOption], now: Time, cooldown: TimeDelta) -> Result<BlockRelease, BlockError> {
        let mut out = BlockRelease::default();
        let mut due = Vec::new();
        for (at, option) in options.iter().enumerate() {
            let ordinal = self.ordinal(option.ip)?;
            if options[at + 1..].iter().any(|later| later.ip == option.ip) {
                continue;
            }
            let result = self.may_release(ordinal, option);
            if result == Released::Yes {
                due.push(ordinal);
                if let Some(h) = self.entry(ordinal).and_then(|a| a.handle.as_deref()) {
                    *out.counts.entry(HandleId::new(h)).or_default() += 1;
                }
            }
            out.results.push((option.ip, result));
        }
        if !due.is_empty() {
            let seq = self.seq;
            self.cool(&due, now);
            self.seqs.extend(due.into_iter().map(|o| (o, seq)));
            self.collect(now, cooldown);
        }
        Ok(out)
    }

    fn may_release(&self, ordinal: u32, option: &ReleaseOption) -> Released {
        let Some(entry) = self.entry(ordinal).filter(|a| a.released_at.is_none()) else { return Released::AlreadyFree };
        if let Some(expected) = option.seq
            && expected != self.seq_of(ordinal)
        {
            return Released::Stale(Stale::Sequence { stored: self.seq_of(ordinal), expected });
        }
        let fits = match &option.handle {
            HandleCheck::Any => true,
            HandleCheck::None => entry.handle.is_none(),
            HandleCheck::Is(handle) => entry.is_of(handle),
        };
        if !fits {
            return Released::Stale(Stale::Handle);
        }
        let (owner, node) = owner_of(entry.handle.as_deref().map(sanitise), &entry.active, &entry.alternate);
        let same = |seen: &OwnerSeen| seen.owner == owner && seen.node.as_deref() == node;
        if option.owner.as_ref().is_none_or(same) { Released::Yes } else { Released::Stale(Stale::Owner) }
    }

    /// Releases every address of a handle, or only those with this sequence number; then collects. Answers with the
    /// released addresses. Sequence numbers stay (COL-11 as decisions.md reads it).
    pub fn release_by_handle(&mut self, handle: &HandleId, seq: Option<i64>, now: Time, cooldown: TimeDelta) -> Vec<IpAddr> {
        let due: Vec<u32> = self
            .allocated()
            .filter(|(o, a)| a.is_of(handle) && a.released_at.is_none() && seq.is_none_or(|s| s == self.seq_of(*o)))
            .map(|(o, _)| o)
            .collect();
        if !due.is_empty() {
            self.cool(&due, now);
        }
        self.collect(now, cooldown);
        due.into_iter().filter_map(|o| self.cidr.ip(o)).collect()
    }

    /// Frees what has cooled for `cooldown` or longer (D-41), ascending, at the tail of the queue; with no cooldown
    /// everything that cools, whatever the clock says (BLK-54). Then drops entries that nobody uses. Answers whether
    /// anything changed.
    pub fn collect(&mut self, now: Time, cooldown: TimeDelta) -> bool {
        let cooled = |a: &Attribute| a.released_at.is_some_and(|t| cooldown <= TimeDelta::zero() || now - t >= cooldown);
        let free: Vec<u32> = self.allocated().filter(|(_, a)| cooled(a)).map(|(o, _)| o).collect();
        for o in &free {
            self.allocations[*o as usize] = None;
            self.unallocated.push(*o);
            self.seqs.remove(o);
        }
        self.prune() || !free.is_empty()
    }

    /// When the first cooling address was released.
    pub fn cold_since(&self) -> Option<Time> {
        self.allocated().filter_map(|(_, a)| a.released_at).min()
    }

    /// Gives an allocated address another (handle, active, alternate) by pointing it at another entry, so that the
    /// other addresses of its old entry keep theirs (seed, "Handle IDs").
    ///
    /// # Errors
    /// Outside, free, or cooling.
    pub fn update_ownership(&mut self, ip: IpAddr, to: Attribute) -> Result<(), BlockError> {
        self.attributes_of(ip)?;
        let ordinal = self.ordinal(ip)?;
        let index = self.find_or_add(to);
        self.allocations[ordinal as usize] = Some(index);
        self.prune();
        Ok(())
    }

    /// Every violated invariant (wire-format.md 3, CHK-01 … CHK-10); clock skew counts beyond 5 s.
    pub fn faults(&self, now: Time) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |bad, message| faults.push(Fault { bad, message });
        let size = self.cidr.size();
        if self.allocations.len() != size as usize {
            fault(true, format!("allocations has {} entries, not {size}", self.allocations.len()));
        }
        let mut used = BTreeSet::new();
        for (o, index) in (0u32..).zip(&self.allocations).filter_map(|(o, i)| Some((o, (*i)?))) {
            if index as usize >= self.attributes.len() {
                fault(true, format!("allocations[{o}] points at attribute {index}, which does not exist"));
            }
            used.insert(index);
        }
        let mut queued = BTreeSet::new();
        for o in &self.unallocated {
            if !queued.insert(*o) {
                fault(true, format!("unallocated has ordinal {o} twice"));
            }
            match self.allocations.get(*o as usize) {
                None => fault(true, format!("unallocated has ordinal {o}, which is outside of the block")),
                Some(Some(_)) => fault(true, format!("ordinal {o} is both allocated and in unallocated")),
                Some(None) => {}
            }
        }
        for (i, a) in (0u32..).zip(&self.attributes) {
            if !used.contains(&i) {
                fault(false, format!("attributes[{i}] is used by no address"));
            }
            if a.released_at.is_some_and(|t| t - now > TimeDelta::seconds(5)) {
                fault(false, format!("attributes[{i}] was released in the future: clocks differ"));
            }
        }
        let lost = (0u32..).zip(&self.allocations).filter(|(o, a)| a.is_none() && !queued.contains(o)).count();
        if lost > 0 {
            fault(false, format!("{lost} addresses are neither allocated nor in unallocated"));
        }
        faults
    }

    /// As the cache takes it.
    pub fn facts<'a>(&'a self, revision: &'a str) -> BlockFacts<'a> {
        let owner = self.affinity.as_deref().and_then(|text| text.split_once(':'));
        let entries = self.attributes.iter();
        let allocated = (0u16..).zip(&self.allocations).filter_map(|(o, index)| Some((o, (*index)?, self.seq_of(o.into()))));
        BlockFacts {
            cidr: self.cidr.net(),
            seq: self.seq,
            revision,
            owner: match owner {
                Some(("host", name)) => FactOwner::Host(name),
                Some(("virtual", _)) => FactOwner::Virtual,
                _ => FactOwner::Nobody,
            },
            claim_time: self.claim_time,
            entries: entries
                .map(|a| EntryFacts { handle: a.handle.as_deref(), active: &a.active, alternate: &a.alternate, released_at: a.released_at })
                .collect(),
            allocated: allocated.collect(),
            free: &self.unallocated,
        }
    }

    fn ordinal(&self, ip: IpAddr) -> Result<u32, BlockError> {
        self.cidr.ordinal(ip).filter(|o| (*o as usize) < self.allocations.len()).ok_or(BlockError::Outside(ip, self.cidr))
    }

    fn check_owner(&self, check: Option<&Owner>) -> Result<(), BlockError> {
        match check {
            Some(owner) if self.affinity.as_deref() != Some(owner.to_string().as_str()) => {
                Err(BlockError::NotOwner(self.cidr, owner.clone()))
            }
            _ => Ok(()),
        }
    }

    fn find_or_add(&mut self, wanted: Attribute) -> u32 {
        let found = self.attributes.iter().position(|a| *a == wanted);
        found.unwrap_or_else(|| {
            self.attributes.push(wanted);
            self.attributes.len() - 1
        }) as u32
    }

    fn cool(&mut self, ordinals: &[u32], now: Time) {
        self.attributes.push(Attribute { released_at: Some(now), ..Attribute::default() });
        let index = self.attributes.len() as u32 - 1;
        ordinals.iter().for_each(|o| self.allocations[*o as usize] = Some(index));
    }

    /// Drops entries that no address points at and renumbers; answers whether there were any.
    fn prune(&mut self) -> bool {
        let used: BTreeSet<u32> = self.allocations.iter().flatten().copied().collect();
        if used.len() >= self.attributes.len() {
            return false;
        }
        let number: BTreeMap<u32, u32> = used.iter().copied().zip(0..).collect();
        let mut index = 0..;
        self.attributes.retain(|_| index.next().is_some_and(|i| used.contains(&i)));
        self.allocations.iter_mut().flatten().for_each(|i| *i = number[i]);
        true
    }
}

fn owned_by(handle: Option<&str>, attrs: &Attrs) -> Attribute {
    Attribute { handle: handle.map(Into::into), active: attrs.clone(), ..Attribute::default() }
}

#[cfg(test)]
#[path = "block/tests.rs"]
mod tests;
