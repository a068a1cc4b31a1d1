//! The command line.

use std::path::PathBuf;

use chrono::{DateTime, TimeDelta, Utc};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ipam_datastore::Group;
use ipam_datastore::dump::Kinds;
use ipam_datastore::text::{duration, time};

/// Finds leaked addresses, cold addresses and idle blocks, and gives them back safely.
#[derive(Debug, Parser)]
#[command(name = "ipam-operator", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the operator.
    Run(Box<Run>),
}

/// Mode of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Decides and acts.
    Enforce,
    /// Decides and shows each decision once; writes nothing.
    Audit,
}

/// Form of the output of a fast-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For a person.
    Text,
    /// One JSON document.
    Json,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Works on dumps of `kubectl get -o yaml` (or JSON) instead of a cluster; `-` is standard input.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["kubeconfig", "context", "api_group"])]
    pub load: Vec<PathBuf>,

    /// Kubeconfig of the cluster. Default: KUBECONFIG, ~/.kube/config, or the pod's own account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig. Default: its current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// API group of the cluster's IPAM objects: projectcalico.org/v3 or crd.projectcalico.org/v1. Default: asked of the cluster.
    #[arg(long, value_name = "GROUP", env = "CALICO_API_GROUP", value_parser = Group::named)]
    pub api_group: Option<Group>,

    /// Writes the dump as it is at the end.
    #[arg(long, value_name = "FILE", requires = "load")]
    pub save: Option<PathBuf>,

    /// Whether to act or only to show.
    #[arg(long, value_enum, default_value_t = ModeArg::Enforce)]
    pub mode: ModeArg,

    /// How long an address must be leaked before it is given back; 0 switches that off. Default: what the
    /// KubeControllersConfiguration says, else 15m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leak_grace_period: Option<TimeDelta>,

    /// Shortest such time for addresses of VMs.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pub vm_grace_period: TimeDelta,

    /// Share of the addresses of pods and VMs above which nothing of them is released; 1: there is no such limit.
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.5")]
    pub brake_max_share: f64,

    /// So many addresses must be concerned for that.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000), default_value = "100")]
    pub brake_min_addresses: u64,

    /// Releases of so long before count too.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h")]
    pub brake_window: TimeDelta,

    /// Where metrics and probes are served.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9094")]
    pub listen: String,

    /// What time it is at the start (RFC 3339). Default: the system's time.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "load")]
    pub now: Option<DateTime<Utc>>,

    /// Says that the dump has all objects of this kind although it has none, or all pods although they are in one
    /// namespace: Pod, Node, VirtualMachine, VirtualMachineInstance.
    #[arg(long, value_name = "KIND", requires = "load")]
    pub complete: Vec<Kinds>,

    /// Lets the clock jump from one due moment to the next, and ends when nothing is due any more.
    #[arg(long, requires = "load")]
    pub fast_forward: bool,

    /// Form of the output of --fast-forward.
    #[arg(short, long, value_enum, default_value_t = Output::Text, requires = "fast_forward")]
    pub output: Output,
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.01..=1.0).contains(share)).ok_or_else(|| format!("{text:?} is not from 0.01 to 1"))
}
