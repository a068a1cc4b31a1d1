//! One family of a request: own blocks, then a new one, then other hosts' blocks.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ipam_accounting::set::overlap;
use ipnet::IpNet;

use super::reads::Snapshot;
use super::turns::{Lists, Span, Turn};
use super::{AssignError, AutoAssign, DEFAULT_MAX_BLOCKS, Got, at, block_limit};
use crate::Ipam;
use crate::affinity::{Conditions, GiveBackError};
use crate::block::Block;
use crate::claim::{ClaimError, Claimed, Owned};
use crate::clock::{Clock, Time};
use crate::handles::{CountError, Counted};
use crate::ids::{BlockCidr, Owner};
use crate::model::{AffinityKind, AffinityState, BlockKind};
use crate::modify::{ModifyError, RETRIES};
use crate::order::BlockOrder;
use crate::planted::{Planted, planted};
use crate::pools::{Family, PoolClaim, Wanted, qualify};
use crate::store::{Datastore, Freshness, Row, StoreError, Table};

/// Youngest age at which another host's empty block may be taken (the seed's `EmptyBlockMinReclaimAge`).
const YOUNGEST: chrono::TimeDelta = chrono::TimeDelta::minutes(1);
/// How many blocks of a pool are looked at for one that is not there: only wide reservations can hide it for so long.
const FARTHEST: usize = 1 << 20;
/// After how many lost claims the blocks are listed again; then each time that these have doubled.
const CROWD: usize = 4;
/// How often a handle at its cap is looked at again before giving up (F-05).
const CAP_TRIES: usize = 3;

/// Everything a family's assignment carries along.
struct Work<'a> {
    args: &'a AutoAssign,
    family: Family,
    owner: Owner,
    seen: Snapshot,
    /// When that was read; the caller's own snapshot has none.
    read: Option<Span>,
    /// The owner's block that was written last.
    last: Option<Row<BlockKind>>,
    claim: PoolClaim,
    got: Got,
    /// Blocks that were tried and had nothing left.
    tried: BTreeSet<BlockCidr>,
    /// Claims that others were faster with.
    lost: usize,
}

impl Work<'_> {
    fn missing(&self) -> usize {
        self.got.requested - self.got.ips.len() - self.got.unknown.len()
    }

    fn cap(&self) -> u32 {
        block_limit(&self.seen.config, self.args.max_blocks).unwrap_or(DEFAULT_MAX_BLOCKS)
    }

    /// What the order of blocks begins with: the host, so that its processes meet in one block. After a lost race another place,
    /// else the hosts of a crowd follow each other from block to block.
    fn start(&self) -> Cow<'_, str> {
        let host = self.args.host.as_str();
        if self.lost == 0 { host.into() } else { format!("{host} {}", self.lost).into() }
    }

    /// The owner's rows of blocks that the request may draw from (D-5), whatever their state.
    fn owned(&self) -> Vec<Row<AffinityKind>> {
        let mine = |r: &&Row<AffinityKind>| Family::of(r.key.1.net()) == self.family && self.claim.may_use(r.key.1);
        self.seen.rows.iter().filter(mine).cloned().collect()
    }

    /// The block of a row, if it was written last and has room. One that seems full is read: addresses may have come back.
    fn remembered(&mut self, row: &Row<AffinityKind>, now: Time) -> Option<Row<BlockKind>> {
        let confirmed = matches!(row.value.state, AffinityState::Confirmed | AffinityState::Old);
        let last = self.last.take_if(|last| confirmed && last.key == row.key.1)?;
        (collected(&last.value, now, self).free(&self.seen.reserved) > 0).then_some(last)
    }

    fn strict(&self) -> Option<&Owner> {
        self.seen.config.strict_affinity.then_some(&self.owner)
    }
}

/// How an attempt on a block ended.
enum Took {
    /// It gave what it had; perhaps nothing.
    Some,
    /// The handle is at its cap, and has what was asked for.
    HandleHas(Vec<IpNet>),
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    pub(super) async fn assign_family(&self, args: &AutoAssign, family: Family) -> Result<Got, AssignError> {
        let owner = args.owner();
        let mut turn = self.turns.wait(&owner, family).await;
        let (seen, read) = self.first_reading(args, &owner, &mut turn).await?;
        let claim = self.qualified(args, family, &seen)?;
        let reserved_by = args.reserve[at(family)].as_ref().map(|r| r.handle.clone());
        let got = Got { requested: args.num[at(family)], reserved_by, ..Got::default() };
        let mut work = Work { args, family, owner, seen, read, last: turn.take_block(), claim, got, tried: BTreeSet::new(), lost: 0 };
        match self.fill(&mut work, &turn).await {
            Ok(()) => turn.leave(work.read.map(|span| Lists { seen: work.seen, span }), work.last),
            Err(e) => {
                if let AssignError::BlockLimit(_) = e {
                    work.got.say(e.to_string());
                }
                work.got.stopped = Some(e);
            }
        }
        Ok(work.got)
    }

    /// The caller's snapshot, or what the call before this one read, or a reading of its own.
    async fn first_reading(&self, args: &AutoAssign, owner: &Owner, turn: &mut Turn) -> Result<(Snapshot, Option<Span>), AssignError> {
        if let Some(snapshot) = &args.snapshot {
            return Ok((snapshot.clone(), None));
        }
        if let Some(Lists { seen, span }) = turn.take_lists(args.fresh) {
            return Ok((seen, Some(span)));
        }
        let began = turn.came();
        let seen = self.read_all(owner, args.fresh).await?;
        Ok((seen, Some(turn.since(began))))
    }

    fn qualified(&self, args: &AutoAssign, family: Family, seen: &Snapshot) -> Result<PoolClaim, AssignError> {
        if args.windows && !seen.config.strict_affinity {
            return Err(AssignError::StrictAffinityRequired);
        }
        let wanted = Wanted {
            family,
            intended_use: &args.intended_use,
            named: &args.pools[at(family)],
            host: &args.host,
            node: &seen.node,
            namespace: args.namespace.as_ref(),
            reserve: args.reserve[at(family)].as_ref(),
        };
        Ok(qualify(&seen.pools, &wanted)?)
    }

    async fn fill(&self, work: &mut Work<'_>, turn: &Turn) -> Result<(), AssignError> {
        self.give_up_deselected(work).await;
        if self.fill_owned(work).await? {
            return Ok(());
        }
        // New blocks, other hosts' blocks and "no space" are decided on what is certain (D-61).
        let own_reading = work.read.is_some_and(|read| turn.covers(read));
        let began = turn.came();
        let (seen, mut blocks) = self.read_again(&work.owner, &work.seen, own_reading).await?;
        work.claim = self.qualified(work.args, work.family, &seen)?;
        work.seen = seen;
        work.read = Some(turn.since(began));
        if self.fill_owned(work).await? {
            return Ok(());
        }
        while work.missing() > 0 {
            let begun = self.begun(work, &blocks).await?;
            let limit = work.cap();
            // Finishing a claim that was begun is not a new claim (D-63).
            if begun.is_none() && work.owned().len() >= limit as usize {
                return Err(AssignError::BlockLimit(limit));
            }
            if begun.is_none() && !work.seen.config.auto_allocate_blocks {
                return Err(AssignError::AutoAllocateOff);
            }
            let Some(row) = self.new_block(work, &mut blocks).await? else { break };
            if self.take(work, row.key, Some(row), true).await? {
                return Ok(());
            }
        }
        if work.missing() == 0 {
            return Ok(());
        }
        if work.seen.config.strict_affinity {
            work.got.say("No more free affine blocks and strict affinity enabled".into());
            return Ok(());
        }
        self.borrow(work, &blocks).await
    }

    /// Empty blocks of pools that do not select the node any more are given up (pools.md 5.1); failures wait for another
    /// time.
    async fn give_up_deselected(&self, work: &Work<'_>) {
        let rows = work.seen.rows.iter().filter(|r| Family::of(r.key.1.net()) == work.family);
        for row in rows.filter(|r| work.claim.gives_up(r.key.1, &work.seen.node)) {
            drop(self.give_back_patiently(&work.owner, row.key.1, true).await);
        }
    }

    /// Takes what the owner's blocks have. Answers whether the request is done.
    async fn fill_owned(&self, work: &mut Work<'_>) -> Result<bool, AssignError> {
        for row in work.owned() {
            let cidr = row.key.1;
            if work.missing() == 0 {
                return Ok(true);
            }
            if work.tried.contains(&cidr) || work.seen.reserved.covers(cidr.net()) {
                continue;
            }
            let mut row = row;
            for _ in 0..RETRIES {
                let found = match work.remembered(&row, self.clock.now()) {
                    Some(block) => Ok(Owned::Usable(Box::new(block))),
                    None => self.owned_block(&work.owner, &row).await,
                };
                match found {
                    Ok(Owned::Usable(block)) => {
                        work.tried.insert(cidr);
                        if self.take(work, cidr, Some(*block), true).await? {
                            return Ok(true);
                        }
                        break;
                    }
                    // A claim that stopped halfway is finished where new blocks are claimed.
                    Ok(Owned::NoBlock | Owned::Stale) => break,
                    Err(ClaimError::Stale) => match Table::<AffinityKind>::get(&self.store, &row.key).await.map_err(AssignError::Store)? {
                        Some(again) => row = again,
                        None => break,
                    },
                    Err(e) => return Err(claim_error(e)),
                }
            }
        }
        Ok(work.missing() == 0)
    }

    /// A row of the owner whose block is not there. One that could not be created where it is deletes its row (D-58).
    async fn begun(&self, work: &mut Work<'_>, blocks: &[Row<BlockKind>]) -> Result<Option<BlockCidr>, AssignError> {
        for row in work.owned() {
            let cidr = row.key.1;
            if work.tried.contains(&cidr) || blocks.iter().any(|b| b.key == cidr) {
                continue;
            }
            let fits = |p: &crate::pools::Enabled| p.cidr.contains(&cidr.net()) && p.pool.block_size == cidr.net().prefix_len();
            if work.claim.pools.iter().any(fits) && !blocks.iter().any(|b| overlap(b.key.net(), cidr.net())) {
                return Ok(Some(cidr));
            }
            work.tried.insert(cidr);
            work.seen.rows.retain(|r| r.key != row.key);
            if let Err(e @ StoreError::Unavailable(_)) = Table::<AffinityKind>::delete(&self.store, &row).await {
                return Err(AssignError::Unknown(e));
            }
        }
        Ok(None)
    }

    /// Claims a block: one whose claim was begun, one that is not there yet, or another host's empty one.
    async fn new_block(&self, work: &mut Work<'_>, blocks: &mut Vec<Row<BlockKind>>) -> Result<Option<Row<BlockKind>>, AssignError> {
        let reserve = work.args.reserve[at(work.family)].as_ref();
        for _ in 0..RETRIES {
            let begun = self.begun(work, blocks).await?.map(Found::Missing);
            let Some(found) = begun.or_else(|| self.find(work, blocks)) else { return Ok(None) };
            let cidr = found.cidr();
            if let Found::Empty { owner, row } = &found
                && !self.take_over(owner.as_ref(), row).await?
            {
                blocks.retain(|b| b.key != cidr);
                work.tried.insert(cidr);
                continue;
            }
            let known = work.seen.rows.iter().find(|r| r.key.1 == cidr).cloned();
            match self.claim_block(&work.owner, cidr, reserve, known).await {
                Ok(Claimed { row, block }) => {
                    blocks.retain(|b| b.key != cidr);
                    blocks.push(block.clone());
                    work.seen.rows.retain(|r| r.key.1 != cidr);
                    work.seen.rows.push(row);
                    work.tried.insert(cidr);
                    return Ok(Some(block));
                }
                // Somebody else was faster, or is at it: this block is theirs for this call.
                Err(ClaimError::Lost | ClaimError::Stale) => {
                    work.tried.insert(cidr);
                    work.lost += 1;
                    if work.lost >= CROWD && work.lost.is_power_of_two() {
                        *blocks = self.list::<BlockKind>((), Freshness::Latest).await?;
                    } else if let Some(row) = Table::<BlockKind>::get(&self.store, &cidr).await.map_err(AssignError::Store)? {
                        blocks.retain(|b| b.key != cidr);
                        blocks.push(row);
                    }
                }
                Err(e) => return Err(claim_error(e)),
            }
        }
        Err(AssignError::TooManyRetries)
    }

    /// The block to claim next (allocation.md 6.5): the first that is not there, or ours with room; else another's empty one.
    fn find(&self, work: &Work<'_>, blocks: &[Row<BlockKind>]) -> Option<Found> {
        let now = self.clock.now();
        let reserve = work.args.reserve[at(work.family)].as_ref();
        let by_cidr: std::collections::BTreeMap<BlockCidr, &Row<BlockKind>> = blocks.iter().map(|b| (b.key, b)).collect();
        let mut empty = None;
        for pool in &work.claim.pools {
            let nonce = now.timestamp_nanos_opt().unwrap_or(0);
            for cidr in BlockOrder::new(pool.cidr, pool.pool.block_size, &work.start(), nonce).take(FARTHEST) {
                if work.tried.contains(&cidr) || work.seen.reserved.covers(cidr.net()) {
                    continue;
                }
                let Some(row) = by_cidr.get(&cidr) else {
                    // Blocks of another size in the way (D-21, D-58).
                    if blocks.iter().any(|b| overlap(b.key.net(), cidr.net())) {
                        continue;
                    }
                    // One that the host's reserve and the reservations would fill is of no use.
                    if Block::new(cidr, reserve, 0).is_ok_and(|b| b.free(&work.seen.reserved) == 0) {
                        continue;
                    }
                    return Some(Found::Missing(cidr));
                };
                let block = collected(&row.value, now, work);
                let room = block.free(&work.seen.reserved) > 0;
                let owner = row.value.owner();
                if room && owner.as_ref() == Some(&work.owner) {
                    return Some(Found::Ours(cidr));
                }
                let old = row.value.claim_time.is_none_or(|t| now - t >= YOUNGEST);
                if room && block.is_empty() && empty.is_none() && (owner.is_none() || old) {
                    empty = Some(Found::Empty { owner, row: Box::new((*row).clone()) });
                }
            }
        }
        empty
    }

    /// Takes an empty block away from its owner, or deletes one of nobody (D-68), as it was listed.
    async fn take_over(&self, owner: Option<&Owner>, row: &Row<BlockKind>) -> Result<bool, AssignError> {
        let done = match owner {
            Some(owner) => {
                let conditions = Conditions { must_be_empty: true, seq: Some(row.value.seq) };
                match self.release_block_affinity(owner, row.key, conditions).await {
                    Ok(_) => Ok(()),
                    Err(GiveBackError::Store(e)) => Err(e),
                    Err(_) => return Ok(false),
                }
            }
            None => Table::<BlockKind>::delete(&self.store, row).await,
        };
        match done {
            Ok(()) => Ok(true),
            Err(e @ StoreError::Unavailable(_)) => Err(AssignError::Unknown(e)),
            Err(_) => Ok(false),
        }
    }

    /// Takes from blocks of other hosts, without changing their owners (allocation.md 6.4).
    async fn borrow(&self, work: &mut Work<'_>, blocks: &[Row<BlockKind>]) -> Result<(), AssignError> {
        let mut exhausted = Vec::new();
        for pool in work.claim.pools.clone() {
            let nonce = self.clock.now().timestamp_nanos_opt().unwrap_or(0);
            let order = BlockOrder::new(pool.cidr, pool.pool.block_size, &work.args.host, nonce);
            let mut there: Vec<BlockCidr> = blocks.iter().map(|b| b.key).filter(|c| pool.cidr.contains(&c.net())).collect();
            there.sort_by_key(|c| order.place(*c));
            for cidr in there {
                if work.missing() == 0 {
                    return Ok(());
                }
                if !work.seen.reserved.covers(cidr.net()) && self.take(work, cidr, None, false).await? {
                    return Ok(());
                }
            }
            exhausted.push(pool.cidr.to_string());
        }
        if work.missing() > 0 {
            work.got.say(format!("No IPs available in pools: [{}]", exhausted.join(" ")));
        }
        Ok(())
    }

    /// Takes from one block, and answers whether the request is done.
    async fn take(&self, work: &mut Work<'_>, cidr: BlockCidr, row: Option<Row<BlockKind>>, affine: bool) -> Result<bool, AssignError> {
        let mut counted = Counted::default();
        let done = self.take_counted(work, cidr, row, affine, &mut counted).await;
        let unknown = matches!(done, Err(AssignError::Unknown(_))) && !planted(Planted::UndoUnknown);
        if let Some(handle) = work.args.handle.as_deref()
            && !unknown
        {
            // What was counted and not taken; after a write without answer never (D-60).
            self.count_back(handle, cidr, &mut counted).await;
        }
        match done? {
            Took::Some => {}
            Took::HandleHas(ips) => work.got.ips = ips,
        }
        Ok(work.missing() == 0)
    }

    /// `counted` is what the handle counts of this block beyond what was taken.
    async fn take_counted(
        &self,
        work: &mut Work<'_>,
        cidr: BlockCidr,
        mut row: Option<Row<BlockKind>>,
        affine: bool,
        counted: &mut Counted,
    ) -> Result<Took, AssignError> {
        let mut uid = None;
        let mut capped = 0;
        for _ in 0..RETRIES {
            let Some(current) = (match row.take() {
                Some(row) => Some(row),
                None => Table::<BlockKind>::get(&self.store, &cidr).await.map_err(AssignError::Store)?,
            }) else {
                return Ok(Took::Some);
            };
            // A block that was deleted and made again is another one: what was counted was for the old one.
            if uid.replace(current.uid.clone()).is_some_and(|before| before != current.uid) {
                self.give_counts_back(work, cidr, counted).await;
            }
            if affine && current.value.owner().as_ref() != Some(&work.owner) {
                return Ok(Took::Some);
            }
            let mut block = collected(&current.value, self.clock.now(), work);
            let check = if affine { Some(&work.owner) } else { work.strict() };
            let (handle, attrs) = (work.args.handle.as_deref(), &work.args.attrs);
            let taken = block.auto_assign(work.missing(), handle, attrs, check, &work.seen.reserved).unwrap_or_default();
            if taken.is_empty() {
                return Ok(Took::Some);
            }
            let n = taken.len();
            if !planted(Planted::CountAfterWrite) && !self.count_more(work, cidr, n, counted).await? {
                capped += 1;
                if let Some(ips) = self.at_cap(work, capped).await? {
                    return Ok(Took::HandleHas(ips));
                }
                continue;
            }
            block.seq += 1;
            match Table::<BlockKind>::update(&self.store, Row { value: block, ..current }).await.map(Some).or_else(as_done) {
                Ok(written) => {
                    if planted(Planted::CountAfterWrite) {
                        drop(self.count_more(work, cidr, n, counted).await);
                    }
                    counted.took(if handle.is_some() { n } else { 0 });
                    work.got.ips.extend(taken);
                    work.last = written.filter(|_| affine);
                    return Ok(Took::Some);
                }
                Err(StoreError::Conflict | StoreError::Absent | StoreError::Exists) => {}
                Err(e @ StoreError::Unavailable(_)) => {
                    work.got.unknown.extend(taken);
                    return Err(AssignError::Unknown(e));
                }
                Err(e) => return Err(AssignError::Store(e)),
            }
        }
        Err(AssignError::TooManyRetries)
    }

    /// Counts what is to be taken beyond what is counted already; whether the handle may have it.
    async fn count_more(&self, work: &Work<'_>, cidr: BlockCidr, taken: usize, counted: &mut Counted) -> Result<bool, AssignError> {
        let Some(handle) = work.args.handle.as_deref() else { return Ok(true) };
        while counted.n() < taken as i64 {
            match self.count_up(handle, cidr, taken as i64 - counted.n(), work.args.max_per_handle, counted).await {
                Ok(()) if planted(Planted::CountOnce) => break,
                Ok(()) => {}
                Err(ModifyError::Own(CountError::MaxReached)) => return Ok(false),
                Err(e) => return Err(AssignError::count(handle, e)),
            }
        }
        Ok(true)
    }

    async fn give_counts_back(&self, work: &Work<'_>, cidr: BlockCidr, counted: &mut Counted) {
        if let Some(handle) = work.args.handle.as_deref() {
            self.count_back(handle, cidr, counted).await;
        }
    }

    /// The handle may not have more: what it has, if that is enough; never more than was asked for.
    async fn at_cap(&self, work: &Work<'_>, tries: usize) -> Result<Option<Vec<IpNet>>, AssignError> {
        let handle = work.args.handle.as_deref().unwrap_or_default();
        let has = self.ips_by_handle(handle).await.map_err(AssignError::store)?.unwrap_or_default();
        let has: Vec<IpNet> = has.into_iter().filter(|ip| Family::of_ip(*ip) == work.family).map(IpNet::from).collect();
        if has.len() >= work.got.requested {
            return Ok(Some(has.into_iter().take(work.got.requested).collect()));
        }
        if tries >= CAP_TRIES {
            return Err(AssignError::InsufficientByHandle { handle: handle.into(), have: has.len(), need: work.got.requested });
        }
        Ok(None)
    }

    /// A block of the host in each family for which a reservation is given: the first it has, or a new one, full or not, and
    /// whatever the block limit says.
    ///
    /// # Errors
    /// See [`AssignError`]; IPv4's stops IPv6.
    pub async fn ensure_block(&self, args: &AutoAssign) -> Result<[Option<BlockCidr>; 2], AssignError> {
        let mut out = [None, None];
        for family in [Family::V4, Family::V6] {
            if args.reserve[at(family)].is_some() {
                out[at(family)] = Some(self.ensure_family(args, family).await?);
            }
        }
        Ok(out)
    }

    async fn ensure_family(&self, args: &AutoAssign, family: Family) -> Result<BlockCidr, AssignError> {
        crate::ids::check_host(&args.host)?;
        let args = AutoAssign { intended_use: "Workload".into(), namespace: None, ..args.clone() };
        let owner = args.owner();
        let mut turn = self.turns.wait(&owner, family).await;
        turn.forget();
        let before = self.read_all(&owner, args.fresh).await?;
        let (seen, mut blocks) = self.read_again(&owner, &before, true).await?;
        let claim = self.qualified(&args, family, &seen)?;
        let (got, tried) = (Got::default(), BTreeSet::new());
        let mut work = Work { args: &args, family, owner, seen, read: None, last: None, claim, got, tried, lost: 0 };
        self.give_up_deselected(&work).await;
        for row in work.owned() {
            if let Ok(Owned::Usable(block)) = self.owned_block(&work.owner, &row).await {
                return Ok(block.key);
            }
        }
        if !work.seen.config.auto_allocate_blocks {
            return Err(AssignError::AutoAllocateOff);
        }
        let claimed = self.new_block(&mut work, &mut blocks).await?;
        claimed.map(|row| row.key).ok_or_else(|| crate::pools::PoolError::NoQualifiedPool("no block is free".into()).into())
    }
}

/// A block to claim.
enum Found {
    Missing(BlockCidr),
    Ours(BlockCidr),
    Empty { owner: Option<Owner>, row: Box<Row<BlockKind>> },
}

impl Found {
    fn cidr(&self) -> BlockCidr {
        match self {
            Found::Missing(cidr) | Found::Ours(cidr) => *cidr,
            Found::Empty { row, .. } => row.key,
        }
    }
}

/// A block with what has cooled freed, as every reader sees it.
fn collected(block: &Block, now: Time, work: &Work<'_>) -> Block {
    let mut block = block.clone();
    block.collect(now, work.seen.config.cooldown());
    block
}

/// What an error of a block write means.
fn as_done(e: StoreError) -> Result<Option<Row<BlockKind>>, StoreError> {
    match e {
        StoreError::Unavailable(_) if planted(Planted::UnknownIsDone) => Ok(None),
        e => Err(e),
    }
}

pub(super) fn claim_error(e: ClaimError) -> AssignError {
    match e {
        ClaimError::Lost | ClaimError::Stale => AssignError::TooManyRetries,
        ClaimError::Reserve(why) => AssignError::Reserve(why),
        ClaimError::Store(e) => AssignError::store(e),
    }
}
