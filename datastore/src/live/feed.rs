//! Following one kind of a live server (D-78).
//!
//! Our own loop: an initial set as a stream of events (or a paged list where the server cannot), then every change, with bookmarks.
//! Only a full set proves absences: between [`Told::Behind`] and [`Told::Synced`] nothing may be concluded from one. The set is
//! read anew when its revision has expired, after five errors in a row, and after three minutes of silence.

use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use http::{Request, StatusCode};
use ipam::store::Freshness;
use ipam::{Clock as _, StoreError, SystemClock};
use kube::core::WatchEvent;
use serde_json::{Map, Value};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::store::KubeStore;
use super::traffic::{Relist, Traffic};

/// At least this long between two starts of a watch.
const PACE: Duration = Duration::from_secs(1);
/// A watch that has told nothing for so long, not even a bookmark, is not trusted.
const SILENCE: Duration = Duration::from_secs(180);
/// After so many errors in a row the full set is read anew.
const ERRORS: u32 = 5;

/// A kind that is not served is asked for every so many paces.
const UNSERVED: u32 = 30;

/// Namespace (empty for kinds without) and name.
pub type Name = (String, String);

/// What a feed tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// An object is there, with this content.
    Put(Name, Map<String, Value>),
    /// An object is not there any more.
    Gone(Name),
    /// The full set has been told; what is not in it is gone, and was told so.
    Synced,
    /// The full set is not known, and why: absences prove nothing until it is again. Told again when the reason changes.
    Behind(String),
    /// The server does not serve the kind. It is asked again.
    NotServed,
    /// The full set is of an older revision than one seen before: the server's store was replaced, and nothing that was known holds.
    WentBack,
}

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Map<String, Value>>>> + Send>>;

/// A feed of one kind.
pub struct Feed {
    store: KubeStore,
    kind: &'static str,
    path: String,
    pace: Interval,
    /// From where a watch goes on; `None`: the full set has to be read.
    revision: Option<String>,
    /// The watch that runs, and whether it is telling the initial set.
    events: Option<(Events, bool)>,
    /// What is there, and what of it this initial set has told.
    known: BTreeSet<Name>,
    marked: BTreeSet<Name>,
    errors: u32,
    /// The highest revision that was told.
    highest: u64,
    out: VecDeque<Told>,
    behind: Option<String>,
    unserved: bool,
    /// Why the next full set is read.
    relist: Relist,
}

fn name(object: &Map<String, Value>) -> Name {
    let text = |field: &str| object.get("metadata").and_then(|m| m[field].as_str()).unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

impl Feed {
    /// Follows the kind at `path`, such as `/api/v1/pods`.
    pub fn new(store: KubeStore, kind: &'static str, path: &str) -> Self {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            store,
            kind,
            path: path.into(),
            pace,
            revision: None,
            events: None,
            known: BTreeSet::new(),
            marked: BTreeSet::new(),
            errors: 0,
            highest: 0,
            out: VecDeque::new(),
            behind: None,
            unserved: false,
            relist: Relist::Start,
        }
    }

    /// What it tells, without end.
    pub fn told(self) -> impl Stream<Item = Told> + Send {
        stream::unfold(self, |mut feed| async move {
            loop {
                if let Some(told) = feed.out.pop_front() {
                    return Some((told, feed));
                }
                feed.step().await;
            }
        })
    }

    async fn step(&mut self) {
        let Some((events, _)) = &mut self.events else { return self.start().await };
        match timeout(SILENCE, events.next()).await {
            Ok(Some(Ok(event))) => self.event(event),
            // The server ends each watch now and then.
            Ok(None) if self.revision.is_some() => self.events = None,
            Ok(None) => self.failed("the initial set broke off"),
            // No event: what it was about cannot be told (D-77).
            Ok(Some(Err(e @ (kube::Error::SerdeError(_) | kube::Error::Api(_))))) => self.anew(&ipam::release::chain(&e), Relist::Errors),
            Ok(Some(Err(e))) => self.failed(&ipam::release::chain(&e)),
            Err(_) => self.anew("nothing was told for three minutes", Relist::Silent),
        }
    }

    /// A watch goes on, or the full set is read.
    async fn start(&mut self) {
        for _ in 0..if self.unserved { UNSERVED } else { 1 } {
            self.pace.tick().await;
        }
        let query = match &self.revision {
            Some(revision) => format!("watch=1&allowWatchBookmarks=true&resourceVersion={revision}"),
            None => {
                self.marked.clear();
                "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=".into()
            }
        };
        let initial = self.revision.is_none();
        let request = Request::get(format!("{}?{query}", self.path)).body(Vec::new());
        let Ok(request) = request else { return self.failed("the path cannot be asked for") };
        let answer = self.store.connection().client().request_events(request).await;
        let code = match &answer {
            Ok(_) => Some(StatusCode::OK),
            Err(kube::Error::Api(status)) => StatusCode::from_u16(status.code).ok(),
            Err(_) => None,
        };
        self.traffic().request("watch", self.kind, code, None);
        match answer {
            Ok(events) => self.events = Some((Box::pin(events), initial)),
            Err(kube::Error::Api(status)) => match status.code {
                404 => self.not_served(),
                410 => self.anew("its revision has expired", Relist::Expired),
                // A server without streaming lists.
                400 | 422 if initial => self.list().await,
                401 => {
                    self.store.connection().renew().await;
                    self.failed(&status.message);
                }
                _ => self.failed(&format!("{}: {}", status.code, status.message)),
            },
            Err(e) => self.failed(&ipam::release::chain(&e)),
        }
    }

    /// The full set as a paged, consistent list.
    async fn list(&mut self) {
        let mut objects = Vec::new();
        let take = &mut |object: Map<String, Value>| objects.push(object);
        match self.store.each(self.kind, &self.path, "", Freshness::Latest, take).await {
            Ok(revision) => {
                objects.into_iter().for_each(|object| self.put(object));
                self.complete(revision);
            }
            Err(StoreError::NotServed(_)) => self.not_served(),
            Err(e) => self.failed(&e.to_string()),
        }
    }

    fn traffic(&self) -> &Traffic {
        self.store.connection().traffic()
    }

    fn event(&mut self, event: WatchEvent<Map<String, Value>>) {
        self.traffic().told(self.kind, SystemClock.now());
        if !matches!(event, WatchEvent::Error(_)) {
            self.errors = 0;
        }
        let initial = self.events.as_ref().is_some_and(|(_, initial)| *initial);
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => self.put(object),
            WatchEvent::Deleted(object) => {
                self.seen(&object);
                let name = name(&object);
                self.known.remove(&name);
                self.marked.remove(&name);
                self.out.push_back(Told::Gone(name));
            }
            WatchEvent::Bookmark(mark) => {
                let revision = mark.metadata.resource_version;
                let last = mark.metadata.annotations.get("k8s.io/initial-events-end").is_some_and(|v| v == "true");
                if initial && last {
                    self.complete(revision);
                } else if !initial {
                    self.reached(&revision);
                    self.revision = Some(revision);
                }
            }
            WatchEvent::Error(status) if status.code == 410 => self.anew("its revision has expired", Relist::Expired),
            WatchEvent::Error(status) => self.failed(&status.message),
        }
    }

    fn put(&mut self, object: Map<String, Value>) {
        self.seen(&object);
        let name = name(&object);
        self.known.insert(name.clone());
        if self.revision.is_none() {
            self.marked.insert(name.clone());
        }
        self.out.push_back(Told::Put(name, object));
    }

    /// After the initial set every event moves the revision from which a watch goes on.
    fn seen(&mut self, object: &Map<String, Value>) {
        if self.events.as_ref().is_some_and(|(_, initial)| !initial)
            && let Some(revision) = object.get("metadata").and_then(|m| m["resourceVersion"].as_str())
        {
            self.reached(revision);
            self.revision = Some(revision.into());
        }
    }

    /// Whether this revision is older than the highest one, which it becomes otherwise.
    fn reached(&mut self, revision: &str) -> bool {
        let revision = revision.parse().unwrap_or(self.highest);
        let back = revision < self.highest;
        self.highest = self.highest.max(revision);
        back
    }

    /// The full set was told: what was known and is not in it is gone.
    fn complete(&mut self, revision: String) {
        let gone: Vec<Name> = self.known.difference(&self.marked).cloned().collect();
        for name in gone {
            self.known.remove(&name);
            self.out.push_back(Told::Gone(name));
        }
        self.marked.clear();
        if let Some((_, initial)) = &mut self.events {
            *initial = false;
        }
        let back = self.reached(&revision);
        let relist = std::mem::replace(&mut self.relist, Relist::Errors);
        self.traffic().relist(self.kind, if back { Relist::RevisionBack } else { relist });
        (self.revision, self.errors, self.behind, self.unserved) = (Some(revision), 0, None, false);
        self.out.push_back(if back { Told::WentBack } else { Told::Synced });
    }

    fn failed(&mut self, why: &str) {
        self.errors += 1;
        self.events = None;
        tracing::warn!(kind = self.kind, why, errors = self.errors, "following failed");
        if self.errors >= ERRORS || self.revision.is_none() {
            self.anew(why, if self.revision.is_none() { self.relist } else { Relist::Errors });
        }
    }

    /// The full set has to be read.
    fn anew(&mut self, why: &str, relist: Relist) {
        self.relist = relist;
        (self.events, self.revision, self.unserved) = (None, None, false);
        if self.behind.as_deref() != Some(why) {
            self.behind = Some(why.into());
            self.out.push_back(Told::Behind(why.into()));
        }
    }

    fn not_served(&mut self) {
        (self.events, self.revision) = (None, None);
        self.behind = None;
        if !std::mem::replace(&mut self.unserved, true) {
            self.out.push_back(Told::NotServed);
        }
    }
}
