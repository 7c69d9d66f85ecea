//! A look of the keeper at a lock: [why it looks](Trigger), [what it knows](Round), and [what it has to do](Action).

use std::time::Duration;

use crate::clock::Deadline;
use crate::error::LossReason;
use crate::protocol::{Ask, Release, Renewal};
use crate::token::Token;

/// Why the keeper looks at a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Its hold began a moment ago.
    Tick,
    /// Its timer has ended.
    Timer,
    /// The store may have forgotten its lease.
    Verify,
}

/// What the keeper knows in one pass over all locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// When a command that is sent now must be answered.
    pub(crate) deadline: Deadline,
    /// How long an answer usually takes at most.
    pub(crate) usual_answer: Duration,
}

/// What a lease needs from the keeper.
#[derive(Debug)]
pub(crate) enum Action {
    /// Nothing any more.
    Done,
    /// Another look soon, because the hold is young.
    LookAgain,
    /// A renewal now.
    Renew(Renewal),
    /// A renewal of a lease whose task may be late, and another look soon.
    RenewUnused(Renewal),
    /// The hold has no user any more: none of the called readers came, or its task did not come while it was early.
    EndUnused,
    /// The hold on the lease of this token has ended.
    Lost(Token, LossReason),
    /// An ask to send now, and another look soon.
    Ask(Ask),
    /// A connection for the keeper, so that it can send an ask, and another look soon.
    Connect,
    /// The release of a lease that has lingered.
    ReleaseLingered(Release),
    /// The turn must be passed over, and another look is needed soon.
    PassOver,
}

impl Action {
    /// Whether the lock stays in the list of those to look at soon.
    pub(crate) fn is_soon(&self) -> bool {
        matches!(self, Self::LookAgain | Self::RenewUnused(_) | Self::Ask(_) | Self::Connect | Self::PassOver)
    }
}
