//! Following kinds of a real API server, with trouble in between (D-76, D-78).

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use http::Method;
use ipam::model::{Handle, HandleKind};
use ipam::store::{Row, Table};
use ipam::{HandleId, StoreError};
use ipam_datastore::live::{Connection, Feed, Told};
use ipam_datastore::{Group, KubeStore};
use ipam_tests::control_plane::ControlPlane;
use ipam_tests::lab::cidr;
use ipam_tests::proxy::{Proxy, Spoil};
use tokio::time::timeout;

const HANDLES: &str = "/apis/projectcalico.org/v3/ipamhandles";

type Stories = Pin<Box<dyn Stream<Item = Told> + Send>>;

struct Cluster {
    plane: ControlPlane,
    proxy: Proxy,
    /// Past the proxy: for what others do.
    direct: KubeStore,
}

async fn cluster() -> Cluster {
    let plane = ControlPlane::start(Group::V3).await;
    let proxy = Proxy::start(plane.client().await).await;
    let direct = KubeStore::new(plane.connection().await, Group::V3);
    Cluster { plane, proxy, direct }
}

impl Cluster {
    async fn feed(&self, path: &str) -> Stories {
        let store = KubeStore::new(Connection::new(self.proxy.access()).await.expect("a client"), Group::V3);
        Box::pin(Feed::new(store, "IPAMHandle", path).told())
    }

    async fn create(&self, name: &str) -> Row<HandleKind> {
        let value = Handle { id: name.into(), blocks: [(cidr("10.0.0.0/26"), 1)].into() };
        Table::<HandleKind>::create(&self.direct, &HandleId::new(name), value).await.expect("created")
    }
}

/// The next word, as `put NAME`, `gone NAME`, `synced`, `behind` or `not served`.
async fn next(feed: &mut Stories) -> String {
    let told = timeout(Duration::from_secs(30), feed.next()).await.expect("in time").expect("without end");
    match told {
        Told::Put((_, name), object) => {
            assert_eq!(object["metadata"]["name"], name.as_str());
            format!("put {name}")
        }
        Told::Gone((_, name)) => format!("gone {name}"),
        Told::Synced => "synced".into(),
        Told::Behind(_) => "behind".into(),
        Told::NotServed => "not served".into(),
        Told::WentBack => "went back".into(),
    }
}

async fn words(feed: &mut Stories, n: usize) -> Vec<String> {
    let mut words = Vec::new();
    for _ in 0..n {
        words.push(next(feed).await);
    }
    words
}

#[tokio::test]
async fn a_feed_tells_the_full_set_and_then_every_change() {
    let cluster = cluster().await;
    cluster.create("a").await;
    let mut feed = cluster.feed(HANDLES).await;
    assert_eq!(words(&mut feed, 2).await, ["put a", "synced"]);
    let b = cluster.create("b").await;
    let changed = Handle { blocks: [(cidr("10.0.0.0/26"), 2)].into(), ..b.value.clone() };
    let b = Table::<HandleKind>::update(&cluster.direct, Row { value: changed, ..b }).await.expect("updated");
    assert_eq!(Table::<HandleKind>::delete(&cluster.direct, &b).await, Ok(()));
    assert_eq!(words(&mut feed, 3).await, ["put b", "put b", "gone b"]);
    assert!(cluster.proxy.seen().iter().any(|r| r.contains("sendInitialEvents=true")));
}

#[tokio::test]
async fn d_78_a_revision_that_expired_and_a_server_without_streaming_lists() {
    let cluster = cluster().await;
    // No streaming lists: a paged list, then a watch from its revision, whose revision has expired.
    cluster.create("a").await;
    cluster.proxy.spoil(Method::GET, "sendInitialEvents", Spoil::Answer(422));
    cluster.proxy.spoil(Method::GET, "watch=1&allowWatchBookmarks=true&resourceVersion=", Spoil::Event(410));
    let mut feed = cluster.feed(HANDLES).await;
    assert_eq!(words(&mut feed, 2).await, ["put a", "synced"]);
    let a = Table::<HandleKind>::get(&cluster.direct, &HandleId::new("a")).await.expect("read").expect("there");
    assert_eq!(Table::<HandleKind>::delete(&cluster.direct, &a).await, Ok(()));
    cluster.create("b").await;
    // The set is read anew; what is not in it is gone.
    assert_eq!(words(&mut feed, 4).await, ["behind", "put b", "gone a", "synced"]);
    assert!(cluster.proxy.done());
}

#[tokio::test]
async fn d_78_errors_and_a_server_that_went_away() {
    let mut cluster = cluster().await;
    cluster.create("a").await;
    let a = Table::<HandleKind>::get(&cluster.direct, &HandleId::new("a")).await.expect("read").expect("there");
    let mut feed = cluster.feed(HANDLES).await;
    assert_eq!(words(&mut feed, 2).await, ["put a", "synced"]);
    cluster.plane.stop_server();
    cluster.plane.start_server();
    cluster.plane.ready().await;
    assert_eq!(Table::<HandleKind>::delete(&cluster.direct, &a).await, Ok(()));
    cluster.create("b").await;
    // Either the watch goes on, or the set is read anew; nothing is missed.
    let mut told = Vec::new();
    while !(told.contains(&"gone a".to_owned()) && told.contains(&"put b".to_owned())) {
        told.push(next(&mut feed).await);
    }
    let behind = told.iter().filter(|w| *w == "behind").count();
    let synced = told.iter().filter(|w| *w == "synced").count();
    assert!(behind <= 1 && synced <= behind, "{told:?}");
}

#[tokio::test]
async fn d_78_five_errors_in_a_row_read_the_set_anew() {
    let cluster = cluster().await;
    cluster.create("a").await;
    // The watch after the initial set tells an error as often as it is started.
    cluster.proxy.spoil(Method::GET, "sendInitialEvents", Spoil::Answer(422));
    for _ in 0..5 {
        cluster.proxy.spoil(Method::GET, "watch=1&allowWatchBookmarks=true&resourceVersion=", Spoil::Event(500));
    }
    let mut feed = cluster.feed(HANDLES).await;
    assert_eq!(words(&mut feed, 5).await, ["put a", "synced", "behind", "put a", "synced"]);
    assert!(cluster.proxy.done());
}

#[tokio::test]
async fn d_76_a_kind_that_is_not_served_and_one_that_is_forbidden() {
    let cluster = cluster().await;
    let mut feed = cluster.feed("/apis/nowhere.test/v1/things").await;
    assert_eq!(next(&mut feed).await, "not served");
    for _ in 0..6 {
        cluster.proxy.spoil(Method::GET, "ipamhandles", Spoil::Answer(403));
    }
    let mut feed = cluster.feed(HANDLES).await;
    assert_eq!(next(&mut feed).await, "behind", "403 is never \"missing\"");
    assert_eq!(next(&mut feed).await, "synced", "asked again until it is allowed");
    let nothing: Result<_, StoreError> = Table::<HandleKind>::get(&cluster.direct, &HandleId::new("a")).await;
    assert_eq!(nothing, Ok(None));
}
