//! What happens to a lease when its hold ends, or is lost.

use super::hold::{ActiveHold, EndedHold};
use super::lease::Lease;
use super::readers::Leaves;
use super::tokens::EndingToken;
use super::{Acting, Effects, Env, Lane, Lock, PendingAsk, Standing};
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
    /// The lease stays: for the next task here, for the next hold while it lingers, for other readers that have the hold, or for the
    /// keeper to release.
    Kept,
    /// The lease ends with this release.
    Free(Release),
    /// The lease ends with this release, which carries a new ask along (rule L4: a streak of hand-overs is bounded, and another
    /// process waits).
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

/// Whoever ends a hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) id: u64,
    pub(crate) member: u64,
    pub(crate) has_body: bool,
    /// Whether it waits for the answer of the store.
    pub(crate) waits: bool,
}

impl From<Ending> for Ended {
    /// Nothing is left to do but what the `ending` says.
    fn from(ending: Ending) -> Self {
        Self { ending, hold: None }
    }
}

impl Lock {
    /// Ends the hold of `user`.
    pub(crate) fn end(&mut self, user: User, env: &dyn Env, now: Moment, out: &mut Effects) -> Ended {
        let Some(lease) = self.lease_of(user.id) else { return Ending::Lost(None).into() };
        let has_ended = lease.has_ended(now);
        match self.leave_readers(user.id, user.member, user.has_body, now) {
            Some(Leaves::Others) if has_ended => return self.end_late(user, env, out),
            Some(Leaves::Others) => return Ending::Kept.into(),
            Some(Leaves::Late) => return Ending::Lost(None).into(),
            Some(Leaves::Last) | None => {}
        }
        if !has_ended && self.try_linger(user.id, env, now, out) {
            return Ending::Kept.into();
        }
        let waits_here = !self.waiters.is_empty();
        let is_anybody_awake = self.waiters.first_awake().is_some();
        let Some(lease) = self.lease_of_mut(user.id) else { return Ending::Lost(None).into() };
        let hold = lease.hold.as_ref().map(ActiveHold::as_ended);
        // Rule L6: when the hold outlived its deadline, the whole lease ends.
        let ended_hold = if has_ended { lease.ended_hold() } else { None };
        let (keeps_out, is_contended) = (lease.keeps_out(env), lease.is_contended(now));
        // The lease is kept for tasks that are asleep, but not when another process waits.
        let is_wanted_here = if is_contended { is_anybody_awake } else { waits_here };
        // Nobody waits for the answer to this release. A task that comes at once takes the lease over: that is one more hand-over
        // (rule 18).
        let is_left = !waits_here && !user.waits;
        if !has_ended && !keeps_out && (is_wanted_here || is_left) && lease.try_hand_over(now) {
            lease.hold = None;
            lease.fresh = false;
            lease.upkeep.look_at = None;
            self.has_new_look = true;
            return Ended { ending: Ending::Kept, hold };
        }
        let (token, release) = (lease.token.clone(), lease.release(env));
        let _ = self.take_lease(&token, |_| true);
        self.is_tracked = false;
        let ending = if has_ended {
            return Ended { ending: Ending::Lost(Some(release)), hold: ended_hold };
        } else if keeps_out {
            Ending::Rests(release)
        } else if !is_wanted_here {
            Ending::Free(release)
        } else if env.kind().queues && user.waits {
            let again = self.yield_lane(user.id, &release, env, now);
            Ending::Yield(Release { again: Some((again, release.claim.min(CLAIM))), ..release })
        } else {
            if !env.kind().queues {
                self.pause_after_streak(now);
            }
            Ending::Free(release)
        };
        // In the same step: else an answer or a message would take the token for one that was given up.
        if let Ending::Free(release) | Ending::Yield(release) = &ending
            && release.queued
            && user.waits
        {
            self.note_release_begun(&release.token);
        }
        Ended { ending, hold }
    }

    /// The lease ends with a release that carries a new ask along. Returns the token of that ask.
    ///
    /// The next hold may want its lease to linger as that of `ended` might have.
    fn yield_lane(&mut self, id: u64, ended: &Release, env: &dyn Env, now: Moment) -> Token {
        let token = env.next_token(ended.token.may_linger());
        let pending = PendingAsk::sent_along(token.clone(), env.share(), ended.claim.min(CLAIM), now);
        let mut lane = Lane::new(Standing::Asking(Box::new(pending)));
        lane.acting = Some(Acting { id, since: now, releases: true });
        self.lanes.push(lane);
        self.is_tracked = true;
        token
    }

    /// The task `id` has the answer to its release, or is gone.
    pub(crate) fn end_release(&mut self, id: u64) {
        for lane in &mut self.lanes {
            if lane.acting.is_some_and(|acting| acting.releases && acting.id == id) {
                lane.acting = None;
            }
        }
    }

    /// Ends the part that one reader had in a hold that others still have, and whose deadline has passed.
    fn end_late(&mut self, user: User, env: &dyn Env, out: &mut Effects) -> Ended {
        let Some(lease) = self.lease_of_mut(user.id) else { return Ending::Lost(None).into() };
        if let Some(hold) = lease.hold.as_mut().filter(|hold| user.has_body && hold.bodies > 0) {
            // It is one of those after whose end the lease is released.
            hold.bodies += 1;
        }
        let token = lease.token.clone();
        // Rule L6: the whole lease ends. The reader that ends its part now has left already.
        let hold = lease.hold.as_ref().map(ActiveHold::as_ended);
        let hold = hold.map(|hold| EndedHold { users: hold.users + 1, ..hold });
        let Some(lease) = self.take_lease(&token, |_| true) else { return Ending::Lost(None).into() };
        out.wakes = true;
        Ended { ending: Ending::Lost(self.release_after_bodies(lease, LossReason::Deadline, env)), hold }
    }

    /// Takes the leases that lie free, for their release: nobody waits for them.
    pub(crate) fn release_unused(&mut self, env: &dyn Env, out: &mut Effects) {
        if !self.waiters.is_empty() || self.entrants > 0 {
            return;
        }
        while let Some(at) =
            self.lanes.iter().position(|lane| lane.is_free() && !lane.lease().is_some_and(Lease::lingers))
        {
            out.releases.extend(self.remove(at).into_release(env));
        }
    }

    /// Ends the hold of readers none of whom was polled while its acquire went on.
    pub(super) fn end_unpolled(&mut self, env: &dyn Env, now: Moment, out: &mut Effects) {
        if !self.forget_unpolled_readers(now) {
            return;
        }
        if let Some(lease) = self.take_lease_if(|_| true) {
            out.releases.push(lease.release(env));
        }
    }

    /// Ends the lease of `token`, or all leases when no `token` is given, and the holds on them.
    pub(crate) fn revoke(
        &mut self,
        token: Option<&Token>,
        reason: LossReason,
        env: &dyn Env,
        out: &mut Effects,
    ) -> Vec<EndedHold> {
        let mut lost = Vec::new();
        let is_meant = |lease: &Lease| token.is_none_or(|token| lease.token == *token);
        while let Some(lease) = self.take_lease_if(is_meant) {
            out.wakes = true;
            let hold = match reason {
                LossReason::Deadline => lease.ended_hold(),
                _ => lease.hold.as_ref().map(|hold| EndedHold { reason, ..hold.as_ended() }),
            };
            if hold.is_some() && reason == LossReason::Forced {
                self.note_forced(&lease.token, lease.hold.as_ref().map_or(0, ActiveHold::users));
            }
            lost.extend(hold);
            out.releases.extend(self.release_after_bodies(lease, reason, env));
        }
        lost
    }

    /// The release of a lease whose hold was lost. `None` when bodies end first (rule 14). Then the last of them has it sent.
    fn release_after_bodies(&mut self, lease: Lease, reason: LossReason, env: &dyn Env) -> Option<Release> {
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
}
