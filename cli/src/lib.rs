//! The command line for the night: check, explain and show, on a cluster or on dumps.
//!
//! | module | what |
//! |---|---|
//! | [`args`] | the command line |
//! | [`snapshot`] | a cluster or dump, loaded, with its cache |
//! | [`check`] | every allocation judged, every inconsistency found |
//! | [`explain`] | why an address is what it is |
//! | [`show`] | how full pools and blocks are; who has an address |

pub mod args;
pub mod check;
pub mod explain;
pub mod show;
pub mod snapshot;

use std::process::ExitCode;

/// Why a command could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input cannot be used at all.
    #[error(transparent)]
    Dump(#[from] ipam_datastore::DumpError),
    /// The cluster cannot be reached.
    #[error(transparent)]
    Connect(#[from] ipam_datastore::live::ConnectError),
    /// There is no runtime.
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
    /// Not an address.
    #[error("invalid IP address specified: {0}")]
    Address(String),
    /// The output cannot be written as JSON.
    #[error("writing JSON")]
    Json(#[from] serde_json::Error),
}

/// The command could not run.
pub const FAILED: u8 = 1;
/// It ran, and found problems.
pub const PROBLEMS: u8 = 2;

/// Runs a command line and answers with its exit status.
pub fn run(cli: &args::Cli) -> ExitCode {
    let done = match &cli.command {
        args::Command::Check(args) => check::run(args),
        args::Command::Explain(args) => explain::run(args),
        args::Command::Show(args) => show::run(args),
    };
    done.unwrap_or_else(|e| {
        eprintln!("ipamctl: {}", ipam::release::chain(&e));
        FAILED.into()
    })
}
