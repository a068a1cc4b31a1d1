//! Calls of one process for one owner and family take turns, and share what was read and written last (D-62).
//!
//! Thrift only: that no address is given twice is the compare-and-swap's business. A call whose future is dropped takes what
//! it shared with it, like a crash.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_lock::MutexGuardArc;

use super::Snapshot;
use crate::ids::Owner;
use crate::model::BlockKind;
use crate::pools::Family;
use crate::store::{Freshness, Row};

type Key = (Owner, Family);

/// The queues that have calls.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Key, Queue>>);

#[derive(Debug, Default)]
struct Queue {
    /// Calls that have come so far, and those that have not ended.
    came: u64,
    here: usize,
    shared: Arc<async_lock::Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    lists: Option<Lists>,
    block: Option<Row<BlockKind>>,
}

/// What was read, and when.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) seen: Snapshot,
    pub(super) span: Span,
}

/// When something was read: how many calls had come when that began, and when it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    began: u64,
    ended: u64,
}

/// A call's place in its queue, from its coming to its end.
struct Place {
    turns: Arc<Turns>,
    key: Key,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.turns.queues();
        let left = queues.get_mut(&self.key).map(|queue| {
            queue.here -= 1;
            queue.here
        });
        // The last one takes along what was shared.
        if left == Some(0) {
            queues.remove(&self.key);
        }
    }
}

/// A call whose turn it is.
pub(super) struct Turn {
    number: u64,
    guard: MutexGuardArc<Shared>,
    place: Place,
}

impl Turns {
    fn queues(&self) -> MutexGuard<'_, HashMap<Key, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the calls that came before have ended.
    pub(super) async fn wait(self: &Arc<Self>, owner: &Owner, family: Family) -> Turn {
        let key = (owner.clone(), family);
        let (number, shared) = {
            let mut queues = self.queues();
            let queue = queues.entry(key.clone()).or_default();
            queue.came += 1;
            queue.here += 1;
            (queue.came, queue.shared.clone())
        };
        let place = Place { turns: self.clone(), key };
        Turn { number, guard: shared.lock_arc().await, place }
    }
}

impl Turn {
    /// How many calls have come so far.
    pub(super) fn came(&self) -> u64 {
        self.place.turns.queues().get(&self.place.key).map_or(0, |queue| queue.came)
    }

    /// The time since `began`, an earlier answer of [`Self::came`].
    pub(super) fn since(&self, began: u64) -> Span {
        Span { began, ended: self.came() }
    }

    /// The lists that a call before this one read, if this one had come by then: no older than what it would have read.
    pub(super) fn take_lists(&mut self, fresh: Freshness) -> Option<Lists> {
        let lists = self.guard.lists.take()?;
        let by = if fresh == Freshness::Latest { lists.span.began } else { lists.span.ended };
        (self.number <= by).then_some(lists)
    }

    /// Whether the reading began after this call had come.
    pub(super) fn covers(&self, span: Span) -> bool {
        self.number <= span.began
    }

    /// The block that was written last.
    pub(super) fn take_block(&mut self) -> Option<Row<BlockKind>> {
        self.guard.block.take()
    }

    /// Nothing of what was shared holds after this call.
    pub(super) fn forget(&mut self) {
        *self.guard = Shared::default();
    }

    /// Leaves what the next call may use.
    pub(super) fn leave(mut self, lists: Option<Lists>, block: Option<Row<BlockKind>>) {
        *self.guard = Shared { lists, block };
    }
}
