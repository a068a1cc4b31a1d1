//! Object names, labels and handle ids (wire-format.md 2.4 – 2.6, 4).

use std::collections::BTreeMap;

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD, HEXLOWER};
use ipam::ids::Owner;
use ipam::model::Rows;
use ipnet::IpNet;
use sha2::Digest as _;

/// Label that holds the hash of the owner's name.
pub const LABEL_HASH: &str = "projectcalico.org/hostname-hash";
/// Label that holds the owner's type.
pub const LABEL_TYPE: &str = "projectcalico.org/affinity-type";
/// Label that holds the family.
pub const LABEL_VERSION: &str = "projectcalico.org/ip-version";

/// Longest name of an affinity; longer ones are shortened to this.
const AFFINITY_NAME: usize = 252;
/// Characters of the hash in a shortened affinity name.
const AFFINITY_HASH: usize = 11;
/// Longest VM handle id.
const VM_HANDLE: usize = 128;
/// Characters of the hash in a shortened VM handle id: all there are.
const VM_HASH: usize = 43;
/// Network of pods without another one.
const DEFAULT_NETWORK: &str = "k8s-pod-network";

/// Object name of a block, and the part of an affinity's name that stands for it.
pub fn cidr_name(cidr: IpNet) -> String {
    cidr.to_string().replace(['.', ':', '/'], "-")
}

/// Object name of an affinity. The owner's type is not in it: a host and a virtual owner of one name share it.
pub fn affinity_name(owner: &str, cidr: IpNet) -> String {
    let cidr = cidr_name(cidr);
    let name = format!("{owner}-{cidr}");
    if name.len() <= AFFINITY_NAME {
        return name;
    }
    let mut keep = AFFINITY_NAME - cidr.len() - AFFINITY_HASH - 2;
    while !owner.is_char_boundary(keep) {
        keep -= 1;
    }
    let hash = HEXLOWER.encode(&sha2::Sha256::digest(format!("{owner}+{cidr}")));
    format!("{}-{cidr}-{}", &owner[..keep], &hash[..AFFINITY_HASH])
}

/// Object name of a handle.
pub fn handle_name(id: &str) -> String {
    id.to_lowercase()
}

fn hostname_hash(owner: &Owner) -> String {
    BASE32_NOPAD.encode(&sha3::Sha3_256::digest(owner.name()))
}

/// The three labels of an affinity.
pub fn affinity_labels(owner: &Owner, cidr: IpNet) -> BTreeMap<String, String> {
    let version = if matches!(cidr, IpNet::V6(_)) { "6" } else { "4" };
    [(LABEL_HASH, hostname_hash(owner)), (LABEL_TYPE, owner.kind().into()), (LABEL_VERSION, version.into())]
        .map(|(k, v)| (k.to_owned(), v))
        .into()
}

/// Label selector of a list of affinities; `None`: all are listed, and the caller sorts out (rows without labels, or with wrong
/// ones, cannot be asked for).
pub fn affinity_selector(rows: &Rows) -> Option<String> {
    let Rows::Of(owner) = rows else { return None };
    let labels = [(LABEL_HASH, hostname_hash(owner)), (LABEL_TYPE, owner.kind().into())];
    Some(labels.map(|(key, value)| format!("{key}={value}")).join(","))
}

/// Why a VM has no handle id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("network name {0:?} leaves no room for a VM in a handle of {VM_HANDLE} characters")]
pub struct NoRoom(String);

/// Handle id of a KubeVirt VM: `<network>.vmi.<namespace>.<vm>`; hashed when longer than 128 characters (D-9, D-31).
///
/// # Errors
/// The network's name alone is too long.
pub fn vm_handle(network: &str, namespace: &str, vm: &str) -> Result<String, NoRoom> {
    let network = if network.is_empty() { DEFAULT_NETWORK } else { network };
    let prefix = format!("{network}.vmi.");
    let suffix = format!("{namespace}.{vm}");
    shorten(&prefix, &suffix, VM_HANDLE).ok_or_else(|| NoRoom(network.into()))
}

/// `prefix` and `suffix`, or `prefix`, `_` and as much of a hash of `suffix` as fits into `limit`.
fn shorten(prefix: &str, suffix: &str, limit: usize) -> Option<String> {
    let suffix = if suffix.is_empty() { "_" } else { suffix };
    let length = prefix.len() + suffix.len();
    if length < limit || (length == limit && !suffix.starts_with('_')) {
        return Some(format!("{prefix}{suffix}"));
    }
    let room = limit.checked_sub(prefix.len() + 1).filter(|room| *room > 0)?;
    let hash = BASE64URL_NOPAD.encode(&sha2::Sha256::digest(suffix));
    Some(format!("{prefix}_{}", &hash[..room.min(VM_HASH)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(cidr: &str) -> IpNet {
        cidr.parse().expect("a CIDR")
    }

    #[test]
    fn nam_01_nam_02_blocks_and_affinities() {
        assert_eq!(cidr_name(block("10.0.0.0/26")), "10-0-0-0-26");
        assert_eq!(cidr_name(block("fd80:24e2:f998:72d6::/122")), "fd80-24e2-f998-72d6---122");
        assert_eq!(affinity_name("host-a", block("10.0.0.0/26")), "host-a-10-0-0-0-26");
    }

    #[test]
    fn nam_03_nam_04_nam_05_long_hosts() {
        let cidr = block("10.0.0.0/26");
        assert_eq!(affinity_name(&"h".repeat(240), cidr).len(), 252);
        assert!(affinity_name(&"h".repeat(240), cidr).ends_with("hhh-10-0-0-0-26"));
        assert_eq!(affinity_name(&"h".repeat(241), cidr).len(), 252);
        assert!(!affinity_name(&"h".repeat(241), cidr).ends_with("hhh-10-0-0-0-26"));
        let host = "long--hostna".repeat(21);
        let name = affinity_name(&host, cidr);
        assert_eq!(name, format!("{}-10-0-0-0-26-fb0ffb1c45a", &host[..228]));
        // Two hosts of 252 characters that differ only at the end.
        let other = format!("{}b", &host[..251]);
        assert_ne!(affinity_name(&other, cidr), name);
        assert_eq!(affinity_name(&other, cidr)[..228], name[..228]);
    }

    #[test]
    fn nam_06_handles_are_lower_case_as_objects_only() {
        assert_eq!(handle_name("Net1.ABC"), "net1.abc");
    }

    #[test]
    fn upg_06_upg_08_labels() {
        let labels = affinity_labels(&Owner::Host("node-a".into()), block("10.0.0.0/24"));
        assert_eq!(labels[LABEL_HASH], "PY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA");
        assert_eq!((labels[LABEL_TYPE].as_str(), labels[LABEL_VERSION].as_str()), ("host", "4"));
        let other = affinity_labels(&Owner::Virtual("node-b".into()), block("2001:db8::/122"));
        assert_ne!(labels[LABEL_HASH], other[LABEL_HASH]);
        assert_eq!((other[LABEL_TYPE].as_str(), other[LABEL_VERSION].as_str()), ("virtual", "6"));
    }

    #[test]
    fn upg_09_upg_10_lists_by_owner_ask_for_labels() {
        assert_eq!(
            (LABEL_HASH, LABEL_TYPE, LABEL_VERSION),
            ("projectcalico.org/hostname-hash", "projectcalico.org/affinity-type", "projectcalico.org/ip-version")
        );
        assert_eq!((affinity_selector(&Rows::All), affinity_selector(&Rows::NotIndexed)), (None, None));
        let owners = [Owner::Host("node-a".into()), Owner::Host("node-b".into()), Owner::Virtual("node-a".into())];
        for wanted in &owners {
            let selector = affinity_selector(&Rows::Of(wanted.clone())).expect("by labels");
            for there in &owners {
                for cidr in ["10.0.0.0/26", "fd00::/122"] {
                    let labels = affinity_labels(there, block(cidr));
                    let selected = selector.split(',').filter_map(|l| l.split_once('=')).all(|(k, v)| labels[k] == v);
                    assert_eq!(selected, wanted == there, "{wanted} {there}");
                }
            }
        }
    }

    #[test]
    fn vmo_10_vmo_11_vmo_12_vm_handles_and_names_with_a_limit() {
        assert_eq!(vm_handle("", "default", "vm1").as_deref(), Ok("k8s-pod-network.vmi.default.vm1"));
        let long = vm_handle("k8s-pod-network", "default", &"v".repeat(110));
        assert_eq!(long.as_deref(), Ok("k8s-pod-network.vmi._WHqOMw4aVZ1Gci89kfHg5pQcurEqWSX2WLE_jCLqUO8"));
        let exact = vm_handle("n", "ns", &"v".repeat(128 - "n.vmi.ns.".len()));
        assert_eq!(exact.map(|h| (h.len(), h.contains('_'))), Ok((128, false)));
        assert!(vm_handle(&"w".repeat(123), "ns", "vm").is_err());
        assert!(vm_handle(&"w".repeat(121), "nsnsnsnsns", "vm").is_ok_and(|h| h.len() == 128));
    }

    #[test]
    fn the_shortening_rule_with_other_limits() {
        assert_eq!(shorten("felix", "_2345", 10).as_deref(), Some("felix_kMQI"));
        assert_eq!(shorten("felix", "12345678910", 13).as_deref(), Some("felix_Y2QCZIS"));
        assert_eq!(shorten("felix", "", 10).as_deref(), Some("felix_"));
    }
}
