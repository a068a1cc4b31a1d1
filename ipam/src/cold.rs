//! Cold addresses: the backstop for blocks that nobody writes (seed, "IP release and cooldown").

use std::convert::Infallible;
use std::net::IpAddr;

use crate::Ipam;
use crate::block::Block;
use crate::clock::Clock;
use crate::ids::BlockCidr;
use crate::model::{BlockKind, Config};
use crate::modify::{Change, ModifyError, modify};
use crate::store::Datastore;

/// What collecting did to a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The addresses that are free now, ascending.
    pub ips: Vec<IpAddr>,
    /// The block was empty and without owner, and is gone (D-22).
    pub block_deleted: bool,
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Frees the addresses of one block whose cooldown is over. Writes only when there are any. An empty block
    /// without owner is deleted: nothing else would do it.
    ///
    /// # Errors
    /// See [`ModifyError`]; a block that does not exist is no error.
    pub async fn collect_cold(&self, config: &Config, cidr: BlockCidr) -> Result<Collected, ModifyError<Infallible>> {
        modify::<BlockKind, _, _, _, _>(&self.store, &cidr, |row| {
            let Some(row) = row else { return Ok(Change::Keep(Collected::default())) };
            let mut block = row.value.clone();
            let before: Vec<IpAddr> = block.in_use();
            if !block.collect(self.clock.now(), config.cooldown()) {
                return Ok(Change::Keep(Collected::default()));
            }
            let ips = before
                .into_iter()
                .filter(|ip| block.attributes_of(*ip).is_err_and(|e| matches!(e, crate::block::BlockError::NotExist(_))))
                .collect();
            Ok(put_back(block, |block_deleted| Collected { ips, block_deleted }))
        })
        .await
    }
}

/// Stores a changed block under its next sequence number, or deletes it when it is empty and nobody's.
pub(crate) fn put_back<T>(mut block: Block, answer: impl FnOnce(bool) -> T) -> Change<Block, T> {
    if block.affinity.is_none() && block.is_empty() {
        return Change::Delete(answer(true));
    }
    block.seq += 1;
    Change::Write(block, answer(false))
}
