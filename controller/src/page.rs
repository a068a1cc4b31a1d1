//! A page to look at without Grafana: read-only, made by the server, no scripts. Each page is made from one moment of the loop.

mod parts;
mod rows;
mod table;

use std::net::IpAddr;

use ipam_accounting::explain::Explanation;
use ipam_accounting::judge::Verdict;
use ipam_datastore::text::stamp;
use ipnet::IpNet;
use maud::{Markup, html};

use self::parts::Frame;
use self::rows::{BlockRow, span, words};
pub use self::table::Asked;
pub use self::table::explain;
use self::table::{Column, link, part, table};
use crate::scene::Scene;
use crate::status::Report;
use crate::timeline::Event;

/// How the pages look.
pub const STYLE: &str = include_str!("page/style.css");

/// So many blocks are shown as a grid at a time.
const SQUARES: usize = 2500;
/// So many lines of a list are shown among others.
const FEW: usize = 20;
/// A search finds at most so many.
const FOUND: usize = 1000;
/// So many leaks can be sorted and looked through; a page must not need more memory than there is.
const LEAKS: usize = 20_000;

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Everything at a glance.
    Overview,
    /// Blocks.
    Blocks,
    /// One block.
    Block,
    /// Leaked addresses.
    Leaks,
    /// Rows that contradict each other.
    Findings,
    /// What was done lately.
    Releases,
    /// What is called so.
    Search,
}

impl Place {
    /// All of them, with their paths and titles.
    pub const ALL: [(Self, &str, &str); 7] = [
        (Self::Overview, "/", "Overview"),
        (Self::Blocks, "/blocks", "Blocks"),
        (Self::Block, "/block", "Block"),
        (Self::Leaks, "/leaks", "Leaks"),
        (Self::Findings, "/findings", "Findings"),
        (Self::Releases, "/releases", "Releases"),
        (Self::Search, "/search", "Search"),
    ];

    /// Whether it stands in the menu: it needs nothing said.
    fn in_menu(self) -> bool {
        !matches!(self, Self::Block | Self::Search)
    }

    /// The page at this moment; `None`: what it is about is not there.
    pub fn page(self, scene: &Scene<'_>, asked: &Asked, report: &Report) -> Option<String> {
        let (_, path, name) = Self::ALL.into_iter().find(|(place, ..)| *place == self)?;
        let cidr = asked.cidr.as_deref().filter(|_| self == Place::Block);
        let content = match self {
            Place::Overview => overview(scene, asked, report),
            Place::Blocks => blocks(scene, asked),
            Place::Block => block(scene, asked, cidr?.parse().ok()?)?,
            Place::Leaks => leaks(scene, asked),
            Place::Findings => findings(scene, asked),
            Place::Releases => releases(scene, asked),
            Place::Search => search(scene, asked),
        };
        let title = cidr.map_or_else(|| name.to_owned(), |cidr| format!("{name} {cidr}"));
        let of = Frame { path, title: &title, q: asked.q.as_deref(), again: &asked.link(path) };
        Some(parts::frame(&of, scene, report, &content))
    }
}

/// The page that explains an address.
pub fn explained(scene: &Scene<'_>, ip: IpAddr, report: &Report) -> String {
    let (text, again) = (ip.to_string(), explain(ip));
    let of = Frame { path: "/explain", title: &text, q: Some(&text), again: &again };
    parts::frame(&of, scene, report, &explanation(scene, ip))
}

fn overview(scene: &Scene<'_>, asked: &Asked, report: &Report) -> Markup {
    let (pools, leaks, blocks) = (scene.pools(), scene.leaks(FEW), scene.blocks(None, None));
    let sum = |f: fn(&rows::PoolRow) -> u128| parts::number(pools.iter().map(f).sum());
    let held = scene.ledger.leaks().filter(|(_, _, e)| e.held.is_some()).count();
    let n = scene.ledger.leaks().count();
    html! {
        h1 { "Overview" }
        div.sums {
            div { b { (sum(|r| r.counts.in_use)) } span { "in use" } }
            div { b { (sum(|r| r.counts.cooling)) } span { "cooling" } }
            div { b { (blocks.len()) } span { "blocks" } }
            div { b.leak[n > 0] { (n) } span { a href="/leaks" { "leaked" } } }
            div { b { (held) } span { "of them held" } }
            div { b { (scene.upkeep.findings().count()) } span { a href="/findings" { "findings" } } }
            div { b { (scene.ledger.reclaimed.values().sum::<u64>()) } span { a href="/releases" { "given back" } } }
        }
        h2 { "Pools" }
        (parts::key())
        (parts::pools(pools, asked, "/"))
        h2 { a href="/blocks" { "Blocks" } }
        (parts::grid(&blocks[..blocks.len().min(SQUARES)]))
        h2 { "Next" }
        (next(scene, report))
        h2 { a href="/leaks" { "Leaks" } }
        (few(leaks, n, scene))
        h2 { a href="/releases" { "Lately" } }
        (events(scene, FEW, &Asked::default()))
    }
}

fn few(leaks: Vec<rows::AddressRow>, all: usize, scene: &Scene<'_>) -> Markup {
    html! {
        @if all == 0 { p.note { "None." } } @else { (parts::addresses(leaks, scene, &Asked::default(), "/leaks")) }
        @if all > FEW { p.note { a href="/leaks" { "All " (all) } } }
    }
}

/// What the next pass is to do.
fn next(scene: &Scene<'_>, report: &Report) -> Markup {
    let Some((at, plan)) = scene.next_plan() else { return html! { p.note { "Nothing is due." } } };
    let shown = plan.actions.iter().take(FEW).map(words);
    html! {
        p.note {
            "The next pass that has something to look at is due in " (span((at - scene.now.steady).max(chrono::TimeDelta::zero()))) ". "
            @if !scene.policy.writes() { "It writes nothing (" (if report.paused { "paused" } else if report.active { report.mode } else { "passive" }) "). " }
            @if plan.actions.is_empty() { "As things stand it will do nothing." }
        }
        @if !plan.actions.is_empty() {
            div.scroll { table { tbody { @for (what, of, why) in shown { tr { td { (what) } td.mono { (of) } td { (why) } } } } } }
        }
        @if plan.actions.len() > FEW { p.note { "… and " (plan.actions.len() - FEW) " more." } }
        @if plan.waiting > 0 { p.note { (plan.waiting) " addresses wait for the brake or the rate." } }
    }
}

fn blocks(scene: &Scene<'_>, asked: &Asked) -> Markup {
    let mut rows = scene.blocks(asked.pool.as_deref(), asked.node.as_deref());
    let as_table = asked.r#as.as_deref() == Some("table");
    let to = |how: Option<&str>| Asked { r#as: how.map(Into::into), part: None, ..asked.clone() }.link("/blocks");
    let by = |sort: &str| Asked { sort: Some(sort.into()), part: None, ..asked.clone() }.link("/blocks");
    if !as_table {
        sort_squares(&mut rows, asked.sort.as_deref());
    }
    let (shown, links) = part(&rows, SQUARES, asked, "/blocks");
    html! {
        h1 { (rows.len()) " blocks" @if let Some(pool) = &asked.pool { " of pool " (pool) } @if let Some(node) = &asked.node { " of node " (node) } }
        p.note {
            @if as_table { a href=(to(None)) { "as a grid" } } @else {
                a href=(to(Some("table"))) { "as a table" } " · by "
                a href=(by("block")) { "range" } ", " a href=(by("-used")) { "use" } ", " a href=(by("node")) { "node" } ", " a href=(by("-leaks")) { "leaks" }
                " · darker is fuller, framed has leaks"
            }
            @if asked.pool.is_some() || asked.node.is_some() { " · " a href="/blocks" { "all blocks" } }
        }
        @if as_table { (parts::blocks(rows, asked)) } @else { (parts::grid(shown)) (links) }
    }
}

fn sort_squares(rows: &mut [BlockRow], sort: Option<&str>) {
    match sort {
        Some("-used") => rows.sort_by(|a, b| b.share().total_cmp(&a.share())),
        Some("node") => rows.sort_by(|a, b| a.node.cmp(&b.node)),
        Some("-leaks") => rows.sort_by_key(|r| std::cmp::Reverse(r.leaks)),
        _ => {}
    }
}

fn block(scene: &Scene<'_>, asked: &Asked, cidr: IpNet) -> Option<Markup> {
    let (_, block) = scene.view.cache.block_of(cidr)?;
    let row = scene.block(block);
    Some(html! {
        h1 { "Block " span.mono { (cidr) } }
        dl {
            dt { "Pool" } dd { a href=(link("/blocks", "pool", &row.pool)) { (row.pool) } }
            dt { "Owner" } dd { @match &row.node { Some(node) => a href=(link("/search", "q", node)) { (node) }, None => (row.owner()) } }
            dt { "Addresses" } dd { (parts::number(row.counts.capacity)) ": " (row.counts.in_use) " in use, " (row.counts.cooling) " cooling, " (parts::number(row.counts.available)) " available" }
            dt { "Sequence number" } dd { (block.seq) }
            @if let Some(at) = block.cold_since { dt { "Cools since" } dd { (stamp(at)) } }
        }
        (parts::bar(&row.counts)) (parts::key())
        h2 { "Addresses" }
        (parts::addresses(scene.addresses(block), scene, asked, "/block"))
    })
}

fn leaks(scene: &Scene<'_>, asked: &Asked) -> Markup {
    let (rows, all) = (scene.leaks(LEAKS), scene.ledger.leaks().count());
    html! {
        h1 { (all) " leaked addresses" }
        p.note {
            "Those that are due first; what is held stays until nothing of its handle is in use."
            @if all > LEAKS { " The first " (LEAKS) "." }
        }
        (parts::addresses(rows, scene, asked, "/leaks"))
    }
}

fn findings(scene: &Scene<'_>, asked: &Asked) -> Markup {
    type Row = (String, &'static str, String, String);
    let rows: Vec<Row> =
        scene.upkeep.findings().map(|f| (f.kind.severity().to_string(), f.kind.name(), f.object.clone(), f.message.clone())).collect();
    let columns: [Column<Row>; 4] = [
        Column::text("severity", "Severity", |r| html! { (r.0) }, |a, b| a.0.cmp(&b.0)),
        Column::text("kind", "Kind", |r| html! { (r.1) }, |a, b| a.1.cmp(b.1)),
        Column::text("object", "Object", |r| html! { span.mono { (r.2) } }, |a, b| a.2.cmp(&b.2)),
        Column::text("message", "What", |r| html! { (r.3) }, |a, b| a.3.cmp(&b.3)),
    ];
    html! {
        h1 { (rows.len()) " findings" }
        p.note { @match scene.upkeep.at { Some(at) => { "By the audit of " (stamp(at)) "." }, None => "No audit has ended yet." } }
        @if !rows.is_empty() { (table(&columns, rows, asked, "/findings")) }
    }
}

fn releases(scene: &Scene<'_>, asked: &Asked) -> Markup {
    html! {
        h1 { "What was done lately" }
        p.note { "The last first; the log has them all." }
        (events(scene, usize::MAX, asked))
    }
}

fn events(scene: &Scene<'_>, most: usize, asked: &Asked) -> Markup {
    /// With its block, if that is still there.
    type Row<'a> = (&'a Event, Option<IpNet>);
    let there = |e: &Event| e.block.as_deref().and_then(|b| b.parse().ok()).filter(|b| scene.view.cache.block_of(*b).is_some());
    let rows: Vec<Row<'_>> = scene.recent.iter().take(most).map(|e| (e, there(e))).collect();
    if rows.is_empty() {
        return html! { p.note { "Nothing yet." } };
    }
    let columns: [Column<Row<'_>>; 6] = [
        Column::text("at", "When", |(e, _)| html! { span.mono { (stamp(e.at)) } }, |a, b| a.0.at.cmp(&b.0.at)),
        Column::text("action", "What", |(e, _)| html! { (e.action.replace('-', " ")) }, |a, b| a.0.action.cmp(b.0.action)),
        Column::text("of", "Of what", of_what, |a, b| (a.0.ip, &a.0.block).cmp(&(b.0.ip, &b.0.block))),
        Column::text("owner", "Owner", |(e, _)| html! { (e.owner.as_deref().unwrap_or("")) }, |a, b| a.0.owner.cmp(&b.0.owner)),
        Column::text("node", "Node", |(e, _)| html! { (e.node.as_deref().unwrap_or("")) }, |a, b| a.0.node.cmp(&b.0.node)),
        Column::text("why", "Why", |(e, _)| html! { (e.why) }, |a, b| a.0.why.cmp(&b.0.why)),
    ];
    table(&columns, rows, asked, "/releases")
}

fn of_what((event, block): &(&Event, Option<IpNet>)) -> Markup {
    html! {
        span.mono {
            @match (event.ip, block) {
                (Some(ip), _) => a href=(explain(ip)) { (ip) },
                (None, Some(block)) => a href=(link("/block", "cidr", &block.to_string())) { (block) },
                (None, None) => (event.block.as_deref().unwrap_or("")),
            }
        }
    }
}

fn search(scene: &Scene<'_>, asked: &Asked) -> Markup {
    let q = asked.q.as_deref().unwrap_or("").trim();
    if q.is_empty() {
        return html! { h1 { "Search" } p.note { "An address, a part of a pod's name (namespace/name), or of a node's." } };
    }
    let mut blocks = scene.blocks(None, None);
    blocks.retain(|r| r.node.as_deref().is_some_and(|n| n.contains(q)) || r.cidr.to_string().starts_with(q));
    let found = scene.search(q, FOUND);
    let n = found.len();
    html! {
        h1 { "“" (q) "”" }
        @if blocks.is_empty() && found.is_empty() { p.note { "Nothing is called so." } }
        @if !blocks.is_empty() { h2 { (blocks.len()) " blocks" } (parts::grid(&blocks[..blocks.len().min(SQUARES)])) }
        @if n > 0 { h2 { @if n == FOUND { "The first " } (n) " addresses" } (parts::addresses(found, scene, asked, "/search")) }
    }
}

fn explanation(scene: &Scene<'_>, ip: IpAddr) -> Markup {
    let e = Explanation::of(&scene.view.cache, ip);
    let row = e.allocation.as_ref().and_then(|a| scene.one(a.at));
    html! {
        h1 { span.mono { (ip) } }
        dl {
            dt { "Block" } dd { @match e.block { Some(b) => { a.mono href=(link("/block", "cidr", &b.to_string())) { (b) } " of " (e.block_owner.as_deref().unwrap_or("nobody")) }, None => "in no block" } }
            @if let Some(pool) = &e.pool { dt { "Pool" } dd { a href=(link("/blocks", "pool", pool)) { (pool) } } }
            @if let Some(pod) = &e.reported_by { dt { "Reported by" } dd { (pod) } }
            @match &e.allocation {
                None => { dt { "What it is" } dd { "not allocated, or cooling" } }
                Some(a) => {
                    dt { "What it is" } dd { span.leak[matches!(a.verdict, Verdict::Leaked(_))] { (a.verdict.name()) } ": " (a.verdict.why()) }
                    dt { "Rule" } dd { (a.verdict.rule()) }
                    dt { "Owner" } dd { (a.owner.as_deref().unwrap_or("nobody")) }
                    @if let Some(node) = &a.node { dt { "Node" } dd { a href=(link("/search", "q", node)) { (node) } } }
                    dt { "Handle" } dd { span.mono { (a.handle.as_deref().unwrap_or("none")) } ", sequence number " (a.seq) }
                    dt { "Looked at" } dd { ul { @for line in &a.evidence { li { (line) } } } }
                    dt { "Would change it" } dd { (a.verdict.changes()) }
                    @if !a.others.is_empty() {
                        dt { "Others of its handle" } dd { ul { @for (ip, v) in &a.others { li { a.mono href=(explain(ip)) { (ip) } " " (v.name()) ": " (v.why()) } } } }
                    }
                }
            }
        }
        @if let Some(row) = row.filter(|r| !r.state.is_empty()) {
            h2 { "What becomes of it" }
            (parts::addresses(vec![row], scene, &Asked::default(), "/leaks"))
        }
        p.note { a href=(explain(ip)) { "look again" } " · for a program: " span.mono { "curl '…" (explain(ip)) "'" } }
    }
}
