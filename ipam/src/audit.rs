//! Consistency of a whole store: one checker for the operator, the command line and the tests.
//!
//! Findings are immediate; what may be repaired, and when, is somebody else's decision (D-50).

mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipam_accounting::facts::Class;
use ipam_accounting::set::Ranges;
use ipam_accounting::{Evidence, Inventory, Verdict, judge};

use crate::clock::Time;
use crate::ids::{BlockCidr, HandleId, Owner};
use crate::model::{AffinityKind, BlockKind, HandleKind, PoolKind, ReservationKind, Rows};
use crate::store::{Datastore, Freshness, Revision, Row, StoreError, Table};

/// How bad a finding is; `Info` is no problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Normal, but good to know.
    Info,
    /// An index that is wrong; the blocks are right.
    Warning,
    /// Addresses may be lost, or given to two.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $severity:ident;)*) => {
        /// What is wrong (D-47, D-87).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FindingKind {
            $($(#[$doc])* $name,)*
        }

        impl FindingKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name in outputs.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity),* }
            }
        }
    };
}
kinds! {
    /// A handle counts more or fewer addresses in a block than the block has of it.
    HandleCount = "handle-count", Warning;
    /// No block has an address of a handle.
    HandleOrphan = "handle-orphan", Warning;
    /// A block has addresses of a handle that has no row.
    HandleMissing = "handle-missing", Error;
    /// The deletion of a row was begun and not finished.
    HalfDeleted = "half-deleted", Warning;
    /// A pending affinity without block.
    AffinityPendingWithoutBlock = "affinity-pending-without-block", Warning;
    /// An affinity without block.
    AffinityWithoutBlock = "affinity-without-block", Warning;
    /// An affinity whose block names another owner, or none.
    AffinityStale = "affinity-stale", Warning;
    /// A block whose owner has no affinity for it.
    BlockWithoutAffinity = "block-without-affinity", Warning;
    /// An empty block of nobody.
    BlockUnownedEmpty = "block-unowned-empty", Info;
    /// Two blocks that share addresses.
    BlocksOverlap = "blocks-overlap", Error;
    /// A block that breaks a rule and can be acted on all the same.
    BlockInvalid = "block-invalid", Warning;
    /// An object that was not understood; nothing is done that might have to do with it.
    BadObject = "bad-object", Error;
    /// A reserved address is allocated: normal when the reservation came later.
    ReservedAllocated = "reserved-allocated", Info;
    /// A pod reports an address of a pool that is not allocated.
    UsedUnallocated = "used-unallocated", Error;
    /// A pod reports an address that is allocated to somebody else.
    UsedByOther = "used-by-other", Error;
    /// Two affinities for one block.
    DuplicateAffinity = "duplicate-affinity", Warning;
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// Of which object, as `Kind/name`.
    pub object: String,
    /// In words.
    pub message: String,
    /// The row that a repair would change, as it was seen; `None`: nothing can be repaired.
    pub subject: Option<Subject>,
}

/// A row as a finding saw it. Two equal findings saw the same revision (D-18).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Which row.
    pub row: SubjectRow,
    /// Its revision; `None`: it was not there.
    pub seen: Option<Revision>,
}

/// The row that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectRow {
    /// A block.
    Block(BlockCidr),
    /// An affinity.
    Affinity(Owner, BlockCidr),
    /// A handle, with the blocks that it names or that name it, as far as they were understood.
    Handle(HandleId, Vec<BlockCidr>),
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, object: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, object: object.into(), message: message.into(), subject: None }
    }

    /// The same, about a row.
    fn about(self, row: SubjectRow, seen: Option<&Revision>) -> Self {
        Self { subject: Some(Subject { row, seen: seen.cloned() }), ..self }
    }

    /// As outputs write it: `kind`, `severity`, `object`, `message`.
    pub fn fields(&self) -> BTreeMap<&'static str, String> {
        let Self { kind, object, message, subject: _ } = self;
        let severity = kind.severity().to_string();
        [("kind", kind.name().into()), ("severity", severity), ("object", object.clone()), ("message", message.clone())].into()
    }

    /// Whether it makes a check fail (D-43).
    pub fn is_problem(&self) -> bool {
        self.kind.severity() > Severity::Info
    }
}

/// An object that was not understood.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BadObject {
    /// As `Kind/name`, as far as it can be told.
    pub object: String,
    /// Which field, and why.
    pub message: String,
    /// The block that it is or speaks of, if that can be told.
    pub block: Option<BlockCidr>,
    /// The sanitised handle that it is, if it is one.
    pub handle: Option<String>,
}

/// Everything that an audit looks at.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Blocks.
    pub blocks: Vec<Row<BlockKind>>,
    /// Affinities; `None`: the kind was not there at all.
    pub affinities: Option<Vec<Row<AffinityKind>>>,
    /// Handles; `None`: the kind was not there at all.
    pub handles: Option<Vec<Row<HandleKind>>>,
    /// Half-deleted rows, with their names as `Kind/name`.
    pub half_deleted: Vec<(String, Subject)>,
    /// Pools.
    pub pools: Vec<Row<PoolKind>>,
    /// Reserved addresses.
    pub reserved: Ranges,
    /// Objects that were not understood.
    pub bad: Vec<BadObject>,
}

impl Snapshot {
    /// Reads a store. A kind without a single row counts as not there when `partial` is set (D-35, D-50).
    ///
    /// # Errors
    /// A table could not be read.
    pub async fn read<S: Datastore>(store: &S, bad: Vec<BadObject>, partial: bool) -> Result<Self, StoreError> {
        let fresh = Freshness::Latest;
        let affinities = Table::<AffinityKind>::list(store, &Rows::All, fresh).await?;
        let handles = Table::<HandleKind>::list(store, &(), fresh).await?;
        let half_blocks = Table::<BlockKind>::half_deleted(store).await?;
        let half_rows = Table::<AffinityKind>::half_deleted(store).await?;
        let half_handles = Table::<HandleKind>::half_deleted(store).await?;
        let none_at_all = |n: usize, half: usize| partial && n == 0 && half == 0;
        let reservations = Table::<ReservationKind>::list(store, &(), fresh).await?;
        let subject = |row, seen: &Revision| Subject { row, seen: Some(seen.clone()) };
        let mut half_deleted: Vec<(String, Subject)> =
            half_blocks.iter().map(|r| (rows::block_name(r.key), subject(SubjectRow::Block(r.key), &r.revision))).collect();
        half_deleted.extend(half_rows.iter().map(|r| {
            let (owner, cidr) = r.key.clone();
            (rows::affinity_name(&r.key), subject(SubjectRow::Affinity(owner, cidr), &r.revision))
        }));
        half_deleted.extend(half_handles.iter().map(|r| {
            let row = SubjectRow::Handle(r.key.clone(), Vec::new());
            (format!("IPAMHandle/{}", r.key), subject(row, &r.revision))
        }));
        Ok(Self {
            blocks: Table::<BlockKind>::list(store, &(), fresh).await?,
            affinities: (!none_at_all(affinities.len(), half_rows.len())).then_some(affinities),
            handles: (!none_at_all(handles.len(), half_handles.len())).then_some(handles),
            half_deleted,
            pools: Table::<PoolKind>::list(store, &(), fresh).await?,
            reserved: reservations.iter().flat_map(|r| r.value.set().nets().collect::<Vec<_>>()).collect(),
            bad,
        })
    }
}

/// Checks a store. With `cluster`, also who uses which address. Findings come sorted, each once.
pub fn audit(snapshot: &Snapshot, cluster: Option<&Inventory>, now: Time) -> Vec<Finding> {
    let mut findings = BTreeSet::new();
    for bad in &snapshot.bad {
        findings.insert(Finding::new(FindingKind::BadObject, &bad.object, &bad.message));
    }
    for (object, subject) in &snapshot.half_deleted {
        let finding = Finding::new(FindingKind::HalfDeleted, object, "its deletion was begun and not finished");
        findings.insert(Finding { subject: Some(subject.clone()), ..finding });
    }
    rows::blocks(snapshot, now, &mut findings);
    rows::handles(snapshot, &mut findings);
    rows::affinities(snapshot, &mut findings);
    if let Some(cluster) = cluster {
        used(snapshot, cluster, &mut findings);
    }
    findings.into_iter().collect()
}

/// Addresses that pods report and that are allocated to nobody, or to somebody else.
fn used(snapshot: &Snapshot, cluster: &Inventory, findings: &mut BTreeSet<Finding>) {
    for (_, block) in cluster.blocks() {
        for slot in &block.slots {
            let a = cluster.allocation(block, slot);
            if judge(&a, cluster) == Verdict::InUse(ipam_accounting::judge::InUse::ReportedByOther)
                && let Some(pod) = cluster.reporter(a.ip, None)
            {
                let owner = match a.class {
                    Class::Pod(owner) => format!("pod {}", cluster.pod_text(owner)),
                    _ => "something else".into(),
                };
                let message = format!("reported by pod {}, allocated to {owner}", cluster.pod_text(pod));
                findings.insert(Finding::new(FindingKind::UsedByOther, format!("IP/{}", a.ip), message));
            }
        }
    }
    let active: Ranges = snapshot.pools.iter().filter(|p| !p.value.disabled).filter_map(|p| p.value.cidr.clone().ok()).collect();
    let unclear: BTreeSet<BlockCidr> = snapshot.bad.iter().filter_map(|b| b.block).collect();
    let unclear_at_all = snapshot.bad.iter().any(|b| b.object.starts_with("IPAMBlock") && b.block.is_none());
    for (ip, pod) in cluster.reported().filter(|(ip, _)| active.contains(*ip)) {
        let known = cluster.block_with(ip).is_some_and(|(_, b)| holds(b, ip));
        if !known && !unclear_at_all && !unclear.iter().any(|b| b.ordinal(ip).is_some()) {
            let message = format!("reported by pod {}, allocated to nobody", cluster.pod_text(pod));
            findings.insert(Finding::new(FindingKind::UsedUnallocated, format!("IP/{ip}"), message));
        }
    }
}

fn holds(block: &ipam_accounting::inventory::Block, ip: IpAddr) -> bool {
    let ordinal = ipam_accounting::set::ordinal_of(block.cidr, ip).and_then(|o| u16::try_from(o).ok());
    ordinal.is_some_and(|o| block.slot(o).is_some())
}

/// How many findings there are of each kind.
pub fn count(findings: &[Finding]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    findings.iter().for_each(|f| *counts.entry(f.kind.name()).or_default() += 1);
    counts
}
