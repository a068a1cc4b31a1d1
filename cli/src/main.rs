//! `ipamctl`.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match ipamctl::args::Cli::try_parse() {
        Ok(cli) => ipamctl::run(&cli),
        Err(e) => {
            drop(e.print());
            // A wrong command line could not run; it found no problem.
            if e.use_stderr() { ipamctl::FAILED.into() } else { ExitCode::SUCCESS }
        }
    }
}
