//! The lines that change the cluster.

use chrono::TimeDelta;
use ipam::block::{Attribute, Block};
use ipam::ids::{BlockCidr, Owner};
use ipam::mem::Kept;
use ipam::model::{
    Affinity, AffinityKind, AffinityState, Allocatable, BlockKind, ClusterInfo, ClusterKind, Config, ConfigKind, Pool, PoolKind,
    Reservation, ReservationKind,
};
use ipam::store::{Extra, Revision, Row, StoreError, Uid};
use ipam_accounting::facts::{Attrs, Finished, Lookup, NodeFacts, PodFacts, TUNNEL_TYPES, VmiFacts, WINDOWS_HANDLE};
use ipam_accounting::inventory::Trust;
use ipam_datastore::Update;
use ipam_datastore::opt_out::OptOut;
use ipam_datastore::update::Watched;
use ipam_operator::config::IndexRepair;
use ipam_operator::plan::{Allowance, Mass, Mode, OptOuts};
use ipam_operator::view::Me;

use super::{World, duration};
use crate::faulty::row_name;

type Done = Result<(), String>;

fn bad(what: &str) -> String {
    format!("not understood: {what}")
}

fn pair(text: &str) -> Result<(String, String), String> {
    text.split_once('/').map(|(ns, name)| (ns.into(), name.into())).ok_or_else(|| bad(text))
}

fn cidr(text: &str) -> Result<BlockCidr, String> {
    text.parse().map_err(|_| bad(text))
}

impl World {
    pub(super) fn given(&mut self, words: &[&str]) -> Done {
        match words {
            ["node", name, rest @ ..] => self.node(name, rest),
            ["pod", key, rest @ ..] => {
                let (ns, name) = pair(key)?;
                self.tell(Update::Pod(ns, name, pod(rest)?));
                Ok(())
            }
            ["live", "pod", key, rest @ ..] => {
                self.live.pods.insert(pair(key)?, pod(rest)?);
                Ok(())
            }
            ["vm", key, rest @ ..] => {
                let (ns, name) = pair(key)?;
                self.tell(Update::Vm(ns, name, lookup(rest, ())?));
                Ok(())
            }
            ["vmi", key, rest @ ..] => {
                let (ns, name) = pair(key)?;
                let owned_by_vm = rest.contains(&"owned");
                let rest: Vec<&str> = rest.iter().copied().filter(|w| *w != "owned").collect();
                self.tell(Update::Vmi(ns, name, lookup(&rest, VmiFacts { owned_by_vm })?));
                Ok(())
            }
            ["pool", name, "gone"] => self.take::<PoolKind>(&(*name).to_owned()),
            ["pool", name, cidr, rest @ ..] => self.pool(name, cidr, rest),
            ["reservation", name, "gone"] => self.take::<ReservationKind>(&(*name).to_owned()),
            ["reservation", name, entries @ ..] => {
                let entries = entries.iter().map(|e| (*e).into()).collect();
                self.put::<ReservationKind>((*name).into(), Reservation { entries });
                Ok(())
            }
            ["block", c, "gone"] => self.take::<BlockKind>(&cidr(c)?),
            ["block", c, owner, rest @ ..] => self.block(cidr(c)?, owner, rest),
            ["race", "block", c, owner, rest @ ..] => {
                let block = self.block_value(cidr(c)?, owner, rest)?.0;
                let (row, _) = self.store.peek::<BlockKind>(&block.cidr).ok_or("there is none")?;
                self.next_row += 1;
                let revision = Revision(format!("r{}", self.next_row));
                self.faulty.race(Row { value: block, revision, ..row });
                Ok(())
            }
            ["fail", "block", c, how] => self.fail(row_name::<BlockKind>(&cidr(c)?), how),
            ["fail", "row", host, c, how] => self.fail(row_name::<AffinityKind>(&(Owner::Host((*host).into()), cidr(c)?)), how),
            ["row", host, c, "gone"] => self.take::<AffinityKind>(&(Owner::Host((*host).into()), cidr(c)?)),
            ["row", host, c, state @ ..] => {
                let state = if state.contains(&"pending") { AffinityState::Pending } else { AffinityState::Confirmed };
                self.put::<AffinityKind>(
                    (Owner::Host((*host).into()), cidr(c)?),
                    Affinity { state, indexed: !words.contains(&"unindexed") },
                );
                Ok(())
            }
            _ => self.setting(words),
        }
    }

    fn setting(&mut self, words: &[&str]) -> Done {
        match words {
            ["cooldown", n] => {
                let cooldown_seconds = n.parse().map_err(|_| bad(n))?;
                self.put::<ConfigKind>((), Config { cooldown_seconds, ..Config::default() });
            }
            ["config", "broken"] => self.put::<ConfigKind>((), Config { max_blocks_per_host: 5, ..Config::default() }),
            ["datastore", state] => {
                let ready = match *state {
                    "ready" => Some(true),
                    "locked" => Some(false),
                    _ => None,
                };
                self.put::<ClusterKind>((), ClusterInfo { guid: "g".into(), ready });
            }
            ["grace", d] => self.policy.limits.grace = duration(d)?,
            ["vm-grace", d] => self.policy.limits.vm_floor = duration(d)?,
            ["brake", share, addresses, window] => {
                let (share, addresses) = (share.parse().map_err(|_| bad(share))?, addresses.parse().map_err(|_| bad(addresses))?);
                self.policy.brake = ipam_operator::plan::Limit { share, addresses, window: duration(window)? };
            }
            ["mode", "audit"] => self.policy.mode = Mode::Audit,
            ["mode", "enforce"] => {
                self.policy.mode = Mode::Enforce;
                self.ledger.forget_shown();
                self.view.cache.mark_all();
            }
            _ => return self.policy(words),
        }
        Ok(())
    }

    /// What the operator obeys.
    fn policy(&mut self, words: &[&str]) -> Done {
        match words {
            ["paused", yes] => {
                self.policy.paused = *yes == "yes";
                self.view.cache.mark_all();
            }
            ["active", yes] => {
                self.policy.active = *yes == "yes";
                self.ledger.brake.clear();
                self.view.cache.mark_all();
            }
            ["rate", per_second, burst] => {
                let number = |text: &str| text.parse().map_err(|_| bad(text));
                (self.policy.rate.per_second, self.policy.rate.burst) = (number(per_second)?, number(burst)?);
            }
            ["per-pass", n] => self.policy.rate.per_pass = n.parse().map_err(|_| bad(n))?,
            ["allow", n, within] => {
                let until = self.now() + duration(within)?;
                self.policy.allow = Some(Allowance { up_to: n.parse().map_err(|_| bad(n))?, until });
                self.view.cache.mark_all();
            }
            ["departed", share, nodes, window] => {
                let (share, nodes) = (share.parse().map_err(|_| bad(share))?, nodes.parse().map_err(|_| bad(nodes))?);
                self.policy.departed = Mass { share, nodes, window: duration(window)? };
            }
            ["wall", jump] => {
                let by = duration(jump.trim_start_matches(['+', '-']))?;
                self.wall_ahead += if jump.starts_with('-') { -by } else { by };
            }
            ["skew", d] => {
                self.policy.in_step = duration(d)? <= TimeDelta::seconds(30);
                self.view.cache.mark_all();
            }
            ["guid", guid] => self.view.cluster_guid = (*guid).into(),
            ["me", pod] => self.view.me = pair(pod).map(|(namespace, name)| Some(Me { namespace, name }))?,
            ["repair", how] => {
                self.repair = match *how {
                    "off" => IndexRepair::Off,
                    "repair" => IndexRepair::Repair,
                    _ => IndexRepair::Report,
                };
            }
            ["opt-out", "config", what, name] => {
                let one = |this: &str| if *what == this { vec![(*name).to_owned()] } else { Vec::new() };
                let cidrs = one("cidr").iter().filter_map(|c| ipam_operator::config::keys::cidr(c)).collect::<Vec<_>>();
                self.policy.opt_outs = OptOuts::configured(one("pool"), one("namespace"), one("node"), cidrs.into_iter());
                self.view.cache.mark_all();
            }
            ["opt-out", what, name, says @ ..] => {
                let watched = match *what {
                    "pool" => Watched::Pool,
                    "namespace" => Watched::Namespace,
                    "node" => Watched::Node,
                    other => return Err(bad(other)),
                };
                let says = match says {
                    ["gone"] => None,
                    [value] => Some(OptOut { value: (*value).into(), inside: false }),
                    _ => Some(OptOut { value: "true".into(), inside: false }),
                };
                self.tell(Update::OptOut(watched, (*name).into(), says));
            }
            ["trust", kind, yes] => {
                let yes = *yes == "yes";
                match *kind {
                    "pods" => self.trusts.pods = if yes { Trust::Full } else { Trust::Nothing },
                    "nodes" => self.trusts.nodes = yes,
                    "vms" => self.trusts.vms = yes,
                    "vmis" => self.trusts.vmis = yes,
                    "rows" => self.trusts.affinities = yes,
                    "empty" => self.trusts.not_if_empty = !yes,
                    other => return Err(bad(other)),
                }
                self.view.apply(&Update::Trusts(self.trusts.clone()));
            }
            ["hold", what, which] => {
                let mut holds = self.view.cache.holds.clone();
                match *what {
                    "handle" => holds.hold_handle(which),
                    "node" => drop(holds.nodes.insert((*which).into())),
                    "block" => drop(holds.blocks.insert(cidr(which)?.net())),
                    other => return Err(bad(other)),
                }
                self.view.apply(&Update::Holds(holds));
            }
            other => return Err(bad(&other.join(" "))),
        }
        Ok(())
    }

    /// Something of the cluster that is no row: for the view, or for the server.
    fn tell(&mut self, update: Update) {
        match &mut self.outbox {
            Some(outbox) => outbox.push(update),
            None => self.view.apply(&update),
        }
    }

    pub(super) fn put<K: Kept>(&mut self, key: K::Key, value: K::Value) {
        self.next_row += 1;
        let known = self.store.peek::<K>(&key).map(|(row, _)| row.uid);
        let uid = known.unwrap_or_else(|| Uid(format!("u{}", self.next_row)));
        let revision = Revision(format!("r{}", self.next_row));
        self.store.put::<K>(Row { key, value, revision, uid, extra: Extra::NONE }, false);
    }

    pub(super) fn take<K: Kept>(&mut self, key: &K::Key) -> Done {
        self.store.take::<K>(key).map(drop).ok_or_else(|| "there is none".into())
    }

    fn node(&mut self, name: &str, rest: &[&str]) -> Done {
        let migrating = rest == ["migrating"];
        let rest = if migrating { &[] } else { rest };
        let facts = lookup(rest, NodeFacts { migrating, ..NodeFacts::default() })?;
        self.tell(Update::Node(name.into(), facts));
        Ok(())
    }

    fn pool(&mut self, name: &str, cidr: &str, rest: &[&str]) -> Done {
        let pool = Pool {
            cidr: cidr.parse().map_err(|_| cidr.to_owned()),
            block_size: if cidr.contains(':') { 122 } else { 26 },
            node_selector: "all()".into(),
            namespace_selector: String::new(),
            allowed_uses: vec!["Workload".into()],
            manual: false,
            disabled: rest.contains(&"disabled"),
            deleting: rest.contains(&"deleting"),
            allocatable: Allocatable::Unstated,
        };
        self.put::<PoolKind>(name.into(), pool);
        Ok(())
    }

    fn fail(&mut self, row: String, how: &str) -> Done {
        let error = match how {
            "conflict" => Some(StoreError::Conflict),
            "absent" => Some(StoreError::Absent),
            "unavailable" => Some(StoreError::Unavailable("told to".into())),
            "refused" => Some(StoreError::Refused("told to".into())),
            "no" => None,
            other => return Err(bad(other)),
        };
        self.faulty.fail(row, error);
        Ok(())
    }

    fn block(&mut self, c: BlockCidr, owner: &str, words: &[&str]) -> Done {
        let (block, row) = self.block_value(c, owner, words)?;
        self.put::<BlockKind>(c, block);
        if let Some(owner) = row
            && self.store.peek::<AffinityKind>(&(owner.clone(), c)).is_none()
        {
            self.put::<AffinityKind>((owner, c), Affinity { state: AffinityState::Confirmed, indexed: true });
        }
        Ok(())
    }

    /// A block as a line describes it, and whose row comes with it.
    fn block_value(&self, c: BlockCidr, owner: &str, words: &[&str]) -> Result<(Block, Option<Owner>), String> {
        let before = self.store.peek::<BlockKind>(&c).map(|(row, _)| row.value.seq);
        let mut block = Block::new(c, None, before.map_or(1000, |s| s + 1)).map_err(|e| e.to_string())?;
        block.affinity = match owner {
            "nobody" => None,
            "virtual" => Some("virtual:load-balancer".into()),
            host => Some(format!("host:{host}")),
        };
        let mut words = words.iter();
        let mut row = block.owner().filter(|o| matches!(o, Owner::Host(_)));
        while let Some(word) = words.next() {
            match *word {
                "norow" => row = None,
                "claimed" => block.claim_time = Some(self.now() - duration(words.next().ok_or("claimed when?")?)?),
                alloc => self.allocate(&mut block, alloc)?,
            }
        }
        Ok((block, row))
    }

    /// `.0=handle:owner@node#seq`, or `.0~60s`.
    fn allocate(&self, block: &mut Block, text: &str) -> Done {
        let rest = text.strip_prefix('.').ok_or_else(|| bad(text))?;
        let end = rest.find(['=', '~']).ok_or_else(|| bad(text))?;
        let ordinal: u32 = rest[..end].parse().map_err(|_| bad(text))?;
        let what = &rest[end + 1..];
        let entry = if rest[end..].starts_with('~') {
            Attribute { released_at: Some(self.now() - duration(what)?), ..Attribute::default() }
        } else {
            let (what, seq) = what.split_once('#').unwrap_or((what, "1"));
            block.seqs.insert(ordinal, seq.parse().map_err(|_| bad(text))?);
            let (handle, owner) = what.split_once(':').ok_or_else(|| bad(text))?;
            let (owner, node) = owner.split_once('@').map_or((owner, None), |(o, n)| (o, Some(n)));
            let handle = if owner == "win" { WINDOWS_HANDLE } else { handle };
            Attribute { handle: (handle != "-").then(|| handle.into()), active: attrs(owner, node)?, ..Attribute::default() }
        };
        block.attributes.push(entry);
        block.allocations[ordinal as usize] = Some(block.attributes.len() as u32 - 1);
        block.unallocated.retain(|o| *o != ordinal);
        Ok(())
    }
}

fn attrs(owner: &str, node: Option<&str>) -> Result<Attrs, String> {
    let mut attrs = Attrs::new();
    let mut set = |k: &str, v: &str| drop(attrs.insert(k.into(), v.into()));
    if let Some(node) = node {
        set("node", node);
    }
    match owner {
        "?" | "win" => {}
        tunnel if TUNNEL_TYPES.iter().any(|t| t.starts_with(tunnel)) => {
            set("type", TUNNEL_TYPES.iter().find(|t| t.starts_with(tunnel)).ok_or_else(|| bad(tunnel))?);
        }
        vm if vm.starts_with("vm=") => {
            let (ns, name) = pair(&vm[3..])?;
            set("namespace", &ns);
            set("vmi-name", &name);
            set("pod", &format!("virt-launcher-{name}"));
        }
        pod => {
            let (ns, name) = pair(pod)?;
            set("namespace", &ns);
            set("pod", &name);
        }
    }
    Ok(attrs)
}

fn lookup<T>(rest: &[&str], seen: T) -> Result<Lookup<T>, String> {
    match rest {
        [] => Ok(Lookup::Seen(seen)),
        ["gone"] => Ok(Lookup::Absent),
        ["unsure"] => Ok(Lookup::Unsure),
        other => Err(bad(&other.join(" "))),
    }
}

fn pod(words: &[&str]) -> Result<Lookup<PodFacts<String>>, String> {
    if let ["gone" | "unsure"] = words {
        return lookup(words, PodFacts::default());
    }
    let mut facts = PodFacts::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut next = || words.next().copied().ok_or_else(|| bad(word));
        match *word {
            "on" => facts.node = Some(next()?.into()),
            "ips" => {
                facts.ips = next()?.split(',').map(|ip| ip.parse().map_err(|_| bad(ip))).collect::<Result<_, _>>()?;
                facts.reported = true;
            }
            "phase" => {
                facts.finished = match next()? {
                    "Succeeded" => Some(Finished::Succeeded),
                    "Failed" => Some(Finished::Failed),
                    "NetworkGone" => Some(Finished::NetworkGone),
                    _ => None,
                }
            }
            "host" => facts.host_network = true,
            "unclear" => facts.unclear = true,
            other => return Err(bad(other)),
        }
    }
    Ok(Lookup::Seen(facts))
}
