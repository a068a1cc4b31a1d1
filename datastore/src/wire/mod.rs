//! Stored objects of both API groups ↔ rows (wire-format.md 3 – 9).
//!
//! Lenient reader, strict writer. What we do not model stays in the row's [`Extra`] as JSON: the whole object without
//! the fields that we do model. Writing puts those back, so nothing is ever dropped.

mod block;
mod pools;
mod rows;
mod singles;

use chrono::{DateTime, SecondsFormat, Utc};
use ipam::model::{AffinityKind, BlockKind, ClusterKind, ConfigKind, HandleKind, PoolKind, ReservationKind};
use ipam::store::{Extra, Kind, Revision, Row, Uid};
use serde_json::{Map, Value, json};

use crate::group::Group;

/// A field that was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct FieldError {
    /// Path of the field, such as `spec.allocations[3]`.
    pub field: String,
    /// What is wrong.
    pub why: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

/// A decoded row.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded<K: Kind> {
    /// The row.
    pub row: Row<K>,
    /// Its deletion was begun.
    pub half_deleted: bool,
}

/// A kind that is stored as an object of the API server.
pub trait Wire: Kind {
    /// Takes what we model out of an object; the rest stays in it.
    ///
    /// # Errors
    /// The first field that is not understood.
    fn take(object: &mut Object, group: Group) -> Result<(Self::Key, Self::Value, bool), FieldError>;

    /// Puts what we model into an object.
    fn put(key: &Self::Key, value: &Self::Value, group: Group, object: &mut Object);

    /// The name of the object of a key.
    fn object_name(key: &Self::Key) -> String;

    /// The `kind` of the object.
    fn kind(group: Group) -> &'static str;

    /// The name of the kind in paths.
    fn plural(group: Group) -> &'static str;

    /// Label selector of a list; what it cannot say is for [`Self::chosen`].
    fn selector(_: &Self::Select) -> Option<String> {
        None
    }

    /// Whether a row belongs to a selection.
    fn chosen(_: &Self::Select, _: &Row<Self>) -> bool {
        true
    }

    /// The row that was found under the object name of a key, if it is that key's.
    fn under(key: &Self::Key, row: Row<Self>) -> Option<Row<Self>> {
        (row.key == *key).then_some(row)
    }
}

/// The kinds that a cluster stores in a group, and their names in paths.
pub fn stored_kinds(group: Group) -> [(&'static str, &'static str); 8] {
    fn of<K: Wire>(group: Group) -> (&'static str, &'static str) {
        (K::kind(group), K::plural(group))
    }
    [
        of::<BlockKind>(group),
        of::<AffinityKind>(group),
        of::<HandleKind>(group),
        of::<PoolKind>(group),
        of::<ReservationKind>(group),
        of::<ConfigKind>(group),
        of::<ClusterKind>(group),
        ("KubeControllersConfiguration", "kubecontrollersconfigurations"),
    ]
}

/// An object that is being read or written.
#[derive(Clone, Debug, PartialEq)]
pub struct Object(pub Map<String, Value>);

impl Object {
    /// Its name; empty if it has none.
    pub fn name(&self) -> &str {
        self.metadata("name").unwrap_or_default()
    }

    /// A text of its metadata.
    pub fn metadata(&self, field: &str) -> Option<&str> {
        self.0.get("metadata")?.get(field)?.as_str()
    }

    /// Its metadata, made if there is none.
    pub fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        member(&mut self.0, "metadata")
    }

    fn spec(&mut self) -> Result<Fields<'_>, FieldError> {
        match self.0.get_mut("spec") {
            Some(Value::Object(map)) => Ok(Fields { map, path: "spec".into() }),
            Some(_) => Err(FieldError::new("spec", "is not an object")),
            None => Err(FieldError::new("spec", "is missing")),
        }
    }

    fn spec_mut(&mut self) -> &mut Map<String, Value> {
        member(&mut self.0, "spec")
    }
}

fn member<'a>(map: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let value = map.entry(name).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// The fields of one object on some path; taking one removes it.
pub(crate) struct Fields<'a> {
    map: &'a mut Map<String, Value>,
    path: String,
}

impl Fields<'_> {
    pub(crate) fn field(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    pub(crate) fn error(&self, name: &str, why: impl Into<String>) -> FieldError {
        FieldError::new(self.field(name), why)
    }

    /// The value of a field; absent and null are the same.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|v| !v.is_null())
    }

    /// The value of a field, left in place.
    pub(crate) fn peek(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, FieldError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(_) => Err(self.error(name, "is not a text")),
        }
    }

    pub(crate) fn required_text(&mut self, name: &str) -> Result<String, FieldError> {
        self.text(name)?.ok_or_else(|| self.error(name, "is missing"))
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, FieldError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(b)),
            Some(_) => Err(self.error(name, "is not true or false")),
        }
    }

    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i64>, FieldError> {
        let path = self.field(name);
        self.take(name).map(|v| integer(&v, path)).transpose()
    }

    pub(crate) fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, FieldError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(_) => Err(self.error(name, "is not a list")),
        }
    }

    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, FieldError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.error(name, "is not an object")),
        }
    }

    pub(crate) fn time(&mut self, name: &str) -> Result<Option<DateTime<Utc>>, FieldError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        DateTime::parse_from_rfc3339(&text).map(|t| Some(t.to_utc())).map_err(|_| self.error(name, format!("{text:?} is not a time")))
    }
}

/// A non-negative integer, exact (D-38, wire-format.md 2.11).
pub(crate) fn integer(value: &Value, path: impl Into<String>) -> Result<i64, FieldError> {
    match value.as_i64() {
        Some(n) if n >= 0 => Ok(n),
        Some(n) => Err(FieldError::new(path, format!("{n} is negative"))),
        None if value.is_u64() => Err(FieldError::new(path, format!("{value} is 2^63 or more"))),
        None => Err(FieldError::new(path, format!("{value} is not an integer"))),
    }
}

/// Whole seconds, rounded up (D-20).
pub(crate) fn time(t: DateTime<Utc>) -> Value {
    ipam::clock::round_up(t).to_rfc3339_opts(SecondsFormat::Secs, true).into()
}

/// Reads an object as a row.
///
/// # Errors
/// The first field that is not understood; a name that does not belong to what the object says.
pub fn decode<K: Wire>(object: Map<String, Value>, group: Group) -> Result<Decoded<K>, FieldError> {
    let mut object = Object(object);
    let (key, value, half_deleted) = K::take(&mut object, group)?;
    if object.name() != K::object_name(&key) {
        return Err(FieldError::new(
            "metadata.name",
            format!("{:?} is not the name of its object, {:?}", object.name(), K::object_name(&key)),
        ));
    }
    let revision = Revision(object.metadata("resourceVersion").unwrap_or_default().into());
    let uid = Uid(object.metadata("uid").unwrap_or_default().into());
    let extra = Extra::new(&Value::Object(object.0).to_string());
    Ok(Decoded { row: Row { key, value, revision, uid, extra }, half_deleted })
}

/// Writes a row as an object: what it was read from, with what we model replaced; or a new one.
pub fn encode<K: Wire>(row: &Row<K>, group: Group) -> Map<String, Value> {
    let carried = row.extra.text().and_then(|text| serde_json::from_str(text).ok());
    let mut object = Object(carried.unwrap_or_else(|| new_object::<K>(&row.key, group)));
    K::put(&row.key, &row.value, group, &mut object);
    object.0
}

fn new_object<K: Wire>(key: &K::Key, group: Group) -> Map<String, Value> {
    let mut object = Object(Map::new());
    object.0.insert("apiVersion".into(), group.api_version().into());
    object.0.insert("kind".into(), K::kind(group).into());
    object.metadata_mut().insert("name".into(), K::object_name(key).into());
    if group == Group::V1 {
        object.metadata_mut().insert("annotations".into(), json!({ "projectcalico.org/metadata": "{}" }));
    }
    object.0
}

#[cfg(test)]
mod tests;
