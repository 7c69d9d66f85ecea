//! [`Hold`]: a lock in the hands of one task.

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use futures_util::future::{Either, ready};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::ending::{Ended, Ending};
use super::handle::HoldHandle;
use super::resolved_request::ResolvedRequest;
use super::slot::Slot;
use super::turn::Turn;
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::store::{Ask, Release, Released, Store};
use crate::timing::CLAIM;

/// A held lock. Dropping it hands the lock over to the next task here at once, or releases it for other processes in
/// the background.
#[derive(Debug)]
pub(crate) struct Hold {
    // The turn is dropped after `drop` has ended the hold.
    turn: Option<Turn>,
    handle: HoldHandle,
    /// The shutdown waits for the end of the body.
    _body: Option<TaskTrackerToken>,
}

impl Hold {
    /// Starts the hold on the slot's lease. `None` when the lease is gone, is not good enough (rule L1), or has no
    /// fencing token left.
    pub(super) fn start(turn: &Turn, request: &ResolvedRequest, now: Moment) -> Option<HoldHandle> {
        let mut state = turn.slot().locked();
        if !state.may_act(turn.id()) {
            return None;
        }
        if !state.lease.as_ref()?.is_good_for(request, now) {
            return None;
        }
        let fence = OnceLock::new();
        if request.fenced {
            // Rule L2: every hold has a fencing token of its own.
            let _ = fence.set(state.lease.as_mut()?.fences.take()?);
        }
        let token = state.start(turn.id(), request, now)?.token.clone();
        state.offers.take_up(turn.id());
        state.track(turn.slot());
        drop(state);
        Some(HoldHandle::new(turn, token, fence))
    }

    pub(super) fn new(turn: Turn, handle: HoldHandle, body: bool) -> Self {
        let body = body.then(|| turn.core().bodies().token());
        Self { turn: Some(turn), handle, _body: body }
    }

    pub(crate) fn handle(&self) -> &HoldHandle {
        &self.handle
    }

    /// Releases the lock. The future waits for the store's answer. It is done at once when the lease stays here.
    pub(crate) fn release(mut self) -> impl Future<Output = Result<(), LockError>> {
        let Some(turn) = self.turn.take() else { return Either::Left(ready(Ok(()))) };
        let now = Moment::now();
        let Ended { ending, entries, stale } = turn.slot().end(turn.id(), now);
        turn.core().schedule().cancel(entries);
        let (pending_release, turn) = match ending {
            Ending::Kept => {
                mutant!(ReleasePerHold => self.handle.release_again());
                return Either::Left(ready(Ok(())));
            }
            Ending::Lost => {
                let error = self.handle.lost_error(true);
                self.release_lost(stale);
                return Either::Left(ready(Err(error)));
            }
            Ending::Free(release) => (PendingRelease::new(&turn, release), None),
            Ending::Yield(mut release) => {
                let claim = release.claim.min(CLAIM);
                let takings = turn.slot().takings();
                release.again = Some((turn.note_yield(claim, now), claim));
                // The turn stays with this task until the store has answered: another task could only wait for the same
                // answer.
                (PendingRelease::new(&turn, release), Some((turn, takings)))
            }
        };
        // Boxed, like everything else that waits for the store.
        Either::Right(Box::pin(self.settle(pending_release, turn, now)))
    }

    /// Sends the release, and takes in the answer to the ask that goes along with it.
    async fn settle(
        self,
        mut pending_release: PendingRelease,
        turn: Option<(Turn, u32)>,
        now: Moment,
    ) -> Result<(), LockError> {
        let core = self.handle.core();
        let deadline = Deadline::new(now, core.settings().command_timeout);
        let Some(release) = pending_release.release.as_mut() else {
            return Ok(());
        };
        let again = release.again.as_ref().map(|(token, claim)| Ask::again(&release.key, token, *claim, deadline));
        let outcome = match (&turn, &again) {
            (Some((turn, takings)), Some(ask)) => {
                let answered = {
                    let command = pin!(core.store().release_one(release, deadline));
                    turn.slot().while_wanted(*takings, ask, command).await
                };
                if let Some(outcome) = answered {
                    outcome.inspect_err(|error| turn.slot().on_failed_ask(ask, error))
                } else {
                    // The ask that went along with the release was withdrawn meanwhile. The release is still to be
                    // done, without the ask.
                    release.again = None;
                    let released = core.store().release_one(release, deadline.counted_from(Moment::now())).await;
                    // The first command may have released the lease already.
                    released.map(|released| Released { owned: true, ..released })
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
        pending_release.on_answer();
        if was_lost(&released) {
            return Err(self.handle.lost_error(true));
        }
        if let (Some((turn, _)), Some(ask), Some(answer)) = (turn, again, released.again) {
            turn.on_answer(&ask, answer);
            core.schedule().watch_queue(turn.slot());
        }
        Ok(())
    }

    /// Releases what a lost hold may still have in the store. It happens only now, when the hold's user is gone.
    fn release_lost(&self, stale: Option<Release>) {
        if let Some(release) = stale {
            self.handle.core().release_later(release);
        } else {
            self.handle.release_after_loss();
        }
    }
}

/// Whether the lease was gone before its release.
fn was_lost(released: &Released) -> bool {
    mutant!(ForgivenLoss => return false);
    !released.owned
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let core = turn.core();
        let Ended { ending, entries, stale } = turn.slot().end_quietly(turn.id());
        core.schedule().cancel(entries);
        match ending {
            Ending::Kept => {}
            Ending::Lost => self.release_lost(stale),
            Ending::Free(release) | Ending::Yield(release) => core.release_later(release),
        }
        // Passes the turn on, with the lease if it was kept.
        drop(turn);
    }
}

/// A release that is not answered yet. Dropping it has the release repeated in the background until it is answered.
#[derive(Debug)]
struct PendingRelease {
    slot: Arc<Slot>,
    release: Option<Release>,
    /// The shutdown waits for the end of this release.
    _running: TaskTrackerToken,
}

impl PendingRelease {
    fn new(turn: &Turn, release: Release) -> Self {
        if release.queued {
            turn.slot().note_release_begun(&release.token);
        }
        let running = turn.core().releases().token();
        Self { slot: Arc::clone(turn.slot()), release: Some(release), _running: running }
    }

    fn on_answer(mut self) {
        if let Some(release) = self.release.take()
            && release.queued
        {
            if self.slot.note_release_done(&release.token) == Some(true) {
                self.slot.core.release_later(Release::withdrawal(&release.key, &release.token, release.claim));
            }
            self.slot.release_forced(&release.token);
        }
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        if let Some(mut release) = self.release.take() {
            if release.queued {
                self.slot.note_release_done(&release.token);
                self.slot.release_forced(&release.token);
            }
            // The slot repeats or withdraws the ask that went along.
            release.again = None;
            self.slot.core.release_later(release);
        }
    }
}
