//! Sends Kubernetes events. One that cannot be sent is dropped, and delays nothing.

use std::sync::Mutex;

use ipam_datastore::live::{Connection, uid as uid_at};
use ipam_datastore::{Group, KubeStore};
use k8s_openapi::api::core::v1::ObjectReference;
use kube_runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

use crate::events::{Note, Regarding};

/// Who we are, as events name us.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Namespace of our pod; empty: we are in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Identity {
    /// As the environment says it.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Self {
        let of = |name: &str| get(name).unwrap_or_default();
        Self { namespace: of("POD_NAMESPACE"), name: of("POD_NAME"), uid: of("POD_UID") }
    }

    /// Whether we are in a pod.
    pub fn is_pod(&self) -> bool {
        !self.namespace.is_empty() && !self.name.is_empty()
    }
}

/// Sends what arrives, one after the other.
pub async fn send(connection: &Connection, group: &Mutex<Group>, me: &Identity, lease: (&str, &str), mut notes: mpsc::Receiver<Note>) {
    while let Some(note) = notes.recv().await {
        let group = *group.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let store = KubeStore::new(connection.clone(), group);
        let Some(reference) = reference(&store, me, lease, &note.regarding).await else { continue };
        let reporter = Reporter {
            controller: "ipam-operator".into(),
            instance: Some(if me.name.is_empty() { "ipam-operator".into() } else { me.name.clone() }),
        };
        // A recorder of its own for each: what came in between is summed in the note already.
        let recorder = Recorder::new(connection.client(), reporter);
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: note.reason.into(),
            note: Some(note.text),
            action: note.action.into(),
            secondary: None,
        };
        if let Err(e) = recorder.publish(&event, &reference).await {
            tracing::debug!(reason = note.reason, error = %ipam::release::chain(&e), "an event could not be sent");
        }
    }
}

/// The object that an event is about, with its real UID where it can be had.
async fn reference(store: &KubeStore, me: &Identity, lease: (&str, &str), about: &Regarding) -> Option<ObjectReference> {
    let group = store.group().api_version();
    let object = |version: &str, kind: &str, namespace: &str, name: &str, uid: Option<String>| ObjectReference {
        api_version: Some(version.into()),
        kind: Some(kind.into()),
        name: Some(name.into()),
        // Events about objects without namespace are in this one.
        namespace: Some(if namespace.is_empty() { "default".into() } else { namespace.into() }),
        uid,
        ..ObjectReference::default()
    };
    let uid = async |path: String| uid_at(store.connection(), &path).await;
    Some(match about {
        Regarding::Own if me.is_pod() => object("v1", "Pod", &me.namespace, &me.name, Some(me.uid.clone()).filter(|u| !u.is_empty())),
        // Nobody would find an event about a process on somebody's desk.
        Regarding::Own => return None,
        Regarding::Node(name) => object("v1", "Node", "", name, uid(format!("/api/v1/nodes/{name}")).await),
        Regarding::Namespace(name) => object("v1", "Namespace", "", name, None),
        Regarding::Pod(ns, name) => object("v1", "Pod", ns, name, uid(format!("/api/v1/namespaces/{ns}/pods/{name}")).await),
        Regarding::Pool(name) => object(group, "IPPool", "", name, uid(format!("/apis/{group}/ippools/{name}")).await),
        Regarding::Cluster => object(group, "ClusterInformation", "", "default", None),
        Regarding::IpamConfig => {
            object(group, if store.group() == Group::V1 { "IPAMConfig" } else { "IPAMConfiguration" }, "", "default", None)
        }
        Regarding::Controllers => object(group, "KubeControllersConfiguration", "", "default", None),
        Regarding::Lease => object("coordination.k8s.io/v1", "Lease", lease.0, lease.1, None),
    })
}
