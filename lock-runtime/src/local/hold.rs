//! [`Hold`]: a lock that one task holds.

use std::sync::Arc;

use futures_util::future::{BoxFuture, Either, Ready, ready};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::handle::HoldHandle;
use super::pending_release::PendingRelease;
use super::slot::ScheduleKeys;
use super::slot::Slot;
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::lock::{EndedHold, Ending, ResolvedRequest, Started, User};
use crate::observe;
use crate::protocol::{Ownership, Release};
use crate::store::Store;
use crate::token::Token;

/// The release of a hold: done, or in flight. The part that waits for the store is boxed, and so compiled here and not in each user's
/// crate.
pub(crate) type Releasing = Either<Ready<Result<(), LockError>>, BoxFuture<'static, Result<(), LockError>>>;

/// A held lock. Dropping it hands the lock over to the next task here at once, or releases it for other processes in the background.
#[derive(Debug)]
pub(crate) struct Hold {
    handle: HoldHandle,
    is_open: bool,
    /// Makes the shutdown wait for the end of the body.
    body: Option<TaskTrackerToken>,
}

impl Hold {
    pub(super) fn new(slot: &Arc<Slot>, started: Started, request: &ResolvedRequest) -> Self {
        if let Some(owner) = started.dead_owner.as_ref().filter(|owner| !slot.core.is_own_token(owner)) {
            observe::took_over(&request.key, owner.label().as_deref());
        }
        let handle = HoldHandle::new(slot, started, request);
        let body = request.body.then(|| handle.core().bodies().token());
        Self { handle, is_open: true, body }
    }

    /// Whether it has a body, and not only a guard.
    fn has_body(&self) -> bool {
        self.body.is_some()
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        self.handle.slot()
    }

    /// The user that ends the hold. `None` if it has ended already.
    pub(super) fn take_user(&mut self, waits: bool) -> Option<User> {
        let (id, member) = self.handle.ids();
        std::mem::take(&mut self.is_open).then(|| User { id, member, has_body: self.has_body(), waits })
    }

    pub(super) fn lacks_fence(&self, request: &ResolvedRequest) -> bool {
        request.fenced && self.handle.fencing_token().is_none()
    }

    pub(crate) fn handle(&self) -> &HoldHandle {
        &self.handle
    }

    /// Releases the lock. The future waits for the store's answer; it is ready at once if the lease stays here.
    pub(crate) fn release(self) -> Releasing {
        self.end(false, Moment::now())
    }

    /// Releases one of several locks of a guard, together with the others.
    pub(crate) fn release_beside_others(self, now: Moment) -> Releasing {
        self.end(true, now)
    }

    fn end(mut self, beside_others: bool, now: Moment) -> Releasing {
        let Some(user) = self.take_user(true) else { return Either::Left(ready(Ok(()))) };
        let slot = Arc::clone(self.slot());
        let mut ended_entries = ScheduleKeys::default();
        let (ending, hold) =
            slot.step_before_cancel(&mut ended_entries, |state, out| state.lock.end(user, slot.env(), now, out));
        self.handle.end_counting();
        let pending_release = match ending {
            Ending::Free(release) => {
                PendingRelease::begin(&slot, Release { beside_others, ..release }, ended_entries, now)
            }
            ending => {
                slot.core.schedule().cancel(ended_entries);
                return match ending {
                    Ending::Lost(left) => {
                        let lost = self.handle.lost_error(true);
                        self.release_lost(left, hold, false);
                        Either::Left(ready(Err(lost)))
                    }
                    Ending::Rests(release) => {
                        let token = release.token.clone();
                        slot.core.release_later(release);
                        if is_to_rest(&slot, &token) {
                            Either::Right(Box::pin(self.wait_until_it_rests(token, now)))
                        } else {
                            Either::Left(ready(Ok(())))
                        }
                    }
                    _ => {
                        mutant!(ReleasePerHold => self.handle.release_again(None, std::time::Duration::ZERO));
                        Either::Left(ready(Ok(())))
                    }
                };
            }
        };
        Either::Right(Box::pin(self.await_release(pending_release, now, hold)))
    }

    /// Waits until the store has confirmed that the lock of `token` rests (rule 23). The keeper sends and repeats the command.
    fn wait_until_it_rests(self, token: Token, now: Moment) -> impl Future<Output = Result<(), LockError>> {
        let deadline = Deadline::new(now, self.handle.core().settings().command_timeout);
        async move {
            let core = self.handle.core();
            let rests = core.schedule().wait_until_it_rests(&token);
            if tokio::time::timeout_at(deadline.on_timer(), rests).await.is_ok() {
                return Ok(());
            }
            Err(core.store().unanswered(self.handle.key(), deadline.span()).of_lock(self.handle.key()))
        }
    }

    /// Sends the release.
    ///
    /// A block and not an `async fn`, which would hold its arguments twice.
    fn await_release(
        self,
        pending_release: PendingRelease,
        now: Moment,
        hold: Option<EndedHold>,
    ) -> impl Future<Output = Result<(), LockError>> {
        let deadline = Deadline::new(now, self.handle.core().settings().command_timeout);
        async move {
            let ownership = match self.handle.core().store().release_one(pending_release.release(), deadline).await {
                Ok(ownership) => mutant!(ForgivenLoss => Ownership::Owned, else ownership),
                // Dropping `pending_release` repeats the release in the background.
                Err(error) => {
                    return Err(LockError::Backend { key: self.handle.key().to_owned(), problem: error.problem });
                }
            };
            let lost = (ownership != Ownership::Owned).then(|| self.handle.on_found_lost(ownership, true));
            let is_told = pending_release.on_answer();
            match lost {
                Some((lost, reason)) if is_told || ownership == Ownership::Forced => {
                    self.note_loss(hold.map(|hold| EndedHold { reason, ..hold }));
                    Err(lost)
                }
                _ => Ok(()),
            }
        }
    }

    /// Releases what a lost hold may still have in the store, now that the hold's user is gone.
    pub(super) fn release_lost(&self, left: Option<Release>, hold: Option<EndedHold>, is_dropped: bool) {
        self.note_loss(hold);
        if let Some(release) = left {
            self.handle.core().release_later(release);
        } else if self.handle.is_of_reader() && !self.has_body() {
            self.handle.forget_forced();
        } else {
            self.handle.release_after_loss(is_dropped);
        }
    }
}

/// Whether the lock of `token` is to rest, and the store has not confirmed it yet. An immediate store has.
fn is_to_rest(slot: &Slot, token: &Token) -> bool {
    mutant!(RestNotAwaited => return false);
    slot.core.schedule().is_to_rest(token)
}

impl Hold {
    /// Reports that the hold was lost. If it was reported earlier, there is no `hold`.
    fn note_loss(&self, hold: Option<EndedHold>) {
        if let Some(hold) = hold {
            self.handle.core().note_loss(self.handle.key(), hold);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(user) = self.take_user(false) else { return };
        let (slot, now) = (self.slot(), Moment::now());
        let (ending, hold) = slot.step(|lock, out| lock.end(user, slot.env(), now, out));
        self.handle.end_counting();
        match ending {
            Ending::Kept => {}
            Ending::Lost(left) => self.release_lost(left, hold, true),
            Ending::Rests(release) | Ending::Free(release) => slot.core.release_later(release),
        }
    }
}
