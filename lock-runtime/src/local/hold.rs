//! [`Hold`], what a task has; [`HoldView`], what looks at it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::acquire::one;
use super::lease::Fences;
use super::slot::{Ended, Ending, Slot};
use super::terms::{Terms, check_lease};
use super::turn::Turn;
use crate::clock::{Deadline, Moment};
use crate::engine::Engine;
use crate::store::{CLAIM, Release, Renewal, Renewed};
use crate::token::Token;
use crate::{FencingToken, LockError};

/// A held lock. Dropping it gives the lock back: to the next task here at once, to others in the background.
#[derive(Debug)]
pub(crate) struct Hold {
    // Dropped after `drop` has ended the hold.
    turn: Option<Turn>,
    view: HoldView,
    body: Option<BodyCount>,
}

/// A look at a hold, which may have ended.
#[derive(Clone, Debug)]
pub(crate) struct HoldView(Arc<Looked>);

#[derive(Debug)]
struct Looked {
    engine: Arc<Engine>,
    slot: Arc<Slot>,
    id: u64,
    token: Token,
    fence: OnceLock<u64>,
}

/// Counts the bodies that run, for the shutdown to wait for their end.
#[derive(Debug)]
struct BodyCount(Arc<Engine>);

impl BodyCount {
    fn new(engine: &Arc<Engine>) -> Self {
        engine.bodies().enter();
        Self(Arc::clone(engine))
    }
}

impl Drop for BodyCount {
    fn drop(&mut self) {
        self.0.bodies().leave();
    }
}

impl Hold {
    /// Starts the hold on the slot's lease; `None` when the lease is gone, or has no fencing token left for it.
    pub(super) fn start(turn: &Turn, terms: &Terms) -> Option<HoldView> {
        let mut state = turn.slot().locked();
        if !state.has_turn(turn.id()) {
            return None;
        }
        let fence = OnceLock::new();
        if terms.fenced {
            // Rule L2.
            let _ = fence.set(state.lease.as_mut()?.fences.take()?);
        }
        let lease = state.start(turn.id(), terms.expire, terms.renew, terms.body)?;
        let token = lease.token.clone();
        let enlist = !std::mem::replace(&mut lease.care.listed, true);
        drop(state);
        if enlist {
            turn.engine().keeper().enlist(turn.slot());
        }
        let (engine, slot) = (Arc::clone(turn.engine()), Arc::clone(turn.slot()));
        Some(HoldView(Arc::new(Looked { engine, slot, id: turn.id(), token, fence })))
    }

    pub(super) fn new(turn: Turn, view: HoldView, body: bool) -> Self {
        let body = body.then(|| BodyCount::new(turn.engine()));
        Self { turn: Some(turn), view, body }
    }

    pub(crate) fn view(&self) -> &HoldView {
        &self.view
    }

    /// Gives the lock back and waits for the answer.
    pub(crate) async fn release(mut self) -> Result<(), LockError> {
        let Some(turn) = self.turn.take() else { return Ok(()) };
        let engine = Arc::clone(turn.engine());
        let Ended { ending, due, stale } = turn.slot().end(turn.id());
        engine.keeper().unschedule(due);
        match ending {
            Ending::Kept => Ok(()),
            Ending::Lost => {
                self.give_back_lost(stale);
                Err(self.view.lost_error(true))
            }
            Ending::Free(release) => {
                let unreleased = Unreleased::new(&engine, release);
                drop(turn);
                self.settle(unreleased).await.map(|_| ())
            }
            Ending::Yield(mut release) => {
                let claim = release.claim.min(CLAIM);
                let token = turn.yielded(claim);
                release.again = Some((token, claim));
                let unreleased = Unreleased::new(&engine, release);
                // The turn stays here until the store has answered: the tasks that wait would only have to wait there.
                if let Some((ask, answer)) = self.settle(unreleased).await? {
                    turn.slot().answered(&ask, answer);
                    engine.keeper().watch_queue(turn.slot());
                }
                Ok(())
            }
        }
    }

    async fn settle(
        &self,
        mut unreleased: Unreleased,
    ) -> Result<Option<(crate::store::Ask, crate::store::Answer)>, LockError> {
        let engine = Arc::clone(&self.view.0.engine);
        let by = Deadline::after(engine.settings().command_timeout);
        let Some(release) = unreleased.release.as_ref() else {
            return Ok(None);
        };
        let released = match one(engine.store().release(std::slice::from_ref(release), by).await) {
            Ok(released) => released,
            // Dropping `unreleased` has it repeated in the background.
            Err(error) => {
                return Err(LockError::Backend { key: self.view.key().to_owned(), problem: error.problem });
            }
        };
        let again = release.again.clone();
        let key = Arc::clone(&release.key);
        unreleased.release = None;
        if !released.owned {
            return Err(self.view.lost_error(true));
        }
        let asked = again.zip(released.again).map(|((token, claim), answer)| {
            (crate::store::Ask { key, token, claim, wait: true, fences: 0, give_up: by }, answer)
        });
        Ok(asked)
    }

    /// A hold that was lost gives back what may still stand in the store, and only now: its body is gone.
    fn give_back_lost(&self, stale: Option<Release>) {
        let looked = &self.view.0;
        if let Some(release) = stale {
            looked.engine.release_later(release);
        } else if self.body.is_some() {
            looked.engine.release_later(Release::withdrawal(&looked.slot.key, &looked.token, CLAIM));
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let engine = Arc::clone(turn.engine());
        let Ended { ending, due, stale } = turn.slot().end_quietly(turn.id());
        engine.keeper().unschedule(due);
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
pub(crate) struct Unreleased {
    engine: Arc<Engine>,
    release: Option<Release>,
}

impl Unreleased {
    fn new(engine: &Arc<Engine>, release: Release) -> Self {
        Self { engine: Arc::clone(engine), release: Some(release) }
    }
}

impl Drop for Unreleased {
    fn drop(&mut self) {
        if let Some(mut release) = self.release.take() {
            // The ask that went along is the slot's to repeat or to withdraw.
            release.again = None;
            self.engine.release_later(release);
        }
    }
}

impl HoldView {
    pub(crate) fn key(&self) -> &str {
        &self.0.slot.key
    }

    /// Whether it is a hold of `key` in `engine`.
    pub(crate) fn is_of(&self, engine: &Arc<Engine>, key: &str) -> bool {
        Arc::ptr_eq(&self.0.engine, engine) && *self.0.slot.key == *key
    }

    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.0.fence.get().copied().map(FencingToken::new)
    }

    pub(crate) fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    pub(crate) fn remaining(&self) -> Duration {
        let now = Moment::now();
        let state = self.0.slot.locked();
        let Some(lease) = state.lease.as_ref() else {
            return Duration::ZERO;
        };
        if lease.tenure.as_ref().is_none_or(|tenure| tenure.id != self.0.id) {
            return Duration::ZERO;
        }
        lease.ends(now).map_or(Duration::ZERO, |ends| ends.remaining_at(now))
    }

    /// Resolves when the hold is lost. It reads the clock each time it is polled; the keeper wakes it at the deadline.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + Send {
        let looked = Arc::clone(&self.0);
        let view = self.clone();
        async move {
            let mut changed = std::pin::pin!(looked.slot.changed.notified());
            std::future::poll_fn(|context| {
                loop {
                    if !view.is_valid() {
                        return std::task::Poll::Ready(());
                    }
                    if changed.as_mut().poll(context).is_pending() {
                        return std::task::Poll::Pending;
                    }
                    changed.set(looked.slot.changed.notified());
                }
            })
            .await;
        }
    }

    pub(crate) fn lost_error(&self, completed: bool) -> LockError {
        LockError::Lost { key: self.key().to_owned(), completed }
    }

    /// See [`LockGuard::extend`](crate::LockGuard::extend).
    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), LockError> {
        check_lease("lease to extend to", lease)?;
        if !self.is_valid() {
            return Err(self.lost_error(false));
        }
        let looked = &*self.0;
        let renewal = Renewal {
            key: Arc::clone(&looked.slot.key),
            token: looked.token.clone(),
            lease,
            grace: looked.engine.settings().grace,
        };
        let sent = Moment::now();
        let by = Deadline::new(sent, looked.engine.settings().command_timeout);
        match one(looked.engine.store().renew(std::slice::from_ref(&renewal), by).await) {
            Ok(Renewed::Until(until)) => {
                let mut state = looked.slot.locked();
                let now = Moment::now();
                let lease_of_hold = state.lease.as_mut().filter(|held| held.token == looked.token);
                let Some(held) = lease_of_hold else {
                    return Err(self.lost_error(false));
                };
                held.confirm(until);
                let Some(tenure) = held.tenure.as_mut().filter(|tenure| tenure.id == looked.id) else {
                    return Err(self.lost_error(false));
                };
                tenure.own = tenure.own.max_at(Deadline::new(sent, lease), now);
                Ok(())
            }
            Ok(Renewed::NotOwned) => {
                looked.engine.revoke(&looked.slot, Some(&looked.token));
                Err(self.lost_error(false))
            }
            Err(error) => Err(LockError::Backend { key: self.key().to_owned(), problem: error.problem }),
        }
    }

    /// The hold for a nested body: the same, with a fencing token if it wants one.
    pub(crate) async fn borrowed(&self, fenced: bool) -> Result<Self, LockError> {
        if !self.is_valid() {
            return Err(self.lost_error(false));
        }
        if !fenced || self.0.fence.get().is_some() {
            return Ok(self.clone());
        }
        let looked = &*self.0;
        let by = Deadline::after(looked.engine.settings().command_timeout);
        match looked.engine.store().draw(&looked.slot.key, &looked.token, 1, by).await {
            Ok(Some(first)) => {
                // Joined calls may both have drawn: the first to get here stays.
                let fence = Fences::new(first, 1).take().unwrap_or(first);
                let _ = looked.fence.set(fence);
                Ok(self.clone())
            }
            Ok(None) => {
                looked.engine.revoke(&looked.slot, Some(&looked.token));
                Err(self.lost_error(false))
            }
            Err(error) => Err(LockError::Backend { key: self.key().to_owned(), problem: error.problem }),
        }
    }
}
