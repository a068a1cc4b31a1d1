//! A loaded dump with its cache.

use std::io::{IsTerminal as _, Write as _};

use ipam_accounting::Inventory;
use ipam_datastore::dump::{Kinds, load};
use ipam_datastore::live::discovery::discover;
use ipam_datastore::live::{Access, Connection, snapshot};
use ipam_datastore::{Dump, KubeStore, Update};

use crate::Error;
use crate::args::Source;

/// Objects between two words of progress.
const STEP: u64 = 20_000;

/// A dump and what is known of it.
pub struct Loaded {
    /// The rows.
    pub dump: Dump,
    /// The cache.
    pub cache: Inventory,
}

/// Reads the cluster.
fn live(source: &Source, sink: &mut (dyn FnMut(Update) + Send)) -> Result<Dump, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    runtime.block_on(async {
        let connection = Connection::new(Access { kubeconfig: source.kubeconfig.clone(), context: source.context.clone() }).await?;
        let group = match source.api_group {
            Some(group) => group,
            None => discover(&connection).await?,
        };
        Ok(snapshot(&KubeStore::new(connection, group), sink).await?)
    })
}

/// Loads; tells notes on standard error, and progress if that is a terminal.
///
/// # Errors
/// Input that cannot be used at all.
pub fn loaded(source: &Source, complete: &[Kinds]) -> Result<Loaded, Error> {
    let mut cache = Inventory::new();
    let mut locked = Vec::new();
    let mut sink = |update: Update| {
        match &update {
            Update::Cluster(Err(e)) => locked.push(format!("the cluster information was not understood: {e}")),
            Update::Config(Err(e)) => locked.push(format!("the IPAM configuration was not understood: {e}")),
            Update::Config(Ok(ipam::Event::Put(row))) => {
                if let Err(e) = row.value.validate() {
                    locked.push(format!(
                        "the IPAM configuration is not valid: {e}; correct it with kubectl edit, until then the operator does nothing"
                    ));
                }
            }
            Update::Cluster(Ok(ipam::Event::Put(row))) if row.value.ready == Some(false) => {
                locked.push("the datastore is locked (datastoreReady is false): the operator does nothing".into());
            }
            _ => {}
        }
        update.apply(&mut cache);
    };
    let terminal = std::io::stderr().is_terminal();
    let mut progress = |n: u64| {
        if terminal && n.is_multiple_of(STEP) {
            eprint!("\r{n} objects read");
            drop(std::io::stderr().flush());
        }
    };
    let dump = if source.from.is_empty() { live(source, &mut sink)? } else { load(&source.from, complete, &mut sink, &mut progress)? };
    if terminal && dump.counts.values().sum::<u64>() >= STEP {
        eprintln!();
    }
    dump.notes.iter().chain(&locked).for_each(|note| eprintln!("note: {note}"));
    Ok(Loaded { dump, cache })
}
