//! How the turn is taken from a task that is not late: by an adopter that has the lock already (rule 24), and by a request that replaces
//! the holder (rule 25). And how a hold is given away.

use std::time::Duration;

use super::{ActiveHold, Effects, Ended, Ending, Env, Lease, Lock, PendingAsk, ResolvedRequest, Standing};
use crate::clock::Moment;
use crate::protocol::{Grant, Release};
use crate::share::SharedLeases;
use crate::token::Token;

/// The outcome of [`Lock::seize`].
#[derive(Debug)]
pub(crate) enum Seized {
    /// The turn, and what the task that had it has asked for: nobody waits for that any more.
    Turn(u64, Option<Release>),
    /// The process has the lease of this token.
    Leased(Token),
}

/// The outcome of [`Lock::adopt`].
#[derive(Debug)]
pub(crate) enum Adopted {
    /// The adopter has the turn and the lease. What the task that had the turn has asked for is to be withdrawn.
    Turn(u64, Option<Release>),
    /// The process has the lease of this token, which has ended in the store.
    Beside(Token),
    /// The lease of the adopter is over by now, or another lease is younger.
    Over,
}

impl Lock {
    /// Takes the turn for a request that replaces the holder (rule 25), unless there is a lease. An older request of that kind fails.
    pub(crate) fn seize_for_newest(&mut self, env: &dyn Env, now: Moment, out: &mut Effects) -> Seized {
        let seized = self.seize(env, now, out);
        if let Seized::Turn(id, _) = seized {
            // An older one that has the turn is woken anyhow.
            let older = std::mem::replace(&mut self.newest, id);
            out.calls.extend(self.waiters.remove(older).map(|waiter| waiter.waker));
        }
        seized
    }

    /// Whether a newer request has come since the task `id`, whose `request` replaces the holder.
    pub(super) fn is_replaced(&self, id: u64, request: &ResolvedRequest) -> bool {
        mutant!(OlderWaitsOn => return false);
        request.replaces() && self.newest != id
    }

    /// Takes the turn from whoever has it, unless there is a lease. The task that had the turn comes back to its old place, as a task
    /// that was late (rule L7).
    pub(crate) fn seize(&mut self, env: &dyn Env, now: Moment, out: &mut Effects) -> Seized {
        if let Some(lease) = self.lease() {
            return Seized::Leased(lease.token.clone());
        }
        let id = self.id_in_front();
        if let Some(other) = self.turn.replace(id) {
            if !env.is_closed() && !self.offers.is_releasing {
                self.offers.note_seized(other, now);
            }
            out.takes_turn = true;
        }
        self.offers.reset();
        out.wakes = true;
        let pending = self.standing.take_pending_if(|_| true).filter(|pending| pending.may_stand());
        Seized::Turn(id, pending.map(|pending| pending.withdrawal(env)))
    }

    /// Whether a task that came later has taken the turn of the task `id`, which has not come back since.
    pub(crate) fn is_seized(&self, id: u64) -> bool {
        self.offers.is_seized(id)
    }

    /// Gives the turn, and the lease that the store has granted to `token`, to a task that adopts the lock. The grant answers what was
    /// asked at `sent`.
    #[expect(clippy::too_many_arguments, reason = "what was asked, and what was answered")]
    pub(crate) fn adopt(
        &mut self,
        token: &Token,
        claim: Duration,
        request: &ResolvedRequest,
        grant: &Grant,
        sent: Moment,
        env: &dyn Env,
        out: &mut Effects,
    ) -> Adopted {
        let now = env.now();
        let mut pending = PendingAsk::new(token.clone(), env.share(), claim);
        pending.fences = u32::from(request.fenced);
        let mut lease = Lease::new(&pending, grant, env);
        if self.was_forced(token) || !lease.is_good_for(request, now) {
            return Adopted::Over;
        }
        match self.seize(env, now, out) {
            Seized::Turn(id, withdrawal) => {
                lease.counted = env.leases().map(SharedLeases::count);
                self.standing = Standing::Leased(lease);
                let _ = self.end_use(token);
                Adopted::Turn(id, withdrawal)
            }
            Seized::Leased(_) if self.lease().is_some_and(|lease| lease.is_confirmed_after(sent)) => Adopted::Over,
            Seized::Leased(other) => Adopted::Beside(other),
        }
    }

    /// Ends the hold `id` without a release: its token is to be replaced by a ticket (rule 24). `None` when the hold was lost before.
    pub(crate) fn end_given(&mut self, id: u64, env: &dyn Env, now: Moment) -> (Ended, Option<Release>) {
        let Some(lease) = self.lease_of(id) else { return (Ending::Lost(None).into(), None) };
        let release = Release { unused_fences: None, kept_until: None, ..lease.release(env) };
        let has_ended = lease.has_ended(now);
        // Rule L6: when the hold outlived its deadline, the whole lease ends.
        let hold = if has_ended { lease.ended_hold() } else { lease.hold.as_ref().map(ActiveHold::as_ended) };
        self.take_lease();
        if has_ended {
            return (Ended { ending: Ending::Lost(Some(release)), hold }, None);
        }
        self.note_release_begun(&release.token);
        (Ended { ending: Ending::Kept, hold }, Some(release))
    }
}
