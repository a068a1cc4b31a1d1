//! The schedule explorer finds faults: each planted one by name, with the pair that catches it.

use ipam::planted::{Planted, plant};
use ipam_tests::explorer::ops::Op;
use ipam_tests::explorer::seeds::Seed;
use ipam_tests::explorer::{Faults, explore, replay};

/// Explores one pair with the fault planted, and replays what it found with the fault and without.
fn caught(fault: Planted, seed: Seed, ops: [Op; 2]) {
    assert_eq!(explore(seed, &ops, Faults::One).violation, None, "sound without the fault");
    plant(Some(fault));
    let found = explore(seed, &ops, Faults::One).violation;
    let (schedule, why) = found.unwrap_or_else(|| panic!("{fault:?} is not found by {seed:?} {ops:?}"));
    let again = replay(&schedule);
    plant(None);
    println!("{fault:?}: {schedule}: {why}");
    assert_eq!(again, Err(why), "the printed schedule shows it again");
    assert_eq!(replay(&schedule), Ok(()), "the same schedule is sound without the fault");
}

macro_rules! catchers {
    ($($test:ident: $fault:ident by $seed:ident $a:ident + $b:ident;)*) => {
        $(#[test]
        fn $test() {
            caught(Planted::$fault, Seed::$seed, [Op::$a, Op::$b]);
        })*

        #[test]
        fn every_planted_fault_has_its_catcher() {
            let caught = [$(Planted::$fault),*];
            assert!(caught.len() >= 10 && Planted::ALL.iter().all(|f| caught.contains(f)), "{caught:?}");
        }
    };
}
catchers! {
    a_release_without_its_sequence_number_is_found: ReleaseWithoutSequence by Used Release + Reuse;
    a_handle_counted_after_the_block_write_is_found: CountAfterWrite by Used AssignA + AssignB;
    a_handle_counted_once_is_found: CountOnce by Used AssignA + AssignMore;
    a_handle_lowered_before_the_release_is_found: LowerBeforeRelease by Used AssignA + Release;
    a_handle_deleted_with_addresses_left_is_found: LowerDeletes by Used AssignA + AssignMore;
    an_undone_unknown_write_is_found: UndoUnknown by Used AssignA + AssignB;
    an_unknown_write_taken_for_done_is_found: UnknownIsDone by Used AssignA + AssignB;
    an_old_decision_written_again_is_found: WriteOldDecision by Used AssignA + Release;
    a_block_deleted_unread_is_found: DeleteUnread by Free AssignA + AssignB;
    a_full_block_deleted_is_found: DeleteFull by Used AssignA + ReleaseHost;
    counts_dropped_by_a_release_by_handle_are_found: DropCounts by Used AssignMore + ReleaseHandle;
    a_move_of_anybody_s_address_is_found: MoveAnything by Used Reuse + Move;
}
