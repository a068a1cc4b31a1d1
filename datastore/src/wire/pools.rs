//! Pools and reservations on the wire (wire-format.md 7, 8; pools.md 1).

use ipam::model::{Allocatable, Pool, PoolKind, Reservation, ReservationKind};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::{FieldError, Fields, Object, Wire};
use crate::group::Group;

/// Texts of a list; leaves the list in place.
fn texts(fields: &Fields<'_>, name: &str) -> Result<Vec<String>, FieldError> {
    let Some(value) = fields.peek(name) else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| fields.error(name, "is not a list"))?;
    let text = |v: &Value| v.as_str().map(Into::into).ok_or_else(|| fields.error(name, format!("{v} is not a text")));
    list.iter().map(text).collect()
}

impl Wire for PoolKind {
    /// We never write pools' fields, so they all stay in the object.
    fn take(object: &mut Object, _: Group) -> Result<(String, Pool, bool), FieldError> {
        let name = object.name().to_owned();
        let deleting = object.metadata("deletionTimestamp").is_some() || hidden_deletion(object);
        let conditions = object.0.get("status").and_then(|s| s.get("conditions")).and_then(Value::as_array);
        let condition = conditions.into_iter().flatten().find(|c| c["type"] == "Allocatable");
        let allocatable = match condition.and_then(|c| c["status"].as_str()) {
            Some("True") => Allocatable::True,
            Some("False") => Allocatable::False,
            _ => Allocatable::Unstated,
        };
        let before = object.0.get("spec").cloned();
        let mut spec = object.spec()?;
        let text = spec.required_text("cidr")?;
        let cidr = text.parse::<IpNet>().map(|c| c.trunc()).map_err(|_| text);
        let default_size = if matches!(cidr, Ok(IpNet::V6(_))) { 122 } else { 26 };
        let size = spec.integer("blockSize")?.unwrap_or(0);
        let size = u8::try_from(size).map_err(|_| spec.error("blockSize", format!("{size} is out of range")))?;
        let mut allowed_uses = texts(&spec, "allowedUses")?;
        if allowed_uses.is_empty() {
            allowed_uses = vec!["Workload".into(), "Tunnel".into()];
        }
        let pool = Pool {
            cidr,
            block_size: if size == 0 { default_size } else { size },
            node_selector: spec.text("nodeSelector")?.filter(|s| !s.is_empty()).unwrap_or_else(|| "all()".into()),
            namespace_selector: spec.text("namespaceSelector")?.unwrap_or_default(),
            allowed_uses,
            manual: spec.text("assignmentMode")?.as_deref() == Some("Manual"),
            disabled: spec.flag("disabled")?.unwrap_or(false),
            deleting,
            allocatable,
        };
        object.0.extend(before.map(|spec| ("spec".to_owned(), spec)));
        Ok((name, pool, false))
    }

    fn put(_: &String, pool: &Pool, _: Group, object: &mut Object) {
        let cidr = pool.cidr.as_ref().map_or_else(Clone::clone, ToString::to_string);
        let spec = object.spec_mut();
        spec.insert("cidr".into(), cidr.into());
        spec.insert("blockSize".into(), pool.block_size.into());
        spec.insert("disabled".into(), pool.disabled.into());
    }

    fn object_name(key: &String) -> String {
        key.clone()
    }

    fn kind(_: Group) -> &'static str {
        "IPPool"
    }

    fn plural(_: Group) -> &'static str {
        "ippools"
    }
}

/// The metadata annotation of v1 may hold a deletion timestamp of its own (wire-format.md 2.2).
fn hidden_deletion(object: &Object) -> bool {
    let hidden = object.0.get("metadata").and_then(|m| m["annotations"]["projectcalico.org/metadata"].as_str());
    let hidden: Option<Value> = hidden.and_then(|text| serde_json::from_str(text).ok());
    hidden.is_some_and(|v| v["deletionTimestamp"].is_string())
}

impl Wire for ReservationKind {
    fn take(object: &mut Object, _: Group) -> Result<(String, Reservation, bool), FieldError> {
        let name = object.name().to_owned();
        let entries = match object.0.get("spec") {
            None | Some(Value::Null) => Vec::new(),
            Some(_) => texts(&object.spec()?, "reservedCIDRs")?,
        };
        Ok((name, Reservation { entries }, false))
    }

    fn put(_: &String, value: &Reservation, _: Group, object: &mut Object) {
        object.spec_mut().insert("reservedCIDRs".into(), json!(value.entries));
    }

    fn object_name(key: &String) -> String {
        key.clone()
    }

    fn kind(_: Group) -> &'static str {
        "IPReservation"
    }

    fn plural(_: Group) -> &'static str {
        "ipreservations"
    }
}
