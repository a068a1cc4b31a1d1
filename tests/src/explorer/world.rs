//! One schedule: a store, its clients, and where each of them is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use chrono::TimeDelta;
use ipam::{Clock as _, Ipam, MemStore};
use ipam_operator::clocks::SimClock;

use super::Faults;
use super::gate::{Choice, Ending, Gate, Gated, Parked, hash};
use super::ops::{Op, Told};
use super::seeds::{self, Rows};

/// How far a client is.
pub(super) enum Client {
    Runs(Pin<Box<dyn Future<Output = Told>>>),
    Done(Told),
    Crashed,
}

pub(super) struct World {
    pub(super) store: MemStore,
    pub(super) ops: Vec<Op>,
    pub(super) clients: Vec<Client>,
    /// Whose call was interfered with.
    pub(super) faulted: Option<usize>,
    pub(super) gate: Gate,
    clock: Arc<SimClock>,
}

impl World {
    pub(super) fn new(rows: &Rows, ops: &[Op]) -> Self {
        let store = rows.store();
        let clock = Arc::new(SimClock::new(seeds::now()));
        let gate = Gate::new(&store, ops.len());
        let client = |(actor, op): (usize, &Op)| {
            let store = Gated::new(gate.clone(), store.clone(), actor, op.touches());
            Client::Runs(op.run(Ipam::new(store, clock.clone())))
        };
        let clients = ops.iter().enumerate().map(client).collect();
        let mut world = Self { clients, store, ops: ops.to_vec(), faulted: None, gate, clock };
        (0..ops.len()).for_each(|actor| world.poll(actor));
        world
    }

    fn poll(&mut self, actor: usize) {
        if let Client::Runs(run) = &mut self.clients[actor]
            && let Poll::Ready(told) = run.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            self.clients[actor] = Client::Done(told);
        }
    }

    /// What can happen next, as far as it makes a difference: a call about rows that nobody else will touch comes first,
    /// for it commutes with everything else.
    pub(super) fn choices(&self, faults: Faults) -> Vec<Choice> {
        let late = self.gate.late();
        let running = |actor: &usize| matches!(self.clients[*actor], Client::Runs(_));
        let calls: Vec<(usize, usize, Parked)> = (0..self.clients.len())
            .filter(running)
            .flat_map(|actor| self.gate.parked(actor).into_iter().enumerate().map(move |(at, call)| (actor, at, call)))
            .collect();
        let others = |actor: usize| {
            let rest = (0..self.clients.len()).filter(|a| *a != actor).filter(running).fold(0, |rows, a| rows | self.ops[a].touches());
            late.iter().fold(rest, |rows, r| rows | r)
        };
        let alone = calls.iter().position(|(actor, _, call)| {
            let own = calls.iter().filter(|c| c.0 == *actor);
            call.rows & others(*actor) == 0 && own.clone().all(|c| !c.2.writes || own.clone().count() == 1)
        });
        let (chosen, landing) = match alone {
            Some(at) => (&calls[at..=at], 0),
            None => (&calls[..], late.len()),
        };
        let mut plain: Vec<Choice> = Vec::new();
        let mut bad = Vec::new();
        for (actor, at, call) in chosen {
            plain.push(Choice::Call(*actor, *at, Ending::Done));
            // Old answers are no fault: caches are always behind.
            plain.extend((0..call.old).filter(|_| faults == Faults::One).map(|n| Choice::Call(*actor, *at, Ending::Old(n))));
            bad.push(Choice::Call(*actor, *at, Ending::LostBefore));
            if call.writes {
                bad.extend([Ending::LostAfter, Ending::LandsLate].map(|e| Choice::Call(*actor, *at, e)));
            }
            // Before its first call a client that crashes was never there; after a reading it is as if it had not read.
            if call.writes && self.gate.began(*actor) {
                bad.push(Choice::Call(*actor, 0, Ending::Crash));
            }
        }
        plain.extend((0..landing).map(Choice::Land));
        if faults == Faults::One && self.faulted.is_none() {
            plain.extend(bad);
        }
        plain
    }

    pub(super) fn lost_races(&self) -> usize {
        self.gate.lost_races()
    }

    /// One decision, and what follows from it up to the next one.
    pub(super) fn step(&mut self, choice: Choice) {
        self.clock.set(self.clock.now() + TimeDelta::milliseconds(1));
        if choice.is_fault()
            && let Choice::Call(actor, _, ending) = choice
            && !matches!(ending, Ending::Old(_))
        {
            self.faulted = Some(actor);
        }
        match choice {
            Choice::Land(place) => self.gate.land(place, &self.store),
            Choice::Call(actor, _, Ending::Crash) => {
                self.clients[actor] = Client::Crashed;
                self.gate.forget(actor);
            }
            Choice::Call(actor, at, ending) => {
                self.gate.grant(actor, at, ending);
                self.poll(actor);
            }
        }
    }

    /// What tells this state from others: two schedules that lead to the same state have the same future. Clients with the
    /// same program may change places.
    pub(super) fn state(&self) -> u64 {
        let mut clients: Vec<(usize, u64)> = (0..self.clients.len())
            .map(|actor| {
                let program = self.ops.iter().position(|op| *op == self.ops[actor]).unwrap_or(actor);
                let state = match &self.clients[actor] {
                    Client::Runs(_) => self.gate.told(actor),
                    Client::Done(told) => hash(("done", told)),
                    Client::Crashed => hash("crashed"),
                };
                (program, hash((state, self.faulted == Some(actor))))
            })
            .collect();
        clients.sort_unstable();
        hash((self.gate.state(), clients, self.faulted.is_some(), self.lost_races()))
    }
}
