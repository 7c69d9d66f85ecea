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
    /// A renewal now.
    Renew(Renewal),
    /// The hold on the lease of this token has ended.
    Lost(Token, LossReason),
    /// An ask to send now.
    Ask(Ask),
    /// A connection for the keeper, so that it can send an ask.
    Connect,
    /// The release of a lease that has lingered.
    ReleaseLingered(Release),
}
