//! [`Table`]: the keys in use in this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

mod slots;

use super::Core;
use super::family::Family;
use super::slot::permits::OldPlace;
use super::slot::{Entrance, Slot};
use crate::clock::Moment;
use crate::lock::{Counts, Lock, ResolvedRequest, Seized};
use crate::mutex::Mutex;
use crate::share::Share;
use crate::token::Token;
use slots::Slots;

#[cfg(not(test))]
type RandomState = foldhash::fast::RandomState;
/// The same order in each run of a simulation.
#[cfg(test)]
type RandomState = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

type Families = HashMap<Arc<str>, Family, RandomState>;

/// One slot for each key that a task here holds, waits for, or still has to release.
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
    sharing: Families,
    /// What the slots that are forgotten have counted.
    forgotten: Counts,
}

impl Table {
    /// Takes the turn for a key, or a place in its queue when the request waits. Or joins the readers who hold it at `now`.
    ///
    /// Also returns the slot that keeps this request out because its lease lingers here for another mode.
    pub(super) fn enter<'a>(
        &self,
        core: &'a Arc<Core>,
        request: &ResolvedRequest,
        now: Moment,
    ) -> (Arc<Slot>, Entrance<'a>, Option<Arc<Slot>>) {
        let key = &request.key;
        let keys = &mut *self.keys.lock();
        if let Some(share) = request.share {
            let Keys { slots, sharing, .. } = keys;
            let family = match sharing.get_mut(key) {
                Some(family) => family,
                None => sharing.entry(Arc::clone(key)).or_default(),
            };
            let (slot, entered) = family.enter(core, request, share, now);
            let alone = slots.get(key).filter(|slot| slot.peek(Lock::lingers)).cloned();
            return (slot, entered, alone.or_else(|| family.lingering_beside(share)));
        }
        let slot = keys.slot_of(core, key);
        // This runs under the table's lock, so the slot can't be forgotten before it is entered.
        let entered = slot.enter(&core.waiter_limit, request, now);
        (slot, entered, keys.sharing.get(key).and_then(Family::lingering))
    }

    /// The same for a task that came late to the permit to which it was called, and keeps its place among those who wait for any.
    pub(super) fn enter_again<'a>(
        &self,
        core: &'a Arc<Core>,
        request: &ResolvedRequest,
        share: Share,
        place: OldPlace,
    ) -> (Arc<Slot>, Entrance<'a>) {
        let Keys { sharing, .. } = &mut *self.keys.lock();
        sharing.entry(Arc::clone(&request.key)).or_default().enter_permit(core, request, share, Some(place))
    }

    /// The slot for a lock that is adopted under `token`. The slot knows the token from now on.
    pub(super) fn slot_for_adopter(&self, core: &Arc<Core>, request: &ResolvedRequest, token: &Token) -> Arc<Slot> {
        let key = &request.key;
        let keys = &mut *self.keys.lock();
        let slot = match request.share {
            Some(share) => keys.sharing.entry(Arc::clone(key)).or_default().add_permit(core, request, share),
            None => keys.slot_of(core, key),
        };
        // Under the table's lock: the slot is not forgotten before.
        slot.note(|lock| lock.note_adopter(token));
        slot
    }

    /// Takes the turn for a key from whoever has it.
    pub(super) fn seize(&self, core: &Arc<Core>, key: &Arc<str>) -> (Arc<Slot>, Seized) {
        let mut keys = self.keys.lock();
        let slot = keys.slot_of(core, key);
        let (seized, mut left) = slot.step_in_table(|lock, out| lock.seize_for_newest(&*slot, Moment::now(), out));
        mutant!(CallsUnderTable => {
            slot.finish(&mut left);
            return (slot, seized);
        });
        drop(keys);
        slot.finish(&mut left);
        (slot, seized)
    }

    /// Whether a task here waits for the lock of the readers in `slot` in another mode.
    pub(super) fn is_wanted_beside(&self, slot: &Arc<Slot>) -> bool {
        mutant!(LingersBesideOthers => return false);
        let keys = self.keys.lock();
        let family = keys.sharing.get(&slot.key).map_or(&[][..], Family::slots);
        let others = family.iter().filter(|other| other.share != Some(Share::READ));
        keys.slots.get(&slot.key).into_iter().chain(others).any(|other| other.peek(Lock::waits_for_lease))
    }

    /// The slots that share the lock of `slot`, and have a queue of their own: readers, and other numbers of permits.
    pub(super) fn beside(&self, slot: &Slot) -> Vec<Arc<Slot>> {
        let keys = self.keys.lock();
        let family = keys.sharing.get(&slot.key).map_or(&[][..], Family::slots);
        family.iter().filter(|other| other.share != slot.share).cloned().collect()
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Slot>> {
        self.keys.lock().slots.get(key).cloned()
    }

    /// The slots whose leases share the lock `key`.
    pub(super) fn sharing(&self, key: &str) -> Vec<Arc<Slot>> {
        self.keys.lock().sharing.get(key).map(|family| family.slots().to_vec()).unwrap_or_default()
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
    /// The slot of `key`, which is added when the key was not in use.
    fn slot_of(&mut self, core: &Arc<Core>, key: &Arc<str>) -> Arc<Slot> {
        self.slots.get_or_add(key, || Arc::new(Slot::new(core, key)))
    }

    /// Forgets `slot` when no task uses it. Returns whether it did.
    fn forget_if_unused(&mut self, slot: &Arc<Slot>) -> bool {
        let Self { slots, sharing, forgotten } = self;
        let counts = if slot.share.is_some() {
            let Some(family) = sharing.get_mut(&slot.key) else { return false };
            let counts = family.forget_if_unused(slot);
            if family.slots().is_empty() {
                sharing.remove(&slot.key);
            }
            counts
        } else {
            slots.remove_if(slot, || slot.note(Lock::forget_if_unused))
        };
        counts.map(|counts| forgotten.add(counts)).is_some()
    }

    /// How many keys are in use. A key of a body may be in both lists.
    fn count(&self) -> usize {
        self.slots.len() + self.sharing.len()
    }

    fn all(&self) -> Vec<Arc<Slot>> {
        self.slots.iter().chain(self.sharing.values().flat_map(Family::slots)).cloned().collect()
    }

    fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.slots.iter().map(|slot| &slot.key).chain(self.sharing.keys())
    }
}
