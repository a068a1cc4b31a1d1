//! `ipam-operator`.

use std::process::ExitCode;

use anyhow::Context as _;
use chrono::SubsecRound as _;
use clap::Parser as _;
use ipam::{Clock as _, SystemClock};
use ipam_datastore::dump::save;
use ipam_datastore::live::{Access, Connection, DISCOVERY};
use ipam_operator::args::{Cli, Command, ModeArg, Output, Run};
use ipam_operator::clocks::MovedClock;
use ipam_operator::live::Cluster;
use ipam_operator::plan::Limit;
use ipam_operator::run::Wishes;
use ipam_operator::session::Session;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let run = match Cli::try_parse() {
        Ok(Cli { command: Command::Run(run) }) => run,
        Err(e) => {
            drop(e.print());
            return if e.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match operate(&run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ipam-operator: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn operate(run: &Run) -> anyhow::Result<()> {
    let brake = Limit { share: run.brake_max_share, addresses: run.brake_min_addresses, window: run.brake_window };
    let audit = run.mode == ModeArg::Audit;
    let wishes = Wishes { audit, grace: run.leak_grace_period, vm_floor: Some(run.vm_grace_period), brake };
    if run.load.is_empty() { on_a_cluster(run, &wishes) } else { on_dumps(run, &wishes) }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")
}

fn on_a_cluster(run: &Run, wishes: &Wishes) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let access = Access { kubeconfig: run.kubeconfig.clone(), context: run.context.clone() };
        let connection = Connection::new(access).await?;
        let cluster = Cluster { connection, group: run.api_group, discovery: DISCOVERY };
        cluster.operate(wishes, &run.listen, stopped()?).await?;
        Ok(())
    })
}

fn on_dumps(run: &Run, wishes: &Wishes) -> anyhow::Result<()> {
    let mut session = Session::load(&run.load, &run.complete, wishes, &mut |_| {})?;
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
        runtime()?.block_on(async { anyhow::Ok(session.real_time(MovedClock::starting_at(run.now), &run.listen, stopped()?).await?) })?;
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
