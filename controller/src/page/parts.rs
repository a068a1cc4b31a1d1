//! What several pages show: the frame, bars, grids, tables of addresses.

use chrono::SubsecRound as _;
use maud::{DOCTYPE, Markup, html};

use super::Place;
use super::rows::{AddressRow, BlockRow, PoolRow, span};
use super::table::{Asked, Column, explain, link, table};
use crate::scene::Scene;
use crate::status::Report;
use ipam_accounting::tracker::Counts;
use ipam_datastore::text::stamp;

/// What is around the content of a page.
pub struct Frame<'a> {
    /// Its path.
    pub path: &'a str,
    /// What it is about.
    pub title: &'a str,
    /// What was searched.
    pub q: Option<&'a str>,
    /// The address of the same page, a moment later.
    pub again: &'a str,
}

/// A whole page.
pub fn frame(of: &Frame<'_>, scene: &Scene<'_>, report: &Report, content: &Markup) -> String {
    let Frame { path, title, q, again } = *of;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · ipam-operator" }
                link rel="stylesheet" href="/style.css";
                link rel="icon" href="data:,";
            }
            body {
                header {
                    strong { "ipam-operator" }
                    nav { @for (_, to, name) in Place::ALL.into_iter().filter(|(place, ..)| place.in_menu()) { a href=(to) aria-current=[(to == path).then_some("page")] { (name) } } }
                    (state(report))
                    form action="/search" { input type="search" name="q" aria-label="Search" placeholder="address, pod or node" value=[q]; }
                }
                main { (alerts(report)) (content) }
                footer { "As of " (now(scene)) ". " a href=(again) { "Look again" } " · " a href="/status" { "status" } " · " a href="/config" { "configuration" } }
            }
        }
    };
    page.into_string()
}

fn state(report: &Report) -> Markup {
    html! {
        span.state {
            span.tag { (if report.mode.is_empty() { "starting" } else { report.mode }) }
            span.tag { (if report.active { "active" } else { "passive" }) }
            @if report.paused { span.tag.bad { "paused" } }
            @if report.unready.is_some() { span.tag.bad { "not ready" } }
        }
    }
}

/// What is not as it should be.
fn alerts(report: &Report) -> Markup {
    html! {
        @if let Some(why) = &report.unready { div.alert role="alert" { "Nothing is decided: " (why) } }
        @for (name, condition) in report.conditions.bad() { div.alert role="status" { strong { (name) } " " (condition.message) } }
    }
}

/// How much of a pool is what.
pub fn bar(c: &Counts) -> Markup {
    let whole = (c.capacity as f64).max(1.0);
    let taken = c.in_use + c.cooling + c.available;
    let parts = [
        ("in-use", "in use", c.in_use),
        ("cooling", "cooling", c.cooling),
        ("reserved", "reserved", c.capacity.saturating_sub(taken)),
        ("available", "available", c.available),
    ];
    let said: Vec<String> = parts.iter().map(|(_, name, n)| format!("{n} {name}")).collect();
    let widths = parts.map(|(_, _, n)| n as f64 / whole * 1000.0);
    html! {
        svg.bar viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=(said.join(", ")) {
            title { (said.join(", ")) }
            @for (i, (class, _, _)) in parts.iter().enumerate() {
                rect class=(class) x=(format!("{:.1}", widths[..i].iter().sum::<f64>())) y="0" width=(format!("{:.1}", widths[i])) height="10" {}
            }
        }
    }
}

/// What the colours mean.
pub fn key() -> Markup {
    html! {
        div.key { @for (class, name) in [("in-use", "in use"), ("cooling", "cooling"), ("reserved", "reserved"), ("available", "available")] {
            span { svg viewBox="0 0 1 1" aria-hidden="true" { rect class=(class) width="1" height="1" {} } (name) }
        } }
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).floor())
}

/// A number that may be beyond counting, as a v6 pool's.
pub fn number(n: u128) -> String {
    if n < 10_000_000 { n.to_string() } else { format!("{:.1e}", n as f64) }
}

/// Pools as bars.
pub fn pools(rows: Vec<PoolRow>, asked: &Asked, path: &str) -> Markup {
    let columns: [Column<PoolRow>; 12] = [
        Column::text("pool", "Pool", |r| html! { a href=(link("/blocks", "pool", &r.name)) { (r.name) } }, |a, b| a.name.cmp(&b.name)),
        Column::text("cidr", "Range", |r| html! { span.mono { (r.cidr) } }, |a, b| a.cidr.cmp(&b.cidr)),
        Column::text("bar", "Addresses", |r| bar(&r.counts), |a, b| a.fill().total_cmp(&b.fill())),
        Column::number("fill", "Taken", |r| html! { (percent(r.fill())) }, |a, b| a.fill().total_cmp(&b.fill())),
        Column::number("used", "In use", |r| html! { (number(r.counts.in_use)) }, |a, b| a.counts.in_use.cmp(&b.counts.in_use)),
        Column::number("cooling", "Cooling", |r| html! { (number(r.counts.cooling)) }, |a, b| a.counts.cooling.cmp(&b.counts.cooling)),
        Column::number("reserved", "Reserved", |r| html! { (number(r.counts.reserved)) }, |a, b| a.counts.reserved.cmp(&b.counts.reserved)),
        Column::number(
            "available",
            "Available",
            |r| html! { (number(r.counts.available)) },
            |a, b| a.counts.available.cmp(&b.counts.available),
        ),
        Column::number("blocks", "Blocks", |r| html! { (r.blocks) }, |a, b| a.blocks.cmp(&b.blocks)),
        Column::number("unclaimed", "Unclaimed", |r| html! { (number(r.unclaimed)) }, |a, b| a.unclaimed.cmp(&b.unclaimed)),
        Column::number(
            "fragmentation",
            "Fragmented",
            |r| html! { (percent(r.fragmentation())) },
            |a, b| a.fragmentation().total_cmp(&b.fragmentation()),
        ),
        Column::number("leaks", "Leaks", |r| html! { span.leak[r.leaks > 0] { (r.leaks) } }, |a, b| a.leaks.cmp(&b.leaks)),
    ];
    table(&columns, rows, asked, path)
}

/// Blocks as a table.
pub fn blocks(rows: Vec<BlockRow>, asked: &Asked) -> Markup {
    let columns: [Column<BlockRow>; 7] = [
        Column::text(
            "block",
            "Block",
            |r| html! { a.mono href=(link("/block", "cidr", &r.cidr.to_string())) { (r.cidr) } },
            |a, b| a.cidr.cmp(&b.cidr),
        ),
        Column::text("pool", "Pool", |r| html! { (r.pool) }, |a, b| a.pool.cmp(&b.pool)),
        Column::text(
            "node",
            "Node",
            |r| html! { @match &r.node { Some(n) => a href=(link("/search", "q", n)) { (n) }, None => span.soft { (r.owner()) } } },
            |a, b| a.node.cmp(&b.node),
        ),
        Column::number("used", "In use", |r| html! { (r.counts.in_use) }, |a, b| a.counts.in_use.cmp(&b.counts.in_use)),
        Column::number("cooling", "Cooling", |r| html! { (r.counts.cooling) }, |a, b| a.counts.cooling.cmp(&b.counts.cooling)),
        Column::number(
            "available",
            "Available",
            |r| html! { (number(r.counts.available)) },
            |a, b| a.counts.available.cmp(&b.counts.available),
        ),
        Column::number("leaks", "Leaks", |r| html! { span.leak[r.leaks > 0] { (r.leaks) } }, |a, b| a.leaks.cmp(&b.leaks)),
    ];
    table(&columns, rows, asked, "/blocks")
}

/// Blocks as a grid, one square each.
pub fn grid(rows: &[BlockRow]) -> Markup {
    html! {
        div.grid { @for r in rows {
            @let level = if r.counts.in_use == 0 { 0 } else { 1 + (r.share() * 4.0) as u32 };
            @let said = format!("{} · {} · {} of {} in use, {} cooling, {} leaked", r.cidr, r.owner(), r.counts.in_use, number(r.counts.capacity), r.counts.cooling, r.leaks);
            a class={ "u" (level) @if r.leaks > 0 { " hot" } } href=(link("/block", "cidr", &r.cidr.to_string())) title=(said) aria-label=(said) {}
        } }
    }
}

/// Addresses as a table; timers are told from now.
pub fn addresses(rows: Vec<AddressRow>, scene: &Scene<'_>, asked: &Asked, path: &str) -> Markup {
    let now = scene.now;
    let rows: Vec<(AddressRow, String)> = rows
        .into_iter()
        .map(|r| {
            let waits = match (r.held, r.due, r.since) {
                (Some(why), _, _) => format!("stays: {why}"),
                (_, Some(due), _) if due > now.steady => format!("due in {}", span(due - now.steady)),
                (_, Some(_), _) => "due".into(),
                (_, None, Some(since)) => format!("known for {}", span(now.steady - since)),
                _ => String::new(),
            };
            (r, waits)
        })
        .collect();
    type Row = (AddressRow, String);
    let columns: [Column<Row>; 7] = [
        Column::text("ip", "Address", |(r, _)| html! { a.mono href=(explain(r.ip)) { (r.ip) } }, |a, b| a.0.ip.cmp(&b.0.ip)),
        Column::text("owner", "Owner", |(r, _)| html! { (r.owner) }, |a, b| a.0.owner.cmp(&b.0.owner)),
        Column::text(
            "node",
            "Node",
            |(r, _)| html! { @if !r.node.is_empty() { a href=(link("/search", "q", &r.node)) { (r.node) } } },
            |a, b| a.0.node.cmp(&b.0.node),
        ),
        Column::text("pool", "Pool", |(r, _)| html! { (r.pool) }, |a, b| a.0.pool.cmp(&b.0.pool)),
        Column::text(
            "verdict",
            "What it is",
            |(r, _)| html! { span.leak[r.verdict == "leaked"] { (r.verdict) } ": " (r.why) },
            |a, b| (a.0.verdict, a.0.why).cmp(&(b.0.verdict, b.0.why)),
        ),
        Column::text("state", "State", |(r, _)| html! { (r.state.replace('_', " ")) }, |a, b| a.0.state.cmp(b.0.state)),
        Column::text(
            "due",
            "Timer",
            |(_, waits)| html! { (waits) },
            |a, b| (a.0.due.is_none(), a.0.due).cmp(&(b.0.due.is_none(), b.0.due)),
        ),
    ];
    table(&columns, rows, asked, path)
}

fn now(scene: &Scene<'_>) -> String {
    stamp(scene.now.wall.trunc_subsecs(0))
}
