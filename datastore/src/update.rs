//! What a feed says: the only input of a cache.

use ipam::ids::Owner;
use ipam::model::{AffinityKind, AffinityState, BlockKind, ClusterKind, ConfigKind, PoolKind, ReservationKind};
use ipam::store::Event;
use ipam_accounting::Inventory;
use ipam_accounting::facts::{Lookup, NodeFacts, PodFacts, VmiFacts};
use ipam_accounting::inventory::{Holds, RowState, Trusts};

/// Leak grace period as the controllers' configuration says it (D-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Absent in an object that is there: off.
    pub leak_grace: Option<chrono::TimeDelta>,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A block.
    Block(Event<BlockKind>),
    /// An affinity.
    Affinity(Event<AffinityKind>),
    /// A pool.
    Pool(Event<PoolKind>),
    /// A reservation.
    Reservation(Event<ReservationKind>),
    /// The IPAM configuration; an error: it is there and was not understood.
    Config(Result<Event<ConfigKind>, String>),
    /// The cluster information; an error: it is there and was not understood.
    Cluster(Result<Event<ClusterKind>, String>),
    /// A pod, by namespace and name.
    Pod(String, String, Lookup<PodFacts<String>>),
    /// A node.
    Node(String, Lookup<NodeFacts>),
    /// A VM, by namespace and name.
    Vm(String, String, Lookup<()>),
    /// A VM instance, by namespace and name.
    Vmi(String, String, Lookup<VmiFacts>),
    /// How far absences prove something.
    Trusts(Trusts),
    /// What must not be acted on.
    Holds(Holds),
    /// The controllers' configuration.
    Settings(Settings),
}

impl Update {
    /// Takes the change over into a cache. Configuration, cluster information and settings are nothing of the cache.
    pub fn apply(&self, cache: &mut Inventory) {
        match self {
            Update::Block(Event::Put(row)) => cache.put_block(&row.value.facts(&row.revision.0)),
            Update::Block(Event::Gone(cidr)) => cache.remove_block(cidr.net()),
            Update::Affinity(Event::Put(row)) => {
                let unconfirmed = matches!(row.value.state, AffinityState::Pending | AffinityState::PendingDeletion);
                let state = if unconfirmed { RowState::Unconfirmed } else { RowState::Confirmed };
                if let (Owner::Host(host), cidr) = &row.key {
                    cache.put_row(host, cidr.net(), state);
                }
            }
            Update::Affinity(Event::Gone((Owner::Host(host), cidr))) => cache.remove_row(host, cidr.net()),
            Update::Pool(Event::Put(row)) if row.value.deleting => cache.remove_pool(&row.key),
            Update::Pool(Event::Put(row)) => cache.put_pool(&row.key, row.value.cidr.clone().ok()),
            Update::Pool(Event::Gone(name)) => cache.remove_pool(name),
            Update::Reservation(Event::Put(row)) => cache.tracker.put_reservation(&row.key, row.value.set()),
            Update::Reservation(Event::Gone(name)) => cache.tracker.remove_reservation(name),
            Update::Pod(namespace, name, facts) => {
                let facts = match facts {
                    Lookup::Seen(f) => Lookup::Seen(borrow(f)),
                    Lookup::Absent => Lookup::Absent,
                    Lookup::Unsure => Lookup::Unsure,
                };
                cache.put_pod(namespace, name, facts);
            }
            Update::Node(name, facts) => cache.put_node(name, facts.clone()),
            Update::Vm(namespace, name, facts) => cache.put_vm(namespace, name, *facts),
            Update::Vmi(namespace, name, facts) => cache.put_vmi(namespace, name, *facts),
            Update::Trusts(trusts) => cache.set_trusts(trusts.clone()),
            Update::Holds(holds) => cache.holds = holds.clone(),
            Update::Block(Event::Synced)
            | Update::Affinity(_)
            | Update::Pool(Event::Synced)
            | Update::Reservation(Event::Synced)
            | Update::Config(_)
            | Update::Cluster(_)
            | Update::Settings(_) => {}
        }
    }
}

fn borrow(f: &PodFacts<String>) -> PodFacts<&str> {
    PodFacts {
        node: f.node.as_deref(),
        ips: f.ips.clone(),
        reported: f.reported,
        host_network: f.host_network,
        finished: f.finished,
        unclear: f.unclear,
    }
}

/// A duration in Go's text form, such as `1h30m`, `15m0s`, `0s`; `None`: it is none.
pub fn go_duration(text: &str) -> Option<chrono::TimeDelta> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(chrono::TimeDelta::zero());
    }
    let mut nanos = 0.0;
    let mut any = false;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"].into_iter().filter(|u| rest.starts_with(u)).max_by_key(|u| u.len())?;
        nanos += number
            * match unit {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                _ => 3600e9,
            };
        rest = &rest[unit.len()..];
        any = true;
    }
    (any && nanos < 9e18).then(|| chrono::TimeDelta::nanoseconds((sign * nanos) as i64))
}

#[cfg(test)]
mod tests {
    use super::go_duration;
    use chrono::TimeDelta;

    #[test]
    fn durations_in_go_text() {
        for (text, want) in
            [("15m", 900_000), ("1h30m", 5_400_000), ("15m0s", 900_000), ("0s", 0), ("0", 0), ("1.5s", 1500), ("20ms", 20), ("-1s", -1000)]
        {
            assert_eq!(go_duration(text), Some(TimeDelta::milliseconds(want)), "{text}");
        }
        for bad in ["", "15", "m", "1x", "1h30", "one", "."] {
            assert_eq!(go_duration(bad), None, "{bad:?}");
        }
    }
}
