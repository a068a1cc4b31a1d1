//! `ipam-operator`.

use std::process::ExitCode;

use anyhow::Context as _;
use chrono::SubsecRound as _;
use clap::Parser as _;
use ipam::{Clock as _, SystemClock};
use ipam_datastore::dump::save;
use ipam_operator::args::{Cli, Command, ModeArg, Output, Run};
use ipam_operator::run::{MovedClock, Session, Wishes};

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
    let wishes = Wishes { audit: run.mode == ModeArg::Audit, grace: run.leak_grace_period, vm_floor: Some(run.vm_grace_period) };
    let mut session = Session::load(&run.load, &run.complete, &wishes, &mut |_| {})?;
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
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
        let stop = async { drop(tokio::signal::ctrl_c().await) };
        runtime.block_on(session.real_time(MovedClock::starting_at(run.now), &run.listen, stop))?;
    }
    if let Some(path) = &run.save {
        save(&session.dump, path)?;
    }
    Ok(())
}
