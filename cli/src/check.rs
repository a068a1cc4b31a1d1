//! `check`: every allocation judged, every inconsistency found.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;

use comfy_table::{Table, presets};
use futures::executor::block_on;
use ipam::audit::{Finding, Snapshot, audit, count};
use ipam::model::BlockKind;
use ipam::{Attribute, Clock as _, Row, SystemClock};
use ipam_accounting::facts::Attrs;
use ipam_accounting::inventory::{Block, Slot};
use ipam_accounting::schedule::{Group, HeldBy, Limits, Time, group, when};
use ipam_accounting::{Inventory, Verdict};
use serde::Serialize;

use crate::args::{CheckArgs, Output};
use crate::snapshot::{Loaded, loaded};
use crate::{Error, PROBLEMS};

/// An allocated address.
#[derive(Debug, Serialize)]
pub struct Allocation {
    /// The address.
    pub ip: IpAddr,
    /// Its block.
    pub block: String,
    /// The pool of its block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The node that its owner attributes name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its handle as stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// Its owner: `namespace/pod`, `vm:namespace/name`, or the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its owner's attributes as stored.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: Attrs,
    /// `in-use`, `cooling`, `leaked` or `unknown`.
    pub verdict: &'static str,
    /// Why.
    pub why: String,
    /// When the operator would give it back: `now`, `grace`, `vm-grace`, `with-node`, `held` (never).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<&'static str>,
}

/// What a check found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Every allocated address, by address.
    pub allocations: Vec<Allocation>,
    /// What is inconsistent.
    pub findings: Vec<BTreeMap<&'static str, String>>,
    /// Counts by verdict, and by kind of finding.
    pub summary: Summary,
    /// Something is wrong.
    #[serde(skip)]
    pub problems: bool,
}

/// Counts.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    /// Addresses by verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Findings by kind.
    pub findings: BTreeMap<&'static str, usize>,
}

/// Checks a loaded dump.
pub fn check(loaded: &Loaded, limits: &Limits, now: Time) -> Report {
    let snapshot = block_on(Snapshot::read(&loaded.dump.store, loaded.dump.bad.clone(), true)).expect("memory can be read");
    let findings = audit(&snapshot, Some(&loaded.cache), now);
    let mut allocations = Vec::new();
    for row in &snapshot.blocks {
        let Some((_, block)) = loaded.cache.block_of(row.key.net()) else { continue };
        for (ordinal, entry) in row.value.allocated() {
            let slot = u16::try_from(ordinal).ok().and_then(|o| block.slot(o));
            allocations.push(allocation(&loaded.cache, row, block, ordinal, entry, slot, limits, now));
        }
    }
    let mut summary = Summary { findings: count(&findings), ..Summary::default() };
    allocations.iter().for_each(|a| *summary.verdicts.entry(a.verdict).or_default() += 1);
    let problems = summary.verdicts.contains_key("leaked") || findings.iter().any(Finding::is_problem);
    Report { allocations, findings: findings.iter().map(Finding::fields).collect(), summary, problems }
}

#[expect(clippy::too_many_arguments, reason = "one row of the report, from everything that is known of it")]
fn allocation(
    cache: &Inventory,
    row: &Row<BlockKind>,
    block: &Block,
    ordinal: u32,
    entry: &Attribute,
    slot: Option<&Slot>,
    limits: &Limits,
    now: Time,
) -> Allocation {
    let tracker = &cache.tracker;
    let mut out = Allocation {
        ip: row.key.ip(ordinal).unwrap_or(row.key.net().network()),
        block: row.key.to_string(),
        pool: tracker.pool_of(block.cidr).map(|p| tracker.pool_name(p).into()),
        node: None,
        handle: entry.handle.clone(),
        owner: None,
        attributes: entry.active.clone(),
        verdict: Verdict::Cooling.name(),
        why: Verdict::Cooling.why().into(),
        when: None,
    };
    let Some(slot) = slot else { return out };
    let member = cache.member(block, slot, now);
    out.node = slot.node().map(|n| cache.node_text(n).into());
    out.owner = cache.owner_text(slot).or_else(|| entry.active.get("type").cloned());
    out.verdict = member.verdict.name();
    out.why = member.verdict.why().into();
    if member.verdict.leak().is_some() {
        let group = group_of(cache, block, slot, limits, now);
        out.when = Some(when(group, member.wait));
        if let Group::Held(by) = group {
            out.why = format!("{}; {}", out.why, by.why());
        }
    }
    out
}

/// The state of an allocation's handle, as if everything had been first seen now.
pub(crate) fn group_of(cache: &Inventory, block: &Block, slot: &Slot, limits: &Limits, now: Time) -> Group {
    let state = match slot.handle() {
        None => group([cache.member(block, slot, now)], limits),
        Some(handle) => {
            let members = cache.members(handle).iter().filter_map(|at| cache.slot(*at));
            group(members.map(|(b, s)| cache.member(b, s, now)), limits)
        }
    };
    match state {
        Group::Open { .. } if cache.is_held(slot.handle()) => Group::Held(HeldBy::BadObject),
        state => state,
    }
}

/// Runs the command.
///
/// # Errors
/// Input that cannot be used at all.
pub fn run(args: &CheckArgs) -> Result<ExitCode, Error> {
    let loaded = loaded(&args.source, &args.judging.complete)?;
    let report = check(&loaded, &args.judging.limits(), args.now.unwrap_or_else(|| SystemClock.now()));
    match args.output {
        Output::Json => println!("{}", serde_json::to_string(&report)?),
        Output::Table => print!("{}", table(&report)),
    }
    Ok(if report.problems { PROBLEMS.into() } else { ExitCode::SUCCESS })
}

/// For a person: what is wrong, then the counts.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    let shown: Vec<&Allocation> = report.allocations.iter().filter(|a| matches!(a.verdict, "leaked" | "unknown")).collect();
    if !shown.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::ASCII_FULL_CONDENSED).set_header(["IP", "VERDICT", "WHEN", "OWNER", "NODE", "WHY"]);
        for a in shown {
            let ip = a.ip.to_string();
            table.add_row([
                ip.as_str(),
                a.verdict,
                a.when.unwrap_or(""),
                a.owner.as_deref().unwrap_or(""),
                a.node.as_deref().unwrap_or(""),
                &a.why,
            ]);
        }
        out.push_str(&format!("{table}\n\n"));
    }
    for f in &report.findings {
        out.push_str(&format!("{:7} {:31} {}: {}\n", f["severity"], f["kind"], f["object"], f["message"]));
    }
    let counts: Vec<String> = report.summary.verdicts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
    let problems = report.summary.verdicts.get("leaked").copied().unwrap_or(0)
        + report.findings.iter().filter(|f| f["severity"] != "info").count() as u64;
    out.push_str(&format!(
        "{} addresses allocated: {}\n",
        report.allocations.len(),
        if counts.is_empty() { "none".into() } else { counts.join(", ") }
    ));
    out.push_str(&format!("Check complete; found {problems} problems.\n"));
    out
}
