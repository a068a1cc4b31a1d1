//! Index repair (D-18): one test per kind of finding, each with something beside it that stays.

use futures::executor::block_on;
use ipam::audit::{self, Finding, FindingKind, Snapshot};
use ipam::model::{Affinity, AffinityKind, AffinityState, BlockKind, Handle, HandleKind};
use ipam::repair::Repaired;
use ipam::{Clock as _, HandleId, Owner, StoreError};
use ipam_tests::faulty::row_name;
use ipam_tests::lab::{Lab, cidr, want};

/// One host with a block, two handles with an address each.
fn lab() -> Lab {
    let lab = Lab::new(&["10.0.0.0/28@30"], &["a", "b"]);
    lab.ips(&want("a", 1).handle("h"));
    lab.ips(&want("a", 1).handle("other"));
    lab.assert_clean();
    lab
}

fn findings(lab: &Lab) -> Vec<Finding> {
    let snapshot = block_on(Snapshot::read(&lab.store, Vec::new(), false)).expect("readable");
    audit::audit(&snapshot, None, lab.clock.now())
}

/// The one finding, of this kind.
fn only(lab: &Lab, kind: FindingKind) -> Finding {
    let found = findings(lab);
    assert_eq!(found.iter().map(|f| f.kind).collect::<Vec<_>>(), [kind]);
    found.into_iter().next().expect("one")
}

/// Repairs the one finding; the blocks and the other handle stay as they are.
fn repaired(lab: &Lab, kind: FindingKind) {
    let blocks = lab.store.rows::<BlockKind>();
    let finding = only(lab, kind);
    assert_eq!(block_on(lab.ipam.repair(&finding)), Ok(Repaired::Done));
    assert_eq!(findings(lab), []);
    assert_eq!(lab.count("other"), Some(1));
    let addresses = |rows: &[ipam::Row<BlockKind>]| rows.iter().map(|r| r.value.in_use()).filter(|i| !i.is_empty()).collect::<Vec<_>>();
    assert_eq!(addresses(&lab.store.rows::<BlockKind>()), addresses(&blocks), "no allocation changed");
    assert_eq!(block_on(lab.ipam.repair(&finding)), Ok(Repaired::Stale), "once is enough");
}

fn block(lab: &Lab) -> ipam::BlockCidr {
    lab.store.rows::<BlockKind>()[0].key
}

#[test]
fn a_handle_that_counts_too_many_counts_right_again() {
    let lab = lab();
    lab.put::<HandleKind>(HandleId::new("h"), Handle { id: "h".into(), blocks: [(block(&lab), 3)].into() });
    repaired(&lab, FindingKind::HandleCount);
    assert_eq!(lab.count("h"), Some(1));
}

#[test]
fn a_handle_that_counts_too_few_counts_right_again() {
    let lab = lab();
    lab.ips(&want("a", 1).handle("h"));
    lab.put::<HandleKind>(HandleId::new("h"), Handle { id: "h".into(), blocks: [(block(&lab), 1)].into() });
    repaired(&lab, FindingKind::HandleCount);
    assert_eq!(lab.count("h"), Some(2));
}

#[test]
fn an_orphan_handle_goes() {
    let lab = lab();
    lab.put::<HandleKind>(HandleId::new("gone"), Handle { id: "gone".into(), blocks: [(cidr("10.9.0.0/30"), 1)].into() });
    repaired(&lab, FindingKind::HandleOrphan);
    assert_eq!((lab.count("gone"), lab.count("h")), (None, Some(1)));
}

#[test]
fn a_missing_handle_comes_back() {
    let lab = lab();
    lab.store.take::<HandleKind>(&HandleId::new("h"));
    repaired(&lab, FindingKind::HandleMissing);
    assert_eq!(lab.count("h"), Some(1));
}

#[test]
fn a_half_deleted_row_is_finished() {
    let lab = lab();
    let (row, _) = lab.store.peek::<HandleKind>(&HandleId::new("other")).expect("there");
    let key = HandleId::new("half");
    let row = ipam::Row { key: key.clone(), revision: ipam::Revision("half".into()), ..row };
    lab.store.put::<HandleKind>(row, true);
    repaired(&lab, FindingKind::HalfDeleted);
    assert!(lab.store.peek::<HandleKind>(&key).is_none());
}

#[test]
fn affinities_without_block_go_pending_or_not() {
    for (state, kind) in
        [(AffinityState::Pending, FindingKind::AffinityPendingWithoutBlock), (AffinityState::Confirmed, FindingKind::AffinityWithoutBlock)]
    {
        let lab = lab();
        let rows = lab.rows();
        lab.put::<AffinityKind>((Owner::Host("b".into()), cidr("10.9.0.0/30")), Affinity { state, indexed: true });
        repaired(&lab, kind);
        assert_eq!(lab.rows(), rows);
    }
}

#[test]
fn a_second_affinity_of_a_block_goes_and_its_owner_s_stays() {
    let lab = lab();
    let rows = lab.rows();
    lab.put::<AffinityKind>((Owner::Host("b".into()), block(&lab)), Affinity { state: AffinityState::Confirmed, indexed: true });
    let found = findings(&lab);
    assert_eq!(found.iter().map(|f| f.kind).collect::<Vec<_>>(), [FindingKind::AffinityStale, FindingKind::DuplicateAffinity]);
    assert_eq!(block_on(lab.ipam.repair(&found[1])), Ok(Repaired::Done));
    assert_eq!(block_on(lab.ipam.repair(&found[0])), Ok(Repaired::Stale));
    assert_eq!(lab.rows(), rows);
    assert_eq!(findings(&lab), []);
}

#[test]
fn an_owner_without_affinity_gets_it() {
    let lab = lab();
    let rows = lab.rows();
    lab.store.take::<AffinityKind>(&(Owner::Host("a".into()), block(&lab)));
    repaired(&lab, FindingKind::BlockWithoutAffinity);
    assert_eq!(lab.rows(), rows);
}

#[test]
fn an_empty_block_of_nobody_goes_and_one_with_an_address_stays() {
    let lab = lab();
    let empty = cidr("10.9.0.0/30");
    lab.put::<BlockKind>(empty, ipam::Block::new(empty, None, 0).expect("valid"));
    repaired(&lab, FindingKind::BlockUnownedEmpty);
    assert_eq!(lab.blocks().len(), 1);
    // With an address in it since it was found, it stays.
    lab.put::<BlockKind>(empty, ipam::Block::new(empty, None, 0).expect("valid"));
    let finding = only(&lab, FindingKind::BlockUnownedEmpty);
    let mut block = ipam::Block::new(empty, None, 0).expect("valid");
    block.assign(empty.ip(0).expect("inside"), None, &Default::default(), None).expect("free");
    lab.put::<BlockKind>(empty, block);
    assert_eq!(block_on(lab.ipam.repair(&finding)), Ok(Repaired::Stale));
    assert_eq!(lab.blocks().len(), 2);
}

#[test]
fn a_finding_is_stale_once_its_row_has_another_revision() {
    let lab = lab();
    lab.put::<HandleKind>(HandleId::new("h"), Handle { id: "h".into(), blocks: [(block(&lab), 3)].into() });
    let first = only(&lab, FindingKind::HandleCount);
    // An allocation is under way: it has counted, and not written its block yet.
    lab.put::<HandleKind>(HandleId::new("h"), Handle { id: "h".into(), blocks: [(block(&lab), 4)].into() });
    assert_eq!(block_on(lab.ipam.repair(&first)), Ok(Repaired::Stale));
    assert_eq!(lab.count("h"), Some(4));
    assert_ne!(only(&lab, FindingKind::HandleCount), first, "two observations at one revision are equal, others are not");
}

#[test]
fn a_repair_that_fails_says_so_and_what_no_rule_repairs_is_left_alone() {
    let lab = lab();
    lab.store.take::<HandleKind>(&HandleId::new("h"));
    let finding = only(&lab, FindingKind::HandleMissing);
    lab.faulty.fail(row_name::<HandleKind>(&HandleId::new("h")), Some(StoreError::Unavailable("gone".into())));
    assert!(block_on(lab.ipam.repair(&finding)).is_err_and(|e| e.unknown()));
    let overlap = Finding { kind: FindingKind::BlocksOverlap, subject: None, ..finding };
    assert_eq!(block_on(lab.ipam.repair(&overlap)), Ok(Repaired::NoRule));
}
