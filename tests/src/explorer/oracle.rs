//! What must hold when a schedule has ended (D-73).

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use chrono::TimeDelta;
use futures::executor::block_on;
use ipam::audit::{self, FindingKind, Snapshot};
use ipam::model::{BlockKind, HandleKind};
use ipam::{HandleId, Ipam, MemStore};
use ipam_operator::clocks::SimClock;

use super::ops::Op;
use super::seeds::{self, Rows};
use super::world::{Client, World};

type Identity = (String, IpAddr);

/// Judges a schedule that has ended. `clean` remembers contents of stores whose repair was seen to work.
pub(super) fn judge(rows: &Rows, world: &World, clean: &mut HashSet<u64>) -> Result<(), String> {
    let stored = stored(&world.store);
    let owners = owners(rows, world);
    for (at, owner) in owners.iter().enumerate() {
        if let Some(other) = owners[at + 1..].iter().find(|o| o.1 == owner.1) {
            return Err(format!("{} has two owners: {} and {}", owner.1, owner.0, other.0));
        }
        if !stored.contains(owner) {
            return Err(format!("{} owns {}, which the block gives to {:?}", owner.0, owner.1, stored.iter().find(|s| s.1 == owner.1)));
        }
    }
    told_gone(world, &stored)?;
    unowned(rows, world, &stored, &owners)?;
    if clean.insert(world.gate.contents()) {
        let was_missing = rows.store().rows::<HandleKind>().iter().all(|h| h.key != HandleId::new("s")) && !rows.held.is_empty();
        counted(&world.store, was_missing)?;
        repaired(&world.store)?;
    }
    Ok(())
}

/// Live allocations, as handle and address.
fn stored(store: &MemStore) -> Vec<Identity> {
    let rows = store.rows::<BlockKind>();
    let of = |b: &ipam::Row<BlockKind>| {
        let live = b.value.allocated().filter(|(_, a)| a.released_at.is_none());
        live.filter_map(|(o, a)| Some((a.handle.clone().unwrap_or_default(), b.key.ip(o)?))).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of).collect()
}

/// Who was told yes and whose identity nobody has released or renamed since.
fn owners(rows: &Rows, world: &World) -> Vec<Identity> {
    let ended = |handle: &str, by: usize| world.ops.iter().enumerate().any(|(at, op)| at != by && op.ends().contains(&handle));
    let mut owners: Vec<Identity> = rows.held.iter().filter(|(h, _)| !ended(h, usize::MAX)).cloned().collect();
    for (at, client) in world.clients.iter().enumerate() {
        let Client::Done(told) = client else { continue };
        // Whoever releases an identity by its old sequence number has no say over a new one.
        let exact_only = world.ops.iter().all(|op| *op != Op::ReleaseHandle);
        owners.extend(told.owns.iter().filter(|(h, _)| exact_only || !ended(h, at)).cloned());
    }
    owners.sort();
    owners.dedup();
    owners
}

/// An identity that a client was told is released is not there any more, and only one was told so, unless somebody has taken it
/// anew.
fn told_gone(world: &World, stored: &[Identity]) -> Result<(), String> {
    let anew = world.ops.iter().any(|op| matches!(op, Op::Reuse | Op::AssignMore));
    let mut all = Vec::new();
    for client in &world.clients {
        let Client::Done(told) = client else { continue };
        if let Some(twice) = told.gone.iter().find(|g| all.contains(*g) && !anew) {
            return Err(format!("two were told that they released {} of {}", twice.1, twice.0));
        }
        all.extend(told.gone.iter().cloned());
        if let Some(gone) = told.gone.iter().find(|g| stored.contains(g) && !anew) {
            return Err(format!("{} was told that {} is released, and it is there", gone.0, gone.1));
        }
    }
    Ok(())
}

/// An allocation that nobody was told of is a leak, unless a fault explains it.
fn unowned(rows: &Rows, world: &World, stored: &[Identity], owners: &[Identity]) -> Result<(), String> {
    for held in stored.iter().filter(|s| !owners.contains(s) && !rows.held.contains(s)) {
        let told = world.clients.iter().any(|c| matches!(c, Client::Done(t) if t.owns.contains(held)));
        let explained = world.ops.iter().enumerate().any(|(at, op)| {
            let interfered = world.faulted == Some(at) || matches!(&world.clients[at], Client::Done(t) if t.unknown);
            interfered && op.may_leave().contains(&held.0.as_str())
        });
        let by_host = held.0.starts_with("windows");
        if !told && !explained && !by_host {
            return Err(format!("{} is allocated to {}, and nobody was told", held.1, held.0));
        }
    }
    Ok(())
}

/// No handle without row, none that counts too few.
fn counted(store: &MemStore, s_was_missing: bool) -> Result<(), String> {
    let mut held: BTreeMap<HandleId, i64> = BTreeMap::new();
    for row in store.rows::<BlockKind>() {
        for (_, entry) in row.value.allocated() {
            if let Some(h) = entry.handle.as_deref().filter(|h| !h.starts_with("windows")) {
                *held.entry(HandleId::new(h)).or_default() += 1;
            }
        }
    }
    for (handle, n) in held.into_iter().filter(|(h, _)| !(s_was_missing && h.as_str() == "s")) {
        match store.peek::<HandleKind>(&handle) {
            None | Some((_, true)) => return Err(format!("handle {handle} has addresses and no row")),
            Some((row, false)) => {
                let counts: i64 = row.value.blocks.values().sum();
                if counts < n {
                    return Err(format!("handle {handle} counts {counts} and has {n}"));
                }
            }
        }
    }
    Ok(())
}

/// Index repair brings everything back, and changes no allocation.
fn repaired(store: &MemStore) -> Result<(), String> {
    let before = stored(store);
    let ipam = Ipam::new(store.clone(), SimClock::new(seeds::now() + TimeDelta::hours(1)));
    for _ in 0..8 {
        let snapshot = block_on(Snapshot::read(store, Vec::new(), false)).map_err(|e| e.to_string())?;
        let findings = audit::audit(&snapshot, None, seeds::now() + TimeDelta::hours(1));
        if let Some(overlap) =
            findings.iter().find(|f| matches!(f.kind, FindingKind::BlocksOverlap | FindingKind::BlockInvalid | FindingKind::BadObject))
        {
            return Err(format!("not to be repaired: {}: {}", overlap.object, overlap.message));
        }
        if findings.is_empty() {
            let after = self::stored(store);
            return if before == after { Ok(()) } else { Err(format!("repair changed {before:?} to {after:?}")) };
        }
        for finding in &findings {
            block_on(ipam.repair(finding)).map_err(|e| e.to_string())?;
        }
    }
    let snapshot = block_on(Snapshot::read(store, Vec::new(), false)).map_err(|e| e.to_string())?;
    Err(format!("index repair does not end: {:?}", audit::audit(&snapshot, None, seeds::now())))
}
