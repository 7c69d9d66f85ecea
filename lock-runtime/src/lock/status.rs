//! What a task may say about the lock that it did not get.

use std::time::Duration;

use super::{Env, Lock};
use crate::BackendError;
use crate::clock::Moment;
use crate::protocol::StoreError;
use crate::token::Token;

/// What a task without the turn can say about the lock; see [`Lock::status`].
#[derive(Debug)]
pub(super) enum LockStatus {
    HeldHere,
    HeldElsewhere,
    /// The store could not be asked.
    Unreachable(StoreError),
    /// The store has not answered for this long, which is more than usual.
    Silent(Duration),
    /// The store has not answered yet.
    Unknown,
}

/// Why the last command to the store failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: StoreError,
    /// Whether the command had less time than a single try has, and that time ran out.
    pub(super) is_brief: bool,
}

impl Lock {
    /// What is known of the lock. A task whose time is up says so. An ask without an answer for less than `silence` means nothing: its
    /// answer is on the way.
    pub(super) fn status(&self, silence: Duration, env: &dyn Env) -> LockStatus {
        if self.is_held() {
            return LockStatus::HeldHere;
        }
        let is_busy = self.was_answered();
        match self.outage(silence, env) {
            Some(unreachable @ LockStatus::Unreachable(_)) => unreachable,
            _ if is_busy => LockStatus::HeldElsewhere,
            Some(silent) => silent,
            None => LockStatus::Unknown,
        }
    }

    /// Why the store can't be asked: it failed lately, or has not answered for longer than `silence`.
    fn outage(&self, silence: Duration, env: &dyn Env) -> Option<LockStatus> {
        mutant!(OutageIsBusy => return None);
        if let Some(failure) = &self.failure {
            return Some(LockStatus::Unreachable(failure.error.clone()));
        }
        let silent_for = env.now().since(self.pending()?.unanswered_since()?);
        (silent_for >= silence).then_some(LockStatus::Silent(silent_for))
    }

    /// Takes in that the store has answered since its last failure.
    pub(crate) fn forget_failure(&mut self) {
        self.failure = None;
    }

    /// Whether the store has answered the pending ask.
    pub(crate) fn was_answered(&self) -> bool {
        self.pending().is_some_and(|pending| pending.busy().is_some())
    }

    /// The holder that a task waited for until it gave up: the label of another process's manager.
    pub(crate) fn holder_elsewhere(&self) -> Option<String> {
        let busy = self.pending()?.busy()?;
        let label = busy.owner.label();
        if busy.endless && label.is_none() {
            return Some("another client, without an expiry".to_owned());
        }
        label
    }

    /// The owner that the store last named.
    pub(crate) fn owner_seen(&self) -> Option<&Token> {
        Some(&self.pending()?.busy()?.owner)
    }

    /// The rest of the lease that a task waited for, as the store last told it.
    pub(crate) fn frees_in(&self, now: Moment) -> Option<Duration> {
        self.pending()?.frees_in(now)
    }

    /// For how long the holder that a task waited for is known: by its hold here, or by the store's answers.
    pub(crate) fn holder_seen_for(&self, env: &dyn Env) -> Option<Duration> {
        let since = match self.hold() {
            Some(hold) => hold.since,
            None => self.pending()?.owner_seen_since()?,
        };
        Some(env.now().since(since))
    }

    /// The owner by whom the ask was refused, if this process made its token, and the lock is not granted meanwhile.
    pub(crate) fn own_owner(&self, env: &dyn Env) -> Option<Token> {
        let busy = self.pending().filter(|pending| !pending.is_granted())?.busy()?;
        Some(&busy.owner).filter(|owner| env.is_own_token(owner) && !owner.is_marked()).cloned()
    }

    /// Whether the process that has the lock may have no hold on it (rule L9): it yields when it hears that another one waits.
    pub(crate) fn may_be_yielded(&self, env: &dyn Env) -> bool {
        let is_idle = |owner: &Token| owner.may_linger() && !owner.is_marked() && !env.is_own_token(owner);
        self.owner_seen().is_some_and(is_idle)
    }

    /// How long the store took to grant the lease, when the lease was over before the grant came.
    pub(crate) fn outlived_lease(&self, now: Moment, env: &dyn Env) -> Option<Duration> {
        self.lease()?.outlived(now, env.settings().drift())
    }

    /// The error of a task whose lease was over before its grant came, after `took`. `None` when another process has the lock.
    pub(super) fn too_short(&self, expire: Duration, took: Option<Duration>, env: &dyn Env) -> Option<StoreError> {
        let is_behind_another = || self.owner_seen().is_some_and(|owner| !env.is_own_token(owner));
        let took = took.filter(|_| !is_behind_another())?;
        let text =
            format!("the lease of {expire:?} was over when its grant came, after {took:?}: ask for a longer one");
        Some(StoreError::later(BackendError::new(text)))
    }
}
