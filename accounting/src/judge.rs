//! The leak predicate. One function, four readers: the planner, the last look before a release, `ipamctl`, the
//! tests' oracle. It knows no time: how long a leak waits is in [`schedule`](crate::schedule).

use std::net::IpAddr;

use crate::facts::{Class, Finished, Lookup, NodeId, PodFacts, PodId, VmId, VmiFacts};

/// One allocated address that is not cooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The address.
    pub ip: IpAddr,
    /// Its owner.
    pub class: Class,
    /// The node that its owner attributes name.
    pub node: Option<NodeId>,
}

/// What is known of the world.
pub trait Evidence {
    /// The node of this name.
    fn node(&self, node: NodeId) -> Lookup<()>;
    /// The pod of this key.
    fn pod(&self, pod: PodId) -> Lookup<&PodFacts>;
    /// The VM of this key.
    fn vm(&self, vm: VmId) -> Lookup<()>;
    /// The VM instance of this key.
    fn vmi(&self, vm: VmId) -> Lookup<VmiFacts>;
    /// A pod that reports `ip` and [vouches](PodFacts::vouches) for it, preferably `owner` (D-39).
    fn reporter(&self, ip: IpAddr, owner: Option<PodId>) -> Option<PodId>;
}

/// Why an address is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InUse {
    /// Kept back by the host (GCC-01).
    HostReserved,
    /// Its pod reports it (GCC-14, GCC-15, GCC-24).
    ReportedByPod,
    /// Somebody else's pod reports it (D-39): finding `used-by-other`.
    ReportedByOther,
    /// Tunnel address of a live node (GCC-03).
    TunnelOfLiveNode,
    /// The VM exists (GCC-06).
    VmExists,
    /// The stand-alone VM instance exists (GCC-07).
    VmiExists,
    /// The pod has not reported its addresses yet (GCC-13).
    NotReportedYet,
}

/// Why an address is leaked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leak {
    /// Tunnel address of a node that is gone (GCC-05).
    NodeGone,
    /// VM and stand-alone VM instance are gone (GCC-08, GCC-09).
    VmGone,
    /// There is no such pod (GCC-19).
    PodGone,
    /// The pod is finished (GCC-21 … GCC-23).
    PodFinished(Finished),
    /// The pod runs on another node and does not report the address (GCC-17, D-13).
    PodOtherNode,
    /// The pod reports other addresses (GCC-16).
    PodOtherAddress,
    /// A pod of this name waits for a node; the allocation's node is gone (D-15).
    PodUnscheduled,
}

/// Why it cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// Not a pod, tunnel or VM (GCC-02).
    NoOwner,
    /// A tunnel address without node, or nothing certain is known about its node.
    NodeUnsure,
    /// The VM cannot be named (GCC-10, D-52).
    VmNameless,
    /// Nothing certain is known about the VM (GCC-11, GCC-12).
    VmUnsure,
    /// Nothing certain is known about the pod (GCC-20).
    PodUnsure,
    /// The pod was not understood (GCC-25).
    PodUnclear,
}

/// What an address is. `Unknown` counts as in use everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Somebody uses it.
    InUse(InUse),
    /// Released, not yet free (D-48).
    Cooling,
    /// Nobody uses it any more.
    Leaked(Leak),
    /// It cannot be told, so it stays.
    Unknown(Unknown),
}

impl Verdict {
    /// The leak, if it is one.
    pub fn leak(self) -> Option<Leak> {
        match self {
            Verdict::Leaked(leak) => Some(leak),
            _ => None,
        }
    }

    /// `in-use`, `cooling`, `leaked` or `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::InUse(_) => "in-use",
            Verdict::Cooling => "cooling",
            Verdict::Leaked(_) => "leaked",
            Verdict::Unknown(_) => "unknown",
        }
    }

    /// The reason in words.
    pub fn why(self) -> &'static str {
        match self {
            Verdict::Cooling => "released, free once its cooldown is over and it is collected",
            Verdict::InUse(why) => match why {
                InUse::HostReserved => "kept back by the host",
                InUse::ReportedByPod => "reported by its pod",
                InUse::ReportedByOther => "reported by a pod that it is not allocated to",
                InUse::TunnelOfLiveNode => "tunnel address of a live node",
                InUse::VmExists => "the VM exists",
                InUse::VmiExists => "the VM instance exists",
                InUse::NotReportedYet => "its pod has not reported its addresses yet",
            },
            Verdict::Leaked(leak) => leak.why(),
            Verdict::Unknown(why) => match why {
                Unknown::NoOwner => "not a pod, tunnel or VM: kept",
                Unknown::NodeUnsure => "nothing certain is known about its node: kept",
                Unknown::VmNameless => "its VM cannot be told: kept",
                Unknown::VmUnsure => "nothing certain is known about its VM: kept",
                Unknown::PodUnsure => "nothing certain is known about its pod: kept",
                Unknown::PodUnclear => "its pod was not understood: kept",
            },
        }
    }
}

impl Leak {
    /// Every reason as metrics call it.
    pub const WORDS: [&'static str; 7] =
        ["pod_gone", "pod_finished", "pod_other_address", "pod_other_node", "pod_unscheduled", "vm_gone", "node_gone"];

    /// As metrics call it.
    pub fn word(self) -> &'static str {
        match self {
            Leak::NodeGone => "node_gone",
            Leak::VmGone => "vm_gone",
            Leak::PodGone => "pod_gone",
            Leak::PodFinished(_) => "pod_finished",
            Leak::PodOtherNode => "pod_other_node",
            Leak::PodOtherAddress => "pod_other_address",
            Leak::PodUnscheduled => "pod_unscheduled",
        }
    }

    /// The reason in words.
    pub fn why(self) -> &'static str {
        match self {
            Leak::NodeGone => "tunnel address of a node that is gone",
            Leak::VmGone => "VM and VM instance are gone",
            Leak::PodGone => "no such pod",
            Leak::PodFinished(Finished::Succeeded) => "its pod is finished (Succeeded)",
            Leak::PodFinished(Finished::Failed) => "its pod is finished (Failed)",
            Leak::PodFinished(Finished::NetworkGone) => "its pod is being deleted, and its network is gone",
            Leak::PodOtherNode => "its pod runs on another node",
            Leak::PodOtherAddress => "its pod reports other addresses",
            Leak::PodUnscheduled => "its node is gone, and the pod of that name has neither node nor address",
        }
    }
}

/// Judges one allocation that is not cooling, in the order of D-86.
pub fn judge(allocation: &Allocation, evidence: &impl Evidence) -> Verdict {
    let Allocation { ip, class, node } = *allocation;
    if class == Class::Windows {
        return Verdict::InUse(InUse::HostReserved);
    }
    let owner = if let Class::Pod(pod) = class { Some(pod) } else { None };
    if let Some(reporter) = evidence.reporter(ip, owner) {
        // The launcher pod of a VM reports the VM's address.
        let own = owner == Some(reporter) || matches!(class, Class::Vm(_));
        return Verdict::InUse(if own { InUse::ReportedByPod } else { InUse::ReportedByOther });
    }
    match class {
        Class::Windows | Class::Other => Verdict::Unknown(Unknown::NoOwner),
        Class::Tunnel => judge_tunnel(node, evidence),
        Class::Vm(vm) => judge_vm(vm, evidence),
        Class::Pod(pod) => judge_pod(ip, pod, node, evidence),
    }
}

fn judge_tunnel(node: Option<NodeId>, evidence: &impl Evidence) -> Verdict {
    match node.map(|n| evidence.node(n)) {
        Some(Lookup::Seen(())) => Verdict::InUse(InUse::TunnelOfLiveNode),
        Some(Lookup::Absent) => Verdict::Leaked(Leak::NodeGone),
        Some(Lookup::Unsure) | None => Verdict::Unknown(Unknown::NodeUnsure),
    }
}

fn judge_vm(vm: Option<VmId>, evidence: &impl Evidence) -> Verdict {
    let Some(vm) = vm else { return Verdict::Unknown(Unknown::VmNameless) };
    match (evidence.vm(vm), evidence.vmi(vm)) {
        (Lookup::Seen(()), _) => Verdict::InUse(InUse::VmExists),
        (_, Lookup::Seen(vmi)) if !vmi.owned_by_vm => Verdict::InUse(InUse::VmiExists),
        (Lookup::Unsure, _) | (_, Lookup::Unsure) => Verdict::Unknown(Unknown::VmUnsure),
        (Lookup::Absent, _) => Verdict::Leaked(Leak::VmGone),
    }
}

fn judge_pod(ip: IpAddr, pod: PodId, node: Option<NodeId>, evidence: &impl Evidence) -> Verdict {
    let facts = match evidence.pod(pod) {
        Lookup::Seen(facts) => facts,
        Lookup::Absent => return Verdict::Leaked(Leak::PodGone),
        Lookup::Unsure => return Verdict::Unknown(Unknown::PodUnsure),
    };
    if let Some(how) = facts.finished {
        return Verdict::Leaked(Leak::PodFinished(how));
    }
    if facts.unclear {
        return Verdict::Unknown(Unknown::PodUnclear);
    }
    if facts.ips.contains(&ip) {
        return Verdict::InUse(InUse::ReportedByPod);
    }
    if let (Some(runs_on), Some(allocated_on)) = (facts.node, node)
        && runs_on != allocated_on
    {
        return Verdict::Leaked(Leak::PodOtherNode);
    }
    if facts.reported {
        return Verdict::Leaked(Leak::PodOtherAddress);
    }
    let departed = node.is_some_and(|n| evidence.node(n).is_absent());
    if facts.node.is_none() && departed {
        return Verdict::Leaked(Leak::PodUnscheduled);
    }
    Verdict::InUse(InUse::NotReportedYet)
}

#[cfg(test)]
#[path = "judge/tests.rs"]
mod tests;
