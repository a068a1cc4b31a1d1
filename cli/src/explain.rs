//! `explain`: why an address is what it is, what was looked at, and what would change it.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;

use ipam_accounting::Inventory;
use ipam_accounting::explain::{Allocated, Explanation};
use ipam_accounting::schedule::{Group, Limits, Time, when};
use ipam_datastore::explained;
use serde_json::{Value, json};

use crate::Error;
use crate::args::{ExplainArgs, Output};
use crate::check::group_of;
use crate::snapshot::loaded;

/// Runs the command.
///
/// # Errors
/// Input that cannot be used, or no address.
pub fn run(args: &ExplainArgs) -> Result<ExitCode, Error> {
    let ip: IpAddr = args.ip.parse().map_err(|_| Error::Address(args.ip.clone()))?;
    let loaded = loaded(&args.source, &args.judging.complete)?;
    let limits = args.judging.limits();
    let explanation = Explanation::of(&loaded.cache, ip);
    match args.output {
        Output::Table => print!("{}", text(&explanation, &loaded.cache, &limits)),
        Output::Json => println!("{:#}", document(&explanation, &loaded.cache, &limits)),
    }
    Ok(ExitCode::SUCCESS)
}

/// When the operator would give it back, and why it does not, if it does not.
fn goes(a: &Allocated, cache: &Inventory, limits: &Limits) -> Option<(&'static str, Option<&'static str>)> {
    let wait = a.wait?;
    let (block, slot) = cache.slot(a.at)?;
    let state = group_of(cache, block, slot, limits, Time::UNIX_EPOCH);
    let held = if let Group::Held(by) = state { Some(by.why()) } else { None };
    Some((when(state, wait), held))
}

fn words(when: &str) -> &'static str {
    match when {
        "now" => "as soon as the operator sees it: its node is gone",
        "grace" => "after the grace period of leaks",
        "vm-grace" => "after the grace period of VMs",
        "with-node" => "with everything else of its node",
        _ => "never as it is",
    }
}

fn text(e: &Explanation, cache: &Inventory, limits: &Limits) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:14}{value}");
    };
    line("Address:", &e.ip.to_string());
    let Some(block) = e.block else {
        line("Verdict:", "in no block");
        if let Some(pod) = &e.reported_by {
            line("Looked at:", &format!("reported by pod {pod}"));
        }
        return out;
    };
    line("Block:", &format!("{block}, of {}", e.block_owner.as_deref().unwrap_or("nobody")));
    line("Pool:", e.pool.as_deref().unwrap_or("none"));
    let Some(a) = &e.allocation else {
        line("Verdict:", "not allocated, or cooling");
        if let Some(pod) = &e.reported_by {
            line("Looked at:", &format!("reported by pod {pod}"));
        }
        return out;
    };
    line("Handle:", a.handle.as_deref().unwrap_or("none"));
    line("Number:", &a.seq.to_string());
    line("Owner:", a.owner.as_deref().unwrap_or("none"));
    line("Node:", a.node.as_deref().unwrap_or("none"));
    line("Verdict:", &format!("{}: {} (rule {})", a.verdict.name(), a.verdict.why(), a.verdict.rule()));
    for (i, seen) in a.evidence.iter().enumerate() {
        line(if i == 0 { "Looked at:" } else { "" }, seen);
    }
    for (i, (ip, verdict)) in a.others.iter().enumerate() {
        line(if i == 0 { "Same handle:" } else { "" }, &format!("{ip} {}: {}", verdict.name(), verdict.why()));
    }
    if let Some((when, held)) = goes(a, cache, limits) {
        let text = held.map_or_else(|| words(when).to_owned(), |why| format!("{}: {why}", words(when)));
        line("Goes:", &text);
    }
    line("Would change:", a.verdict.changes());
    out
}

fn document(e: &Explanation, cache: &Inventory, limits: &Limits) -> Value {
    let mut out = explained(e);
    let Some(a) = &e.allocation else { return out };
    if let Some((when, held)) = goes(a, cache, limits) {
        out["when"] = when.into();
        out["held"] = json!(held);
    }
    out
}
