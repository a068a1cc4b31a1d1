//! Handing out a given address (allocation.md 7; D-3, D-4, D-63).

use std::net::IpAddr;

use ipam_accounting::facts::Attrs;
use ipam_accounting::set::overlap;

use super::family::claim_error;
use super::{AssignError, block_limit};
use crate::Ipam;
use crate::block::{BlockError, HostReserve};
use crate::claim::ClaimError;
use crate::clock::Clock;
use crate::handles::{CountError, Counted};
use crate::ids::{BlockCidr, HandleId, Owner, check_handle, check_host};
use crate::model::{AffinityKind, BlockKind, Config, PoolKind, Rows};
use crate::modify::{ModifyError, RETRIES};
use crate::pools::{Enabled, Family, enabled, pool_for_assign};
use crate::store::{Datastore, Freshness, Row, StoreError, Table};

/// A request for a given address. Start with [`AssignIp::new`], add what else is known.
#[derive(Clone, Debug)]
pub struct AssignIp {
    ip: IpAddr,
    host: String,
    handle: Option<String>,
    attrs: Attrs,
    intended_use: Option<String>,
    reserve: Option<HostReserve>,
    max_blocks: u32,
    max_per_handle: Option<u32>,
}

impl AssignIp {
    /// This address, for `host`.
    pub fn new(ip: IpAddr, host: &str) -> Self {
        Self {
            ip,
            host: host.into(),
            handle: None,
            attrs: Attrs::new(),
            intended_use: None,
            reserve: None,
            max_blocks: 0,
            max_per_handle: None,
        }
    }

    /// The key under which it is released.
    #[must_use]
    pub fn handle(mut self, handle: &str) -> Self {
        self.handle = Some(handle.into());
        self
    }

    /// Attributes of its owner.
    #[must_use]
    pub fn attrs(mut self, attrs: Attrs) -> Self {
        self.attrs = attrs;
        self
    }

    /// What it is for; only then the pool's allowed uses are checked.
    #[must_use]
    pub fn intended_use(mut self, intended_use: &str) -> Self {
        self.intended_use = Some(intended_use.into());
        self
    }

    /// What the host keeps for itself, should the block be new.
    #[must_use]
    pub fn reserve(mut self, reserve: HostReserve) -> Self {
        self.reserve = Some(reserve);
        self
    }

    /// Most blocks that the host may have; the default limit does not count here (D-3).
    #[must_use]
    pub fn max_blocks(mut self, max: u32) -> Self {
        self.max_blocks = max;
        self
    }

    /// Most addresses of a family that the handle may have; the same address again is then no error.
    #[must_use]
    pub fn max_per_handle(mut self, max: u32) -> Self {
        self.max_per_handle = (max > 0).then_some(max);
        self
    }

    fn owner(&self) -> Owner {
        if self.intended_use.as_deref() == Some("LoadBalancer") {
            Owner::Virtual(self.host.clone())
        } else {
            Owner::Host(self.host.clone())
        }
    }
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Hands out this very address. Reservations, selectors and assignment mode are not consulted: an explicit address is
    /// an explicit wish (D-4).
    ///
    /// # Errors
    /// See [`AssignError`]; after [`AssignError::Unknown`] the address may be held.
    pub async fn assign_ip(&self, args: &AssignIp) -> Result<(), AssignError> {
        check_host(&args.host)?;
        if let Some(handle) = &args.handle {
            check_handle(handle)?;
        }
        let mut turn = self.turns.wait(&args.owner(), Family::of_ip(args.ip)).await;
        turn.forget();
        let pools = self.list::<PoolKind>((), Freshness::Latest).await?;
        let (pool, cidr) = pool_for_assign(&pools, args.ip, args.intended_use.as_deref())?;
        let config = self.get_config().await?;
        let mut counted = Counted::default();
        let done = self.assign_counted(args, &config, &pools, &pool, cidr, &mut counted).await;
        if let Some(handle) = args.handle.as_deref()
            && !matches!(done, Err(AssignError::Unknown(_)))
        {
            self.count_back(handle, cidr, &mut counted).await;
        }
        done
    }

    async fn assign_counted(
        &self,
        args: &AssignIp,
        config: &Config,
        pools: &[Row<PoolKind>],
        pool: &Enabled,
        cidr: BlockCidr,
        counted: &mut Counted,
    ) -> Result<(), AssignError> {
        let owner = args.owner();
        let check = config.strict_affinity.then_some(&owner);
        let mut uid = None;
        let mut capped = 0;
        for _ in 0..RETRIES {
            let row = Table::<BlockKind>::get(&self.store, &cidr).await.map_err(AssignError::Store)?;
            let row = match row {
                // An empty block of nobody is claimed like a missing one (D-68).
                Some(row) if !(row.value.owner().is_none() && row.value.is_empty()) => row,
                there => match self.claim_for(args, config, pools, pool, cidr, there).await? {
                    Some(row) => row,
                    None => continue,
                },
            };
            if uid.replace(row.uid.clone()).is_some_and(|before| before != row.uid)
                && let Some(handle) = args.handle.as_deref()
            {
                self.count_back(handle, cidr, counted).await;
            }
            let mut block = row.value.clone();
            block.collect(self.clock.now(), config.cooldown());
            if let Err(e) = block.assign(args.ip, args.handle.as_deref(), &args.attrs, check) {
                return self.taken(args, &row, e);
            }
            if let Some(handle) = args.handle.as_deref().filter(|_| counted.n() == 0) {
                match self.count_up(handle, cidr, 1, args.max_per_handle, counted).await {
                    Ok(()) => {}
                    Err(ModifyError::Own(CountError::MaxReached)) => {
                        capped += 1;
                        if self.at_cap_of(args, handle, capped).await? {
                            return Ok(());
                        }
                        continue;
                    }
                    Err(e) => return Err(AssignError::count(handle, e)),
                }
            }
            block.seq += 1;
            match Table::<BlockKind>::update(&self.store, Row { value: block, ..row }).await {
                Ok(_) => {
                    counted.took(1);
                    return Ok(());
                }
                Err(StoreError::Conflict | StoreError::Absent | StoreError::Exists) => {}
                Err(e) => return Err(AssignError::store(e)),
            }
        }
        Err(AssignError::TooManyRetries)
    }

    /// The handle may not have more: fine if this address is what it has. No: look again.
    async fn at_cap_of(&self, args: &AssignIp, handle: &str, tries: usize) -> Result<bool, AssignError> {
        let has = self.ips_by_handle(handle).await.map_err(AssignError::store)?.unwrap_or_default();
        let has: Vec<IpAddr> = has.into_iter().filter(|ip| ip.is_ipv4() == args.ip.is_ipv4()).collect();
        if has.contains(&args.ip) {
            return Ok(true);
        }
        if !has.is_empty() || tries >= 3 { Err(AssignError::HandleHasOthers(handle.into(), args.ip)) } else { Ok(false) }
    }

    /// The address is taken: by the same handle under a cap that is no error (CAP-02).
    fn taken(&self, args: &AssignIp, row: &Row<BlockKind>, e: BlockError) -> Result<(), AssignError> {
        let BlockError::AlreadyExists(ip) = e else { return Err(AssignError::Block(e)) };
        let held = row.value.attributes_of(ip).ok().and_then(|a| a.handle.as_deref());
        let same = args.handle.as_deref().is_some_and(|h| held.is_some_and(|x| HandleId::new(x) == HandleId::new(h)));
        if same && args.max_per_handle.is_some() { Ok(()) } else { Err(AssignError::AlreadyExists(ip)) }
    }

    /// Claims the block of the address, under a limit that somebody set. `None`: look again.
    async fn claim_for(
        &self,
        args: &AssignIp,
        config: &Config,
        pools: &[Row<PoolKind>],
        pool: &Enabled,
        cidr: BlockCidr,
        there: Option<Row<BlockKind>>,
    ) -> Result<Option<Row<BlockKind>>, AssignError> {
        let owner = args.owner();
        let rows = self.list::<AffinityKind>(Rows::Of(owner.clone()), Freshness::Latest).await?;
        let known = rows.iter().find(|r| r.key.1 == cidr).cloned();
        let limit = block_limit(config, args.max_blocks);
        if known.is_none() {
            if !config.auto_allocate_blocks {
                return Err(AssignError::AutoAllocateOff);
            }
            let family = Family::of(cidr.net());
            let accepted: Vec<Enabled> = enabled(pools, family)
                .into_iter()
                .filter(|p| args.intended_use.as_ref().is_none_or(|u| p.pool.allowed_uses.contains(u)))
                .collect();
            let owned = rows.iter().filter(|r| accepted.iter().any(|p| p.cidr.contains(&r.key.1.net().network()))).count();
            if let Some(limit) = limit.filter(|l| owned >= *l as usize) {
                return Err(AssignError::BlockLimit(limit));
            }
        }
        self.may_create(pool, cidr, there.as_ref()).await?;
        if let Some(row) = there {
            match Table::<BlockKind>::delete(&self.store, &row).await {
                Ok(()) => {}
                Err(StoreError::Conflict | StoreError::Absent) => return Ok(None),
                Err(e) => return Err(AssignError::store(e)),
            }
        }
        match self.claim_block(&owner, cidr, args.reserve.as_ref(), known).await {
            Ok(claimed) => Ok(Some(claimed.block)),
            // Read the block that is there now: not strict, anybody's will do (ASN-17).
            Err(ClaimError::Lost | ClaimError::Stale) => Ok(None),
            Err(e) => Err(claim_error(e)),
        }
    }

    /// D-58: only where no block of another size is in the way. (That the pool is enabled and the block of its size is how
    /// the block was found.)
    async fn may_create(&self, pool: &Enabled, cidr: BlockCidr, there: Option<&Row<BlockKind>>) -> Result<(), AssignError> {
        let blocks = self.list::<BlockKind>((), Freshness::Latest).await?;
        let other = blocks.iter().find(|b| Some(b.key) != there.map(|t| t.key) && b.key != cidr && overlap(b.key.net(), cidr.net()));
        match other {
            None if pool.cidr.contains(&cidr.net()) => Ok(()),
            None => Err(AssignError::Argument(format!("block {cidr} does not fit into pool {}", pool.name))),
            Some(b) => Err(AssignError::Argument(format!("block {cidr} overlaps block {}", b.key))),
        }
    }
}
