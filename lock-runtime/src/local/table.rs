//! [`Table`]: the keys in use in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;
use tokio::sync::Notify;

mod slots;

use super::Core;
use super::slot::{Entrance, Slot};
use crate::clock::Moment;
use crate::lock::{Counts, Lock, ResolvedRequest};
use crate::mutex::Mutex;
use crate::share::Share;
use crate::token::Token;
use slots::Slots;

#[cfg(not(test))]
type RandomState = foldhash::fast::RandomState;
/// The same order in each run of a simulation.
#[cfg(test)]
type RandomState = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// One slot for each key, and each mode, that a task here holds, waits for, or still has to release.
///
/// Lock order: the table, then a slot, then the keeper's schedule.
#[derive(Debug, Default)]
pub(crate) struct Table {
    keys: Mutex<Keys>,
    /// Notified when no more keys are in use than the shutdown allows.
    emptied: Notify,
    /// How many keys may stay in use: those of the bodies that themselves wait for the shutdown.
    rest: AtomicUsize,
}

#[derive(Debug, Default)]
struct Keys {
    slots: Slots,
    /// The counts of the slots that were forgotten.
    forgotten: Counts,
}

impl Table {
    /// Enters the lock of a key, in the mode of the request.
    ///
    /// Also returns the slot that keeps this request out because its lease lingers here for another mode.
    pub(super) fn enter<'a>(
        &self,
        core: &'a Arc<Core>,
        request: &ResolvedRequest,
        now: Moment,
    ) -> (Arc<Slot>, Entrance<'a>, Option<Arc<Slot>>) {
        let key = &request.key;
        let mut keys = self.keys.lock();
        let slot = keys.slot_of(core, key, request.share);
        // Under the table's mutex, so that the slot can't be forgotten before it is entered.
        let (entered, mut left) = slot.enter(&core.waiter_limit, request, now);
        let lingering = keys.lingering_beside(key, request.share);
        drop(keys);
        slot.finish(&mut left);
        (slot, entered, lingering)
    }

    /// The slot for a lock that is adopted under `token`. The slot knows the token from now on.
    pub(super) fn slot_for_adopter(&self, core: &Arc<Core>, request: &ResolvedRequest, token: &Token) -> Arc<Slot> {
        let mut keys = self.keys.lock();
        let slot = keys.slot_of(core, &request.key, request.share);
        // Under the table's mutex, so that the slot is not forgotten first.
        slot.note(|lock| lock.note_ending(token.clone(), 0, None));
        slot
    }

    /// Enters a request that replaces the holder, in front of all others.
    pub(super) fn enter_in_front(&self, core: &Arc<Core>, key: &Arc<str>) -> (Arc<Slot>, Result<u64, Token>) {
        let mut keys = self.keys.lock();
        let slot = keys.slot_of(core, key, None);
        let (entered, mut left) = slot.step_in_table(|lock, out| lock.enter_in_front(slot.env(), out));
        mutant!(CallsUnderTable => left.wake());
        drop(keys);
        slot.finish(&mut left);
        (slot, entered)
    }

    /// Whether a task here waits for the lock of the readers in `slot` in another mode.
    pub(super) fn is_wanted_beside(&self, slot: &Arc<Slot>) -> bool {
        mutant!(LingersBesideOthers => return false);
        let keys = self.keys.lock();
        let mut others = keys.slots.of_key(&slot.key).filter(|other| other.share != Some(Share::READ));
        others.any(|other| other.peek(Lock::waits_for_lease))
    }

    /// The slots that share the lock of `slot`, and have a queue of their own: readers, and other numbers of permits.
    pub(super) fn beside(&self, slot: &Slot) -> Vec<Arc<Slot>> {
        let keys = self.keys.lock();
        let others = keys.slots.of_key(&slot.key);
        others.filter(|other| other.share.is_some() && other.share != slot.share).cloned().collect()
    }

    /// The slot of an exclusive lock.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Slot>> {
        self.keys.lock().slots.get(key, None).cloned()
    }

    /// The slots of the lock `key`, one for each mode.
    pub(super) fn of_key(&self, key: &str) -> SmallVec<[Arc<Slot>; 1]> {
        self.keys.lock().slots.of_key(key).cloned().collect()
    }

    /// The first answer of the lock `key` in one of its modes.
    pub(super) fn find_in<T>(&self, key: &str, answer: impl Fn(&Lock) -> Option<T>) -> Option<T> {
        self.keys.lock().slots.of_key(key).find_map(|slot| slot.peek(&answer))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Slot>> {
        self.keys.lock().all()
    }

    /// The keys in use, and the counts of those that are no longer in use.
    pub(super) fn all_with_counts(&self) -> (Counts, Vec<Arc<Slot>>) {
        let keys = self.keys.lock();
        (keys.forgotten, keys.all())
    }

    /// Forgets `slot` if no task uses it.
    pub(crate) fn forget_if_unused(&self, slot: &Arc<Slot>) {
        let is_emptied = {
            let mut keys = self.keys.lock();
            let is_emptied = keys.forget_if_unused(slot) && keys.slots.len() <= 2 * self.rest.load(Ordering::Relaxed);
            mutant!(CallsUnderTable => if is_emptied {
                self.emptied.notify_waiters();
            });
            is_emptied
        };
        if is_emptied {
            self.emptied.notify_waiters();
        }
    }

    /// Resolves when no key except `own` is in use.
    pub(crate) async fn wait_until_empty_but(&self, own: &[Arc<str>]) {
        self.rest.fetch_max(own.len(), Ordering::Relaxed);
        loop {
            let emptied = self.emptied.notified();
            if self.keys.lock().slots.iter().all(|slot| own.contains(&slot.key)) {
                return;
            }
            emptied.await;
        }
    }
}

impl Keys {
    /// The slot of `key` in this mode, added if it was not in use.
    fn slot_of(&mut self, core: &Arc<Core>, key: &Arc<str>, share: Option<Share>) -> Arc<Slot> {
        self.slots.get_or_add(key, share, |leases| Slot { share, leases, ..Slot::new(core, key) })
    }

    /// The slot whose lease lingers in another mode than this `share`, and keeps others out. Readers share the lock with a lease of
    /// readers, and permits do not linger.
    fn lingering_beside(&self, key: &str, share: Option<Share>) -> Option<Arc<Slot>> {
        let keeps_out = |slot: &&Arc<Slot>| match slot.share {
            None => share.is_some(),
            readers => {
                mutant!(LingersBesideOthers => return false);
                readers == Some(Share::READ) && share != readers
            }
        };
        self.slots.of_key(key).filter(keeps_out).find(|slot| slot.peek(Lock::lingers)).cloned()
    }

    /// Forgets `slot` if no task uses it. Returns whether it did.
    fn forget_if_unused(&mut self, slot: &Arc<Slot>) -> bool {
        let Self { slots, forgotten } = self;
        let counts = slots.remove_if(slot, || slot.peek(Lock::counts_if_unused));
        counts.map(|counts| forgotten.add(counts)).is_some()
    }

    fn all(&self) -> Vec<Arc<Slot>> {
        self.slots.iter().cloned().collect()
    }
}
