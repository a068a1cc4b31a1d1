//! One object of the core or of KubeVirt, as it is at this moment: the evidence of a last look (D-40).

use ipam::StoreError;
use ipam_accounting::facts::Lookup;

use super::answer::Purpose;
use super::connection::Connection;
use super::kinds::place;
use super::store::escaped;
use crate::facts::CoreObject;
use crate::group::Group;
use crate::update::Watched;

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
