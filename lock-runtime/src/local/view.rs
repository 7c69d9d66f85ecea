//! [`HoldView`]: what looks at a hold, and outlives it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::lease::{Fences, Lease};
use super::slot::{Loss, Slot};
use super::turn::Turn;
use super::watch::Lost;
use crate::clock::{Deadline, Moment};
use crate::engine::Engine;
use crate::store::{CLAIM, Release, Renewal, Renewed, Store, one};
use crate::token::Token;
use crate::{FencingToken, LockError};

/// A look at a hold, which may have ended.
#[derive(Clone, Debug)]
pub(crate) struct HoldView(Arc<Looked>);

/// How an extension went that the store has confirmed.
enum Extended {
    Yes,
    /// The hold's deadline had passed before (rule 13: it does not come back).
    TooLate,
    /// The hold had ended before.
    Ended,
}

#[derive(Debug)]
struct Looked {
    slot: Arc<Slot>,
    id: u64,
    token: Token,
    fence: OnceLock<u64>,
}

impl HoldView {
    pub(super) fn new(turn: &Turn, token: Token, fence: OnceLock<u64>) -> Self {
        Self(Arc::new(Looked { slot: Arc::clone(turn.slot()), id: turn.id(), token, fence }))
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.0.slot.engine
    }

    pub(super) fn give_back(&self) {
        let Looked { slot, token, .. } = &*self.0;
        slot.engine.release_later(Release::withdrawal(&slot.key, token, CLAIM));
    }

    /// Gives back the lease of a hold that was lost (rule 14): the slot has forgotten it, the store may not have.
    pub(super) fn give_back_late(&self) {
        // Whether it was granted once more makes no difference: this release is for that grant, too.
        if self.0.slot.ended(&self.0.token).is_some() {
            self.give_back();
        }
    }

    pub(crate) fn key(&self) -> &str {
        &self.0.slot.key
    }

    /// Whether it is a hold of `key` in `engine`.
    pub(crate) fn is_of(&self, engine: &Arc<Engine>, key: &str) -> bool {
        Arc::ptr_eq(&self.0.slot.engine, engine) && *self.0.slot.key == *key
    }

    /// Its key, when it is a hold in `engine`.
    pub(crate) fn key_in(&self, engine: &Arc<Engine>) -> Option<Arc<str>> {
        Arc::ptr_eq(&self.0.slot.engine, engine).then(|| Arc::clone(&self.0.slot.key))
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

    /// Resolves when the hold is lost.
    pub(crate) fn lost(&self) -> Lost<'_> {
        Lost::new(self)
    }

    pub(super) fn changed(&self) -> &Notify {
        &self.0.slot.changed
    }

    pub(crate) fn lost_error(&self, completed: bool) -> LockError {
        LockError::Lost { key: self.key().to_owned(), completed }
    }

    /// See [`LockGuard::extend`](crate::LockGuard::extend).
    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), LockError> {
        self.engine().settings().check_lease("lease to extend to", lease)?;
        if !self.is_valid() {
            return Err(self.lost_error(false));
        }
        let looked = &*self.0;
        let renewal = Renewal {
            key: Arc::clone(&looked.slot.key),
            token: looked.token.clone(),
            lease,
            grace: looked.slot.engine.settings().grace,
        };
        let sent = Moment::now();
        if let Some(lease) = looked.slot.locked().lease.as_mut().filter(|lease| lease.token == looked.token) {
            lease.seek(&renewal, sent);
        }
        let by = Deadline::new(sent, looked.slot.engine.settings().command_timeout);
        match one(looked.slot.engine.store().renew(std::slice::from_ref(&renewal), by).await) {
            Ok(renewed) => self.on_renewed(renewed, Deadline::new(sent, lease)),
            Err(error) => Err(error.of_lock(self.key())),
        }
    }

    /// Takes in what the store says to an extension, not beyond `own`.
    pub(super) fn on_renewed(&self, renewed: Renewed, own: Deadline) -> Result<(), LockError> {
        match renewed {
            Renewed::Until(until) => match self.extended(until, own) {
                Extended::Yes => Ok(()),
                Extended::TooLate => Err(self.revoked(Loss::Whole)),
                // The store keeps the lease, which is another hold's now.
                Extended::Ended => Err(self.lost_error(false)),
            },
            Renewed::NotOwned => Err(self.revoked(Loss::Whole)),
            Renewed::Partial => Err(self.revoked(Loss::Partial)),
        }
    }

    /// Ends the lease, which is the same for every hold that had it; returns what the caller is told.
    fn revoked(&self, loss: Loss) -> LockError {
        let Looked { slot, token, .. } = &*self.0;
        slot.engine.revoke(slot, Some(token), loss);
        self.lost_error(false)
    }

    /// Lengthens the hold if it is still there: confirmed until `until`, and not beyond `own`.
    fn extended(&self, until: Deadline, own: Deadline) -> Extended {
        let mut state = self.0.slot.locked();
        let now = Moment::now();
        let lease = state.lease.as_mut().filter(|lease| lease.token == self.0.token);
        let is_own = |lease: &Lease| lease.tenure.as_ref().is_some_and(|tenure| tenure.id == self.0.id);
        let Some(lease) = lease.filter(|lease| is_own(lease)) else {
            // It ended while the store was asked, and may have been handed over under the same token.
            return Extended::Ended;
        };
        if !lease.confirm(until) {
            return Extended::TooLate;
        }
        if let Some(tenure) = &mut lease.tenure {
            tenure.own = tenure.own.max_at(own, now);
        }
        Extended::Yes
    }

    /// The hold for a nested body: the same, with a fencing token if it wants one.
    pub(crate) async fn borrowed(&self, fenced: bool, by: Deadline) -> Result<Self, LockError> {
        if !self.is_valid() {
            return Err(self.lost_error(false));
        }
        if !fenced || self.0.fence.get().is_some() {
            return Ok(self.clone());
        }
        let looked = &*self.0;
        match looked.slot.engine.store().draw(&looked.slot.key, &looked.token, 1, by).await {
            Ok(Some(first)) => {
                // Rule 20.
                if let Some(lease) = looked.slot.locked().lease.as_mut().filter(|lease| lease.token == looked.token) {
                    lease.fences = Fences::default();
                }
                // Joined calls may both have drawn: the first to get here stays.
                let _ = looked.fence.set(first);
                Ok(self.clone())
            }
            Ok(None) => {
                looked.slot.engine.revoke(&looked.slot, Some(&looked.token), Loss::Whole);
                Err(self.lost_error(false))
            }
            Err(error) => Err(error.of_lock(self.key())),
        }
    }
}
