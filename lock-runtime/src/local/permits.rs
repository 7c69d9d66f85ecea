//! [`PermitQueue`]: the tasks of this process that wait for one of the permits of a name.
//!
//! Each permit in use here has a slot of its own, with a lease of its own. The queue is for all of them: whichever slot comes
//! free takes the first task.

use std::collections::BTreeMap;

use super::slot::{Slot, State, Waiter};
use crate::mutex::Mutex;

/// The ids of a slot's own waiters never grow so large.
const OF_PERMITS: u64 = 1 << 63;

/// Locked inside of a slot's lock, and never around it.
#[derive(Debug, Default)]
pub(super) struct PermitQueue(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    last_id: u64,
    waiters: BTreeMap<u64, Waiter>,
}

impl PermitQueue {
    pub(super) fn add(&self, waiter: Waiter) -> u64 {
        let mut queue = self.0.lock();
        queue.last_id += 1;
        let id = queue.last_id | OF_PERMITS;
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

    fn pop(&self) -> Option<Waiter> {
        mutant!(PermitQueueForgotten => return None);
        self.0.lock().waiters.pop_first().map(|(_, waiter)| waiter)
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

impl State {
    /// Takes the first task of the queue of all permits, when no task waits for this one.
    pub(super) fn take_from_queue(&mut self, slot: &Slot) {
        if let Some(permits) = slot.permits.as_ref().filter(|_| self.waiters.is_empty())
            && let Some(waiter) = permits.pop()
        {
            let id = self.new_id();
            self.add_waiter(id, waiter);
        }
    }
}

impl Slot {
    /// Takes the turn when no task has it, or has taken it up. A task that waits in the queue already leaves the queue in the
    /// same step: `None` when another slot has taken it.
    pub(super) fn take_idle_turn(&self, waiting: Option<u64>) -> Option<u64> {
        let mut state = self.state.lock();
        if state.turn.is_some() && !state.offers.is_missed() {
            return None;
        }
        if let Some((id, permits)) = waiting.zip(self.permits.as_ref())
            && !permits.remove(id)
        {
            return None;
        }
        Some(state.take_turn())
    }
}
