//! What a network plugin expects of the library (CNI): every call that it makes for a pod or a VM, with its outcome.

use std::net::IpAddr;

use futures::executor::block_on;
use ipam::owners::{OwnerError, OwnerRef, OwnerUpdate, Side};
use ipam::release::ReleaseError;
use ipam::{AssignError, AssignIp, AutoAssign, Family, HandleId};
use ipam_accounting::facts::Attrs;
use ipam_datastore::names::vm_handle;
use ipam_tests::lab::{Lab, all_in, ip, net, want};

const V4: &str = "192.168.0.0/16";
const V6: &str = "fd80:24e2:f998:72d6::/64";

fn delete(lab: &Lab, handle: &str) -> usize {
    match block_on(lab.ipam.release_by_handle(&HandleId::new(handle))) {
        Ok(ips) => ips.len(),
        Err(ReleaseError::NoSuchHandle(_)) => 0,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn cni_01_cni_08_one_address_of_each_family_asked_for_and_its_release() {
    for (n4, n6) in [(1, 0), (0, 1), (1, 1)] {
        let lab = Lab::new(&[V4, V6], &["a"]);
        let got = lab.assign(&AutoAssign::new("a", "Workload", n4, n6).handle("k8s-pod-network.c1")).expect("assigned");
        let masks = |got: Option<ipam::Got>| got.map(|g| g.ips.iter().map(ipnet::IpNet::prefix_len).collect::<Vec<_>>());
        assert_eq!((masks(got.v4), masks(got.v6)), ((n4 > 0).then(|| vec![26]), (n6 > 0).then(|| vec![122])));
        assert_eq!(delete(&lab, "k8s-pod-network.c1"), n4 + n6);
        assert_eq!(delete(&lab, "k8s-pod-network.c1"), 0, "CNI-08: nothing is there, and that is fine");
        lab.assert_clean();
    }
}

#[test]
fn cni_03_cni_04_cni_05_pools_by_request() {
    let lab = Lab::new(&["192.168.0.0/16", "192.169.0.0/24"], &["a"]);
    let from = |pools: &[&str]| lab.assign(&want("a", 1).pools(Family::V4, &pools.iter().map(|p| net(p)).collect::<Vec<_>>()));
    let ips = |pools: &[&str]| from(pools).expect("assigned").v4.expect("asked for").ips.iter().map(|n| n.addr()).collect::<Vec<_>>();
    all_in(&ips(&["192.168.0.0/16"]), "192.168.0.0/16");
    all_in(&ips(&["192.169.0.0/24"]), "192.169.0.0/24");
    all_in(&ips(&["192.168.0.0/16", "192.169.0.0/24"]), "192.168.0.0/15");
    for pools in [&["192.169.1.0/24", "192.168.0.0/16"][..], &["192.168.0.0/16", "192.169.1.0/24"]] {
        assert!(from(pools).is_err_and(|e| e.to_string().contains("192.169.1.0/24")), "CNI-05");
    }
    // CNI-04.
    lab.change_pool("192.168.0.0/16", |p| p.disabled = true);
    lab.change_pool("192.169.0.0/24", |p| p.disabled = true);
    lab.change_pool("192.169.1.0/24", |p| p.disabled = false);
    all_in(&lab.ips(&want("a", 1)), "192.169.1.0/24");
}

#[test]
fn cni_06_cni_07_an_address_by_name() {
    let lab = Lab::new(&[V4, "10.123.0.0/16"], &["a"]);
    lab.change_pool("10.123.0.0/16", |p| p.allowed_uses = vec!["Tunnel".into()]);
    let assign =
        |text: &str, handle: &str| block_on(lab.ipam.assign_ip(&AssignIp::new(ip(text), "a").handle(handle).intended_use("Workload")));
    let there = ip("192.168.123.123");
    assert_eq!(assign("192.168.123.123", "one"), Ok(()));
    assert_eq!(block_on(lab.ipam.ips_by_handle("one")), Ok(Some(vec![there])));
    assert_eq!(assign("192.168.123.123", "two"), Err(AssignError::AlreadyExists(there)));
    assert_eq!((delete(&lab, "two"), delete(&lab, "one")), (0, 1));
    assert_eq!(assign("192.168.123.123", "two"), Ok(()));
    assert!(matches!(assign("10.123.0.1", "three"), Err(AssignError::Pool(_))), "CNI-07");
    assert_eq!(lab.count("three"), None);
    lab.assert_clean();
}

#[test]
fn cni_09_handles_of_old_forms() {
    let lab = Lab::new(&[V4], &["a"]);
    for handle in ["0123abcd", "default.pod-1", "net1.0123abcd"] {
        lab.ips(&want("a", 1).handle(handle));
    }
    // A plugin releases by each form that it may have used.
    for (handle, n) in [("k8s-pod-network.0123abcd", 0), ("0123abcd", 1), ("net1.0123abcd", 1), ("default.pod-1", 1)] {
        assert_eq!(delete(&lab, handle), n, "{handle}");
    }
    assert!(lab.store.rows::<ipam::model::HandleKind>().is_empty());
}

fn pod(name: &str) -> Attrs {
    [("pod".into(), name.into()), ("namespace".into(), "ns".into())].into()
}

fn owner(name: &str) -> OwnerRef {
    OwnerRef { namespace: "ns".into(), name: name.into() }
}

/// A VM with one address, its first pod active.
fn vm() -> (Lab, String, IpAddr) {
    let lab = Lab::new(&[V4], &["a"]);
    let handle = vm_handle("", "ns", "vm").expect("short");
    let got = lab.ips(&want("a", 1).handle(&handle).attrs(pod("pod-1")).max_per_handle(1));
    (lab, handle, got[0])
}

fn set(lab: &Lab, handle: &str, ip: IpAddr, active: Side, alternate: Side) -> Result<(), OwnerError> {
    block_on(lab.ipam.set_owner_attributes(ip, handle, &OwnerUpdate { active, alternate }))
}

fn owners(lab: &Lab, ip: IpAddr) -> (Attrs, Attrs) {
    let now = block_on(lab.ipam.assignment_attributes(ip)).expect("assigned");
    (now.active, now.alternate)
}

#[test]
fn cni_10_a_vm_that_restarts_keeps_its_address() {
    let (lab, handle, address) = vm();
    // A new pod of the same VM asks under the same handle, whose cap answers with what it has.
    assert_eq!(lab.ips(&want("a", 1).handle(&handle).attrs(pod("pod-2")).max_per_handle(1)), [address]);
    assert_eq!(owners(&lab, address).0, pod("pod-1"), "attributes do not change by asking");
    set(&lab, &handle, address, Side { set: Some(pod("pod-2")), ..Side::default() }, Side::default()).expect("no condition");
    assert_eq!(owners(&lab, address), (pod("pod-2"), Attrs::new()));
    assert_eq!(lab.count(&handle), Some(1));
}

#[test]
fn cni_11_the_target_of_a_migration_is_the_alternate_owner() {
    let (lab, handle, address) = vm();
    let has = block_on(lab.ipam.ips_by_handle(&handle)).expect("readable").expect("there");
    assert_eq!(has, [address]);
    set(&lab, &handle, address, Side::default(), Side { set: Some(pod("target")), ..Side::default() }).expect("set");
    assert_eq!(owners(&lab, address), (pod("pod-1"), pod("target")));
    let none = vm_handle("", "ns", "other").expect("short");
    assert_eq!(block_on(lab.ipam.ips_by_handle(&none)), Ok(None), "nothing to migrate: the plugin's error");
}

#[test]
fn cni_12_a_pod_of_a_vm_goes_and_its_address_with_the_last_one_only() {
    let clear = |name: &str| Side { clear: true, expect: Some(owner(name)), ..Side::default() };
    let (lab, handle, address) = vm();
    set(&lab, &handle, address, Side::default(), Side { set: Some(pod("target")), ..Side::default() }).expect("set");
    // Neither: refused, and nothing changes.
    assert!(matches!(set(&lab, &handle, address, clear("stranger"), Side::default()), Err(OwnerError::Precondition(..))));
    assert_eq!(owners(&lab, address), (pod("pod-1"), pod("target")));
    set(&lab, &handle, address, clear("pod-1"), Side::default()).expect("the active one goes");
    assert_eq!(owners(&lab, address), (Attrs::new(), pod("target")));
    set(&lab, &handle, address, Side::default(), clear("target")).expect("the alternate one goes");
    assert_eq!(owners(&lab, address), (Attrs::new(), Attrs::new()));
    assert_eq!(lab.count(&handle), Some(1), "nobody's, and still the VM's");
    assert_eq!(delete(&lab, &handle), 1, "the VM is being deleted");
}
