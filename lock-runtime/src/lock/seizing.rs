//! How a task comes before those that wait: one that adopts the lock (rule 24), and one that replaces the holder (rule 25). And how a
//! hold is given away.

use std::sync::OnceLock;
use std::time::Duration;

use super::ending::User;
use super::{
    ActiveHold, Effects, Ended, Ending, Env, Lane, Lease, Lock, PendingAsk, ResolvedRequest, Standing, Started,
};
use crate::clock::Moment;
use crate::protocol::{Grant, Release};
use crate::share::{Share, SharedLeases};
use crate::token::Token;

/// The outcome of [`Lock::enter_in_front`].
#[derive(Debug)]
pub(crate) enum Seized {
    /// The task has entered in front of all others, under this id.
    Entered(u64),
    /// The process has the lease of this token.
    Leased(Token),
}

/// The outcome of [`Lock::adopt`].
#[derive(Debug)]
pub(crate) enum Adopted {
    /// The hold of the adopter has started.
    Started(Box<Started>),
    /// The process has the lease of this token, which has ended in the store.
    Beside(Token),
    /// The lease of the adopter is over by now, or another lease is younger.
    Over,
}

impl Lock {
    /// A request that replaces the holder enters in front of all others (rule 25), unless there is a lease. An older request of that
    /// kind is woken, to fail.
    pub(crate) fn enter_in_front(&mut self, env: &dyn Env, out: &mut Effects) -> Seized {
        if let Some(lease) = self.leases().next() {
            return Seized::Leased(lease.token.clone());
        }
        mutant!(NewestComesLast => {
            self.entrants += 1;
            self.newest = self.waiters.new_id();
            return Seized::Entered(self.newest);
        });
        let id = self.waiters.id_in_front();
        self.entrants += 1;
        let older = std::mem::replace(&mut self.newest, id);
        out.woken.extend(self.waiters.wake(older));
        self.withdraw_asks(env, out);
        Seized::Entered(id)
    }

    /// Withdraws what the tasks here ask for: another task comes before them. They wait again.
    fn withdraw_asks(&mut self, env: &dyn Env, out: &mut Effects) {
        while let Some(at) = self.lanes.iter().position(|lane| lane.pending().is_some()) {
            out.withdrawals.extend(self.remove(at).into_release(env));
            out.is_overtaken = true;
        }
    }

    /// Whether a newer request has come since the task `id`, whose `request` replaces the holder.
    pub(super) fn is_replaced(&self, id: u64, request: &ResolvedRequest) -> bool {
        mutant!(OlderWaitsOn => return false);
        request.replaces() && self.newest != id
    }

    /// Starts the hold of a task that adopts the lock, on the lease that the store has granted to `token`. The grant answers what was
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
        let fence = OnceLock::new();
        if let Some(token) = lease.fences.take().filter(|_| request.fenced) {
            let _ = fence.set(token);
        }
        if self.was_forced(token) || !lease.is_good_for(request, now) || (request.fenced && fence.get().is_none()) {
            return Adopted::Over;
        }
        if env.share().is_none_or(|share| share == Share::READ) {
            if let Some(other) = self.leases().next() {
                return if other.is_confirmed_after(sent) {
                    Adopted::Over
                } else {
                    Adopted::Beside(other.token.clone())
                };
            }
            self.withdraw_asks(env, out);
        }
        lease.counted = env.leases().map(SharedLeases::count);
        self.lanes.push(Lane::new(Standing::Leased(lease)));
        let _ = self.end_use(token);
        let id = self.waiters.id_in_front();
        match self.start(self.lanes.len() - 1, id, fence, request, now, out) {
            Some(started) => Adopted::Started(Box::new(started)),
            None => Adopted::Over,
        }
    }

    /// Ends the hold of `user` without a release: its token is to be replaced by a ticket (rule 24). `None` when the hold was lost before.
    pub(crate) fn end_given(&mut self, user: User, env: &dyn Env, now: Moment) -> (Ended, Option<Release>) {
        let Some(lease) = self.lease_of(user.id) else { return (Ending::Lost(None).into(), None) };
        let release = Release { unused_fences: None, kept_until: None, ..lease.release(env) };
        let has_ended = lease.has_ended(now);
        // Rule L6: when the hold outlived its deadline, the whole lease ends.
        let hold = if has_ended { lease.ended_hold() } else { lease.hold.as_ref().map(ActiveHold::as_ended) };
        let _ = self.take_lease(&release.token, |_| true);
        if has_ended {
            return (Ended { ending: Ending::Lost(Some(release)), hold }, None);
        }
        self.note_release_begun(&release.token);
        (Ended { ending: Ending::Kept, hold }, Some(release))
    }
}
