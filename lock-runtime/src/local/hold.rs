//! [`Hold`]: a lock in the hands of one task.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{BoxFuture, Either, Ready, ready};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::handle::HoldHandle;
use super::slot::ScheduleKeys;
use super::slot::Slot;
use super::stand_in::StandIn;
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::lock::{Ended, EndedHold, Ending, Joined, ReleaseDone, ResolvedRequest, Started, User};
use crate::observe;
use crate::protocol::{Ask, Ownership, Release, Released};
use crate::store::Store;
use crate::token::Token;

/// The release of a hold: done, or on its way. What waits for the store is boxed, and so compiled here and not in each
/// user's crate.
pub(crate) type Releasing = Either<Ready<Result<(), LockError>>, BoxFuture<'static, Result<(), LockError>>>;

/// A held lock. Dropping it hands the lock over to the next task here at once, or releases it for other processes in
/// the background.
#[derive(Debug)]
pub(crate) struct Hold {
    handle: HoldHandle,
    /// Whether the hold is still to be ended.
    is_open: bool,
    /// The shutdown waits for the end of the body.
    body: Option<TaskTrackerToken>,
}

impl Hold {
    /// The hold that has started.
    pub(super) fn new(slot: &Arc<Slot>, started: Started, request: &ResolvedRequest) -> Self {
        if let Some(owner) = started.dead_owner.as_ref().filter(|owner| !slot.core.is_own_token(owner)) {
            observe::took_over(&request.key, owner.label().as_deref());
        }
        Self::with(HoldHandle::new(slot, started, request), request.body)
    }

    /// The part of a reader that has joined the hold of others.
    pub(super) fn joined(slot: &Arc<Slot>, joined: Joined, request: &ResolvedRequest) -> Self {
        Self::with(HoldHandle::of_reader(slot, joined, request), request.body)
    }

    fn with(handle: HoldHandle, body: bool) -> Self {
        let body = body.then(|| handle.core().bodies().token());
        Self { handle, is_open: true, body }
    }

    /// Whether a body runs under it, and not only a guard.
    fn has_body(&self) -> bool {
        self.body.is_some()
    }

    pub(super) fn slot(&self) -> &Arc<Slot> {
        self.handle.slot()
    }

    /// Who ends the hold. `None` when that is done.
    pub(super) fn take_user(&mut self, waits: bool) -> Option<User> {
        let (id, member) = self.handle.ids();
        std::mem::take(&mut self.is_open).then(|| User { id, member, has_body: self.has_body(), waits })
    }

    /// Whether its fencing token is still to be drawn.
    pub(super) fn lacks_fence(&self, request: &ResolvedRequest) -> bool {
        request.fenced && self.handle.fencing_token().is_none()
    }

    pub(crate) fn handle(&self) -> &HoldHandle {
        &self.handle
    }

    /// Releases the lock. The future waits for the store's answer. It is done at once when the lease stays here.
    pub(crate) fn release(self) -> Releasing {
        self.end(false, Moment::now())
    }

    /// The same for one of several locks of a guard: the release goes together with theirs.
    pub(crate) fn release_beside_others(self, now: Moment) -> Releasing {
        self.end(true, now)
    }

    fn end(mut self, beside_others: bool, now: Moment) -> Releasing {
        let Some(user) = self.take_user(true) else { return Either::Left(ready(Ok(()))) };
        let slot = Arc::clone(self.slot());
        let mut ended_entries = ScheduleKeys::default();
        let Ended { ending, hold } =
            slot.step_before_cancel(&mut ended_entries, |state, out| state.lock.end(user, slot.env(), now, out));
        self.handle.end_counting();
        let (pending_release, again) = match ending {
            Ending::Free(release) => {
                let release = Release { beside_others, ..release };
                (PendingRelease::begin(&slot, release, user.id, ended_entries, now), None)
            }
            Ending::Yield(release) => {
                let overtakes = slot.overtakes();
                (PendingRelease::begin(&slot, release, user.id, ended_entries, now), Some(overtakes))
            }
            ending => {
                slot.core.schedule().cancel(ended_entries);
                return match ending {
                    Ending::Lost(left) => {
                        let lost = self.handle.lost_error(true);
                        self.release_lost(left, hold);
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
                        mutant!(ReleasePerHold => self.handle.release_again(None));
                        Either::Left(ready(Ok(())))
                    }
                };
            }
        };
        Either::Right(Box::pin(self.settle(pending_release, again, now, hold)))
    }

    /// Waits until the store has said that the lock of `token` rests (rule 23). The keeper sends that, and repeats it.
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

    /// Sends the release, and takes in the answer to the ask that goes along with it.
    ///
    /// A block and not an `async fn`, which would hold its arguments twice.
    fn settle(
        self,
        mut pending_release: PendingRelease,
        overtakes: Option<u32>,
        now: Moment,
        hold: Option<EndedHold>,
    ) -> impl Future<Output = Result<(), LockError>> {
        let deadline = Deadline::new(now, self.handle.core().settings().command_timeout);
        async move {
            let core = self.handle.core();
            let release = &mut pending_release.release;
            let again = Ask::along(release, deadline);
            let slot = self.slot();
            let outcome = match (overtakes, &again) {
                (Some(overtakes), Some(ask)) => {
                    let answered = {
                        let command = pin!(core.store().release_one(release, deadline));
                        slot.while_wanted(overtakes, ask, command).await
                    };
                    if let Some(outcome) = answered {
                        outcome.inspect_err(|error| slot.on_failed_ask(ask, error))
                    } else {
                        // The ask that went along with the release was withdrawn meanwhile. The release is still to be
                        // done, without the ask.
                        release.again = None;
                        let released = core.store().release_one(release, deadline.anew()).await;
                        // The first command may have released the lease already.
                        released.map(|released| Released { ownership: released.ownership.or_before(true), ..released })
                    }
                }
                _ => core.store().release_one(release, deadline).await,
            };
            let released = match outcome {
                Ok(released) => released,
                // Dropping `pending_release` has the release repeated in the background.
                Err(error) => {
                    return Err(LockError::Backend { key: self.handle.key().to_owned(), problem: error.problem });
                }
            };
            let lost = was_lost(&released).then(|| self.handle.on_found_lost(released.ownership, true));
            let is_told = pending_release.on_answer();
            if let Some((lost, reason)) = lost
                && (is_told || released.ownership == Ownership::Forced)
            {
                self.note_loss(hold.map(|hold| EndedHold { reason, ..hold }));
                return Err(lost);
            }
            if let (Some(ask), Some(answer)) = (again, released.again) {
                if !slot.on_answer(&ask, answer) {
                    core.withdraw(ask.withdrawal());
                }
                core.schedule().watch_queue(slot);
            }
            Ok(())
        }
    }

    /// Releases what a lost hold may still have in the store. It happens only now, when the hold's user is gone.
    pub(super) fn release_lost(&self, left: Option<Release>, hold: Option<EndedHold>) {
        self.note_loss(hold);
        if let Some(release) = left {
            self.handle.core().release_later(release);
        } else if self.handle.is_of_reader() && !self.has_body() {
            self.handle.forget_forced();
        } else {
            self.handle.release_after_loss();
        }
    }
}

/// Whether the lock of `token` is to rest, and the store has not said that it does. An immediate store has done so.
fn is_to_rest(slot: &Slot, token: &Token) -> bool {
    mutant!(RestNotAwaited => return false);
    slot.core.schedule().is_to_rest(token)
}

/// Whether the lease was gone before its release.
fn was_lost(released: &Released) -> bool {
    mutant!(ForgivenLoss => return false);
    released.ownership != Ownership::Owned
}

impl Hold {
    /// Tells that the hold was lost. A loss that was noticed before its end is told already: then there is no `hold`.
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
        let Ended { ending, hold } = slot.step(|lock, out| lock.end(user, slot.env(), now, out));
        self.handle.end_counting();
        match ending {
            Ending::Kept => {}
            Ending::Lost(left) => self.release_lost(left, hold),
            Ending::Rests(release) | Ending::Free(release) | Ending::Yield(release) => slot.core.release_later(release),
        }
    }
}

/// A release that a task waits for. Dropping it has the release repeated in the background until it is answered.
#[derive(Debug)]
struct PendingRelease {
    slot: Arc<Slot>,
    release: Release,
    /// The id of the hold that has ended.
    id: u64,
    stand_in: StandIn,
    is_answered: bool,
}

impl PendingRelease {
    fn begin(slot: &Arc<Slot>, release: Release, id: u64, entries: ScheduleKeys, now: Moment) -> Self {
        let stand_in = StandIn::begin(slot, &release, entries, now);
        Self { slot: Arc::clone(slot), release, id, stand_in, is_answered: false }
    }

    /// Returns whether the answer tells the outcome of the release. It does not when the keeper has released the lease
    /// meanwhile.
    fn on_answer(mut self) -> bool {
        self.is_answered = true;
        self.slot.on_release_ended(&self.release);
        self.stand_in.end()
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let Self { slot, release, id, .. } = self;
        if release.again.is_some() {
            slot.step(|lock, _| lock.end_release(*id));
        }
        if self.is_answered {
            return;
        }
        slot.on_release_ended(release);
        self.stand_in.release(release);
    }
}

impl Slot {
    /// Releases a lease for a task that does not read the answer to its release in time (rule L8).
    pub(crate) fn release_for_late_task(self: &Arc<Self>, release: Release) {
        mutant!(LateReleaseLeft => return);
        self.on_release_ended(&release);
        self.core.release_later(release);
    }

    /// No task waits for this release any more. What the store may have granted under its token meanwhile is withdrawn.
    fn on_release_ended(self: &Arc<Self>, release: &Release) {
        if !release.queued {
            return;
        }
        if matches!(self.note_release_done(&release.token), ReleaseDone::Done { may_be_granted_again: true, .. }) {
            self.core.withdraw(Release::withdrawal(&release.key, &release.token, release.claim));
        }
    }
}
