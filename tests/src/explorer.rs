//! The schedule explorer: every order of the store calls of several clients, with faults (D-73, D-74, D-84).
//!
//! The only outside of the library is the store, so a store call is the only place where clients can interleave.
//! [`gate::Gated`] parks every call; [`explore()`] decides which parked call goes next and how it ends, depth first over all
//! decisions, and cuts at states that it has seen: two orders of calls that commute lead to the same state. At the end of
//! each schedule [`oracle`] judges. A failing schedule prints as `seed/op+op/decisions`, which [`replay()`] runs again.

pub mod gate;
pub mod ops;
pub mod oracle;
pub mod seeds;
mod world;

use std::collections::HashSet;
use std::fmt;

use gate::Choice;
use ops::Op;
use seeds::Seed;
use world::World;

/// After so many lost races in one schedule its clients take turns from there on: every retry is bounded, but at a hundred
/// each, and two that overtake each other for ever show nothing new. Fewer among three, which have many more orders.
fn most_lost_races(clients: usize) -> usize {
    if clients > 2 { 2 } else { 3 }
}

/// More calls than any fair schedule has.
const ENDLESS: usize = 2000;

/// What may happen to calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Nothing.
    None,
    /// At most one of them is lost, or lands late, or its client crashes; and cached lists may be old.
    One,
}

/// What an exploration found.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Schedules that ran to their end.
    pub schedules: usize,
    /// Different states.
    pub states: usize,
    /// The first schedule that broke a rule, and the rule.
    pub violation: Option<(String, String)>,
}

/// A schedule as text.
fn text(seed: Seed, ops: &[Op], decisions: &[Choice]) -> String {
    let ops: Vec<_> = ops.iter().map(|o| format!("{o:?}")).collect();
    let decisions: Vec<_> = decisions.iter().map(ToString::to_string).collect();
    format!("{seed:?}/{}/{}", ops.join("+"), decisions.join(","))
}

/// Explores every schedule of operations on a store.
pub fn explore(seed: Seed, ops: &[Op], faults: Faults) -> Explored {
    let rows = seeds::rows(seed);
    let (mut out, mut seen, mut clean) = (Explored::default(), HashSet::new(), HashSet::new());
    let mut stack = vec![Vec::new()];
    while let Some(mut decisions) = stack.pop() {
        let mut world = World::new(&rows, ops);
        decisions.iter().for_each(|c| world.step(*c));
        loop {
            if !seen.insert(world.state()) {
                break;
            }
            let choices = if world.lost_races() < most_lost_races(ops.len()) { world.choices(faults) } else { Vec::new() };
            let Some((first, others)) = choices.split_first() else {
                out.schedules += 1;
                if let Err(why) = finish(&mut world, &mut decisions).and_then(|()| oracle::judge(&rows, &world, &mut clean)) {
                    out.violation = Some((text(seed, ops, &decisions), why));
                    out.states = seen.len();
                    return out;
                }
                break;
            };
            stack.extend(others.iter().map(|c| decisions.iter().copied().chain([*c]).collect()));
            world.step(*first);
            decisions.push(*first);
        }
    }
    out.states = seen.len();
    out
}

/// Lets one client after the other run to its end.
fn finish(world: &mut World, decisions: &mut Vec<Choice>) -> Result<(), String> {
    for _ in 0..ENDLESS {
        let Some(first) = world.choices(Faults::None).first().copied() else { return Ok(()) };
        world.step(first);
        decisions.push(first);
    }
    Err("it does not end".into())
}

/// Runs one printed schedule again, and answers with what the oracle says of it.
///
/// # Errors
/// The text is no schedule, or the oracle's complaint.
pub fn replay(schedule: &str) -> Result<(), String> {
    let mut parts = schedule.splitn(3, '/');
    let mut part = || parts.next().ok_or("a schedule is seed/op+op/decisions");
    let (seed, ops, decisions) = (part()?, part()?, part()?);
    let seed = Seed::ALL.iter().find(|s| format!("{s:?}") == seed).ok_or("no such seed")?;
    let op = |name: &str| Op::ALL.iter().find(|o| format!("{o:?}") == name).copied();
    let ops: Vec<Op> = ops.split('+').map(op).collect::<Option<_>>().ok_or("no such operation")?;
    let rows = seeds::rows(*seed);
    let mut world = World::new(&rows, &ops);
    for decision in decisions.split(',').filter(|d| !d.is_empty()) {
        world.step(decision.parse()?);
    }
    finish(&mut world, &mut Vec::new())?;
    oracle::judge(&rows, &world, &mut HashSet::new())
}

/// A random schedule with at most one fault, told by its number: for longer explorations than the exhaustive one.
///
/// # Errors
/// The schedule that broke a rule, and the rule.
pub fn wander(seed: Seed, ops: &[Op], number: u64) -> Result<(), (String, String)> {
    let rows = seeds::rows(seed);
    let mut world = World::new(&rows, ops);
    let (mut state, mut decisions, mut faults) = (number, Vec::new(), Faults::One);
    loop {
        let choices = world.choices(faults);
        if choices.is_empty() {
            return oracle::judge(&rows, &world, &mut HashSet::new()).map_err(|why| (text(seed, ops, &decisions), why));
        }
        // A linear congruential generator: the number alone tells the schedule.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let plain: Vec<Choice> = choices.iter().copied().filter(|c| !c.is_fault()).collect();
        let pick = if (state >> 60) > 1 || plain.len() == choices.len() { &plain } else { &choices };
        let choice = pick[(state >> 33) as usize % pick.len()];
        faults = if choice.is_fault() { Faults::None } else { faults };
        world.step(choice);
        decisions.push(choice);
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} schedules, {} states", self.schedules, self.states)
    }
}
