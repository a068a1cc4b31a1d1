//! Following kinds of a real API server, with trouble in between (D-76, D-78).

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use http::Method;
use ipam::model::{Handle, HandleKind};
use ipam::store::{Row, Table};
use ipam::{HandleId, StoreError};
use ipam_datastore::live::{Feed, Told};
use ipam_tests::lab::cidr;
use ipam_tests::proxy::{Proxied, Spoil};
use tokio::time::timeout;

const HANDLES: &str = "/apis/projectcalico.org/v3/ipamhandles";

type Stories = Pin<Box<dyn Stream<Item = Told> + Send>>;

fn feed(cluster: &Proxied, path: &str) -> Stories {
    Box::pin(Feed::new(cluster.store.clone(), "IPAMHandle", path).told())
}

async fn created(cluster: &Proxied, name: &str) -> Row<HandleKind> {
    let value = Handle { id: name.into(), blocks: [(cidr("10.0.0.0/26"), 1)].into() };
    Table::<HandleKind>::create(&cluster.direct, &HandleId::new(name), value).await.expect("created")
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
    let cluster = Proxied::start().await;
    created(&cluster, "a").await;
    let mut told = feed(&cluster, HANDLES);
    assert_eq!(words(&mut told, 2).await, ["put a", "synced"]);
    let b = created(&cluster, "b").await;
    let changed = Handle { blocks: [(cidr("10.0.0.0/26"), 2)].into(), ..b.value.clone() };
    let b = Table::<HandleKind>::update(&cluster.direct, Row { value: changed, ..b }).await.expect("updated");
    assert_eq!(Table::<HandleKind>::delete(&cluster.direct, &b).await, Ok(()));
    assert_eq!(words(&mut told, 3).await, ["put b", "put b", "gone b"]);
    assert!(cluster.proxy.seen().iter().any(|r| r.contains("sendInitialEvents=true")));
}

#[tokio::test]
async fn d_78_a_revision_that_expired_and_a_server_without_streaming_lists() {
    let cluster = Proxied::start().await;
    // No streaming lists: a paged list, then a watch from its revision, whose revision has expired.
    created(&cluster, "a").await;
    cluster.proxy.spoil(Method::GET, "sendInitialEvents", Spoil::Answer(422));
    cluster.proxy.spoil(Method::GET, "watch=1&allowWatchBookmarks=true&resourceVersion=", Spoil::Event(410));
    let mut told = feed(&cluster, HANDLES);
    assert_eq!(words(&mut told, 2).await, ["put a", "synced"]);
    let a = Table::<HandleKind>::get(&cluster.direct, &HandleId::new("a")).await.expect("read").expect("there");
    assert_eq!(Table::<HandleKind>::delete(&cluster.direct, &a).await, Ok(()));
    created(&cluster, "b").await;
    // The set is read anew; what is not in it is gone.
    assert_eq!(words(&mut told, 4).await, ["behind", "put b", "gone a", "synced"]);
    assert!(cluster.proxy.done());
}

#[tokio::test]
async fn d_78_errors_and_a_server_that_went_away() {
    let mut cluster = Proxied::start().await;
    created(&cluster, "a").await;
    let a = Table::<HandleKind>::get(&cluster.direct, &HandleId::new("a")).await.expect("read").expect("there");
    let mut told = feed(&cluster, HANDLES);
    assert_eq!(words(&mut told, 2).await, ["put a", "synced"]);
    cluster.plane.stop_server();
    cluster.plane.start_server();
    cluster.plane.ready().await;
    assert_eq!(Table::<HandleKind>::delete(&cluster.direct, &a).await, Ok(()));
    created(&cluster, "b").await;
    // Either the watch goes on, or the set is read anew; nothing is missed.
    let mut said = Vec::new();
    while !(said.contains(&"gone a".to_owned()) && said.contains(&"put b".to_owned())) {
        said.push(next(&mut told).await);
    }
    let behind = said.iter().filter(|w| *w == "behind").count();
    let synced = said.iter().filter(|w| *w == "synced").count();
    assert!(synced <= behind.min(1), "{said:?}");
}

#[tokio::test]
async fn d_78_five_errors_in_a_row_read_the_set_anew() {
    let cluster = Proxied::start().await;
    created(&cluster, "a").await;
    // The watch after the initial set tells an error as often as it is started.
    cluster.proxy.spoil(Method::GET, "sendInitialEvents", Spoil::Answer(422));
    for _ in 0..5 {
        cluster.proxy.spoil(Method::GET, "watch=1&allowWatchBookmarks=true&resourceVersion=", Spoil::Event(500));
    }
    let mut told = feed(&cluster, HANDLES);
    assert_eq!(words(&mut told, 5).await, ["put a", "synced", "behind", "put a", "synced"]);
    assert!(cluster.proxy.done());
}

#[tokio::test]
async fn d_77_what_is_no_event_makes_the_kind_unsure_and_the_set_is_read_anew() {
    let cluster = Proxied::start().await;
    created(&cluster, "a").await;
    cluster.proxy.spoil(Method::GET, "sendInitialEvents", Spoil::Rubbish);
    cluster.proxy.spoil(Method::GET, "sendInitialEvents", Spoil::Answer(422));
    cluster.proxy.spoil(Method::GET, "watch=1&allowWatchBookmarks=true&resourceVersion=", Spoil::Rubbish);
    let mut told = feed(&cluster, HANDLES);
    // In the initial set and later.
    assert_eq!(words(&mut told, 6).await, ["behind", "put a", "synced", "behind", "put a", "synced"]);
    assert!(cluster.proxy.done());
}

#[tokio::test]
async fn d_76_a_kind_that_is_not_served_and_one_that_is_forbidden() {
    let cluster = Proxied::start().await;
    let mut told = feed(&cluster, "/apis/nowhere.test/v1/things");
    assert_eq!(next(&mut told).await, "not served");
    for _ in 0..6 {
        cluster.proxy.spoil(Method::GET, "ipamhandles", Spoil::Answer(403));
    }
    let mut told = feed(&cluster, HANDLES);
    assert_eq!(next(&mut told).await, "behind", "403 is never \"missing\"");
    assert_eq!(next(&mut told).await, "synced", "asked again until it is allowed");
    let nothing: Result<_, StoreError> = Table::<HandleKind>::get(&cluster.direct, &HandleId::new("a")).await;
    assert_eq!(nothing, Ok(None));
}
