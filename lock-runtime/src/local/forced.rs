//! What a slot knows about a token whose lock was released by force, and about the holds that ended for that reason.

use super::slot::{Slot, State};
use crate::token::Token;

/// What a token is used for here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForcedToken {
    /// It has the lease of the slot.
    Leased,
    /// Its grant is still to come, or its body is still to be dropped.
    Awaited,
    Unused,
}

impl Slot {
    pub(super) fn find_forced(&self, token: &Token) -> ForcedToken {
        let state = self.locked();
        let State { lease, pending, ending, .. } = &*state;
        if lease.as_ref().is_some_and(|lease| lease.token == *token) {
            ForcedToken::Leased
        } else if pending.as_ref().is_some_and(|pending| pending.token == *token)
            || ending.iter().any(|(ending, _)| ending == token)
        {
            ForcedToken::Awaited
        } else {
            ForcedToken::Unused
        }
    }

    /// Whether the hold `id` ended because its lock was released by force.
    pub(super) fn has_forced(&self, id: u64) -> bool {
        self.locked().forced.contains(&id)
    }

    /// The user of the hold `id` is gone. Returns whether the lock of the hold was released by force.
    pub(super) fn forget_forced(&self, id: u64) -> bool {
        mutant!(ForcedMarkLeft => return false);
        let mut state = self.locked();
        let place = state.forced.iter().position(|forced| *forced == id);
        place.map(|place| state.forced.swap_remove(place)).is_some()
    }
}
