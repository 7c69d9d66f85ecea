//! What a task may say about the lock that it did not get.

use std::time::Duration;

use super::{Env, Lock, PendingAsk};
use crate::clock::Moment;
use crate::protocol::Busy;
use crate::token::Token;

impl Lock {
    /// Whether the store has answered the pending ask.
    pub(crate) fn was_answered(&self) -> bool {
        self.pendings().any(|pending| pending.busy().is_some())
    }

    /// The holder that a task waited for until it gave up: the label of another process's manager.
    pub(crate) fn holder_elsewhere(&self) -> Option<String> {
        let busy = self.busy()?;
        let label = busy.owner.label();
        if busy.endless && label.is_none() {
            return Some("another client, without an expiry".to_owned());
        }
        label
    }

    /// The owner that the store last named.
    pub(crate) fn owner_seen(&self) -> Option<&Token> {
        Some(&self.busy()?.owner).filter(|owner| owner.is_known())
    }

    /// The rest of the lease that a task waited for, as the store last told it.
    pub(crate) fn frees_in(&self, now: Moment) -> Option<Duration> {
        self.pendings().find_map(|pending| pending.frees_in(now))
    }

    /// For how long the holder that a task waited for is known: by its hold here, or by the store's answers.
    pub(crate) fn holder_seen_for(&self, env: &dyn Env) -> Option<Duration> {
        let since = match self.holds().next() {
            Some(hold) => hold.since,
            None => self.pendings().find_map(PendingAsk::owner_seen_since)?,
        };
        Some(env.now().since(since))
    }

    /// The owner by whom the ask was refused, if this process made its token, and the lock is not granted meanwhile.
    pub(crate) fn own_owner(&self, env: &dyn Env) -> Option<Token> {
        let busy = self.pendings().filter(|pending| !pending.is_granted()).find_map(|pending| pending.busy())?;
        Some(&busy.owner).filter(|owner| env.is_own_token(owner) && !owner.is_marked()).cloned()
    }

    /// How long the store took to grant the lease for which the task `id` acts, when the lease was over before the grant came.
    pub(crate) fn outlived_lease(&self, id: u64, now: Moment, env: &dyn Env) -> Option<Duration> {
        let lane = self.lanes.iter().find(|lane| lane.is_acting(id))?;
        lane.lease()?.outlived(now, env.settings().drift())
    }

    fn busy(&self) -> Option<&Busy> {
        self.pendings().find_map(|pending| pending.busy())
    }
}
