//! The lingering leases of a manager (rule L9), and when they stop lingering.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use super::ScheduleKeys;
use super::Slot;
use crate::local::Core;
use crate::local::linger_history::LingerHistory;
use crate::mutex::Mutex;

impl Slot {
    /// Handles the news that others wait: another process, if the store `tells`, or a task here that wants the lock in another mode.
    pub(in crate::local) fn on_contention(self: &Arc<Self>, tells: bool) {
        let yielded = self.step(|lock, out| lock.on_contention(tells, self.env(), out));
        self.note_yield(yielded);
    }

    /// Releases a lingering lease for others that want the lock, and do not wait for it.
    pub(in crate::local) fn yield_lingering(self: &Arc<Self>) {
        let yielded = self.step(|lock, out| lock.yield_lingering(self.env(), out));
        self.note_yield(yielded);
    }

    /// Notes that a lingering lease was released for others, and whether it `was_used` again before.
    fn note_yield(&self, was_used: Option<bool>) {
        if let Some(was_used) = was_used {
            self.core.lingering.history.on_yield(&self.key, was_used);
        }
    }

    pub(in crate::local) fn release_lingering(self: &Arc<Self>) {
        self.step(|lock, out| lock.release_lingering(self.env(), out));
    }

    /// Releases the lease of the slot that was first in the list at `place`, unless the lease was used since.
    fn evict(self: &Arc<Self>, place: PlaceKey) {
        let mut stale = ScheduleKeys::default();
        self.step_before_cancel(&mut stale, |state, out| {
            let Some(listed) = state.listed.take_if(|listed| listed.place.key == place) else { return };
            let began = listed.began;
            // Otherwise a hold has the lease now.
            if state.lock.lingers() && began > place.0 {
                let place = self.core.lingering.add(self, began);
                state.listed = Some(Box::new(Listed { place, began }));
            } else {
                state.lock.release_lingering(self.env(), out);
            }
        });
        self.core.schedule().cancel(stale);
    }
}

impl Core {
    /// Handles a lease that has begun to linger.
    pub(in crate::local) fn on_linger_began(&self, slot: &Arc<Slot>, is_newly_listed: bool) {
        // Rule L9: the store tells only other processes of a permit that this process waits for, so check here.
        if slot.share.is_some() && self.table().is_wanted_beside(slot) {
            slot.on_contention(true);
        }
        if !is_newly_listed {
            return;
        }
        while let Some((oldest, place)) = self.lingering.take_excess() {
            if let Some(oldest) = oldest.upgrade() {
                oldest.evict(place);
            }
        }
    }

    /// Releases all lingering leases, and lets no more linger: the manager ends.
    pub(crate) fn close_lingering(&self) {
        // In a child after a fork, everything that could be released belongs to the parent.
        if self.is_inherited() {
            return;
        }
        mutant!(LingersPastTheEnd => return);
        self.lingering.is_closed.store(true, Ordering::SeqCst);
        if self.lingering.is_empty() {
            return;
        }
        for slot in self.table().all() {
            slot.release_lingering();
        }
    }
}

/// When a lease began to linger, and a number that distinguishes leases of the same instant.
type PlaceKey = (Instant, u64);

/// The lingering leases of a manager, and those that have lingered and are in use; the least recently used is the first. A lease that is
/// used again keeps its place until the list is full.
///
/// Its mutex is taken under a slot's, and it takes no slot's mutex itself.
pub(in crate::local) struct LingeringLeases {
    limit: usize,
    is_closed: AtomicBool,
    history: LingerHistory,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    last: u64,
    places: BTreeMap<PlaceKey, Weak<Slot>>,
}

impl LingeringLeases {
    pub(in crate::local) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            is_closed: AtomicBool::new(false),
            history: LingerHistory::default(),
            places: Mutex::default(),
        })
    }

    pub(in crate::local) fn is_empty(&self) -> bool {
        self.places.lock().places.is_empty()
    }

    /// Whether the lease of `key` may linger. One that lingered and `was_used` has proved useful.
    pub(in crate::local) fn admits(&self, key: &str, was_used: bool) -> bool {
        let is_open = self.limit > 0 && !self.is_closed.load(Ordering::SeqCst);
        is_open && (was_used || self.history.admits(key))
    }

    fn add(self: &Arc<Self>, slot: &Arc<Slot>, at: Instant) -> Place {
        let mut places = self.places.lock();
        places.last += 1;
        let key = (at, places.last);
        places.places.insert(key, Arc::downgrade(slot));
        Place { list: Arc::clone(self), key }
    }

    /// Removes the first place if there are too many.
    fn take_excess(&self) -> Option<(Weak<Slot>, PlaceKey)> {
        let mut places = self.places.lock();
        if places.places.len() <= self.limit {
            return None;
        }
        places.places.pop_first().map(|(place, slot)| (slot, place))
    }
}

/// What a slot knows of the list, if its lease lingers or has lingered.
#[derive(Debug)]
pub(in crate::local) struct Listed {
    place: Place,
    began: Instant,
}

impl Listed {
    /// Notes that the lease of `slot` begins to linger.
    pub(in crate::local) fn begin(listed: &mut Option<Box<Self>>, slot: &Arc<Slot>) {
        let began = Instant::now();
        match listed {
            Some(listed) => listed.began = began,
            None => *listed = Some(Box::new(Self { place: slot.core.lingering.add(slot, began), began })),
        }
    }
}

/// A lease's place in the list. Dropping it removes the place, however the lease ends.
struct Place {
    list: Arc<LingeringLeases>,
    key: PlaceKey,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.list.places.lock().places.remove(&self.key);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.key).finish()
    }
}
