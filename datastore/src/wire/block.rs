//! Blocks on the wire (wire-format.md 3).

use std::collections::BTreeMap;

use ipam::block::{Attribute, Block};
use ipam::ids::BlockCidr;
use ipam::model::BlockKind;
use ipam::store::Extra;
use ipam_accounting::facts::Attrs;
use serde_json::{Map, Value, json};

use super::{FieldError, Fields, Object, Wire, integer, time};
use crate::group::Group;
use crate::names;

impl Wire for BlockKind {
    fn take(object: &mut Object, _: Group) -> Result<(BlockCidr, Block, bool), FieldError> {
        let mut spec = object.spec()?;
        let text = spec.required_text("cidr")?;
        let cidr: BlockCidr = text.parse().map_err(|e| spec.error("cidr", format!("{e}")))?;
        let allocations = indexes(&mut spec)?;
        let unallocated = ordinals(&mut spec)?;
        let attributes = spec.list("attributes")?.ok_or_else(|| spec.error("attributes", "is missing"))?;
        let attributes = (0..).zip(attributes).map(|(i, v)| attribute(v, i)).collect::<Result<_, _>>()?;
        let mut seqs = BTreeMap::new();
        for (ordinal, n) in spec.object("sequenceNumberForAllocation")?.into_iter().flatten() {
            let path = spec.field(&format!("sequenceNumberForAllocation[{ordinal}]"));
            let key: u32 = ordinal.parse().map_err(|_| FieldError::new(&path, "is not an ordinal"))?;
            seqs.insert(key, integer(&n, path)?);
        }
        let half_deleted = spec.flag("deleted")?.unwrap_or(false);
        spec.take("strictAffinity");
        let block = Block {
            cidr,
            affinity: spec.text("affinity")?.filter(|a| !a.is_empty()),
            claim_time: spec.time("affinityClaimTime")?,
            allocations,
            unallocated,
            attributes,
            seq: spec.integer("sequenceNumber")?.unwrap_or(0),
            seqs,
        };
        // The clock does not matter for what makes a block bad.
        match block.faults(chrono::DateTime::UNIX_EPOCH).into_iter().find(|f| f.bad) {
            Some(fault) => Err(FieldError::new("spec", fault.message)),
            None => Ok((cidr, block, half_deleted)),
        }
    }

    fn put(_: &BlockCidr, block: &Block, _: Group, object: &mut Object) {
        let spec = object.spec_mut();
        let mut set = |name: &str, value: Value| spec.insert(name.into(), value);
        set("cidr", block.cidr.to_string().into());
        set("allocations", json!(block.allocations));
        set("unallocated", json!(block.unallocated));
        set("attributes", block.attributes.iter().map(put_attribute).collect());
        set("sequenceNumber", block.seq.into());
        set("deleted", false.into());
        set("strictAffinity", false.into());
        let seqs: Map<String, Value> = block.seqs.iter().map(|(o, n)| (o.to_string(), (*n).into())).collect();
        set("sequenceNumberForAllocation", seqs.into());
        if let Some(affinity) = &block.affinity {
            set("affinity", affinity.as_str().into());
        }
        if let Some(at) = block.claim_time {
            set("affinityClaimTime", time(at));
        }
    }

    fn object_name(key: &BlockCidr) -> String {
        names::cidr_name(key.net())
    }

    fn kind(_: Group) -> &'static str {
        "IPAMBlock"
    }

    fn plural(_: Group) -> &'static str {
        "ipamblocks"
    }
}

fn indexes(spec: &mut Fields<'_>) -> Result<Vec<Option<u32>>, FieldError> {
    let list = spec.list("allocations")?.ok_or_else(|| spec.error("allocations", "is missing"))?;
    let entry = |(i, v): (usize, Value)| if v.is_null() { Ok(None) } else { small(&v, format!("spec.allocations[{i}]")).map(Some) };
    list.into_iter().enumerate().map(entry).collect()
}

fn ordinals(spec: &mut Fields<'_>) -> Result<Vec<u32>, FieldError> {
    let list = spec.list("unallocated")?.ok_or_else(|| spec.error("unallocated", "is missing"))?;
    list.iter().enumerate().map(|(i, v)| small(v, format!("spec.unallocated[{i}]"))).collect()
}

fn small(value: &Value, path: String) -> Result<u32, FieldError> {
    let n = integer(value, path.as_str())?;
    u32::try_from(n).map_err(|_| FieldError::new(path, format!("{n} is out of range")))
}

fn attribute(value: Value, i: usize) -> Result<Attribute, FieldError> {
    let path = format!("spec.attributes[{i}]");
    let Value::Object(mut map) = value else { return Err(FieldError::new(path, "is not an object")) };
    let mut fields = Fields { map: &mut map, path };
    let entry = Attribute {
        handle: fields.text("handle_id")?,
        active: attrs(&mut fields, "secondary")?,
        alternate: attrs(&mut fields, "alternateOwnerAttrs")?,
        released_at: fields.time("releasedAt")?,
        extra: Extra::NONE,
    };
    let extra = if map.is_empty() { Extra::NONE } else { Extra::new(&Value::Object(map).to_string()) };
    Ok(Attribute { extra, ..entry })
}

fn attrs(fields: &mut Fields<'_>, name: &str) -> Result<Attrs, FieldError> {
    let path = fields.field(name);
    let entry = |(key, value): (String, Value)| match value {
        Value::String(text) => Ok((key, text)),
        _ => Err(FieldError::new(format!("{path}.{key}"), "is not a text")),
    };
    fields.object(name)?.into_iter().flatten().map(entry).collect()
}

fn put_attribute(a: &Attribute) -> Value {
    let carried = a.extra.text().and_then(|text| serde_json::from_str(text).ok());
    let mut map: Map<String, Value> = carried.unwrap_or_default();
    if let Some(handle) = &a.handle {
        map.insert("handle_id".into(), handle.as_str().into());
    }
    for (name, attrs) in [("secondary", &a.active), ("alternateOwnerAttrs", &a.alternate)] {
        if !attrs.is_empty() {
            map.insert(name.into(), json!(attrs));
        }
    }
    if let Some(at) = a.released_at {
        map.insert("releasedAt".into(), time(at));
    }
    map.into()
}
