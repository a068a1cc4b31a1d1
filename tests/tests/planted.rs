//! The schedule explorer finds faults: each planted one by name, with the pair that catches it.

use std::pin::pin;
use std::task::{Context, Waker};

use ipam::planted::{Planted, plant};
use ipam_tests::explorer::ops::Op;
use ipam_tests::explorer::seeds::Seed;
use ipam_tests::explorer::{Faults, explore, replay};
use ipam_tests::lab::{Lab, net};
use ipam_tests::say;

/// Explores one pair with the fault planted, and replays what it found with the fault and without.
fn caught(fault: Planted, seed: Seed, ops: &[Op]) {
    let faults = if ops.len() > 2 { Faults::None } else { Faults::One };
    assert_eq!(explore(seed, ops, faults).violation, None, "sound without the fault");
    plant(Some(fault));
    let found = explore(seed, ops, faults).violation;
    let (schedule, why) = found.unwrap_or_else(|| panic!("{fault:?} is not found by {seed:?} {ops:?}"));
    let again = replay(&schedule);
    plant(None);
    say(format_args!("{fault:?} is caught by {seed:?} {ops:?}: {schedule}: {why}"));
    assert_eq!(again, Err(why), "the printed schedule shows it again");
    assert_eq!(replay(&schedule), Ok(()), "the same schedule is sound without the fault");
}

macro_rules! catchers {
    ($($test:ident: $fault:ident by $seed:ident $($op:ident)+;)*) => {
        $(#[test]
        fn $test() {
            caught(Planted::$fault, Seed::$seed, &[$(Op::$op),+]);
        })*

        #[test]
        fn every_planted_fault_has_its_catcher() {
            let caught = [Planted::ConfirmFirst, $(Planted::$fault),*];
            assert!(caught.len() >= 10 && Planted::ALL.iter().all(|f| caught.contains(f)), "{caught:?}");
        }
    };
}
catchers! {
    a_release_without_its_sequence_number_is_found: ReleaseWithoutSequence by Used Release Reuse;
    a_handle_counted_after_the_block_write_is_found: CountAfterWrite by Used AssignA AssignB;
    a_handle_counted_once_is_found: CountOnce by Used AssignA AssignMore;
    a_handle_lowered_before_the_release_is_found: LowerBeforeRelease by Used AssignA Release;
    a_handle_deleted_with_addresses_left_is_found: LowerDeletes by Used AssignA AssignMore;
    an_undone_unknown_write_is_found: UndoUnknown by Used AssignA AssignB;
    an_unknown_write_taken_for_done_is_found: UnknownIsDone by Used AssignA AssignB;
    an_old_decision_written_again_is_found: WriteOldDecision by Used AssignA Release;
    a_block_deleted_unread_is_found: DeleteUnread by Free AssignA AssignB;
    a_full_block_deleted_is_found: DeleteFull by Used AssignA ReleaseHost;
    counts_dropped_by_a_release_by_handle_are_found: DropCounts by Used AssignMore ReleaseHandle;
    a_move_of_anybody_s_address_is_found: MoveAnything by Used Reuse Move;
    a_release_by_handle_of_others_addresses_is_found: ReleaseOthers by Used AssignA ReleaseHandle;
    a_block_deleted_by_two_is_found: GoneIsDeleted by Orphan Release ReleaseHandle;
    a_handle_counted_down_in_another_row_is_found: LowerAnyRow by Orphan Release ReleaseHandle AssignMore;
}

/// A confirmed row without block is allowed at rest, since blocks are deleted before their rows; so it takes a look at every step.
fn claim_step_by_step() -> Result<(), String> {
    let lab = Lab::new(&["10.0.0.0/26"], &["a"]);
    let mut claim = pin!(lab.ipam.claim_affinity(net("10.0.0.0/26"), "a"));
    while claim.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        if lab.rows().iter().any(|r| r.ends_with(" confirmed")) && lab.blocks().is_empty() {
            return Err("confirmed, and there is no block".into());
        }
    }
    lab.assert_clean();
    Ok(())
}

#[test]
fn a_claim_confirmed_before_its_block_is_found() {
    assert_eq!(claim_step_by_step(), Ok(()));
    plant(Some(Planted::ConfirmFirst));
    let found = claim_step_by_step();
    plant(None);
    assert!(found.is_err());
}
