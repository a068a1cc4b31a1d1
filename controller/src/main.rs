//! `ipam-operator`.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use chrono::SubsecRound as _;
use clap::Parser as _;
use ipam::{Clock as _, SystemClock};
use ipam_datastore::Group;
use ipam_datastore::dump::save;
use ipam_datastore::live::discovery::discover;
use ipam_datastore::live::{Access, Connection, DISCOVERY, controllers_settings};
use ipam_operator::args::{Ask, Cli, Form, Output, Run, Show, What, Where};
use ipam_operator::clocks::RealClocks;
use ipam_operator::config::file::Configured;
use ipam_operator::config::{OperatorConfig, show};
use ipam_operator::healthcheck::healthcheck;
use ipam_operator::leadership::{Leadership, hold};
use ipam_operator::live::Cluster;
use ipam_operator::run::around::{Around, SetLog};
use ipam_operator::send::{Identity, send};
use ipam_operator::serve::while_served;
use ipam_operator::session::Session;
use ipam_operator::view::Me;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, fmt, reload};

fn main() -> ExitCode {
    let what = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(e) => {
            drop(e.print());
            return if e.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let done = match what {
        What::Run(run) => operate(&run),
        What::Config(show) => configuration(&show),
        What::Healthcheck(ask) => well(&ask),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ipam-operator: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the log; answers with how its filter is changed.
fn start_log(config: &OperatorConfig) -> anyhow::Result<SetLog> {
    let (filter, handle) = reload::Layer::new(EnvFilter::try_new(&config.log_level)?);
    let registry = tracing_subscriber::registry().with(filter);
    if config.log_json {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).init();
    } else {
        registry.with(fmt::layer().with_writer(std::io::stderr)).init();
    }
    Ok(Box::new(move |level| {
        if let Ok(filter) = EnvFilter::try_new(level) {
            drop(handle.reload(filter));
        }
    }))
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")
}

async fn connect(cluster: &Where) -> anyhow::Result<Connection> {
    let access = Access { kubeconfig: cluster.kubeconfig.clone(), context: cluster.context.clone() };
    Ok(Connection::new(access).await?)
}

fn well(ask: &Ask) -> anyhow::Result<()> {
    print!("{}", runtime()?.block_on(healthcheck(&ask.url, ask.insecure))?);
    Ok(())
}

fn configuration(show: &Show) -> anyhow::Result<()> {
    if show.schema {
        println!("{:#}", show::schema());
        return Ok(());
    }
    let (configured, config) = Configured::first(show.sources.given(), show.sources.file(), SystemClock.now())?;
    let asked = show.cluster.kubeconfig.is_some() || show.cluster.context.is_some();
    let settings = if asked {
        runtime()?.block_on(async {
            let connection = connect(&show.cluster).await?;
            let group = match config.api_group {
                Some(group) => group,
                None => discover(&connection).await?,
            };
            anyhow::Ok(controllers_settings(&connection, group).await?)
        })?
    } else {
        None
    };
    let lines = show::lines(&configured.values, settings);
    match show.output {
        Form::Table => print!("{}", show::table(&lines)),
        Form::Json => println!("{:#}", show::list(&lines)),
        Form::Yaml => print!("{}", yaml_serde::to_string(&show::list(&lines))?),
    }
    Ok(())
}

fn operate(run: &Run) -> anyhow::Result<()> {
    let (configured, config) = Configured::first(run.sources.given(), run.sources.file(), SystemClock.now())?;
    let set_log = start_log(&config)?;
    for (key, note) in &configured.values.notes {
        tracing::warn!(key, note, "configuration");
    }
    if run.load.is_empty() { on_a_cluster(run, configured, config, set_log) } else { on_dumps(run, configured, config, set_log) }
}

fn on_a_cluster(run: &Run, configured: Configured, mut config: OperatorConfig, set_log: SetLog) -> anyhow::Result<()> {
    let identity = Identity::from_variables(|name| std::env::var(name).ok());
    if let Some(lease) = config.lease.as_mut().filter(|lease| lease.namespace.is_empty()) {
        lease.namespace.clone_from(&identity.namespace);
        anyhow::ensure!(
            !lease.namespace.is_empty(),
            "leaderElection.leaseNamespace: is empty, and so is POD_NAMESPACE; --leader-elect=false runs without a Lease"
        );
    }
    runtime()?.block_on(async {
        let connection = connect(&run.cluster).await?;
        let clocks = RealClocks::starting_at(None);
        let lease = config.lease.clone();
        let leadership = lease.as_ref().map_or_else(|| Leadership::alone(clocks), |lease| Leadership::of(lease, clocks));
        let (notes, told) = mpsc::channel(64);
        let me = identity.is_pod().then(|| Me { namespace: identity.namespace.clone(), name: identity.name.clone() });
        let group = Arc::new(Mutex::new(config.api_group.unwrap_or(Group::V3)));
        let cluster = Cluster { connection: connection.clone(), discovery: DISCOVERY, me, group: group.clone() };
        let mut around = Around::new(clocks, (configured, config), leadership.clone(), notes, false, set_log);
        let over = Notify::new();
        let names = lease.as_ref().map_or(("", ""), |l| (l.namespace.as_str(), l.name.as_str()));
        let holder = if identity.is_pod() { identity.name.clone() } else { format!("ipam-operator-{}", std::process::id()) };
        let work = async {
            let work = while_served(&mut around, stopped()?, async |around| cluster.operate(around).await);
            let done = work.await;
            over.notify_one();
            anyhow::Ok(done?)
        };
        let beside = async {
            match &lease {
                Some(lease) => hold(&connection, lease, &holder, &leadership, over.notified()).await,
                None => over.notified().await,
            }
        };
        tokio::select! {
            (done, ()) = futures::future::join(work, beside) => done,
            () = send(&connection, &group, &identity, names, told) => anyhow::bail!("events are not sent any more"),
        }
    })
}

fn on_dumps(run: &Run, configured: Configured, mut config: OperatorConfig, set_log: SetLog) -> anyhow::Result<()> {
    config.lease = None;
    let mut session = Session::load(&run.load, &run.complete, &config, &mut |_| {})?;
    session.dump.notes.iter().for_each(|note| eprintln!("note: {note}"));
    let source = run.load.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", ");
    if run.fast_forward {
        // Whole seconds, as everything that is stored.
        let start = run.now.unwrap_or_else(|| SystemClock.now().trunc_subsecs(0));
        let document = session.fast_forward(start);
        match run.output {
            Output::Text => print!("{}", document.text(&source, start)),
            Output::Json => println!("{}", serde_json::to_string(&document)?),
        }
    } else {
        eprintln!("Simulation on {source}: no cluster is being changed. Ctrl-C ends it.");
        runtime()?.block_on(async {
            let clocks = RealClocks::starting_at(run.now);
            let (notes, _told) = mpsc::channel(1);
            let mut around = Around::new(clocks, (configured, config), Leadership::alone(clocks), notes, true, set_log);
            anyhow::Ok(while_served(&mut around, stopped()?, async |around| session.real_time(around).await).await?)
        })?;
    }
    if let Some(path) = &run.save {
        save(&session.dump, path)?;
    }
    Ok(())
}

/// Ready when somebody wants us to stop.
fn stopped() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for signals")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
