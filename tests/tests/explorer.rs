//! Every schedule of every pair of operations, on every seed (D-73, D-74, D-84).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ipam_tests::explorer::ops::Op;
use ipam_tests::explorer::seeds::Seed;
use ipam_tests::explorer::{Explored, Faults, explore, wander};
use ipam_tests::say;

type Job = (Seed, Vec<Op>, Faults);

/// Explores all jobs, on all cores; answers in their order.
fn explore_all(jobs: &[Job]) -> Vec<Explored> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![Explored::default(); jobs.len()]));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((seed, ops, faults)) = jobs.get(at) else { return };
            let explored = explore(*seed, ops, *faults);
            done.lock().unwrap_or_else(PoisonError::into_inner)[at] = explored;
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The shape of what was explored, and the violations.
fn report(what: &str, groups: &[Vec<Op>], seeds: &[Seed], faults: Faults) {
    let jobs: Vec<Job> = groups.iter().flat_map(|g| seeds.iter().map(|s| (*s, g.clone(), faults))).collect();
    let done = explore_all(&jobs);
    for (group, explored) in groups.iter().zip(done.chunks(seeds.len())) {
        let (schedules, states) = sum(explored);
        say(format_args!("{group:?}: {schedules} schedules, {states} states"));
    }
    let violations: Vec<_> = done.iter().filter_map(|e| e.violation.as_ref()).collect();
    for (schedule, why) in violations.iter().take(20) {
        say(format_args!("{schedule}\n    {why}"));
    }
    let (schedules, states) = sum(&done);
    let (groups, seeds, wrong) = (groups.len(), seeds.len(), violations.len());
    say(format_args!("{groups} {what} on {seeds} seeds: {schedules} schedules, {states} states, {wrong} violations"));
    assert!(violations.is_empty(), "{wrong} violations");
}

fn sum(explored: &[Explored]) -> (usize, usize) {
    explored.iter().fold((0, 0), |(a, b), e| (a + e.schedules, b + e.states))
}

#[test]
fn explorer_every_pair_with_at_most_one_fault_keeps_the_rules() {
    let all = Op::ALL;
    let pairs: Vec<Vec<Op>> = (0..all.len()).flat_map(|a| (a..all.len()).map(move |b| vec![all[a], all[b]])).collect();
    report("pairs", &pairs, Seed::ALL, Faults::One);
}

/// Three at once, without faults: every operation writes the one block (D-74).
#[test]
fn explorer_triples_keep_the_rules() {
    let all = Op::ALL;
    let triples =
        (0..all.len()).flat_map(|a| (a + 1..all.len()).flat_map(move |b| (b + 1..all.len()).map(move |c| vec![all[a], all[b], all[c]])));
    let (many, triples): (Vec<_>, Vec<_>) = triples.partition(|ops| too_many_orders(ops));
    report("triples", &triples, &[Seed::Used, Seed::Last, Seed::Orphan], Faults::None);
    report("triples with many orders", &many, &[Seed::Last], Faults::None);
}

/// Two operators that both act, each doing the same, beside everything that a third may do (D-83); pairs of them also with a fault, above.
#[test]
fn d_83_two_operators_at_once_keep_the_rules() {
    let of_an_operator = [Op::Release, Op::GiveBack, Op::ReleaseHost, Op::Collect];
    let groups: Vec<Vec<Op>> = of_an_operator.into_iter().flat_map(|op| Op::ALL.iter().map(move |other| vec![op, op, *other])).collect();
    report("pairs of operators with a third", &groups, &[Seed::Used, Seed::Last], Faults::None);
}

/// A release and an assignment in one, beside two more that want an address or the block: where the block becomes empty in between,
/// hundreds of thousands of states each. They are explored where it does not, and at random.
fn too_many_orders(ops: &[Op]) -> bool {
    use Op::{AssignA, AssignB, AssignIp, AssignMore, AssignOne, ClaimA, ClaimB, EnsureB, Reuse};
    let wants = [AssignA, AssignB, AssignMore, AssignOne, AssignIp, ClaimA, ClaimB, EnsureB];
    ops.contains(&Reuse) && ops.iter().filter(|op| wants.contains(op)).count() == 2
}

/// Random schedules with a fault, for `EXPLORER_WALKS` numbers from `EXPLORER_FROM` on; a few of them in the ordinary run.
#[test]
fn explorer_random_schedules_keep_the_rules() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (from, walks) = (number("EXPLORER_FROM", 1), number("EXPLORER_WALKS", 2000));
    say(format_args!("random schedules {from} to {}", from + walks - 1));
    for n in from..from + walks {
        let pick = |by: u64, of: usize| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> by) as usize % of;
        let seed = Seed::ALL[pick(40, Seed::ALL.len())];
        let ops = [8, 20, 32].map(|by| Op::ALL[pick(by, Op::ALL.len())]);
        if let Err((schedule, why)) = wander(seed, &ops, n) {
            panic!("number {n}: {schedule}\n    {why}");
        }
    }
}
