//! [`PermitQueue`]: the tasks of this process that wait for one of the permits of a name.
//!
//! Each permit in use here has a slot of its own, with a lease of its own. The queue is for all of them: whichever slot comes
//! free takes the first task.

use std::collections::BTreeMap;
use std::time::Duration;

use super::slot::{Lock, Slot, Waiter};
use crate::mutex::Mutex;

/// The ids of a slot's own waiters never grow so large.
const OF_PERMITS: u64 = 1 << 63;
/// The first place in a queue. Tasks that come back to the front get the places below it.
const FIRST: u64 = OF_PERMITS | 1 << 62;

/// Locked inside of a slot's lock, and never around it.
#[derive(Debug, Default)]
pub(super) struct PermitQueue(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    last_id: u64,
    /// How many late tasks have come back in front of all others.
    in_front: u64,
    waiters: BTreeMap<u64, Waiter>,
}

/// The place of a late task (rule L7: it keeps its place): the number of its turn, and how long others wait for it the next time.
#[derive(Clone, Copy, Debug)]
pub(super) struct OldPlace {
    pub(super) id: u64,
    pub(super) patience: Duration,
}

impl PermitQueue {
    /// Adds a task at the end, or at the place that it had: who had the turn without having waited comes before all who wait.
    pub(super) fn add(&self, waiter: Waiter, place: Option<OldPlace>) -> u64 {
        let queue = &mut *self.0.lock();
        let id = match place {
            Some(place) if Self::has_made(place.id) => place.id,
            Some(_) => {
                queue.in_front += 1;
                FIRST - queue.in_front
            }
            None => {
                queue.last_id += 1;
                FIRST + queue.last_id
            }
        };
        queue.waiters.insert(id, waiter);
        id
    }

    /// Whether a waiter's id is that of a place in a queue of permits.
    pub(super) fn has_made(id: u64) -> bool {
        id & OF_PERMITS != 0
    }

    /// Removes a task that waits. `false` when a slot has taken it already.
    pub(super) fn remove(&self, id: u64) -> bool {
        self.0.lock().waiters.remove(&id).is_some()
    }

    fn pop(&self) -> Option<(u64, Waiter)> {
        mutant!(PermitQueueForgotten => return None);
        self.0.lock().waiters.pop_first()
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().waiters.len()
    }

    /// Fails all who wait.
    pub(super) fn close(&self) {
        let waiters = std::mem::take(&mut self.0.lock().waiters);
        drop(waiters);
    }
}

impl Slot {
    /// Whether a task may have another permit as well as this one.
    pub(super) fn is_one_of_permits(&self) -> bool {
        mutant!(LatePermitBinds => return false);
        self.permits.is_some()
    }

    /// Gives this permit, whose turn `turn` is about to pass on, the first task of the queue of all permits.
    pub(super) fn take_from_permits(&self, lock: &mut Lock, turn: u64) {
        if let Some(permits) = &self.permits
            && lock.calls_for_any_permit(turn, self)
            && let Some((id, waiter)) = permits.pop()
        {
            lock.add_waiter(id, waiter);
        }
    }

    /// Takes the turn when no task has it, or has taken it up. A task that waits in the queue already leaves the queue in the
    /// same step: `None` when another slot has taken it.
    pub(super) fn take_idle_turn(&self, waiting: Option<u64>) -> Option<u64> {
        let is_ours = || waiting.zip(self.permits.as_ref()).is_none_or(|(id, permits)| permits.remove(id));
        self.note(|lock| (lock.is_turn_free() && is_ours()).then(|| lock.take_turn()))
    }
}
