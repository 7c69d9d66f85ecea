//! [`PermitQueue`]: the tasks of this process that wait for one of the permits of a name.
//!
//! Each permit in use here has a slot of its own, with a lease of its own. The queue is for all of them: whichever slot comes
//! free takes the first task. A task that has asked the store for one more permit, and waits for it there, waits here as well: it came
//! before those who found all permits in use. When it is called, it leaves its ask to the next one.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Those among them who have asked for a permit, too, with the turn of its slot.
    askers: BTreeSet<u64>,
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
        let waiters = WaitQueue::around(FIRST);
        Self(Mutex::new(Queue { waiters, askers: BTreeSet::new(), taken_by: BTreeMap::new() }))
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

    /// The number of a task that comes now, and asks for a permit at once.
    pub(in crate::local) fn new_id(&self) -> u64 {
        self.0.lock().waiters.new_id()
    }

    /// The task with this number has asked for a permit, and waits for whichever comes first.
    pub(in crate::local) fn add_asker(&self, id: u64, waiter: Waiter) {
        let queue = &mut *self.0.lock();
        queue.waiters.add(id, waiter);
        queue.askers.insert(id);
    }

    /// Whether a waiter's id is that of a place in a queue of permits.
    pub(in crate::local) fn has_made(id: u64) -> bool {
        id & OF_PERMITS != 0
    }

    /// A task that waits is polled. Returns the slot that has taken it.
    pub(in crate::local) fn poll(&self, id: u64, waker: &Waker) -> Option<Arc<Slot>> {
        let waker = waker.clone();
        let mut queue = self.0.lock();
        let unneeded = queue.waiters.poll(id, waker);
        let slot = queue.taken_by.remove(&id);
        drop(queue);
        drop(unneeded);
        slot
    }

    /// A task does not wait any more. Returns the slot that has taken it.
    pub(in crate::local) fn leave(&self, id: u64) -> Option<Arc<Slot>> {
        let mut queue = self.0.lock();
        let waiter = queue.waiters.remove(id);
        queue.askers.remove(&id);
        let slot = queue.taken_by.remove(&id);
        drop(queue);
        drop(waiter);
        slot
    }

    /// Takes the task `id` out, if no slot has taken it.
    fn take(&self, id: u64) -> Option<Waiter> {
        self.0.lock().waiters.remove(id)
    }

    /// Takes the first task, for a permit of `slot`, whose turn `turn` passes on. Without a lease to hand over, who has asked already has
    /// nothing to gain.
    fn pop(&self, slot: &Arc<Slot>, turn: u64, has_lease: bool) -> Option<(u64, Waiter)> {
        mutant!(PermitQueueForgotten => return None);
        let queue = &mut *self.0.lock();
        // The task with that turn does not come.
        let is_called = |id: &u64| *id != turn && (has_lease || !queue.askers.contains(id));
        let id = queue.waiters.ids().find(is_called)?;
        let waiter = queue.waiters.remove(id)?;
        queue.askers.remove(&id);
        mutant!(TakenUntold => return Some((id, waiter)));
        queue.taken_by.insert(id, Arc::clone(slot));
        Some((id, waiter))
    }

    /// How many wait, but for those who have asked.
    pub(in crate::local) fn len(&self) -> usize {
        let queue = self.0.lock();
        queue.waiters.len() - queue.askers.len()
    }

    /// Fails all who wait and are refused.
    pub(in crate::local) fn close(&self, is_refused: impl Fn(&Waiter) -> bool) {
        let waiters = {
            let queue = &mut *self.0.lock();
            let waiters = queue.waiters.take_if(is_refused);
            let left: BTreeSet<_> = queue.waiters.ids().collect();
            queue.askers.retain(|id| left.contains(id));
            waiters
        };
        waiters.into_iter().for_each(Waker::wake);
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
            && let Some((id, waiter)) = permits.pop(self, turn, lock.hands_lease_over())
        {
            lock.add_waiter(id, waiter);
        }
    }

    /// Takes the turn, whoever had it. Its number says when its task came, also among those who wait for any permit.
    pub(in crate::local) fn take_turn_of_permit(&self, lock: &mut Lock) -> u64 {
        let id = self.permits.as_ref().map_or_else(|| lock.renew_turn(), |permits| permits.new_id());
        lock.give_turn(id);
        id
    }

    /// Takes the turn when no task has it, or has taken it up. A task that is `waiting` in the queue leaves the queue in the same step,
    /// unless another slot has taken it.
    pub(in crate::local) fn find_permit(self: &Arc<Self>, waiting: Option<u64>) -> FoundPermit {
        let is_ours = || waiting.zip(self.permits.as_ref()).is_none_or(|(id, permits)| permits.take(id).is_some());
        self.step(|lock, _| {
            if lock.has_adopter() {
                FoundPermit::AwaitsAdopter
            } else if lock.is_turn_free() && is_ours() {
                FoundPermit::Idle(self.take_turn_of_permit(lock))
            } else {
                if waiting.is_some() {
                    lock.note_waiter_for_early();
                }
                FoundPermit::InUse { is_held: lock.is_held() }
            }
        })
    }
}
