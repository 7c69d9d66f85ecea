//! [`Hold`]: what a task has.

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use futures_util::future::{Either, ready};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::slot::{Ended, Ending, Slot};
use super::terms::Terms;
use super::turn::Turn;
use super::view::HoldView;
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::store::{Ask, CLAIM, Release, Released, Store};

/// A held lock. Dropping it gives the lock back: to the next task here at once, to others in the background.
#[derive(Debug)]
pub(crate) struct Hold {
    // Dropped after `drop` has ended the hold.
    turn: Option<Turn>,
    view: HoldView,
    /// The shutdown waits for its end.
    _body: Option<TaskTrackerToken>,
}

impl Hold {
    /// Starts the hold on the slot's lease; `None` when the lease is gone, is not good for it, or has no
    /// fencing token left.
    pub(super) fn start(turn: &Turn, terms: &Terms, now: Moment) -> Option<HoldView> {
        let mut state = turn.slot().locked();
        if !state.has_turn(turn.id()) && !mutant!(StaleTurnActs) {
            return None;
        }
        if !state.lease.as_ref()?.is_good_for(terms, now) {
            return None;
        }
        let fence = OnceLock::new();
        if terms.fenced {
            // Rule L2.
            let _ = fence.set(state.lease.as_mut()?.fences.take()?);
        }
        let token = state.start(turn.id(), terms, now)?.token.clone();
        state.calls.answer(turn.id());
        state.enlist(turn.slot());
        drop(state);
        Some(HoldView::new(turn, token, fence))
    }

    pub(super) fn new(turn: Turn, view: HoldView, body: bool) -> Self {
        let body = body.then(|| turn.engine().bodies().token());
        Self { turn: Some(turn), view, _body: body }
    }

    pub(crate) fn view(&self) -> &HoldView {
        &self.view
    }

    /// Gives the lock back; the future, which waits for the store's answer, is done at once when the lease stays here.
    pub(crate) fn release(mut self) -> impl Future<Output = Result<(), LockError>> {
        let Some(turn) = self.turn.take() else { return Either::Left(ready(Ok(()))) };
        let now = Moment::now();
        let Ended { ending, entries, stale } = turn.slot().end(turn.id(), now);
        turn.engine().keeper().strike(entries);
        let (unreleased, turn) = match ending {
            Ending::Kept => {
                if mutant!(ReleasePerHold) {
                    self.view.give_back();
                }
                return Either::Left(ready(Ok(())));
            }
            Ending::Lost => {
                self.give_back_lost(stale);
                return Either::Left(ready(Err(self.view.lost_error(true))));
            }
            Ending::Free(release) => (Unreleased::new(&turn, release), None),
            Ending::Yield(mut release) => {
                let claim = release.claim.min(CLAIM);
                let takings = turn.slot().takings();
                release.again = Some((turn.yielded(claim, now), claim));
                // The turn stays here until the store has answered: the tasks that wait would only have to wait there.
                (Unreleased::new(&turn, release), Some((turn, takings)))
            }
        };
        // Boxed, as everything is that waits for the store.
        Either::Right(Box::pin(self.settle(unreleased, turn, now)))
    }

    /// Sends the release, and takes in how the ask fares that goes along with it.
    async fn settle(self, mut unreleased: Unreleased, turn: Option<(Turn, u32)>, now: Moment) -> Result<(), LockError> {
        let engine = self.view.engine();
        let by = Deadline::new(now, engine.settings().command_timeout);
        let Some(release) = unreleased.release.as_mut() else {
            return Ok(());
        };
        let again = release.again.as_ref().map(|(token, claim)| Ask::again(&release.key, token, *claim, by));
        let outcome = match (&turn, &again) {
            (Some((turn, takings)), Some(ask)) => {
                let answered = {
                    let command = pin!(engine.store().give_back(release, by));
                    turn.slot().while_wanted(*takings, ask, command).await
                };
                if let Some(outcome) = answered {
                    outcome.inspect_err(|error| turn.slot().on_failed_ask(ask, error))
                } else {
                    // The ask that went along was withdrawn meanwhile. The release is still to be done, without it.
                    release.again = None;
                    let released = engine.store().give_back(release, by.counted_from(Moment::now())).await;
                    // What was sent before may have been the release that took effect.
                    released.map(|released| Released { owned: true, ..released })
                }
            }
            _ => engine.store().give_back(release, by).await,
        };
        let released = match outcome {
            Ok(released) => released,
            // Dropping `unreleased` has it repeated in the background.
            Err(error) => {
                return Err(LockError::Backend { key: self.view.key().to_owned(), problem: error.problem });
            }
        };
        unreleased.answered();
        if !released.owned && !mutant!(ForgivenLoss) {
            return Err(self.view.lost_error(true));
        }
        if let (Some((turn, _)), Some(ask), Some(answer)) = (turn, again, released.again) {
            turn.answered(&ask, answer);
            engine.keeper().watch_queue(turn.slot());
        }
        Ok(())
    }

    /// A hold that was lost gives back what may still stand in the store, and only now: whoever had it is gone.
    fn give_back_lost(&self, stale: Option<Release>) {
        if let Some(release) = stale {
            self.view.engine().release_later(release);
        } else {
            self.view.give_back_late();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let engine = turn.engine();
        let Ended { ending, entries, stale } = turn.slot().end_quietly(turn.id());
        engine.keeper().strike(entries);
        match ending {
            Ending::Kept => {}
            Ending::Lost => self.give_back_lost(stale),
            Ending::Free(release) | Ending::Yield(release) => engine.release_later(release),
        }
        // Passes the turn on, with the lease if it was kept.
        drop(turn);
    }
}

/// A release that is not answered yet: dropping it has it repeated in the background until it is.
#[derive(Debug)]
struct Unreleased {
    slot: Arc<Slot>,
    release: Option<Release>,
    /// The shutdown waits for its end.
    _running: TaskTrackerToken,
}

impl Unreleased {
    fn new(turn: &Turn, release: Release) -> Self {
        if release.queued {
            turn.slot().ending(&release.token);
        }
        let running = turn.engine().releases().token();
        Self { slot: Arc::clone(turn.slot()), release: Some(release), _running: running }
    }

    fn answered(mut self) {
        if let Some(release) = self.release.take()
            && release.queued
            && self.slot.ended(&release.token) == Some(true)
        {
            self.slot.engine.release_later(Release::withdrawal(&release.key, &release.token, release.claim));
        }
    }
}

impl Drop for Unreleased {
    fn drop(&mut self) {
        if let Some(mut release) = self.release.take() {
            if release.queued {
                self.slot.ended(&release.token);
            }
            // The ask that went along is the slot's to repeat or to withdraw.
            release.again = None;
            self.slot.engine.release_later(release);
        }
    }
}
