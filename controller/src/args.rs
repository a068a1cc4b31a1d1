//! The command line. The flags of the configuration are made from its list of keys.

use std::collections::BTreeMap;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, ValueEnum};
use ipam_datastore::dump::Kinds;
use ipam_datastore::text::time;

use crate::config::Given;
use crate::config::keys::{KEYS, Kind};

/// Finds leaked addresses, cold addresses and idle blocks, and gives them back safely.
#[derive(Debug, Parser)]
#[command(name = "ipam-operator", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: What,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Runs the operator.
    Run(Box<Run>),
    /// Shows the configuration that a run would obey, and where each value is from.
    Config(Box<Show>),
    /// Asks a running operator whether it is well. Exit status: 0 it says so, 1 it does not.
    Healthcheck(Ask),
}

/// Whom to ask.
#[derive(Debug, Args)]
pub struct Ask {
    /// Where, such as http://ipam-operator:9094/readyz.
    #[arg(long, value_name = "URL")]
    pub url: String,

    /// Whoever's certificate it has.
    #[arg(long)]
    pub insecure: bool,
}

/// Form of the output of a fast-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For a person.
    Text,
    /// One JSON document.
    Json,
}

/// Form of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A table.
    Table,
    /// A YAML list.
    Yaml,
    /// A JSON list.
    Json,
}

/// Where the configuration comes from.
#[derive(Debug, Args)]
pub struct Sources {
    /// The configuration file. It is read again when it changes.
    #[arg(long, value_name = "FILE", env = "IPAM_OPERATOR_CONFIG")]
    pub config: Option<PathBuf>,

    /// What flags say.
    #[command(flatten)]
    pub flags: Flags,
}

impl Sources {
    /// Everything that was said outside of the file.
    pub fn given(&self) -> Given {
        Given { flags: self.flags.0.clone(), variables: std::env::vars().collect() }
    }

    /// The file, if one was named.
    pub fn file(&self) -> Option<PathBuf> {
        self.config.clone().filter(|path| !path.as_os_str().is_empty())
    }
}

/// Which cluster.
#[derive(Debug, Args)]
pub struct Where {
    /// Kubeconfig of the cluster. Default: KUBECONFIG, ~/.kube/config, or the pod's own account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig. Default: its current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub struct Show {
    /// Where it comes from.
    #[command(flatten)]
    pub sources: Sources,

    /// Which cluster; asked only if one of these is given.
    #[command(flatten)]
    pub cluster: Where,

    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,

    /// Shows what a file may hold instead, as a JSON schema.
    #[arg(long)]
    pub schema: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Works on dumps of `kubectl get -o yaml` (or JSON) instead of a cluster; `-` is standard input.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["kubeconfig", "context"])]
    pub load: Vec<PathBuf>,

    /// Which cluster.
    #[command(flatten)]
    pub cluster: Where,

    /// Where the configuration comes from.
    #[command(flatten)]
    pub sources: Sources,

    /// Writes the dump as it is at the end.
    #[arg(long, value_name = "FILE", requires = "load")]
    pub save: Option<PathBuf>,

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

/// What the flags of the configuration say, by key.
#[derive(Clone, Debug, Default)]
pub struct Flags(BTreeMap<&'static str, String>);

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        KEYS.iter().fold(command, |command, key| {
            let Some(flag) = key.flag else { return command };
            let variable = key.variable().unwrap_or_default();
            let default = if key.default == "null" { String::new() } else { format!(" Default: {}.", key.default) };
            let help = format!("{} ({}){default} [key: {}] [env: {variable}]", key.help, key.kind.allowed(), key.path);
            let arg = Arg::new(key.path).long(flag).help(help).help_heading("Configuration");
            command.arg(match key.kind {
                Kind::Flag => arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("true|false"),
                _ => arg.value_name("VALUE"),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let said = |path: &'static str| Some((path, matches.get_one::<String>(path)?.clone()));
        Ok(Self(KEYS.iter().filter(|k| k.flag.is_some()).filter_map(|k| said(k.path)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
