//! The leases of a manager that linger (rule L9), and when they linger no more.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use super::ScheduleKeys;
use super::Slot;
use crate::local::Core;
use crate::local::bias::Bias;
use crate::mutex::Mutex;
use crate::protocol::Release;

impl Slot {
    /// Takes in that another process waits. Returns the lease that has to yield to it.
    pub(in crate::local) fn on_contention(self: &Arc<Self>) -> Option<Release> {
        let yielded = self.step(|lock, _| {
            lock.on_contention(&**self);
            lock.yield_lingering(&**self)
        });
        yielded.map(|yielded| self.note_yield(yielded))
    }

    /// Takes in that another queue of this process wants the lock, and perhaps `waits` for it. Returns the lease that has to yield to
    /// it.
    pub(in crate::local) fn on_waiter_beside(self: &Arc<Self>, waits: bool) -> Option<Release> {
        let yielded = self.step(|lock, _| {
            lock.on_waiter_beside(waits, &**self);
            lock.yield_lingering(&**self)
        });
        yielded.map(|yielded| self.note_yield(yielded))
    }

    fn note_yield(&self, (release, was_used): (Release, bool)) -> Release {
        self.core.lingering.bias.on_yield(&self.key, was_used);
        release
    }

    /// Takes the lease from the slot that was the first of the list at `place`, unless it was used since.
    fn evict(self: &Arc<Self>, place: PlaceKey) -> Option<Release> {
        let mut stale = ScheduleKeys::default();
        let evicted = self.step_before_cancel(&mut stale, |state, _| {
            let began = state.listed.take_if(|listed| listed.place.key == place)?.began;
            // Else a hold has the lease now.
            if state.lock.lingers() && began > place.0 {
                let place = self.core.lingering.add(self, began);
                state.listed = Some(Box::new(Listed { place, began }));
                return None;
            }
            state.lock.take_lingering(&**self)
        });
        self.core.schedule().cancel(stale);
        evicted
    }
}

impl Core {
    /// Sees to a lease that has begun to linger.
    pub(in crate::local) fn on_linger_began(&self, slot: &Arc<Slot>, is_newly_listed: bool) {
        // Rule S7: the store tells only other processes of a permit that this process waits for. So this process looks itself.
        if slot.share.is_some() && self.table().is_wanted_beside(slot) {
            self.note_others_wait(slot);
        }
        if !is_newly_listed {
            return;
        }
        while let Some((oldest, place)) = self.lingering.take_excess() {
            if let Some(oldest) = oldest.upgrade()
                && let Some(release) = oldest.evict(place)
            {
                self.release_lingered(&oldest, release);
            }
        }
    }

    /// Releases a lease that lingered, over the keeper's connection.
    pub(crate) fn release_lingered(&self, slot: &Arc<Slot>, release: Release) {
        self.release_later(release);
        self.table().forget_if_unused(slot);
    }

    /// Releases the lease of `slot` if it lingers.
    pub(in crate::local) fn release_if_lingering(&self, slot: &Arc<Slot>) {
        if let Some(release) = slot.step(|lock, _| lock.take_lingering(&**slot)) {
            self.release_lingered(slot, release);
        }
    }

    /// Releases all leases that linger, and lets no lease linger any more: the manager ends.
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
            self.release_if_lingering(&slot);
        }
    }
}

/// When a lease began to linger, and a number that distinguishes the leases of one instant.
type PlaceKey = (Instant, u64);

/// The leases of a manager that linger, or that lingered and are in use: the one that was used least recently is the first. A
/// lease that is used again keeps its place until the list is full.
///
/// It is locked under the lock of a slot, and locks no slot itself.
pub(in crate::local) struct LingeringLeases {
    limit: usize,
    is_closed: AtomicBool,
    bias: Bias,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    last: u64,
    places: BTreeMap<PlaceKey, Weak<Slot>>,
}

impl LingeringLeases {
    pub(in crate::local) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, is_closed: AtomicBool::new(false), bias: Bias::default(), places: Mutex::default() })
    }

    /// Whether no lease lingers.
    pub(in crate::local) fn is_empty(&self) -> bool {
        self.places.lock().places.is_empty()
    }

    /// Whether the lease of `key` may linger. One that lingered and `was_used` has shown that it is worth it.
    pub(in crate::local) fn admits(&self, key: &str, was_used: bool) -> bool {
        let is_open = self.limit > 0 && !self.is_closed.load(Ordering::SeqCst);
        is_open && (was_used || self.bias.admits(key))
    }

    fn add(self: &Arc<Self>, slot: &Arc<Slot>, at: Instant) -> Place {
        let mut places = self.places.lock();
        places.last += 1;
        let key = (at, places.last);
        places.places.insert(key, Arc::downgrade(slot));
        Place { list: Arc::clone(self), key }
    }

    /// Takes the first of the list when there are too many.
    fn take_excess(&self) -> Option<(Weak<Slot>, PlaceKey)> {
        let mut places = self.places.lock();
        if places.places.len() <= self.limit {
            return None;
        }
        places.places.pop_first().map(|(place, slot)| (slot, place))
    }
}

/// What a slot knows of the list whose lease lingers, or has lingered.
#[derive(Debug)]
pub(in crate::local) struct Listed {
    place: Place,
    /// When the lease last began to linger.
    began: Instant,
}

impl Listed {
    /// The lease of `slot` begins to linger.
    pub(in crate::local) fn begin(listed: &mut Option<Box<Self>>, slot: &Arc<Slot>) {
        let began = Instant::now();
        match listed {
            Some(listed) => listed.began = began,
            None => *listed = Some(Box::new(Self { place: slot.core.lingering.add(slot, began), began })),
        }
    }
}

/// The place of a lease in the list. It is left when the lease ends, in whatever way.
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
