//! The rows of conformance.md 21.1, on a world of three lookups.

use super::*;

const POD: PodId = PodId(0);
const OTHER_POD: PodId = PodId(1);
const VM: VmId = VmId(0);
const HERE: NodeId = NodeId(0);
const THERE: NodeId = NodeId(1);

struct World {
    node: Lookup<()>,
    pod: Lookup<PodFacts>,
    vm: Lookup<()>,
    vmi: Lookup<VmiFacts>,
    reporter: Option<PodId>,
}

impl Evidence for World {
    fn node(&self, _: NodeId) -> Lookup<()> {
        self.node
    }
    fn pod(&self, _: PodId) -> Lookup<&PodFacts> {
        match &self.pod {
            Lookup::Seen(facts) => Lookup::Seen(facts),
            Lookup::Absent => Lookup::Absent,
            Lookup::Unsure => Lookup::Unsure,
        }
    }
    fn vm(&self, _: VmId) -> Lookup<()> {
        self.vm
    }
    fn vmi(&self, _: VmId) -> Lookup<VmiFacts> {
        self.vmi
    }
    fn reporter(&self, _: IpAddr, _: Option<PodId>) -> Option<PodId> {
        self.reporter
    }
}

fn world() -> World {
    World { node: Lookup::Seen(()), pod: Lookup::Absent, vm: Lookup::Absent, vmi: Lookup::Absent, reporter: None }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn alloc(class: Class) -> Allocation {
    Allocation { ip: ip("192.168.0.4"), class, node: Some(HERE) }
}

fn pod(node: Option<NodeId>, ips: &[&str]) -> PodFacts {
    PodFacts { node, ips: ips.iter().map(|i| ip(i)).collect(), reported: !ips.is_empty(), ..PodFacts::default() }
}

fn with_pod(facts: PodFacts) -> World {
    World { pod: Lookup::Seen(facts), ..world() }
}

#[test]
fn gcc_01_host_reserved_is_left_alone_even_on_a_gone_node() {
    let gone = World { node: Lookup::Absent, ..world() };
    assert_eq!(judge(&alloc(Class::Windows), &gone), Verdict::InUse(InUse::HostReserved));
}

#[test]
fn gcc_02_unknown_owners_stay_whatever_happens() {
    let gone = World { node: Lookup::Absent, ..world() };
    assert_eq!(judge(&alloc(Class::Other), &gone), Verdict::Unknown(Unknown::NoOwner));
}

#[test]
fn gcc_03_gcc_05_tunnels_live_and_die_with_their_node() {
    let tunnel = alloc(Class::Tunnel);
    assert_eq!(judge(&tunnel, &world()), Verdict::InUse(InUse::TunnelOfLiveNode));
    assert_eq!(judge(&tunnel, &World { node: Lookup::Absent, ..world() }), Verdict::Leaked(Leak::NodeGone));
    assert_eq!(judge(&tunnel, &World { node: Lookup::Unsure, ..world() }), Verdict::Unknown(Unknown::NodeUnsure));
    let homeless = Allocation { node: None, ..tunnel };
    assert_eq!(judge(&homeless, &World { node: Lookup::Absent, ..world() }), Verdict::Unknown(Unknown::NodeUnsure));
}

#[test]
fn gcc_06_gcc_07_gcc_08_gcc_09_vms() {
    let vm = alloc(Class::Vm(Some(VM)));
    let free = VmiFacts { owned_by_vm: false };
    let owned = VmiFacts { owned_by_vm: true };
    assert_eq!(judge(&vm, &World { vm: Lookup::Seen(()), ..world() }), Verdict::InUse(InUse::VmExists));
    assert_eq!(judge(&vm, &World { vmi: Lookup::Seen(free), ..world() }), Verdict::InUse(InUse::VmiExists));
    assert_eq!(judge(&vm, &World { vmi: Lookup::Seen(owned), ..world() }), Verdict::Leaked(Leak::VmGone));
    assert_eq!(judge(&vm, &world()), Verdict::Leaked(Leak::VmGone));
}

#[test]
fn gcc_10_gcc_11_gcc_12_vms_in_doubt_stay() {
    assert_eq!(judge(&alloc(Class::Vm(None)), &world()), Verdict::Unknown(Unknown::VmNameless));
    let vm = alloc(Class::Vm(Some(VM)));
    assert_eq!(judge(&vm, &World { vm: Lookup::Unsure, ..world() }), Verdict::Unknown(Unknown::VmUnsure));
    // "Gone" needs both kinds (D-51).
    assert_eq!(judge(&vm, &World { vmi: Lookup::Unsure, ..world() }), Verdict::Unknown(Unknown::VmUnsure));
}

#[test]
fn gcc_13_a_pod_that_has_not_reported_keeps_its_address() {
    assert_eq!(judge(&alloc(Class::Pod(POD)), &with_pod(pod(Some(HERE), &[]))), Verdict::InUse(InUse::NotReportedYet));
    assert_eq!(judge(&alloc(Class::Pod(POD)), &with_pod(pod(None, &[]))), Verdict::InUse(InUse::NotReportedYet));
}

#[test]
fn gcc_14_gcc_15_gcc_24_what_the_pod_reports_is_in_use() {
    for ips in [&["192.168.0.4"][..], &["fe80::1", "192.168.0.4"][..]] {
        assert_eq!(judge(&alloc(Class::Pod(POD)), &with_pod(pod(Some(HERE), ips))), Verdict::InUse(InUse::ReportedByPod));
    }
}

#[test]
fn gcc_16_other_addresses_only() {
    let world = with_pod(pod(Some(HERE), &["192.168.30.5"]));
    assert_eq!(judge(&alloc(Class::Pod(POD)), &world), Verdict::Leaked(Leak::PodOtherAddress));
}

#[test]
fn gcc_17_gcc_18_the_node_matters_only_when_the_address_is_not_reported() {
    let a = alloc(Class::Pod(POD));
    assert_eq!(judge(&a, &with_pod(pod(Some(THERE), &[]))), Verdict::Leaked(Leak::PodOtherNode));
    assert_eq!(judge(&a, &with_pod(pod(Some(THERE), &["192.168.0.4"]))), Verdict::InUse(InUse::ReportedByPod), "D-13");
    let no_node = Allocation { node: None, ..a };
    assert_eq!(judge(&no_node, &with_pod(pod(Some(THERE), &[]))), Verdict::InUse(InUse::NotReportedYet));
}

#[test]
fn gcc_19_gcc_20_no_pod_and_no_answer() {
    assert_eq!(judge(&alloc(Class::Pod(POD)), &world()), Verdict::Leaked(Leak::PodGone));
    assert_eq!(judge(&alloc(Class::Pod(POD)), &World { pod: Lookup::Unsure, ..world() }), Verdict::Unknown(Unknown::PodUnsure));
}

#[test]
fn gcc_21_gcc_22_gcc_23_finished_pods_hold_nothing_reported_or_not() {
    for how in [Finished::Succeeded, Finished::Failed, Finished::NetworkGone] {
        for ips in [&[][..], &["192.168.0.4"][..]] {
            let facts = PodFacts { finished: Some(how), ..pod(Some(HERE), ips) };
            assert_eq!(judge(&alloc(Class::Pod(POD)), &with_pod(facts)), Verdict::Leaked(Leak::PodFinished(how)));
        }
    }
}

#[test]
fn gcc_25_a_pod_that_was_not_understood_keeps_everything() {
    let facts = PodFacts { unclear: true, ..pod(Some(THERE), &["192.168.30.5"]) };
    assert_eq!(judge(&alloc(Class::Pod(POD)), &with_pod(facts)), Verdict::Unknown(Unknown::PodUnclear));
}

#[test]
fn d_15_a_pending_namesake_does_not_vouch_on_a_node_that_is_gone() {
    let gone = World { node: Lookup::Absent, ..with_pod(pod(None, &[])) };
    assert_eq!(judge(&alloc(Class::Pod(POD)), &gone), Verdict::Leaked(Leak::PodUnscheduled));
    let unsure = World { node: Lookup::Unsure, ..with_pod(pod(None, &[])) };
    assert_eq!(judge(&alloc(Class::Pod(POD)), &unsure), Verdict::InUse(InUse::NotReportedYet));
    let scheduled = World { node: Lookup::Absent, ..with_pod(pod(Some(HERE), &[])) };
    assert_eq!(judge(&alloc(Class::Pod(POD)), &scheduled), Verdict::InUse(InUse::NotReportedYet));
}

#[test]
fn d_39_reported_by_anybody_is_in_use_before_every_other_rule() {
    let gone = World { node: Lookup::Absent, reporter: Some(OTHER_POD), ..world() };
    for class in [Class::Pod(POD), Class::Tunnel, Class::Other] {
        assert_eq!(judge(&alloc(class), &gone), Verdict::InUse(InUse::ReportedByOther), "{class:?}");
    }
    assert_eq!(judge(&alloc(Class::Vm(Some(VM))), &gone), Verdict::InUse(InUse::ReportedByPod));
    let own = World { reporter: Some(POD), ..gone };
    assert_eq!(judge(&alloc(Class::Pod(POD)), &own), Verdict::InUse(InUse::ReportedByPod));
}
