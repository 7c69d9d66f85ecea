//! What a lock asks of the world around it, and what it asks for.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use thin_vec::ThinVec;

use crate::clock::Moment;
use crate::protocol::{Connection, StoreKind};
use crate::settings::Settings;
use crate::share::{Share, SharedLeases};
use crate::token::Token;

/// The world around a lock: its name, the clock, the store as it is now. Nothing here waits, and nothing changes the lock.
pub(crate) trait Env {
    /// The time. Each call reads the clock.
    fn now(&self) -> Moment;
    fn settings(&self) -> &Settings;
    /// The full name of the lock.
    fn key(&self) -> &Arc<str>;
    /// `None` for the lock alone.
    fn share(&self) -> Option<Share>;
    /// Counts the leases of this process that share the lock. `None` for the lock alone.
    fn leases(&self) -> Option<&SharedLeases>;
    /// A token that was never used.
    fn next_token(&self, may_linger: bool) -> Token;
    /// Whether this process made the token.
    fn is_own_token(&self, token: &Token) -> bool;
    /// Whether the manager is shut down.
    fn is_closed(&self) -> bool;
    /// How long an answer is on its way.
    fn distance(&self) -> Duration;
    /// That of the keeper to the lock's server. Tasks have one of their own.
    fn keepers_connection(&self) -> Connection;
    /// Whether one more lease may linger. A lease that lingered and `was_used` has shown that it is worth it.
    fn admits_lingering(&self, was_used: bool) -> bool;
    /// Whether tasks wait for this permit, or another of the same name.
    fn has_waiters_for_any_permit(&self) -> bool;
    /// What the store can do.
    fn kind(&self) -> &'static StoreKind;
}

/// What is to be done after a step of a lock, beside what the step itself returns.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Whoever watches the lock looks again: bodies, the task with the turn.
    pub(crate) wakes: bool,
    /// The keeper looks at the lease after this time, in place of an earlier one. A lease that begins to linger keeps a look that comes
    /// before: that look sets the next one.
    pub(crate) look_in: Option<Duration>,
    /// The lease has begun to linger.
    pub(crate) lingers: bool,
    /// The turn was taken from its task.
    pub(crate) takes_turn: bool,
    /// A permit was refused, to a task that waits or not: the other queues of this process are told.
    pub(crate) refused_permit: Option<bool>,
    /// Tasks that are called: to the hold of readers, to take up the turn, or to show that they are polled.
    pub(crate) calls: ThinVec<Waker>,
}

impl Effects {
    /// Whether more is to be done, without the lock, than to wake.
    pub(crate) fn has_more(&self) -> bool {
        !self.calls.is_empty() || self.refused_permit.is_some() || self.lingers
    }
}
