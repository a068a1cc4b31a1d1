//! Pods, nodes, VMs → the few facts we keep (wire-format.md 11 – 13, gc.md 9.1).

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam_accounting::facts::{Finished, NodeFacts, PodFacts, VmiFacts};
use ipnet::IpNet;
use serde::Deserialize;

use crate::opt_out::OptOut;

/// The parts of pods, nodes, VMs and VM instances that we look at; everything else is passed over while decoding.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoreObject {
    /// `apiVersion`.
    #[serde(default)]
    pub api_version: Option<String>,
    /// `kind`.
    #[serde(default)]
    pub kind: Option<String>,
    /// `metadata`.
    #[serde(default)]
    pub metadata: Option<Metadata>,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Status>,
}

/// The parts of an object's metadata that we look at.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// `name`.
    #[serde(default)]
    pub name: Option<String>,
    /// `namespace`.
    #[serde(default)]
    pub namespace: Option<String>,
    /// `uid`.
    #[serde(default)]
    pub uid: Option<String>,
    /// `resourceVersion`.
    #[serde(default)]
    pub resource_version: Option<String>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Debug, Deserialize)]
struct OwnerReference {
    #[serde(default)]
    kind: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    host_network: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    phase: Option<String>,
    #[serde(default, rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(default, rename = "podIPs")]
    pod_ips: Option<Vec<PodIp>>,
}

#[derive(Debug, Deserialize)]
struct PodIp {
    #[serde(default)]
    ip: Option<String>,
}

#[derive(Deserialize)]
struct NetworkStatus {
    #[serde(default)]
    ips: Vec<String>,
}

const POD_IP: &str = "cni.projectcalico.org/podIP";
const POD_IPS: &str = "cni.projectcalico.org/podIPs";
const AWS_IPS: &str = "vpc.amazonaws.com/pod-ips";
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
const FLOATING: &str = "cni.projectcalico.org/floatingIPs";
const SOURCES: &str = "cni.projectcalico.org/allowedSourcePrefixes";
const MIGRATION: &str = "projectcalico.org/node-network-during-migration";
const NODE_LABELS: &str = "projectcalico.org/labels";

fn text(of: &Option<String>) -> Option<&str> {
    of.as_deref().filter(|s| !s.is_empty())
}

impl CoreObject {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.as_ref()?.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// As a pod. Every source of addresses counts, not only the first: more addresses can only keep more in use.
    pub fn pod(&self) -> PodFacts<String> {
        let (spec, status) = (self.spec.as_ref(), self.status.as_ref());
        let mut facts = PodFacts {
            node: spec.and_then(|s| text(&s.node_name)).map(Into::into),
            host_network: spec.and_then(|s| s.host_network).unwrap_or(false),
            finished: self.finished(),
            ..PodFacts::default()
        };
        let listed = status.and_then(|s| s.pod_ips.as_ref()).into_iter().flatten().filter_map(|i| text(&i.ip));
        let reported: Vec<&str> = listed.chain(status.and_then(|s| text(&s.pod_ip))).collect();
        facts.reported = !reported.is_empty();
        let annotated = [POD_IPS, POD_IP, AWS_IPS].into_iter().filter_map(|key| self.annotation(key)).flat_map(|list| list.split(','));
        for entry in reported.into_iter().chain(annotated).map(str::trim).filter(|e| !e.is_empty()) {
            match address(entry) {
                Some(ip) => add(&mut facts, ip),
                None => facts.unclear = true,
            }
        }
        self.secondary(&mut facts);
        facts.unclear |= self.unreadable_annotations(!facts.ips.is_empty());
        facts
    }

    fn finished(&self) -> Option<Finished> {
        match self.status.as_ref().and_then(|s| s.phase.as_deref()) {
            Some("Succeeded" | "Completed") => return Some(Finished::Succeeded),
            Some("Failed") => return Some(Finished::Failed),
            _ => {}
        }
        let deleting = self.metadata.as_ref().is_some_and(|m| text(&m.deletion_timestamp).is_some());
        let network_gone = [POD_IP, AWS_IPS].into_iter().any(|key| self.annotation(key) == Some(""));
        (deleting && network_gone).then_some(Finished::NetworkGone)
    }

    /// Addresses of secondary interfaces (D-26).
    fn secondary(&self, facts: &mut PodFacts<String>) {
        let Some(text) = self.annotation(NETWORK_STATUS).filter(|t| !t.trim().is_empty()) else { return };
        let Ok(networks) = serde_json::from_str::<Vec<NetworkStatus>>(text) else {
            facts.unclear = true;
            return;
        };
        for ip in networks.iter().flat_map(|n| &n.ips) {
            match address(ip) {
                Some(ip) => add(facts, ip),
                None => facts.unclear = true,
            }
        }
    }

    fn unreadable_annotations(&self, has_address: bool) -> bool {
        let floating = self.annotation(FLOATING).filter(|_| has_address);
        let floating = floating.is_some_and(|t| serde_json::from_str::<Vec<String>>(t).is_err());
        let sources = self.annotation(SOURCES).filter(|t| !t.is_empty());
        floating || sources.is_some_and(|t| serde_json::from_str::<Vec<IpNet>>(t).is_err())
    }

    /// As a node.
    pub fn node(&self) -> NodeFacts {
        let hidden = self.annotation(NODE_LABELS).and_then(|t| serde_json::from_str::<BTreeMap<String, String>>(t).ok());
        let mut labels = hidden.unwrap_or_default();
        labels.extend(self.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default());
        NodeFacts { migrating: labels.get(MIGRATION).is_some_and(|v| v != "calico"), labels }
    }

    /// What it says about releasing.
    pub fn opt_out(&self) -> Option<OptOut> {
        OptOut::of(|key| self.annotation(key).map(str::to_owned))
    }

    /// As a VM instance.
    pub fn vmi(&self) -> VmiFacts {
        let owners = self.metadata.as_ref().and_then(|m| m.owner_references.as_ref());
        VmiFacts { owned_by_vm: owners.into_iter().flatten().any(|o| o.kind.as_deref() == Some("VirtualMachine")) }
    }
}

/// An address, or the network address of a CIDR.
fn address(entry: &str) -> Option<IpAddr> {
    entry.parse().ok().or_else(|| entry.parse::<IpNet>().ok().map(|n| n.network()))
}

fn add(facts: &mut PodFacts<String>, ip: IpAddr) {
    if !facts.ips.contains(&ip) {
        facts.ips.push(ip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(value: serde_json::Value) -> PodFacts<String> {
        serde_json::from_value::<CoreObject>(value).expect("a pod").pod()
    }

    #[test]
    fn gcc_15_gcc_24_every_source_of_addresses_counts() {
        let facts = pod(json!({
            "metadata": {"annotations": {POD_IP: "10.0.0.9/32", NETWORK_STATUS: "[{\"name\":\"a\"},{\"ips\":[\"10.0.0.3\"]}]"}},
            "spec": {"nodeName": "n"},
            "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}
        }));
        let ips: Vec<String> = facts.ips.iter().map(ToString::to_string).collect();
        assert_eq!(ips, ["10.0.0.1", "fd00::1", "10.0.0.9", "10.0.0.3"]);
        assert!(facts.reported && !facts.unclear && facts.finished.is_none());
        assert_eq!(facts.node.as_deref(), Some("n"));
    }

    #[test]
    fn gcc_13_an_annotation_alone_is_not_a_report() {
        let facts = pod(json!({"metadata": {"annotations": {POD_IP: "10.0.0.9/32"}}, "status": {"phase": "Pending"}}));
        assert!(!facts.reported && facts.ips.len() == 1);
        assert!(!pod(json!({"spec": null, "status": {"podIP": "", "podIPs": []}})).reported);
    }

    #[test]
    fn gcc_21_gcc_22_gcc_23_finished() {
        for (phase, how) in [
            ("Succeeded", Some(Finished::Succeeded)),
            ("Completed", Some(Finished::Succeeded)),
            ("Failed", Some(Finished::Failed)),
            ("Running", None),
        ] {
            assert_eq!(pod(json!({"status": {"phase": phase}})).finished, how, "{phase}");
        }
        let gone = |deleted: bool, key: &str, value: &str| {
            let mut metadata = json!({"annotations": {key: value}});
            if deleted {
                metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            pod(json!({"metadata": metadata})).finished
        };
        for key in [POD_IP, AWS_IPS] {
            assert_eq!(gone(true, key, ""), Some(Finished::NetworkGone));
            assert_eq!(gone(true, key, "10.0.0.1"), None, "a terminating pod that still runs");
            assert_eq!(gone(false, key, ""), None);
        }
    }

    #[test]
    fn gcc_25_what_cannot_be_read_makes_the_pod_unclear() {
        let with =
            |key: &str, value: &str| pod(json!({"metadata": {"annotations": {key: value}}, "status": {"podIP": "10.0.0.1"}})).unclear;
        assert!(pod(json!({"status": {"podIP": "10.0.0.300"}})).unclear);
        assert!(with(NETWORK_STATUS, "not json") && with(FLOATING, "{}") && with(SOURCES, "[\"x\"]"));
        assert!(!with(NETWORK_STATUS, "") && !with(FLOATING, "[\"1.2.3.4\"]") && !with(SOURCES, "[\"10.0.0.0/8\"]"));
        let partly = pod(json!({"status": {"podIPs": [{"ip": "rubbish"}, {"ip": "10.0.0.2"}]}}));
        assert!(partly.unclear && partly.ips.len() == 1, "what can be read is kept");
    }

    #[test]
    fn gce_09_a_node_under_migration() {
        let node = |v: serde_json::Value| serde_json::from_value::<CoreObject>(v).expect("a node").node();
        assert!(node(json!({"metadata": {"labels": {MIGRATION: "flannel"}}})).migrating);
        assert!(!node(json!({"metadata": {"labels": {MIGRATION: "calico"}}})).migrating);
        let merged = node(json!({"metadata": {"labels": {"a": "k8s"}, "annotations": {NODE_LABELS: "{\"a\":\"x\",\"b\":\"y\"}"}}}));
        assert_eq!((merged.labels["a"].as_str(), merged.labels["b"].as_str()), ("k8s", "y"));
    }
}
