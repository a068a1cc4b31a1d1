//! One object of the core or of KubeVirt, as it is at this moment: the evidence of a last look (D-40).

use ipam::StoreError;
use ipam_accounting::facts::Lookup;

use super::answer::Purpose;
use super::connection::Connection;
use super::kinds::place;
use super::store::escaped;
use crate::facts::CoreObject;
use crate::group::Group;
use crate::update::{Settings, Watched};

/// Asks for a pod, node, VM or VM instance by namespace (empty for nodes) and name. Only "there is no such object" of the server
/// itself is an absence; everything else that is no object proves nothing.
pub async fn look(connection: &Connection, watched: Watched, namespace: &str, name: &str) -> Lookup<CoreObject> {
    if name.is_empty() || (namespace.is_empty() != (watched == Watched::Node)) {
        return Lookup::Unsure;
    }
    // Of these kinds the group is always the same.
    let (kind, path) = place(watched, Group::V3);
    let path = match path.rsplit_once('/') {
        Some((root, plural)) if !namespace.is_empty() => format!("{root}/namespaces/{}/{plural}/{}", escaped(namespace), escaped(name)),
        _ => format!("{path}/{}", escaped(name)),
    };
    match connection.read(Purpose::Get, kind, &path).await.understood(Purpose::Get, kind) {
        Ok(body) => match serde_json::from_slice::<CoreObject>(&body) {
            Ok(object) if object.metadata.as_ref().is_some_and(|m| m.name.as_deref() == Some(name)) => Lookup::Seen(object),
            _ => Lookup::Unsure,
        },
        Err(StoreError::Absent) => Lookup::Absent,
        Err(e) => {
            tracing::warn!(kind, namespace, name, error = %e, "a last look failed");
            Lookup::Unsure
        }
    }
}

/// What the controllers' configuration of the cluster says; `None`: there is none.
///
/// # Errors
/// It could not be read.
pub async fn controllers_settings(connection: &Connection, group: Group) -> Result<Option<Settings>, StoreError> {
    let (kind, path) = place(Watched::Settings, group);
    match connection.read(Purpose::Get, kind, &format!("{path}/default")).await.understood(Purpose::Get, kind) {
        Ok(body) => {
            let object = serde_json::from_slice(&body).map_err(|e| StoreError::Unavailable(e.to_string()))?;
            Ok(Some(Settings::read(&object).0))
        }
        Err(StoreError::Absent | StoreError::NotServed(_)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The UID of the object at a path, if it can be had.
pub async fn uid(connection: &Connection, path: &str) -> Option<String> {
    let body = connection.read(Purpose::Get, "object", path).await.understood(Purpose::Get, "object").ok()?;
    serde_json::from_slice::<CoreObject>(&body).ok()?.metadata?.uid
}
