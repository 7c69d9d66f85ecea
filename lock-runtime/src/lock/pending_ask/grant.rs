//! What a process knows of the grant of its ask: by an answer, or by a push.

use std::time::Duration;

use super::PendingAsk;
use crate::clock::Deadline;
use crate::lock::Env;
use crate::protocol::{Grant, Pushed};

/// The part of a grant that is known.
#[derive(Debug)]
pub(super) enum Granted {
    No,
    /// A grant was pushed. An answered ask must date it, and that answer may be read only after the push.
    Pushed(Pushed),
    /// An answer granted the lock.
    Whole(Grant),
}

impl PendingAsk {
    /// Takes in a pushed grant. Rule 22: it is for no longer than was asked for, whatever it says.
    pub(crate) fn on_push(&mut self, pushed: &Pushed) {
        self.was_pushed = true;
        self.forget_denial();
        let claim = self.believable(pushed.claim);
        self.grant = match std::mem::replace(&mut self.grant, Granted::No) {
            whole @ Granted::Whole(_) => whole,
            _ => Granted::Pushed(Pushed { claim, ..pushed.clone() }),
        };
    }

    /// How much of the `claim` that a push names was asked for.
    fn believable(&self, claim: Duration) -> Duration {
        mutant!(PushedClaimBelieved => return claim);
        claim.min(self.claim)
    }

    pub(crate) fn is_granted(&self) -> bool {
        matches!(self.grant, Granted::Pushed(_) | Granted::Whole(_))
    }

    /// Whether a push tells of the grant, and no answer does.
    pub(crate) fn is_hinted(&self) -> bool {
        matches!(self.grant, Granted::Pushed(_))
    }

    /// The grant, if there is one. A pushed grant that no answered ask can date is not certain for any time. So it is
    /// confirmed before use (rule 16).
    pub(crate) fn take_grant(&mut self, env: &dyn Env) -> Option<Grant> {
        match std::mem::replace(&mut self.grant, Granted::No) {
            Granted::Whole(grant) => Some(grant),
            Granted::Pushed(pushed) => Some(Grant {
                until: match self.anchor {
                    Some(anchor) => pushed.until(anchor, env.now()),
                    None => Deadline::new(env.now(), Duration::ZERO),
                },
                contended: pushed.contended,
                fence: None,
            }),
            Granted::No => None,
        }
    }

    /// Whether another process is known to wait behind `grant`.
    pub(crate) fn is_contended_after(&self, grant: &Grant) -> bool {
        grant.contended || self.contended
    }

    /// Whether the lock is granted, and another process is known to wait behind.
    pub(crate) fn is_contended(&self) -> bool {
        match &self.grant {
            Granted::Whole(grant) => grant.contended || self.contended,
            Granted::Pushed(pushed) => pushed.contended || self.contended,
            Granted::No => false,
        }
    }
}
