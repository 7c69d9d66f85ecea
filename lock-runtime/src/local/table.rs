//! [`Table`]: the keys in use in this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::core::Core;
use super::slot::{Entered, Slot};

#[cfg(not(test))]
type Hasher = std::hash::RandomState;
/// The same order in each run of a simulation.
#[cfg(test)]
type Hasher = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

type Slots = HashMap<Arc<str>, Arc<Slot>, Hasher>;

/// One slot for each key that a task here holds, waits for, or still has to release.
///
/// Lock order: the table, then a slot, then the keeper's schedule.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Mutex<Slots>,
    /// Notified when no more keys are in use than the shutdown allows.
    emptied: Notify,
    /// How many keys may be left in use: the keys of the bodies that wait for the shutdown themselves.
    rest: AtomicUsize,
}

impl Table {
    fn locked(&self) -> MutexGuard<'_, Slots> {
        // No code that can panic runs under this lock.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn for `key`, or a place in its queue when `wait` is set.
    pub(super) fn enter<'a>(
        &self,
        core: &'a Arc<Core>,
        key: &Arc<str>,
        fenced: bool,
        wait: bool,
    ) -> (Arc<Slot>, Entered<'a>) {
        let mut slots = self.locked();
        let slot = match slots.get(key) {
            Some(slot) => Arc::clone(slot),
            None => Arc::clone(slots.entry(Arc::clone(key)).or_insert_with(|| Arc::new(Slot::new(core, key)))),
        };
        // This runs under the table's lock, so the slot can't be forgotten before it is entered.
        let entered = slot.enter(core.waiter_limit(), fenced, wait);
        (slot, entered)
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Slot>> {
        self.locked().get(key).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Slot>> {
        self.locked().values().cloned().collect()
    }

    /// Forgets `slot` when no task uses it.
    pub(crate) fn forget_if_unused(&self, slot: &Arc<Slot>) {
        let mut slots = self.locked();
        let is_listed = slots.get(&slot.key).is_some_and(|listed| Arc::ptr_eq(listed, slot));
        if is_listed && slot.is_unused() {
            slots.remove(&slot.key);
            if slots.is_empty() && slots.capacity() > 1024 {
                slots.shrink_to_fit();
            }
            if slots.len() <= self.rest.load(Ordering::Relaxed) {
                self.emptied.notify_waiters();
            }
        }
    }

    /// Resolves when no key except `own` is in use.
    pub(crate) async fn wait_until_empty_but(&self, own: &[Arc<str>]) {
        self.rest.fetch_max(own.len(), Ordering::Relaxed);
        loop {
            let emptied = self.emptied.notified();
            if self.locked().keys().all(|key| own.contains(key)) {
                return;
            }
            emptied.await;
        }
    }
}
