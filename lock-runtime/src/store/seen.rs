//! What a look at a lock shows, and what taking a lock by force did.

use std::time::Duration;

use crate::share::Share;
use crate::token::Token;

/// What stands in place of an owner's token while a lock is shared.
pub(crate) const SHARED: &str = "cache_lock|shared";

/// What a store knows about a lock that somebody has.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The mark [`SHARED`] when the lock is shared.
    pub(crate) owner: Token,
    /// The rest of the owner's lease; `None` when the lease has no end.
    pub(crate) frees_in: Option<Duration>,
    /// The leases that share the lock. None for a lock that one owner has alone.
    pub(crate) sharing: Vec<(Share, Token)>,
    /// The tokens that wait, first come first.
    pub(crate) waiting: Vec<Token>,
}

/// The outcome of taking a lock from its owner (rule 21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    /// Nobody had the lock.
    Free,
    /// The lock has left its owner already: a client of another kind, which can't be told.
    Gone,
    /// The owner was told to stop. The lock has this value until the owner has stopped, for one claim at most.
    Leaving(Token),
}
