//! The rows against each other: the blocks are the truth.

use std::collections::{BTreeMap, BTreeSet};

use ipam_accounting::facts::is_windows_handle;

use super::{Finding, FindingKind, Snapshot, SubjectRow};
use crate::clock::Time;
use crate::ids::{BlockCidr, HandleId, Owner};
use crate::model::AffinityState;
use crate::store::Revision;

pub(super) fn affinity_name((owner, cidr): &(Owner, BlockCidr)) -> String {
    match owner {
        Owner::Host(host) => format!("BlockAffinity/{host} {cidr}"),
        Owner::Virtual(name) => format!("BlockAffinity/virtual:{name} {cidr}"),
    }
}

pub(super) fn block_name(cidr: BlockCidr) -> String {
    format!("IPAMBlock/{cidr}")
}

/// Each block by itself, blocks against blocks, and against reservations.
pub(super) fn blocks(snapshot: &Snapshot, now: Time, findings: &mut BTreeSet<Finding>) {
    for row in &snapshot.blocks {
        let name = block_name(row.key);
        for fault in row.value.faults(now) {
            let kind = if fault.bad { FindingKind::BadObject } else { FindingKind::BlockInvalid };
            findings.insert(Finding::new(kind, &name, fault.message));
        }
        if row.value.affinity.is_none() && row.value.is_empty() {
            let finding = Finding::new(FindingKind::BlockUnownedEmpty, &name, "empty and owned by nobody");
            findings.insert(finding.about(SubjectRow::Block(row.key), Some(&row.revision)));
        }
        let live = row.value.allocated().filter(|(_, a)| a.released_at.is_none() && !a.handle.as_deref().is_some_and(is_windows_handle));
        let reserved: Vec<String> =
            live.filter_map(|(o, _)| row.key.ip(o)).filter(|ip| snapshot.reserved.contains(*ip)).map(|ip| ip.to_string()).collect();
        if !reserved.is_empty() {
            findings.insert(Finding::new(
                FindingKind::ReservedAllocated,
                &name,
                format!("allocated although reserved: {}", reserved.join(", ")),
            ));
        }
    }
    // In the order of CIDRs a block that contains others comes right before them.
    let mut enclosing: Option<BlockCidr> = None;
    let mut cidrs: Vec<BlockCidr> = snapshot
        .blocks
        .iter()
        .map(|r| r.key)
        .chain(snapshot.bad.iter().filter(|b| b.object.starts_with("IPAMBlock")).filter_map(|b| b.block))
        .collect();
    cidrs.sort_unstable();
    cidrs.dedup();
    for cidr in cidrs {
        match enclosing {
            Some(outer) if outer.net().contains(&cidr.net()) => {
                findings.insert(Finding::new(FindingKind::BlocksOverlap, block_name(cidr), format!("lies inside block {outer}")));
            }
            _ => enclosing = Some(cidr),
        }
    }
}

/// Handles against the blocks.
pub(super) fn handles(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    let Some(handles) = &snapshot.handles else { return };
    let mut held: BTreeMap<HandleId, BTreeMap<BlockCidr, i64>> = BTreeMap::new();
    for row in &snapshot.blocks {
        for (_, entry) in row.value.allocated() {
            if let Some(handle) = entry.handle.as_deref().filter(|h| !is_windows_handle(h)) {
                *held.entry(HandleId::new(handle)).or_default().entry(row.key).or_default() += 1;
            }
        }
    }
    let unclear_blocks: BTreeSet<BlockCidr> = snapshot.bad.iter().filter_map(|b| b.block).collect();
    let nameless_block = snapshot.bad.iter().any(|b| b.object.starts_with("IPAMBlock") && b.block.is_none());
    let unclear: BTreeSet<&str> = snapshot.bad.iter().filter_map(|b| b.handle.as_deref()).collect();
    let half: BTreeSet<&str> = snapshot.half_deleted.iter().filter_map(|(n, _)| n.strip_prefix("IPAMHandle/")).collect();
    let mut with_row = BTreeSet::new();
    for row in handles {
        with_row.insert(&row.key);
        let truth = held.get(&row.key);
        let name = format!("IPAMHandle/{}", row.key);
        let may_be_elsewhere = nameless_block || row.value.blocks.keys().any(|b| unclear_blocks.contains(b));
        let known = || row.value.blocks.keys().chain(truth.into_iter().flat_map(BTreeMap::keys)).filter(|c| !unclear_blocks.contains(c));
        let cidrs: BTreeSet<BlockCidr> = known().copied().collect();
        let subject = || SubjectRow::Handle(row.key.clone(), cidrs.iter().copied().collect());
        if truth.is_none() && !may_be_elsewhere {
            let blocks = row.value.blocks.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let finding = Finding::new(FindingKind::HandleOrphan, &name, format!("no block has an address of it; it names {blocks}"));
            findings.insert(finding.about(subject(), Some(&row.revision)));
            continue;
        }
        for cidr in &cidrs {
            let counted = row.value.blocks.get(cidr).copied().unwrap_or(0);
            let there = truth.and_then(|t| t.get(cidr)).copied().unwrap_or(0);
            if counted != there {
                let message = format!("counts {counted} in {cidr}, which has {there} of it");
                findings.insert(Finding::new(FindingKind::HandleCount, &name, message).about(subject(), Some(&row.revision)));
            }
        }
    }
    for (handle, blocks) in &held {
        let excused = with_row.contains(handle) || unclear.contains(handle.as_str()) || half.contains(handle.as_str());
        if !excused && !snapshot.bad.iter().any(|b| b.object.starts_with("IPAMHandle") && b.handle.is_none()) {
            let subject = SubjectRow::Handle(handle.clone(), blocks.keys().copied().collect());
            let blocks = blocks.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let message = format!("has no row although {blocks} has addresses of it");
            findings.insert(Finding::new(FindingKind::HandleMissing, format!("IPAMHandle/{handle}"), message).about(subject, None));
        }
    }
}

/// Affinities against the blocks.
pub(super) fn affinities(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    let Some(rows) = &snapshot.affinities else { return };
    let unclear: BTreeSet<BlockCidr> = snapshot.bad.iter().filter_map(|b| b.block).collect();
    let blocks: BTreeMap<BlockCidr, (Option<Owner>, &Revision)> =
        snapshot.blocks.iter().map(|r| (r.key, (r.value.owner(), &r.revision))).collect();
    let mut owners: BTreeMap<BlockCidr, Vec<&Owner>> = BTreeMap::new();
    for row in rows.iter().filter(|r| !unclear.contains(&r.key.1)) {
        let (owner, cidr) = &row.key;
        owners.entry(*cidr).or_default().push(owner);
        let (kind, message) = match blocks.get(cidr).map(|(of, _)| of) {
            None if row.value.state == AffinityState::Pending => {
                (FindingKind::AffinityPendingWithoutBlock, "pending, and there is no such block".into())
            }
            None => (FindingKind::AffinityWithoutBlock, "there is no such block".into()),
            Some(of) if of.as_ref() != Some(owner) => {
                let of = of.as_ref().map_or_else(|| "nobody".into(), ToString::to_string);
                (FindingKind::AffinityStale, format!("the block belongs to {of}"))
            }
            Some(_) => continue,
        };
        let subject = SubjectRow::Affinity(owner.clone(), *cidr);
        findings.insert(Finding::new(kind, affinity_name(&row.key), message).about(subject, Some(&row.revision)));
    }
    for (cidr, of) in owners.iter().filter(|(_, o)| o.len() > 1) {
        let of = of.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let finding = Finding::new(FindingKind::DuplicateAffinity, block_name(*cidr), format!("has affinities of {of}"));
        findings.insert(finding.about(SubjectRow::Block(*cidr), blocks.get(cidr).map(|(_, revision)| *revision)));
    }
    let half: BTreeSet<&str> = snapshot.half_deleted.iter().map(|(n, _)| n.as_str()).collect();
    let nameless_row = snapshot.bad.iter().any(|b| b.object.starts_with("BlockAffinity") && b.block.is_none());
    for (cidr, owner, revision) in blocks.iter().filter_map(|(c, (o, r))| Some((*c, o.as_ref()?, *r))) {
        let has_row = owners.get(&cidr).is_some_and(|o| o.contains(&owner));
        let excused = nameless_row || unclear.contains(&cidr) || half.contains(affinity_name(&(owner.clone(), cidr)).as_str());
        if !has_row && !excused {
            let message = format!("belongs to {owner}, who has no affinity for it");
            let finding = Finding::new(FindingKind::BlockWithoutAffinity, block_name(cidr), message);
            findings.insert(finding.about(SubjectRow::Block(cidr), Some(revision)));
        }
    }
}
