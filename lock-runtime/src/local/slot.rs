//! [`Slot`]: one key in use, with its queue of tasks and the state of its lease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::active_hold::{ActiveHold, EndedHold};
use super::asking::EndingToken;
use super::core::Core;
use super::counters::SlotCounts;
use super::family::SharedLeases;
use super::handle::HoldHandle;
use super::lease::Lease;
use super::offer::Offers;
use super::pending_ask::PendingAsk;
use super::permits::PermitQueue;
use super::resolved_request::ResolvedRequest;
use super::turn::Turn;
use super::upkeep::ScheduleKeys;
use super::waiter_limit::{WaiterLimit, WaiterPermit};
use crate::clock::Moment;
use crate::loss_reason::LossReason;
use crate::mutex::Mutex;
use crate::observe::Path;
use crate::share::Share;
use crate::store::{Release, StoreError};
use crate::timing::TURN_PATIENCE;
use crate::token::Token;

/// What this process knows about one key in use.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The code that works on a slot reaches the core through the slot. To count references to the core at each step
    /// would make all threads contend for one counter.
    pub(super) core: Arc<Core>,
    pub(super) key: Arc<str>,
    /// `None` for the lock alone.
    pub(super) share: Option<Share>,
    /// Tells the slots of one name and share apart.
    pub(super) number: u32,
    /// Where tasks wait for this permit, or another of the same name.
    pub(super) permits: Option<Arc<PermitQueue>>,
    /// Counts the leases of this process that share the lock. `None` for the lock alone.
    pub(super) leases: Option<SharedLeases>,
    pub(super) state: Mutex<State>,
    /// Wakes the task that drives the store, and the tasks that watch the hold. A wake-up is a hint to look again.
    pub(super) changed: Notify,
    /// How often a turn was taken from a late task (rule L7).
    pub(super) takings: AtomicU32,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) waiters: BTreeMap<u64, Waiter>,
    fenced_waiters: u32,
    /// How many single tries wait for the outcome of the turn.
    pub(super) waiting_tries: u32,
    last_id: u64,
    /// The id of the task that has the turn.
    pub(super) turn: Option<u64>,
    pub(super) offers: Offers,
    pub(super) counts: SlotCounts,
    /// The slot's entry in the keeper's list of slots to look at soon.
    pub(super) tracked: Option<u64>,
    /// Boxed: there is none while a lease is held.
    pub(super) pending: Option<Box<PendingAsk>>,
    pub(super) lease: Option<Lease>,
    /// Why the last command to the store failed. Boxed, like all that most slots never have.
    pub(super) failure: Option<Box<StoreError>>,
    /// Whether the last lease ended because another process waited.
    pub(super) has_yielded: bool,
    /// Since when nothing is known of the store, if a try was given up because its task read no answer in time.
    pub(super) unread_since: Option<Box<Moment>>,
    /// Tokens that are being released.
    pub(super) ending: Vec<EndingToken>,
    /// The tokens whose lock was released by force, as a message says. Each stays here until the user of its hold is gone, or
    /// until the store says that the message was wrong.
    pub(super) forced: Vec<Token>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) sender: oneshot::Sender<Turn>,
    pub(super) fenced: bool,
    /// How long the task may take to come when it is called.
    pub(super) patience: Duration,
}

/// The outcome of entering a slot.
pub(super) enum Entered<'a> {
    /// The task has the turn at once, under this id, and perhaps a lease that lingered.
    Turn { id: u64, has_lease: bool },
    /// The task has the hold of other readers together with them.
    Joined(HoldHandle),
    /// The task waits under this id, in the slot's queue or in that of all permits.
    Waiting(u64, oneshot::Receiver<Turn>, WaiterPermit<'a>),
    /// A task here holds the lock, and this task does not want to wait.
    Taken,
    /// The same, but the task with the turn does not hold the lock yet. A single try waits for the outcome of that turn. So many
    /// holds there were before.
    Asked { holds: u64 },
    /// The waiter limit is reached.
    Full(usize),
}

impl Slot {
    pub(super) fn new(core: &Arc<Core>, key: &Arc<str>) -> Self {
        Self {
            core: Arc::clone(core),
            key: Arc::clone(key),
            share: None,
            number: 0,
            permits: None,
            leases: None,
            state: Mutex::default(),
            changed: Notify::new(),
            takings: AtomicU32::new(0),
        }
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Makes the task that drives the store, and the tasks that watch the hold, look again.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    pub(super) fn enter<'a>(
        self: &Arc<Self>,
        waiter_limit: &'a WaiterLimit,
        request: &ResolvedRequest,
        now: Moment,
    ) -> Entered<'a> {
        let mut state = self.state.lock();
        if request.joins_readers()
            && let Some(joined) = state.join(self, request, now)
        {
            return Entered::Joined(joined);
        }
        // A turn that no task here has taken up goes to the first task that comes.
        if state.is_turn_free() {
            let id = state.take_turn();
            return Entered::Turn { id, has_lease: state.reuse_lingering() };
        }
        if request.is_try() {
            return state.refuse_try();
        }
        // The task with the turn waits, too, unless it holds the lock.
        let others = state.waiters.len() + usize::from(!state.is_held());
        let waiting = match waiter_limit.admit(others) {
            Ok(waiting) => waiting,
            Err(limit) => return Entered::Full(limit),
        };
        let (sender, receiver) = oneshot::channel();
        let id = state.new_id();
        state.add_waiter(id, Waiter { sender, fenced: request.fenced, patience: TURN_PATIENCE });
        state.note_waiter_for_early(self);
        Entered::Waiting(id, receiver, waiting)
    }

    pub(super) fn leave(&self, id: u64) {
        mutant!(DeadTurnNotPassed => return);
        if let Some(permits) = self.permits.as_ref().filter(|_| PermitQueue::has_made(id)) {
            permits.remove(id);
            return;
        }
        self.state.lock().remove_waiter(id);
    }

    /// Whether a task here has the turn.
    pub(super) fn is_taken(&self) -> bool {
        self.state.lock().turn.is_some()
    }

    /// Whether a task here has the turn, and no lease yet: it asks, or is about to.
    pub(super) fn waits(&self) -> bool {
        let state = self.state.lock();
        state.turn.is_some() && state.lease.is_none()
    }

    /// What the slot has counted, when no task uses it.
    pub(super) fn counts_if_unused(&self) -> Option<SlotCounts> {
        let state = self.state.lock();
        let State { turn, waiters, offers, pending, lease, ending, .. } = &*state;
        let is_unused = turn.is_none()
            && waiters.is_empty()
            && !offers.has_late()
            && pending.is_none()
            && lease.is_none()
            && ending.is_empty();
        is_unused.then_some(state.counts)
    }

    /// What the slot has counted, how many tasks hold the lock, and whether its lease lingers.
    pub(super) fn counts(&self) -> (SlotCounts, u32, bool) {
        let state = self.state.lock();
        let hold = state.lease.as_ref().and_then(|lease| lease.hold.as_ref());
        (state.counts, hold.map_or(0, ActiveHold::users), state.lingers())
    }

    /// Whether a task here holds the lock.
    pub(super) fn is_held(&self) -> bool {
        self.state.lock().is_held()
    }

    /// Passes the turn `id` to the next waiter.
    ///
    /// When there is no next waiter, it returns what is left to release. A turn that was taken away passes nothing on.
    fn pass(self: &Arc<Self>, id: u64, passed_by: PassedBy) -> Passed {
        let mut id = id;
        loop {
            let mut state = self.state.lock();
            let was_late = passed_by == PassedBy::Task && state.offers.forget(id);
            if self.share.is_some() && state.forget_called(id) {
                return Passed::LeftNobody;
            }
            if state.turn != Some(id) {
                return Passed::Revoked { was_late };
            }
            if let Some(lease) = &mut state.lease {
                lease.fresh = false;
            }
            state.take_from_queue(id, self);
            let Some((&next, _)) = state.waiters.first_key_value() else {
                if state.offer_to_late(self) {
                    return Passed::On;
                }
                state.turn = None;
                state.offers.reset();
                let tracked = state.tracked.take();
                let pending = state.pending.take().filter(|pending| pending.may_stand());
                let withdrawal = pending.map(|pending| pending.withdrawal(&self.key));
                return Passed::Nobody { withdrawal, lease_left: state.lease.is_some(), tracked };
            };
            let waiter = state.remove_waiter(next);
            state.turn = Some(next);
            state.offers.make_to_next(waiter.as_ref().map_or(TURN_PATIENCE, |waiter| waiter.patience));
            state.track(self);
            drop(state);
            let Some(waiter) = waiter else { continue };
            match waiter.sender.send(Turn::new(self, next)) {
                Ok(()) => return Passed::On,
                Err(unclaimed) => {
                    // Rule L5: a waiter that is gone is skipped, so pass its turn on.
                    unclaimed.defuse();
                    mutant!(DeadTurnNotPassed => return Passed::On);
                    id = next;
                }
            }
        }
    }

    /// Passes the turn `id` on, and releases or withdraws what no task needs any more.
    pub(super) fn pass_on(self: &Arc<Self>, id: u64, passed_by: PassedBy) {
        let core = &self.core;
        match self.pass(id, passed_by) {
            Passed::On | Passed::Revoked { was_late: false } => {}
            Passed::Revoked { was_late: true } => core.table().forget_if_unused(self),
            Passed::LeftNobody => core.end_unused(self),
            Passed::Nobody { withdrawal, lease_left, tracked } => {
                core.schedule().cancel(ScheduleKeys { tracked, due: None });
                if let Some(withdrawal) = withdrawal {
                    core.withdraw(withdrawal);
                }
                if lease_left {
                    core.release_unless_taken_over(self);
                }
                // Wakes single tries, which wait for the outcome of this turn.
                self.wake();
                core.table().forget_if_unused(self);
            }
        }
    }

    /// Fails all waiters.
    pub(crate) fn close(&self) {
        let waiters = {
            let mut state = self.state.lock();
            state.offers.forget_all();
            state.take_waiters()
        };
        drop(waiters);
        if let Some(permits) = &self.permits {
            permits.close();
        }
        self.changed.notify_waiters();
    }

    /// Takes a lease that no task uses, for its release.
    pub(crate) fn take_unused_lease(&self) -> Option<Release> {
        let mut state = self.state.lock();
        if state.turn.is_some() {
            return None;
        }
        // A task may have used the lease meanwhile, and left it to linger.
        state.lease.take_if(|lease| !lease.lingers()).map(|lease| lease.release(&self.key))
    }

    /// Ends the lease, if it has `token` or no `token` is given, and the hold on it.
    ///
    /// The turn is taken from the hold in the same step, because a hold that ends by itself meanwhile passes its turn
    /// on.
    pub(crate) fn revoke(&self, token: Option<&Token>, reason: LossReason) -> Option<Revoked> {
        let mut state = self.state.lock();
        let lease = state.lease.take_if(|lease| token.is_none_or(|token| lease.token == *token))?;
        let hold = match reason {
            LossReason::Deadline => lease.ended_hold(),
            _ => lease.hold.as_ref().map(|hold| EndedHold { reason, ..hold.as_ended() }),
        };
        let turn = lease.hold.is_some().then(|| state.new_id());
        if hold.is_some() && reason == LossReason::Forced && !state.forced.contains(&lease.token) {
            state.forced.push(lease.token.clone());
        }
        if turn.is_some() {
            state.turn = turn;
            state.offers.reset();
        }
        let users = lease.hold.as_ref().map_or(0, ActiveHold::users);
        let body_ends_first = lease.hold.as_ref().is_some_and(|hold| hold.body || reason == LossReason::TooFewServers);
        let body_ends_first = (body_ends_first && users > 0) || users > 1;
        let (release, entries) = ((!body_ends_first).then(|| lease.release(&self.key)), lease.upkeep.entries);
        if body_ends_first {
            // Rule 14: the lease is released when the body is dropped. Rule 17: until then a new grant for its token is
            // not a stray.
            state.ending.push(EndingToken::of_bodies(lease, users));
        }
        Some(Revoked { release, entries, turn, hold })
    }
}

/// Who passes a turn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassedBy {
    /// The task that had the turn and is gone.
    Task,
    /// The keeper. The task keeps its place in the queue.
    Keeper,
}

/// The outcome of [`Slot::pass`].
enum Passed {
    /// To the next waiter.
    On,
    /// The turn was taken away before, from a late task or from a hold.
    Revoked { was_late: bool },
    /// The task was called to a hold of readers, and was the last of them.
    LeftNobody,
    /// No task waits.
    Nobody { withdrawal: Option<Release>, lease_left: bool, tracked: Option<u64> },
}

/// The outcome of [`Slot::revoke`].
pub(crate) struct Revoked {
    /// The release to send now. `None` when it must wait until the hold is dropped.
    pub(crate) release: Option<Release>,
    pub(crate) entries: ScheduleKeys,
    /// The turn that the hold had, to be passed on.
    pub(crate) turn: Option<u64>,
    pub(crate) hold: Option<EndedHold>,
}

impl State {
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Gives the turn to a task that is just being polled. Returns the task's id.
    pub(super) fn take_turn(&mut self) -> u64 {
        let id = self.new_id();
        self.turn = Some(id);
        self.offers.reset();
        id
    }

    pub(super) fn add_waiter(&mut self, id: u64, waiter: Waiter) {
        self.fenced_waiters += u32::from(waiter.fenced);
        self.waiters.insert(id, waiter);
    }

    pub(super) fn remove_waiter(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.fenced_waiters -= u32::from(waiter.fenced);
        Some(waiter)
    }

    pub(super) fn take_waiters(&mut self) -> BTreeMap<u64, Waiter> {
        self.fenced_waiters = 0;
        std::mem::take(&mut self.waiters)
    }

    /// Whether the task `id` may still decide something.
    pub(super) fn may_act(&self, id: u64) -> bool {
        mutant!(StaleTurnActs => return true);
        self.has_turn(id)
    }

    /// Whether a task that comes now gets the turn.
    pub(super) fn is_turn_free(&self) -> bool {
        self.turn.is_none() || self.offers.is_missed()
    }

    pub(super) fn has_turn(&self, id: u64) -> bool {
        self.turn == Some(id)
    }

    /// Whether a task here holds the lock.
    pub(super) fn is_held(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.hold.is_some())
    }

    pub(super) fn fenced_waiters(&self) -> u32 {
        self.fenced_waiters
    }

    /// Starts the hold `id` on the lease. `None` without a lease.
    pub(super) fn start(&mut self, id: u64, request: &ResolvedRequest, now: Moment) -> Option<&mut Lease> {
        let lease = self.lease.as_mut()?;
        let path = std::mem::replace(&mut lease.path, Path::HandOver);
        self.counts.count(path);
        let holding = lease.holds.begin(request.prefix(), path);
        let mut hold = ActiveHold::new(id, path, holding, request, now);
        let is_whole = lease.is_whole_for(&hold, now);
        let inherited = if path == Path::Linger && !is_whole { lease.confirmed_for(hold.expire, now) } else { None };
        hold.confirmed = inherited.or(is_whole.then_some(now));
        hold.is_inherited = inherited.is_some();
        lease.hold = Some(hold);
        lease.is_for_waiters = true;
        Some(lease)
    }
}
