//! Loading: object by object into a store and a cache.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufReader;
use std::path::PathBuf;
use std::str::FromStr;

use ipam::MemStore;
use ipam::mem::Kept;
use ipam::model::{AffinityKind, BlockKind, ClusterKind, ConfigKind, HandleKind, Node, NodeKind, PoolKind, ReservationKind};
use ipam::store::{Event, Extra, Revision, Row, Uid};
use ipam_accounting::facts::Lookup;
use ipam_accounting::inventory::{Trust, Trusts};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::lenient::Lenient;
use super::pieces::{Form, Piece, cut};
use super::{Dump, DumpError, Input};
use crate::bad::{BadItem, concerns_handles, holds};
use crate::facts::CoreObject;
use crate::group::Group;
use crate::opt_out::OptOut;
use crate::update::{Settings, Update, Watched};
use crate::wire::{FieldError, Wire, decode};

/// Kinds that the user says are complete in the dump although it has none of them (D-35, D-51).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kinds {
    /// `Pod`
    Pod,
    /// `Node`
    Node,
    /// `VirtualMachine`
    VirtualMachine,
    /// `VirtualMachineInstance`
    VirtualMachineInstance,
}

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text.to_lowercase().as_str() {
            "pod" | "pods" | "po" => Self::Pod,
            "node" | "nodes" | "no" => Self::Node,
            "virtualmachine" | "virtualmachines" | "vm" | "vms" => Self::VirtualMachine,
            "virtualmachineinstance" | "virtualmachineinstances" | "vmi" | "vmis" => Self::VirtualMachineInstance,
            _ => return Err(format!("{text:?} is none of Pod, Node, VirtualMachine, VirtualMachineInstance")),
        })
    }
}

/// Loads dumps; `-` is standard input. Everything that a cache must know goes to `sink`; `progress` is told how many
/// objects were read.
///
/// # Errors
/// Input that cannot be read at all; rows of both API groups.
pub fn load(
    files: &[PathBuf],
    complete: &[Kinds],
    sink: &mut (dyn FnMut(Update) + Send),
    progress: &mut dyn FnMut(u64),
) -> Result<Dump, DumpError> {
    let inputs = files.iter().map(|f| Input::open(f)).collect::<Result<Vec<_>, _>>()?;
    let mut loader = Loader::new(sink);
    let mut read = 0;
    for input in &inputs {
        let file = File::open(&input.path).map_err(|e| DumpError::new(&input.name, e.to_string()))?;
        cut(&input.name, BufReader::with_capacity(1 << 16, file), |piece| {
            if let Piece::Object { text, form, line } = piece {
                loader.object(&input.name, text, form, line)?;
                read += 1;
                progress(read);
            }
            Ok(())
        })?;
    }
    Ok(loader.finish(inputs, complete))
}

pub(crate) struct Loader<'a> {
    sink: &'a mut (dyn FnMut(Update) + Send),
    store: MemStore,
    group: Option<Group>,
    bad: Vec<BadItem>,
    notes: Vec<String>,
    counts: BTreeMap<String, u64>,
    settings: Option<Settings>,
    namespaces: BTreeSet<String>,
    /// Kinds of which an object could not even be named.
    nameless: BTreeSet<String>,
    /// What was read under each key of a kind that is no row, as hashes.
    seen: HashMap<u64, u64>,
    copies: u64,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(sink: &'a mut (dyn FnMut(Update) + Send)) -> Self {
        Self {
            sink,
            store: MemStore::new(),
            group: None,
            bad: Vec::new(),
            notes: Vec::new(),
            counts: BTreeMap::new(),
            settings: None,
            namespaces: BTreeSet::new(),
            nameless: BTreeSet::new(),
            seen: HashMap::new(),
            copies: 0,
        }
    }
}

/// Parses the text of one object.
pub(super) fn parse<T: DeserializeOwned>(text: &str, form: Form) -> Result<T, String> {
    match form {
        Form::Json => serde_json::from_str(text).map_err(|e| e.to_string()),
        Form::Document => yaml_serde::from_str(text).map_err(|e| e.to_string()),
        Form::Entry(_) => {
            let mut list: Vec<T> = yaml_serde::from_str(text).map_err(|e| e.to_string())?;
            list.pop().ok_or_else(|| "is no object".into())
        }
    }
}

/// The objects in a piece; a YAML document in flow style may be a whole list.
pub(super) fn objects(text: &str, form: Form) -> Result<Vec<Map<String, Value>>, String> {
    let Lenient(value) = parse(text, form)?;
    match value {
        Value::Object(mut map) if form == Form::Document && map.contains_key("items") => match map.remove("items") {
            Some(Value::Array(items)) => items.into_iter().map(as_object).collect(),
            Some(Value::Null) => Ok(Vec::new()),
            _ => Err("items is no list".into()),
        },
        other => Ok(vec![as_object(other)?]),
    }
}

fn as_object(value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(map) => Ok(map),
        other => Err(format!("is not a Kubernetes object but {}", first_words(&other.to_string()))),
    }
}

fn first_words(text: &str) -> String {
    text.chars().take(40).collect()
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Loader<'_> {
    fn object(&mut self, file: &str, text: &str, form: Form, line: usize) -> Result<(), DumpError> {
        let place = || if form == Form::Json { file.to_owned() } else { format!("{file}:{line}") };
        // Most of a dump is pods: those are decoded without ever being whole. Rows name their group in the text.
        let is_row = text.contains("projectcalico.org/v1") || text.contains("projectcalico.org/v3");
        if !is_row
            && let Ok(core) = parse::<CoreObject>(text, form)
            && core.kind.as_deref().is_some_and(|k| !k.ends_with("List"))
        {
            self.core(&core);
            return Ok(());
        }
        for object in objects(text, form).map_err(|why| DumpError::new(place(), why))? {
            let of = |field: &str| object.get(field).and_then(Value::as_str).map(str::to_owned);
            let (Some(kind), Some(version)) = (of("kind"), of("apiVersion")) else {
                return Err(DumpError::new(place(), "is not a Kubernetes object: it has no kind or no apiVersion"));
            };
            match Group::of(&version) {
                Some(group) => self.row(&place(), &kind, group, object)?,
                None => match serde_json::from_value::<CoreObject>(Value::Object(object.clone())) {
                    Ok(core) => self.core(&core),
                    Err(e) => self.bad_core(&kind, &Value::Object(object), &e.to_string()),
                },
            }
        }
        Ok(())
    }

    pub(crate) fn core(&mut self, core: &CoreObject) {
        let kind = core.kind.as_deref().unwrap_or_default();
        *self.counts.entry(kind.into()).or_default() += 1;
        let metadata = core.metadata.as_ref();
        let Some(name) = metadata.and_then(|m| m.name.clone()) else {
            return self.bad_core(kind, &Value::Null, "metadata.name: is missing");
        };
        let namespace = metadata.and_then(|m| m.namespace.clone()).unwrap_or_default();
        let says = core.opt_out();
        let update = match (core.api_version.as_deref(), kind) {
            (Some("v1"), "Pod") => {
                let facts = core.pod();
                self.namespaces.insert(namespace.clone());
                Update::Pod(namespace, name, Lookup::Seen(facts))
            }
            (Some("v1"), "Node") => {
                let facts = core.node();
                // Giving up blocks of nodes that a pool no longer selects looks at the node's row.
                let labels = facts.labels.clone();
                let (key, revision, uid) = (name.clone(), Revision("dump".into()), Uid(name.clone()));
                self.store.put::<NodeKind>(Row { key, value: Node { labels }, revision, uid, extra: Extra::NONE }, false);
                Update::Node(name, Lookup::Seen(facts))
            }
            (Some("kubevirt.io/v1"), "VirtualMachine") => Update::Vm(namespace, name, Lookup::Seen(())),
            (Some("kubevirt.io/v1"), "VirtualMachineInstance") => Update::Vmi(namespace, name, Lookup::Seen(core.vmi())),
            (Some("v1"), "Namespace") => return self.opt_out(Watched::Namespace, name, says),
            _ => return,
        };
        if let Update::Node(name, _) = &update {
            self.opt_out(Watched::Node, name.clone(), says);
        }
        self.once(update);
    }

    fn opt_out(&mut self, watched: Watched, name: String, says: Option<OptOut>) {
        if says.is_some() {
            (self.sink)(Update::OptOut(watched, name, says));
        }
    }

    /// Passes an object on; a second, different one of the same key makes the key one that is not understood.
    fn once(&mut self, update: Update) {
        let (kind, namespace, name) = match &update {
            Update::Pod(ns, name, _) => ("Pod", ns.as_str(), name.as_str()),
            Update::Node(name, _) => ("Node", "", name.as_str()),
            Update::Vm(ns, name, _) => ("VirtualMachine", ns.as_str(), name.as_str()),
            Update::Vmi(ns, name, _) => ("VirtualMachineInstance", ns.as_str(), name.as_str()),
            _ => return (self.sink)(update),
        };
        let content = hash(&format!("{update:?}"));
        match self.seen.insert(hash(&(kind, namespace, name)), content) {
            None => (self.sink)(update),
            Some(before) if before == content => self.copies += 1,
            Some(_) => {
                let object = serde_json::json!({ "metadata": { "namespace": namespace, "name": name } });
                self.bad_core(kind, &object, "is in the dump twice, with different content");
            }
        }
    }

    pub(crate) fn bad_core(&mut self, kind: &str, object: &Value, why: &str) {
        let at = why.split_once(": ").map_or(("object", why), |(field, why)| (field, why));
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let (namespace, name) = (text("namespace").unwrap_or_default(), text("name"));
        let update = match (kind, name) {
            ("Pod", Some(name)) => Some(Update::Pod(namespace, name, Lookup::Unsure)),
            ("Node", Some(name)) => {
                self.store.take::<NodeKind>(&name);
                Some(Update::Node(name, Lookup::Unsure))
            }
            ("VirtualMachine", Some(name)) => Some(Update::Vm(namespace, name, Lookup::Unsure)),
            ("VirtualMachineInstance", Some(name)) => Some(Update::Vmi(namespace, name, Lookup::Unsure)),
            ("Pod" | "Node" | "VirtualMachine" | "VirtualMachineInstance", None) => {
                self.nameless.insert(kind.into());
                None
            }
            _ => return,
        };
        *self.counts.entry(kind.into()).or_default() += 1;
        self.bad.push(BadItem::new(kind, object, &FieldError { field: at.0.into(), why: at.1.into() }));
        update.into_iter().for_each(|u| (self.sink)(u));
    }

    pub(crate) fn row(&mut self, place: &str, kind: &str, group: Group, object: Map<String, Value>) -> Result<(), DumpError> {
        if let Some(before) = self.group.filter(|g| *g != group) {
            let name = object.get("metadata").and_then(|m| m["name"].as_str()).unwrap_or("?");
            return Err(DumpError::new(
                place,
                format!("{kind}/{name} is of {group}, others are of {before}: a cluster uses one of the two"),
            ));
        }
        self.group = Some(group);
        *self.counts.entry(kind.into()).or_default() += 1;
        match kind {
            "IPAMBlock" => self.put::<BlockKind>(group, object, |e| Some(Update::Block(e))),
            "BlockAffinity" => self.put::<AffinityKind>(group, object, |e| Some(Update::Affinity(e))),
            "IPAMHandle" => self.put::<HandleKind>(group, object, |_| None),
            "IPPool" => {
                if let Some(name) = object.get("metadata").and_then(|m| m["name"].as_str()) {
                    self.opt_out(Watched::Pool, name.into(), OptOut::read(&object));
                }
                self.put::<PoolKind>(group, object, |e| Some(Update::Pool(e)));
            }
            "IPReservation" => self.put::<ReservationKind>(group, object, |e| Some(Update::Reservation(e))),
            "IPAMConfig" | "IPAMConfiguration" => self.put::<ConfigKind>(group, object, |e| Some(Update::Config(Ok(e)))),
            "ClusterInformation" => self.put::<ClusterKind>(group, object, |e| Some(Update::Cluster(Ok(e)))),
            "KubeControllersConfiguration" => self.settings(&object),
            _ => {}
        }
        Ok(())
    }

    fn put<K: Wire + Kept>(&mut self, group: Group, object: Map<String, Value>, update: impl Fn(Event<K>) -> Option<Update>) {
        let whole = Value::Object(object.clone());
        let decoded = match decode::<K>(object, group) {
            Ok(decoded) => decoded,
            Err(e) => return self.bad_row::<K>(group, &whole, &e),
        };
        let key = decoded.row.key.clone();
        match self.store.peek::<K>(&key) {
            Some((row, half)) if row == decoded.row && half == decoded.half_deleted => self.copies += 1,
            Some(_) => {
                self.store.take::<K>(&key);
                update(Event::Gone(key)).into_iter().for_each(|u| (self.sink)(u));
                self.bad_row::<K>(
                    group,
                    &whole,
                    &FieldError { field: "object".into(), why: "is in the dump twice, with different content".into() },
                );
            }
            None => {
                let row: Row<K> = decoded.row.clone();
                self.store.put(decoded.row, decoded.half_deleted);
                let event = if decoded.half_deleted { Event::Gone(key) } else { Event::Put(row) };
                update(event).into_iter().for_each(|u| (self.sink)(u));
            }
        }
    }

    fn bad_row<K: Wire>(&mut self, group: Group, object: &Value, error: &FieldError) {
        let kind = K::kind(group);
        self.bad.push(BadItem::new(kind, object, error));
        match kind {
            "ClusterInformation" => (self.sink)(Update::Cluster(Err(error.to_string()))),
            "IPAMConfig" | "IPAMConfiguration" => (self.sink)(Update::Config(Err(error.to_string()))),
            _ => {}
        }
    }

    fn settings(&mut self, object: &Map<String, Value>) {
        let (settings, note) = Settings::read(object);
        self.notes.extend(note);
        self.settings = Some(settings);
        (self.sink)(Update::Settings(Some(settings)));
    }

    pub(crate) fn finish(mut self, inputs: Vec<Input>, complete: &[Kinds]) -> Dump {
        let trusts = self.trusts(complete);
        let handles = if concerns_handles(&self.bad) { self.store.rows::<HandleKind>() } else { Vec::new() };
        let holds = holds(&self.bad, &handles);
        (self.sink)(Update::Trusts(trusts.clone()));
        (self.sink)(Update::Holds(holds.clone()));
        if self.copies > 0 {
            self.notes.push(format!("{} objects are in the dump more than once, with the same content", self.copies));
        }
        let unused: Vec<String> =
            self.counts.iter().filter(|(kind, _)| !USED.contains(&kind.as_str())).map(|(kind, n)| format!("{kind} ({n})")).collect();
        if !unused.is_empty() {
            self.notes.push(format!("not used: {}", unused.join(", ")));
        }
        Dump {
            store: self.store,
            group: self.group,
            bad: self.bad.into_iter().map(|b| b.what).collect(),
            holds,
            trusts,
            settings: self.settings,
            notes: self.notes,
            counts: self.counts,
            inputs,
        }
    }

    fn trusts(&mut self, complete: &[Kinds]) -> Trusts {
        let has = |kind: &str| self.counts.contains_key(kind);
        let nameless = |kind: &str| self.nameless.contains(kind);
        let trusted = |kind: &str, k: Kinds| !nameless(kind) && (has(kind) || complete.contains(&k));
        let pods = match (trusted("Pod", Kinds::Pod), complete.contains(&Kinds::Pod), self.namespaces.len()) {
            (false, _, _) => Trust::Nothing,
            (true, false, 1) => Trust::Namespace(self.namespaces.iter().next().cloned().unwrap_or_default()),
            (true, _, _) => Trust::Full,
        };
        let trusts = Trusts {
            pods,
            nodes: trusted("Node", Kinds::Node),
            vms: trusted("VirtualMachine", Kinds::VirtualMachine),
            vmis: trusted("VirtualMachineInstance", Kinds::VirtualMachineInstance),
            affinities: has("BlockAffinity"),
            // Of a dump that is asked above.
            not_if_empty: false,
        };
        let said = |kind: &str| kind.parse().is_ok_and(|k: Kinds| complete.contains(&k));
        let kinds = ["Pod", "Node", "VirtualMachine", "VirtualMachineInstance", "BlockAffinity", "IPAMHandle"];
        let missing: Vec<&str> = kinds.into_iter().filter(|k| !has(k) && !said(k)).collect();
        if !missing.is_empty() {
            self.notes.push(format!(
                "the dump has no {}: what hangs on them cannot be told (--complete KIND says that there really are none)",
                missing.join(", no ")
            ));
        }
        if let Trust::Namespace(only) = &trusts.pods {
            self.notes.push(format!("all pods of the dump are in namespace {only}: nothing can be told of pods of other namespaces (--complete Pod says that there are none)"));
        }
        trusts
    }
}

/// Kinds that we read.
const USED: [&str; 14] = [
    "Pod",
    "Node",
    "Namespace",
    "VirtualMachine",
    "VirtualMachineInstance",
    "IPAMBlock",
    "BlockAffinity",
    "IPAMHandle",
    "IPPool",
    "IPReservation",
    "IPAMConfig",
    "IPAMConfiguration",
    "ClusterInformation",
    "KubeControllersConfiguration",
];
