//! Rule L9: a lease that lingers. It is kept without a hold, for the next hold here.
//!
//! A lease lingers from the end of a hold until one of these happens: the next task here takes the lease over, the linger time
//! is over, another process is known to wait, a task here wants the lock in another mode, the connection by which others would
//! be heard breaks, too many leases linger, or the manager ends. A lease that lingers has no turn. So
//! both happen under the slot's lock: that a task takes the lease over, and that the lease is taken for its release.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::bias::Bias;
use super::core::Core;
use super::lease::Lease;
use super::slot::{Slot, State};
use super::upkeep::{ScheduleKeys, Trigger};
use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::observe::{Path, metrics};
use crate::store::Release;
use crate::timing::{RENEWALS_PER_LEASE, lengthened_at};

/// What a lease knows of its lingering. Boxed: a lease that never lingers has no room for it.
#[derive(Debug, Default)]
pub(super) struct Linger(Option<Box<Facts>>);

#[derive(Debug, Default)]
struct Facts {
    /// Until when the lease lingers, while it does.
    now: Option<(Deadline, metrics::Lingering)>,
    /// Whether a hold has begun on the lease while it lingered, and the lease was not lengthened since.
    is_reused: bool,
    /// Whether a hold has begun on the lease while it lingered, ever.
    was_used: bool,
    /// When the lease last began to linger.
    began: Option<Instant>,
    /// Its place among the leases that linger.
    place: Option<Place>,
}

/// What is to be done for a lease that begins to linger.
#[derive(Debug)]
pub(super) struct Lingering {
    /// Whether one more lease lingers.
    is_new: bool,
}

/// A lease that lingers no more, for its release.
#[derive(Debug)]
pub(crate) struct Lingered {
    release: Release,
    entries: ScheduleKeys,
}

impl Linger {
    /// Notes that the lease was lengthened.
    pub(super) fn on_lengthened(&mut self) {
        if let Some(facts) = &mut self.0 {
            facts.is_reused = false;
        }
    }

    fn facts(&mut self) -> &mut Facts {
        self.0.get_or_insert_default()
    }

    /// The end of the linger time, while the lease lingers.
    fn until(&self) -> Option<Deadline> {
        self.0.as_ref()?.now.as_ref().map(|(until, _)| *until)
    }

    fn is_reused(&self) -> bool {
        self.0.as_ref().is_some_and(|facts| facts.is_reused)
    }

    fn was_used(&self) -> bool {
        self.0.as_ref().is_some_and(|facts| facts.was_used)
    }
}

impl Lease {
    /// The end of the linger time, or of the lease, whichever comes first.
    fn may_linger_until(&self, linger: Duration, now: Moment) -> Deadline {
        mutant!(LingerUnchecked => return Deadline::new(now, linger));
        Deadline::new(now, linger).min_at(self.until, now)
    }

    pub(super) fn lingers(&self) -> bool {
        self.linger.until().is_some()
    }

    /// How much longer the lease lingers. Zero when it does not.
    pub(super) fn lingers_for(&self, now: Moment) -> Duration {
        self.linger.until().map_or(Duration::ZERO, |until| until.remaining_at(now))
    }

    /// In how long the lease has to be lengthened. `None` while no hold has used it again, or a renewal is on its way.
    pub(super) fn lengthen_due_in(&self, now: Moment) -> Option<Duration> {
        let is_due = self.linger.is_reused() && !self.upkeep.renewing;
        is_due.then(|| self.until.remaining_at(now).saturating_sub(lengthened_at(self.claim)))
    }

    /// Since when the store has confirmed the lease, if enough of it is left for a hold of this length: so much that no renewal
    /// would be due yet.
    pub(super) fn confirmed_for(&self, expire: Duration, now: Moment) -> Option<Moment> {
        let enough = expire / RENEWALS_PER_LEASE * (RENEWALS_PER_LEASE - 1);
        (self.until.remaining_at(now) >= enough).then(|| self.until.start())
    }
}

impl State {
    pub(super) fn lingers(&self) -> bool {
        self.lease.as_ref().is_some_and(Lease::lingers)
    }

    /// A task takes the lease over. Returns whether the lease lingered.
    pub(super) fn reuse_lingering(&mut self) -> bool {
        let Some(lease) = self.lease.as_mut().filter(|lease| lease.lingers()) else { return false };
        let facts = lease.linger.facts();
        facts.now = None;
        facts.is_reused = true;
        facts.was_used = true;
        true
    }

    /// Ends the hold `id` and lets its lease linger, when that was asked for and nobody is known to wait.
    pub(super) fn try_linger(&mut self, id: u64, slot: &Arc<Slot>, now: Moment) -> Option<Lingering> {
        let lease = self.lease.as_mut()?;
        let linger = lease.hold.as_ref().filter(|hold| hold.id == id)?.linger;
        if linger.is_zero()
            || !lease.token.may_linger()
            || lease.contention.is_some()
            || lease.has_ended(now)
            || lease.keeps_out()
            || self.forced.contains(&lease.token)
        {
            return None;
        }
        let list = &slot.core.lingering;
        if !self.waiters.is_empty() || self.offers.has_late() || !list.is_open() {
            return None;
        }
        // Whoever waits would not be heard.
        if !slot.core.schedule().hears_of(&slot.key) {
            return None;
        }
        if !lease.linger.was_used() && !list.bias.admits(&slot.key) {
            return None;
        }
        let until = lease.may_linger_until(linger, now);
        let began = Deadline::new(now, Duration::ZERO).on_timer();
        lease.hold = None;
        lease.fresh = false;
        lease.path = Path::Linger;
        let facts = lease.linger.facts();
        facts.now = Some((until, lease.holds.linger()));
        facts.began = Some(began);
        let is_new = facts.place.is_none();
        facts.place.get_or_insert_with(|| list.add(slot, began));
        let look_in = lease.lengthen_due_in(now).unwrap_or(Duration::MAX).min(until.remaining_at(now));
        let looks_sooner = lease.upkeep.entries.due.is_some_and(|(at, _)| at <= began + look_in);
        if !looks_sooner {
            lease.look_in(slot, look_in);
        }
        self.turn = None;
        self.offers.reset();
        Some(Lingering { is_new })
    }

    /// Takes the lease if it lingers, for its release.
    fn take_lingering(&mut self, key: &Arc<str>) -> Option<Lingered> {
        let mut lease = self.lease.take_if(|lease| lease.lingers())?;
        let entries = ScheduleKeys { tracked: self.tracked.take(), ..std::mem::take(&mut lease.upkeep.entries) };
        Some(Lingered { release: lease.release(key), entries })
    }

    /// The same when the linger time is over, or when the store may have forgotten the lease: nobody would notice a loss.
    pub(super) fn take_lingering_if_over(&mut self, key: &Arc<str>, trigger: Trigger, now: Moment) -> Option<Lingered> {
        let lease = self.lease.as_ref().filter(|lease| lease.lingers())?;
        let is_over = trigger == Trigger::Verify || lease.lingers_for(now).is_zero();
        if is_over { self.take_lingering(key) } else { None }
    }
}

impl Slot {
    /// Takes in that another process waits. Returns the lease that has to yield to it.
    pub(super) fn on_contention(self: &Arc<Self>) -> Option<Lingered> {
        let mut state = self.state.lock();
        if let Some(lease) = &mut state.lease {
            lease.note_contention();
            state.note_waiter_for_early(self);
        } else if state.pending.as_mut().is_some_and(|pending| pending.note_contention()) {
            self.changed.notify_waiters();
        }
        self.yield_lingering(&mut state)
    }

    /// Takes in that another queue of this process waits for the lock. Returns the lease that has to yield to it.
    pub(super) fn on_waiter_beside(self: &Arc<Self>, waits: bool) -> Option<Lingered> {
        let mut state = self.state.lock();
        match (&mut state.lease, waits) {
            (Some(lease), true) => lease.note_contention(),
            // It may be in front in the store's queue, and its grant is on its way.
            (None, true) => state.pending.iter_mut().for_each(|pending| pending.note_waiter_behind()),
            (_, false) => {}
        }
        state.note_waiter_for_early(self);
        self.yield_lingering(&mut state)
    }

    fn yield_lingering(&self, state: &mut State) -> Option<Lingered> {
        mutant!(LingersOn => return None);
        if let Some(lease) = state.lease.as_ref().filter(|lease| lease.lingers()) {
            self.core.lingering.bias.on_yield(&self.key, lease.linger.was_used());
        }
        state.take_lingering(&self.key)
    }

    /// Whether the lease lingers. `false` as well when the slot has none.
    pub(crate) fn lingers(&self) -> bool {
        self.state.lock().lingers()
    }

    /// Takes the lease from the slot that was the first of the list at `place`, unless it was used since.
    fn evict(self: &Arc<Self>, place: PlaceKey) -> Option<Lingered> {
        let mut state = self.state.lock();
        let lease = state.lease.as_mut()?;
        let facts = lease.linger.facts();
        facts.place.take_if(|listed| listed.key == place)?;
        match facts.began {
            // A hold has the lease now.
            _ if facts.now.is_none() => None,
            Some(began) if began > place.0 => {
                facts.place = Some(self.core.lingering.add(self, began));
                None
            }
            _ => state.take_lingering(&self.key),
        }
    }
}

impl Core {
    /// Sees to a lease that has begun to linger.
    pub(super) fn on_linger_began(&self, slot: &Arc<Slot>, Lingering { is_new }: Lingering) {
        // Rule S7: the store tells only other processes of a permit that this process waits for. So this process looks itself.
        if slot.share.is_some() && self.table().is_wanted_beside(slot) {
            self.note_others_wait(slot);
        }
        if !is_new {
            return;
        }
        while let Some((oldest, place)) = self.lingering.take_excess() {
            if let Some(oldest) = oldest.upgrade()
                && let Some(lingered) = oldest.evict(place)
            {
                self.release_lingered(&oldest, lingered);
            }
        }
    }

    /// Releases a lease that lingered, over the keeper's connection.
    pub(crate) fn release_lingered(&self, slot: &Arc<Slot>, Lingered { release, entries }: Lingered) {
        self.schedule().cancel(entries);
        self.release_by_keeper(release);
        self.table().forget_if_unused(slot);
    }

    /// Releases the lease of `slot` if it lingers.
    pub(super) fn release_if_lingering(&self, slot: &Arc<Slot>) {
        let lingered = slot.state.lock().take_lingering(slot.key());
        if let Some(lingered) = lingered {
            self.release_lingered(slot, lingered);
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
pub(super) struct LingeringLeases {
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
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, is_closed: AtomicBool::new(false), bias: Bias::default(), places: Mutex::default() })
    }

    /// Whether no lease lingers.
    pub(super) fn is_empty(&self) -> bool {
        self.places.lock().places.is_empty()
    }

    fn is_open(&self) -> bool {
        self.limit > 0 && !self.is_closed.load(Ordering::SeqCst)
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
