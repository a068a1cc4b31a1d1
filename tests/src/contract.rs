//! The datastore's contract, as one body for every store.

use chrono::{TimeDelta, TimeZone as _, Utc};
use ipam::mem::Kept;
use ipam::model::{
    Affinity, AffinityKind, AffinityState, BlockKind, Config, ConfigKind, Handle, HandleKind, NodeKind, PoolKind, Reservation,
    ReservationKind, Rows,
};
use ipam::store::{Freshness, Revision, Row, StoreError, Table, Uid};
use ipam::{Attribute, Block, BlockCidr, Datastore, HandleId, MemStore, Owner};
use ipam_datastore::KubeStore;
use ipam_datastore::wire::Wire;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, get, replace};
use crate::lab::{cidr, pool};

/// A store under test, with what only its owner can do.
pub trait Backend {
    /// The store.
    type Store: Datastore;
    /// A client of it.
    fn store(&self) -> Self::Store;
    /// Somebody else begins the deletion of a row.
    fn begin_deletion<K: Wire + Kept>(&self, key: &K::Key) -> impl Future<Output = ()>;
    /// Nothing is there any more.
    fn clear(&self) -> impl Future<Output = ()>;
}

/// The store in memory.
#[derive(Default)]
pub struct InMemory(std::cell::RefCell<MemStore>);

impl Backend for InMemory {
    type Store = MemStore;

    fn store(&self) -> MemStore {
        self.0.borrow().clone()
    }

    async fn begin_deletion<K: Wire + Kept>(&self, key: &K::Key) {
        let store = self.store();
        let row = store.take::<K>(key).expect("there");
        store.put::<K>(Row { revision: Revision("begun".into()), ..row }, true);
    }

    async fn clear(&self) {
        self.0.replace(MemStore::new());
    }
}

/// A live one.
pub struct Live<'a> {
    plane: &'a ControlPlane,
    store: KubeStore,
}

impl<'a> Live<'a> {
    /// Over a control plane.
    pub async fn new(plane: &'a ControlPlane) -> Self {
        Self { plane, store: KubeStore::new(plane.connection().await, plane.group) }
    }
}

impl Backend for Live<'_> {
    type Store = KubeStore;

    fn store(&self) -> KubeStore {
        self.store.clone()
    }

    async fn begin_deletion<K: Wire + Kept>(&self, key: &K::Key) {
        let client = self.plane.client().await;
        let group = self.plane.group;
        let path = format!("/apis/{}/{}/{}", group.api_version(), K::plural(group), K::object_name(key));
        let mut object: Value = client.request(get(&path)).await.expect("there");
        let text = object["spec"]["deleted"].is_string();
        object["spec"]["deleted"] = if text { json!("true") } else { json!(true) };
        replace(&client, &path, &object).await;
    }

    async fn clear(&self) {
        self.plane.clear().await;
    }
}

/// Every rule of the contract.
pub async fn contract(backend: &impl Backend) {
    revisions_and_identities(backend).await;
    backend.clear().await;
    half_deleted_rows(backend).await;
    backend.clear().await;
    selections(backend).await;
    backend.clear().await;
    contents(backend).await;
    backend.clear().await;
    singles(backend).await;
    backend.clear().await;
}

fn handle(id: &str, n: i64) -> Handle {
    Handle { id: id.into(), blocks: [(cidr("10.0.0.0/26"), n)].into() }
}

async fn revisions_and_identities(backend: &impl Backend) {
    let store = backend.store();
    let key = HandleId::new("K8s-pod-network.abc");
    assert_eq!(Table::<HandleKind>::get(&store, &key).await, Ok(None));
    let one = Table::<HandleKind>::create(&store, &key, handle("K8s-pod-network.abc", 1)).await.expect("created");
    assert!(!one.revision.0.is_empty() && !one.uid.0.is_empty());
    assert_eq!(Table::<HandleKind>::get(&store, &key).await, Ok(Some(one.clone())), "what was stored is what is read");
    let again = Table::<HandleKind>::create(&store, &key, handle("K8s-pod-network.abc", 5)).await;
    assert_eq!(again, Err(StoreError::Exists));

    let two = Table::<HandleKind>::update(&store, Row { value: handle("K8s-pod-network.abc", 2), ..one.clone() }).await.expect("updated");
    assert!(two.revision != one.revision && two.uid == one.uid && two.value.blocks[&cidr("10.0.0.0/26")] == 2);
    let stale = Table::<HandleKind>::update(&store, Row { value: handle("K8s-pod-network.abc", 3), ..one.clone() }).await;
    assert_eq!(stale, Err(StoreError::Conflict));
    assert_eq!(Table::<HandleKind>::delete(&store, &one).await, Err(StoreError::Conflict));
    assert_eq!(Table::<HandleKind>::get(&store, &key).await, Ok(Some(two.clone())), "nothing was written");
    let equal = Table::<HandleKind>::update(&store, two.clone()).await.expect("updated");
    assert_eq!(equal.revision, two.revision, "equal content keeps the revision");

    assert_eq!(Table::<HandleKind>::delete(&store, &two).await, Ok(()));
    assert_eq!(Table::<HandleKind>::get(&store, &key).await, Ok(None));
    assert_eq!(Table::<HandleKind>::delete(&store, &two).await, Err(StoreError::Absent));
    assert_eq!(Table::<HandleKind>::update(&store, two.clone()).await, Err(StoreError::Absent));

    let new = Table::<HandleKind>::create(&store, &key, handle("K8s-pod-network.abc", 2)).await.expect("created anew");
    assert_ne!(new.uid, two.uid, "another row of the same name");
    assert_eq!(Table::<HandleKind>::delete(&store, &two).await, Err(StoreError::Absent), "the old one is gone");
    assert_eq!(Table::<HandleKind>::update(&store, two.clone()).await, Err(StoreError::Absent));
    let other_uid = Row { uid: Uid("00000000-0000-4000-8000-000000000000".into()), ..new.clone() };
    assert_eq!(Table::<HandleKind>::delete(&store, &other_uid).await, Err(StoreError::Absent));
    assert_eq!(Table::<HandleKind>::get(&store, &key).await, Ok(Some(new)));
}

async fn half_deleted_rows(backend: &impl Backend) {
    half_deleted::<HandleKind, _>(backend, HandleId::new("h"), handle("h", 1)).await;
    let block = Block::new(cidr("10.0.0.0/30"), None, 1_795_979_174_000_000_004).expect("fits");
    half_deleted::<BlockKind, _>(backend, cidr("10.0.0.0/30"), block).await;
    let affinity = Affinity { state: AffinityState::Confirmed, indexed: true };
    half_deleted::<AffinityKind, _>(backend, (Owner::Host("node-1".into()), cidr("10.0.0.0/30")), affinity).await;
}

/// Nobody sees it, it stands in the way of a new one, and only purging ends it (D-44, D-65).
async fn half_deleted<K: Wire + Kept, B: Backend>(backend: &B, key: K::Key, value: K::Value)
where
    B::Store: Table<K>,
{
    let store = &backend.store();
    let before = Table::<K>::create(store, &key, value.clone()).await.expect("created");
    backend.begin_deletion::<K>(&key).await;
    assert_eq!(Table::<K>::get(store, &key).await, Ok(None), "{}: readers do not see it", K::NAME);
    assert_eq!(Table::<K>::list(store, &K::Select::default(), Freshness::Latest).await, Ok(Vec::new()));
    assert_eq!(Table::<K>::create(store, &key, value.clone()).await, Err(StoreError::Exists));
    let update = Table::<K>::update(store, before.clone()).await;
    assert!(matches!(update, Err(StoreError::Conflict | StoreError::Absent)), "{update:?}");
    let half = Table::<K>::half_deleted(store).await.expect("listed");
    assert_eq!(half.iter().map(|r| (r.key.clone(), r.uid.clone())).collect::<Vec<_>>(), [(key.clone(), before.uid.clone())]);
    let stale = Table::<K>::purge(store, &before).await;
    assert!(matches!(stale, Err(StoreError::Conflict)), "purged under an old revision: {stale:?}");
    assert_eq!(Table::<K>::purge(store, &half[0]).await, Ok(()));
    assert_eq!(Table::<K>::purge(store, &half[0]).await, Err(StoreError::Absent));
    let new = Table::<K>::create(store, &key, value).await.expect("the way is free");
    assert_eq!(Table::<K>::delete(store, &new).await, Ok(()));
}

async fn selections(backend: &impl Backend) {
    let store = backend.store();
    let confirmed = Affinity { state: AffinityState::Confirmed, indexed: true };
    let keys: Vec<(Owner, BlockCidr)> = [
        (Owner::Host("node-1".into()), "10.0.0.64/26"),
        (Owner::Host("node-1".into()), "10.0.0.0/26"),
        (Owner::Host("node-2".into()), "10.0.0.128/26"),
        (Owner::Virtual("load-balancer".into()), "fd00::/122"),
    ]
    .map(|(owner, block)| (owner, cidr(block)))
    .into();
    for key in &keys {
        Table::<AffinityKind>::create(&store, key, confirmed.clone()).await.expect("created");
    }
    let listed = async |select: Rows, fresh| {
        let rows = Table::<AffinityKind>::list(&store, &select, fresh).await.expect("listed");
        rows.into_iter().map(|r| r.key).collect::<Vec<_>>()
    };
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!(listed(Rows::All, Freshness::Latest).await, sorted, "by key");
    let first = [keys[1].clone(), keys[0].clone()];
    assert_eq!(listed(Rows::Of(keys[0].0.clone()), Freshness::Latest).await, first);
    assert_eq!(listed(Rows::Of(Owner::Virtual("node-1".into())), Freshness::Latest).await, []);
    assert_eq!(listed(Rows::Of(keys[3].0.clone()), Freshness::Latest).await, [keys[3].clone()]);
    assert_eq!(listed(Rows::NotIndexed, Freshness::Latest).await, []);
    // A cached list may be behind, but only so far as to lack the newest.
    assert!(listed(Rows::All, Freshness::Cached).await.iter().all(|k| keys.contains(k)));
    for name in ["b", "a"] {
        let text = if name == "a" { "10.1.0.0/24@28" } else { "10.2.0.0/24" };
        Table::<PoolKind>::create(&store, &name.to_owned(), pool(text)).await.expect("created");
    }
    let pools = Table::<PoolKind>::list(&store, &(), Freshness::Latest).await.expect("listed");
    assert_eq!(pools.iter().map(|p| (p.key.as_str(), p.value.block_size)).collect::<Vec<_>>(), [("a", 28), ("b", 26)]);
    assert_eq!(pools[0].value, pool("10.1.0.0/24@28"));
}

async fn contents(backend: &impl Backend) {
    let store = backend.store();
    let key = cidr("fd00:10:244::40/126");
    let mut block = Block::new(key, None, 1_795_979_174_000_000_004).expect("fits");
    block.affinity = Some("host:node-1".into());
    block.claim_time = Some(Utc.with_ymd_and_hms(2026, 11, 29, 19, 6, 14).single().expect("a time"));
    let owner = [("pod".to_owned(), "web-0".to_owned()), ("namespace".into(), "default".into())];
    let ip = |n| key.ip(n).expect("inside");
    block.assign(ip(1), Some("k8s-pod-network.0f3c"), &owner.clone().into(), None).expect("free");
    block.assign(ip(3), None, &Default::default(), None).expect("free");
    let entry = Attribute { alternate: owner.into(), ..block.attributes_of(ip(1)).expect("assigned").clone() };
    block.update_ownership(ip(1), entry).expect("assigned");
    let released = Utc.with_ymd_and_hms(2026, 11, 29, 19, 7, 0).single().expect("a time");
    block.assign(ip(2), Some("gone"), &Default::default(), None).expect("free");
    block.release_by_handle(&HandleId::new("gone"), None, released, TimeDelta::hours(1));
    let stored = Table::<BlockKind>::create(&store, &key, block.clone()).await.expect("created");
    assert_eq!(stored.value, block);
    assert_eq!(Table::<BlockKind>::get(&store, &key).await.expect("read").map(|r| r.value), Some(block.clone()));
    let changed = Block { affinity: None, claim_time: None, seq: block.seq + 1, ..block };
    let stored = Table::<BlockKind>::update(&store, Row { value: changed.clone(), ..stored }).await.expect("updated");
    assert_eq!(stored.value, changed, "what is absent is gone");
    let reserved = Reservation { entries: vec!["10.0.0.0/30".into(), "fd00::1/128".into()] };
    let row = Table::<ReservationKind>::create(&store, &"r".into(), reserved.clone()).await.expect("created");
    assert_eq!(row.value, reserved);
}

async fn singles(backend: &impl Backend) {
    let store = backend.store();
    assert_eq!(Table::<ConfigKind>::get(&store, &()).await, Ok(None));
    let config = Config {
        strict_affinity: true,
        auto_allocate_blocks: false,
        max_blocks_per_host: 7,
        vm_address_persistence: false,
        cooldown_seconds: 30,
    };
    let row = Table::<ConfigKind>::create(&store, &(), config.clone()).await.expect("created");
    assert_eq!(row.value, config);
    let row = Table::<ConfigKind>::update(&store, Row { value: Config::default(), ..row }).await.expect("updated");
    assert_eq!(Table::<ConfigKind>::get(&store, &()).await, Ok(Some(row)));
    assert_eq!(Table::<NodeKind>::get(&store, &"nobody".into()).await, Ok(None));
}
