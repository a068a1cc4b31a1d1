//! Addresses of migrating VMs (VMO).

use futures::executor::block_on;
use ipam::mem::Verb;
use ipam::model::BlockKind;
use ipam::owners::{OwnerError, OwnerRef, OwnerUpdate, Side};
use ipam::promote::PromoteError;
use ipam::{AutoAssign, Family, HandleId};
use ipam_accounting::facts::Attrs;
use ipam_datastore::names::vm_handle;
use ipam_tests::lab::{Lab, net};
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

fn pod(name: &str) -> Attrs {
    [("pod".into(), format!("virt-launcher-{name}")), ("namespace".into(), "test-ns".into())].into()
}

fn set(name: &str) -> Side {
    Side { set: Some(pod(name)), ..Side::default() }
}

fn clear() -> Side {
    Side { clear: true, ..Side::default() }
}

struct Vm {
    lab: Lab,
    handle: String,
    ips: Vec<IpAddr>,
}

impl Vm {
    /// An address of each family, active the source, alternate the target.
    fn new(network: &str) -> Self {
        let lab = Lab::new(&["10.0.0.0/24", "fd80:24e2:f998:72d6::/120"], &["n"]);
        let handle = vm_handle(network, "test-ns", "test-vm").expect("short");
        let args = AutoAssign::new("n", "Workload", 1, 1).handle(&handle).attrs(pod("source"));
        let got = lab.assign(&args.pools(Family::V4, &[net("10.0.0.0/24")])).expect("assigned");
        let ips = [got.v4, got.v6].into_iter().flatten().map(|g| g.ips[0].addr()).collect();
        let vm = Self { lab, handle, ips };
        vm.each(Side::default(), set("target"));
        vm
    }

    fn each(&self, active: Side, alternate: Side) {
        let update = OwnerUpdate { active, alternate };
        self.ips.iter().for_each(|ip| block_on(self.lab.ipam.set_owner_attributes(*ip, &self.handle, &update)).expect("set"));
    }

    fn promote(&self) -> Result<(), PromoteError> {
        let target = OwnerRef { namespace: "test-ns".into(), name: "virt-launcher-target".into() };
        block_on(self.lab.ipam.promote(&self.handle, &target))
    }

    fn assert_owners(&self, active: &Attrs, alternate: &Attrs) {
        for ip in &self.ips {
            let now = block_on(self.lab.ipam.assignment_attributes(*ip)).expect("assigned");
            assert_eq!((&now.active, &now.alternate), (active, alternate), "{ip}");
        }
    }
}

#[test]
fn vmo_01_vmo_02_vmo_07_the_target_becomes_active_and_the_source_alternate() {
    for network in ["", "multus-net1"] {
        let vm = Vm::new(network);
        vm.promote().expect("promoted");
        vm.assert_owners(&pod("target"), &pod("source"));
        let before = vm.lab.block_of(vm.ips[0]);
        vm.promote().expect("again");
        assert_eq!(vm.lab.block_of(vm.ips[0]), before, "nothing was written");
    }
}

#[test]
fn vmo_03_vmo_04_vmo_05_what_was_not_prepared_is_refused() {
    let vm = Vm::new("");
    vm.each(Side::default(), clear());
    assert_eq!(vm.promote(), Err(PromoteError::AlternateEmpty(vm.ips[0])));
    vm.each(Side::default(), set("unexpected"));
    assert_eq!(vm.promote(), Err(PromoteError::AlternateMismatch(vm.ips[0])));
    vm.assert_owners(&pod("source"), &pod("unexpected"));
    block_on(vm.lab.ipam.release_by_handle(&HandleId::new(&vm.handle))).expect("released");
    assert_eq!(vm.promote(), Err(PromoteError::NoSuchHandle(vm.handle.clone())));
}

#[test]
fn vmo_06_vmo_08_a_source_that_is_gone_and_a_promotion_that_stopped_halfway() {
    let vm = Vm::new("");
    vm.each(clear(), Side::default());
    vm.promote().expect("promoted");
    vm.assert_owners(&pod("target"), &Attrs::new());
    let vm = Vm::new("");
    let swapped = OwnerUpdate { active: set("target"), alternate: set("source") };
    block_on(vm.lab.ipam.set_owner_attributes(vm.ips[0], &vm.handle, &swapped)).expect("set");
    vm.promote().expect("finished");
    vm.assert_owners(&pod("target"), &pod("source"));
}

/// Promotes while another process changes the active owner of the first address so many times, each time between the looking
/// and the writing.
fn promote_amid_changes(vm: &Vm, mut changes: usize) -> Result<(), PromoteError> {
    let target = OwnerRef { namespace: "test-ns".into(), name: "virt-launcher-target".into() };
    let reads = || vm.lab.store.requests().get(&(Verb::Get, "IPAMBlock")).copied().unwrap_or(0);
    let cidr = vm.lab.block_of(vm.ips[0]).cidr;
    let before = reads();
    // One reading of each block to learn the addresses, one to look, two to write.
    let mut due = before + vm.ips.len() as u64 + 1;
    let mut call = pin!(vm.lab.ipam.promote(&vm.handle, &target));
    loop {
        if let Poll::Ready(done) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        if reads() == due && changes > 0 {
            let mut block = vm.lab.block(&cidr.to_string()).expect("there");
            let entry = block.attributes_of(vm.ips[0]).expect("assigned").clone();
            block.update_ownership(vm.ips[0], ipam::Attribute { active: pod(&format!("other-{changes}")), ..entry }).expect("assigned");
            vm.lab.put::<BlockKind>(cidr, block);
            (due, changes) = (due + 3, changes - 1);
        }
    }
}

#[test]
fn vmo_09_owners_that_change_meanwhile_are_looked_at_again_five_times_at_most() {
    let vm = Vm::new("");
    promote_amid_changes(&vm, 4).expect("at the fifth attempt");
    let now = block_on(vm.lab.ipam.assignment_attributes(vm.ips[0])).expect("assigned");
    assert_eq!((now.active, now.alternate), (pod("target"), pod("other-1")));
    let vm = Vm::new("");
    let refused = promote_amid_changes(&vm, 5);
    assert!(matches!(refused, Err(PromoteError::Write(OwnerError::Precondition(ip, "active"))) if ip == vm.ips[0]), "{refused:?}");
    let now = block_on(vm.lab.ipam.assignment_attributes(vm.ips[0])).expect("assigned");
    assert_eq!((now.active, now.alternate), (pod("other-1"), pod("target")));
}
