//! What stands as it is and should be told once: pools that are full, nodes that are kept or may claim no more, handles that are held.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use ipam::model::Config;
use ipam_accounting::schedule::HeldBy;
use ipam_datastore::opt_out::DO_NOT_RELEASE;

use crate::events::{Regarding, Teller};
use crate::gauges::{FAMILIES, Gauges};
use crate::plan::Because;

/// A handle that is held for so long is told.
const HELD: TimeDelta = TimeDelta::hours(1);
/// So far below the threshold a pool counts as roomy again.
const BELOW: f64 = 0.05;

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pools: BTreeMap<String, &'static str>,
    nodes: BTreeMap<String, &'static str>,
    full: BTreeSet<(String, &'static str)>,
    handles: BTreeSet<String>,
    unclear: BTreeSet<(Because, String, String)>,
}

impl Standing {
    pub(super) fn tell(&mut self, gauges: &Gauges<'_>, config: &Config, nearly_full: f64, teller: &mut Teller) {
        self.pools(gauges, nearly_full, teller);
        self.kept_nodes(gauges, teller);
        self.block_limits(gauges, config, teller);
        self.held_handles(gauges, teller);
        self.unclear_opt_outs(gauges, teller);
    }

    /// When an annotation is neither a yes nor a no.
    fn unclear_opt_outs(&mut self, gauges: &Gauges<'_>, teller: &mut Teller) {
        let unclear = gauges.view.annotated.all().filter(|(_, _, says)| !says.valid());
        let now: BTreeSet<(Because, String, String)> = unclear.map(|(b, name, says)| (b, name.to_owned(), says.value.clone())).collect();
        for (because, name, value) in now.difference(&self.unclear) {
            let about = match because {
                Because::Pool => Regarding::Pool(name.clone()),
                Because::Node => Regarding::Node(name.clone()),
                Because::Namespace | Because::Cidr => Regarding::Namespace(name.clone()),
            };
            teller.say(
                about,
                "OptOutInvalid",
                true,
                format!("{DO_NOT_RELEASE} is {value:?}, which is neither true nor false: it counts as true"),
            );
        }
        self.unclear = now;
    }

    /// When a pool becomes full, nearly full, or roomy again.
    fn pools(&mut self, gauges: &Gauges<'_>, threshold: f64, teller: &mut Teller) {
        for (name, _, counts) in gauges.pool_counts().iter().copied() {
            let Some(fill) = counts.fill() else { continue };
            let before = self.pools.get(name).copied().unwrap_or("PoolRecovered");
            let state = match () {
                () if counts.available == 0 => "PoolFull",
                () if fill >= threshold => "PoolNearlyFull",
                () if fill < threshold - BELOW => "PoolRecovered",
                () => before,
            };
            if state != before {
                let percent = (fill * 100.0).floor();
                let (usable, in_use, cooling) = (counts.usable(), counts.in_use, counts.cooling);
                let text = format!("{percent} % of {usable} usable addresses taken (in use {in_use}, cooling {cooling})");
                teller.say(Regarding::Pool(name.into()), state, state != "PoolRecovered", text);
                self.pools.insert(name.into(), state);
            }
        }
    }

    /// When a departed node is not cleaned up, and why.
    fn kept_nodes(&mut self, gauges: &Gauges<'_>, teller: &mut Teller) {
        let cache = &gauges.view.cache;
        let mut now = BTreeMap::new();
        for (node, state) in gauges.departed().iter().copied() {
            let why = match state {
                "in_use" => "an address is in use",
                "unknown" => "of an address it cannot be told whether it is in use",
                "opted_out" => "something of it must not be released",
                "cooling" => "addresses still cool",
                _ => continue,
            };
            now.insert(cache.node_text(node).to_owned(), why);
        }
        for (node, why) in &now {
            if self.nodes.get(node) != Some(why) {
                teller.say(Regarding::Node(node.clone()), "NodeKept", false, format!("Not cleaned yet: {why}"));
            }
        }
        self.nodes = now;
    }

    /// When a node may claim no further block.
    fn block_limits(&mut self, gauges: &Gauges<'_>, config: &Config, teller: &mut Teller) {
        let mut now = BTreeSet::new();
        for (family, version) in FAMILIES {
            for (node, held) in gauges.at_limit(config, family) {
                let name = gauges.view.cache.node_text(node).to_owned();
                if !self.full.contains(&(name.clone(), version)) {
                    let text = format!("Holds {held} IPv{version} blocks, and may claim no more");
                    teller.say(Regarding::Node(name.clone()), "BlockLimitReached", true, text);
                }
                now.insert((name, version));
            }
        }
        self.full = now;
    }

    /// When a part of a handle is leaked and has been held for an hour.
    fn held_handles(&mut self, gauges: &Gauges<'_>, teller: &mut Teller) {
        let cache = &gauges.view.cache;
        let mut now = BTreeSet::new();
        for (cidr, ordinal, entry) in gauges.ledger.leaks() {
            let old = gauges.now.steady - entry.since >= HELD && matches!(entry.held, Some(HeldBy::InUse | HeldBy::Unknown));
            let Some((block, slot)) = cache.block_of(cidr).filter(|_| old).and_then(|(_, b)| Some((b, b.slot(ordinal)?))) else { continue };
            let Some(handle) = slot.handle() else { continue };
            let text = cache.handle_text(handle).to_owned();
            if !self.handles.contains(&text) && !now.contains(&text) {
                let owner = cache.owner_text(slot).unwrap_or_default();
                let about = match (owner.strip_prefix("vm:"), owner.split_once('/'), slot.node()) {
                    (None, Some((namespace, pod)), _) => Regarding::Pod(namespace.into(), pod.into()),
                    (_, _, Some(node)) => Regarding::Node(cache.node_text(node).into()),
                    _ => continue,
                };
                let why = entry.held.map_or("", HeldBy::why);
                teller.say(about, "HandleHeld", true, format!("{} of handle {text} is leaked and stays: {why}", block.ip(slot)));
            }
            now.insert(text);
        }
        self.handles = now;
    }
}
