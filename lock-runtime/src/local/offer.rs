//! [`Offers`]: whether a task takes up its turn, and what happens when it does not (rule L7: such a turn passes on).
//!
//! A turn is passed by waking a task. It may take long until that task is polled: its thread works, or its future is
//! kept behind another future. So the keeper checks whether the task came. When the task did not come, the turn goes to
//! the next task here, and the late task keeps its place. When all tasks are late, the lease is
//! kept for at most 0.9 s, while the keeper asks whether another process waits; then the lease is released.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::handle::HoldHandle;
use super::pending_ask::PendingAsk;
use super::permits::OldPlace;
use super::resolved_request::ResolvedRequest;
use super::slot::{PassedBy, Slot, State, Waiter};
use super::turn::Turn;
use super::upkeep::{Action, Round};
use crate::clock::{Deadline, Moment};
use crate::share::Share;
use crate::store::{Ask, Cause, Release, Store};
use crate::timing::{ASK_INTERVAL, STEP_PATIENCE, TURN_PATIENCE, UNUSED_LEASE_KEPT_FOR};

/// When this many tasks are late, all tasks behind them are called at once, and not one after another.
const MANY_LATE: usize = 3;

/// What the task with the turn does with the turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Offer {
    /// The task has taken the turn up, and waits for others.
    #[default]
    TakenUp,
    /// The task has taken the turn up, and takes its next step before this deadline.
    Acting(Deadline),
    /// The task waits for the answer to a command about its lease.
    Awaiting(Awaited),
    /// The task has something to do: the turn was passed to it, or a grant came.
    Made,
    /// The keeper has seen that, and the task must come before this deadline.
    Noticed(Deadline),
    /// The task did not come, and no other task here can take the turn. At this time the keeper asks the server whether
    /// another process waits.
    Missed(Deadline),
}

/// A command about a lease, whose answer the task with the turn has to read.
///
/// When the task has not read it in time, the keeper renews the lease. When that is answered, the task's own answer has come, too. Then
/// the task is late for those who wait, and the keeper asks the server whether somebody does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited {
    /// When the keeper sends its next command.
    next: Deadline,
    /// Whether the keeper's renewal was answered.
    is_answered: bool,
    /// When the task is late in any case.
    latest: Deadline,
}

/// What a slot knows about the tasks that it has called.
#[derive(Debug)]
pub(super) struct Offers {
    pub(super) offer: Offer,
    /// How long the task with the turn may take to come.
    patience: Duration,
    /// Until when the lease may stay unused. Boxed: it is known only after a task came late.
    idle: Option<Box<Deadline>>,
    /// The tasks that did not come when they were called, by their places in the queue, and the time since when each is
    /// late.
    late: BTreeMap<u64, Moment>,
    /// When the task with the turn sent the ask that it waits for.
    pub(super) awaits_since: Option<Moment>,
    /// Whether the task with the turn only waits for the answer to its release.
    pub(super) is_releasing: bool,
}

impl Default for Offers {
    fn default() -> Self {
        Self {
            offer: Offer::TakenUp,
            patience: TURN_PATIENCE,
            idle: None,
            late: BTreeMap::new(),
            awaits_since: None,
            is_releasing: false,
        }
    }
}

impl Offers {
    /// Notes that the task `id`, which has the turn, acts.
    pub(super) fn take_up(&mut self, id: u64, now: Moment) {
        self.awaits_since = None;
        if !matches!(self.offer, Offer::TakenUp) {
            self.offer = Offer::TakenUp;
            self.idle = None;
            if let Some(since) = self.late.remove(&id) {
                // Its next step takes as many polls, each of them late.
                self.patience = (self.patience + patience_with(Some(since), now)).min(UNUSED_LEASE_KEPT_FOR);
            }
        }
    }

    /// Notes that the task with the turn acts, and takes its next step within `pause`, or when it has the answer of a store at
    /// this `distance`.
    pub(super) fn act_until(&mut self, now: Moment, pause: Option<Duration>, distance: Duration) {
        self.offer = match pause {
            Some(pause) => Offer::Acting(Deadline::new(now, pause + TURN_PATIENCE)),
            None => Offer::Awaiting(Awaited {
                next: Deadline::new(now, self.patience.min(STEP_PATIENCE) + distance),
                is_answered: false,
                latest: Deadline::new(now, STEP_PATIENCE + distance),
            }),
        };
    }

    /// Takes in that a renewal by the keeper was answered.
    pub(super) fn on_renewed(&mut self, now: Moment) {
        if let Offer::Awaiting(awaited) = &mut self.offer
            && !awaited.is_answered
        {
            (awaited.is_answered, awaited.next) = (true, Deadline::new(now, Duration::ZERO));
        }
    }

    /// Notes that the task with the turn has something to do.
    pub(super) fn make(&mut self) {
        if self.is_taken_up() {
            self.offer = Offer::Made;
        }
    }

    /// Notes that the turn passes to a task that may take `patience` to come.
    pub(super) fn make_to_next(&mut self, patience: Duration) {
        self.offer = Offer::Made;
        self.patience = patience;
        self.awaits_since = None;
        self.is_releasing = false;
    }

    /// Forgets all about the last turn: no task has the turn, or a task that is just being polled has it.
    pub(super) fn reset(&mut self) {
        self.offer = Offer::TakenUp;
        self.patience = TURN_PATIENCE;
        self.idle = None;
        self.awaits_since = None;
        self.is_releasing = false;
    }

    pub(super) fn is_missed(&self) -> bool {
        matches!(self.offer, Offer::Missed(_))
    }

    pub(super) fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// The late task that is first in the queue.
    pub(super) fn first_late(&self) -> Option<u64> {
        self.late.first_key_value().map(|(id, _)| *id)
    }

    /// Notes that a task did not come when it was called.
    pub(super) fn note_late(&mut self, id: u64, now: Moment) {
        self.late.entry(id).or_insert(now);
    }

    /// Forgets a task that is gone. Returns whether it was late.
    pub(super) fn forget(&mut self, id: u64) -> bool {
        !self.late.is_empty() && self.late.remove(&id).is_some()
    }

    pub(super) fn forget_all(&mut self) {
        self.late.clear();
    }

    fn is_taken_up(&self) -> bool {
        matches!(self.offer, Offer::TakenUp) || self.is_acting()
    }

    /// Whether the task with the turn is in the middle of a step.
    fn is_acting(&self) -> bool {
        matches!(self.offer, Offer::Acting(_) | Offer::Awaiting(_))
    }

    /// Whether all who wait are offered the turn at once: many tasks are late, or the turn `is_idle` for too long.
    fn is_for_all(&self, is_idle: bool) -> bool {
        mutant!(CalledOneByOne => return false);
        is_idle || self.late.len() >= MANY_LATE
    }

    fn is_idle(&self, now: Moment) -> bool {
        self.idle.as_deref().is_some_and(|idle| idle.remaining_at(now).is_zero())
    }
}

/// A task came late, at `now`. The next time others wait for twice as long as it needed. So a process whose tasks are all polled
/// late gets the lock, too. More than a second would help nobody.
pub(super) fn patience_with(since: Option<Moment>, now: Moment) -> Duration {
    let needed = since.map_or(Duration::ZERO, |since| (now.since(since) + TURN_PATIENCE) * 2);
    if needed > UNUSED_LEASE_KEPT_FOR * 2 { TURN_PATIENCE } else { needed.clamp(TURN_PATIENCE, UNUSED_LEASE_KEPT_FOR) }
}

/// How long the task with the turn may still wait for the answer to its last ask. A grant that is pushed meanwhile does
/// not end that wait, nor does the answer to a repetition by the keeper. From a far server the answer comes much later
/// than the push, and the task is not late.
fn answer_is_due(state: &State, now: Moment, round: &Round<'_>) -> Duration {
    mutant!(RepetitionEndsWait => if !state.pending.as_ref().is_some_and(|pending| pending.is_unanswered()) {
        return Duration::ZERO;
    });
    let sent = state.offers.awaits_since;
    sent.map_or(Duration::ZERO, |sent| (TURN_PATIENCE + round.usual_answer).saturating_sub(now.since(sent)))
}

/// Whether the answer to `pending` should have been read by now, and the keeper has not repeated the ask lately.
fn is_unread(pending: &PendingAsk, now: Moment, round: &Round<'_>) -> bool {
    mutant!(UnreadNotRepeated => return false);
    let is_overdue = |sent| now.since(sent) > TURN_PATIENCE + round.usual_answer;
    pending.unanswered_since().is_some_and(is_overdue)
        && pending.repeated_at().is_none_or(|at| now.since(at) >= ASK_INTERVAL)
}

/// The outcome of [`Slot::rejoin`].
pub(super) enum Rejoined {
    Turn(Turn),
    /// The task has the hold of other readers together with them.
    Joined(HoldHandle),
    /// The task waits at its old place.
    Waiting(u64, oneshot::Receiver<Turn>),
    /// The task may have any permit of this share, and keeps its place among those who wait.
    AnyPermit(Share, OldPlace),
}

impl State {
    /// Whether there is a lease, or the grant of a lease.
    fn is_granted(&self) -> bool {
        self.lease.is_some() || self.pending.as_ref().is_some_and(|pending| pending.is_granted())
    }

    /// Whether the task with the turn could tell the store nothing new.
    fn waits_for_store(&self) -> bool {
        self.lease.is_none() && self.pending.as_ref().is_some_and(|pending| pending.only_waits())
    }

    /// Whether another process is known to wait.
    fn has_contention(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.contention.is_some())
            || self.pending.as_ref().is_some_and(|pending| pending.is_contended())
    }

    /// Whether the task `id` has the turn, and was not passed over after it began to act.
    pub(super) fn acts(&self, id: u64) -> bool {
        mutant!(StaleTurnActs => return true);
        self.has_turn(id) && self.offers.is_acting()
    }

    /// Notes that the task with the turn has something to do. The keeper checks whether the task comes.
    pub(super) fn offer(&mut self, slot: &Arc<Slot>) {
        if self.turn.is_some() && !self.is_held() {
            self.offers.make();
            self.track(slot);
        }
    }

    /// Makes the keeper look at the slot soon.
    pub(super) fn track(&mut self, slot: &Arc<Slot>) {
        self.tracked.get_or_insert_with(|| slot.core.schedule().track(slot));
    }

    /// Takes all waiters, to call them at once. The first that comes takes the turn, and the others wait at their old
    /// places. A blocked thread may have hundreds of tasks here, and others would have to wait out the patience for
    /// each of them.
    fn offer_to_all(&mut self, now: Moment) -> BTreeMap<u64, Waiter> {
        self.offers.late.extend(self.waiters.keys().map(|id| (*id, now)));
        self.take_waiters()
    }

    /// Ends the turn of a single try that has not read its answer, and that the keeper has repeated: the repetition was refused. Those
    /// who wait here go on.
    pub(super) fn end_late_try(&mut self, slot: &Arc<Slot>) {
        mutant!(RefusedTryHasTurn => return);
        if self.turn.is_some() && !self.is_held() {
            self.offers.offer = Offer::Missed(Deadline::after(Duration::ZERO));
            self.track(slot);
        }
    }

    /// Whether what this process has was asked for by a task that waits, or was held since. A single try that comes late gets nothing of
    /// that: the lock was held after the try began (promise 7).
    fn is_for_waiters(&self) -> bool {
        mutant!(LateTryTakesAll => return false);
        self.lease.as_ref().is_some_and(|lease| lease.is_for_waiters)
            || self.pending.as_ref().is_some_and(|pending| pending.waits())
    }

    /// Offers what is granted to the late tasks: the first that is polled takes it.
    pub(super) fn offer_to_late(&mut self, slot: &Arc<Slot>) -> bool {
        let Some(id) = self.offers.first_late().filter(|_| self.is_granted()) else { return false };
        let was_missed = self.offers.is_missed();
        self.turn = Some(id);
        self.offers.make_to_next(TURN_PATIENCE);
        if was_missed {
            self.offers.offer = Offer::Missed(Deadline::after(Duration::ZERO));
        }
        self.track(slot);
        true
    }
}

impl Slot {
    /// Checks whether the task with the turn does what it has to do.
    pub(super) fn check_offer(&self, state: &mut State, now: Moment, round: &Round<'_>) -> Action {
        if state.turn.is_none() {
            return Action::Done;
        }
        match state.offers.offer {
            Offer::Made | Offer::Noticed(_) if state.waits_for_store() => {
                state.offers.offer = Offer::TakenUp;
                Action::Done
            }
            Offer::Made => {
                let idle =
                    **state.offers.idle.get_or_insert_with(|| Box::new(Deadline::new(now, UNUSED_LEASE_KEPT_FOR)));
                // Several tasks that were late before have no more time together than one of them.
                let patience = state.offers.patience.min(idle.remaining_at(now)).max(answer_is_due(state, now, round));
                state.offers.offer = Offer::Noticed(Deadline::new(now, patience));
                Action::LookAgain
            }
            Offer::Awaiting(awaited) => self.check_awaited(state, awaited, now, round),
            Offer::Noticed(deadline) | Offer::Acting(deadline) if !deadline.remaining_at(now).is_zero() => {
                Action::LookAgain
            }
            Offer::Noticed(_) | Offer::Acting(_) => Action::PassOver,
            Offer::Missed(_) if !state.is_granted() || state.has_contention() || state.offers.is_idle(now) => {
                Action::PassOver
            }
            Offer::Missed(at) if at.remaining_at(now).is_zero() => {
                state.offers.offer = Offer::Missed(Deadline::new(now, TURN_PATIENCE));
                state.contention_probe(&self.key, round.deadline).map_or(Action::LookAgain, Action::Ask)
            }
            Offer::Missed(_) => Action::LookAgain,
            Offer::TakenUp if state.lease.is_some() => Action::LookAgain,
            Offer::TakenUp => self.check_answer(state, now, round),
        }
    }

    /// Looks after a task that has not read the answer about its lease yet.
    fn check_awaited(&self, state: &mut State, mut awaited: Awaited, now: Moment, round: &Round<'_>) -> Action {
        let is_wanted = state.has_contention() || !state.waiters.is_empty();
        mutant!(StepLateAtLast => awaited.is_answered = false);
        if awaited.latest.remaining_at(now).is_zero() || (awaited.is_answered && is_wanted) {
            state.offers.offer = Offer::Noticed(Deadline::new(now, Duration::ZERO));
            return Action::PassOver;
        }
        if !awaited.next.remaining_at(now).is_zero() || round.is_cut_off(&self.key) {
            return Action::LookAgain;
        }
        awaited.next = Deadline::new(now, TURN_PATIENCE);
        state.offers.offer = Offer::Awaiting(awaited);
        if awaited.is_answered {
            return state.contention_probe(&self.key, round.deadline).map_or(Action::LookAgain, Action::Ask);
        }
        match state.lease.as_mut().filter(|lease| !lease.upkeep.renewing) {
            Some(lease) => {
                let renewal = self.renewal(lease.token.clone(), lease.claim);
                lease.upkeep.renewing = true;
                lease.note_renewal_sent(&renewal, now);
                Action::RenewUnused(renewal)
            }
            None => Action::LookAgain,
        }
    }

    /// What was granted to this slot was not read: its runtime is blocked. So the time of its task counts from the grant.
    pub(crate) fn count_from_grant(&self) {
        let now = Moment::now();
        let mut state = self.state.lock();
        let drift = self.core.settings().drift();
        let granted_for = state.pending.as_ref().and_then(|pending| pending.granted_for(now, drift));
        if let (Some(granted_for), Offer::Made) = (granted_for, state.offers.offer) {
            state.offers.idle.get_or_insert_with(|| Box::new(Deadline::new(now, UNUSED_LEASE_KEPT_FOR)));
            let patience = state.offers.patience.saturating_sub(granted_for);
            state.offers.offer = Offer::Noticed(Deadline::new(now, patience));
        }
    }

    /// Repeats an ask if the task that sent it does not read the answer in time.
    fn check_answer(&self, state: &mut State, now: Moment, round: &Round<'_>) -> Action {
        let Some(pending) = state.pending.as_mut().filter(|pending| pending.is_unanswered()) else {
            return Action::Done;
        };
        if !is_unread(pending, now, round) {
            return Action::LookAgain;
        }
        if pending.is_unanswered_try() && self.core.store().withdraws_refused_tries() {
            // Nobody else may ask under its token (rule L3: a token that was given up is never used again). Only when the command
            // has certainly ended, its task is late; before that the answer may be on its way from afar.
            let longest = self.core.settings().command_timeout + TURN_PATIENCE;
            if pending.unanswered_since().is_some_and(|sent| now.since(sent) <= longest) {
                return Action::LookAgain;
            }
            state.offers.offer = Offer::Missed(Deadline::new(now, Duration::ZERO));
            return Action::PassOver;
        }
        // What is sent nowhere tells nothing, and would have to be withdrawn all the same.
        if round.is_cut_off(&self.key) {
            return Action::Connect;
        }
        Action::Ask(pending.repetition(&self.key, round.deadline))
    }

    /// Passes on the turn of a task that did not take it up. Returns the release of a lease that others wait for, or
    /// that no task here takes up.
    pub(crate) fn pass_over(self: &Arc<Self>) -> Option<Release> {
        mutant!(LateTurnKept => return None);
        let now = Moment::now();
        let mut state = self.state.lock();
        let id = state.turn.filter(|_| !state.is_held())?;
        match state.offers.offer {
            Offer::Noticed(deadline) | Offer::Acting(deadline) if deadline.remaining_at(now).is_zero() => {}
            Offer::Missed(_) => {}
            _ => return None,
        }
        if !self.core.is_closed() && !state.offers.is_releasing {
            state.offers.late.entry(id).or_insert(now);
        }
        self.note_taking();
        let is_idle = state.offers.is_idle(now);
        let released = state.has_contention() || is_idle;
        let kept_for = UNUSED_LEASE_KEPT_FOR.saturating_sub(STEP_PATIENCE);
        state.offers.idle.get_or_insert_with(|| Box::new(Deadline::new(now, kept_for)));
        let granted = if released { state.take_granted(&self.key) } else { None };
        if granted.is_some() {
            state.offers.idle = None;
        }
        // To withdraw a try does not begin that time anew: most likely nobody else has the lock now.
        let release = granted.or_else(|| self.take_unanswered_try(&mut state));
        mutant!(TryStartsPatienceAnew => if release.is_some() { state.offers.idle = None });
        state.offers.offer = Offer::Missed(Deadline::new(now, Duration::ZERO));
        let all = if state.offers.is_for_all(is_idle) { state.offer_to_all(now) } else { BTreeMap::new() };
        drop(state);
        self.pass_on(id, PassedBy::Keeper);
        self.call(all);
        // Wakes single tries, which wait for the outcome of this turn.
        self.wake();
        release
    }

    /// Takes a try whose task is late, to withdraw it, where the store may do so itself later.
    fn take_unanswered_try(&self, state: &mut State) -> Option<Release> {
        let is_to_be_withdrawn =
            |pending: &mut Box<PendingAsk>| pending.is_unanswered_try() && self.core.store().withdraws_refused_tries();
        let pending = state.pending.take_if(is_to_be_withdrawn)?;
        mutant!(GivenUpTryForgotten => return Some(pending.withdrawal(&self.key)));
        state.unread_since = state.unread_since.take().or_else(|| pending.unanswered_since().map(Box::new));
        Some(pending.withdrawal(&self.key))
    }

    /// Takes in a late task that is polled at last.
    pub(super) fn rejoin(self: &Arc<Self>, turn: Turn, request: &ResolvedRequest) -> Rejoined {
        let id = turn.id();
        turn.defuse();
        let now = Moment::now();
        let mut state = self.state.lock();
        let since = state.offers.late.remove(&id);
        let patience = patience_with(since, now);
        if request.joins_readers() {
            // At its old place the task may have been called to a hold that no others may join any more.
            let joined = state.join_called(self, id, request, now);
            if let Some(joined) = joined.or_else(|| state.join(self, request, now)) {
                return Rejoined::Joined(joined);
            }
        }
        let may_take_turn = match state.turn {
            None => true,
            Some(other) => {
                !state.is_held()
                    && !state.offers.is_taken_up()
                    && (other > id || state.offers.late.contains_key(&other))
            }
        };
        let is_too_late = request.is_try() && state.is_for_waiters();
        if may_take_turn && !is_too_late {
            if let Some(other) = state.turn.replace(id) {
                state.offers.late.entry(other).or_insert(now);
                self.note_taking();
            }
            state.offers.reset();
            state.reuse_lingering();
            state.offers.patience = patience;
            return Rejoined::Turn(Turn::new(self, id));
        }
        if let Some(share) = self.share.filter(|_| self.is_one_of_permits() && !is_too_late) {
            return Rejoined::AnyPermit(share, OldPlace { id, patience });
        }
        let (sender, receiver) = oneshot::channel();
        state.add_waiter(id, Waiter { sender, fenced: request.fenced, patience });
        Rejoined::Waiting(id, receiver)
    }
}

impl State {
    /// The ask by which the keeper finds out whether another process waits, when no task here takes up what is granted.
    fn contention_probe(&mut self, key: &Arc<str>, give_up: Deadline) -> Option<Ask> {
        if let Some(lease) = &mut self.lease {
            let (token, claim) = lease.expose();
            let (key, share) = (Arc::clone(key), lease.share);
            return Some(Ask { key, token, share, claim, wait: true, fences: 0, give_up, cause: Cause::Silence });
        }
        self.pending.as_mut().map(|pending| pending.repetition(key, give_up))
    }

    /// Takes what is granted, for its release.
    fn take_granted(&mut self, key: &Arc<str>) -> Option<Release> {
        if let Some(lease) = self.lease.take() {
            return Some(lease.release(key));
        }
        self.pending.take_if(|pending| pending.is_granted()).map(|pending| pending.withdrawal(key))
    }
}
