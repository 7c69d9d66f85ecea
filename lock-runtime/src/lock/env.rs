//! What a lock asks of the world around it, and what it asks for.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use thin_vec::ThinVec;

use crate::clock::Moment;
use crate::protocol::{Connection, Release, StoreKind};
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
    /// How long an answer is on its way.
    fn distance(&self) -> Duration;
    /// That of the keeper to the lock's server. Tasks have one of their own.
    fn keepers_connection(&self) -> Connection;
    /// Whether one more lease may linger. A lease that lingered and `was_used` has shown that it is worth it.
    fn admits_lingering(&self, was_used: bool) -> bool;
    /// What the store can do.
    fn kind(&self) -> &'static StoreKind;
}

/// What is to be done after a step of a lock, without its mutex, beside what the step itself returns.
#[expect(clippy::struct_excessive_bools, reason = "each asks for something of its own")]
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Whoever watches a hold looks again.
    pub(crate) wakes: bool,
    /// A lease has begun to linger.
    pub(crate) lingers: bool,
    /// A task does not act any more whose command may still be sent.
    pub(crate) is_overtaken: bool,
    /// A lease lies free, and nobody waits for it here: the keeper releases it unless a task takes it first.
    pub(crate) leaves: bool,
    /// A permit was refused, to a task that waits or not: tasks of this process that want the lock in another mode hold it up.
    pub(crate) refused_permit: Option<bool>,
    /// Tasks to wake.
    pub(crate) woken: ThinVec<Waker>,
    /// Wakers to drop.
    pub(crate) dropped: ThinVec<Waker>,
    /// Leases to release.
    pub(crate) releases: ThinVec<Release>,
    /// Asks to withdraw.
    pub(crate) withdrawals: ThinVec<Release>,
}

impl Effects {
    /// Whether anything is left to do but to tell those who watch.
    pub(crate) fn has_more(&self) -> bool {
        self.lingers
            || self.leaves
            || self.refused_permit.is_some()
            || !self.woken.is_empty()
            || !self.dropped.is_empty()
            || !self.releases.is_empty()
            || !self.withdrawals.is_empty()
    }

    /// Drops a task's waker later.
    pub(super) fn drop_waker(&mut self, waker: Waker) {
        if !waker.will_wake(Waker::noop()) {
            self.dropped.push(waker);
        }
    }
}
