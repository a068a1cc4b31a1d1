//! Round trips of both groups, and what is read leniently.

use super::*;
use ipam::model::{AffinityKind, AffinityState, Allocatable, BlockKind, ClusterKind, ConfigKind, HandleKind, PoolKind, ReservationKind};

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

fn read<K: Wire>(value: &Value, group: Group) -> Decoded<K> {
    decode::<K>(object(value), group).expect("understood")
}

fn field<K: Wire>(value: &Value, group: Group) -> String {
    decode::<K>(object(value), group).expect_err("not understood").to_string()
}

fn block() -> Value {
    json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "IPAMBlock",
        "metadata": {"name": "10-244-1-64-30", "uid": "u", "resourceVersion": "7", "labels": {"mine": "kept"},
            "annotations": {"projectcalico.org/metadata": "{\"creationTimestamp\":null}"}},
        "spec": {"cidr": "10.244.1.64/30", "affinity": "host:node-1", "affinityClaimTime": "2026-11-29T19:06:14Z",
            "allocations": [0, null, 1, null], "unallocated": [3, 1],
            "attributes": [
                {"handle_id": "k8s-pod-network.0f3c", "secondary": {"pod": "web-0", "namespace": "default"}, "alternateOwnerAttrs": {"x": "y"}, "futureField": {"a": 1}},
                {"releasedAt": "2026-11-29T19:07:00Z"}],
            "sequenceNumber": 9_223_372_036_854_775_807i64,
            "sequenceNumberForAllocation": {"0": 1_795_979_174_000_000_001i64, "2": 1_795_979_174_000_000_003i64},
            "deleted": false, "strictAffinity": false, "futureField": [1, 2]}
    })
}

#[test]
fn del_15_blk_23_blocks_survive_the_round_trip_with_everything_that_we_do_not_model() {
    for group in [Group::V1, Group::V3] {
        let mut value = block();
        value["apiVersion"] = group.api_version().into();
        let decoded = read::<BlockKind>(&value, group);
        assert_eq!(Value::Object(encode(&decoded.row, group)), value, "{group}");
        let b = &decoded.row.value;
        assert_eq!((b.seq, b.seq_of(0), b.seq_of(1)), (i64::MAX, 1_795_979_174_000_000_001, 0));
        assert_eq!(b.attributes[0].active["pod"], "web-0");
        // After renumbering the unknown field stays with its entry; an entry that has one is never shared.
        let mut changed = decoded.row.clone();
        changed.value.attributes.insert(0, ipam::Attribute { handle: Some("new".into()), ..ipam::Attribute::default() });
        changed.value.allocations = vec![Some(1), Some(0), Some(2), None];
        let written = Value::Object(encode(&changed, group));
        assert_eq!(written["spec"]["attributes"][1]["futureField"], json!({"a": 1}));
        assert_eq!(written["spec"]["attributes"][0], json!({"handle_id": "new"}), "absent when empty");
    }
}

#[test]
fn col_06_col_07_times_survive_and_are_rounded_up() {
    let mut decoded = read::<BlockKind>(&block(), Group::V1);
    let at = chrono::DateTime::parse_from_rfc3339("2026-06-15T12:00:00Z").expect("a time").to_utc();
    for (stored, written) in [(at, "2026-06-15T12:00:00Z"), (at + chrono::TimeDelta::milliseconds(1), "2026-06-15T12:00:01Z")] {
        decoded.row.value.attributes[1].released_at = Some(stored);
        let value = Value::Object(encode(&decoded.row, Group::V1));
        assert_eq!(value["spec"]["attributes"][1]["releasedAt"], written);
    }
    let mut value = block();
    value["spec"]["attributes"][1]["releasedAt"] = "2026-06-15T14:00:00.5+02:00".into();
    assert_eq!(read::<BlockKind>(&value, Group::V1).row.value.cold_since(), Some(at + chrono::TimeDelta::milliseconds(500)));
}

#[test]
fn old_blocks_lack_fields_and_read_as_zero() {
    let value = json!({"metadata": {"name": "10-0-0-0-31"}, "spec": {"cidr": "10.0.0.0/31", "allocations": [0, null], "unallocated": [1],
        "attributes": [{"handle_id": null, "secondary": null}], "affinity": "", "strictAffinity": true}});
    let row = read::<BlockKind>(&value, Group::V1).row;
    assert_eq!((row.value.seq, row.value.seq_of(0), row.value.affinity.clone(), row.value.claim_time), (0, 0, None, None));
    let written = Value::Object(encode(&row, Group::V1));
    assert_eq!(
        (&written["spec"]["strictAffinity"], &written["spec"]["affinity"], &written["spec"]["deleted"]),
        (&json!(false), &Value::Null, &json!(false))
    );
}

#[test]
fn d_38_fields_that_are_not_understood_are_named() {
    let with = |path: &str, to: Value| {
        let mut value = block();
        *value.pointer_mut(path).expect("there") = to;
        field::<BlockKind>(&value, Group::V1)
    };
    assert!(with("/spec/sequenceNumber", json!(-1)).starts_with("spec.sequenceNumber: -1 is negative"));
    assert!(with("/spec/sequenceNumber", json!(1u64 << 63)).contains("2^63"));
    assert!(with("/spec/sequenceNumber", json!(1.5)).contains("not an integer"));
    assert!(with("/spec/sequenceNumberForAllocation/0", json!("x")).starts_with("spec.sequenceNumberForAllocation[0]"));
    assert!(with("/spec/allocations", json!(7)).starts_with("spec.allocations"));
    assert!(with("/spec/allocations/0", json!(2)).contains("attribute 2"));
    assert!(with("/spec/attributes/0/secondary/pod", json!(1)).starts_with("spec.attributes[0].secondary.pod"));
    assert!(with("/spec/attributes/1/releasedAt", json!("soon")).starts_with("spec.attributes[1].releasedAt"));
    assert!(with("/spec/cidr", json!("10.244.1.64/33")).starts_with("spec.cidr"));
    assert!(with("/spec", json!(null)).starts_with("spec"));
    assert!(with("/metadata/name", json!("other")).starts_with("metadata.name"));
}

fn affinity(group: Group) -> Value {
    let deleted = if group == Group::V1 { json!("false") } else { json!(false) };
    let labels = crate::names::affinity_labels(&ipam::Owner::Host("node-1".into()), "10.0.0.0/26".parse().expect("a CIDR"));
    let mut labels = json!(labels);
    labels["custom"] = "keep".into();
    json!({"apiVersion": group.api_version(), "kind": "BlockAffinity", "metadata": {"name": "node-1-10-0-0-0-26", "uid": "u", "labels": labels},
        "spec": {"state": "confirmed", "node": "node-1", "type": "host", "cidr": "10.0.0.0/26", "deleted": deleted, "futureField": 1}})
}

#[test]
fn upg_05_upg_07_del_11_affinities_keep_foreign_labels_and_get_theirs() {
    for group in [Group::V1, Group::V3] {
        let value = affinity(group);
        let row = read::<AffinityKind>(&value, group).row;
        assert!(row.value.indexed);
        assert_eq!(Value::Object(encode(&row, group)), value, "{group}");
        // Old rows: no labels, no type.
        let mut old = value.clone();
        old["metadata"]["labels"] = json!({"custom": "keep"});
        old["spec"]["type"] = json!("");
        let mut row = read::<AffinityKind>(&old, group).row;
        assert!(!row.value.indexed && row.key.0 == ipam::Owner::Host("node-1".into()));
        row.value.state = AffinityState::PendingDeletion;
        let written = Value::Object(encode(&row, group));
        assert_eq!(
            (&written["metadata"]["labels"], &written["spec"]["type"], &written["spec"]["state"]),
            (&value["metadata"]["labels"], &json!("host"), &json!("pendingDeletion"))
        );
        // A new row of v1 carries the labels in the metadata annotation, too.
        let new = Value::Object(encode::<AffinityKind>(&Row { extra: Extra::NONE, ..row }, group));
        let annotation = new["metadata"]["annotations"]["projectcalico.org/metadata"].as_str();
        assert_eq!(
            annotation.is_some_and(|a| a.starts_with("{\"labels\":{\"projectcalico.org/affinity-type\":\"host\"")),
            group == Group::V1
        );
    }
}

#[test]
fn del_12_del_13_del_14_the_deleted_flag_and_the_states() {
    let with = |deleted: Value| {
        let mut value = affinity(Group::V1);
        value["spec"]["deleted"] = deleted;
        decode::<AffinityKind>(object(&value), Group::V1).map(|d| d.half_deleted)
    };
    for (text, want) in [("", false), ("false", false), ("0", false), ("F", false), ("true", true), ("1", true), ("T", true)] {
        assert_eq!(with(json!(text)), Ok(want), "{text:?}");
    }
    assert_eq!((with(json!(true)), with(json!(null))), (Ok(true), Ok(false)));
    assert!(with(json!("x")).is_err() && with(json!(1)).is_err());
    for (text, want) in [
        ("", AffinityState::Old),
        ("pending", AffinityState::Pending),
        ("confirmed", AffinityState::Confirmed),
        ("pendingDeletion", AffinityState::PendingDeletion),
    ] {
        let mut value = affinity(Group::V3);
        value["spec"]["state"] = text.into();
        assert_eq!(read::<AffinityKind>(&value, Group::V3).row.value.state, want);
    }
}

#[test]
fn nam_08_host_and_virtual_owners_of_one_name_share_an_object_and_are_told_apart() {
    let mut value = affinity(Group::V3);
    value["spec"]["type"] = "virtual".into();
    let (host, virt) = (read::<AffinityKind>(&affinity(Group::V3), Group::V3).row, read::<AffinityKind>(&value, Group::V3).row);
    assert_eq!(AffinityKind::object_name(&host.key), AffinityKind::object_name(&virt.key));
    assert_ne!(host.key, virt.key);
    assert!(!virt.value.indexed, "its labels say host");
}

#[test]
fn nam_07_handles_that_differ_by_case_are_different_keys_of_one_object() {
    let handle = |id: &str| json!({"metadata": {"name": "h1"}, "spec": {"handleID": id, "block": {"10.0.0.0/26": 1}, "deleted": false, "futureField": 1}});
    let (lower, upper) = (read::<HandleKind>(&handle("h1"), Group::V3).row, read::<HandleKind>(&handle("H1"), Group::V3).row);
    assert_ne!(lower.key, upper.key);
    assert_eq!(HandleKind::object_name(&lower.key), HandleKind::object_name(&upper.key));
    assert_eq!(Value::Object(encode(&upper, Group::V3)), handle("H1"));
    assert!(field::<HandleKind>(&handle("h2"), Group::V3).starts_with("metadata.name"));
    let mut odd = handle("h1");
    odd["spec"]["block"] = json!({"10.0.0.0/26": -1});
    assert!(field::<HandleKind>(&odd, Group::V3).contains("negative"));
}

#[test]
fn nam_09_cfg_09_configurations_of_both_groups() {
    let full = json!({"strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 7, "kubeVirtVMAddressPersistence": "Disabled", "ipCooldownSeconds": 30});
    for group in [Group::V1, Group::V3] {
        let value = json!({"metadata": {"name": "default"}, "spec": full});
        let row = read::<ConfigKind>(&value, group).row;
        assert_eq!((row.value.max_blocks_per_host, row.value.vm_address_persistence, row.value.cooldown_seconds), (7, false, 30));
        assert_eq!(Value::Object(encode(&row, group)), value);
        assert!(field::<ConfigKind>(&json!({"metadata": {"name": "other"}, "spec": full}), group).starts_with("metadata.name"));
    }
    let absent = json!({"metadata": {"name": "default"}, "spec": {"strictAffinity": true}});
    assert!(!read::<ConfigKind>(&absent, Group::V1).row.value.auto_allocate_blocks, "no default of the API server on v1");
    assert!(read::<ConfigKind>(&absent, Group::V3).row.value.auto_allocate_blocks);
}

#[test]
fn plst_08_pools_read_with_their_defaults_and_conditions() {
    let pool = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
    let plain = read::<PoolKind>(&pool(json!({"cidr": "10.0.0.0/24"})), Group::V1).row.value;
    assert_eq!(
        (plain.block_size, plain.node_selector.as_str(), plain.allowed_uses.join(","), plain.manual, plain.disabled),
        (26, "all()", "Workload,Tunnel".into(), false, false)
    );
    assert_eq!(read::<PoolKind>(&pool(json!({"cidr": "fd00::/112", "blockSize": 0})), Group::V1).row.value.block_size, 122);
    assert_eq!(read::<PoolKind>(&pool(json!({"cidr": "rubbish"})), Group::V1).row.value.cidr, Err("rubbish".into()));
    let mut full = pool(json!({"cidr": "10.0.0.0/24", "assignmentMode": "Manual", "natOutgoing": true}));
    full["status"] = json!({"conditions": [{"type": "Other", "status": "True"}, {"type": "Allocatable", "status": "False"}]});
    full["metadata"]["annotations"] = json!({"projectcalico.org/metadata": "{\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"}"});
    let row = read::<PoolKind>(&full, Group::V1).row;
    assert_eq!((row.value.manual, row.value.allocatable, row.value.deleting), (true, Allocatable::False, true));
    let reservation = json!({"metadata": {"name": "r"}, "spec": {"reservedCIDRs": [" 10.0.0.1 ", "rubbish"]}});
    assert_eq!(read::<ReservationKind>(&reservation, Group::V3).row.value.set().len(), 1);
    let cluster = json!({"metadata": {"name": "default"}, "spec": {"clusterGUID": "g", "datastoreReady": false}});
    assert_eq!(read::<ClusterKind>(&cluster, Group::V1).row.value.ready, Some(false));
}
