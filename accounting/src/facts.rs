//! What we keep of the objects that allocations point at, and of the allocations themselves.

use std::collections::BTreeMap;
use std::net::IpAddr;

use smallvec::SmallVec;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
    };
}
id!(/// Number of a pod key `namespace/name`.
    PodId);
id!(/// Number of a node name.
    NodeId);
id!(/// Number of a VM key `namespace/name`; VM and VMI share it (wire-format.md 13).
    VmId);
id!(/// Number of a sanitised handle id.
    HandleId);

/// Answer of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// It is there, and these are its facts.
    Seen(T),
    /// It is certain that there is none.
    Absent,
    /// Cannot tell: the kind was not there at all, is not in step, or the object was not understood (D-35, D-38).
    Unsure,
}

impl<T> Lookup<T> {
    /// The same answer about a part of the facts.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Lookup::Seen(facts) => Lookup::Seen(f(facts)),
            Lookup::Absent => Lookup::Absent,
            Lookup::Unsure => Lookup::Unsure,
        }
    }

    /// Whether it is certain that there is none.
    pub fn is_absent(&self) -> bool {
        matches!(self, Lookup::Absent)
    }
}

/// Why a pod counts as finished (D-14, gc.md 9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finished {
    /// Phase `Succeeded` or `Completed`.
    Succeeded,
    /// Phase `Failed`, evicted or not.
    Failed,
    /// Being deleted, and the annotation says that its network is gone already.
    NetworkGone,
}

/// What we keep of a pod; `N` names a node: text while decoding, a number inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts<N = NodeId> {
    /// `spec.nodeName`.
    pub node: Option<N>,
    /// Every address that the object reports, secondary ones too (D-26).
    pub ips: SmallVec<[IpAddr; 1]>,
    /// The status reports an address (rule 6 of gc.md 9).
    pub reported: bool,
    /// `spec.hostNetwork`: its addresses are the node's.
    pub host_network: bool,
    /// It is finished: none of its addresses is in use any more.
    pub finished: Option<Finished>,
    /// A part of the object could not be read; what could be is in the other members.
    pub unclear: bool,
}

impl<N> PodFacts<N> {
    /// The same facts with the node named otherwise.
    pub fn map_node<M>(self, f: impl FnOnce(N) -> M) -> PodFacts<M> {
        let PodFacts { node, ips, reported, host_network, finished, unclear } = self;
        PodFacts { node: node.map(f), ips, reported, host_network, finished, unclear }
    }

    /// Whether the pod vouches for its addresses: unfinished, and not on the host's network (D-39).
    pub fn vouches(&self) -> bool {
        self.finished.is_none() && !self.host_network
    }
}

impl<N> Default for PodFacts<N> {
    fn default() -> Self {
        Self { node: None, ips: SmallVec::new(), reported: false, host_network: false, finished: None, unclear: false }
    }
}

/// What we keep of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Being migrated from flannel: its empty blocks stay (gc.md 12.2).
    pub migrating: bool,
    /// Merged labels, as node selectors see them (wire-format.md 11).
    pub labels: BTreeMap<String, String>,
}

/// What we keep of a virtual machine instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmiFacts {
    /// Has an owner of kind `VirtualMachine`, so that it does not count on its own.
    pub owned_by_vm: bool,
}

/// The handle that marks a host's own reservation in each block; compared ignoring case (BLK-03).
pub const WINDOWS_HANDLE: &str = "windows-reserved-ipam-handle";

/// Whether a handle is that of a host reservation.
pub fn is_windows_handle(handle: &str) -> bool {
    handle.eq_ignore_ascii_case(WINDOWS_HANDLE)
}

/// The part of a handle id before a carriage return (wire-format.md 2.5).
pub fn sanitise(handle: &str) -> &str {
    handle.split('\r').next().unwrap_or(handle)
}

/// The VM that a handle names, as `namespace` and `name`: split at the first `.vmi.`, the namespace up to the
/// next dot; nothing when it does not match or the rest is a hash (D-52).
pub fn vm_of_handle(handle: &str) -> Option<(&str, &str)> {
    let (_, rest) = handle.split_once(".vmi.")?;
    let (namespace, name) = rest.split_once('.')?;
    (!rest.starts_with('_') && !namespace.is_empty() && !name.is_empty()).then_some((namespace, name))
}

/// Values of the attribute `type` that mark tunnel addresses.
pub const TUNNEL_TYPES: [&str; 5] =
    ["ipipTunnelAddress", "vxlanTunnelAddress", "vxlanV6TunnelAddress", "wireguardTunnelAddress", "wireguardV6TunnelAddress"];

/// Owner attributes of an allocation.
pub type Attrs = BTreeMap<String, String>;

/// What kind of owner an allocation has; `P` and `V` name pods and VMs: text while reading, numbers inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class<P = PodId, V = VmId> {
    /// A pod.
    Pod(P),
    /// A tunnel address of a node.
    Tunnel,
    /// A KubeVirt VM; `None`: it cannot be told which (GCC-10, D-52).
    Vm(Option<V>),
    /// Kept back by the host itself.
    Windows,
    /// None of these: never released (GCC-02).
    Other,
}

/// Namespace and name.
pub type Pair<'a> = (&'a str, &'a str);

fn non_empty<'a>(attrs: &'a Attrs, key: &str) -> Option<&'a str> {
    attrs.get(key).map(String::as_str).filter(|v| !v.is_empty())
}

/// Classifies an allocation by its active owner, else the alternate one, else the VM that its handle names
/// (F-43, D-25a). Answers with the node that the owner attributes name.
pub fn classify<'a>(handle: Option<&'a str>, active: &'a Attrs, alternate: &'a Attrs) -> (Class<Pair<'a>, Pair<'a>>, Option<&'a str>) {
    if handle.is_some_and(is_windows_handle) {
        return (Class::Windows, None);
    }
    let owner = if active.is_empty() { alternate } else { active };
    let node = non_empty(owner, "node");
    let namespace = non_empty(owner, "namespace");
    if let Some(name) = owner.get("vmi-name") {
        return (Class::Vm(namespace.filter(|_| !name.is_empty()).map(|ns| (ns, name.as_str()))), node);
    }
    if owner.get("type").is_some_and(|t| TUNNEL_TYPES.contains(&t.as_str())) {
        return (Class::Tunnel, node);
    }
    if let (Some(namespace), Some(pod)) = (namespace, non_empty(owner, "pod")) {
        return (Class::Pod((namespace, pod)), node);
    }
    let of_vm = owner.is_empty() && handle.is_some_and(|h| h.contains(".vmi."));
    if of_vm { (Class::Vm(handle.and_then(vm_of_handle)), None) } else { (Class::Other, node) }
}

/// The owner of an allocation as outputs name it (D-47): `namespace/pod`, `vm:namespace/name`, or the type of a tunnel; `None` for
/// everybody else. With the node that the owner attributes name.
pub fn owner_of<'a>(handle: Option<&'a str>, active: &'a Attrs, alternate: &'a Attrs) -> (Option<String>, Option<&'a str>) {
    let (class, node) = classify(handle, active, alternate);
    let owner = match class {
        Class::Pod((namespace, name)) => Some(format!("{namespace}/{name}")),
        Class::Vm(vm) => vm.map(|(namespace, name)| format!("vm:{namespace}/{name}")),
        Class::Tunnel => if active.is_empty() { alternate } else { active }.get("type").cloned(),
        Class::Windows | Class::Other => None,
    };
    (owner, node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attrs(pairs: &[(&str, &str)]) -> Attrs {
        pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    #[test]
    fn gcc_28_owners_are_active_then_alternate_then_handle() {
        let none = Attrs::new();
        let pod = attrs(&[("namespace", "n"), ("pod", "p"), ("node", "a")]);
        let vm = attrs(&[("namespace", "n"), ("pod", "virt-launcher-x"), ("vmi-name", "v"), ("node", "b")]);
        assert_eq!(classify(Some("h"), &pod, &vm), (Class::Pod(("n", "p")), Some("a")));
        assert_eq!(classify(Some("h"), &none, &vm), (Class::Vm(Some(("n", "v"))), Some("b")));
        assert_eq!(classify(Some("net.vmi.ns.name.with.dots"), &none, &none), (Class::Vm(Some(("ns", "name.with.dots"))), None));
        assert_eq!(classify(Some("net.vmi._hash"), &none, &none), (Class::Vm(None), None));
        assert_eq!(classify(Some("net.container"), &none, &none), (Class::Other, None));
    }

    #[test]
    fn gcv_05_a_vm_needs_no_pod_attribute() {
        let vm = attrs(&[("namespace", "n"), ("vmi-name", "v")]);
        assert_eq!(classify(None, &vm, &Attrs::new()).0, Class::Vm(Some(("n", "v"))));
        let nameless = attrs(&[("namespace", "n"), ("vmi-name", ""), ("pod", "p")]);
        assert_eq!(classify(None, &nameless, &Attrs::new()).0, Class::Vm(None));
    }

    #[test]
    fn blk_03_the_reserved_handle_is_known_in_any_case() {
        assert_eq!(classify(Some("Windows-Reserved-IPAM-Handle"), &Attrs::new(), &Attrs::new()).0, Class::Windows);
    }

    #[test]
    fn five_types_are_tunnels_and_others_are_not() {
        for t in TUNNEL_TYPES {
            let a = attrs(&[("type", t), ("node", "n")]);
            assert_eq!(classify(Some("h"), &a, &Attrs::new()), (Class::Tunnel, Some("n")), "{t}");
        }
        let lb = attrs(&[("type", "loadBalancer"), ("namespace", "n"), ("service", "s")]);
        assert_eq!(classify(Some("h"), &lb, &Attrs::new()).0, Class::Other);
    }

    #[test]
    fn handles_are_cut_at_a_carriage_return() {
        assert_eq!(sanitise("abc\r\neth0"), "abc");
        assert_eq!(sanitise("abc"), "abc");
    }
}
