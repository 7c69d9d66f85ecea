//! [`Slot`]: one key in use. It drives its [`Lock`]: it reports to the lock what happens, and carries out what the lock decides.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Core;
use super::waiter_limit::{CountedWaiter, WaiterLimit};
use crate::clock::{Deadline, Moment};
use crate::lock::{
    Action, Attempt, Effects, EndingToken, Entered, Env, Lease, Lock, ResolvedRequest, Round, Trigger, Waiter,
};
use crate::mutex::Mutex;
use crate::observe::metrics;
use crate::protocol::{Answer, Ask, Pushed, Reach, Renewal, Renewed, StoreError};
use crate::share::{Share, SharedLeases};
use crate::token::Token;

mod env;
pub(in crate::local) mod lingering;
mod wanted;

use lingering::Listed;

/// One key in use, in one mode.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Code that works on a slot reaches the core through it. Counting references to the core at each step would make all threads contend
    /// for one counter.
    pub(super) core: Arc<Core>,
    pub(super) key: Arc<str>,
    /// `None` for the exclusive lock.
    pub(super) share: Option<Share>,
    /// Counts the leases of this process that share the lock. `None` for the exclusive lock.
    pub(super) leases: Option<SharedLeases>,
    pub(super) state: Mutex<State>,
    /// Counts its holds in the metrics.
    pub(super) holds: metrics::Holds,
    /// Wakes the tasks that watch a hold. A wake is a hint to look again.
    pub(super) changed: Notify,
    /// How often a task was overtaken whose command may still be sent.
    pub(super) overtakes: AtomicU32,
}

/// The lock, and what was arranged for it.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) lock: Lock,
    pub(super) entries: ScheduleKeys,
    /// The place of its lease among those that linger. Boxed: few leases ever do.
    pub(super) listed: Option<Box<Listed>>,
    /// Counts its lease in the metrics while it lingers.
    lingering: Option<metrics::Counted>,
}

/// What is left of a step. It may run user code (wakers), so it waits until no mutex is held.
#[must_use]
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    effects: Effects,
    /// The schedule entries that the lock no longer needs.
    stale: ScheduleKeys,
    /// Whether one more lease lingers.
    is_newly_listed: bool,
    /// A lease that lingers no more: a metrics recorder may run any code.
    uncounted: Option<metrics::Counted>,
    is_unused: bool,
}

impl Unfinished {
    #[cfg(test)]
    pub(super) fn wake(&mut self) {
        std::mem::take(&mut self.effects.woken).wake();
    }
}

/// An entry of the keeper's schedule: its time, and a number that distinguishes entries of the same time.
pub(crate) type TimerKey = (Instant, u64);

/// The entries that the keeper's schedule has for a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScheduleKeys {
    /// The entry in the list of young holds.
    pub(crate) tracked: Option<NonZeroU64>,
    pub(crate) due: Option<TimerKey>,
}

impl Slot {
    pub(super) fn is_for(&self, key: &str, share: Option<Share>) -> bool {
        self.share == share && *self.key == *key
    }

    pub(super) fn new(core: &Arc<Core>, key: &Arc<str>) -> Self {
        Self {
            core: Arc::clone(core),
            key: Arc::clone(key),
            share: None,
            leases: None,
            state: Mutex::default(),
            holds: metrics::Holds::default(),
            changed: Notify::new(),
            overtakes: AtomicU32::new(0),
        }
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Reads the lock, without changing it.
    pub(super) fn peek<T>(&self, question: impl FnOnce(&Lock) -> T) -> T {
        question(&self.state.lock().lock)
    }

    /// Changes the lock where nothing follows from it for others.
    pub(super) fn note<T>(&self, change: impl FnOnce(&mut Lock) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state.lock);
        debug_assert!(state.is_arranged(&Effects::default()), "such a change is a step");
        result
    }

    /// Takes one step of the lock, and carries out all that follows from it.
    pub(super) fn step<T>(self: &Arc<Self>, step: impl FnOnce(&mut Lock, &mut Effects) -> T) -> T {
        let mut left = Unfinished::default();
        let result = self.take_step(&mut left, |state, out| step(&mut state.lock, out));
        self.finish(&mut left);
        result
    }

    /// Takes a step, but leaves the schedule entries that are `stale` for the caller to cancel.
    pub(super) fn step_before_cancel<T>(
        self: &Arc<Self>,
        stale: &mut ScheduleKeys,
        step: impl FnOnce(&mut State, &mut Effects) -> T,
    ) -> T {
        let mut left = Unfinished::default();
        let result = self.take_step(&mut left, step);
        self.carry_out(&mut left);
        *stale = left.stale;
        result
    }

    /// Takes a step under the table's mutex. What follows from it for others is left to [`Slot::finish`], without that mutex.
    pub(super) fn step_in_table<T>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut Lock, &mut Effects) -> T,
    ) -> (T, Unfinished) {
        let mut left = Unfinished::default();
        (self.take_step(&mut left, |state, out| step(&mut state.lock, out)), left)
    }

    /// Carries out what is left of a step.
    #[inline]
    pub(super) fn finish(self: &Arc<Self>, left: &mut Unfinished) {
        self.carry_out(left);
        self.core.schedule().cancel(left.stale);
    }

    /// Takes a step, and arranges what the lock now wants from the keeper.
    ///
    /// Both the result of the step and what is `left` of it are large: neither is moved more often than it must be.
    #[inline]
    fn take_step<T>(self: &Arc<Self>, left: &mut Unfinished, step: impl FnOnce(&mut State, &mut Effects) -> T) -> T {
        let mut state = self.state.lock();
        let result = step(&mut state, &mut left.effects);
        state.lock.settle(self.env(), &mut left.effects);
        if !state.is_arranged(&left.effects) {
            state.arrange(self, left);
        }
        if state.lingering.is_some() && !state.lock.lingers() {
            left.uncounted = state.lingering.take();
        }
        left.is_unused = state.lock.counts_if_unused().is_some();
        result
    }

    /// Most steps ask for nothing, so the rest is in a separate function.
    #[inline]
    fn carry_out(self: &Arc<Self>, left: &mut Unfinished) {
        if left.effects.wakes {
            self.changed.notify_waiters();
        }
        if left.effects.has_more() {
            self.carry_out_more(left);
        }
        if left.is_unused {
            self.core.table().forget_if_unused(self);
        }
    }

    /// The rare effects.
    fn carry_out_more(self: &Arc<Self>, left: &mut Unfinished) {
        let Unfinished { effects, is_newly_listed, .. } = left;
        let Effects { woken, old_wakers, releases, withdrawals, leaves, refused_permit, lingers, .. } =
            std::mem::take(effects);
        woken.wake();
        drop(old_wakers);
        withdrawals.into_iter().for_each(|withdrawal| self.core.withdraw(withdrawal));
        releases.into_iter().for_each(|release| self.core.release_later(release));
        if leaves {
            self.core.release_unless_taken_over(self);
        }
        if let Some(waits) = refused_permit {
            self.core.tell_queues_beside(self, waits);
        }
        if lingers {
            self.count_lingering();
            self.core.on_linger_began(self, *is_newly_listed);
        }
    }

    /// Counts the lease that lingers, unless a task has taken it meanwhile.
    fn count_lingering(&self) {
        let counted = self.holds.linger();
        let mut state = self.state.lock();
        let former = if state.lock.lingers() { state.lingering.replace(counted) } else { Some(counted) };
        drop(state);
        drop(former);
    }

    pub(super) fn change_lease(&self, token: &Token, change: impl FnOnce(&mut Lease)) {
        self.note(|lock| lock.lease_under(token).map(change));
    }

    /// How often a task was overtaken so far. While this number stays the same, a task's command is still wanted.
    pub(super) fn overtakes(&self) -> u32 {
        self.overtakes.load(Ordering::Relaxed)
    }

    pub(super) fn env(&self) -> &dyn Env {
        self
    }
}

/// What happens in the store.
impl Slot {
    /// Handles an answer. Returns `false` if the ask must be withdrawn.
    pub(crate) fn on_answer(self: &Arc<Self>, ask: &Ask, answer: Answer) -> bool {
        self.step(|lock, out| lock.on_answer(ask, answer, self.env(), out))
    }

    /// Handles a refusal of the ask that the keeper repeated: the store would refuse it again.
    pub(crate) fn on_refused_repetition(self: &Arc<Self>, ask: &Ask, error: &StoreError) {
        self.step(|lock, _| lock.on_refused_repetition(ask, error.clone()));
    }

    /// Handles a pushed grant. Returns `false` if no task here waits for its token or owns it.
    pub(crate) fn on_grant(self: &Arc<Self>, pushed: &Pushed) -> bool {
        self.step(|lock, _| lock.on_grant(pushed))
    }

    /// Pushes may have been missed. A task asks again.
    pub(crate) fn on_interruption(self: &Arc<Self>) {
        self.step(|lock, _| lock.on_interruption());
    }

    pub(super) fn on_failed_ask(self: &Arc<Self>, ask: &Ask, error: &StoreError) {
        match error.reach {
            Reach::Unsent => self.step(|lock, _| lock.on_unsent_ask(ask)),
            // A script that is refused may have done part of its work.
            Reach::Unanswered | Reach::Refused => self.withdraw_given_up(ask),
        }
    }

    /// Withdraws an ask that was given up meanwhile: its task was overtaken, and the ask withdrawn (rule L7: what no task takes goes back).
    /// The connection may have sent the ask after that withdrawal.
    fn withdraw_given_up(&self, ask: &Ask) {
        mutant!(GivenUpIsSent => return);
        if !self.leave_to_user(&ask.token) {
            self.core.withdraw(ask.withdrawal());
        }
    }

    /// Leaves what the store may grant under `token` to the task here that uses it: for an ask, a lease, or the release of one. Returns
    /// `false` if no task does: then the token must be withdrawn.
    pub(crate) fn leave_to_user(&self, token: &Token) -> bool {
        self.note(|lock| lock.leave_to_user(token))
    }

    /// Handles the failure of a command for `attempt`, which had to be answered by `deadline`.
    pub(super) fn on_failed_command(&self, attempt: &mut Attempt, error: StoreError, deadline: Deadline) {
        self.note(|lock| lock.on_failed_command(attempt, error, deadline, self.env(), Moment::now()));
    }

    /// Whether the ask was refused only because this process is just releasing a lease of the same lock: nothing else here uses its token,
    /// in any mode.
    pub(super) fn is_blocked_by_own_release(&self) -> bool {
        let owner = self.peek(|lock| lock.own_owner(self.env()));
        owner.is_some_and(|owner| !self.core.uses(&self.key, &owner))
    }

    /// Notes that one of the tasks that awaited the release of `token` is gone. Returns what is known of the token after the last one.
    pub(super) fn end_use(self: &Arc<Self>, token: &Token) -> Option<EndingToken> {
        self.step(|lock, _| lock.end_use(token))
    }
}

/// The keeper's side.
impl Slot {
    /// Lets the keeper look. Adds what it has to do to `actions`.
    pub(crate) fn look(self: &Arc<Self>, trigger: Trigger, round: &Round, actions: &mut Vec<Action>) {
        let mut stale = ScheduleKeys::default();
        let held_long = self.step_before_cancel(&mut stale, |state, out| {
            if trigger == Trigger::Timer {
                state.entries.due.take_if(|(at, _)| *at <= Instant::now());
            }
            state.lock.look(trigger, round, self.env(), actions, out)
        });
        self.core.schedule().cancel(stale);
        if let Some(held_for) = held_long {
            self.core.note_long_hold(self, held_for);
        }
    }

    /// Releases the leases that lie free, if no task waits for them.
    pub(crate) fn release_unused(self: &Arc<Self>) {
        self.step(|lock, out| lock.release_unused(self.env(), out));
    }

    /// Handles the answer to a renewal that was sent at `sent`. `None` means an error, or no answer.
    pub(crate) fn on_renewal(
        self: &Arc<Self>,
        renewal: &Renewal,
        sent: Moment,
        outcome: Option<Renewed>,
    ) -> Option<Action> {
        self.step(|lock, out| lock.on_renewal(renewal, sent, outcome, self.env(), out))
    }

    /// The asks that the keeper repeats as the safety net: those whose last answer is at least this old.
    pub(crate) fn repeatable_asks(&self, age: Duration, give_up: Deadline) -> Vec<Ask> {
        self.peek(|lock| lock.repeatable_asks(age, give_up, self.env()))
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.peek(Lock::is_queued)
    }

    /// Whether no ask in the store's queue has to be repeated yet.
    pub(crate) fn pauses(&self) -> bool {
        self.peek(|lock| lock.asks_pause(self.env()))
    }

    pub(crate) fn has_lease(&self) -> bool {
        self.peek(|lock| lock.leases().next().is_some())
    }

    pub(crate) fn close(self: &Arc<Self>) {
        let is_refused = |waiter: &Waiter| self.core.refuses(waiter.is_inside);
        let refused = self.step(|lock, _| lock.close(is_refused));
        refused.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// Whether everything is arranged already, as after most steps.
    fn is_arranged(&self, effects: &Effects) -> bool {
        let Self { lock, entries, listed, .. } = self;
        lock.is_tracked() == entries.tracked.is_some()
            && !lock.has_new_look()
            && (listed.is_none() || lock.leases().next().is_some())
            && !effects.is_overtaken
            && !effects.lingers
    }

    /// Arranges with the keeper, and with the list of lingering leases, what the lock asks for. Under its mutex, so that an earlier
    /// decision never replaces a later one.
    fn arrange(&mut self, slot: &Arc<Slot>, left: &mut Unfinished) {
        let Self { lock, entries, listed, .. } = self;
        let Unfinished { effects, stale, is_newly_listed, .. } = left;
        if effects.is_overtaken {
            slot.overtakes.fetch_add(1, Ordering::Relaxed);
        }
        if lock.take_new_look() {
            match lock.next_looks().map(|at| at.on_timer()).min() {
                None => stale.due = entries.due.take(),
                // An earlier timer finds nothing due, and sets the next one.
                Some(at) if entries.due.is_some_and(|(due, _)| due <= at) => {}
                Some(at) => set_timer(slot, at, entries),
            }
        }
        if lock.is_tracked() {
            entries.tracked.get_or_insert_with(|| slot.core.schedule().track(slot));
        } else {
            stale.tracked = entries.tracked.take();
        }
        if effects.lingers {
            *is_newly_listed = listed.is_none();
            Listed::begin(listed, slot);
        } else if listed.is_some() && lock.leases().next().is_none() {
            *listed = None;
        }
    }
}

fn set_timer(slot: &Arc<Slot>, at: Instant, entries: &mut ScheduleKeys) {
    mutant!(TimerSetLater => return super::tests::timers::postpone(slot, at));
    slot.core.schedule().set_timer(slot, at, &mut entries.due);
}

/// How a task finds a slot.
pub(super) enum Entrance<'a> {
    /// The task need not wait, or must not.
    Found(Entered),
    Waits(u64, CountedWaiter<'a>),
    /// The waiter limit is reached.
    Full(usize),
}

impl Slot {
    /// Enters a task. Under the table's mutex, so that the slot is not forgotten first; what follows is left to [`Slot::finish`].
    pub(super) fn enter<'a>(
        self: &Arc<Self>,
        waiter_limit: &'a WaiterLimit,
        request: &ResolvedRequest,
        now: Moment,
    ) -> (Entrance<'a>, Unfinished) {
        self.step_in_table(|lock, out| {
            let id = match lock.enter(request, self.env(), now, out) {
                Entered::Waits(id) => id,
                entered => return Entrance::Found(entered),
            };
            match waiter_limit.admit(lock.waiting()) {
                Ok(waiting) => {
                    lock.wait(id, request);
                    Entrance::Waits(id, waiting)
                }
                Err(limit) => Entrance::Full(limit),
            }
        })
    }
}
