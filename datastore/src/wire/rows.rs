//! Affinities and handles on the wire (wire-format.md 4, 5).

use std::collections::BTreeMap;

use ipam::ids::{BlockCidr, HandleId, Owner};
use ipam::model::{Affinity, AffinityKind, AffinityState, Handle, HandleKind, Rows};
use ipam::store::Row;
use serde_json::{Map, Value, json};

use super::{FieldError, Object, Wire, integer};
use crate::group::Group;
use crate::names;

fn state(text: &str) -> Option<AffinityState> {
    Some(match text {
        "" => AffinityState::Old,
        "pending" => AffinityState::Pending,
        "confirmed" => AffinityState::Confirmed,
        "pendingDeletion" => AffinityState::PendingDeletion,
        _ => return None,
    })
}

fn state_text(state: AffinityState) -> &'static str {
    match state {
        AffinityState::Old => "",
        AffinityState::Pending => "pending",
        AffinityState::Confirmed => "confirmed",
        AffinityState::PendingDeletion => "pendingDeletion",
    }
}

/// The flag as text of v1, by the rules of Go's `ParseBool`; as a boolean of v3.
fn deleted(value: Option<Value>) -> Result<bool, FieldError> {
    let error = |what: String| FieldError::new("spec.deleted", format!("{what} is not true or false"));
    match value {
        None => Ok(false),
        Some(Value::Bool(b)) => Ok(b),
        Some(Value::String(s)) => match s.as_str() {
            "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            _ => Err(error(format!("{s:?}"))),
        },
        Some(other) => Err(error(other.to_string())),
    }
}

impl Wire for AffinityKind {
    fn take(object: &mut Object, _: Group) -> Result<((Owner, BlockCidr), Affinity, bool), FieldError> {
        let mut spec = object.spec()?;
        let text = spec.required_text("state")?;
        let state = state(&text).ok_or_else(|| spec.error("state", format!("{text:?} is not a state")))?;
        let node = spec.required_text("node")?;
        let owner = match spec.text("type")?.as_deref() {
            None | Some("" | "host") => Owner::Host(node),
            Some("virtual") => Owner::Virtual(node),
            Some(other) => return Err(spec.error("type", format!("{other:?} is not a type"))),
        };
        let cidr: BlockCidr = spec.required_text("cidr")?.parse().map_err(|e| spec.error("cidr", format!("{e}")))?;
        let half_deleted = deleted(spec.take("deleted"))?;
        let labels = object.0.get("metadata").and_then(|m| m.get("labels"));
        let has = |(key, value): (&String, &String)| labels.and_then(|l| l.get(key)).and_then(Value::as_str) == Some(value);
        let indexed = names::affinity_labels(&owner, cidr.net()).iter().all(has);
        Ok(((owner, cidr), Affinity { state, indexed }, half_deleted))
    }

    fn put((owner, cidr): &(Owner, BlockCidr), value: &Affinity, group: Group, object: &mut Object) {
        let labels: Map<String, Value> = names::affinity_labels(owner, cidr.net()).into_iter().map(|(k, v)| (k, v.into())).collect();
        let new = object.metadata("uid").is_none();
        let metadata = object.metadata_mut();
        if new && group == Group::V1 {
            let inside = json!({ "labels": labels }).to_string();
            metadata.insert("annotations".into(), json!({ "projectcalico.org/metadata": inside }));
        }
        match metadata.get_mut("labels") {
            Some(Value::Object(map)) => map.extend(labels),
            _ => drop(metadata.insert("labels".into(), labels.into())),
        }
        let deleted = if group == Group::V1 { json!("false") } else { json!(false) };
        object.spec_mut().extend([
            ("state".to_owned(), json!(state_text(value.state))),
            ("node".to_owned(), json!(owner.name())),
            ("type".to_owned(), json!(owner.kind())),
            ("cidr".to_owned(), json!(cidr.to_string())),
            ("deleted".to_owned(), deleted),
        ]);
    }

    fn object_name((owner, cidr): &(Owner, BlockCidr)) -> String {
        names::affinity_name(owner.name(), cidr.net())
    }

    fn kind(_: Group) -> &'static str {
        "BlockAffinity"
    }

    fn plural(_: Group) -> &'static str {
        "blockaffinities"
    }

    fn selector(select: &Rows) -> Option<String> {
        names::affinity_selector(select)
    }

    fn chosen(select: &Rows, row: &Row<Self>) -> bool {
        select.selects(&row.key, &row.value)
    }
}

impl Wire for HandleKind {
    fn take(object: &mut Object, _: Group) -> Result<(HandleId, Handle, bool), FieldError> {
        let mut spec = object.spec()?;
        let id = spec.required_text("handleID")?;
        let mut blocks = BTreeMap::new();
        for (cidr, n) in spec.object("block")?.ok_or_else(|| spec.error("block", "is missing"))? {
            let path = spec.field(&format!("block[{cidr}]"));
            let block: BlockCidr = cidr.parse().map_err(|e| FieldError::new(&path, format!("{e}")))?;
            blocks.insert(block, integer(&n, path)?);
        }
        let half_deleted = spec.flag("deleted")?.unwrap_or(false);
        Ok((HandleId::new(&id), Handle { id, blocks }, half_deleted))
    }

    fn put(_: &HandleId, value: &Handle, _: Group, object: &mut Object) {
        let blocks: Map<String, Value> = value.blocks.iter().map(|(cidr, n)| (cidr.to_string(), (*n).into())).collect();
        let fields = [("handleID", json!(value.id)), ("block", blocks.into()), ("deleted", json!(false))];
        object.spec_mut().extend(fields.map(|(k, v)| (k.to_owned(), v)));
    }

    fn object_name(key: &HandleId) -> String {
        names::handle_name(key.as_str())
    }

    fn kind(_: Group) -> &'static str {
        "IPAMHandle"
    }

    fn plural(_: Group) -> &'static str {
        "ipamhandles"
    }

    /// Handles whose ids differ by case share an object: the caller looks whose it is (D-70).
    fn under(key: &HandleId, row: Row<Self>) -> Option<Row<Self>> {
        Some(Row { key: key.clone(), ..row })
    }
}
