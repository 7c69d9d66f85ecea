//! [`Table`]: the keys in use in this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

mod slots;

use super::Core;
use super::slot::{Entrance, Slot};
use crate::clock::Moment;
use crate::lock::{Counts, Lock, ResolvedRequest, Seized};
use crate::mutex::Mutex;
use crate::share::{Share, SharedLeases};
use crate::token::Token;
use slots::Slots;

#[cfg(not(test))]
type RandomState = foldhash::fast::RandomState;
/// The same order in each run of a simulation.
#[cfg(test)]
type RandomState = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

type Sharing = HashMap<Arc<str>, Vec<Arc<Slot>>, RandomState>;

/// One slot for each key, and each mode, that a task here holds, waits for, or still has to release.
///
/// Lock order: the table, then a slot, then the keeper's schedule.
#[derive(Debug, Default)]
pub(crate) struct Table {
    keys: Mutex<Keys>,
    /// Notified when no more keys are in use than the shutdown allows.
    emptied: Notify,
    /// How many keys may be left in use: the keys of the bodies that wait for the shutdown themselves.
    rest: AtomicUsize,
}

#[derive(Debug, Default)]
struct Keys {
    slots: Slots,
    /// The slots whose leases share their locks, by the locks' names.
    sharing: Sharing,
    /// What the slots that are forgotten have counted.
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
        // This runs under the table's lock, so the slot can't be forgotten before it is entered.
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
        // Under the table's lock: the slot is not forgotten before.
        slot.note(|lock| lock.note_adopter(token));
        slot
    }

    /// A request that replaces the holder enters in front of all others.
    pub(super) fn enter_in_front(&self, core: &Arc<Core>, key: &Arc<str>) -> (Arc<Slot>, Seized) {
        let mut keys = self.keys.lock();
        let slot = keys.slot_of(core, key, None);
        let (seized, mut left) = slot.step_in_table(|lock, out| lock.enter_in_front(slot.env(), out));
        mutant!(CallsUnderTable => left.wake());
        drop(keys);
        slot.finish(&mut left);
        (slot, seized)
    }

    /// Whether a task here waits for the lock of the readers in `slot` in another mode.
    pub(super) fn is_wanted_beside(&self, slot: &Arc<Slot>) -> bool {
        mutant!(LingersBesideOthers => return false);
        let keys = self.keys.lock();
        let others = keys.sharing(&slot.key).iter().filter(|other| other.share != Some(Share::READ));
        keys.slots.get(&slot.key).into_iter().chain(others).any(|other| other.peek(Lock::waits_for_lease))
    }

    /// The slots that share the lock of `slot`, and have a queue of their own: readers, and other numbers of permits.
    pub(super) fn beside(&self, slot: &Slot) -> Vec<Arc<Slot>> {
        let keys = self.keys.lock();
        keys.sharing(&slot.key).iter().filter(|other| other.share != slot.share).cloned().collect()
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Slot>> {
        self.keys.lock().slots.get(key).cloned()
    }

    /// The slots whose leases share the lock `key`.
    pub(super) fn sharing(&self, key: &str) -> Vec<Arc<Slot>> {
        self.keys.lock().sharing(key).to_vec()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Slot>> {
        self.keys.lock().all()
    }

    /// The keys in use, and what those that are not in use any more have counted.
    pub(super) fn all_with_counts(&self) -> (Counts, Vec<Arc<Slot>>) {
        let keys = self.keys.lock();
        (keys.forgotten, keys.all())
    }

    /// Forgets `slot` when no task uses it.
    pub(crate) fn forget_if_unused(&self, slot: &Arc<Slot>) {
        let is_emptied = {
            let mut keys = self.keys.lock();
            let is_emptied = keys.forget_if_unused(slot) && keys.count() <= 2 * self.rest.load(Ordering::Relaxed);
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
            if self.keys.lock().names().all(|key| own.contains(key)) {
                return;
            }
            emptied.await;
        }
    }
}

impl Keys {
    /// The slot of `key` in this mode, which is added when it was not in use.
    fn slot_of(&mut self, core: &Arc<Core>, key: &Arc<str>, share: Option<Share>) -> Arc<Slot> {
        if share.is_none() {
            return self.slots.get_or_add(key, || Arc::new(Slot::new(core, key)));
        }
        let slots = match self.sharing.get_mut(key) {
            Some(slots) => slots,
            None => self.sharing.entry(Arc::clone(key)).or_default(),
        };
        if let Some(slot) = slots.iter().find(|slot| slot.share == share) {
            return Arc::clone(slot);
        }
        // All of them together count their leases.
        let leases = slots.first().and_then(|slot| slot.leases.clone()).unwrap_or_else(SharedLeases::default);
        slots.push(Arc::new(Slot { share, leases: Some(leases), ..Slot::new(core, key) }));
        slots.last().map_or_else(|| Arc::new(Slot::new(core, key)), Arc::clone)
    }

    /// The slots whose leases share the lock `key`: one for each mode.
    fn sharing(&self, key: &str) -> &[Arc<Slot>] {
        self.sharing.get(key).map_or(&[], Vec::as_slice)
    }

    /// The slot whose lease lingers in another mode than that of this `share`, and keeps others out. Readers share the lock with a
    /// lease of readers, and permits do not linger.
    fn lingering_beside(&self, key: &str, share: Option<Share>) -> Option<Arc<Slot>> {
        let alone = self.slots.get(key).filter(|_| share.is_some());
        mutant!(LingersBesideOthers => return alone.filter(|slot| slot.peek(Lock::lingers)).cloned());
        let readers =
            self.sharing(key).iter().filter(|slot| share != Some(Share::READ) && slot.share == Some(Share::READ));
        alone.into_iter().chain(readers).find(|slot| slot.peek(Lock::lingers)).cloned()
    }

    /// Forgets `slot` when no task uses it. Returns whether it did.
    fn forget_if_unused(&mut self, slot: &Arc<Slot>) -> bool {
        let Self { slots, sharing, forgotten } = self;
        let counts = if slot.share.is_some() {
            let Some(slots) = sharing.get_mut(&slot.key) else { return false };
            let Some(place) = slots.iter().position(|listed| Arc::ptr_eq(listed, slot)) else { return false };
            let counts = slot.peek(Lock::counts_if_unused);
            if counts.is_some() {
                slots.swap_remove(place);
            }
            if slots.is_empty() {
                sharing.remove(&slot.key);
            }
            counts
        } else {
            slots.remove_if(slot, || slot.peek(Lock::counts_if_unused))
        };
        counts.map(|counts| forgotten.add(counts)).is_some()
    }

    /// How many keys are in use. A key of a body may be in both lists.
    fn count(&self) -> usize {
        self.slots.len() + self.sharing.len()
    }

    fn all(&self) -> Vec<Arc<Slot>> {
        self.slots.iter().chain(self.sharing.values().flatten()).cloned().collect()
    }

    fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.slots.iter().map(|slot| &slot.key).chain(self.sharing.keys())
    }
}
