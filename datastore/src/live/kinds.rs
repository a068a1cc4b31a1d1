//! What is told of one kind, decoded: objects become the updates of a cache.

use std::collections::{BTreeMap, BTreeSet};

use ipam::model::{AffinityKind, BlockKind, ClusterKind, ConfigKind, PoolKind, ReservationKind};
use ipam::store::Event;
use ipam_accounting::facts::Lookup;
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::feed::{Name, Told};
use crate::bad::BadItem;
use crate::facts::CoreObject;
use crate::group::Group;
use crate::opt_out::OptOut;
use crate::update::{Settings, Sync, Update, Watched};
use crate::wire::{Decoded, FieldError, Wire, decode};

/// The name of objects of which there is one.
const THE_ONE: &str = "default";

/// What a kind's feed says.
#[derive(Debug)]
pub(super) enum Said {
    /// Something for the cache.
    Update(Update),
    /// How far the kind is known.
    Sync(Watched, Sync),
    /// An object was not understood; nothing: it is now, or is gone.
    Bad(Watched, Name, Option<Box<BadItem>>),
    /// Nothing that was told holds any more.
    Anew(String),
}

/// Where a kind is, and what it is called there.
pub(super) fn place(watched: Watched, group: Group) -> (&'static str, String) {
    let (root, kind, plural) = match watched {
        Watched::Pod => ("/api/v1", "Pod", "pods"),
        Watched::Node => ("/api/v1", "Node", "nodes"),
        Watched::Namespace => ("/api/v1", "Namespace", "namespaces"),
        Watched::Vm => ("/apis/kubevirt.io/v1", "VirtualMachine", "virtualmachines"),
        Watched::Vmi => ("/apis/kubevirt.io/v1", "VirtualMachineInstance", "virtualmachineinstances"),
        Watched::Block => row::<BlockKind>(group),
        Watched::Affinity => row::<AffinityKind>(group),
        Watched::Pool => row::<PoolKind>(group),
        Watched::Reservation => row::<ReservationKind>(group),
        Watched::Config => row::<ConfigKind>(group),
        Watched::Cluster => row::<ClusterKind>(group),
        Watched::Settings => ("", "KubeControllersConfiguration", "kubecontrollersconfigurations"),
    };
    if root.is_empty() {
        return (kind, format!("/apis/{}/{plural}", group.api_version()));
    }
    (kind, format!("{root}/{plural}"))
}

/// What follows the objects of a kind, in either group.
pub fn of_kind(kind: &str) -> Option<Watched> {
    let called = |watched: &Watched| [Group::V1, Group::V3].into_iter().any(|group| place(*watched, group).0 == kind);
    Watched::ALL.into_iter().find(called)
}

fn row<K: Wire>(group: Group) -> (&'static str, &'static str, &'static str) {
    ("", K::kind(group), K::plural(group))
}

/// Makes updates of what a feed tells.
pub(super) struct Decoder {
    watched: Watched,
    kind: &'static str,
    objects: Box<dyn Objects>,
    bad: BTreeSet<Name>,
    /// Objects that say something about releasing.
    opted: BTreeSet<Name>,
}

/// The objects of one kind. They come and go by name.
trait Objects: Send {
    /// One is there, with this content.
    fn put(&mut self, name: &Name, object: &Map<String, Value>, out: &mut Vec<Update>) -> Result<(), FieldError>;
    /// One is not there any more, or was not understood.
    fn gone(&mut self, name: &Name, why: Option<&FieldError>, out: &mut Vec<Update>);
}

impl Decoder {
    pub(super) fn new(watched: Watched, group: Group) -> Self {
        fn rows<K: Wire>(group: Group, update: fn(Event<K>) -> Update) -> Box<dyn Objects> {
            Box::new(Rows { group, keys: BTreeMap::new(), update })
        }
        let objects: Box<dyn Objects> = match watched {
            Watched::Block => rows(group, Update::Block),
            Watched::Affinity => rows(group, Update::Affinity),
            Watched::Pool => rows(group, Update::Pool),
            Watched::Reservation => rows(group, Update::Reservation),
            Watched::Config => Box::new(Single { group, update: Update::Config }),
            Watched::Cluster => Box::new(Single { group, update: Update::Cluster }),
            Watched::Settings => Box::new(Controllers),
            Watched::Namespace => Box::new(Named),
            Watched::Pod | Watched::Node | Watched::Vm | Watched::Vmi => Box::new(Core(watched)),
        };
        Self { watched, kind: place(watched, group).0, objects, bad: BTreeSet::new(), opted: BTreeSet::new() }
    }

    pub(super) fn told(&mut self, told: Told) -> Vec<Said> {
        match told {
            Told::Put(name, object) => self.put(name, object),
            Told::Gone(name) => {
                let mut updates = Vec::new();
                self.objects.gone(&name, None, &mut updates);
                updates.extend(self.opt_out(&name, &Map::new()));
                updates.into_iter().map(Said::Update).chain(self.good(name)).collect()
            }
            Told::Synced => vec![Said::Sync(self.watched, Sync::Full)],
            Told::NotServed => vec![Said::Sync(self.watched, Sync::NotServed)],
            Told::Behind(why) => vec![Said::Sync(self.watched, Sync::Behind(why))],
            Told::WentBack => vec![Said::Anew(format!("the revision of {} went back: the server's store was replaced", self.watched))],
        }
    }

    /// What a bad object holds is said before the object goes, and after it has come back.
    fn put(&mut self, name: Name, object: Map<String, Value>) -> Vec<Said> {
        let mut updates: Vec<Update> = self.opt_out(&name, &object).into_iter().collect();
        let Err(e) = self.objects.put(&name, &object, &mut updates) else {
            return updates.into_iter().map(Said::Update).chain(self.good(name)).collect();
        };
        tracing::warn!(kind = self.kind, name = %name.1, error = %e, "an object is not understood");
        self.objects.gone(&name, Some(&e), &mut updates);
        self.bad.insert(name.clone());
        let bad = Said::Bad(self.watched, name, Some(Box::new(BadItem::new(self.kind, &Value::Object(object), &e))));
        std::iter::once(bad).chain(updates.into_iter().map(Said::Update)).collect()
    }

    /// What an object says about releasing, where that is something, or was.
    fn opt_out(&mut self, name: &Name, object: &Map<String, Value>) -> Option<Update> {
        if !matches!(self.watched, Watched::Pool | Watched::Node | Watched::Namespace) {
            return None;
        }
        let says = OptOut::read(object);
        let said = match says {
            Some(_) => !self.opted.insert(name.clone()),
            None => self.opted.remove(name),
        };
        (said || says.is_some()).then(|| Update::OptOut(self.watched, name.1.clone(), says))
    }

    fn good(&mut self, name: Name) -> Option<Said> {
        self.bad.remove(&name).then_some(Said::Bad(self.watched, name, None))
    }
}

/// Rows have keys of their own.
struct Rows<K: Wire> {
    group: Group,
    keys: BTreeMap<Name, K::Key>,
    update: fn(Event<K>) -> Update,
}

/// Decodes an object of a list or watch; those of lists do not name their kind.
pub(super) fn decoded<K: Wire>(mut object: Map<String, Value>, group: Group) -> Result<Decoded<K>, FieldError> {
    object.insert("apiVersion".into(), group.api_version().into());
    object.insert("kind".into(), K::kind(group).into());
    decode::<K>(object, group)
}

impl<K: Wire> Objects for Rows<K> {
    fn put(&mut self, name: &Name, object: &Map<String, Value>, out: &mut Vec<Update>) -> Result<(), FieldError> {
        let decoded = decoded::<K>(object.clone(), self.group)?;
        // Nobody sees a row that is half deleted (D-44); an object may be another one under the same name now.
        if decoded.half_deleted || self.keys.get(name).is_some_and(|key| *key != decoded.row.key) {
            self.gone(name, None, out);
        }
        if !decoded.half_deleted {
            self.keys.insert(name.clone(), decoded.row.key.clone());
            out.push((self.update)(Event::Put(decoded.row)));
        }
        Ok(())
    }

    fn gone(&mut self, name: &Name, _: Option<&FieldError>, out: &mut Vec<Update>) {
        out.extend(self.keys.remove(name).map(|key| (self.update)(Event::Gone(key))));
    }
}

/// An object of which there is one.
struct Single<K: Wire> {
    group: Group,
    update: fn(Result<Event<K>, String>) -> Update,
}

impl<K: Wire<Key = ()>> Objects for Single<K> {
    fn put(&mut self, name: &Name, object: &Map<String, Value>, out: &mut Vec<Update>) -> Result<(), FieldError> {
        if name.1 == THE_ONE {
            out.push((self.update)(Ok(Event::Put(decoded::<K>(object.clone(), self.group)?.row))));
        }
        Ok(())
    }

    fn gone(&mut self, name: &Name, why: Option<&FieldError>, out: &mut Vec<Update>) {
        if name.1 == THE_ONE {
            out.push((self.update)(why.map_or(Ok(Event::Gone(())), |e| Err(e.to_string()))));
        }
    }
}

/// The controllers' configuration.
struct Controllers;

impl Objects for Controllers {
    fn put(&mut self, name: &Name, object: &Map<String, Value>, out: &mut Vec<Update>) -> Result<(), FieldError> {
        if name.1 == THE_ONE {
            let (settings, note) = Settings::read(object);
            if let Some(note) = note {
                tracing::warn!("{note}");
            }
            out.push(Update::Settings(Some(settings)));
        }
        Ok(())
    }

    fn gone(&mut self, name: &Name, _: Option<&FieldError>, out: &mut Vec<Update>) {
        if name.1 == THE_ONE {
            out.push(Update::Settings(None));
        }
    }
}

/// Objects of which only the metadata matters.
struct Named;

impl Objects for Named {
    fn put(&mut self, _: &Name, _: &Map<String, Value>, _: &mut Vec<Update>) -> Result<(), FieldError> {
        Ok(())
    }

    fn gone(&mut self, _: &Name, _: Option<&FieldError>, _: &mut Vec<Update>) {}
}

/// Pods, nodes, VMs and VM instances.
struct Core(Watched);

impl Core {
    fn update(&self, (namespace, name): &Name, seen: Lookup<&CoreObject>) -> Option<Update> {
        let (namespace, name) = (namespace.clone(), name.clone());
        Some(match self.0 {
            Watched::Pod => Update::Pod(namespace, name, seen.map(CoreObject::pod)),
            Watched::Node => Update::Node(name, seen.map(CoreObject::node)),
            Watched::Vm => Update::Vm(namespace, name, seen.map(|_| ())),
            Watched::Vmi => Update::Vmi(namespace, name, seen.map(CoreObject::vmi)),
            _ => return None,
        })
    }
}

impl Objects for Core {
    fn put(&mut self, name: &Name, object: &Map<String, Value>, out: &mut Vec<Update>) -> Result<(), FieldError> {
        let core = CoreObject::deserialize(object).map_err(|e| FieldError { field: "object".into(), why: e.to_string() })?;
        out.extend(self.update(name, Lookup::Seen(&core)));
        Ok(())
    }

    fn gone(&mut self, name: &Name, why: Option<&FieldError>, out: &mut Vec<Update>) {
        out.extend(self.update(name, if why.is_some() { Lookup::Unsure } else { Lookup::Absent }));
    }
}
