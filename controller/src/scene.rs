//! What the loop shows to whoever asks: everything that is known, remembered and obeyed, at one moment.

use std::collections::VecDeque;

use crate::gauges::Gauges;
use crate::ledger::Ledger;
use crate::plan::{Now, Policy};
use crate::timeline::Event;
use crate::upkeep::Upkeep;
use crate::view::View;

/// So many of the last events are kept to be shown.
const KEPT: usize = 500;

/// One moment.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The cache.
    pub view: &'a View,
    /// The memory.
    pub ledger: &'a Ledger,
    /// What is obeyed.
    pub policy: &'a Policy,
    /// The time.
    pub now: Now,
    /// Rows held against the blocks.
    pub upkeep: &'a Upkeep,
    /// What was done lately, the last first.
    pub recent: &'a VecDeque<Event>,
}

impl<'a> Scene<'a> {
    /// What can be counted of it.
    pub fn gauges(&self) -> Gauges<'a> {
        Gauges::new(self.view, self.ledger, self.policy, self.now)
    }
}

/// Keeps events to be shown, the last first.
pub fn keep(recent: &mut VecDeque<Event>, new: &[Event]) {
    new.iter().skip(new.len().saturating_sub(KEPT)).for_each(|event| recent.push_front(event.clone()));
    recent.truncate(KEPT);
}
