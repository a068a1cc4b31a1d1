//! Everything that a cluster has, read once: as a dump of it.

use ipam::StoreError;
use ipam::store::Freshness;
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::store::KubeStore;
use crate::dump::{Dump, DumpError, Kinds, Loader};
use crate::facts::CoreObject;
use crate::update::Update;
use crate::wire::stored_kinds;

/// Kinds of the core and of KubeVirt: `apiVersion`, kind, path, and what a full list proves.
const CORE: [(&str, &str, &str, Kinds); 4] = [
    ("v1", "Pod", "/api/v1/pods", Kinds::Pod),
    ("v1", "Node", "/api/v1/nodes", Kinds::Node),
    ("kubevirt.io/v1", "VirtualMachine", "/apis/kubevirt.io/v1/virtualmachines", Kinds::VirtualMachine),
    ("kubevirt.io/v1", "VirtualMachineInstance", "/apis/kubevirt.io/v1/virtualmachineinstances", Kinds::VirtualMachineInstance),
];

/// Reads every kind, consistently. What the store says comes before what uses it: an address that is handed out while this reads
/// is not in it, but a pod that is there now is.
///
/// # Errors
/// A kind that cannot be read; without blocks, affinities or pools it is no cluster of ours (D-76).
pub async fn snapshot(store: &KubeStore, sink: &mut (dyn FnMut(Update) + Send)) -> Result<Dump, DumpError> {
    let mut loader = Loader::new(sink);
    let mut complete = Vec::new();
    for (kind, plural) in stored_kinds(store.group()) {
        let mut objects: Vec<Map<String, Value>> = Vec::new();
        let path = format!("/apis/{}/{plural}", store.group().api_version());
        match store.each(kind, &path, "", Freshness::Latest, &mut |item| objects.push(item)).await {
            Err(StoreError::NotServed(_)) if !["IPAMBlock", "BlockAffinity", "IPPool"].contains(&kind) => {}
            done => drop(done.map_err(|e| DumpError::new(kind, e.to_string()))?),
        }
        for mut object in objects {
            object.insert("apiVersion".into(), store.group().api_version().into());
            object.insert("kind".into(), kind.into());
            loader.row(kind, kind, store.group(), object)?;
        }
    }
    for (version, kind, path, proves) in CORE {
        let mut take = |item: Value| match CoreObject::deserialize(&item) {
            Ok(mut core) => {
                // Items of a list do not name their kind.
                (core.api_version, core.kind) = (Some(version.into()), Some(kind.into()));
                loader.core(&core);
            }
            Err(e) => loader.bad_core(kind, &item, &e.to_string()),
        };
        match store.each(kind, path, "", Freshness::Latest, &mut take).await {
            Ok(_) => complete.push(proves),
            Err(StoreError::NotServed(_)) if version != "v1" => {}
            Err(e) => return Err(DumpError::new(kind, e.to_string())),
        }
    }
    Ok(loader.finish(Vec::new(), &complete))
}
