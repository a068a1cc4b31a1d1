//! One contract, three stores: in memory, and on a real API server in both groups.

use ipam_datastore::Group;
use ipam_tests::contract::{InMemory, Live, contract};
use ipam_tests::control_plane::ControlPlane;

#[tokio::test]
async fn the_store_in_memory_keeps_the_contract() {
    contract(&InMemory::default()).await;
}

#[tokio::test]
async fn the_live_store_keeps_the_contract_in_v1() {
    let plane = ControlPlane::start(Group::V1).await;
    contract(&Live::new(&plane).await).await;
}

#[tokio::test]
async fn the_live_store_keeps_the_contract_in_v3() {
    let plane = ControlPlane::start(Group::V3).await;
    contract(&Live::new(&plane).await).await;
}
