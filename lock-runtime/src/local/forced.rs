//! What a slot knows about a token whose lock was released by force.

use super::slot::{Slot, State};
use crate::store::Release;
use crate::timing::CLAIM;
use crate::token::Token;

/// What a token is used for in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForcedToken {
    /// It has the lease of the slot. Whether the message is true, the store knows.
    Leased,
    /// It has the lease of the slot, which lingers: nothing runs under it.
    Lingers,
    /// Its grant was not read yet, or what it is used for is about to end.
    Awaited,
}

impl Slot {
    /// Takes in a message that the lock of `token` was released by force. Returns what the token is used for, if anything.
    pub(super) fn on_forced(&self, token: &Token) -> Option<ForcedToken> {
        let mut state = self.state.lock();
        let State { lease, pending, ending, forced, .. } = &mut *state;
        let leased = lease.as_mut().filter(|lease| lease.token == *token);
        let is_leased = leased.is_some();
        if let Some(lease) = leased {
            if lease.lingers() {
                return Some(ForcedToken::Lingers);
            }
            // A renewal that is on its way may have been executed before the force.
            lease.upkeep.doubtful |= lease.upkeep.renewing;
        }
        // A refused renewal may have told of the loss before the message came. Or the task reads its grant after the message.
        let is_used = |token: &Token| {
            lease.as_ref().is_some_and(|lease| lease.token == *token)
                || ending.iter().any(|ending| ending.token == *token)
                || pending.as_ref().is_some_and(|pending| pending.token == *token)
        };
        if !is_used(token) {
            return None;
        }
        mutant!(ForcedAfterLoss => if !is_leased { return Some(ForcedToken::Awaited) });
        forced.retain(|earlier| earlier != token && is_used(earlier));
        forced.push(token.clone());
        Some(if is_leased { ForcedToken::Leased } else { ForcedToken::Awaited })
    }

    /// Whether the lock of `token` was released by force.
    pub(super) fn was_forced(&self, token: &Token) -> bool {
        self.state.lock().forced.contains(token)
    }

    /// Nothing uses `token` any more: what stands at the lock since the force is released.
    pub(super) fn release_forced(&self, token: &Token) {
        mutant!(ForcedMarkLeft => return);
        if self.forget_forced(token) {
            let release = Release::withdrawal(&self.key, token, CLAIM);
            self.core.release_later(release.of_forced());
        }
    }

    /// The user of the token's hold is gone. Returns whether the lock was released by force.
    pub(super) fn forget_forced(&self, token: &Token) -> bool {
        let mut state = self.state.lock();
        let place = state.forced.iter().position(|forced| forced == token);
        place.map(|place| state.forced.swap_remove(place)).is_some()
    }
}
