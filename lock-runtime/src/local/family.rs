//! [`Family`]: the slots of one name whose leases share the lock.

use std::sync::Arc;

use super::Core;
use super::slot::permits::{OldPlace, PermitQueue};
use super::slot::{Entrance, Slot};
use crate::clock::Moment;
use crate::lock::{Counts, Entered, Lock, ResolvedRequest, Waiter};
use crate::share::{Share, SharedLeases};

/// One slot for the readers that have one lease together, one for each reader with a lease of its own, and one for each permit.
///
/// It is used under the lock of the table.
#[derive(Debug, Default)]
pub(super) struct Family {
    slots: Vec<Arc<Slot>>,
    last_number: u32,
    leases: SharedLeases,
}

/// The number of the slot whose readers have one lease together.
const TOGETHER: u32 = 0;

impl Family {
    pub(super) fn slots(&self) -> &[Arc<Slot>] {
        &self.slots
    }

    pub(super) fn enter<'a>(
        &mut self,
        core: &'a Arc<Core>,
        request: &ResolvedRequest,
        share: Share,
        now: Moment,
    ) -> (Arc<Slot>, Entrance<'a>) {
        if share != Share::READ {
            return self.enter_permit(core, request, share, None, now);
        }
        let slot = match self.together().filter(|_| request.joins_readers()).map(Arc::clone) {
            Some(slot) => slot,
            None if request.joins_readers() => self.add(core, request, share, TOGETHER, None),
            None => self.add_numbered(core, request, share, None),
        };
        let entered = slot.enter(&core.waiter_limit, request, now);
        (slot, entered)
    }

    /// Enters for any of the permits, at the old `place` of a task that came late.
    pub(super) fn enter_permit<'a>(
        &mut self,
        core: &'a Arc<Core>,
        request: &ResolvedRequest,
        share: Share,
        place: Option<OldPlace>,
        now: Moment,
    ) -> (Arc<Slot>, Entrance<'a>) {
        if let Some((slot, id)) = self.idle_permit(share, None) {
            return (slot, Entrance::Found(Entered::Turn { id, has_lease: false }));
        }
        let first = self.permits(share).next().map(Arc::clone);
        let (Some(first), false) = (first.as_ref(), share.fits_beside(self.permits(share).count())) else {
            let slot = self.add_permit(core, request, share);
            let entered = slot.enter(&core.waiter_limit, request, now);
            return (slot, entered);
        };
        let slot = Arc::clone(first);
        let Some(permits) = slot.permits.as_ref().filter(|_| !request.is_try()) else {
            return self.refuse_try(slot, share);
        };
        let others = permits.len() + self.permits(share).filter(|slot| !slot.ask(Lock::is_held)).count();
        let waiting = match core.waiter_limit.admit(others) {
            Ok(waiting) => waiting,
            Err(limit) => return (slot, Entrance::Full(limit)),
        };
        let waiter = Waiter::new(request);
        let patience = place.map_or(waiter.patience, |place| place.patience);
        let id = permits.add(Waiter { patience, ..waiter }, place);
        // A slot that came free just before may not have seen this task.
        if let Some((idle, turn)) = self.idle_permit(share, Some(id)) {
            return (idle, Entrance::Found(Entered::Turn { id: turn, has_lease: false }));
        }
        for slot in self.permits(share) {
            slot.step(|lock, _| lock.note_waiter_for_early());
        }
        (slot, Entrance::Waits(id, waiting))
    }

    /// How a single try finds the permits when all of them are in use here: it waits for a task that has only asked for its permit.
    fn refuse_try<'a>(&self, first: Arc<Slot>, share: Share) -> (Arc<Slot>, Entrance<'a>) {
        let mut found = self.permits(share).map(|slot| (slot, slot.ask(Lock::refuse_try)));
        let asked = found.find(|(_, entered)| matches!(entered, Entered::Asked { .. }));
        let (slot, entered) = asked.map_or((first, Entered::Taken), |(slot, entered)| (Arc::clone(slot), entered));
        (slot, Entrance::Found(entered))
    }

    /// A slot whose turn no task has, and the turn. For a task that waits as `waiting`, its place in the queue ends with that.
    fn idle_permit(&self, share: Share, waiting: Option<u64>) -> Option<(Arc<Slot>, u64)> {
        self.permits(share).find_map(|slot| slot.take_idle_turn(waiting).map(|id| (Arc::clone(slot), id)))
    }

    /// The slots of the permits that tasks here have, or may have. A permit that a task is about to adopt is of no use to others: its
    /// lease comes from another process, and may not come at all.
    fn permits(&self, share: Share) -> impl Iterator<Item = &Arc<Slot>> {
        self.slots.iter().filter(move |slot| slot.share == Some(share) && !slot.ask(Lock::has_adopter))
    }

    /// One more slot for a permit.
    pub(super) fn add_permit(&mut self, core: &Arc<Core>, request: &ResolvedRequest, share: Share) -> Arc<Slot> {
        let queue = self.slots.iter().find(|slot| slot.share == Some(share)).and_then(|slot| slot.permits.clone());
        self.add_numbered(core, request, share, Some(queue.unwrap_or_default()))
    }

    fn add_numbered(
        &mut self,
        core: &Arc<Core>,
        request: &ResolvedRequest,
        share: Share,
        permits: Option<Arc<PermitQueue>>,
    ) -> Arc<Slot> {
        self.last_number = self.last_number.checked_add(1).unwrap_or(TOGETHER + 1);
        self.add(core, request, share, self.last_number, permits)
    }

    fn add(
        &mut self,
        core: &Arc<Core>,
        request: &ResolvedRequest,
        share: Share,
        number: u32,
        permits: Option<Arc<PermitQueue>>,
    ) -> Arc<Slot> {
        let leases = Some(self.leases.clone());
        let slot = Slot { share: Some(share), number, permits, leases, ..Slot::new(core, &request.key) };
        let slot = Arc::new(slot);
        self.slots.push(Arc::clone(&slot));
        slot
    }

    /// The slot of the readers that have one lease together.
    fn together(&self) -> Option<&Arc<Slot>> {
        self.slots.iter().find(|slot| slot.number == TOGETHER)
    }

    /// The slot whose lease lingers: permits do not.
    pub(super) fn lingering(&self) -> Option<Arc<Slot>> {
        mutant!(LingersBesideOthers => return None);
        self.together().filter(|slot| slot.ask(Lock::lingers)).cloned()
    }

    /// The same slot, if it keeps out a request of this `share`. Readers share the lock with a lease of readers.
    pub(super) fn lingering_beside(&self, share: Share) -> Option<Arc<Slot>> {
        if share == Share::READ { None } else { self.lingering() }
    }

    /// Forgets `slot` when no task uses it. Returns what it has counted.
    pub(super) fn forget_if_unused(&mut self, slot: &Arc<Slot>) -> Option<Counts> {
        let place = self.slots.iter().position(|listed| Arc::ptr_eq(listed, slot))?;
        let counts = slot.ask(Lock::counts_if_unused)?;
        self.slots.swap_remove(place);
        Some(counts)
    }
}
