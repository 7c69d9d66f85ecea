//! A turn passes on: the task that has it next is called, and what no task needs any more is released or withdrawn.

use std::sync::Arc;
use std::task::Waker;

use super::Slot;
use crate::lock::{Lock, Passed, PassedBy, Waiter};

impl Slot {
    /// The task `id` waits, and is polled: from now on `waker` calls it. Returns whether it was called.
    pub(in crate::local) fn poll_turn(&self, id: u64, waker: &Waker) -> bool {
        let waker = waker.clone();
        self.note(|lock| lock.poll(id, waker)).is_err()
    }

    /// The task `id` does not wait any more. Returns whether it was called.
    pub(in crate::local) fn leave(&self, id: u64) -> bool {
        self.note(|lock| lock.leave(id)).is_none()
    }

    /// Passes the turn `id` on, and releases or withdraws what no task needs any more.
    pub(in crate::local) fn pass_on(self: &Arc<Self>, id: u64) {
        let passed = self.step(|lock, _| self.pass(lock, id, PassedBy::Task));
        self.on_passed(passed);
    }

    fn pass(self: &Arc<Self>, lock: &mut Lock, id: u64, passed_by: PassedBy) -> Passed {
        self.take_from_permits(lock, id);
        lock.pass(id, passed_by, &**self)
    }

    fn on_passed(self: &Arc<Self>, passed: Passed) {
        let core = &self.core;
        match passed {
            Passed::To(waker) => waker.wake(),
            Passed::ToLate | Passed::Revoked { was_late: false } => {}
            Passed::Revoked { was_late: true } => core.table().forget_if_unused(self),
            Passed::LeftNobody => core.end_unused(self),
            Passed::Nobody { withdrawal, lease_left } => {
                if let Some(withdrawal) = withdrawal {
                    core.withdraw(*withdrawal);
                }
                if lease_left {
                    core.release_unless_taken_over(self);
                }
                core.table().forget_if_unused(self);
            }
        }
    }

    /// Rule L7: passes on a turn that its task did not take up in time.
    pub(crate) fn pass_over(self: &Arc<Self>) {
        let passed_over = self.step(|lock, out| {
            let (id, release) = lock.note_late_turn(self.env(), out)?;
            Some((self.pass(lock, id, PassedBy::Keeper), release))
        });
        if let Some((passed, release)) = passed_over {
            self.on_passed(passed);
            if let Some(release) = release {
                // A task may have read no answer because the server has not executed the command yet. So the withdrawal
                // goes behind that command, too.
                self.core.withdraw(release);
            }
        }
        self.core.table().forget_if_unused(self);
    }

    /// Fails all waiters that the manager refuses.
    pub(crate) fn close(&self) {
        let is_refused = |waiter: &Waiter| self.core.refuses(waiter.is_inside);
        self.note(|lock| lock.close(is_refused)).into_iter().for_each(Waker::wake);
        if let Some(permits) = &self.permits {
            permits.close(is_refused);
        }
        self.wake();
    }
}
