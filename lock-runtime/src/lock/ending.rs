//! What happens to a lease when its hold ends, or is lost.

use super::hold::{ActiveHold, EndedHold};
use super::lease::Lease;
use super::tokens::EndingToken;
use super::{Effects, Env, Lock, PendingAsk, Standing};
use crate::clock::Moment;
use crate::error::LossReason;
use crate::protocol::Release;
use crate::timing::CLAIM;
use crate::token::Token;

/// What happens to the lease when its hold ends.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The hold was lost before. The release is that of a lease whose hold outlived its deadline: the store may still have it.
    Lost(Option<Release>),
    /// The lease stays: for the next task here, or for the keeper to release when a guard was dropped.
    Kept,
    /// Other readers here still have the hold.
    Joint,
    /// The lease stays without a hold. The turn has ended, too.
    Lingers,
    /// The lease ends with this release. No task here waits that is not late.
    Free(Release),
    /// The lease ends with this release although tasks here wait (rule L4: a streak of hand-overs is bounded, and
    /// another process waits).
    Yield(Release),
    /// The lease ends with this release, after which the lock rests (rule 23): others are still to be kept out, tasks here too.
    Rests(Release),
}

/// The end of a hold.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    /// What is told of the hold. `None` when there is nothing to tell, or it was told before.
    pub(crate) hold: Option<EndedHold>,
}

/// The outcome of [`Lock::revoke`].
#[derive(Debug)]
pub(crate) struct Revoked {
    /// The release to send now. `None` when it must wait until the hold is dropped.
    pub(crate) release: Option<Release>,
    /// The turn that the hold had, to be passed on.
    pub(crate) turn: Option<u64>,
    pub(crate) hold: Option<EndedHold>,
}

impl From<Ending> for Ended {
    /// Nothing is left to do but what the `ending` says.
    fn from(ending: Ending) -> Self {
        Self { ending, hold: None }
    }
}

impl Lock {
    /// Takes the lease, for its release.
    pub(crate) fn take_lease(&mut self) -> Option<Lease> {
        self.is_tracked = false;
        self.standing.take_lease_if(|_| true)
    }

    /// Ends the hold `id`.
    ///
    /// The hold had a body or not: one of several readers that have it may have a guard.
    pub(crate) fn end(&mut self, id: u64, had_body: bool, env: &dyn Env, now: Moment, out: &mut Effects) -> Ended {
        if env.share().is_some() && self.leave_readers(id, had_body) {
            return self.end_joint(had_body, env, now, out);
        }
        if self.try_linger(id, env, now, out) {
            return Ending::Lingers.into();
        }
        let ended = self.end_for_good(id, env, now);
        // In the same step: a late task would otherwise take the token for one that was given up.
        if let Ending::Free(release) | Ending::Yield(release) = &ended.ending
            && release.queued
        {
            self.note_release_begun(&release.token);
        }
        ended
    }

    /// Ends the hold `id` for good: nobody else has it, and its lease does not linger.
    fn end_for_good(&mut self, id: u64, env: &dyn Env, now: Moment) -> Ended {
        let is_last = self.waiters.is_empty();
        let has_late = self.offers.has_late();
        let Some(lease) = self.lease_of_mut(id) else { return Ending::Lost(None).into() };
        let hold = lease.hold.as_ref().map(ActiveHold::as_ended);
        // The lease is kept for a late task, but not when another process waits.
        let is_last = is_last && (!has_late || lease.is_contended(now));
        let (ending, hold) = if lease.has_ended(now) {
            // Rule L6: the hold outlived its deadline, so the whole lease ends.
            (Ending::Lost(Some(lease.release(env))), lease.ended_hold())
        } else if lease.keeps_out(env) {
            (Ending::Rests(lease.release(env)), hold)
        } else if is_last {
            (Ending::Free(lease.release(env)), hold)
        } else if lease.try_hand_over(now) {
            lease.hold = None;
            lease.upkeep.has_look = false;
            return Ended { ending: Ending::Kept, hold };
        } else if env.kind().queues {
            (Ending::Yield(lease.release(env)), hold)
        } else {
            let release = lease.release(env);
            self.pause_after_streak(now);
            (Ending::Free(release), hold)
        };
        self.is_tracked = false;
        self.standing = Standing::Nothing;
        Ended { ending, hold }
    }

    /// Ends the part that one reader had in a hold that others still have.
    fn end_joint(&mut self, had_body: bool, env: &dyn Env, now: Moment, out: &mut Effects) -> Ended {
        if !self.lease().is_some_and(|lease| lease.has_ended(now)) {
            return Ending::Joint.into();
        }
        let Some(mut lease) = self.take_lease() else { return Ending::Joint.into() };
        if let Some(hold) = lease.hold.as_mut().filter(|hold| had_body && hold.bodies > 0) {
            // It is one of those after whose end the lease is released.
            hold.bodies += 1;
        }
        // Rule L6: the hold outlived its deadline, so the whole lease ends. The reader that ends its part now has left already.
        let hold = lease.hold.as_ref().map(ActiveHold::as_ended);
        let hold = hold.map(|hold| EndedHold { users: hold.users + 1, ..hold });
        out.wakes = true;
        Ended { ending: Ending::Lost(self.release_after_bodies(lease, LossReason::Deadline, env)), hold }
    }

    /// Ends the hold `id`, and keeps its lease for the next task, or for the keeper to release.
    pub(crate) fn end_dropped(
        &mut self,
        id: u64,
        had_body: bool,
        env: &dyn Env,
        now: Moment,
        out: &mut Effects,
    ) -> Ended {
        if env.share().is_some() && self.leave_readers(id, had_body) {
            return self.end_joint(had_body, env, now, out);
        }
        if self.try_linger(id, env, now, out) {
            return Ending::Lingers.into();
        }
        if self.has_nobody_behind()
            && let Some(lease) = self.lease_of_mut(id)
            && !lease.has_ended(now)
            && !lease.keeps_out(env)
            && lease.try_hand_over_after_drop(now)
        {
            lease.hold = None;
            lease.upkeep.has_look = false;
            self.is_tracked = false;
            return Ending::Kept.into();
        }
        self.end_for_good(id, env, now)
    }

    /// Ends a hold that has no user any more. Returns its id, which has the turn.
    pub(crate) fn end_unused(&mut self, env: &dyn Env, out: &mut Effects) -> Option<(u64, Ended)> {
        let Some(id) = self.unused_hold() else {
            // A reader came just before. The timer of the hold may be gone.
            if self.is_held() {
                self.track();
            }
            return None;
        };
        // Nobody is left who could have the hold together with others.
        Some((id, self.end_dropped(id, false, env, env.now(), out)))
    }

    /// A hold to which none of the called readers came, or whose task did not come while it was early.
    pub(crate) fn unused_hold(&self) -> Option<u64> {
        let hold = self.hold()?;
        let has_no_reader = hold.readers.as_ref().is_some_and(|readers| readers.is_empty());
        (has_no_reader || hold.is_taken_back()).then_some(hold.id)
    }

    /// Takes a lease that no task uses, for its release.
    pub(crate) fn take_unused_lease(&mut self, env: &dyn Env) -> Option<Release> {
        if self.turn.is_some() {
            return None;
        }
        // A task may have used the lease meanwhile, and left it to linger.
        self.standing.take_lease_if(|lease| !lease.lingers()).map(|lease| lease.release(env))
    }

    /// Ends the lease, if it has `token` or no `token` is given, and the hold on it.
    ///
    /// The turn is taken from the hold in the same step, because a hold that ends by itself meanwhile passes its turn
    /// on.
    pub(crate) fn revoke(
        &mut self,
        token: Option<&Token>,
        reason: LossReason,
        env: &dyn Env,
        out: &mut Effects,
    ) -> Option<Revoked> {
        let is_meant = |lease: &mut Lease| token.is_none_or(|token| lease.token == *token);
        let lease = self.standing.take_lease_if(is_meant)?;
        out.wakes = true;
        let hold = match reason {
            LossReason::Deadline => lease.ended_hold(),
            _ => lease.hold.as_ref().map(|hold| EndedHold { reason, ..hold.as_ended() }),
        };
        if hold.is_some() && reason == LossReason::Forced {
            self.note_forced(&lease.token, lease.hold.as_ref().map_or(0, ActiveHold::users));
        }
        let turn = hold.is_some().then(|| self.renew_turn());
        let release = self.release_after_bodies(lease, reason, env);
        Some(Revoked { release, turn, hold })
    }

    /// The release of a lease whose hold was lost. `None` when bodies end first (rule 14). Then the last of them has it sent.
    fn release_after_bodies(&mut self, mut lease: Lease, reason: LossReason, env: &dyn Env) -> Option<Release> {
        self.expel_called(&mut lease, env);
        let bodies = lease.hold.as_ref().map_or(0, |hold| match reason {
            // A guard is waited for as a body is: what some servers of a quorum still have keeps others out until then.
            LossReason::NotKnown if lease.share.is_none() => hold.users(),
            _ => hold.bodies,
        });
        mutant!(GuardsCountAsBodies => if let Some(hold) = lease.hold.as_ref().filter(|hold| hold.users() > 1) {
            let users = hold.users();
            self.ending.push(EndingToken::of_bodies(lease, users, env));
            return None;
        });
        mutant!(ReleasedBeforeBody => return Some(lease.release(env)));
        if bodies == 0 {
            return Some(lease.release(env));
        }
        // Rule 17: until then a new grant for its token is not a stray.
        self.ending.push(EndingToken::of_bodies(lease, bodies, env));
        None
    }

    /// Notes that the lease ends with a release that carries a new ask along. Returns the token of that ask.
    ///
    /// The next hold may want its lease to linger as that of `ended` might have.
    pub(crate) fn note_yield(&mut self, ended: &Release, env: &dyn Env, now: Moment) -> Token {
        let token = env.next_token(ended.token.may_linger());
        self.offers.await_release(now);
        self.track();
        let claim = ended.claim.min(CLAIM);
        let pending = PendingAsk::sent_along(token.clone(), env.share(), claim, now);
        self.standing = Standing::Asking(Box::new(pending));
        token
    }
}
