//! [`Family`]: the slots of one name whose leases share the lock.

use std::sync::Arc;

use super::Core;
use super::slot::permits::{FoundPermit, OldPlace, PermitQueue};
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
            return self.enter_permit(core, request, share, None);
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
    ) -> (Arc<Slot>, Entrance<'a>) {
        let (mut first, mut in_use, mut asked_for) = (None, 0, 0);
        for slot in self.of_share(share) {
            match slot.find_permit(None) {
                FoundPermit::Idle(id) => return turn_of(slot, id),
                FoundPermit::InUse { is_held } => {
                    first.get_or_insert(slot);
                    in_use += 1;
                    asked_for += usize::from(!is_held);
                }
                FoundPermit::AwaitsAdopter => {}
            }
        }
        let Some(slot) = first.filter(|_| !share.fits_beside(in_use)).map(Arc::clone) else {
            let slot = self.add_permit(core, request, share);
            let id = slot.step(|lock, _| slot.take_turn_of_permit(lock));
            return turn_of(&slot, id);
        };
        let Some(permits) = slot.permits.as_ref().filter(|_| !request.is_try()) else {
            return (slot, Entrance::Found(Entered::Taken));
        };
        let others = permits.len() + asked_for;
        let waiting = match core.waiter_limit.admit(others) {
            Ok(waiting) => waiting,
            Err(limit) => return (slot, Entrance::Full(limit)),
        };
        let waiter = Waiter::new(request);
        let waiter = match place {
            Some(place) => waiter.with_patience(place.patience),
            None => waiter,
        };
        let id = permits.add(waiter, place);
        // A slot that came free just before may not have seen this task.
        for slot in self.of_share(share) {
            if let FoundPermit::Idle(turn) = slot.find_permit(Some(id)) {
                return turn_of(slot, turn);
            }
        }
        (slot, Entrance::Waits(id, waiting))
    }

    /// The slots of the permits that tasks here have, or may have.
    fn of_share(&self, share: Share) -> impl Iterator<Item = &Arc<Slot>> {
        self.slots.iter().filter(move |slot| slot.share == Some(share))
    }

    /// One more slot for a permit.
    pub(super) fn add_permit(&mut self, core: &Arc<Core>, request: &ResolvedRequest, share: Share) -> Arc<Slot> {
        let queue = self.of_share(share).next().and_then(|slot| slot.permits.clone());
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
        self.together().filter(|slot| slot.peek(Lock::lingers)).cloned()
    }

    /// The same slot, if it keeps out a request of this `share`. Readers share the lock with a lease of readers.
    pub(super) fn lingering_beside(&self, share: Share) -> Option<Arc<Slot>> {
        if share == Share::READ { None } else { self.lingering() }
    }

    /// Forgets `slot` when no task uses it. Returns what it has counted.
    pub(super) fn forget_if_unused(&mut self, slot: &Arc<Slot>) -> Option<Counts> {
        let place = self.slots.iter().position(|listed| Arc::ptr_eq(listed, slot))?;
        let counts = slot.note(Lock::forget_if_unused)?;
        self.slots.swap_remove(place);
        Some(counts)
    }
}

/// The turn of a permit that no other task uses.
fn turn_of<'a>(slot: &Arc<Slot>, id: u64) -> (Arc<Slot>, Entrance<'a>) {
    (Arc::clone(slot), Entrance::Found(Entered::Turn { id, has_lease: false }))
}
