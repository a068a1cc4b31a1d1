//! `kubectl get -o yaml` as a store, and back.
//!
//! Input is read object by object, so that no dump is ever whole in memory; saving reads it again and replaces or
//! drops the rows that changed (D-45).

mod lenient;
mod load;
mod pieces;
mod save;

pub(crate) use load::Loader;
pub use load::{Kinds, load};
pub use save::save;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ipam::MemStore;
use ipam::audit::BadObject;
use ipam_accounting::inventory::{Holds, Trusts};

use crate::group::Group;
use crate::update::Settings;

/// Why input cannot be used at all: one line that names file, object and field.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {why}")]
pub struct DumpError {
    /// File, line, object.
    pub place: String,
    /// What is wrong.
    pub why: String,
}

impl DumpError {
    pub(crate) fn new(place: impl Into<String>, why: impl Into<String>) -> Self {
        Self { place: place.into(), why: why.into() }
    }
}

/// One input: a file, or standard input kept in a temporary file so that it can be read again.
#[derive(Debug)]
pub struct Input {
    name: String,
    path: PathBuf,
    _spool: Option<tempfile::NamedTempFile>,
}

impl Input {
    /// Opens an input; `-` is standard input.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path) -> Result<Self, DumpError> {
        let name = path.display().to_string();
        if path != Path::new("-") {
            std::fs::File::open(path).map_err(|e| DumpError::new(&name, e.to_string()))?;
            return Ok(Self { name, path: path.into(), _spool: None });
        }
        let spooled = || -> std::io::Result<tempfile::NamedTempFile> {
            let mut file = tempfile::NamedTempFile::new()?;
            std::io::copy(&mut std::io::stdin().lock(), &mut file)?;
            Ok(file)
        };
        let file = spooled().map_err(|e| DumpError::new("standard input", e.to_string()))?;
        Ok(Self { name: "standard input".into(), path: file.path().into(), _spool: Some(file) })
    }
}

/// A loaded dump.
#[derive(Debug)]
pub struct Dump {
    /// The IPAM rows.
    pub store: MemStore,
    /// The API group of the rows; `None`: there are none.
    pub group: Option<Group>,
    /// Objects that were not understood.
    pub bad: Vec<BadObject>,
    /// What must not be acted on because of them.
    pub holds: Holds,
    /// How far absences prove something.
    pub trusts: Trusts,
    /// The controllers' configuration, if it was there.
    pub settings: Option<Settings>,
    /// What a person should know, each a line.
    pub notes: Vec<String>,
    /// Objects by kind, those included that we do not use.
    pub counts: BTreeMap<String, u64>,
    inputs: Vec<Input>,
}
