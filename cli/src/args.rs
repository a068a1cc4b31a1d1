//! The command line.

use std::path::PathBuf;

use chrono::{DateTime, TimeDelta, Utc};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ipam_accounting::schedule::Limits;
use ipam_datastore::Group;
use ipam_datastore::dump::Kinds;
use ipam_datastore::text::{duration, time};

/// Looks into the IP address management of a cluster.
#[derive(Debug, Parser)]
#[command(name = "ipamctl", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Judges every allocated address and checks that everything is consistent. Exit status: 0 nothing wrong, 1 could not
    /// run, 2 problems found.
    Check(CheckArgs),
    /// Explains why an address is what it is: the rule, what was looked at, what would change it.
    Explain(ExplainArgs),
    /// Shows how full pools and blocks are, or who has an address.
    Show(ShowArgs),
}

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For a person.
    Table,
    /// JSON.
    Json,
}

/// Where the objects come from: dumps, or the cluster.
#[derive(Debug, Default, Args)]
pub struct Source {
    /// Dumps of `kubectl get -o yaml` (or JSON) instead of a cluster; `-` is standard input.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["kubeconfig", "context", "api_group"])]
    pub from: Vec<PathBuf>,

    /// Kubeconfig of the cluster. Default: KUBECONFIG, ~/.kube/config, or the pod's own account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig. Default: its current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// API group of the cluster's IPAM objects: projectcalico.org/v3 or crd.projectcalico.org/v1. Default: asked of the cluster.
    #[arg(long, value_name = "GROUP", env = "CALICO_API_GROUP", value_parser = Group::named)]
    pub api_group: Option<Group>,
}

/// How addresses are judged, and when leaked ones go.
#[derive(Debug, Args)]
pub struct Judging {
    /// How long a leaked address waits before the operator gives it back; 0: it never does.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "15m")]
    pub leak_grace_period: TimeDelta,

    /// Says that the dump has all objects of this kind although it has none, or all pods although they are in one
    /// namespace: Pod, Node, VirtualMachine, VirtualMachineInstance.
    #[arg(long, value_name = "KIND")]
    pub complete: Vec<Kinds>,
}

impl Judging {
    /// The waiting times.
    pub fn limits(&self) -> Limits {
        Limits { grace: self.leak_grace_period, ..Limits::default() }
    }
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Source of the objects.
    #[command(flatten)]
    pub source: Source,

    /// What time it is (RFC 3339). Default: the system's time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub now: Option<DateTime<Utc>>,

    /// How it is judged.
    #[command(flatten)]
    pub judging: Judging,

    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The address.
    #[arg(value_name = "ADDRESS")]
    pub ip: String,

    /// Source of the objects.
    #[command(flatten)]
    pub source: Source,

    /// How it is judged.
    #[command(flatten)]
    pub judging: Judging,

    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Source of the objects.
    #[command(flatten)]
    pub source: Source,

    /// Shows the blocks of each pool too.
    #[arg(long)]
    pub show_blocks: bool,

    /// Shows who has this address.
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<String>,

    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}
