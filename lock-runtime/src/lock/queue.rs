//! Who is next: the tasks that wait, and how the turn passes from one to another.

use std::task::Waker;

use super::readers::Joined;
use super::request::ResolvedRequest;
use super::wait_queue::Waiter;
use super::{Env, Lock};
use crate::clock::Moment;
use crate::protocol::Release;

/// The id of the first task, less one.
pub(super) const FIRST: u64 = 1 << 62;

/// How a task finds the lock.
#[derive(Debug)]
pub(crate) enum Entered {
    /// The task has the turn at once, under this id, and perhaps a lease that lingered.
    Turn { id: u64, has_lease: bool },
    /// The task has the hold of other readers together with them.
    Joined(Joined),
    /// A task here holds the lock or asks for it, and this task does not want to wait.
    Taken,
    /// Another task here has the turn, and this one replaces whoever has the lock.
    InTheWay,
}

/// Who passes a turn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedBy {
    /// The task that had the turn and is gone.
    Task,
    /// The keeper. The task keeps its place in the queue.
    Keeper,
}

/// The outcome of [`Lock::pass`].
#[derive(Debug)]
pub(crate) enum Passed {
    /// To the next waiter, who is to be called.
    To(Waker),
    /// Offered to a late task. Nobody calls it: it comes when it is polled.
    ToLate,
    /// The turn was taken away before, from a late task or from a hold.
    Revoked { was_late: bool },
    /// The task was called to a hold of readers, and was the last of them.
    LeftNobody,
    /// No task waits.
    Nobody {
        /// Boxed: most turns end without one.
        withdrawal: Option<Box<Release>>,
        lease_left: bool,
    },
}

impl Lock {
    /// A task comes. `None` when it has to wait.
    pub(crate) fn enter(&mut self, request: &ResolvedRequest, now: Moment) -> Option<Entered> {
        if request.joins_readers()
            && let Some(joined) = self.join(request, now)
        {
            return Some(Entered::Joined(joined));
        }
        // A turn that no task here has taken up goes to the first task that comes.
        if self.is_turn_free() {
            let id = self.renew_turn();
            if request.replaces() {
                self.newest = id;
            }
            return Some(Entered::Turn { id, has_lease: self.reuse_lingering() });
        }
        if request.replaces() {
            return Some(Entered::InTheWay);
        }
        request.is_try().then_some(Entered::Taken)
    }

    /// How many tasks wait, for one that comes to a turn that is taken. The task with the turn waits, too, unless it holds the lock.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len() + usize::from(!self.is_held())
    }

    /// Adds a task that waits. Returns its id.
    pub(crate) fn wait(&mut self, waiter: Waiter) -> u64 {
        let id = self.waiters.new_id();
        self.waiters.add(id, waiter);
        self.note_waiter_for_early();
        id
    }

    /// A task that waits is polled. Returns a waker to be dropped without a lock: as the error when the task was called.
    pub(crate) fn poll(&mut self, id: u64, waker: Waker) -> Result<Waker, Waker> {
        self.waiters.poll(id, waker)
    }

    /// A task does not wait any more. `None` when it was called.
    pub(crate) fn leave(&mut self, id: u64) -> Option<Waiter> {
        self.waiters.remove(id)
    }

    /// Passes the turn `id` to the next waiter. When there is none, it returns what is left to release.
    ///
    /// A turn that was taken away passes nothing on.
    pub(crate) fn pass(&mut self, id: u64, passed_by: PassedBy, env: &dyn Env) -> Passed {
        let was_late = passed_by == PassedBy::Task && self.offers.forget(id);
        if env.share().is_some() && self.forget_called(id) {
            return Passed::LeftNobody;
        }
        if self.turn != Some(id) {
            return Passed::Revoked { was_late };
        }
        if let Some(lease) = self.lease_mut() {
            lease.fresh = false;
        }
        if let Some((next, waiter)) = self.waiters.pop() {
            self.turn = Some(next);
            self.offers.make_to_next(waiter.patience);
            self.track();
            return Passed::To(waiter.waker);
        }
        if self.offer_to_late(env) {
            return Passed::ToLate;
        }
        self.turn = None;
        self.offers.reset();
        self.is_tracked = false;
        let mut may_stand = false;
        let pending = self.standing.take_pending_if(|pending| {
            may_stand = pending.may_stand();
            true
        });
        let withdrawal = pending.filter(|_| may_stand).map(|pending| Box::new(pending.withdrawal(env)));
        Passed::Nobody { withdrawal, lease_left: self.lease().is_some() }
    }

    /// Whether the end of the turn `id` calls the first who waits for any permit: nobody waits for this one alone. A permit that was
    /// lost is another task's by now: its end calls nobody.
    pub(crate) fn calls_for_any_permit(&self, id: u64, env: &dyn Env) -> bool {
        mutant!(LostPermitBinds => return self.waiters.is_empty());
        self.has_turn(id) && self.waiters.is_empty() && !self.lease().is_some_and(|lease| lease.keeps_out(env))
    }

    /// Whether the lease goes to the next task here: no other process is known to wait for it.
    pub(crate) fn hands_lease_over(&self) -> bool {
        self.lease().is_some_and(|lease| !lease.has_contention())
    }

    /// Gives the turn a new id, whoever had it. Who has the old id passes nothing on any more.
    pub(crate) fn renew_turn(&mut self) -> u64 {
        let id = self.waiters.new_id();
        self.give_turn(id);
        id
    }

    /// Gives the turn to the task `id`, whoever had it.
    pub(crate) fn give_turn(&mut self, id: u64) {
        self.turn = Some(id);
        self.offers.reset();
    }

    /// Fails all waiters that are refused.
    pub(crate) fn close(&mut self, is_refused: impl Fn(&Waiter) -> bool) -> Vec<Waker> {
        self.offers.forget_all();
        self.waiters.take_if(is_refused)
    }

    /// An id for a task that comes in front of all others: the others leave the turn to it.
    pub(super) fn id_in_front(&mut self) -> u64 {
        mutant!(SeizedTurnIsTakenBack => return self.waiters.new_id());
        self.waiters.id_in_front()
    }

    /// A task waits at a place that it had, or that it had in another queue.
    pub(crate) fn add_waiter(&mut self, id: u64, waiter: Waiter) {
        self.waiters.add(id, waiter);
    }
}
