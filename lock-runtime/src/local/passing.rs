//! A turn passes on: the task that has it next is called, and what no task needs any more is released or withdrawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::permits::PermitQueue;
use super::slot::{Call, Lock, Slot, Waiter};
use super::turn::Turn;
use crate::lock::{Passed, PassedBy};

impl Slot {
    pub(super) fn leave(&self, id: u64) {
        mutant!(DeadTurnNotPassed => return);
        if let Some(permits) = self.permits.as_ref().filter(|_| PermitQueue::has_made(id)) {
            permits.remove(id);
            return;
        }
        self.note(|lock| lock.leave(id));
    }

    /// Passes the turn `id` on, and releases or withdraws what no task needs any more.
    pub(super) fn pass_on(self: &Arc<Self>, id: u64) {
        let passed = self.step(|lock, _| self.pass(lock, id, PassedBy::Task));
        self.on_passed(passed, PassedBy::Task);
    }

    fn pass(&self, lock: &mut Lock, id: u64, passed_by: PassedBy) -> Passed<Call> {
        self.take_from_permits(lock, id);
        lock.pass(id, passed_by, self)
    }

    fn on_passed(self: &Arc<Self>, mut passed: Passed<Call>, passed_by: PassedBy) {
        let core = &self.core;
        while let Passed::To(next, call) = passed {
            let Err(unclaimed) = call.send(Turn::new(self, next)) else { return };
            // Rule L5: a waiter that is gone is skipped, so pass its turn on.
            unclaimed.defuse();
            mutant!(DeadTurnNotPassed => return);
            passed = self.step(|lock, _| self.pass(lock, next, passed_by));
        }
        match passed {
            Passed::To(..) | Passed::ToLate | Passed::Revoked { was_late: false } => {}
            Passed::Revoked { was_late: true } => core.table().forget_if_unused(self),
            Passed::LeftNobody => core.end_unused(self),
            Passed::Nobody { withdrawal, lease_left } => {
                if let Some(withdrawal) = withdrawal {
                    core.withdraw(withdrawal);
                }
                if lease_left {
                    core.release_unless_taken_over(self);
                }
                // Wakes single tries, which wait for the outcome of this turn.
                self.wake();
                core.table().forget_if_unused(self);
            }
        }
    }

    /// Rule L7: passes on a turn that its task did not take up in time.
    pub(crate) fn pass_over(self: &Arc<Self>) {
        let passed_over = self.step(|lock, out| {
            let (id, release) = lock.pass_over(self.env(), out)?;
            Some((self.pass(lock, id, PassedBy::Keeper), release))
        });
        if let Some((passed, release)) = passed_over {
            self.on_passed(passed, PassedBy::Keeper);
            if let Some(release) = release {
                // A task may have read no answer because the server has not executed the command yet. So the withdrawal
                // goes behind that command, too.
                self.core.withdraw(release);
            }
        }
        self.core.table().forget_if_unused(self);
    }

    /// Fails all waiters.
    pub(crate) fn close(&self) {
        let waiters: BTreeMap<u64, Waiter> = self.note(Lock::close);
        drop(waiters);
        if let Some(permits) = &self.permits {
            permits.close();
        }
        self.wake();
    }
}
