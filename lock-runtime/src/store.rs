//! [`Store`]: where leases live, in the verbs of the protocol. Nothing above knows Redis; nothing below knows tasks.
//!
//! Every verb is idempotent for its token, and may be given up at any time: then whether it took effect is unknown,
//! and the token has to be released before it is forgotten.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::BackendError;
use crate::clock::{Deadline, Drift, Moment};
use crate::error::within;
use crate::timing::WITHDRAWAL_LIFETIME;
use crate::token::Token;

mod any;
mod error;
pub(crate) mod memory;
pub(crate) mod quorum;
pub(crate) mod redis;
pub(crate) mod server_age;
pub(crate) mod voter;

pub(crate) use any::AnyStore;
pub(crate) use error::{Reach, Retry, StoreError};

/// A verb's answers, one per item and in their order, or the failure of all.
pub(crate) type Answers<T> = Result<Vec<Result<T, StoreError>>, StoreError>;

/// The answer to a verb with one item.
pub(crate) fn exactly_one<T>(answers: Answers<T>) -> Result<T, StoreError> {
    answers?.pop().unwrap_or_else(|| Err(StoreError::no_answer()))
}

/// The verbs of a store.
///
/// Each ends `by` a deadline that counts from the instant before the call: leases are counted from there, too.
pub(crate) trait Store {
    /// Takes a free lock: the uncontended path, as cheap as the store can make it. Never queues.
    fn claim(&self, ask: &Ask, deadline: Deadline) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Asks for locks, and queues for those that are taken where [`Ask::wait`] says so.
    fn ask(&self, asks: &[Ask], deadline: Deadline) -> impl Future<Output = Answers<Answer>> + Send;

    /// Gives a lock back for a task that waits for the answer.
    fn release_one(
        &self,
        release: &Release,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Released, StoreError>> + Send;

    /// Gives locks back, or withdraws what was asked for.
    fn release(&self, releases: &[Release], deadline: Deadline) -> impl Future<Output = Answers<Released>> + Send;

    /// Withdraws on the same path as the ask it follows, without waiting for an answer. A courtesy that saves time:
    /// whoever calls it also has the release repeated until it is answered.
    fn withdraw_behind(&self, release: &Release);

    /// Lengthens leases that are still owned.
    fn renew(&self, renewals: &[Renewal], deadline: Deadline) -> impl Future<Output = Answers<Renewed>> + Send;

    /// Draws `count` fencing tokens in a row for an owned lock and returns the first; `None` when it is not owned.
    fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        count: u32,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;

    /// Finds out whether pushes can still arrive; a dead connection is replaced.
    fn heartbeat(&self, deadline: Deadline) -> impl Future<Output = ()> + Send;

    /// Makes connections that broke, before they are needed.
    fn connect_again(&self, _by: Deadline) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// How long the store takes to answer, as far as is known.
    fn round_trip(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether there is no connection: what is sent about `key` waits for one, or is not sent at all. A slot asks it under its
    /// lock, so it must not call back.
    fn is_cut_off(&self, _key: &str) -> bool {
        false
    }

    /// Why there was no answer for so long.
    fn unanswered(&self, since: Duration) -> StoreError {
        StoreError::later(BackendError::new(format!("no answer from the server {}", within(since))))
    }

    /// Resolves when no release is under way that goes on though its verb was answered.
    fn wait_for_releases(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// From now on pushes for tokens of `process`, and the news of a broken connection, go to `events`.
    fn attach(&self, process: &str, events: Weak<dyn Events>);

    /// Whether every verb completes at its first poll, on any thread.
    fn is_immediate(&self) -> bool;

    /// A number for the server that `key` lives on: what is sent to one server need not wait for another.
    fn server_of(&self, _key: &str) -> usize {
        0
    }

    /// Whether an ask can draw fencing tokens with its grant, which saves a round trip; else they are drawn afterwards.
    fn draws_with_grants(&self) -> bool;
}

/// What a store tells without being asked.
pub(crate) trait Events: Send + Sync {
    /// A lock passed on to a token of this process.
    fn on_grant(&self, key: &str, pushed: &Pushed);
    /// Another process waits for a lock of this one.
    fn on_contention(&self, key: &str);
    /// Pushes may have been missed, and leases lost, of all keys that it `affects`: ask again for what is waited for,
    /// verify what is held.
    fn on_interruption(&self, affects: &dyn Fn(&str) -> bool);
}

/// One request for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Arc<str>,
    pub(crate) token: Token,
    /// The first lease, short: see [`CLAIM`].
    pub(crate) claim: Duration,
    /// Whether to wait in the queue.
    pub(crate) wait: bool,
    /// How many fencing tokens to draw with the grant.
    pub(crate) fences: u32,
    /// When the asker gives up: a store must not act on an ask that reaches it later.
    pub(crate) give_up: Deadline,
    pub(crate) cause: Cause,
}

/// Why the store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A task wants the lock.
    Task,
    /// Part of it was pushed as granted: see [`Pushed::partial`].
    Push,
    /// Nothing was heard for a while.
    Silence,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Granted(Grant),
    Busy(Busy),
    /// The ask came after its asker's `give_up` by the store's clock, and did nothing.
    Late,
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// Until when the lease is certain.
    pub(crate) until: Deadline,
    /// Whether another process waits behind.
    pub(crate) contended: bool,
    /// The first of the fencing tokens drawn.
    pub(crate) fence: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Busy {
    pub(crate) owner: Token,
    /// What is left of the owner's lease; `None` when it has no end, or was not told.
    pub(crate) frees_in: Option<Duration>,
    /// Whether the lock has no end at all: another client set it without one.
    pub(crate) endless: bool,
    /// When this was true, for the deadline of a later push; `None` when the store did not tell its time.
    pub(crate) anchor: Option<Anchor>,
    /// The token has part of the lock, and somebody else the better claim to the rest: all of it is to be taken back.
    pub(crate) yields: bool,
}

/// An instant of the store's clock, and one of ours that was certainly not later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    pub(crate) sent: Moment,
    pub(crate) store_micros: u64,
    /// How the two clocks may run apart.
    pub(crate) drift: Drift,
}

/// A grant that a store pushed.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) token: Token,
    pub(crate) claim: Duration,
    pub(crate) store_micros: u64,
    pub(crate) contended: bool,
    /// It has to be confirmed before use, however it is dated.
    pub(crate) unconfirmed: bool,
    /// It is one server's of several: whether enough of them granted is to be asked.
    pub(crate) partial: bool,
}

impl Pushed {
    /// Until when the pushed lease is certain, reckoned from an answered ask (rules 7 and 16).
    pub(crate) fn until(&self, anchor: Anchor) -> Deadline {
        let now = Moment::now();
        if self.unconfirmed {
            return Deadline::new(now, Duration::ZERO);
        }
        let Some(passed) = self.store_micros.checked_sub(anchor.store_micros) else {
            return Deadline::new(now, Duration::ZERO); // the ask was answered after the grant: it can't date it
        };
        // The store's clock may have run too fast all the while, and not only during the claim.
        let dated = Deadline::new(anchor.sent, anchor.drift.trusted(Duration::from_micros(passed) + self.claim));
        // The grant was made before it arrived here: a store clock that stepped forward can't lengthen it past that.
        dated.min_at(Deadline::new(now, anchor.drift.trusted(self.claim)), now)
    }
}

/// One lock to give back, or one ask to withdraw.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) key: Arc<str>,
    pub(crate) token: Token,
    /// As it was in the [`Ask`].
    pub(crate) claim: Duration,
    /// The last fencing token reserved and the last one used, when they differ.
    pub(crate) unused_fences: Option<(u64, u64)>,
    /// An ask that goes to the end of the queue in the same step.
    pub(crate) again: Option<(Token, Duration)>,
    /// Another process is known to wait.
    pub(crate) contended: bool,
    /// It waited in the store's queue: the safety net may still ask for the token.
    pub(crate) queued: bool,
    /// When there is nothing left to give back, because it has ended by itself.
    pub(crate) expires: Deadline,
}

#[derive(Clone, Debug)]
pub(crate) struct Released {
    /// Whether the token owned the lock.
    pub(crate) owned: bool,
    /// How the ask fared that went along.
    pub(crate) again: Option<Answer>,
}

/// One lease to lengthen.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) key: Arc<str>,
    pub(crate) token: Token,
    pub(crate) lease: Duration,
    /// For how much longer the store keeps it than its holder counts on.
    pub(crate) grace: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Renewed {
    /// The lease is certain until then.
    Until(Deadline),
    NotOwned,
    /// Not any more, but a minority of servers may still have it.
    Partial,
}

impl Ask {
    /// The ask that goes along with a release.
    pub(crate) fn again(key: &Arc<str>, token: &Token, claim: Duration, give_up: Deadline) -> Self {
        let (key, token) = (Arc::clone(key), token.clone());
        Self { key, token, claim, wait: true, fences: 0, give_up, cause: Cause::Task }
    }

    /// The release that takes this ask back.
    pub(crate) fn withdrawal(&self) -> Release {
        Release::withdrawal(&self.key, &self.token, self.claim)
    }
}

impl Release {
    /// Takes back whatever may have come of an ask.
    pub(crate) fn withdrawal(key: &Arc<str>, token: &Token, claim: Duration) -> Self {
        Self {
            key: Arc::clone(key),
            token: token.clone(),
            claim,
            unused_fences: None,
            again: None,
            // What may be in a queue is not for the script that only looks at owners.
            contended: true,
            queued: false,
            expires: Deadline::after(WITHDRAWAL_LIFETIME),
        }
    }

    /// Whether it may be forgotten where too many wait to be sent: what it would give back ends soon by itself.
    pub(crate) fn ends_soon(&self) -> bool {
        self.expires.remaining() <= WITHDRAWAL_LIFETIME
    }

    /// Whether most likely nobody waits, and there is nothing else to do but to give back.
    pub(crate) fn is_lone(&self) -> bool {
        !self.contended && self.unused_fences.is_none() && self.again.is_none()
    }
}

#[cfg(test)]
mod tests;
