//! Whose a token is: that of the ask, of the lease, of a release that is awaited, of bodies whose hold was lost, or nobody's. And what
//! becomes of a grant, or of a message, for it.

use std::time::Duration;

use super::lease::Lease;
use super::{Effects, Env, Lane, Lock, PendingAsk, Standing};
use crate::clock::Deadline;
use crate::protocol::{Answer, Ask, Busy, Grant, Pushed, StoreError};
use crate::token::Token;

/// A token whose lock was released by force.
#[derive(Debug)]
pub(super) struct ForcedHold {
    pub(super) token: Token,
    /// How many users of its hold are not gone.
    users: u32,
}

/// A token that is being released: either a task waits for the release, or the bodies of a lost hold are not dropped yet. Or that of a
/// task that adopts the lock.
#[derive(Debug)]
pub(super) struct EndingToken {
    token: Token,
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
    /// A task adopts the lock under the token, and gives the token up unless it gets the lock.
    Adopter,
}

impl EndingToken {
    fn of_task(token: Token, user: EndingUser) -> Self {
        Self { token, may_be_granted_again: false, user, users: 1, kept_until: None }
    }

    pub(super) fn of_bodies(lease: Lease, users: u32, env: &dyn Env) -> Self {
        let kept_until = lease.kept_until(env);
        Self { token: lease.token, may_be_granted_again: false, user: EndingUser::Bodies, users, kept_until }
    }
}

/// What a token is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It is that of the pending ask.
    Asks,
    /// It has the lease.
    Leased,
    /// It is being released.
    Ends,
    /// Nothing here.
    None,
}

/// The outcome of [`Lock::end_use`].
#[derive(Debug)]
pub(crate) enum ReleaseDone {
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

/// What a token is used for whose lock was released by force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForcedToken {
    /// It has the lease. Whether the message is true, the store knows.
    Leased,
    /// It has the lease, which lingers: nothing runs under it.
    Lingers,
    /// Its grant was not read yet, or what it is used for is about to end.
    Awaited,
}

/// Whether an answer leaves all as it was. The ask may have been executed all the same: when it was sent before.
fn says_nothing(answer: &Answer) -> bool {
    mutant!(LateIsAnswer => return false);
    matches!(answer, Answer::Late)
}

impl Lock {
    fn use_of(&self, token: &Token) -> Use {
        match self.place_of(token).and_then(|at| self.lane(at)).map(|lane| &lane.standing) {
            Some(Standing::Asking(_)) => Use::Asks,
            Some(Standing::Leased(_)) => Use::Leased,
            None if self.ending.iter().any(|ending| ending.token == *token) => Use::Ends,
            None => Use::None,
        }
    }

    /// Whether the token belongs to a lease or to an ask.
    pub(crate) fn wants(&self, token: &Token) -> bool {
        self.place_of(token).is_some()
    }

    /// Whether `token` is used: for an ask, for a lease that some task has, or by a body whose hold was lost. A lease that lingers, or
    /// that its task has left, is released for whoever comes.
    pub(crate) fn uses(&self, token: &Token) -> bool {
        let of_body = |ending: &EndingToken| ending.token == *token && ending.user == EndingUser::Bodies;
        let is_used = |lane: &Lane| lane.token() == token && !self.is_left(lane);
        self.lanes.iter().any(is_used) || self.ending.iter().any(of_body)
    }

    /// Whether no task has the lease any more: it lingers, or the keeper is about to release it.
    fn is_left(&self, lane: &Lane) -> bool {
        mutant!(LeftLeaseIsUsed => return false);
        let is_wanted = lane.acting.is_some() || !self.waiters.is_empty() || self.entrants > 0;
        lane.lease().is_some_and(|lease| lease.lingers() || (lease.hold.is_none() && !is_wanted))
    }

    /// Leaves what the store may grant under `token` to the task here that uses the token: for an ask, a lease, or the release of one.
    /// Returns `false` when no task does. Then the token is to be withdrawn.
    pub(crate) fn leave_to_user(&mut self, token: &Token) -> bool {
        self.wants(token) || self.leave_to_release(token)
    }

    /// Leaves a grant of `token` to the task that is about to release the lease of that token. Returns `false` when no task is.
    ///
    /// Most likely the grant is for that same lease. A release at this point would take the lease away too early: a task still
    /// waits to hear that the lock was its own, or a body is not dropped yet (rule 17: such a token is not a stray).
    pub(crate) fn leave_to_release(&mut self, token: &Token) -> bool {
        let Some(ending) = self.ending.iter_mut().find(|ending| ending.token == *token) else { return false };
        mutant!(LostIsStray => return ending.user != EndingUser::Bodies);
        ending.may_be_granted_again = true;
        true
    }

    /// Takes in a pushed grant. Returns `false` when no task here waits for its token or owns it.
    pub(crate) fn on_grant(&mut self, pushed: &Pushed) -> bool {
        let Some(lane) = self.place_of(&pushed.token).and_then(|at| self.lanes.get_mut(at)) else {
            return self.leave_to_release(&pushed.token);
        };
        if let Some(pending) = lane.pending_mut() {
            pending.on_push(pushed);
            self.pauses = None;
        }
        true
    }

    /// Takes in an answer. Returns `false` when the ask has to be withdrawn: it may be granted, and no task here waits for that.
    pub(crate) fn on_answer(&mut self, ask: &Ask, answer: Answer, env: &dyn Env, out: &mut Effects) -> bool {
        if says_nothing(&answer) {
            // There is nothing to withdraw.
            return true;
        }
        let granted = matches!(answer, Answer::Granted(_));
        let stands = matches!(answer, Answer::Busy(Busy { stands: true, .. }));
        self.failure = None;
        let Some(at) = self.place_of(&ask.token) else {
            return !(granted || stands) || self.leave_to_release(&ask.token);
        };
        let Some(lane) = self.lanes.get_mut(at) else { return true };
        let pending = match &mut lane.standing {
            Standing::Asking(pending) => pending,
            Standing::Leased(lease) => {
                if granted {
                    lease.hinted = None;
                }
                if matches!(answer, Answer::Granted(Grant { contended: true, .. })) {
                    self.note_contention(at, env);
                }
                return true;
            }
        };
        pending.on_answer(ask, answer, env);
        let is_over = stands && !pending.is_granted();
        if is_over {
            // Rule L3: it is withdrawn, and a token that was given up is never used again.
            pending.renew_token(env.next_token(pending.token.may_linger()));
        }
        let is_permit = env.share().is_some_and(|share| share.permits().is_some());
        if is_permit && pending.busy().is_some() && !pending.is_granted() {
            out.refused_permit = Some(ask.wait);
        }
        if granted || pending.is_replaced() {
            self.pauses = None;
        } else {
            self.pause_after_refusal(env);
        }
        !is_over
    }

    /// Takes in that the store refuses the ask that the keeper has repeated, and would refuse it again.
    pub(crate) fn on_refused_repetition(&mut self, ask: &Ask, error: StoreError) {
        mutant!(RefusedRepetitionUntold => return);
        if let Some(pending) = self.pending_under(&ask.token) {
            pending.on_denial(error);
        }
    }

    fn pending_under(&mut self, token: &Token) -> Option<&mut PendingAsk> {
        self.lanes.iter_mut().filter_map(Lane::pending_mut).find(|pending| pending.token == *token)
    }

    /// Takes in that an ask was certainly never sent: it needs no withdrawal. An earlier ask may still stand, and an answer to that
    /// may have come meanwhile.
    pub(crate) fn on_unsent_ask(&mut self, ask: &Ask) {
        mutant!(UnsentWithdrawn => return);
        if let Some(pending) = self.pending_under(&ask.token) {
            pending.on_unsent();
        }
    }

    /// Pushes may have been missed: the place in the store's queue is doubtful, and a task asks again.
    pub(crate) fn on_interruption(&mut self) {
        self.lanes.iter_mut().filter_map(Lane::pending_mut).for_each(PendingAsk::on_interruption);
    }

    /// Takes in that few others are in front of the ask that waits here.
    pub(crate) fn on_near(&mut self, store_micros: u64) {
        self.lanes.iter_mut().filter_map(Lane::pending_mut).for_each(|pending| pending.on_near(store_micros));
    }

    /// Takes in that another process waits: who has the lock yields it in its time.
    pub(crate) fn on_contention(&mut self, env: &dyn Env) {
        for at in 0..self.lanes.len() {
            match self.lanes.get_mut(at).map(|lane| &mut lane.standing) {
                Some(Standing::Leased(_)) => self.note_contention(at, env),
                Some(Standing::Asking(pending)) => {
                    pending.note_contention(env);
                }
                None => {}
            }
        }
    }

    /// Takes in that a task of this process wants the lock in another mode, and perhaps `waits` for it.
    pub(crate) fn on_waiter_beside(&mut self, waits: bool, env: &dyn Env) {
        if !waits {
            return;
        }
        for at in 0..self.lanes.len() {
            match self.lanes.get_mut(at).map(|lane| &mut lane.standing) {
                Some(Standing::Leased(_)) => self.note_contention(at, env),
                // It may be in front in the store's queue, and its grant is on its way.
                Some(Standing::Asking(pending)) => pending.note_waiter_behind(),
                None => {}
            }
        }
    }

    /// Notes that others wait for the lease of the lane `at`.
    fn note_contention(&mut self, at: usize, env: &dyn Env) {
        let lease = self.lanes.get_mut(at).and_then(Lane::lease_mut);
        if lease.is_some_and(|lease| lease.note_contention(env)) {
            self.is_tracked = true;
        }
    }

    /// Whether a grant for a lease that shares the lock may be on its way here.
    pub(crate) fn may_be_granted_a_share(&self, env: &dyn Env) -> bool {
        mutant!(UnreadGrantNotTold => return false);
        let may_be = |pending: &PendingAsk| pending.is_granted() || !pending.pauses(env);
        env.share().is_some() && self.pendings().any(may_be)
    }

    /// The asks that the keeper repeats as the safety net: those in the store's queue whose last answer is at least that old.
    pub(crate) fn repeatable_asks(&self, age: Duration, give_up: Deadline, env: &dyn Env) -> Vec<Ask> {
        mutant!(NoSafetyNet => return Vec::new());
        let is_meant = |pending: &&PendingAsk| {
            let is_old = pending.refused_for(env).is_some_and(|refused_for| refused_for >= age);
            let waits =
                pending.is_queued() && !pending.is_granted() && !pending.is_unanswered() && !pending.pauses(env);
            waits && is_old
        };
        self.pendings().filter(is_meant).map(|pending| pending.again(env, give_up)).collect()
    }

    /// Whether an ask is in the store's queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.pendings().any(|pending| pending.is_queued() && !pending.is_granted())
    }

    /// Whether no ask in the store's queue has to be repeated yet.
    pub(crate) fn asks_pause(&self, env: &dyn Env) -> bool {
        self.pendings().all(|pending| pending.pauses(env))
    }

    /// Notes that a task is about to release the lease of `token`.
    pub(crate) fn note_release_begun(&mut self, token: &Token) {
        self.ending.push(EndingToken::of_task(token.clone(), EndingUser::Release));
    }

    /// Notes that a task is about to adopt the lock under `token`.
    pub(crate) fn note_adopter(&mut self, token: &Token) {
        self.ending.push(EndingToken::of_task(token.clone(), EndingUser::Adopter));
    }

    /// Notes that one of those who waited for the release of `token`, or had a body under it, is gone.
    pub(crate) fn end_use(&mut self, token: &Token) -> ReleaseDone {
        self.forget_forced(token);
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

    /// Takes in a message that the lock of `token` was released by force. Returns what the token is used for, if anything.
    pub(crate) fn on_forced(&mut self, token: &Token) -> Option<ForcedToken> {
        if let Some(pending) = self.pending_under(token) {
            pending.on_forced();
        }
        let is_leased = self.use_of(token) == Use::Leased;
        if let Some(lease) = self.lease_under(token) {
            if lease.lingers() {
                return Some(ForcedToken::Lingers);
            }
            // A renewal that is on its way may have been executed before the force.
            lease.upkeep.doubtful |= lease.upkeep.renewing;
        }
        // A refused renewal may have told of the loss before the message came. Or the task reads its grant after the message.
        if self.use_of(token) == Use::None {
            return None;
        }
        mutant!(ForcedAfterLoss => if !is_leased { return Some(ForcedToken::Awaited) });
        let mut forced = std::mem::take(&mut self.forced);
        forced.retain(|earlier| earlier.token != *token && self.use_of(&earlier.token) != Use::None);
        self.forced = forced;
        self.note_forced(token, 1);
        Some(if is_leased { ForcedToken::Leased } else { ForcedToken::Awaited })
    }

    /// Takes in that the lock of `token`, whose hold has so many `users`, was released by force.
    pub(crate) fn note_forced(&mut self, token: &Token, users: u32) {
        match self.forced.iter_mut().find(|forced| forced.token == *token) {
            Some(forced) => forced.users = users,
            None => self.forced.push(ForcedHold { token: token.clone(), users }),
        }
    }

    /// Whether the lock of `token` was released by force.
    pub(crate) fn was_forced(&self, token: &Token) -> bool {
        self.forced.iter().any(|forced| forced.token == *token)
    }

    /// A user of the token's hold is gone. Returns whether the lock was released by force.
    pub(crate) fn forget_forced(&mut self, token: &Token) -> bool {
        let Some(place) = self.forced.iter().position(|forced| forced.token == *token) else { return false };
        match self.forced.get_mut(place) {
            Some(forced) if forced.users > 1 => forced.users -= 1,
            _ => drop(self.forced.swap_remove(place)),
        }
        true
    }
}
