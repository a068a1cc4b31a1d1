//! Harness of the project's tests; ships nowhere.
//!
//! [`script`] runs the text cases below `tests/cases`: a cluster in a few lines, steps, and what must come of them.

pub mod contract;
pub mod control_plane;
pub mod explorer;
pub mod faulty;
pub mod hammer;
pub mod lab;
pub mod monitoring;
pub mod proxy;
pub mod script;
pub mod synthetic;

use std::path::{Path, PathBuf};

/// A file of the repository.
pub fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Says something that is shown of a test that passes, too.
pub fn say(text: impl std::fmt::Display) {
    use std::io::Write as _;
    drop(writeln!(std::io::stdout().lock(), "{text}"));
}

/// A file of the tests' own data, read as JSON.
///
/// # Panics
/// It is not there, or not JSON.
pub fn data(name: &str) -> serde_json::Value {
    let path = repo("tests/data").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
