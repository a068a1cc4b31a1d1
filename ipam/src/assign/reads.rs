//! What a request has to know: read together, cached where that is enough, consistently where it is not (D-29, D-61).

use futures::try_join;
use ipam_accounting::set::{AddrSet, Ranges};

use super::AssignError;
use crate::clock::Clock;
use crate::ids::Owner;
use crate::model::{AffinityKind, BlockKind, Config, NodeKind, PoolKind, ReservationKind, Rows};
use crate::selector::Labels;
use crate::store::{Datastore, Freshness, Row, Table};
use crate::{ConfigError, Ipam};

/// What a caller that holds a watch knows already.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The configuration.
    pub config: Config,
    /// Labels of the node.
    pub node: Labels,
    /// Every pool.
    pub pools: Vec<Row<PoolKind>>,
    /// Reserved addresses.
    pub reserved: Ranges,
    /// The owner's affinity rows.
    pub rows: Vec<Row<AffinityKind>>,
}

pub(crate) fn reserved(rows: &[Row<ReservationKind>]) -> Ranges {
    let sets: Vec<AddrSet> = rows.iter().map(|r| r.value.set()).collect();
    sets.iter().flat_map(AddrSet::nets).collect()
}

impl<S: Datastore, C: Clock> Ipam<S, C> {
    /// Configuration, node, pools, reservations and affinities, in one round trip.
    pub(super) async fn read_all(&self, owner: &Owner, fresh: Freshness) -> Result<Snapshot, AssignError> {
        let rows = Rows::Of(owner.clone());
        let (config, node, pools, reservations, rows) = try_join!(
            async { self.get_config().await.map_err(AssignError::Config) },
            self.node_labels(owner),
            self.list::<PoolKind>((), fresh),
            self.list::<ReservationKind>((), fresh),
            self.list::<AffinityKind>(rows, fresh),
        )?;
        Ok(Snapshot { config, node, pools, reserved: reserved(&reservations), rows })
    }

    /// Everything that decides about new blocks, consistently: configuration and node were read by name and are.
    pub(super) async fn read_again(
        &self,
        owner: &Owner,
        before: &Snapshot,
        own_reading: bool,
    ) -> Result<(Snapshot, Vec<Row<BlockKind>>), AssignError> {
        let latest = Freshness::Latest;
        let (pools, reservations, rows, blocks) = try_join!(
            self.list::<PoolKind>((), latest),
            self.list::<ReservationKind>((), latest),
            self.list::<AffinityKind>(Rows::Of(owner.clone()), latest),
            self.list::<BlockKind>((), latest),
        )?;
        let (config, node) = if own_reading {
            (before.config.clone(), before.node.clone())
        } else {
            try_join!(async { self.get_config().await.map_err(AssignError::Config) }, self.node_labels(owner))?
        };
        Ok((Snapshot { config, node, pools, reserved: reserved(&reservations), rows }, blocks))
    }

    pub(crate) async fn list<K: crate::store::Kind>(&self, select: K::Select, fresh: Freshness) -> Result<Vec<Row<K>>, AssignError>
    where
        S: Table<K>,
    {
        Table::<K>::list(&self.store, &select, fresh).await.map_err(AssignError::Store)
    }

    /// Labels of the owner's node; a virtual owner has none.
    pub(crate) async fn node_labels(&self, owner: &Owner) -> Result<Labels, AssignError> {
        let Owner::Host(name) = owner else { return Ok(Labels::new()) };
        let row = Table::<NodeKind>::get(&self.store, name).await.map_err(AssignError::Store)?;
        row.map(|r| r.value.labels).ok_or_else(|| AssignError::NoNode(name.clone()))
    }

    /// The configuration, read raw: for repairing it.
    pub(crate) async fn stored_config(&self) -> Result<Option<Row<crate::model::ConfigKind>>, ConfigError> {
        Ok(Table::<crate::model::ConfigKind>::get(&self.store, &()).await?)
    }
}
