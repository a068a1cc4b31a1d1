//! Pods, nodes and VMs come and go.

use std::net::IpAddr;

use super::{Inventory, Known, NodeSlot, PodSlot, Population, VmSlot, grow};
use crate::facts::{Lookup, NodeFacts, NodeId, PodFacts, PodId, VmId, VmiFacts};
use crate::set::number;

/// One text of namespace and name.
fn key(namespace: &str, name: &str) -> String {
    let mut key = String::with_capacity(namespace.len() + name.len() + 1);
    key.push_str(namespace);
    key.push('/');
    key.push_str(name);
    key
}

fn known<T>(lookup: Lookup<T>) -> Known<T> {
    match lookup {
        Lookup::Seen(facts) => Known::Yes(facts),
        Lookup::Absent => Known::No,
        Lookup::Unsure => Known::Bad,
    }
}

/// Takes over what is known now; answers whether there was something, and whether there is.
fn replace<T>(old: &mut Known<T>, facts: Lookup<T>) -> (bool, bool) {
    let was = !matches!(std::mem::replace(old, known(facts)), Known::No);
    (was, !matches!(old, Known::No))
}

impl Inventory {
    /// Takes over a pod: seen, gone, or not understood.
    pub fn put_pod(&mut self, namespace: &str, name: &str, facts: Lookup<PodFacts<&str>>) {
        let pod = self.acquire_pod(namespace, name);
        let facts = known(facts.map(|f| f.map_node(|n| self.acquire_node(n))));
        if let Known::Yes(facts) = &facts
            && facts.vouches()
        {
            let ips = facts.ips.clone();
            ips.iter().for_each(|ip| self.add_reporter(*ip, pod));
        }
        let stays = !matches!(facts, Known::No);
        let old = std::mem::replace(&mut self.pod_slots[pod.0 as usize].facts, facts);
        if stays {
            self.pods.share(pod.0);
        }
        let was = !matches!(old, Known::No);
        self.count(|p| &mut p.pods, was, stays);
        if let Known::Yes(old) = old {
            if old.vouches() {
                old.ips.iter().for_each(|ip| self.remove_reporter(*ip, pod));
            }
            if let Some(node) = old.node {
                self.release_node(node);
            }
        }
        let blocks = self.pod_slots[pod.0 as usize].allocs.iter().map(|a| a.block);
        self.dirty.blocks.extend(blocks);
        if was {
            self.release_pod(pod.0);
        }
        self.release_pod(pod.0);
    }

    /// The number of a pod key, if anything mentions it.
    pub fn pod_id(&self, namespace: &str, name: &str) -> Option<PodId> {
        self.pods.find(&key(namespace, name)).map(PodId)
    }

    /// Takes over a node: seen, gone, or not understood.
    pub fn put_node(&mut self, name: &str, facts: Lookup<NodeFacts>) {
        let node = self.acquire_node(name);
        let facts = known(facts);
        let stays = !matches!(facts, Known::No);
        let old = std::mem::replace(&mut self.node_slots[node.0 as usize].facts, facts);
        self.mark_node(node);
        let was = !matches!(old, Known::No);
        self.count(|p| &mut p.nodes, was, stays);
        if stays {
            self.nodes.share(node.0);
        }
        if was {
            self.release_node(node);
        }
        self.release_node(node);
    }

    /// The number of a VM key, if anything mentions it.
    pub fn vm_id(&self, namespace: &str, name: &str) -> Option<VmId> {
        self.vms.find(&key(namespace, name)).map(VmId)
    }

    /// Takes over a VM: seen, gone, or not understood.
    pub fn put_vm(&mut self, namespace: &str, name: &str, facts: Lookup<()>) {
        self.put_either(namespace, name, |p| &mut p.vms, |slot| replace(&mut slot.vm, facts));
    }

    /// Takes over a VM instance: seen, gone, or not understood.
    pub fn put_vmi(&mut self, namespace: &str, name: &str, facts: Lookup<VmiFacts>) {
        self.put_either(namespace, name, |p| &mut p.vmis, |slot| replace(&mut slot.vmi, facts));
    }

    fn put_either(
        &mut self,
        namespace: &str,
        name: &str,
        of: impl Fn(&mut Population) -> &mut usize,
        change: impl FnOnce(&mut VmSlot) -> (bool, bool),
    ) {
        let vm = self.acquire_vm(namespace, name);
        let (was, is) = change(&mut self.vm_slots[vm.0 as usize]);
        self.count(of, was, is);
        let blocks = self.vm_slots[vm.0 as usize].allocs.iter().map(|a| a.block);
        self.dirty.blocks.extend(blocks);
        if is {
            self.vms.share(vm.0);
        }
        if was {
            self.release_vm(vm.0);
        }
        self.release_vm(vm.0);
    }

    fn mark_node(&mut self, node: NodeId) {
        self.dirty.nodes.insert(node);
        let slot = &self.node_slots[node.0 as usize];
        self.dirty.blocks.extend(slot.touched.keys().chain(slot.owned.values()));
    }

    fn add_reporter(&mut self, ip: IpAddr, pod: PodId) {
        let before = match ip {
            IpAddr::V4(v4) => *self.reporters_v4.entry(u32::from(v4)).or_insert(pod),
            IpAddr::V6(_) => *self.reporters_v6.entry(number(ip)).or_insert(pod),
        };
        if before != pod {
            let more = self.more_reporters.entry(ip).or_default();
            if !more.contains(&pod) {
                more.push(pod);
            }
        }
        self.mark_ip(ip);
    }

    fn remove_reporter(&mut self, ip: IpAddr, pod: PodId) {
        // The pod may report the address still: its new facts are already in.
        let still = matches!(&self.pod_slots[pod.0 as usize].facts, Known::Yes(f) if f.vouches() && f.ips.contains(&ip));
        if still {
            return;
        }
        let mut others = self.more_reporters.remove(&ip).unwrap_or_default();
        others.retain(|p| *p != pod);
        if self.first_reporter(ip) == Some(pod) {
            let next = others.pop();
            match (ip, next) {
                (IpAddr::V4(v4), Some(next)) => drop(self.reporters_v4.insert(u32::from(v4), next)),
                (IpAddr::V4(v4), None) => drop(self.reporters_v4.remove(&u32::from(v4))),
                (IpAddr::V6(_), Some(next)) => drop(self.reporters_v6.insert(number(ip), next)),
                (IpAddr::V6(_), None) => drop(self.reporters_v6.remove(&number(ip))),
            }
        }
        if !others.is_empty() {
            self.more_reporters.insert(ip, others);
        }
        self.mark_ip(ip);
    }

    pub(super) fn acquire_pod(&mut self, namespace: &str, name: &str) -> PodId {
        let id = self.pods.acquire(&key(namespace, name));
        grow(&mut self.pod_slots, id);
        PodId(id)
    }

    pub(super) fn release_pod(&mut self, pod: u32) {
        if self.pods.release(pod) {
            self.pod_slots[pod as usize] = PodSlot::default();
        }
    }

    pub(super) fn acquire_node(&mut self, name: &str) -> NodeId {
        let id = self.nodes.acquire(name);
        grow(&mut self.node_slots, id);
        NodeId(id)
    }

    pub(super) fn release_node(&mut self, node: NodeId) {
        if self.nodes.release(node.0) {
            self.node_slots[node.0 as usize] = NodeSlot::default();
            self.dirty.nodes.remove(&node);
        }
    }

    pub(super) fn acquire_vm(&mut self, namespace: &str, name: &str) -> VmId {
        let id = self.vms.acquire(&key(namespace, name));
        grow(&mut self.vm_slots, id);
        VmId(id)
    }

    pub(super) fn release_vm(&mut self, vm: u32) {
        if self.vms.release(vm) {
            self.vm_slots[vm as usize] = VmSlot::default();
        }
    }
}
