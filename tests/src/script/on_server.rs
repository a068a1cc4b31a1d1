//! The same scripts on a real API server, in either group: what a script says is written to the server, and the operator, with the
//! script's clock, follows it, looks once more and writes.
//!
//! Nothing waits for time: after each change a *marker* of every kind is changed too, and what is told of a kind comes in order, so
//! once the view shows all markers it shows everything before them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request};
use ipam::audit::Snapshot;
use ipam::ids::{BlockCidr, Owner};
use ipam::mem::Kept;
use ipam::model::{
    Affinity, AffinityKind, AffinityState, BlockKind, ClusterInfo, ClusterKind, ConfigKind, HandleKind, PoolKind, ReservationKind,
};
use ipam::store::{Freshness, Kind, Row, Table};
use ipam::{Block, Clock as _, Ipam};
use ipam_accounting::Evidence as _;
use ipam_accounting::facts::{Finished, Lookup, NodeFacts, PodFacts, VmiFacts};
use ipam_datastore::live::Follower;
use ipam_datastore::opt_out::DO_NOT_RELEASE;
use ipam_datastore::update::Watched;
use ipam_datastore::{Group, KubeStore, Update};
use ipam_operator::execute::Unwatched;
use ipam_operator::look::{LastLook, Live};
use ipam_operator::pass::Pass;
use ipam_operator::plan::Because;
use ipam_operator::view::{Gate, View};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{World, duration, lines};
use crate::control_plane::ControlPlane;

/// Where the markers are: a namespace, a name, and addresses of nobody.
const PLACE: &str = "zz";
const MARKER: &str = "zz-marker";
const BLOCK: &str = "203.0.113.0/30";
const ROW: &str = "203.0.113.4/30";
/// How long a view may take to show what was written.
const LAG: Duration = Duration::from_secs(60);

type Writes = Vec<BoxFuture<'static, ()>>;

/// A row of the script as it is on the server, and how it is taken away.
struct Mirrored {
    text: String,
    take: Box<dyn Fn() -> BoxFuture<'static, ()> + Send>,
}

impl Mirrored {
    fn new<K: Kept>(store: &KubeStore, key: K::Key, value: &K::Value) -> Self
    where
        KubeStore: Table<K>,
        K::Key: Clone + Send + Sync + 'static,
        K::Value: std::fmt::Debug,
    {
        let store = store.clone();
        Self { text: format!("{value:?}"), take: Box::new(move || take_row::<K>(store.clone(), key.clone()).boxed()) }
    }
}

/// A script's world on a server.
struct OnServer {
    world: World,
    server: Server,
    store: KubeStore,
    follower: Follower,
    /// What is on the server of what the script says, by kind and key.
    mirrored: BTreeMap<String, Mirrored>,
    meanwhile: Writes,
    tick: u32,
    pod_marker: bool,
}

/// Runs a script on a server, of which nothing but its definitions stays.
///
/// # Errors
/// The first line that does not hold, with its number.
pub async fn run(plane: &ControlPlane, script: &str) -> Result<(), String> {
    let mut on = OnServer::new(plane).await;
    for (number, line) in lines(script) {
        on.line(line).await.map_err(|e| format!("line {number}: {line}\n  {e}"))?;
    }
    Ok(())
}

/// Writes objects as anybody would.
#[derive(Clone)]
struct Server {
    client: kube::Client,
}

impl Server {
    async fn ask(&self, method: Method, path: &str, kind: &str, body: Option<Value>) -> Option<Value> {
        let body = body.map_or_else(Vec::new, |b| b.to_string().into_bytes());
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body).expect("a request");
        match self.client.request::<Value>(request).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => None,
            Err(e) => panic!("{path}: {e}"),
        }
    }

    async fn create(&self, path: &str, object: Value) {
        self.ask(Method::POST, path, "application/json", Some(object)).await;
    }

    async fn patch(&self, path: &str, change: Value) -> bool {
        self.ask(Method::PATCH, path, "application/merge-patch+json", Some(change)).await.is_some()
    }

    async fn delete(&self, path: &str) {
        self.ask(Method::DELETE, path, "application/json", Some(json!({ "gracePeriodSeconds": 0 }))).await;
    }

    async fn namespace(&self, name: &str) {
        self.create("/api/v1/namespaces", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
    }

    /// Creates, changes or deletes what an update says.
    async fn say(&self, update: Update, group: Group) {
        match update {
            Update::Pod(ns, name, facts) => self.pod(&ns, &name, facts).await,
            Update::Node(name, facts) => self.node(&name, facts).await,
            Update::Vm(ns, name, facts) => self.vm(&ns, &name, "VirtualMachine", facts.map(|()| VmiFacts::default())).await,
            Update::Vmi(ns, name, facts) => self.vm(&ns, &name, "VirtualMachineInstance", facts).await,
            Update::OptOut(watched, name, says) => {
                let path = match watched {
                    Watched::Pool => format!("/apis/{}/ippools/{name}", group.api_version()),
                    Watched::Node => format!("/api/v1/nodes/{name}"),
                    _ => {
                        self.namespace(&name).await;
                        format!("/api/v1/namespaces/{name}")
                    }
                };
                self.patch(&path, json!({ "metadata": { "annotations": { DO_NOT_RELEASE: says.map(|s| s.value) } } })).await;
            }
            other => panic!("cannot be said to a server: {other:?}"),
        }
    }

    async fn pod(&self, ns: &str, name: &str, facts: Lookup<PodFacts<String>>) {
        let path = format!("/api/v1/namespaces/{ns}/pods");
        let Lookup::Seen(facts) = facts else { return self.delete(&format!("{path}/{name}")).await };
        self.namespace(ns).await;
        let there = self.ask(Method::GET, &format!("{path}/{name}"), "application/json", None).await;
        let mut spec = json!({ "containers": [{ "name": "x", "image": "x" }], "automountServiceAccountToken": false });
        if let Some(node) = &facts.node {
            spec["nodeName"] = node.as_str().into();
        }
        if facts.host_network {
            spec["hostNetwork"] = true.into();
        }
        // A pod does not move: it is another one of the same name.
        if there.as_ref().is_some_and(|there| there["spec"]["nodeName"] != spec["nodeName"]) {
            self.delete(&format!("{path}/{name}")).await;
        }
        self.create(&path, json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": ns }, "spec": spec })).await;
        let ips: Vec<Value> = facts.ips.iter().map(|ip| json!({ "ip": ip })).collect();
        let phase = match facts.finished {
            None if facts.ips.is_empty() => "Pending",
            None => "Running",
            Some(Finished::Succeeded) => "Succeeded",
            Some(_) => "Failed",
        };
        let status = json!({ "status": { "phase": phase, "podIP": facts.ips.first(), "podIPs": ips } });
        self.patch(&format!("{path}/{name}/status"), status).await;
    }

    async fn node(&self, name: &str, facts: Lookup<NodeFacts>) {
        let path = format!("/api/v1/nodes/{name}");
        let Lookup::Seen(facts) = facts else { return self.delete(&path).await };
        let mut labels = facts.labels;
        if facts.migrating {
            labels.insert("projectcalico.org/node-network-during-migration".into(), "flannel".into());
        }
        let metadata = json!({ "metadata": { "name": name, "labels": labels } });
        self.create("/api/v1/nodes", json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata["metadata"] })).await;
        self.patch(&path, metadata).await;
    }

    async fn vm(&self, ns: &str, name: &str, kind: &str, facts: Lookup<VmiFacts>) {
        let path = format!("/apis/kubevirt.io/v1/namespaces/{ns}/{}s", kind.to_lowercase());
        let Lookup::Seen(facts) = facts else { return self.delete(&format!("{path}/{name}")).await };
        self.namespace(ns).await;
        let mut object = json!({ "apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": { "name": name, "namespace": ns }, "spec": {} });
        if facts.owned_by_vm {
            let owner = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": "00000000-0000-0000-0000-000000000001" });
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        self.create(&path, object).await;
    }
}

async fn put_row<K: Kind>(store: KubeStore, key: K::Key, value: K::Value)
where
    KubeStore: Table<K>,
{
    let done = match Table::<K>::get(&store, &key).await.expect("read") {
        Some(row) => Table::<K>::update(&store, Row { value, ..row }).await,
        None => Table::<K>::create(&store, &key, value).await,
    };
    done.expect("written");
}

async fn take_row<K: Kind>(store: KubeStore, key: K::Key)
where
    KubeStore: Table<K>,
{
    if let Some(row) = Table::<K>::get(&store, &key).await.expect("read") {
        Table::<K>::delete(&store, &row).await.expect("deleted");
    }
}

/// A last look before which something happens.
struct Meanwhile {
    live: Live,
    writes: Mutex<Writes>,
}

impl Meanwhile {
    async fn happens(&self) {
        let writes = std::mem::take(&mut *self.writes.lock().unwrap_or_else(PoisonError::into_inner));
        for write in writes {
            write.await;
        }
    }
}

impl LastLook for Meanwhile {
    async fn pod(&self, namespace: &str, name: &str) -> Option<Lookup<PodFacts<String>>> {
        self.happens().await;
        self.live.pod(namespace, name).await
    }
    async fn node(&self, name: &str) -> Option<Lookup<bool>> {
        self.happens().await;
        self.live.node(name).await
    }
    async fn vm(&self, namespace: &str, name: &str) -> Option<Lookup<()>> {
        self.happens().await;
        self.live.vm(namespace, name).await
    }
    async fn vmi(&self, namespace: &str, name: &str) -> Option<Lookup<VmiFacts>> {
        self.happens().await;
        self.live.vmi(namespace, name).await
    }
    fn at_once(&self) -> usize {
        1
    }
}

impl OnServer {
    async fn new(plane: &ControlPlane) -> Self {
        let connection = plane.connection().await;
        let server = Server { client: connection.client() };
        let store = KubeStore::new(connection, plane.group);
        plane.clear().await;
        for all in [
            "/api/v1/nodes",
            "/apis/kubevirt.io/v1/virtualmachines",
            "/apis/kubevirt.io/v1/virtualmachineinstances",
            "/api/v1/pods",
            "/api/v1/namespaces",
        ] {
            let list = server.ask(Method::GET, all, "application/json", None).await.unwrap_or_default();
            for object in list["items"].as_array().into_iter().flatten() {
                let (name, plural) = (object["metadata"]["name"].as_str().unwrap_or_default(), all.rsplit('/').next().unwrap_or_default());
                match object["metadata"]["namespace"].as_str() {
                    Some(ns) => {
                        server.delete(&format!("{}/namespaces/{ns}/{plural}/{name}", all.trim_end_matches(&format!("/{plural}")))).await
                    }
                    // Namespaces never finish going here; what they say goes.
                    None if plural == "namespaces" => {
                        server.patch(&format!("{all}/{name}"), json!({ "metadata": { "annotations": { DO_NOT_RELEASE: null } } })).await;
                    }
                    None => server.delete(&format!("{all}/{name}")).await,
                }
            }
        }
        let mut world = World { view: View::live(), outbox: Some(Vec::new()), ..World::default() };
        world.put::<ClusterKind>((), ClusterInfo { guid: "g".into(), ready: Some(true) });
        let follower = Follower::new(&store, None, true);
        Self { world, server, store, follower, mirrored: BTreeMap::new(), meanwhile: Vec::new(), tick: 0, pod_marker: true }
    }

    async fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["step"] => self.step().await,
            ["wait", d] => {
                let now = self.world.clock.now() + duration(d)?;
                self.world.clock.set(now);
                self.step().await;
            }
            ["audit"] => self.audit().await,
            ["without-marker"] => self.pod_marker = false,
            ["meanwhile", rest @ ..] => {
                self.world.given(rest)?;
                let writes = self.changes();
                self.meanwhile.extend(writes);
            }
            ["full-scan"] => self.world.view.cache.mark_all(),
            ["expect", rest @ ..] => return self.world.expect(rest),
            _ => {
                self.world.given(&words)?;
                for write in self.changes() {
                    write.await;
                }
            }
        }
        Ok(())
    }

    /// What has to be written so that the server has what the script says.
    fn changes(&mut self) -> Writes {
        let mut writes: Writes = Vec::new();
        let group = self.store.group();
        self.rows::<PoolKind>(&mut writes);
        self.rows::<ReservationKind>(&mut writes);
        self.rows::<BlockKind>(&mut writes);
        self.rows::<AffinityKind>(&mut writes);
        self.rows::<ConfigKind>(&mut writes);
        self.rows::<ClusterKind>(&mut writes);
        for update in self.world.outbox.iter_mut().flat_map(std::mem::take) {
            let server = self.server.clone();
            writes.push(async move { server.say(update, group).await }.boxed());
        }
        writes
    }

    fn rows<K: Kept>(&mut self, writes: &mut Writes)
    where
        KubeStore: Table<K>,
        K::Key: std::fmt::Debug + Clone + Send + Sync + 'static,
        K::Value: Clone + std::fmt::Debug + Send + 'static,
    {
        let kind = format!("{} ", K::NAME);
        let mut left: std::collections::BTreeSet<String> = self.mirrored.keys().filter(|k| k.starts_with(&kind)).cloned().collect();
        for row in self.world.store.rows::<K>() {
            let name = format!("{kind}{:?}", row.key);
            let new = Mirrored::new::<K>(&self.store, row.key.clone(), &row.value);
            left.remove(&name);
            if self.mirrored.get(&name).is_none_or(|m| m.text != new.text) {
                self.mirrored.insert(name, new);
                writes.push(put_row::<K>(self.store.clone(), row.key, row.value).boxed());
            }
        }
        writes.extend(left.iter().filter_map(|name| self.mirrored.remove(name)).map(|m| (m.take)()));
    }

    /// Changes the markers, and takes over what is told until the view shows them.
    async fn settle(&mut self) {
        self.tick += 1;
        let n = self.tick;
        let (server, group) = (self.server.clone(), self.store.group());
        let seen = |yes| if yes { Lookup::Seen(()) } else { Lookup::Absent };
        let odd = n % 2 == 1;
        let ip: std::net::IpAddr = format!("192.0.2.{}", n % 250 + 1).parse().expect("an address");
        let pod = if self.pod_marker {
            Lookup::Seen(PodFacts { node: Some(MARKER.into()), ips: [ip].into_iter().collect(), reported: true, ..PodFacts::default() })
        } else {
            Lookup::Absent
        };
        server.say(Update::Pod(PLACE.into(), MARKER.into(), pod), group).await;
        let labels = [("tick".to_owned(), n.to_string())].into();
        server.say(Update::Node(MARKER.into(), Lookup::Seen(NodeFacts { labels, ..NodeFacts::default() })), group).await;
        server.say(Update::Vm(PLACE.into(), MARKER.into(), seen(odd)), group).await;
        server.say(Update::Vmi(PLACE.into(), MARKER.into(), seen(odd).map(|()| VmiFacts::default())), group).await;
        let says = ipam_datastore::opt_out::OptOut { value: if odd { "false" } else { "f" }.into(), inside: false };
        server.say(Update::OptOut(Watched::Namespace, PLACE.into(), Some(says.clone())), group).await;
        let (cidr, row): (BlockCidr, BlockCidr) = (BLOCK.parse().expect("a block"), ROW.parse().expect("a block"));
        let mut block = Block::new(cidr, None, n.into()).expect("a block");
        block.affinity = Some("virtual:marker".into());
        put_row::<BlockKind>(self.store.clone(), cidr, block).await;
        let state = if odd { AffinityState::Confirmed } else { AffinityState::Pending };
        put_row::<AffinityKind>(self.store.clone(), (Owner::Host(MARKER.into()), row), Affinity { state, indexed: true }).await;
        let follower = &mut self.follower;
        let world = &mut self.world;
        let pool_names = |world: &World| {
            world.store.rows::<PoolKind>().iter().map(|r| (r.key.clone(), r.value.cidr.clone())).collect::<BTreeMap<_, _>>()
        };
        let want_pools = pool_names(world);
        let shows = |world: &World| {
            let (view, cache) = (&world.view, &world.view.cache);
            let pod = cache.pod_id(PLACE, MARKER).map(|id| cache.pod(id));
            let pod = match pod {
                Some(Lookup::Seen(facts)) => self.pod_marker && facts.ips.contains(&ip),
                _ => !self.pod_marker,
            };
            let node =
                cache.node_id(MARKER).and_then(|id| cache.node_facts(id)).is_some_and(|f| f.labels.get("tick") == Some(&n.to_string()));
            let vm = match cache.vm_id(PLACE, MARKER) {
                Some(id) => matches!(cache.vm(id), Lookup::Seen(())) == odd && matches!(cache.vmi(id), Lookup::Seen(_)) == odd,
                None => !odd,
            };
            let namespace = view.annotated.get(Because::Namespace, PLACE).is_some_and(|s| s.value == says.value);
            let block = cache.block_of(cidr.net()).is_some_and(|(_, b)| b.seq == i64::from(n));
            let affinity = cache
                .node_id(MARKER)
                .and_then(|id| cache.row_state(id, row.net()))
                .is_some_and(|s| (s == ipam_accounting::inventory::RowState::Confirmed) == odd);
            let pools: BTreeMap<_, _> = view.pools().map(|r| (r.key.clone(), r.value.cidr.clone())).collect();
            let ready = world.store.rows::<ClusterKind>().first().is_none_or(|r| r.value.ready != Some(false));
            let valid = world.store.rows::<ConfigKind>().first().is_none_or(|r| r.value.validate().is_ok());
            let config = view.gate().map_or(true, |c| world.store.rows::<ConfigKind>().first().is_none_or(|r| r.value == c));
            let rows = pools == want_pools
                && view.at(Gate::DatastoreReady).is_ok() == ready
                && view.at(Gate::IpamConfigValid).is_ok() == valid
                && config;
            let synced = view.at(Gate::Synced).is_ok();
            let lacks = [
                ("pools", pools == want_pools),
                ("config", config),
                ("ready", view.at(Gate::DatastoreReady).is_ok() == ready),
                ("valid", view.at(Gate::IpamConfigValid).is_ok() == valid),
                ("pod", pod),
                ("node", node),
                ("VMs", vm),
                ("namespace", namespace),
                ("block", block),
                ("row", affinity),
                ("rows", rows),
                ("synced", synced),
            ];
            lacks.into_iter().find(|(_, shown)| !shown).map(|(what, _)| what)
        };
        let mut lacks = None;
        let told = async {
            loop {
                let view = &mut world.view;
                follower.drain(&mut |update| view.apply(&update)).expect("nothing begins anew");
                lacks = shows(world);
                if lacks.is_none() {
                    return;
                }
                follower.ready().await;
            }
        };
        if timeout(LAG, told).await.is_err() {
            panic!(
                "the view does not show what was written: {lacks:?}, {:?} {:?} {:?}",
                self.world.view.gate(),
                self.world.view.pools().collect::<Vec<_>>(),
                want_pools
            );
        }
    }

    /// Passes at the present moment until nothing is done any more.
    async fn step(&mut self) {
        self.settle().await;
        let ipam = Ipam::new(self.store.clone(), self.world.wall());
        let look = Meanwhile {
            live: Live { connection: self.store.connection().clone(), at_once: 16 },
            writes: Mutex::new(std::mem::take(&mut self.meanwhile)),
        };
        for _ in 0..100 {
            let now = self.world.both();
            let world = &mut self.world;
            let pass = Pass { view: &mut world.view, ledger: &mut world.ledger, ipam: &ipam, look: &look, pulse: &Unwatched };
            let done = pass.run(&world.policy, now).await;
            self.settle().await;
            if self.world.passed(done, now) {
                break;
            }
        }
        self.pull().await;
    }

    /// What the operator made of the rows is what the script goes on from.
    async fn pull(&mut self) {
        self.pull_kind::<BlockKind>(|key| key.to_string() == BLOCK).await;
        self.pull_kind::<AffinityKind>(|(_, cidr)| cidr.to_string() == ROW).await;
        self.pull_kind::<HandleKind>(|_| false).await;
    }

    async fn pull_kind<K: Kept>(&mut self, marker: impl Fn(&K::Key) -> bool)
    where
        KubeStore: Table<K>,
        K::Key: std::fmt::Debug + Clone + Send + Sync + 'static,
        K::Value: Clone + std::fmt::Debug + Send + 'static,
        K::Select: Default,
    {
        let mut there = Table::<K>::list(&self.store, &K::Select::default(), Freshness::Latest).await.expect("listed");
        there.retain(|row| !marker(&row.key));
        for row in self.world.store.rows::<K>() {
            drop(self.world.take::<K>(&row.key));
            self.mirrored.remove(&format!("{} {:?}", K::NAME, row.key));
        }
        for row in there {
            self.mirrored.insert(format!("{} {:?}", K::NAME, row.key), Mirrored::new::<K>(&self.store, row.key.clone(), &row.value));
            self.world.store.put::<K>(row, false);
        }
    }

    async fn audit(&mut self) {
        self.settle().await;
        let ipam = Ipam::new(self.store.clone(), self.world.wall());
        let mut snapshot = Snapshot::read(&self.store, Vec::new(), false).await.expect("read");
        snapshot.blocks.retain(|r| r.key.to_string() != BLOCK);
        snapshot.affinities.iter_mut().for_each(|rows| rows.retain(|r| r.key.1.to_string() != ROW));
        let now = self.world.both();
        let world = &mut self.world;
        world.upkeep.observe(&snapshot, &world.view, now);
        let due = world.upkeep.due_repairs(&world.view, world.repair, &world.policy, now.steady);
        let repairs = world.upkeep.repair(due, &ipam, &Unwatched, now.steady).await;
        world.repaired.extend(repairs.done.into_iter().map(|f| format!("{} {}", f.kind.name(), f.object)));
        self.pull().await;
    }
}
