//! What a network and a busy server do to the live store (D-57, D-75, D-79, D-80), through a proxy that spoils answers.

use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use http::Method;
use ipam::mem::Verb;
use ipam::model::{AffinityKind, Handle, HandleKind, PoolKind, ReservationKind, Rows};
use ipam::store::{Freshness, Row, StoreError, Table};
use ipam::{AutoAssign, HandleId, Ipam, SystemClock};
use ipam_datastore::{Group, KubeStore};
use ipam_tests::control_plane::{ControlPlane, create};
use ipam_tests::lab::cidr;
use ipam_tests::proxy::{Proxied, Spoil};
use serde_json::json;

fn key() -> HandleId {
    HandleId::new("h")
}

fn value(n: i64) -> Handle {
    Handle { id: "h".into(), blocks: [(cidr("10.0.0.0/26"), n)].into() }
}

async fn read(store: &KubeStore) -> Option<Row<HandleKind>> {
    Table::<HandleKind>::get(store, &key()).await.expect("read")
}

#[tokio::test]
async fn d_57_writes_without_answer_are_unknown_and_never_repeated() {
    let Proxied { plane: _plane, proxy, store, .. } = Proxied::start().await;
    let unknown = |done: Result<Row<HandleKind>, StoreError>| assert!(matches!(done, Err(StoreError::Unavailable(_))), "{done:?}");
    // Done, and the answer is lost.
    proxy.spoil(Method::POST, "ipamhandles", Spoil::CutAnswer);
    unknown(Table::<HandleKind>::create(&store, &key(), value(1)).await);
    let one = read(&store).await.expect("it was written");
    proxy.spoil(Method::PUT, "ipamhandles", Spoil::CutAnswer);
    unknown(Table::<HandleKind>::update(&store, Row { value: value(2), ..one.clone() }).await);
    let two = read(&store).await.expect("there");
    assert_eq!(two.value, value(2), "it was written");
    // Not done.
    proxy.spoil(Method::PUT, "ipamhandles", Spoil::CutRequest);
    unknown(Table::<HandleKind>::update(&store, Row { value: value(3), ..two.clone() }).await);
    for code in [401, 429, 500, 503, 504] {
        proxy.spoil(Method::PUT, "ipamhandles", Spoil::Answer(code));
        unknown(Table::<HandleKind>::update(&store, Row { value: value(3), ..two.clone() }).await);
    }
    assert_eq!(read(&store).await, Some(two.clone()), "it was not");
    proxy.seen();
    proxy.spoil(Method::DELETE, "ipamhandles", Spoil::CutAnswer);
    let done = Table::<HandleKind>::delete(&store, &two).await;
    assert!(matches!(done, Err(StoreError::Unavailable(_))));
    assert_eq!(proxy.seen().len(), 1, "once each");
    assert!(read(&store).await.is_none() && proxy.done());
    let writes = [Verb::Create, Verb::Update, Verb::Delete].map(|v| store.connection().requests()[&(v, "IPAMHandle")]);
    assert_eq!(writes, [1, 7, 1], "as often as they were called");
}

#[tokio::test]
async fn d_84_a_write_into_a_store_that_stands_still_may_land_late() {
    let plane = ControlPlane::start(Group::V3).await;
    let store = KubeStore::new(plane.connection().await, Group::V3);
    let frozen = plane.freeze_etcd();
    let done = Table::<HandleKind>::create(&store, &key(), value(1)).await;
    assert!(matches!(&done, Err(StoreError::Unavailable(why)) if why.contains("within 10 s")), "{done:?}");
    drop(frozen);
    // It may be there now, or later, or never: whoever tries again is told which.
    let again = || async {
        match Table::<HandleKind>::create(&store, &key(), value(1)).await {
            Ok(_) | Err(StoreError::Exists) => Ok(()),
            Err(e) => Err(e),
        }
    };
    let done = again.retry(ConstantBuilder::default().with_delay(Duration::from_millis(500)).with_max_times(60)).await;
    assert_eq!(done, Ok(()), "and everything goes on");
    assert_eq!(read(&store).await.map(|row| row.value), Some(value(1)));
}

#[tokio::test]
async fn d_80_readings_are_tried_again_a_few_times() {
    let Proxied { plane: _plane, proxy, store, .. } = Proxied::start().await;
    Table::<HandleKind>::create(&store, &key(), value(1)).await.expect("created");
    for how in [Spoil::CutAnswer, Spoil::CutRequest, Spoil::Answer(429), Spoil::Answer(503)] {
        proxy.spoil(Method::GET, "ipamhandles", how);
        assert!(read(&store).await.is_some());
        proxy.spoil(Method::GET, "ipamhandles", Spoil::CutAnswer);
        let rows = Table::<HandleKind>::list(&store, &(), Freshness::Latest).await.expect("listed");
        assert_eq!(rows.len(), 1, "a list that broke off is no list");
    }
    proxy.seen();
    for _ in 0..4 {
        proxy.spoil(Method::GET, "ipamhandles", Spoil::Answer(503));
    }
    assert!(matches!(Table::<HandleKind>::get(&store, &key()).await, Err(StoreError::Unavailable(_))));
    assert_eq!(proxy.seen().len(), 4);
    for (code, refused) in [(403, true), (400, true), (404, false)] {
        proxy.spoil(Method::GET, "ipamhandles", Spoil::Answer(code));
        let done = Table::<HandleKind>::get(&store, &key()).await;
        assert!(matches!((&done, refused), (Err(StoreError::Refused(_)), true) | (Err(StoreError::NotServed(_)), false)), "{done:?}");
        assert_eq!(proxy.seen().len(), 1, "not tried again");
    }
}

#[tokio::test]
async fn d_79_del_10_cached_lists_carry_no_limit_and_lists_by_host_ask_for_labels() {
    let Proxied { plane: _plane, proxy, store, .. } = Proxied::start().await;
    drop(Table::<PoolKind>::list(&store, &(), Freshness::Cached).await);
    drop(Table::<PoolKind>::list(&store, &(), Freshness::Latest).await);
    let of = Rows::Of(ipam::Owner::Host("node-a".into()));
    drop(Table::<AffinityKind>::list(&store, &of, Freshness::Cached).await);
    let labels = "projectcalico%2Eorg%2Fhostname%2Dhash%3DPY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA%2C\
                  projectcalico%2Eorg%2Faffinity%2Dtype%3Dhost";
    assert_eq!(
        proxy.seen(),
        [
            "GET /apis/projectcalico.org/v3/ippools?resourceVersion=0".to_owned(),
            "GET /apis/projectcalico.org/v3/ippools?limit=500".into(),
            format!("GET /apis/projectcalico.org/v3/blockaffinities?resourceVersion=0&labelSelector={labels}"),
        ]
    );
}

#[tokio::test]
async fn del_04_d_28_a_row_that_is_known_is_deleted_by_one_request() {
    let Proxied { plane: _plane, proxy, store, .. } = Proxied::start().await;
    let row = Table::<HandleKind>::create(&store, &key(), value(1)).await.expect("created");
    proxy.seen();
    assert_eq!(Table::<HandleKind>::delete(&store, &row).await, Ok(()));
    assert_eq!(proxy.seen(), ["DELETE /apis/projectcalico.org/v3/ipamhandles/h"]);
}

#[tokio::test]
async fn an_assignment_whose_write_has_no_answer_says_so() {
    let Proxied { plane, proxy, store, .. } = Proxied::start().await;
    plane.fill("examples/leaky-cluster.v3.yaml").await;
    let ipam = Ipam::new(store, SystemClock);
    proxy.spoil(Method::PUT, "ipamblocks", Spoil::CutAnswer);
    let got = ipam.auto_assign(&AutoAssign::new("node-a", "Workload", 1, 0).handle("h")).await.expect("may be held").v4.expect("asked for");
    assert_eq!((got.ips.len(), got.unknown.len()), (0, 1));
    assert_eq!(ipam.ips_by_handle("h").await, Ok(Some(vec![got.unknown[0].addr()])), "it is, and its handle counts it");
    assert_eq!(ipam.release_by_handle(&HandleId::new("h")).await, Ok(vec![got.unknown[0].addr()]));
}

#[tokio::test]
async fn d_80_a_token_that_expired_is_read_again_from_its_file() {
    let plane = ControlPlane::start(Group::V1).await;
    let store = KubeStore::new(plane.connection().await, Group::V1);
    Table::<HandleKind>::create(&store, &key(), value(1)).await.expect("created");
    std::fs::write(plane.token_file(), "wrong").expect("written");
    let other = KubeStore::new(plane.connection().await, Group::V1);
    assert!(matches!(Table::<HandleKind>::get(&other, &key()).await, Err(StoreError::Refused(_))), "refused while the token is wrong");
    std::fs::write(plane.token_file(), "second").expect("written");
    // The file is looked at again after five seconds at the latest.
    let again = || async { Table::<HandleKind>::get(&other, &key()).await };
    let row = again.retry(ConstantBuilder::default().with_delay(Duration::from_millis(500)).with_max_times(20)).await;
    assert!(row.expect("the new token is used").is_some());
    std::fs::write(plane.token_file(), "nobody").expect("written");
    let nobody = KubeStore::new(plane.connection().await, Group::V1);
    let refused = Table::<HandleKind>::list(&nobody, &(), Freshness::Latest).await;
    assert!(matches!(refused, Err(StoreError::Refused(why)) if why.contains("ipamhandles")), "RBAC names the kind");
}

#[tokio::test]
async fn rows_that_a_finalizer_holds_and_kinds_that_are_served_no_more() {
    let Proxied { plane, store, proxy: _proxy, .. } = Proxied::start().await;
    let client = plane.client().await;
    let handle = json!({
        "apiVersion": "projectcalico.org/v3",
        "kind": "IPAMHandle",
        "metadata": {"name": "h", "finalizers": ["test.invalid/held"]},
        "spec": {"handleID": "h", "block": {"10.0.0.0/26": 1}},
    });
    create(&client, "/apis/projectcalico.org/v3/ipamhandles", &handle).await;
    let row = read(&store).await.expect("there");
    let held = Table::<HandleKind>::delete(&store, &row).await;
    assert!(matches!(held, Err(StoreError::Refused(_))), "marked, not deleted: {held:?}");
    assert!(read(&store).await.is_some());
    plane.undefine("ipreservations.projectcalico.org").await;
    let listed = || async {
        match Table::<ReservationKind>::list(&store, &(), Freshness::Latest).await {
            Err(StoreError::NotServed(kind)) => Ok(kind),
            other => Err(format!("{other:?}")),
        }
    };
    let gone = listed.retry(ConstantBuilder::default().with_delay(Duration::from_millis(200)).with_max_times(100)).await;
    assert_eq!(gone, Ok("IPReservation"));
    assert_eq!(Table::<PoolKind>::list(&store, &(), Freshness::Latest).await, Ok(Vec::new()), "others are");
}
