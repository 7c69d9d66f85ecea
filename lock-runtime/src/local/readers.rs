//! [`Readers`]: the readers of this process that have one hold, and one lease, together.
//!
//! The first reader starts the hold in the usual way. It calls all readers that wait here, and they join it. Readers that come
//! later join it, too, until another process, or a writer here, is known to wait (rule S5). The last reader ends the hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::early::{Attendance, Early};
use super::handle::HoldHandle;
use super::resolved_request::ResolvedRequest;
use super::slot::{Slot, State, Waiter};
use super::turn::Turn;
use crate::clock::{Deadline, Moment};
use crate::observe::Path;
use crate::timing::{ENOUGH_LEASE, TURN_PATIENCE};

/// The readers that have a hold together.
#[derive(Debug)]
pub(super) struct Readers {
    /// How many tasks have the hold.
    pub(super) active: u32,
    /// The waiters that were called to the hold, and have not come yet.
    called: BTreeSet<u64>,
    called_at: Moment,
    /// Those whose acquire is not over yet.
    pub(super) early: Vec<Arc<Early>>,
}

/// What the keeper finds about the waiters that were called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// All have come.
    Answered,
    /// Some may still come.
    Open,
    /// None came in time, and nobody has the hold.
    Abandoned,
}

impl Readers {
    /// The hold of one reader.
    pub(super) fn first(now: Moment) -> Self {
        Self { active: 1, called: BTreeSet::new(), called_at: now, early: Vec::new() }
    }

    /// Whether nobody has the hold, and nobody may still come.
    pub(super) fn is_empty(&self) -> bool {
        self.active == 0 && self.called.is_empty()
    }
}

impl State {
    fn readers(&mut self) -> Option<&mut Readers> {
        self.lease.as_mut()?.hold.as_mut()?.readers.as_deref_mut()
    }

    /// Adds a reader that comes now to the hold of others.
    pub(super) fn join(&mut self, slot: &Arc<Slot>, request: &ResolvedRequest, now: Moment) -> Option<HoldHandle> {
        let lease = self.lease.as_ref()?;
        // Rule L1: a hold starts only on a lease with time left.
        let left = lease.ends(now)?.remaining_at(now);
        let is_long = left >= (request.expire / 2).min(ENOUGH_LEASE);
        mutant!(ReadersOvertakeWriter => return self.add_reader(slot, request, now));
        (is_long && lease.contention.is_none()).then(|| self.add_reader(slot, request, now))?
    }

    /// Adds a reader that was called.
    pub(super) fn join_called(
        &mut self,
        slot: &Arc<Slot>,
        id: u64,
        request: &ResolvedRequest,
        now: Moment,
    ) -> Option<HoldHandle> {
        if !self.readers()?.called.remove(&id) {
            return None;
        }
        let lease = self.lease.as_ref()?;
        let is_over = lease.has_ended(now);
        if is_over { None } else { self.add_reader(slot, request, now) }
    }

    fn add_reader(&mut self, slot: &Arc<Slot>, request: &ResolvedRequest, now: Moment) -> Option<HoldHandle> {
        let lease = self.lease.as_mut()?;
        let hold = lease.hold.as_mut()?;
        hold.readers.as_mut()?.active += 1;
        hold.body |= request.body;
        hold.linger = hold.linger.max(request.linger());
        let is_longer = request.expire > hold.expire;
        if is_longer {
            hold.expire = request.expire;
            hold.own = hold.own.max_at(Deadline::new(now, request.expire), now);
            // The keeper confirms the longer lease.
            hold.confirmed = None;
        }
        // Without its token a reader has the hold early.
        let early = request.early().or_else(|| request.fenced.then(|| Early::new(&Attendance::new())));
        hold.note_early(early.as_ref());
        let (id, token) = (hold.id, lease.token.clone());
        let holding = lease.holds.begin(request.prefix(), Path::HandOver);
        self.counts.count(Path::HandOver);
        if is_longer || early.is_some() {
            self.track(slot);
        }
        Some(HoldHandle::of_reader(slot, id, token, holding, early))
    }

    /// Takes all waiters, to call them to the hold. The caller sends the calls when the state is unlocked.
    pub(super) fn take_readers_to_call(&mut self, now: Moment) -> BTreeMap<u64, Waiter> {
        if self.waiters.is_empty() || self.readers().is_none() {
            return BTreeMap::new();
        }
        let waiters = self.take_waiters();
        if let Some(readers) = self.readers() {
            readers.called.extend(waiters.keys());
            readers.called_at = now;
        }
        waiters
    }

    /// Takes a reader out of the hold `id`, if others still have that hold. Returns whether they have.
    pub(super) fn leave_readers(&mut self, id: u64) -> bool {
        let hold = self.lease.as_mut().and_then(|lease| lease.hold.as_mut()).filter(|hold| hold.id == id);
        let Some(readers) = hold.and_then(|hold| hold.readers.as_deref_mut()) else { return false };
        mutant!(FirstReaderEndsHold => return false);
        let others = readers.active.saturating_sub(1);
        if others == 0 && readers.called.is_empty() {
            return false;
        }
        readers.active = others;
        true
    }

    /// Forgets a task that was called and is gone. Returns whether nobody is left in the hold.
    pub(super) fn forget_called(&mut self, id: u64) -> bool {
        self.readers().is_some_and(|readers| readers.called.remove(&id) && readers.is_empty())
    }

    /// Removes called waiters that are late from the hold. They keep their places (rule L7).
    pub(super) fn check_calls(&mut self, now: Moment) -> Calls {
        let Some(readers) = self.readers().filter(|readers| !readers.called.is_empty()) else { return Calls::Answered };
        if now.since(readers.called_at) <= TURN_PATIENCE {
            return Calls::Open;
        }
        mutant!(CalledReadersKeptForEver => return Calls::Open);
        let late = std::mem::take(&mut readers.called);
        let is_empty = readers.is_empty();
        for id in late {
            self.offers.note_late(id, now);
        }
        if is_empty { Calls::Abandoned } else { Calls::Answered }
    }
}

impl Slot {
    /// Calls the readers that wait here only because the lease was too short for them.
    pub(super) fn call_waiting_readers(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let now = Moment::now();
        let is_open = state.lease.as_ref().is_some_and(|lease| lease.contention.is_none() && !lease.has_ended(now));
        let waiters = if is_open { state.take_readers_to_call(now) } else { BTreeMap::new() };
        if !waiters.is_empty() {
            state.track(self);
        }
        drop(state);
        self.call(waiters);
    }

    /// Calls waiters: to the hold of readers, or to take up the turn.
    pub(super) fn call(self: &Arc<Self>, waiters: BTreeMap<u64, Waiter>) {
        for (id, waiter) in waiters {
            // When a task is gone, its turn is dropped here. That turn is not the slot's turn, and no hold waits for the task.
            drop(waiter.sender.send(Turn::new(self, id)));
        }
    }
}
