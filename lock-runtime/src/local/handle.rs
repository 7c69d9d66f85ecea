//! [`HoldHandle`]: a reference to a hold that may outlive the hold.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::core::Core;
use super::lease::{Fences, Lease};
use super::slot::{Loss, Slot};
use super::turn::Turn;
use super::watch::Lost;
use crate::clock::{Deadline, Moment};
use crate::store::{Release, Renewal, Renewed, Store, exactly_one};
use crate::timing::CLAIM;
use crate::token::Token;
use crate::{FencingToken, LockError};

/// A reference to a hold, which may have ended.
#[derive(Clone, Debug)]
pub(crate) struct HoldHandle(Arc<HoldInner>);

/// The outcome of an extension that the store has confirmed.
enum Extended {
    Yes,
    /// The hold's deadline had passed before (rule 13: the hold does not come back).
    TooLate,
    /// The hold had ended before.
    Ended,
}

#[derive(Debug)]
struct HoldInner {
    slot: Arc<Slot>,
    id: u64,
    token: Token,
    fence: OnceLock<u64>,
}

impl HoldHandle {
    pub(super) fn new(turn: &Turn, token: Token, fence: OnceLock<u64>) -> Self {
        Self(Arc::new(HoldInner { slot: Arc::clone(turn.slot()), id: turn.id(), token, fence }))
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.0.slot.core
    }

    pub(super) fn release_again(&self) {
        let HoldInner { slot, token, .. } = &*self.0;
        slot.core.release_later(Release::withdrawal(&slot.key, token, CLAIM));
    }

    /// Releases the lease of a hold that was lost (rule 14: once the body is dropped). The slot has forgotten the
    /// lease, but the store may still have it.
    pub(super) fn release_after_loss(&self) {
        let HoldInner { slot, token, .. } = &*self.0;
        // It makes no difference whether the store granted the lease again: this release is for that grant, too.
        if slot.note_release_done(token).is_some() {
            slot.release_forced(token);
            self.release_again();
        } else {
            // The hold of a plain guard was released when it was lost.
            slot.forget_forced(token);
        }
    }

    pub(crate) fn key(&self) -> &str {
        &self.0.slot.key
    }

    /// Whether this is a hold of `key` in `core`.
    pub(crate) fn is_of(&self, core: &Arc<Core>, key: &str) -> bool {
        Arc::ptr_eq(&self.0.slot.core, core) && *self.0.slot.key == *key
    }

    /// The key of the hold, when it is a hold in `core`.
    pub(crate) fn key_in(&self, core: &Arc<Core>) -> Option<Arc<str>> {
        Arc::ptr_eq(&self.0.slot.core, core).then(|| Arc::clone(&self.0.slot.key))
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
        if lease.hold.as_ref().is_none_or(|hold| hold.id != self.0.id) {
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
        LockError::Lost { key: self.key().to_owned(), completed, forced: self.0.slot.was_forced(&self.0.token) }
    }

    /// See [`LockGuard::extend`](crate::LockGuard::extend).
    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), LockError> {
        self.core().settings().check_lease("lease to extend to", lease)?;
        if !self.is_valid() {
            return Err(self.lost_error(false));
        }
        let inner = &*self.0;
        let renewal = Renewal {
            key: Arc::clone(&inner.slot.key),
            token: inner.token.clone(),
            lease,
            grace: inner.slot.core.settings().grace,
        };
        let sent = Moment::now();
        if let Some(lease) = inner.slot.locked().lease.as_mut().filter(|lease| lease.token == inner.token) {
            lease.note_renewal_sent(&renewal, sent);
        }
        let deadline = Deadline::new(sent, inner.slot.core.settings().command_timeout);
        match exactly_one(inner.slot.core.store().renew(std::slice::from_ref(&renewal), deadline).await) {
            Ok(renewed) => self.on_renewed(renewed, Deadline::new(sent, lease)),
            Err(error) => Err(error.of_lock(self.key())),
        }
    }

    /// Takes in the store's answer to an extension, which moves the hold's own end to `own`.
    pub(super) fn on_renewed(&self, renewed: Renewed, own: Deadline) -> Result<(), LockError> {
        match renewed {
            Renewed::Until(until) => match self.lengthen(until, own) {
                Extended::Yes => Ok(()),
                Extended::TooLate => Err(self.revoke(Loss::Whole)),
                // The store keeps the lease, but another hold has it now.
                Extended::Ended => Err(self.lost_error(false)),
            },
            Renewed::NotOwned => Err(self.revoke(Loss::Whole)),
            Renewed::Partial => Err(self.revoke(Loss::Partial)),
        }
    }

    /// Ends the lease for every hold that has it. Returns the error for the caller.
    fn revoke(&self, loss: Loss) -> LockError {
        let HoldInner { slot, token, .. } = &*self.0;
        slot.core.revoke(slot, Some(token), loss);
        self.lost_error(false)
    }

    /// Lengthens the hold if it still exists. The store has confirmed it until `until`, and its own end moves to `own`.
    fn lengthen(&self, until: Deadline, own: Deadline) -> Extended {
        let mut state = self.0.slot.locked();
        let now = Moment::now();
        let lease = state.lease.as_mut().filter(|lease| lease.token == self.0.token);
        let is_own = |lease: &Lease| lease.hold.as_ref().is_some_and(|hold| hold.id == self.0.id);
        let Some(lease) = lease.filter(|lease| is_own(lease)) else {
            // The hold ended while the store was asked. Its lease may have been handed over with the same token.
            return Extended::Ended;
        };
        if !lease.confirm(until) {
            return Extended::TooLate;
        }
        if let Some(hold) = &mut lease.hold {
            hold.own = hold.own.max_at(own, now);
        }
        Extended::Yes
    }

    /// The hold for a nested body: the same hold, with a fencing token if the body wants a token.
    pub(crate) async fn borrow(&self, fenced: bool, deadline: Deadline) -> Result<Self, LockError> {
        if !self.is_valid() {
            return Err(self.lost_error(false));
        }
        if !fenced || self.0.fence.get().is_some() {
            return Ok(self.clone());
        }
        let inner = &*self.0;
        match inner.slot.core.store().draw(&inner.slot.key, &inner.token, 1, deadline).await {
            Ok(Some(first)) => {
                // Rule 20: the reserved fencing tokens are forgotten, because they are smaller than the token just
                // drawn.
                if let Some(lease) = inner.slot.locked().lease.as_mut().filter(|lease| lease.token == inner.token) {
                    lease.fences = Fences::default();
                }
                // Two joined calls may both have drawn a token. The first token that arrives here stays.
                let _ = inner.fence.set(first);
                Ok(self.clone())
            }
            Ok(None) => {
                inner.slot.core.revoke(&inner.slot, Some(&inner.token), Loss::Whole);
                Err(self.lost_error(false))
            }
            Err(error) => Err(error.of_lock(self.key())),
        }
    }
}
