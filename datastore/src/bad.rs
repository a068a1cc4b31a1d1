//! Objects that were not understood, and what they hold (D-38).

use std::collections::BTreeSet;

use ipam::audit::BadObject;
use ipam::ids::BlockCidr;
use ipam::model::HandleKind;
use ipam::store::Row;
use ipam_accounting::facts::sanitise;
use ipam_accounting::inventory::Holds;
use serde_json::Value;

use crate::wire::FieldError;

/// An object that was not understood, with what of it could be read.
#[derive(Clone, Debug)]
pub struct BadItem {
    kind: String,
    /// What of it could be read.
    pub what: BadObject,
    /// Handles that a block's entries name; `None`: they could not be read.
    handles: Option<BTreeSet<String>>,
    /// Nodes that a block or affinity names; `None`: they could not be read.
    nodes: Option<BTreeSet<String>>,
}

impl BadItem {
    /// From whatever of the object is readable.
    pub(crate) fn new(kind: &str, object: &Value, error: &FieldError) -> Self {
        let spec = &object["spec"];
        let name = object["metadata"]["name"].as_str().unwrap_or("?");
        let namespace = object["metadata"]["namespace"].as_str().map(|n| format!("{n}/")).unwrap_or_default();
        let block = spec["cidr"].as_str().and_then(|c| c.parse::<BlockCidr>().ok());
        let handle = match kind {
            "IPAMHandle" => {
                spec["handleID"].as_str().map(|h| sanitise(h).to_owned()).or_else(|| object["metadata"]["name"].as_str().map(Into::into))
            }
            _ => None,
        };
        let what = BadObject {
            object: format!("{kind}/{namespace}{name}"),
            message: error.to_string(),
            block: if matches!(kind, "IPAMBlock" | "BlockAffinity") { block } else { None },
            handle,
        };
        let (handles, nodes) = match kind {
            "IPAMBlock" => (entries(spec, handle_of), block_nodes(spec)),
            "BlockAffinity" => (Some(BTreeSet::new()), spec["node"].as_str().map(|n| [n.to_owned()].into())),
            _ => (Some(BTreeSet::new()), Some(BTreeSet::new())),
        };
        Self { kind: kind.into(), what, handles, nodes }
    }
}

/// A value of every attribute entry; `None` when some entry cannot be read.
fn entries(spec: &Value, of: impl Fn(&Value) -> Option<Option<String>>) -> Option<BTreeSet<String>> {
    let list = spec["attributes"].as_array()?;
    list.iter().map(of).collect::<Option<Vec<_>>>().map(|found| found.into_iter().flatten().collect())
}

fn handle_of(entry: &Value) -> Option<Option<String>> {
    match entry.as_object()?.get("handle_id") {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(h)) => Some(Some(sanitise(h).to_owned())),
        Some(_) => None,
    }
}

fn node_of(entry: &Value) -> Option<Option<String>> {
    match entry.as_object()?.get("secondary") {
        None | Some(Value::Null) => Some(None),
        Some(Value::Object(attrs)) => match attrs.get("node") {
            None | Some(Value::Null) => Some(None),
            Some(Value::String(node)) => Some(Some(node.clone())),
            Some(_) => None,
        },
        Some(_) => None,
    }
}

fn block_nodes(spec: &Value) -> Option<BTreeSet<String>> {
    let mut nodes = entries(spec, node_of)?;
    match &spec["affinity"] {
        Value::Null => {}
        Value::String(owner) => nodes.extend(owner.strip_prefix("host:").map(Into::into)),
        _ => return None,
    }
    Some(nodes)
}

/// Whether the rows of handles are needed to tell what the bad objects hold.
pub(crate) fn concerns_handles<'a>(bad: impl IntoIterator<Item = &'a BadItem>) -> bool {
    bad.into_iter().any(|b| b.kind == "IPAMBlock")
}

/// What the bad objects hold, given the rows of handles that were understood.
pub(crate) fn holds<'a>(bad: impl IntoIterator<Item = &'a BadItem>, handle_rows: &[Row<HandleKind>]) -> Holds {
    let mut holds = Holds::default();
    for item in bad {
        match item.kind.as_str() {
            "IPAMBlock" => {
                match item.what.block {
                    Some(cidr) => {
                        holds.blocks.insert(cidr.net());
                        handle_rows.iter().filter(|r| r.value.blocks.contains_key(&cidr)).for_each(|r| holds.hold_handle(r.key.as_str()));
                    }
                    None => holds.all_blocks = true,
                }
                match &item.handles {
                    Some(handles) => handles.iter().for_each(|h| holds.hold_handle(h)),
                    // Which handles it holds can then only be told by their rows, if there are any and its key is known.
                    None => holds.all_handles |= handle_rows.is_empty() || item.what.block.is_none(),
                }
                hold_nodes(&mut holds, item.nodes.as_ref());
            }
            "BlockAffinity" => {
                match item.what.block {
                    Some(cidr) => drop(holds.blocks.insert(cidr.net())),
                    None => holds.all_blocks = true,
                }
                hold_nodes(&mut holds, item.nodes.as_ref());
            }
            "IPAMHandle" => match &item.what.handle {
                Some(handle) => holds.hold_handle(handle),
                None => holds.all_handles = true,
            },
            _ => {}
        }
    }
    holds
}

fn hold_nodes(holds: &mut Holds, nodes: Option<&BTreeSet<String>>) {
    match nodes {
        Some(nodes) => holds.nodes.extend(nodes.iter().cloned()),
        None => holds.all_nodes = true,
    }
}
