//! Who uses a token: an ask, a lease, a release that a task awaits, the bodies of a lost hold, or no one. And what happens to a grant or a
//! message for it.

use std::time::Duration;

use super::lease::Lease;
use super::queue::pause_between;
use super::{Effects, Env, Lane, Lock, PendingAsk, Standing};
use crate::clock::Deadline;
use crate::protocol::{Answer, Ask, Busy, Pushed, StoreError};
use crate::timing::{POLL_PAUSE, POLL_PAUSE_OF_OWN_RELEASE};
use crate::token::Token;

#[derive(Debug)]
pub(super) struct ForcedHold {
    pub(super) token: Token,
    /// How many users of its hold are left.
    users: u32,
}

/// A token that is about to be given up: a task awaits its release, or the bodies of a lost hold have not been dropped yet. Or a task
/// adopts the lock under it, and gives the token up unless it gets the lock.
#[derive(Debug)]
pub(crate) struct EndingToken {
    pub(super) token: Token,
    /// Whether the store granted it again meanwhile, or may do so.
    pub(crate) may_be_granted_again: bool,
    /// Whether the bodies of a lost hold use it.
    has_bodies: bool,
    /// How many tasks wait, or have a body.
    users: u32,
    /// Until when others are kept out, even if the bodies are dropped earlier.
    pub(crate) kept_until: Option<Box<Deadline>>,
    /// For how long the lock rests after a body was dropped.
    pub(crate) delay: Duration,
}

impl Lock {
    /// Whether a lease or an ask has the token.
    pub(crate) fn wants(&self, token: &Token) -> bool {
        self.place_of(token).is_some()
    }

    /// Whether `token` is used: for an ask, for a lease that some task has, or by a body whose hold was lost. A lease that lingers, or that
    /// its task has left, is not: it is released when another task or process wants the lock.
    pub(crate) fn uses(&self, token: &Token) -> bool {
        // No task has the lease any more: it lingers, or the keeper is about to release it.
        let is_wanted = |lane: &Lane| lane.acting.is_some() || !self.waiters.is_empty() || self.entrants > 0;
        let is_left = |lane: &Lane, lease: &Lease| lease.lingers() || (lease.hold.is_none() && !is_wanted(lane));
        let is_left = |lane: &Lane| lane.lease().is_some_and(|lease| is_left(lane, lease));
        let is_left = |lane: &Lane| mutant!(LeftLeaseIsUsed => false, else is_left(lane));
        self.lanes.iter().any(|lane| lane.token() == token && !is_left(lane))
            || self.ending.iter().any(|ending| ending.token == *token && ending.has_bodies)
    }

    /// Leaves what the store may grant under `token` to the task here that uses it: for an ask, a lease, or the release of one. Returns
    /// `false` if no task does: then the token must be withdrawn.
    pub(crate) fn leave_to_user(&mut self, token: &Token) -> bool {
        self.wants(token) || self.leave_to_release(token)
    }

    /// Leaves a grant of `token` to the task that is about to release the lease of that token. Returns `false` if there is none.
    ///
    /// Most likely the grant is for that same lease. A release now would take the lease away too early: a task still waits to learn that
    /// the lock was its own, or a body is not dropped yet (rule 13: such a token is not a stray).
    pub(crate) fn leave_to_release(&mut self, token: &Token) -> bool {
        let Some(ending) = self.ending.iter_mut().find(|ending| ending.token == *token) else { return false };
        mutant!(LostIsStray => return !ending.has_bodies);
        ending.may_be_granted_again = true;
        true
    }

    /// Handles a pushed grant. Returns `false` if no task here waits for its token or owns it.
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

    /// Handles an answer. Returns `false` if the ask must be withdrawn: it may be granted, and no task here waits for it.
    pub(crate) fn on_answer(&mut self, ask: &Ask, answer: Answer, env: &dyn Env, out: &mut Effects) -> bool {
        if mutant!(LateIsAnswer => false, else matches!(answer, Answer::Late)) {
            // It changes nothing, and needs no withdrawal. An earlier copy of the ask may have been executed anyway.
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
                if let Answer::Granted(grant) = answer {
                    lease.hinted = None;
                    self.is_tracked |= grant.contended && lease.note_contention(env);
                }
                return true;
            }
        };
        pending.on_answer(ask, answer, env);
        let is_over = stands && !pending.is_granted();
        if mutant!(RefusedTokenKept => false, else is_over) {
            // Rule 10: it is withdrawn, and a token that was given up is never used again.
            let note = pending.token.note();
            pending.restart(env.next_token(env.now(), pending.token.may_linger(), note.as_deref()));
        }
        let is_permit = env.share().is_some_and(|share| share.permits().is_some());
        if is_permit && pending.busy().is_some() && !pending.is_granted() {
            out.refused_permit = Some(ask.wait);
        }
        if granted || pending.is_replaced {
            self.pauses = None;
        } else if mutant!(PolledWithoutPause => false, else !env.kind().queues) {
            let is_releasing = self.own_owner(env).is_some_and(|owner| !self.uses(&owner));
            let bounds = if is_releasing { POLL_PAUSE_OF_OWN_RELEASE } else { POLL_PAUSE };
            self.pauses = Some(Box::new(Deadline::new(env.now(), pause_between(bounds))));
            self.has_new_look = true;
        }
        !is_over
    }

    /// Handles a refusal of the ask that the keeper repeated: the store would refuse it again.
    pub(crate) fn on_refused_repetition(&mut self, ask: &Ask, error: StoreError) {
        mutant!(RefusedRepetitionUntold => return);
        if let Some(pending) = self.pending_under(&ask.token).filter(|pending| !pending.is_granted()) {
            pending.denial = Some(Box::new(error));
        }
    }

    fn pending_under(&mut self, token: &Token) -> Option<&mut PendingAsk> {
        self.lanes.iter_mut().filter_map(Lane::pending_mut).find(|pending| pending.token == *token)
    }

    /// Handles an ask that was certainly never sent: it needs no withdrawal.
    pub(crate) fn on_unsent_ask(&mut self, ask: &Ask) {
        mutant!(UnsentWithdrawn => return);
        if let Some(pending) = self.pending_under(&ask.token) {
            // An earlier command may still stand, and its answer may have arrived meanwhile.
            pending.unanswered.take_if(|unanswered| unanswered.before.is_none());
        }
    }

    /// Pushes may have been missed: the place in the store's queue is doubtful, and a task asks again.
    pub(crate) fn on_interruption(&mut self) {
        self.lanes.iter_mut().filter_map(Lane::pending_mut).for_each(PendingAsk::on_interruption);
    }

    /// Handles the message that the ask that waits here is near the front.
    pub(crate) fn on_near(&mut self, store_micros: u64) {
        mutant!(NearForgotten => return);
        for pending in self.lanes.iter_mut().filter_map(Lane::pending_mut) {
            // The ask pauses no longer. The time is the store's.
            pending.near_since = pending.near_since.max(Some(store_micros));
            pending.end_pause();
        }
    }

    /// Handles the news that others wait: another process, if the store `tells`, or a task here that wants the lock in another mode. A hold
    /// yields when its turn is over, a lingering lease yields now. Returns whether that lease was used again while it lingered.
    pub(crate) fn on_contention(&mut self, tells: bool, env: &dyn Env, out: &mut Effects) -> Option<bool> {
        for lane in &mut self.lanes {
            match &mut lane.standing {
                Standing::Leased(lease) => self.is_tracked |= lease.note_contention(env),
                Standing::Asking(pending) => {
                    // Its grant may be on its way.
                    pending.contended = true;
                    // The store tells only owners, so this ask was granted, but the grant is not read yet. An ask that pauses would find
                    // out late if the grant was lost.
                    if tells && pending.pauses(env) && !pending.is_granted() {
                        pending.doubt_queue();
                    }
                }
            }
        }
        self.yield_lingering(env, out)
    }

    /// Releases a lingering lease, because others want the lock, whether they wait for it or not. Returns whether the lease was used again
    /// while it lingered.
    pub(crate) fn yield_lingering(&mut self, env: &dyn Env, out: &mut Effects) -> Option<bool> {
        mutant!(LingersOn => return None);
        self.release_lingering(env, out)
    }

    /// Whether a grant for a lease that shares the lock may be on its way here.
    pub(crate) fn may_be_granted_a_share(&self, env: &dyn Env) -> bool {
        mutant!(UnreadGrantNotTold => return false);
        let may_be = |pending: &PendingAsk| pending.is_granted() || !pending.pauses(env);
        env.share().is_some() && self.pendings().any(may_be)
    }

    /// The asks that the keeper repeats as the safety net: those in the store's queue whose last answer is at least this old.
    pub(crate) fn repeatable_asks(&self, age: Duration, give_up: Deadline, env: &dyn Env) -> Vec<Ask> {
        mutant!(NoSafetyNet => return Vec::new());
        let is_meant = |pending: &&PendingAsk| {
            let is_old = pending.refusal.as_ref().is_some_and(|refusal| env.now().since(refusal.at) >= age);
            let waits =
                pending.is_queued() && !pending.is_granted() && !pending.is_unanswered() && !pending.pauses(env);
            waits && is_old
        };
        self.pendings().filter(is_meant).map(|pending| pending.again(env, give_up)).collect()
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.pendings().any(|pending| pending.is_queued() && !pending.is_granted())
    }

    /// Whether no ask in the store's queue has to be repeated yet.
    pub(crate) fn asks_pause(&self, env: &dyn Env) -> bool {
        self.pendings().all(|pending| pending.pauses(env))
    }

    /// Notes that a task is about to release the lease of `token`, or to adopt the lock under it; or that this many `bodies` of a lost hold
    /// are not dropped yet.
    pub(crate) fn note_ending(&mut self, token: Token, bodies: u32, kept_until: Option<Box<Deadline>>) {
        let (has_bodies, users) = (bodies > 0, bodies.max(1));
        self.ending.push(EndingToken {
            token,
            may_be_granted_again: false,
            has_bodies,
            users,
            kept_until,
            delay: Duration::ZERO,
        });
    }

    /// Notes that one of the tasks that awaited the release of `token`, or had a body under it, is gone. Returns what is known of the token
    /// after the last one.
    pub(crate) fn end_use(&mut self, token: &Token) -> Option<EndingToken> {
        self.forget_forced(token);
        let place = self.ending.iter().position(|ending| ending.token == *token)?;
        match self.ending.get_mut(place) {
            Some(ending) if ending.users > 1 => {
                ending.users -= 1;
                None
            }
            _ => Some(self.ending.swap_remove(place)),
        }
    }

    /// Handles a message that the lock of `token` was released by force. Returns whether to ask the store if that is true: not when a grant
    /// has not been read yet, or when the use of the token is about to end anyway. `None` when the token is not used.
    pub(crate) fn on_forced(&mut self, token: &Token, env: &dyn Env, out: &mut Effects) -> Option<bool> {
        if let Some(pending) = self.pending_under(token) {
            pending.doubt_queue();
        }
        let lease = self.lease_under(token);
        let is_leased = lease.is_some();
        if let Some(lease) = lease {
            if lease.lingers() {
                // No body runs under it.
                self.release_lingering(env, out);
                return Some(true);
            }
            // A renewal in flight may have been executed before the force.
            lease.upkeep.doubtful |= lease.upkeep.renewing;
        }
        let Self { lanes, ending, forced, .. } = self;
        let is_used = |token: &Token| {
            lanes.iter().any(|lane| lane.token() == token) || ending.iter().any(|ending| ending.token == *token)
        };
        // A refused renewal may have reported the loss before the message arrived. Or the task reads its grant after the message.
        if !is_used(token) {
            return None;
        }
        mutant!(ForcedAfterLoss => if !is_leased { return Some(false) });
        forced.retain(|earlier| earlier.token != *token && is_used(&earlier.token));
        self.note_forced(token, 1);
        Some(is_leased)
    }

    /// Notes that the lock of `token`, whose hold has this many `users`, was released by force.
    pub(crate) fn note_forced(&mut self, token: &Token, users: u32) {
        match self.forced.iter_mut().find(|forced| forced.token == *token) {
            Some(forced) => forced.users = users,
            None => self.forced.push(ForcedHold { token: token.clone(), users }),
        }
    }

    pub(crate) fn was_forced(&self, token: &Token) -> bool {
        self.forced.iter().any(|forced| forced.token == *token)
    }

    /// Notes that a user of the token's hold is gone. Returns whether the lock was released by force.
    pub(crate) fn forget_forced(&mut self, token: &Token) -> bool {
        let Some(place) = self.forced.iter().position(|forced| forced.token == *token) else { return false };
        match self.forced.get_mut(place) {
            Some(forced) if forced.users > 1 => forced.users -= 1,
            _ => drop(self.forced.swap_remove(place)),
        }
        true
    }
}
