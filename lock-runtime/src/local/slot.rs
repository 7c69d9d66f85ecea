//! [`Slot`]: one key in use, its queue of tasks, and the state of its lease.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::call::{Calls, PATIENCE};
use super::care::Entries;
use super::crowd::{Crowd, Waiting};
use super::lease::{Asked, Lease, Tenure};
use super::terms::Terms;
use super::turn::Turn;
use crate::clock::{Deadline, Moment};
use crate::engine::Engine;
use crate::store::{Release, StoreError};
use crate::token::Token;

/// What this process knows of one key in use.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Whoever has to do with the slot reaches the engine through it: counting references to the engine itself at each
    /// step would have all threads contend for one counter.
    pub(super) engine: Arc<Engine>,
    pub(super) key: Arc<str>,
    state: Mutex<State>,
    /// Wakes the task that drives the store, and those that watch the hold: a hint to look again.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) waiters: BTreeMap<u64, Waiter>,
    fenced_waiters: u32,
    last_id: u64,
    /// Whose turn it is.
    pub(super) turn: Option<u64>,
    pub(super) calls: Calls,
    /// How many holds there were.
    pub(super) holds: u32,
    /// The entry in the keeper's list of slots to look at soon.
    pub(super) young: Option<u64>,
    /// Boxed: while a lease is held there is none.
    pub(super) asked: Option<Box<Asked>>,
    pub(super) lease: Option<Lease>,
    /// Why the store could not be asked lately.
    pub(super) failure: Option<StoreError>,
    /// Leases whose release a task waits for, or that a lost hold has yet to give back, and whether they were granted
    /// once more meanwhile.
    pub(super) ending: Vec<(Token, bool)>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) sender: oneshot::Sender<Turn>,
    pub(super) fenced: bool,
    /// How long it may take to come when it is called.
    pub(super) patience: Duration,
}

/// The outcome of entering a slot.
pub(super) enum Entered<'a> {
    /// It is this task's turn at once, under this id.
    Turn(u64),
    /// It waits, under this id.
    Waiting(u64, oneshot::Receiver<Turn>, Waiting<'a>),
    /// Somebody else has the turn, and the task does not want to wait.
    Taken,
    /// So many wait already that no more may.
    Full(usize),
}

/// What happens to the lease when its hold ends.
pub(super) enum Ending {
    /// The hold had been lost; its lease has to be given back if it still stands.
    Lost,
    /// The lease stays, for the next task here.
    Kept,
    /// The lease ends with this release; nobody here waits.
    Free(Release),
    /// The lease ends with this release although tasks here wait: it is another process's turn (rule L4).
    Yield(Release),
}

impl Slot {
    pub(super) fn new(engine: &Arc<Engine>, key: &Arc<str>) -> Self {
        Self { engine: Arc::clone(engine), key: Arc::clone(key), state: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn locked(&self) -> MutexGuard<'_, State> {
        // Changes of the state can't panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Has everybody look again who drives the store here, or watches the hold.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    pub(super) fn enter<'a>(&self, crowd: &'a Crowd, fenced: bool, wait: bool) -> Entered<'a> {
        let mut state = self.locked();
        let id = state.new_id();
        // A turn that no task here takes up is whose it is that comes.
        if state.turn.is_none() || state.calls.is_missed() {
            state.turn = Some(id);
            state.calls.reset();
            return Entered::Turn(id);
        }
        if !wait {
            return Entered::Taken;
        }
        // Whoever has the turn waits as well, unless it holds.
        let others = state.waiters.len() + usize::from(!state.is_held());
        let waiting = match crowd.enter(others) {
            Ok(waiting) => waiting,
            Err(limit) => return Entered::Full(limit),
        };
        let (sender, receiver) = oneshot::channel();
        state.add_waiter(id, Waiter { sender, fenced, patience: PATIENCE });
        Entered::Waiting(id, receiver, waiting)
    }

    pub(super) fn leave(&self, id: u64) {
        if !mutant!(DeadTurnNotPassed) {
            self.locked().remove_waiter(id);
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        let state = self.locked();
        let State { turn, waiters, calls, asked, lease, ending, .. } = &*state;
        turn.is_none()
            && waiters.is_empty()
            && !calls.has_late()
            && asked.is_none()
            && lease.is_none()
            && ending.is_empty()
    }

    /// Passes the turn `id` to the next waiter.
    ///
    /// Returns what is left to give back when nobody is next. A turn that was taken away passes nothing on.
    fn pass(self: &Arc<Self>, id: u64, by: PassedBy) -> Passed {
        let mut id = id;
        loop {
            let mut state = self.locked();
            let was_late = by == PassedBy::Task && state.calls.forget(id);
            if state.turn != Some(id) {
                return Passed::Revoked { was_late };
            }
            if let Some(lease) = &mut state.lease {
                lease.fresh = false;
            }
            let Some((&next, _)) = state.waiters.first_key_value() else {
                if state.call_late(self) {
                    return Passed::On;
                }
                state.turn = None;
                state.calls.reset();
                let young = state.young.take();
                let asked = state.asked.take().filter(|asked| asked.may_stand());
                let withdrawal = asked.map(|asked| asked.withdrawal(&self.key));
                return Passed::Nobody { withdrawal, lease_left: state.lease.is_some(), young };
            };
            let waiter = state.remove_waiter(next);
            state.turn = Some(next);
            state.calls.pass(waiter.as_ref().map_or(PATIENCE, |waiter| waiter.patience));
            state.enlist(self);
            drop(state);
            let Some(waiter) = waiter else { continue };
            match waiter.sender.send(Turn::new(self, next)) {
                Ok(()) => return Passed::On,
                Err(unclaimed) => {
                    // Rule L5: that waiter is gone; go on with the turn it would have had.
                    unclaimed.defuse();
                    if mutant!(DeadTurnNotPassed) {
                        return Passed::On;
                    }
                    id = next;
                }
            }
        }
    }

    /// Passes the turn `id` on, and gives back what nobody needs any more.
    pub(super) fn pass_on(self: &Arc<Self>, id: u64, by: PassedBy) {
        let engine = &self.engine;
        match self.pass(id, by) {
            Passed::On | Passed::Revoked { was_late: false } => {}
            Passed::Revoked { was_late: true } => engine.forget_if_unused(self),
            Passed::Nobody { withdrawal, lease_left, young } => {
                engine.keeper().strike(Entries { young, due: None });
                if let Some(withdrawal) = withdrawal
                    && !mutant!(NoWithdrawal)
                {
                    engine.withdraw(withdrawal);
                }
                if lease_left {
                    engine.release_unused(self);
                }
                // For single tries, which wait for what becomes of this turn.
                self.wake();
                engine.forget_if_unused(self);
            }
        }
    }

    /// Fails everybody who waits here.
    pub(crate) fn close(&self) {
        let waiters = {
            let mut state = self.locked();
            state.fenced_waiters = 0;
            state.calls.forget_all();
            std::mem::take(&mut state.waiters)
        };
        drop(waiters);
        self.changed.notify_waiters();
    }

    /// Ends the hold `id`.
    pub(super) fn end(&self, id: u64, now: Moment) -> Ended {
        let mut state = self.locked();
        let State { waiters, calls, young, lease: slot_lease, .. } = &mut *state;
        let Some(lease) = slot_lease.as_mut().filter(|lease| lease.tenure.as_ref().is_some_and(|t| t.id == id)) else {
            return Ended { ending: Ending::Lost, entries: Entries::default(), stale: None };
        };
        let mut entries = std::mem::take(&mut lease.care.entries);
        entries.young = young.take();
        let in_time = lease.ends(now).is_some_and(|ends| !ends.remaining_at(now).is_zero());
        if !in_time && !mutant!(LateHandOver) {
            // Rule L6.
            let stale = lease.release(&self.key);
            *slot_lease = None;
            return Ended { ending: Ending::Lost, entries, stale: Some(stale) };
        }
        // A late task is worth to keep the lease for, but not when another process waits.
        let is_last = waiters.is_empty() && (!calls.has_late() || lease.rival.is_some());
        let ending = if is_last {
            let release = lease.release(&self.key);
            *slot_lease = None;
            Ending::Free(release)
        } else if lease.may_hand_over() {
            lease.tenure = None;
            *young = entries.young.take();
            Ending::Kept
        } else {
            let release = lease.release(&self.key);
            *slot_lease = None;
            Ending::Yield(release)
        };
        Ended { ending, entries, stale: None }
    }

    /// Keeps the lease of the hold `id` for whoever comes next, or for the keeper to give back.
    pub(super) fn end_quietly(&self, id: u64) -> Ended {
        let now = Moment::now();
        let mut state = self.locked();
        let State { waiters, calls, young, lease, .. } = &mut *state;
        if waiters.is_empty()
            && !calls.has_late()
            && let Some(lease) = lease
            && lease.tenure.as_ref().is_some_and(|tenure| tenure.id == id)
            && lease.ends(now).is_some_and(|ends| !ends.remaining_at(now).is_zero())
            // Rule 18: the next task here would be one more of the streak.
            && (mutant!(StreakOfDropsUncounted) || lease.may_hand_over())
        {
            lease.tenure = None;
            let mut entries = std::mem::take(&mut lease.care.entries);
            entries.young = young.take();
            return Ended { ending: Ending::Kept, entries, stale: None };
        }
        drop(state);
        self.end(id, now)
    }

    /// Takes a lease that nobody uses, to give it back.
    pub(crate) fn take_unused(&self) -> Option<Release> {
        let mut state = self.locked();
        if state.turn.is_some() {
            return None;
        }
        state.lease.take().map(|lease| lease.release(&self.key))
    }

    /// Ends the lease, that of `token` if given, and the hold on it.
    ///
    /// The turn is taken from the hold in the same step: a hold that ends by itself meanwhile has passed it on.
    pub(crate) fn revoke(&self, token: Option<&Token>, loss: Loss) -> Option<Revoked> {
        let mut state = self.locked();
        let lease = state.lease.take_if(|lease| token.is_none_or(|token| lease.token == *token))?;
        let turn = lease.tenure.is_some().then(|| state.new_id());
        if turn.is_some() {
            state.turn = turn;
            state.calls.reset();
        }
        let is_late = lease.tenure.as_ref().is_some_and(|tenure| tenure.body || loss == Loss::Partial);
        let release = (!is_late).then(|| lease.release(&self.key));
        if is_late {
            // Rules 14 and 17.
            state.ending.push((lease.token, false));
        }
        Some(Revoked { release, entries: lease.care.entries, turn })
    }
}

/// Who passes a turn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassedBy {
    /// The task that had it, and that is gone.
    Task,
    /// The keeper, from a task that keeps its place.
    Keeper,
}

/// The outcome of [`Slot::pass`].
enum Passed {
    /// To the next waiter.
    On,
    /// The turn had been taken away, from a task that was late or from a hold.
    Revoked { was_late: bool },
    /// Nobody waits.
    Nobody { withdrawal: Option<Release>, lease_left: bool, young: Option<u64> },
}

/// The outcome of [`Slot::end`].
pub(super) struct Ended {
    pub(super) ending: Ending,
    /// What the keeper need not look at any more.
    pub(super) entries: Entries,
    /// The release of a lease that its hold outlived.
    pub(super) stale: Option<Release>,
}

/// Why a lease ends under its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its time is up, or that of the manager, or the store does not know it.
    Whole,
    /// Too few servers know it. What they have keeps others out until the hold has ended.
    Partial,
}

/// The outcome of [`Slot::revoke`].
pub(crate) struct Revoked {
    /// Due now; otherwise it has to wait until the hold is dropped.
    pub(crate) release: Option<Release>,
    pub(crate) entries: Entries,
    /// The turn that was the hold's, to be passed on.
    pub(crate) turn: Option<u64>,
}

impl State {
    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
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

    pub(super) fn has_turn(&self, id: u64) -> bool {
        self.turn == Some(id)
    }

    /// Whether a task here holds the lock.
    pub(super) fn is_held(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.tenure.is_some())
    }

    pub(super) fn fenced_waiters(&self) -> u32 {
        self.fenced_waiters
    }

    /// Starts the hold `id` on the lease; `None` without a lease.
    pub(super) fn start(&mut self, id: u64, terms: &Terms, now: Moment) -> Option<&mut Lease> {
        let &Terms { expire, renew, body, .. } = terms;
        let lease = self.lease.as_mut()?;
        self.holds = self.holds.wrapping_add(1);
        let is_whole = lease.until.remaining_at(now) >= expire || (!renew && lease.fresh && lease.claim >= expire);
        let confirmed = is_whole.then_some(now);
        lease.tenure = Some(Tenure { id, since: now, expire, renew, body, own: Deadline::new(now, expire), confirmed });
        Some(lease)
    }
}
