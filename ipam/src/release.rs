//! Releasing addresses: by exact identity, or by handle.

mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures::StreamExt;
use futures::stream;
use ipam_accounting::facts::sanitise;
use ipnet::IpNet;

use self::known::Handles;
pub use self::known::KnownHandles;
use crate::block::{BlockRelease, HandleCheck, OwnerSeen, ReleaseOption, Released, Stale};
use crate::clock::{Clock, round_up};
use crate::cold::put_back;
use crate::ids::{BlockCidr, HandleId, Owner};
use crate::model::{BlockKind, Config, HandleKind, PoolKind};
use crate::modify::{Change, ModifyError, RETRIES, modify};
use crate::planted::{Planted, planted};
use crate::store::{Datastore, Freshness, Row, StoreError, Table, Uid};
use crate::{ConfigError, Ipam};

/// One address to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    option: ReleaseOption,
    block: Option<BlockCidr>,
}

impl Release {
    /// The allocation with this identity and no other: address, handle (`None`: that it has none) and sequence
    /// number. `block`, when known, spares a search.
    pub fn exact(ip: IpAddr, handle: Option<&str>, seq: i64, block: Option<BlockCidr>) -> Self {
        let handle = handle.map_or(HandleCheck::None, |h| HandleCheck::Is(HandleId::new(h)));
        Self { option: ReleaseOption { ip, handle, seq: Some(seq), owner: None }, block }
    }

    /// The same, and only while it is this owner's on this node.
    #[must_use]
    pub fn owned_by(mut self, owner: Option<String>, node: Option<String>) -> Self {
        self.option.owner = Some(OwnerSeen { owner, node });
        self
    }

    /// Whatever is allocated at this address, by whoever: for a person who knows what they do.
    pub fn anything(ip: IpAddr) -> Self {
        Self { option: ReleaseOption { ip, handle: HandleCheck::Any, seq: None, owner: None }, block: None }
    }

    /// The address.
    pub fn ip(&self) -> IpAddr {
        self.option.ip
    }

    fn handle(&self) -> Option<&HandleId> {
        if let HandleCheck::Is(handle) = &self.option.handle { Some(handle) } else { None }
    }

    fn allocation(&self) -> (IpAddr, Option<i64>) {
        (self.option.ip, self.option.seq)
    }
}

/// What became of one address (D-66).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was released.
    Released,
    /// It was free or cooling already.
    AlreadyFree,
    /// It has changed since: look again.
    Stale(Stale),
    /// Its block could not be changed; nothing was written.
    Failed(String),
    /// It cannot be told: the write may have happened.
    Unknown(String),
}

/// What a release did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseReport {
    /// Per address, each once.
    pub outcomes: BTreeMap<IpAddr, Outcome>,
    /// Handles whose count could not be lowered, with the reason; index repair does it later.
    pub handles_behind: Vec<(HandleId, String)>,
}

/// Why a release failed as a whole, before its first write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The configuration could not be had.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Pools or blocks could not be read.
    #[error("finding the block of an address")]
    Store(#[source] StoreError),
    /// There is no such handle.
    #[error("there is no handle {0}")]
    NoSuchHandle(HandleId),
    /// A block or the handle of a release by handle could not be changed.
    #[error("releasing by handle in {0}")]
    Block(BlockCidr, #[source] ModifyError<std::convert::Infallible>),
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Releases addresses. Results are per address: a stale one, or a block that fails, does not stop the others.
    /// Blocks are written before the handles that count them, so that a count may be too high after a crash, never
    /// too low.
    ///
    /// # Errors
    /// Only before the first write: the configuration or the blocks could not be read.
    pub async fn release_ips(&self, releases: &[Release]) -> Result<ReleaseReport, ReleaseError> {
        self.release_ips_knowing(releases, &mut KnownHandles::default()).await
    }

    /// [`Ipam::release_ips`] as one of several calls, whose handles need not be read anew each time.
    ///
    /// # Errors
    /// As there.
    pub async fn release_ips_knowing(&self, releases: &[Release], known: &mut KnownHandles) -> Result<ReleaseReport, ReleaseError> {
        let config = self.get_config().await?;
        let mut report = ReleaseReport::default();
        let pools = Table::<PoolKind>::list(&self.store, &(), Freshness::Cached).await.map_err(ReleaseError::Store)?;
        let (by_block, nowhere) = self.group_by_block(releases, &pools).await?;
        report.outcomes.extend(nowhere.into_iter().map(|ip| (ip, Outcome::AlreadyFree)));
        let known = self.known_handles(releases, known).await;
        let works = by_block.into_iter().map(|(cidr, options)| self.release_in_block(cidr, options, &config, &known));
        let done: Vec<InBlock> = stream::iter(works).buffered(self.in_flight).collect().await;
        let mut lower: BTreeMap<(HandleId, Uid), Lower> = BTreeMap::new();
        let mut changed = Vec::new();
        for InBlock { cidr, outcomes, released } in done {
            report.outcomes.extend(outcomes);
            let Some(Written { counted, owner, mut rows }) = released else { continue };
            changed.push((cidr, owner));
            for (handle, n) in counted {
                match rows.remove(&handle) {
                    Some(Ok(Some(row))) => {
                        let key = (handle, row.uid.clone());
                        lower.entry(key).or_insert_with(|| Lower { row, counts: Vec::new() }).counts.push((cidr, n));
                    }
                    // Without row there is nothing to lower.
                    Some(Ok(None)) => {}
                    Some(Err(e)) => report.handles_behind.push((handle, chain(&e))),
                    None => report.handles_behind.push((handle, "its row was not read".into())),
                }
            }
        }
        let works = lower.values().map(|l| self.lower(&l.row, &l.counts));
        let behind: Vec<_> = stream::iter(works).buffered(self.in_flight).collect().await;
        report.handles_behind.extend(behind.into_iter().flatten());
        for (cidr, owner) in changed {
            self.keep_consistent(cidr, owner, &pools).await;
        }
        Ok(report)
    }

    /// Rows of the handles that are to be released, as they are before.
    async fn known_handles(&self, releases: &[Release], known: &mut KnownHandles) -> Handles {
        if known.wants_list(releases) {
            match Table::<HandleKind>::list(&self.store, &(), Freshness::Latest).await {
                Ok(rows) => known.learn(rows, releases),
                Err(e) => return releases.iter().filter_map(Release::handle).map(|h| (h.clone(), Err(e.clone()))).collect(),
            }
        }
        let mut handles = known.take(releases);
        let rest: BTreeSet<HandleId> = releases.iter().filter_map(Release::handle).filter(|h| !handles.contains_key(*h)).cloned().collect();
        handles.extend(self.read_handles(rest).await);
        handles
    }

    async fn read_handles(&self, handles: impl IntoIterator<Item = HandleId>) -> Handles {
        let read = |handle: HandleId| async move { (handle.clone(), Table::<HandleKind>::get(&self.store, &handle).await) };
        stream::iter(handles).map(read).buffered(self.in_flight).collect().await
    }

    async fn group_by_block(
        &self,
        releases: &[Release],
        pools: &[Row<PoolKind>],
    ) -> Result<(BTreeMap<BlockCidr, Vec<ReleaseOption>>, Vec<IpAddr>), ReleaseError> {
        let (mut by_block, mut nowhere) = (BTreeMap::<BlockCidr, Vec<_>>::new(), Vec::new());
        let mut cidrs: Option<Vec<BlockCidr>> = None;
        for r in releases {
            let block = match r.block {
                Some(block) => Some(block),
                None => {
                    if cidrs.is_none() {
                        cidrs = Some(self.known_blocks(releases, pools).await?);
                    }
                    cidrs.iter().flatten().find(|c| c.ordinal(r.option.ip).is_some()).copied()
                }
            };
            match block {
                Some(block) => by_block.entry(block).or_default().push(r.option.clone()),
                None => nowhere.push(r.option.ip),
            }
        }
        Ok((by_block, nowhere))
    }

    /// The blocks that the pools say, where they exist, else all blocks (D-58).
    async fn known_blocks(&self, releases: &[Release], pools: &[Row<PoolKind>]) -> Result<Vec<BlockCidr>, ReleaseError> {
        let mut blocks = Vec::new();
        for r in releases.iter().filter(|r| r.block.is_none()) {
            let pool = pools.iter().find(|p| p.value.cidr.as_ref().is_ok_and(|c| c.contains(&r.option.ip)));
            let cidr = pool.and_then(|p| IpNet::new(r.option.ip, p.value.block_size).ok()).and_then(|n| BlockCidr::new(n).ok());
            let Some(cidr) = cidr else { return self.all_blocks().await };
            if Table::<BlockKind>::get(&self.store, &cidr).await.map_err(ReleaseError::Store)?.is_none() {
                return self.all_blocks().await;
            }
            blocks.push(cidr);
        }
        Ok(blocks)
    }

    async fn all_blocks(&self) -> Result<Vec<BlockCidr>, ReleaseError> {
        let rows = Table::<BlockKind>::list(&self.store, &(), Freshness::Latest).await.map_err(ReleaseError::Store)?;
        Ok(rows.into_iter().map(|r| r.key).collect())
    }

    async fn release_in_block(&self, cidr: BlockCidr, mut options: Vec<ReleaseOption>, config: &Config, known: &Handles) -> InBlock {
        if planted(Planted::ReleaseWithoutSequence) {
            options.iter_mut().for_each(|o| o.seq = None);
        }
        for row in known.values().flatten().flatten().filter(|_| planted(Planted::LowerBeforeRelease)) {
            self.lower(row, &[(cidr, 1)]).await;
        }
        let mut rows: Handles = BTreeMap::new();
        for _ in 0..RETRIES {
            let done = modify::<BlockKind, _, _, NotReleased, _>(&self.store, &cidr, |row| {
                let Some(row) = row else { return Ok(Change::Keep(Seen::NoBlock)) };
                let mut block = row.value.clone();
                let now = self.clock.now();
                let out = block.release(&options, round_up(now), config.cooldown()).map_err(|e| NotReleased::Wrong(e.to_string()))?;
                if out.results.iter().all(|(_, r)| *r != Released::Yes) {
                    return Ok(Change::Keep(Seen::Nothing(out)));
                }
                let unread: Vec<HandleId> =
                    out.counts.keys().filter(|h| !known.contains_key(*h) && !rows.contains_key(*h)).cloned().collect();
                if !unread.is_empty() {
                    return Err(NotReleased::Unread(unread));
                }
                let owner = block.owner();
                Ok(put_back(block, |_| Seen::Wrote(out, owner)))
            });
            match done.await {
                Err(ModifyError::Own(NotReleased::Unread(handles))) => rows.extend(self.read_handles(handles).await),
                done => return in_block(cidr, &options, done, |h| rows.remove(h).or_else(|| known.get(h).cloned())),
            }
        }
        in_block(cidr, &options, Err(ModifyError::TooManyRetries), |_| None)
    }

    /// Releases every address of a handle, in every block that its row names, and lowers its counts. Answers with the
    /// released addresses. A row that names only blocks that are gone goes too; otherwise such entries are index repair's
    /// (docs/decisions.md 19).
    ///
    /// # Errors
    /// No such handle; a block or the row could not be changed: then what came before is done.
    pub async fn release_by_handle(&self, handle: &HandleId) -> Result<Vec<IpAddr>, ReleaseError> {
        let config = self.get_config().await?;
        let pools = Table::<PoolKind>::list(&self.store, &(), Freshness::Cached).await.map_err(ReleaseError::Store)?;
        let row = Table::<HandleKind>::get(&self.store, handle).await.map_err(ReleaseError::Store)?;
        let row = row.filter(|r| sanitise(&r.value.id) == handle.as_str()).ok_or_else(|| ReleaseError::NoSuchHandle(handle.clone()))?;
        let (mut ips, mut counts, mut gone, mut failed) = (Vec::new(), Vec::new(), false, None);
        for (&cidr, &entry) in &row.value.blocks {
            let released = modify::<BlockKind, _, _, _, _>(&self.store, &cidr, |row| {
                let Some(row) = row else { return Ok(Change::Keep(None)) };
                let mut block = row.value.clone();
                let now = round_up(self.clock.now());
                let mut released = block.release_by_handle(handle, None, now, config.cooldown());
                for other in row.value.attributes.iter().filter_map(|a| a.handle.as_deref()).filter(|_| planted(Planted::ReleaseOthers)) {
                    released.extend(block.release_by_handle(&HandleId::new(other), None, now, config.cooldown()));
                }
                let owner = block.owner();
                Ok(if released.is_empty() { Change::Keep(Some((released, None))) } else { put_back(block, |_| Some((released, owner))) })
            });
            match released.await {
                Ok(Some((released, owner))) => {
                    // One that has no address of it keeps its entry: index repair's business.
                    let n = if planted(Planted::DropCounts) { entry } else { released.len() as i64 };
                    counts.extend((n > 0).then_some((cidr, n)));
                    ips.extend(released);
                    self.keep_consistent(cidr, owner, &pools).await;
                }
                Ok(None) => gone = true,
                Err(e) => {
                    failed = Some(ReleaseError::Block(cidr, e));
                    break;
                }
            }
        }
        if !counts.is_empty() {
            self.lower(&row, &counts).await;
        }
        if gone {
            self.drop_if_gone(handle).await;
        }
        failed.map_or(Ok(ips), Err)
    }
}

/// What became of the addresses of one block.
struct InBlock {
    cidr: BlockCidr,
    outcomes: Vec<(IpAddr, Outcome)>,
    released: Option<Written>,
}

/// A block that was written: what each handle has less, with its row from before, and whose block it is.
struct Written {
    counted: BTreeMap<HandleId, i64>,
    owner: Option<Owner>,
    rows: Handles,
}

/// What is to be taken from the counts of a handle, whose row was read before.
struct Lower {
    row: Row<HandleKind>,
    counts: Vec<(BlockCidr, i64)>,
}

/// What a release found in a block.
enum Seen {
    NoBlock,
    Nothing(BlockRelease),
    Wrote(BlockRelease, Option<Owner>),
}

/// Why nothing was released yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NotReleased {
    /// The rows of these handles have to be read first.
    #[error("handles are not read")]
    Unread(Vec<HandleId>),
    #[error("{0}")]
    Wrong(String),
}

fn in_block(
    cidr: BlockCidr,
    options: &[ReleaseOption],
    done: Result<Seen, ModifyError<NotReleased>>,
    mut row: impl FnMut(&HandleId) -> Option<Result<Option<Row<HandleKind>>, StoreError>>,
) -> InBlock {
    let all = |outcome: Outcome| options.iter().map(|o| (o.ip, outcome.clone())).collect();
    let told = |results: Vec<(IpAddr, Released)>| results.into_iter().map(|(ip, r)| (ip, r.into())).collect();
    let (outcomes, released) = match done {
        Ok(Seen::NoBlock) => (all(Outcome::AlreadyFree), None),
        Ok(Seen::Nothing(out)) => (told(out.results), None),
        Ok(Seen::Wrote(BlockRelease { results, counts }, owner)) => {
            let rows = counts.keys().filter_map(|h| Some((h.clone(), row(h)?))).collect();
            (told(results), Some(Written { counted: counts, owner, rows }))
        }
        Err(ModifyError::Unknown(e)) => (all(Outcome::Unknown(e.to_string())), None),
        Err(e) => (all(Outcome::Failed(chain(&e))), None),
    };
    InBlock { cidr, outcomes, released }
}

impl From<Released> for Outcome {
    fn from(released: Released) -> Self {
        match released {
            Released::Yes => Outcome::Released,
            Released::AlreadyFree => Outcome::AlreadyFree,
            Released::Stale(stale) => Outcome::Stale(stale),
        }
    }
}

/// An error and its sources in one line.
pub fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(s) = source {
        text.push_str(": ");
        text.push_str(&s.to_string());
        source = s.source();
    }
    text
}
