//! [`PermitQueue`]: the tasks of this process that wait for one of the permits of a name.
//!
//! Each permit in use here has a slot of its own, with a lease of its own. The queue is for all of them: whichever slot comes
//! free takes the first task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::Slot;
use crate::lock::{Lock, WaitQueue, Waiter};
use crate::mutex::Mutex;

/// The ids of a slot's own waiters never grow so large.
const OF_PERMITS: u64 = 1 << 63;
/// The id of the first place, less one.
const FIRST: u64 = OF_PERMITS | 1 << 62;

/// Locked inside of a slot's lock, and never around it.
#[derive(Debug)]
pub(in crate::local) struct PermitQueue(Mutex<Queue>);

#[derive(Debug)]
struct Queue {
    waiters: WaitQueue,
    /// The slots that have taken a task each, and which the tasks do not know yet.
    taken_by: BTreeMap<u64, Arc<Slot>>,
}

/// The place of a late task (rule L7: it keeps its place): the number of its turn, and how long others wait for it the next time.
#[derive(Clone, Copy, Debug)]
pub(in crate::local) struct OldPlace {
    pub(in crate::local) id: u64,
    pub(in crate::local) patience: Duration,
}

/// How a task finds a permit of its process.
pub(in crate::local) enum FoundPermit {
    /// The task has the turn now.
    Idle(u64),
    /// Another task holds it, or has asked for it.
    InUse { is_held: bool },
    /// Of no use to others than the task that is about to adopt it: its lease comes from another process, and may not come at all.
    AwaitsAdopter,
}

impl Default for PermitQueue {
    fn default() -> Self {
        Self(Mutex::new(Queue { waiters: WaitQueue::around(FIRST), taken_by: BTreeMap::new() }))
    }
}

impl PermitQueue {
    /// Adds a task at the end, or at the place that it had: who had the turn without having waited comes before all who wait.
    pub(in crate::local) fn add(&self, waiter: Waiter, place: Option<OldPlace>) -> u64 {
        let waiters = &mut self.0.lock().waiters;
        let id = match place {
            Some(place) if Self::has_made(place.id) => place.id,
            Some(_) => waiters.id_in_front(),
            None => waiters.new_id(),
        };
        waiters.add(id, waiter);
        id
    }

    /// Whether a waiter's id is that of a place in a queue of permits.
    pub(in crate::local) fn has_made(id: u64) -> bool {
        id & OF_PERMITS != 0
    }

    /// A task that waits is polled. Returns the slot that has taken it.
    pub(in crate::local) fn poll(&self, id: u64, waker: &Waker) -> Option<Arc<Slot>> {
        let mut queue = self.0.lock();
        let place = queue.waiters.poll(id, waker);
        let slot = queue.taken_by.remove(&id);
        drop(queue);
        drop(place);
        slot
    }

    /// A task does not wait any more. Returns the slot that has taken it.
    pub(in crate::local) fn leave(&self, id: u64) -> Option<Arc<Slot>> {
        let mut queue = self.0.lock();
        let waiter = queue.waiters.remove(id);
        let slot = queue.taken_by.remove(&id);
        drop(queue);
        drop(waiter);
        slot
    }

    /// Takes the task `id` out, if no slot has taken it.
    fn take(&self, id: u64) -> Option<Waiter> {
        self.0.lock().waiters.remove(id)
    }

    /// Takes the first task, for a permit of `slot`.
    fn pop(&self, slot: &Arc<Slot>) -> Option<(u64, Waiter)> {
        mutant!(PermitQueueForgotten => return None);
        let queue = &mut *self.0.lock();
        let (id, waiter) = queue.waiters.pop()?;
        mutant!(TakenUntold => return Some((id, waiter)));
        queue.taken_by.insert(id, Arc::clone(slot));
        Some((id, waiter))
    }

    pub(in crate::local) fn len(&self) -> usize {
        self.0.lock().waiters.len()
    }

    /// Fails all who wait.
    pub(in crate::local) fn close(&self) {
        let waiters = self.0.lock().waiters.take_all();
        waiters.for_each(Waker::wake);
    }
}

impl Slot {
    /// Whether a task may have another permit as well as this one.
    pub(in crate::local) fn is_one_of_permits(&self) -> bool {
        mutant!(LatePermitBinds => return false);
        self.permits.is_some()
    }

    /// Gives this permit, whose turn `turn` is about to pass on, the first task of the queue of all permits.
    pub(in crate::local) fn take_from_permits(self: &Arc<Self>, lock: &mut Lock, turn: u64) {
        if let Some(permits) = &self.permits
            && lock.calls_for_any_permit(turn, &**self)
            && let Some((id, waiter)) = permits.pop(self)
        {
            lock.add_waiter(id, waiter);
        }
    }

    /// Takes the turn when no task has it, or has taken it up. A task that is `waiting` in the queue leaves the queue in the same step,
    /// unless another slot has taken it.
    pub(in crate::local) fn find_permit(self: &Arc<Self>, waiting: Option<u64>) -> FoundPermit {
        let is_ours = || waiting.zip(self.permits.as_ref()).is_none_or(|(id, permits)| permits.take(id).is_some());
        self.step(|lock, _| {
            if lock.has_adopter() {
                FoundPermit::AwaitsAdopter
            } else if lock.is_turn_free() && is_ours() {
                FoundPermit::Idle(lock.renew_turn())
            } else {
                if waiting.is_some() {
                    lock.note_waiter_for_early();
                }
                FoundPermit::InUse { is_held: lock.is_held() }
            }
        })
    }
}
