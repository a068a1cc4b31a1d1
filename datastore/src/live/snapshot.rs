//! Everything that a cluster has, read once: as a dump of it.

use ipam::StoreError;
use ipam::store::Freshness;
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::kinds::place;
use super::store::KubeStore;
use crate::dump::{Dump, DumpError, Kinds, Loader};
use crate::facts::CoreObject;
use crate::update::{Update, Watched};
use crate::wire::stored_kinds;

/// Kinds of the core and of KubeVirt, and what a full list proves.
const CORE: [(Watched, Kinds); 4] = [
    (Watched::Pod, Kinds::Pod),
    (Watched::Node, Kinds::Node),
    (Watched::Vm, Kinds::VirtualMachine),
    (Watched::Vmi, Kinds::VirtualMachineInstance),
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
    for (watched, proves) in CORE {
        let (kind, path) = place(watched, store.group());
        let version = if watched.optional() { "kubevirt.io/v1" } else { "v1" };
        let mut take = |item: Value| match CoreObject::deserialize(&item) {
            Ok(mut core) => {
                // Items of a list do not name their kind.
                (core.api_version, core.kind) = (Some(version.into()), Some(kind.into()));
                loader.core(&core);
            }
            Err(e) => loader.bad_core(kind, &item, &e.to_string()),
        };
        match store.each(kind, &path, "", Freshness::Latest, &mut take).await {
            Ok(_) => complete.push(proves),
            Err(StoreError::NotServed(_)) if watched.optional() => {}
            Err(e) => return Err(DumpError::new(kind, e.to_string())),
        }
    }
    Ok(loader.finish(Vec::new(), &complete))
}
