//! Rows of a live API server (wire-format.md 2).

use ipam::model::{Node, NodeKind};
use ipam::store::{Extra, Freshness, Kind, Revision, Row, StoreError, Table, Uid};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::answer::{Purpose, deleted};
use super::connection::Connection;
use super::kinds::decoded;
use crate::facts::CoreObject;
use crate::group::Group;
use crate::wire::{Decoded, Object, Wire, decode, encode};

/// Objects per page of a list.
const PAGE: usize = 500;
/// How often a list begins anew when its pages have expired.
const LISTS: usize = 3;

/// The rows of one API group of a server.
#[derive(Clone, Debug)]
pub struct KubeStore {
    connection: Connection,
    group: Group,
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMetadata,
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
    resource_version: String,
}

fn unreadable(kind: &str, e: &dyn std::fmt::Display) -> StoreError {
    StoreError::Refused(format!("{kind} is not understood: {e}"))
}

/// A text as part of a query.
pub(super) fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

impl KubeStore {
    /// The rows of `group` over a connection.
    pub fn new(connection: Connection, group: Group) -> Self {
        Self { connection, group }
    }

    /// The API group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn path<K: Wire>(&self, name: Option<&str>) -> String {
        let all = format!("/apis/{}/{}", self.group.api_version(), K::plural(self.group));
        name.map_or(all.clone(), |name| format!("{all}/{name}"))
    }

    /// All items of a list; begins anew when its pages have expired.
    async fn pages<T: DeserializeOwned + Send>(
        &self,
        kind: &'static str,
        path: &str,
        selector: Option<String>,
        fresh: Freshness,
    ) -> Result<Vec<T>, StoreError> {
        let selector = selector.map_or(String::new(), |s| format!("&labelSelector={}", escaped(&s)));
        let mut failed = StoreError::Conflict;
        for _ in 0..LISTS {
            let mut items = Vec::new();
            match self.each(kind, path, &selector, fresh, &mut |item| items.push(item)).await {
                Err(e @ StoreError::Conflict) => failed = e,
                done => return done.map(|_| items),
            }
        }
        Err(failed)
    }

    /// Every item of a list, page by page; answers with the revision of the list. A cached one has no limit: a limit would make it consistent (D-79).
    pub(super) async fn each<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        path: &str,
        selector: &str,
        fresh: Freshness,
        f: &mut (dyn FnMut(T) + Send),
    ) -> Result<String, StoreError> {
        let mut query = match fresh {
            Freshness::Cached => format!("resourceVersion=0{selector}"),
            Freshness::Latest => format!("limit={PAGE}{selector}"),
        };
        loop {
            let body = self.connection.read(Purpose::List, kind, &format!("{path}?{query}")).await.understood(Purpose::List, kind)?;
            let page: Page<T> = serde_json::from_slice(&body).map_err(|e| unreadable(kind, &e))?;
            page.items.into_iter().flatten().for_each(&mut *f);
            match page.metadata.next.filter(|next| !next.is_empty()) {
                Some(next) => query = format!("limit={PAGE}{selector}&continue={}", escaped(&next)),
                None => return Ok(page.metadata.resource_version),
            }
        }
    }

    /// Rows of a list, half-deleted ones or the others, by key. One that is not understood is passed over and told.
    async fn rows<K: Wire>(&self, selector: Option<String>, fresh: Freshness, half: bool) -> Result<Vec<Row<K>>, StoreError> {
        let objects: Vec<Map<String, Value>> = self.pages(K::NAME, &self.path::<K>(None), selector, fresh).await?;
        let mut rows: Vec<Row<K>> = Vec::with_capacity(objects.len());
        for object in objects {
            let name = object.get("metadata").and_then(|m| m["name"].as_str()).unwrap_or_default().to_owned();
            match decoded::<K>(object, self.group) {
                Ok(decoded) if decoded.half_deleted == half => rows.push(decoded.row),
                Ok(_) => {}
                Err(e) => tracing::warn!(kind = K::NAME, name, error = %e, "an object is not understood and passed over"),
            }
        }
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(rows)
    }

    fn stored<K: Wire>(&self, body: &[u8]) -> Result<Decoded<K>, String> {
        let object: Map<String, Value> = serde_json::from_slice(body).map_err(|e| e.to_string())?;
        decode::<K>(object, self.group).map_err(|e| e.to_string())
    }

    /// What a write was answered with. That it was written is certain, but not what.
    fn written<K: Wire>(&self, body: &[u8]) -> Result<Row<K>, StoreError> {
        self.stored(body).map(|d| d.row).map_err(|e| StoreError::Unavailable(format!("written, and the answer is not understood: {e}")))
    }

    async fn remove<K: Wire>(&self, row: &Row<K>) -> Result<(), StoreError> {
        let path = self.path::<K>(Some(&K::object_name(&row.key)));
        let body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": row.uid.0, "resourceVersion": row.revision.0 },
        });
        let answer = self.connection.write(Purpose::Delete, K::NAME, &path, body.to_string().into_bytes()).await;
        deleted(&answer.understood(Purpose::Delete, K::NAME)?)
    }
}

impl<K: Wire> Table<K> for KubeStore {
    async fn get(&self, key: &K::Key) -> Result<Option<Row<K>>, StoreError> {
        let path = self.path::<K>(Some(&K::object_name(key)));
        let body = match self.connection.read(Purpose::Get, K::NAME, &path).await.understood(Purpose::Get, K::NAME) {
            Ok(body) => body,
            Err(StoreError::Absent) => return Ok(None),
            Err(e) => return Err(e),
        };
        let decoded = self.stored::<K>(&body).map_err(|e| unreadable(K::NAME, &e))?;
        if decoded.half_deleted {
            return Ok(None);
        }
        Ok(K::under(key, decoded.row))
    }

    async fn list(&self, select: &K::Select, fresh: Freshness) -> Result<Vec<Row<K>>, StoreError> {
        let mut rows = self.rows::<K>(K::selector(select), fresh, false).await?;
        rows.retain(|row| K::chosen(select, row));
        Ok(rows)
    }

    async fn create(&self, key: &K::Key, value: K::Value) -> Result<Row<K>, StoreError> {
        let new: Row<K> = Row { key: key.clone(), value, revision: Revision(String::new()), uid: Uid(String::new()), extra: Extra::NONE };
        let body = Value::Object(encode(&new, self.group)).to_string().into_bytes();
        let answer = self.connection.write(Purpose::Create, K::NAME, &self.path::<K>(None), body).await;
        self.written(&answer.understood(Purpose::Create, K::NAME)?)
    }

    async fn update(&self, row: Row<K>) -> Result<Row<K>, StoreError> {
        let mut object = Object(encode(&row, self.group));
        let metadata = object.metadata_mut();
        metadata.insert("resourceVersion".into(), row.revision.0.clone().into());
        metadata.insert("uid".into(), row.uid.0.clone().into());
        let path = self.path::<K>(Some(&K::object_name(&row.key)));
        let answer = self.connection.write(Purpose::Update, K::NAME, &path, Value::Object(object.0).to_string().into_bytes()).await;
        self.written(&answer.understood(Purpose::Update, K::NAME)?)
    }

    async fn delete(&self, row: &Row<K>) -> Result<(), StoreError> {
        self.remove(row).await
    }

    async fn half_deleted(&self) -> Result<Vec<Row<K>>, StoreError> {
        self.rows::<K>(None, Freshness::Latest, true).await
    }

    async fn purge(&self, row: &Row<K>) -> Result<(), StoreError> {
        self.remove(row).await
    }
}

fn node(object: &CoreObject) -> Option<Row<NodeKind>> {
    let metadata = object.metadata.as_ref()?;
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    Some(Row {
        key: metadata.name.clone()?,
        value: Node { labels: object.node().labels },
        revision: Revision(text(&metadata.resource_version)),
        uid: Uid(text(&metadata.uid)),
        extra: Extra::NONE,
    })
}

/// Nodes are the cluster's own: they are only read.
fn only_read<T>() -> Result<T, StoreError> {
    Err(StoreError::Refused("nodes are not written".into()))
}

impl Table<NodeKind> for KubeStore {
    async fn get(&self, name: &String) -> Result<Option<Row<NodeKind>>, StoreError> {
        let path = format!("/api/v1/nodes/{name}");
        match self.connection.read(Purpose::Get, NodeKind::NAME, &path).await.understood(Purpose::Get, NodeKind::NAME) {
            Ok(body) => Ok(node(&serde_json::from_slice(&body).map_err(|e| unreadable("Node", &e))?)),
            Err(StoreError::Absent) => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn list(&self, (): &(), fresh: Freshness) -> Result<Vec<Row<NodeKind>>, StoreError> {
        let objects: Vec<CoreObject> = self.pages(NodeKind::NAME, "/api/v1/nodes", None, fresh).await?;
        let mut rows: Vec<_> = objects.iter().filter_map(node).collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(rows)
    }

    async fn create(&self, _: &String, _: Node) -> Result<Row<NodeKind>, StoreError> {
        only_read()
    }

    async fn update(&self, _: Row<NodeKind>) -> Result<Row<NodeKind>, StoreError> {
        only_read()
    }

    async fn delete(&self, _: &Row<NodeKind>) -> Result<(), StoreError> {
        only_read()
    }

    async fn half_deleted(&self) -> Result<Vec<Row<NodeKind>>, StoreError> {
        Ok(Vec::new())
    }

    async fn purge(&self, _: &Row<NodeKind>) -> Result<(), StoreError> {
        only_read()
    }
}
