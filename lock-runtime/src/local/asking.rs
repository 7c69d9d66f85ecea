//! What a slot learns from the store about its pending ask, from answers and pushes, and what a task may conclude.

use std::sync::Arc;
use std::time::Duration;

use super::lease::Lease;
use super::pending_ask::PendingAsk;
use super::slot::{Slot, State};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::store::{Answer, Ask, Cause, Grant, Pushed, Reach, Store as _, StoreError};
use crate::token::Token;

/// What a task without the turn can say about the lock; see [`Slot::status`].
pub(super) enum LockStatus {
    HeldHere,
    HeldElsewhere,
    /// The store could not be asked.
    Unreachable(StoreError),
    /// The store has not answered for this long, which is more than usual.
    Silent(Duration),
    /// The store has not answered yet.
    Unknown,
}

/// A token that is being released: either a task waits for the release, or the bodies of a lost hold are not dropped yet.
#[derive(Debug)]
pub(super) struct EndingToken {
    pub(super) token: Token,
    /// Whether the store granted it again in the meantime, or may do so.
    may_be_granted_again: bool,
    user: EndingUser,
    /// How many tasks wait, or have a body.
    users: u32,
    /// Until when others are kept out, also when the bodies are dropped before.
    kept_until: Option<Box<Deadline>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndingUser {
    /// A task waits for the release.
    Release,
    /// The bodies of a lost hold.
    Bodies,
}

impl EndingToken {
    fn of_release(token: Token) -> Self {
        Self { token, may_be_granted_again: false, user: EndingUser::Release, users: 1, kept_until: None }
    }

    pub(super) fn of_bodies(lease: Lease, users: u32) -> Self {
        let kept_until = lease.kept_until();
        Self { token: lease.token, may_be_granted_again: false, user: EndingUser::Bodies, users, kept_until }
    }
}

/// The outcome of [`Slot::note_release_done`].
#[derive(Debug)]
pub(super) enum ReleaseDone {
    /// No release of the token was noted.
    Unnoted,
    /// Another reader of the same lost hold is not gone yet.
    StillUsed,
    Done {
        may_be_granted_again: bool,
        /// Until when others are kept out.
        kept_until: Option<Box<Deadline>>,
    },
}

impl Slot {
    /// Takes in a pushed grant. Returns `false` when no task here waits for its token or owns it.
    pub(crate) fn on_grant(self: &Arc<Self>, pushed: &Pushed) -> bool {
        let mut state = self.state.lock();
        if state.lease.as_ref().is_some_and(|lease| lease.token == pushed.token) {
            return true;
        }
        let Some(pending) = state.pending.as_mut().filter(|pending| pending.token == pushed.token) else {
            return state.leave_to_release(&pushed.token);
        };
        pending.on_push(pushed);
        state.unread_since = None;
        state.offer(self);
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// Whether a grant for a lease that shares the lock may be on its way here.
    pub(super) fn may_be_granted_a_share(&self) -> bool {
        mutant!(UnreadGrantNotTold => return false);
        let may_be = |pending: &PendingAsk| pending.is_granted() || !pending.pauses();
        self.share.is_some() && self.state.lock().pending.as_deref().is_some_and(may_be)
    }

    /// Whether the slot has a lease.
    pub(crate) fn has_lease(&self) -> bool {
        self.state.lock().lease.is_some()
    }

    /// Marks the place in the store's queue as doubtful. The task that drives the store then asks again.
    pub(crate) fn on_interruption(&self) {
        if let Some(pending) = &mut self.state.lock().pending {
            pending.on_interruption();
        }
        self.changed.notify_waiters();
    }

    /// The ask that the keeper repeats as the safety net. `None` when no ask is queued, or the last answer is younger
    /// than `age`.
    pub(crate) fn repeatable_ask(&self, age: Duration, give_up: Deadline) -> Option<Ask> {
        mutant!(NoSafetyNet => return None);
        let state = self.state.lock();
        let pending = state.pending.as_ref()?;
        let is_old = pending.refused_for().is_some_and(|refused_for| refused_for >= age);
        let waits = pending.is_queued() && !pending.is_granted() && !pending.is_unanswered() && !pending.pauses();
        (waits && is_old).then(|| pending.again(&self.key, give_up))
    }

    /// Takes in that few others are in front of the ask that waits here.
    pub(super) fn on_near(&self, store_micros: u64) {
        if let Some(pending) = &mut self.state.lock().pending {
            pending.on_near(store_micros);
        }
    }

    /// Whether the ask in the store's queue need not be repeated yet.
    pub(crate) fn pauses(&self) -> bool {
        self.state.lock().pending.as_ref().is_some_and(|pending| pending.pauses())
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.state.lock().pending.as_ref().is_some_and(|pending| pending.is_queued() && !pending.is_granted())
    }

    /// Takes in an answer. Returns `false` when it grants a token that no task here waits for.
    pub(crate) fn on_answer(self: &Arc<Self>, ask: &Ask, answer: Answer) -> bool {
        let mut state = self.state.lock();
        let granted = matches!(answer, Answer::Granted(_));
        let contended = matches!(answer, Answer::Granted(Grant { contended: true, .. }));
        (state.failure, state.unread_since) = (None, None);
        if let Some(pending) = state.pending.as_mut().filter(|pending| pending.token == ask.token) {
            pending.on_answer(ask, answer);
            if granted && ask.wait && self.core.store().withdraws_refused_tries() {
                // A majority granted it, and the other servers may have it in their queues.
                pending.note_queued();
            }
            if !ask.wait && !pending.may_stand() {
                // Rule L3: the token is not used again. A store of several servers may still be withdrawing what one of
                // them granted.
                pending.token = self.core.next_token(pending.token.may_linger(), self.share);
            }
            let is_permit = self.share.is_some_and(|share| share.permits().is_some());
            let is_refused_permit = is_permit && pending.busy().is_some() && !pending.is_granted();
            if granted {
                state.offer(self);
            } else if ask.cause == Cause::Silence && !ask.wait {
                state.end_late_try(self);
            }
            drop(state);
            self.changed.notify_waiters();
            if is_refused_permit {
                self.core.tell_queues_beside(self, ask.wait);
            }
            return true;
        }
        if let Some(lease) = state.lease.as_mut().filter(|lease| lease.token == ask.token) {
            if contended {
                lease.note_contention();
            }
            if granted {
                lease.hinted = None;
            }
            return true;
        }
        !granted || state.leave_to_release(&ask.token)
    }

    /// Notes that one of those who waited for the release of `token` is gone.
    pub(super) fn note_release_done(self: &Arc<Self>, token: &Token) -> ReleaseDone {
        let done = self.state.lock().end_use(token);
        self.core.table().forget_if_unused(self);
        done
    }

    /// The holder that a task waited for until it gave up: the label of another process's manager.
    pub(super) fn holder_elsewhere(&self) -> Option<String> {
        let state = self.state.lock();
        let busy = state.pending.as_ref()?.busy()?;
        let label = busy.owner.label();
        if busy.endless && label.is_none() {
            return Some("another client, without an expiry".to_owned());
        }
        label
    }

    /// The owner that the store last named.
    pub(super) fn owner_seen(&self) -> Option<Token> {
        Some(self.state.lock().pending.as_ref()?.busy()?.owner.clone())
    }

    /// The rest of the lease that a task waited for, as the store last told it.
    pub(super) fn frees_in(&self, now: Moment) -> Option<Duration> {
        self.state.lock().pending.as_ref()?.frees_in(now)
    }

    /// Whether the ask was refused only because this process is just releasing a lease of the same lock: its token is used for nothing
    /// else here, in no mode.
    pub(super) fn is_blocked_by_own_release(&self) -> bool {
        let state = self.state.lock();
        let busy = state.pending.as_ref().filter(|pending| !pending.is_granted()).and_then(|pending| pending.busy());
        let owner = busy.map(|busy| busy.owner.clone());
        drop(state);
        owner.is_some_and(|owner| {
            self.core.is_own_token(&owner) && !owner.is_marked() && !self.core.uses(&self.key, &owner)
        })
    }

    /// Whether `token` is used here: for an ask, for a lease that does not linger, or by a body whose hold was lost.
    pub(super) fn uses(&self, token: &Token) -> bool {
        let state = self.state.lock();
        let of_body = |ending: &EndingToken| ending.token == *token && ending.user == EndingUser::Bodies;
        state.wants(token) && !state.lingers() || state.ending.iter().any(of_body)
    }

    /// Whether the process that has the lock may have no hold on it (rule L9): it yields when it hears that another one waits.
    pub(super) fn may_be_yielded(&self) -> bool {
        let state = self.state.lock();
        let owner = state.pending.as_ref().and_then(|pending| pending.busy()).map(|busy| &busy.owner);
        owner.is_some_and(|owner| owner.may_linger() && !owner.is_marked() && !self.core.is_own_token(owner))
    }

    /// How long the store took to grant the lease, when the lease was over before the grant came.
    pub(super) fn outlived_lease(&self, now: Moment) -> Option<Duration> {
        self.state.lock().lease.as_ref()?.outlived(now, self.core.settings().drift())
    }

    /// Whether the last answer named another process as the owner.
    fn is_behind_another(&self) -> bool {
        let state = self.state.lock();
        let busy = state.pending.as_ref().and_then(|pending| pending.busy());
        busy.is_some_and(|busy| !self.core.is_own_token(&busy.owner))
    }

    /// The error of a task whose lease was over before its grant came. `None` when another process has the lock.
    pub(super) fn too_short(&self, expire: Duration, outlived: Option<Duration>) -> Option<StoreError> {
        let took = outlived.filter(|_| !self.is_behind_another())?;
        let text =
            format!("the lease of {expire:?} was over when its grant came, after {took:?}: ask for a longer one");
        Some(StoreError::later(BackendError::new(text)))
    }

    /// For how long the holder that a task waited for is known: by its hold here, or by the store's answers.
    pub(super) fn holder_seen_for(&self) -> Option<Duration> {
        let state = self.state.lock();
        let hold = state.lease.as_ref().and_then(|lease| lease.hold.as_ref());
        let since = match hold {
            Some(hold) => hold.since,
            None => state.pending.as_ref()?.owner_seen_since()?,
        };
        drop(state);
        Some(since.elapsed())
    }

    /// Whether the store has answered the pending ask.
    pub(super) fn was_answered(&self) -> bool {
        self.state.lock().pending.as_ref().is_some_and(|pending| pending.busy().is_some())
    }

    /// Takes in that an ask failed.
    pub(super) fn on_failed_ask(&self, ask: &Ask, error: &StoreError) {
        match error.reach {
            Reach::Unsent => self.on_unsent_ask(ask),
            Reach::Unanswered => self.withdraw_given_up(ask),
            Reach::Refused => {}
        }
    }

    /// Withdraws an ask that its task gave up meanwhile: its turn was taken, and the ask withdrawn (rule L7: a turn that its task
    /// does not take up passes on). The connection may have sent the ask after that withdrawal.
    fn withdraw_given_up(&self, ask: &Ask) {
        mutant!(GivenUpIsSent => return);
        if !self.leave_to_user(&ask.token) {
            self.core.withdraw(ask.withdrawal());
        }
    }

    /// An ask that was never sent needs no withdrawal. An earlier ask may still stand.
    fn on_unsent_ask(&self, ask: &Ask) {
        mutant!(UnsentWithdrawn => return);
        if let Some(pending) = self.state.lock().pending.as_mut().filter(|pending| pending.token == ask.token) {
            // An answer to an earlier ask may have come meanwhile.
            pending.on_unsent();
        }
    }

    /// Notes the failure of the last ask; `None` after a success.
    pub(super) fn record_failure(&self, failure: Option<StoreError>) {
        self.state.lock().failure = failure.map(Box::new);
        self.changed.notify_waiters();
    }

    /// What is known here of the lock. A task whose time is up says so. An ask without an answer for less than `silence` means
    /// nothing: its answer is on the way.
    pub(super) fn status(&self, silence: Duration) -> LockStatus {
        self.state.lock().status(silence)
    }
}

impl State {
    pub(super) fn status(&self, silence: Duration) -> LockStatus {
        if self.is_held() {
            return LockStatus::HeldHere;
        }
        let is_busy = self.pending.as_ref().is_some_and(|pending| pending.busy().is_some());
        match self.outage(silence) {
            Some(unreachable @ LockStatus::Unreachable(_)) => unreachable,
            _ if is_busy => LockStatus::HeldElsewhere,
            Some(silent) => silent,
            None => LockStatus::Unknown,
        }
    }

    /// Why the store can't be asked: it failed lately, or has not answered for longer than `silence`. When a try was given up
    /// without an answer, the time counts from that try on.
    fn outage(&self, silence: Duration) -> Option<LockStatus> {
        mutant!(OutageIsBusy => return None);
        if let Some(failure) = &self.failure {
            return Some(LockStatus::Unreachable(StoreError::clone(failure)));
        }
        let unanswered = || self.pending.as_ref()?.unanswered_since();
        let since = self.unread_since.as_deref().copied().or_else(unanswered)?.elapsed();
        (since >= silence).then_some(LockStatus::Silent(since))
    }

    /// Notes that a task is about to release the lease of `token`.
    pub(super) fn note_release_begun(&mut self, token: &Token) {
        self.ending.push(EndingToken::of_release(token.clone()));
    }

    /// Leaves a grant of `token` to the task that is about to release the lease of that token. Returns `false` when no task is.
    ///
    /// Most likely the grant is for that same lease. A release at this point would take the lease away too early: a task still
    /// waits to hear that the lock was its own, or a body is not dropped yet (rule 17: such a token is not a stray).
    pub(super) fn leave_to_release(&mut self, token: &Token) -> bool {
        let Some(ending) = self.ending.iter_mut().find(|ending| ending.token == *token) else { return false };
        ending.may_be_granted_again = true;
        true
    }

    fn end_use(&mut self, token: &Token) -> ReleaseDone {
        let Some(place) = self.ending.iter().position(|ending| ending.token == *token) else {
            return ReleaseDone::Unnoted;
        };
        match self.ending.get_mut(place) {
            Some(ending) if ending.users > 1 => {
                ending.users -= 1;
                ReleaseDone::StillUsed
            }
            _ => {
                let EndingToken { may_be_granted_again, kept_until, .. } = self.ending.swap_remove(place);
                ReleaseDone::Done { may_be_granted_again, kept_until }
            }
        }
    }
}
