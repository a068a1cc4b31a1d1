//! Releasing addresses: by exact identity, or by handle.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures::StreamExt;
use futures::stream;
use ipam_accounting::facts::sanitise;
use ipnet::IpNet;

use crate::block::{BlockRelease, HandleCheck, ReleaseOption, Released, Stale};
use crate::clock::{Clock, round_up};
use crate::cold::put_back;
use crate::ids::{BlockCidr, HandleId, Owner};
use crate::model::{BlockKind, Config, Handle, HandleKind, PoolKind};
use crate::modify::{Change, ModifyError, modify, modify_from};
use crate::planted::{Planted, planted};
use crate::store::{Datastore, Freshness, Row, StoreError, Table};
use crate::{ConfigError, Ipam};

/// How many blocks, or handles, are written at a time.
const IN_FLIGHT: usize = 16;

/// From how many handles on one list of all of them is cheaper.
const BULK: usize = 500;

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
        Self { option: ReleaseOption { ip, handle, seq: Some(seq) }, block }
    }

    /// Whatever is allocated at this address, by whoever: for a person who knows what they do.
    pub fn anything(ip: IpAddr) -> Self {
        Self { option: ReleaseOption { ip, handle: HandleCheck::Any, seq: None }, block: None }
    }

    /// The address.
    pub fn ip(&self) -> IpAddr {
        self.option.ip
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

/// What became of the addresses of one block; when it was written, with what was released per handle and whose block it is.
type InBlock = (BlockCidr, Vec<(IpAddr, Outcome)>, Option<(BTreeMap<HandleId, i64>, Option<Owner>)>);

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Releases addresses. Results are per address: a stale one, or a block that fails, does not stop the others.
    /// Blocks are written before the handles that count them, so that a count may be too high after a crash, never
    /// too low.
    ///
    /// # Errors
    /// Only before the first write: the configuration or the blocks could not be read.
    pub async fn release_ips(&self, releases: &[Release]) -> Result<ReleaseReport, ReleaseError> {
        let config = self.get_config().await?;
        let mut report = ReleaseReport::default();
        let pools = Table::<PoolKind>::list(&self.store, &(), Freshness::Cached).await.map_err(ReleaseError::Store)?;
        let (by_block, nowhere) = self.group_by_block(releases, &pools).await?;
        report.outcomes.extend(nowhere.into_iter().map(|ip| (ip, Outcome::AlreadyFree)));
        let works = by_block.into_iter().map(|(cidr, options)| self.release_in_block(cidr, options, &config));
        let done: Vec<_> = stream::iter(works).buffered(IN_FLIGHT).collect().await;
        let mut counts: BTreeMap<HandleId, Vec<(BlockCidr, i64)>> = BTreeMap::new();
        let mut changed = Vec::new();
        for (cidr, outcomes, released) in done {
            report.outcomes.extend(outcomes);
            let Some((counted, owner)) = released else { continue };
            changed.push((cidr, owner));
            for (handle, n) in counted {
                counts.entry(handle).or_default().push((cidr, n));
            }
        }
        let mut known = self.known_handles(counts.len()).await;
        let works = counts.into_iter().map(|(handle, counts)| {
            let row = known.remove(&handle);
            self.lower_from(handle, counts, row)
        });
        let behind: Vec<_> = stream::iter(works).buffered(IN_FLIGHT).collect().await;
        report.handles_behind = behind.into_iter().flatten().collect();
        for (cidr, owner) in changed {
            self.keep_consistent(cidr, owner, &pools).await;
        }
        Ok(report)
    }

    /// Rows of all handles, when one list is cheaper than reading them one by one (performance.md).
    async fn known_handles(&self, wanted: usize) -> BTreeMap<HandleId, Row<HandleKind>> {
        if wanted < BULK {
            return BTreeMap::new();
        }
        let rows = Table::<HandleKind>::list(&self.store, &(), Freshness::Latest).await.unwrap_or_default();
        rows.into_iter().map(|r| (r.key.clone(), r)).collect()
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

    async fn release_in_block(&self, cidr: BlockCidr, mut options: Vec<ReleaseOption>, config: &Config) -> InBlock {
        if planted(Planted::ReleaseWithoutSequence) {
            options.iter_mut().for_each(|o| o.seq = None);
        }
        for option in options.iter().filter(|_| planted(Planted::LowerBeforeRelease)) {
            if let HandleCheck::Is(handle) = &option.handle {
                self.lower(handle.clone(), vec![(cidr, 1)]).await;
            }
        }
        let ips: Vec<IpAddr> = options.iter().map(|o| o.ip).collect();
        let all = |outcome: Outcome| ips.iter().map(|ip| (*ip, outcome.clone())).collect();
        let done = modify::<BlockKind, _, _, Reason, _>(&self.store, &cidr, |row| {
            let Some(row) = row else { return Ok(Change::Keep(None)) };
            let mut block = row.value.clone();
            let now = self.clock.now();
            let out = block.release(&options, round_up(now), config.cooldown()).map_err(|e| Reason(e.to_string()))?;
            if out.results.iter().all(|(_, r)| *r != Released::Yes) {
                return Ok(Change::Keep(Some((out, None))));
            }
            let owner = block.owner();
            Ok(put_back(block, |_| Some((out, owner))))
        })
        .await;
        match done {
            Ok(None) => (cidr, all(Outcome::AlreadyFree), None),
            Ok(Some((BlockRelease { results, counts }, owner))) => {
                let wrote = results.iter().any(|(_, r)| *r == Released::Yes);
                (cidr, results.into_iter().map(|(ip, r)| (ip, r.into())).collect(), wrote.then_some((counts, owner)))
            }
            Err(ModifyError::Unknown(e)) => (cidr, all(Outcome::Unknown(e.to_string())), None),
            Err(e) => (cidr, all(Outcome::Failed(chain(&e))), None),
        }
    }

    /// Lowers a handle's counts after a release; the last one deletes the row.
    pub(crate) async fn lower(&self, handle: HandleId, counts: Vec<(BlockCidr, i64)>) -> Option<(HandleId, String)> {
        self.lower_from(handle, counts, None).await
    }

    /// The same, beginning with a row that was read already.
    async fn lower_from(
        &self,
        handle: HandleId,
        counts: Vec<(BlockCidr, i64)>,
        known: Option<Row<HandleKind>>,
    ) -> Option<(HandleId, String)> {
        let done = modify_from::<HandleKind, _, _, _, _>(&self.store, &handle, known, |row| {
            let Some(row) = row else { return Ok(Change::Keep(())) };
            if sanitise(&row.value.id) != handle.as_str() {
                return Err(Reason(format!("its row belongs to {}", row.value.id)));
            }
            lowered(row, &counts)
        })
        .await;
        done.err().map(|e| (handle, chain(&e)))
    }

    /// Releases every address of a handle, in every block that its row names, and lowers its counts. Answers with the
    /// released addresses. A block that is gone loses its entry; one that has no address of it keeps it for index
    /// repair (D-60).
    ///
    /// # Errors
    /// No such handle; a block or the row could not be changed: then what came before is done.
    pub async fn release_by_handle(&self, handle: &HandleId) -> Result<Vec<IpAddr>, ReleaseError> {
        let config = self.get_config().await?;
        let pools = Table::<PoolKind>::list(&self.store, &(), Freshness::Cached).await.map_err(ReleaseError::Store)?;
        let row = Table::<HandleKind>::get(&self.store, handle).await.map_err(ReleaseError::Store)?;
        let row = row.filter(|r| sanitise(&r.value.id) == handle.as_str()).ok_or_else(|| ReleaseError::NoSuchHandle(handle.clone()))?;
        let mut ips = Vec::new();
        for (&cidr, &entry) in &row.value.blocks {
            let released = modify::<BlockKind, _, _, _, _>(&self.store, &cidr, |row| {
                let Some(row) = row else { return Ok(Change::Keep(None)) };
                let mut block = row.value.clone();
                let released = block.release_by_handle(handle, None, round_up(self.clock.now()), config.cooldown());
                let owner = block.owner();
                Ok(if released.is_empty() { Change::Keep(Some((released, None))) } else { put_back(block, |_| Some((released, owner))) })
            });
            let released = released.await.map_err(|e| ReleaseError::Block(cidr, e))?;
            // A block that is gone keeps no entry; one without an address of it is index repair's business.
            let gone = released.as_ref().map_or(entry, |(ips, _)| if planted(Planted::DropCounts) { entry } else { ips.len() as i64 });
            if gone > 0 {
                self.lower(handle.clone(), vec![(cidr, gone)]).await;
            }
            if let Some((released, owner)) = released {
                ips.extend(released);
                self.keep_consistent(cidr, owner, &pools).await;
            }
        }
        Ok(ips)
    }
}

/// Why a row was left alone, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Reason(String);

fn lowered(row: &Row<HandleKind>, counts: &[(BlockCidr, i64)]) -> Result<Change<Handle, ()>, Reason> {
    let mut handle = row.value.clone();
    for (cidr, n) in counts {
        let left = handle.blocks.get(cidr).copied().unwrap_or(0) - n;
        match left {
            ..0 => return Err(Reason(format!("its count for {cidr} is lower than {n}"))),
            0 => drop(handle.blocks.remove(cidr)),
            _ => drop(handle.blocks.insert(*cidr, left)),
        }
    }
    Ok(if handle.blocks.is_empty() || planted(Planted::LowerDeletes) { Change::Delete(()) } else { Change::Write(handle, ()) })
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
