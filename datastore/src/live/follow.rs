//! Following everything that a cluster has: the feeds of all kinds, joined.
//!
//! One task a kind reads and decodes; all speak into one bounded channel, so that a slow reader slows the server down and not the
//! memory. Who reads puts together what no single kind can know: how far absences prove something, and what must not be acted
//! on because of objects that were not understood.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use ipam::StoreError;
use ipam::audit::BadObject;
use ipam::ids::BlockCidr;
use ipam::model::HandleKind;
use ipam::store::{Freshness, Row};
use ipam_accounting::inventory::{Holds, Trust, Trusts};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::connection::Connection;
use super::discovery::discover;
use super::feed::{Feed, Name, Told};
use super::kinds::{Decoder, Said, decoded, place};
use super::store::KubeStore;
use super::traffic::Numbers;
use crate::bad::{BadItem, concerns_handles, holds};
use crate::update::{Sync, Update, Watched};
use crate::wire::Wire as _;

/// How much may wait.
const CAPACITY: usize = 1024;
/// At most so much is handed over at once.
const AT_ONCE: usize = 10_000;
/// How often the server is asked which API group it speaks (D-81).
pub const DISCOVERY: Duration = Duration::from_secs(30);
/// After so many more looks with the same answer everything begins anew.
const LOOKS: u32 = 2;
/// How long until a list of handles that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Nothing that was told holds any more: whoever follows must forget everything, and follow anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Anew(pub String);

/// The handles that name blocks that were not understood.
type Handles = (u64, Vec<Row<HandleKind>>, Vec<BadItem>);

enum Heard {
    Kind(Said),
    Handles(Handles),
}

/// What is asked about handles: in which blocks they are, and when that was asked.
type Question = (u64, BTreeSet<BlockCidr>);

/// Follows a cluster; ends with it.
pub struct Follower {
    connection: Connection,
    heard: mpsc::Receiver<Heard>,
    /// Came while nobody was ready for it.
    next: Option<Heard>,
    tasks: JoinSet<()>,
    /// Everything must begin anew: said ever after.
    over: Option<Anew>,
    trusts: Trusts,
    bad: BTreeMap<(Watched, Name), BadItem>,
    question: watch::Sender<Question>,
    /// The answer to the last question, if it is there.
    handles: Option<(Vec<Row<HandleKind>>, Vec<BadItem>)>,
}

impl Follower {
    /// Follows the cluster of a store; without `kubevirt` as if it served no VMs. Which API group the server speaks is asked again
    /// every `discovery`, if given.
    pub fn new(store: &KubeStore, discovery: Option<Duration>, kubevirt: bool) -> Self {
        let (out, heard) = mpsc::channel(CAPACITY);
        let (question, asked) = watch::channel(Question::default());
        let poke = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        for watched in Watched::ALL {
            if kubevirt || !matches!(watched, Watched::Vm | Watched::Vmi) {
                tasks.spawn(follow(store.clone(), watched, out.clone(), poke.clone()));
            } else {
                // The channel has room for all kinds.
                drop(out.try_send(Heard::Kind(Said::Sync(watched, Sync::NotServed))));
            }
        }
        if let Some(every) = discovery {
            tasks.spawn(groups(store.clone(), every, out.clone(), poke));
        }
        tasks.spawn(handles(store.clone(), asked, out));
        let (trusts, bad) = (Trusts { not_if_empty: true, ..Trusts::default() }, BTreeMap::new());
        let connection = store.connection().clone();
        Self { connection, heard, next: None, tasks, over: None, trusts, bad, question, handles: None }
    }

    /// Numbers of what goes between us and the server.
    pub fn numbers(&self) -> Numbers {
        self.connection.traffic().numbers()
    }

    /// Objects that are not understood.
    pub fn bad(&self) -> Vec<BadObject> {
        self.bad.values().map(|item| item.what.clone()).collect()
    }

    /// How many changes wait, and how many may.
    pub fn queue(&self) -> (usize, usize) {
        (self.heard.len(), CAPACITY)
    }

    /// Hands over what waits; answers whether there was anything.
    ///
    /// # Errors
    /// Everything must begin anew.
    pub fn drain(&mut self, sink: &mut (dyn FnMut(Update) + Send)) -> Result<bool, Anew> {
        let mut any = false;
        for _ in 0..AT_ONCE {
            if let Some(anew) = &self.over {
                return Err(anew.clone());
            }
            let Some(heard) = self.next.take().or_else(|| self.heard.try_recv().ok()) else { break };
            any = true;
            match heard {
                Heard::Kind(said) => self.said(said, sink),
                // An answer to an older question is none.
                Heard::Handles((asked, rows, bad)) if asked == self.question.borrow().0 => {
                    self.handles = Some((rows, bad));
                    sink(Update::Holds(self.holds()));
                }
                Heard::Handles(_) => {}
            }
        }
        if self.tasks.try_join_next().is_some() {
            self.ended();
        }
        self.over.clone().map_or(Ok(any), Err)
    }

    fn ended(&mut self) {
        self.over.get_or_insert_with(|| Anew("a feed has ended".into()));
    }

    /// Waits until there is something to hand over.
    pub async fn ready(&mut self) {
        if self.next.is_none() && self.over.is_none() {
            tokio::select! {
                // What was said last comes before that nothing is said any more.
                biased;
                heard = self.heard.recv() => self.next = heard,
                _ = self.tasks.join_next() => self.ended(),
            }
        }
    }

    fn said(&mut self, said: Said, sink: &mut (dyn FnMut(Update) + Send)) {
        match said {
            Said::Update(update) => sink(update),
            Said::Sync(watched, sync) => {
                let before = self.trusts.clone();
                let full = sync == Sync::Full;
                match watched {
                    Watched::Pod => self.trusts.pods = if full { Trust::Full } else { Trust::Nothing },
                    Watched::Node => self.trusts.nodes = full,
                    Watched::Vm => self.trusts.vms = full,
                    Watched::Vmi => self.trusts.vmis = full,
                    Watched::Affinity => self.trusts.affinities = full,
                    _ => {}
                }
                sink(Update::Sync(watched, sync));
                if self.trusts != before {
                    sink(Update::Trusts(self.trusts.clone()));
                }
            }
            Said::Bad(watched, name, item) => {
                let key = (watched, name);
                match item {
                    Some(item) => drop(self.bad.insert(key, *item)),
                    None => drop(self.bad.remove(&key)),
                }
                if watched == Watched::Block {
                    self.ask();
                }
                sink(Update::Holds(self.holds()));
            }
            Said::Anew(why) => self.over = Some(Anew(why)),
        }
    }

    /// Asks which handles are in the blocks that were not understood. A handle is counted before its block is written, so a list
    /// that begins after the block was told has them all.
    fn ask(&mut self) {
        self.handles = None;
        let blocks = self.bad.values().filter_map(|b| b.what.block).collect();
        self.question.send_modify(|question| *question = (question.0 + 1, blocks));
    }

    /// What must not be acted on. Until the handles of bad blocks are known, no handle may.
    fn holds(&self) -> Holds {
        let (rows, bad) = self.handles.as_ref().map_or((&[][..], &[][..]), |(rows, bad)| (rows, bad));
        let mut all = holds(self.bad.values().chain(bad), rows);
        all.all_handles |= self.handles.is_none() && concerns_handles(self.bad.values());
        all
    }
}

/// One kind.
async fn follow(store: KubeStore, watched: Watched, out: mpsc::Sender<Heard>, poke: Arc<Notify>) {
    let (kind, path) = place(watched, store.group());
    let mut decoder = Decoder::new(watched, store.group());
    let mut told = std::pin::pin!(Feed::new(store, kind, &path).told());
    while let Some(told) = told.next().await {
        if told == Told::NotServed {
            poke.notify_one();
        }
        for said in decoder.told(told) {
            if out.send(Heard::Kind(said)).await.is_err() {
                return;
            }
        }
    }
}

/// Whether the server speaks the group that is followed (D-81).
async fn groups(store: KubeStore, every: Duration, out: mpsc::Sender<Heard>, poke: Arc<Notify>) {
    let mut ticks = interval(every);
    let mut other = None;
    loop {
        let by_time = tokio::select! {
            _ = ticks.tick() => true,
            () = poke.notified() => false,
        };
        // A server that does not answer says nothing.
        let Ok(found) = discover(store.connection()).await else { continue };
        let found = (found != store.group()).then_some(found);
        if found != other.map(|(group, _)| group) {
            other = found.map(|group| (group, 0));
            if out.send(Heard::Kind(Said::Update(Update::OtherGroup(found)))).await.is_err() {
                return;
            }
        } else if let Some((group, looks)) = &mut other {
            *looks += u32::from(by_time);
            if *looks >= LOOKS {
                let why = format!("the server speaks {group} now");
                drop(out.send(Heard::Kind(Said::Anew(why))).await);
                return;
            }
        }
    }
}

/// Answers which handles are in some blocks.
async fn handles(store: KubeStore, mut asked: watch::Receiver<Question>, out: mpsc::Sender<Heard>) {
    while asked.changed().await.is_ok() {
        loop {
            let (number, blocks) = asked.borrow_and_update().clone();
            let answer = if blocks.is_empty() { Ok((Vec::new(), Vec::new())) } else { in_blocks(&store, &blocks).await };
            match answer {
                Ok((rows, bad)) => {
                    if out.send(Heard::Handles((number, rows, bad))).await.is_err() {
                        return;
                    }
                    break;
                }
                Err(e) => {
                    tracing::warn!(error = %e, "the handles of blocks that are not understood cannot be listed");
                    // Later, or at the next question.
                    drop(timeout(AGAIN, asked.changed()).await);
                }
            }
        }
    }
}

async fn in_blocks(store: &KubeStore, blocks: &BTreeSet<BlockCidr>) -> Result<(Vec<Row<HandleKind>>, Vec<BadItem>), StoreError> {
    let kind = HandleKind::kind(store.group());
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    let take = &mut |object: serde_json::Map<String, Value>| {
        let whole = Value::Object(object.clone());
        match decoded::<HandleKind>(object, store.group()) {
            Ok(decoded) if decoded.row.value.blocks.keys().any(|b| blocks.contains(b)) => rows.push(decoded.row),
            Ok(_) => {}
            Err(e) => bad.push(BadItem::new(kind, &whole, &e)),
        }
    };
    store.each(kind, &store.path::<HandleKind>(None), "", Freshness::Latest, take).await?;
    Ok((rows, bad))
}
