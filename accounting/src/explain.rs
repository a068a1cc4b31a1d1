//! Why an address is what it is: the rule, what was looked at, and what would change it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::facts::{Class, Lookup, NodeId, PodId, VmId};
use crate::inventory::{AllocRef, Inventory, Owner};
use crate::judge::{Evidence as _, InUse, Leak, Unknown, Verdict, judge};
use crate::schedule::Wait;

/// What is known of one address.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The address.
    pub ip: IpAddr,
    /// The block in which it lies, if there is one.
    pub block: Option<IpNet>,
    /// Who owns that block, in words.
    pub block_owner: Option<String>,
    /// The pool of the block.
    pub pool: Option<String>,
    /// What it is allocated to, if it is.
    pub allocation: Option<Allocated>,
    /// Pods that report the address.
    pub reported_by: Option<String>,
}

/// An allocation, explained.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocated {
    /// Where it stands.
    pub at: AllocRef,
    /// Its handle, sanitised.
    pub handle: Option<String>,
    /// Its sequence number.
    pub seq: i64,
    /// Its owner, as outputs name it.
    pub owner: Option<String>,
    /// The node that its owner attributes name.
    pub node: Option<String>,
    /// What it is judged to be.
    pub verdict: Verdict,
    /// What a leak waits for.
    pub wait: Option<Wait>,
    /// What was looked at, one thing a line.
    pub evidence: Vec<String>,
    /// The other addresses of its handle, and what they are.
    pub others: Vec<(IpAddr, Verdict)>,
}

impl Explanation {
    /// What the cache says of an address.
    pub fn of(cache: &Inventory, ip: IpAddr) -> Self {
        let reported_by = cache.reporter(ip, None).map(|pod| cache.pod_text(pod).to_owned());
        let mut explanation = Self { ip, block: None, block_owner: None, pool: None, allocation: None, reported_by };
        let Some((id, block)) = cache.block_with(ip) else { return explanation };
        let tracker = &cache.tracker;
        explanation.block = Some(block.cidr);
        explanation.pool = tracker.pool_of(block.cidr).map(|p| tracker.pool_name(p).to_owned());
        explanation.block_owner = Some(match block.owner {
            Owner::Host(node) => format!("node {}", cache.node_text(node)),
            Owner::Virtual => "something that is no node".into(),
            Owner::Nobody => "nobody".into(),
        });
        let Some(slot) = block.slots.iter().find(|slot| block.ip(slot) == ip) else { return explanation };
        let (at, allocation) = (AllocRef { block: id, ordinal: slot.ordinal }, cache.allocation(block, slot));
        let verdict = judge(&allocation, cache);
        let mut others = Vec::new();
        for other in slot.handle().map(|h| cache.members(h)).unwrap_or_default().iter().filter(|o| **o != at) {
            if let Some((block, slot)) = cache.slot(*other) {
                others.push((block.ip(slot), judge(&cache.allocation(block, slot), cache)));
            }
        }
        others.sort_by_key(|(ip, _)| *ip);
        explanation.allocation = Some(Allocated {
            at,
            handle: slot.handle().map(|h| cache.handle_text(h).to_owned()),
            seq: slot.seq,
            owner: cache.owner_text(slot),
            node: slot.node().map(|n| cache.node_text(n).to_owned()),
            verdict,
            wait: verdict.leak().map(|_| cache.member(block, slot, crate::schedule::Time::UNIX_EPOCH).wait),
            evidence: evidence(cache, slot.class(), slot.node(), explanation.reported_by.as_deref()),
            others,
        });
        explanation
    }
}

fn evidence(cache: &Inventory, class: Class, node: Option<NodeId>, reported_by: Option<&str>) -> Vec<String> {
    let mut lines = Vec::new();
    match class {
        Class::Pod(pod) => lines.push(format!("pod {}: {}", cache.pod_text(pod), pod_line(cache, pod))),
        Class::Vm(Some(vm)) => lines.extend(vm_lines(cache, vm)),
        Class::Vm(None) => lines.push("a VM that cannot be named".into()),
        _ => {}
    }
    if let Some(node) = node {
        lines.push(format!("node {}: {}", cache.node_text(node), word(&cache.node(node))));
    }
    lines.push(match reported_by {
        Some(pod) => format!("reported by pod {pod}"),
        None => "reported by no pod that runs".into(),
    });
    lines
}

fn word<T>(lookup: &Lookup<T>) -> &'static str {
    match lookup {
        Lookup::Seen(_) => "there",
        Lookup::Absent => "absent",
        Lookup::Unsure => "not known for certain",
    }
}

fn pod_line(cache: &Inventory, pod: PodId) -> String {
    let Lookup::Seen(facts) = cache.pod(pod) else { return word(&cache.pod(pod)).into() };
    let mut line = String::from("there");
    if let Some(node) = facts.node {
        line += &format!(", on node {}", cache.node_text(node));
    }
    if facts.finished.is_some() {
        line += ", finished";
    }
    if facts.unclear {
        line += ", not understood";
    }
    if facts.host_network {
        line += ", on the host's network";
    }
    let ips: Vec<String> = facts.ips.iter().map(ToString::to_string).collect();
    line += &if ips.is_empty() { ", reports no address".into() } else { format!(", reports {}", ips.join(", ")) };
    line
}

fn vm_lines(cache: &Inventory, vm: VmId) -> [String; 2] {
    let vmi = match cache.vmi(vm) {
        Lookup::Seen(facts) if facts.owned_by_vm => "there, owned by a VM",
        other => word(&other),
    };
    [format!("VM {}: {}", cache.vm_text(vm), word(&cache.vm(vm))), format!("VM instance {}: {vmi}", cache.vm_text(vm))]
}

impl Verdict {
    /// The rule that decided, by its case or decision.
    pub fn rule(self) -> &'static str {
        match self {
            Verdict::Cooling => "GCC-26",
            Verdict::InUse(why) => match why {
                InUse::HostReserved => "GCC-01",
                InUse::ReportedByPod => "GCC-14",
                InUse::ReportedByOther => "D-39",
                InUse::TunnelOfLiveNode => "GCC-03",
                InUse::VmExists => "GCC-06",
                InUse::VmiExists => "GCC-07",
                InUse::NotReportedYet => "GCC-13",
            },
            Verdict::Leaked(why) => match why {
                Leak::NodeGone => "GCC-05",
                Leak::VmGone => "GCC-08",
                Leak::PodGone => "GCC-19",
                Leak::PodFinished(_) => "GCC-21",
                Leak::PodOtherNode => "GCC-17",
                Leak::PodOtherAddress => "GCC-16",
                Leak::PodUnscheduled => "D-15",
            },
            Verdict::Unknown(why) => match why {
                Unknown::NoOwner => "GCC-02",
                Unknown::NodeUnsure => "GCC-04",
                Unknown::VmNameless => "GCC-10",
                Unknown::VmUnsure => "GCC-11",
                Unknown::PodUnsure => "GCC-20",
                Unknown::PodUnclear => "GCC-25",
            },
        }
    }

    /// What would change it.
    pub fn changes(self) -> &'static str {
        match self {
            Verdict::Cooling => "the end of its cooldown, and a collection of its block",
            Verdict::InUse(why) => match why {
                InUse::HostReserved => "nothing: hosts keep these addresses",
                InUse::ReportedByPod | InUse::ReportedByOther => "the pod that reports it finishes, goes, or reports it no longer",
                InUse::TunnelOfLiveNode => "its node goes",
                InUse::VmExists | InUse::VmiExists => "VM and VM instance go",
                InUse::NotReportedYet => "its pod reports other addresses, finishes, or goes",
            },
            Verdict::Leaked(_) => "a pod that reports it, or its owner coming back",
            Verdict::Unknown(why) => match why {
                Unknown::NoOwner => "nothing that can be looked up: release it by hand if nobody uses it",
                Unknown::NodeUnsure => "certainty about its node",
                Unknown::VmNameless => "owner attributes or a handle that name its VM",
                Unknown::VmUnsure => "VMs being served and known in full",
                Unknown::PodUnsure => "pods being known in full",
                Unknown::PodUnclear => "its pod's addresses and annotations being readable",
            },
        }
    }
}
