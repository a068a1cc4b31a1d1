//! `show`: how full pools and blocks are, and who has an address.

use std::net::IpAddr;
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use ipam::model::BlockKind;
use ipam::{BlockCidr, Row};
use ipam_accounting::Counts;
use ipam_accounting::facts::Attrs;
use ipam_accounting::tracker::PoolId;
use ipam_datastore::names::cidr_name;
use ipnet::IpNet;
use serde::Serialize;

use crate::Error;
use crate::args::{Output, ShowArgs};
use crate::snapshot::{Loaded, loaded};

/// Counts of a block.
#[derive(Debug, Serialize)]
pub struct BlockRow {
    available: u128,
    capacity: u128,
    cidr: String,
    cooling: u128,
    #[serde(rename = "inUse")]
    in_use: u128,
    reserved: u128,
}

/// Counts of a pool and of its blocks.
#[derive(Debug, Serialize)]
pub struct PoolRow {
    available: u128,
    blocks: Option<Vec<BlockRow>>,
    capacity: u128,
    cidr: String,
    cooling: u128,
    #[serde(rename = "inUse")]
    in_use: u128,
    name: String,
    reserved: u128,
}

/// Name of the last entry: blocks that no pool contains, of both families.
pub const ORPHANS: &str = "orphaned allocation blocks";

/// How full every pool is, by name; blocks by object name.
pub fn utilization(loaded: &Loaded) -> Vec<PoolRow> {
    let tracker = &loaded.cache.tracker;
    let mut blocks: Vec<(String, IpNet, Option<PoolId>)> = tracker.blocks().map(|(cidr, pool)| (cidr_name(cidr), cidr, pool)).collect();
    blocks.sort();
    let of = |pool: Option<PoolId>| {
        let rows: Vec<BlockRow> = blocks
            .iter()
            .filter(|b| b.2 == pool)
            .map(|(_, cidr, _)| block_row(*cidr, tracker.block_counts(*cidr).unwrap_or_default()))
            .collect();
        (!rows.is_empty()).then_some(rows)
    };
    let mut rows: Vec<PoolRow> = tracker
        .pools()
        .map(|(name, id, cidr)| {
            let Counts { capacity, in_use, cooling, reserved, available } = tracker.pool_counts(id);
            let cidr = cidr.map_or_else(|| "?".into(), |c| c.to_string());
            PoolRow { available, blocks: of(Some(id)), capacity, cidr, cooling, in_use, name: name.into(), reserved }
        })
        .collect();
    rows.push(PoolRow {
        available: 0,
        blocks: of(None),
        capacity: 0,
        cidr: "0.0.0.0/0".into(),
        cooling: 0,
        in_use: 0,
        name: ORPHANS.into(),
        reserved: 0,
    });
    rows
}

fn block_row(cidr: IpNet, c: Counts) -> BlockRow {
    let Counts { capacity, in_use, cooling, reserved, available } = c;
    BlockRow { available, capacity, cidr: cidr.to_string(), cooling, in_use, reserved }
}

/// Number and share of the total, halves to even.
fn share(n: u128, total: u128) -> String {
    let percent = if total == 0 { 0.0 } else { 100.0 * n as f64 / total as f64 };
    format!("{n} ({percent:.0}%)")
}

fn table(rows: &[PoolRow], show_blocks: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_FULL_CONDENSED);
    table.set_header(["GROUPING", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS COOLING", "IPS RESERVED", "IPS FREE"]);
    for pool in rows {
        let cells = |grouping: &str, cidr: &str, total, in_use, cooling, reserved, free| {
            [
                grouping.to_owned(),
                cidr.to_owned(),
                format!("{total}"),
                share(in_use, total),
                share(cooling, total),
                share(reserved, total),
                share(free, total),
            ]
        };
        if pool.name != ORPHANS {
            table.add_row(cells("IP Pool", &pool.cidr, pool.capacity, pool.in_use, pool.cooling, pool.reserved, pool.available));
        }
        for b in pool.blocks.iter().flatten().filter(|_| show_blocks) {
            table.add_row(cells("Block", &b.cidr, b.capacity, b.in_use, b.cooling, b.reserved, b.available));
        }
    }
    table.column_iter_mut().skip(2).for_each(|column| {
        column.set_cell_alignment(CellAlignment::Right);
    });
    format!("{table}\n")
}

/// Who has an address.
#[derive(Debug, Serialize)]
pub struct Assignment {
    ip: IpAddr,
    /// `in use`, `cooling down` or `not assigned`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
    active: Attrs,
    alternate: Attrs,
}

/// Looks an address up, in blocks of every pool and of none.
pub fn assignment(loaded: &Loaded, ip: IpAddr) -> Assignment {
    let mut out = Assignment { ip, state: "not assigned", block: None, handle: None, active: Attrs::new(), alternate: Attrs::new() };
    let Some((_, known)) = loaded.cache.block_with(ip) else { return out };
    let row: Option<(Row<BlockKind>, bool)> = BlockCidr::new(known.cidr).ok().and_then(|cidr| loaded.dump.store.peek::<BlockKind>(&cidr));
    let Some((row, _)) = row else { return out };
    out.block = Some(row.key.to_string());
    if let Some(entry) = row.key.ordinal(ip).and_then(|o| row.value.entry(o)) {
        out.state = if entry.released_at.is_some() { "cooling down" } else { "in use" };
        (out.handle, out.active, out.alternate) = (entry.handle.clone(), entry.active.clone(), entry.alternate.clone());
    }
    out
}

fn text(a: &Assignment) -> String {
    let ip = a.ip;
    match a.state {
        "not assigned" => return format!("{ip} is not assigned\n"),
        "cooling down" => return format!("{ip} is cooling down: released, and not yet free\n"),
        _ => {}
    }
    let mut out = format!("IP {ip} is in use\nHandle ID: {}\n", a.handle.as_deref().unwrap_or("<none>"));
    let section = |attrs: &Attrs| attrs.iter().map(|(k, v)| format!("  {k}: {v}\n")).collect::<String>();
    if a.active.is_empty() {
        out.push_str("No Active Owner attributes defined\n");
    } else {
        out.push_str(&format!("Active Owner Attributes:\n{}", section(&a.active)));
    }
    if !a.alternate.is_empty() {
        out.push_str(&format!("Alternate Owner Attributes:\n{}", section(&a.alternate)));
    }
    out
}

/// Runs the command.
///
/// # Errors
/// Input that cannot be used at all; something that is no address.
pub fn run(args: &ShowArgs) -> Result<ExitCode, Error> {
    let ip = match &args.ip {
        None => None,
        Some(text) => match text.parse::<IpAddr>() {
            Ok(ip) => Some(ip),
            Err(_) => return Err(Error::Address(text.clone())),
        },
    };
    let loaded = loaded(&args.source, &[])?;
    match (ip, args.output) {
        (Some(ip), Output::Table) => print!("{}", text(&assignment(&loaded, ip))),
        (Some(ip), Output::Json) => println!("{}", serde_json::to_string(&assignment(&loaded, ip))?),
        (None, Output::Table) => print!("{}", table(&utilization(&loaded), args.show_blocks)),
        (None, Output::Json) => println!("{}", serde_json::to_string(&utilization(&loaded))?),
    }
    Ok(ExitCode::SUCCESS)
}
