//! An explanation as outputs write it.

use ipam_accounting::explain::Explanation;
use serde_json::{Value, json};

/// What is known of an address, as a JSON object; absent parts of an allocation are `null`.
pub fn explained(e: &Explanation) -> Value {
    let mut out = json!({ "ip": e.ip, "block": e.block, "blockOwner": e.block_owner, "pool": e.pool, "reportedBy": e.reported_by });
    let Some(a) = &e.allocation else {
        out["verdict"] = if e.block.is_some() { "not allocated, or cooling" } else { "in no block" }.into();
        return out;
    };
    let others: Value = a.others.iter().map(|(ip, v)| json!({ "ip": ip, "verdict": v.name(), "why": v.why() })).collect();
    for (name, value) in [
        ("handle", json!(a.handle)),
        ("seq", json!(a.seq)),
        ("owner", json!(a.owner)),
        ("node", json!(a.node)),
        ("verdict", json!(a.verdict.name())),
        ("rule", json!(a.verdict.rule())),
        ("why", json!(a.verdict.why())),
        ("evidence", json!(a.evidence)),
        ("othersOfHandle", others),
        ("wouldChange", json!(a.verdict.changes())),
    ] {
        out[name] = value;
    }
    out
}
