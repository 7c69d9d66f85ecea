//! The questions to a store, its answers and its messages: plain data.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::share::Share;
use crate::timing::{CLAIM, WITHDRAWAL_LIFETIME};
use crate::token::Token;
use crate::{BackendError, LockError};

pub(crate) use lock_wire::{Anchor, NodeId, Reach};

/// The number of the wire format: what is stored at a lock's keys, and what processes send each other through the server. Those with the
/// same number fully share their locks. With different numbers they exclude each other and keep each other waiting: docs/guide/versions.md.
///
/// The server shows it for each connection (`CLIENT LIST`), as `lib-name=lock-runtime(wire-1)`.
///
/// ```
/// assert_eq!(lock_runtime::WIRE_FORMAT, 1);
/// ```
pub const WIRE_FORMAT: u32 = 1;

/// What a store can do, and what it can't. This never changes.
#[derive(Debug)]
pub(crate) struct StoreKind {
    /// Whether every verb completes at its first poll, on any thread.
    pub(crate) is_immediate: bool,
    /// Whether the store has a queue of waiting tasks. Without one a waiting task polls: each refused ask is over, and the next one goes
    /// out after a random pause.
    pub(crate) queues: bool,
    /// Why the store refuses a feature; `None` for a feature that it has.
    pub(crate) refuses: fn(Feature) -> Option<&'static str>,
}

impl StoreKind {
    /// One server for each lock.
    pub(crate) const SERVER: Self = Self { is_immediate: false, queues: true, refuses: |_| None };

    /// An error about the `setting` if the store lacks the feature.
    pub(crate) fn check(&self, feature: Feature, setting: &'static str) -> Result<(), LockError> {
        (self.refuses)(feature).map_or(Ok(()), |reason| Err(LockError::setting(setting, reason)))
    }
}

/// What not every store supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Taking a lock from its owner.
    Force,
    /// Several owners share a lock.
    Sharing,
    /// A lock waits for an adopter.
    Tickets,
}

/// The state of the connection to a lock's server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// Whether there is no connection: a command waits for one, or is not sent at all.
    pub(crate) is_cut_off: bool,
    /// Whether messages arrive over it now: another process waits for the lock, or takes it by force.
    pub(crate) hears: bool,
    /// Whether a renewal over it can arm the alarm of a lease.
    pub(crate) has_alarms: bool,
}

impl Connection {
    /// For a store in this process.
    pub(crate) const IN_PROCESS: Self = Self { is_cut_off: false, hears: true, has_alarms: false };
}

/// One request for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Arc<str>,
    pub(crate) token: Token,
    /// `None` for an exclusive lock.
    pub(crate) share: Option<Share>,
    /// The length of the first lease, short: see [`CLAIM`].
    pub(crate) claim: Duration,
    /// Whether to wait in the queue.
    pub(crate) wait: bool,
    /// Whether to wait in front of all others, and take the lock from its owner (rule 25).
    pub(crate) replaces: Option<Replacing>,
    /// How many fencing tokens to draw with the grant.
    pub(crate) fences: u32,
    /// When the caller gives up. A store must not act on an ask that arrives later.
    pub(crate) give_up: Deadline,
}

/// A request that takes the lock from its owner (rule 25).
#[derive(Clone, Debug)]
pub(crate) struct Replacing {
    /// The request's first token. It distinguishes the request from later ones, whatever token it uses by now.
    pub(crate) name: Token,
    /// Whether the store has answered an ask of this request.
    pub(crate) is_known: bool,
}

/// A lock whose owner gives it away.
#[derive(Clone, Debug)]
pub(crate) struct Giving {
    pub(crate) key: Arc<str>,
    pub(crate) token: Token,
    pub(crate) share: Option<Share>,
    pub(crate) ticket: Token,
    /// How long the lock waits for its adopter.
    pub(crate) kept_for: Duration,
}

/// An ask for a lock that waits for its adopter.
#[derive(Clone, Debug)]
pub(crate) struct Adoption {
    pub(crate) ask: Ask,
    pub(crate) ticket: Token,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Granted(Grant),
    Busy(Busy),
    /// A newer request replaces the holder, and this one will never get the lock (rule 25).
    Replaced,
    /// The ask arrived after its `give_up` by the store's clock, and had no effect.
    Late,
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// The end of the lease, as far as it is certain.
    pub(crate) until: Deadline,
    /// Whether another process is waiting.
    pub(crate) contended: bool,
    /// The first fencing token that was drawn.
    pub(crate) fence: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Busy {
    pub(crate) owner: Token,
    /// The rest of the owner's lease; `None` when the lease never ends, or the store did not say.
    pub(crate) frees_in: Option<Duration>,
    /// Whether the lease never ends: another client set the key without an expiry.
    pub(crate) endless: bool,
    /// When this was true. It dates a later push; `None` when the store did not report its time.
    pub(crate) anchor: Option<Anchor>,
    /// How long the ask need not be repeated: others wait in front, and the store sends a message when only few are left.
    pub(crate) pause: Duration,
    /// A part of the store may have granted the lock anyway: withdraw the ask, and never ask under its token again.
    pub(crate) stands: bool,
}

/// A grant that a store pushed.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) token: Token,
    pub(crate) claim: Duration,
    pub(crate) store_micros: u64,
    pub(crate) contended: bool,
    /// The node of a cluster that granted the lock, where it is known.
    pub(crate) node: Option<NodeId>,
    /// Whether to confirm the grant before use, even if it can be dated.
    pub(crate) unconfirmed: bool,
}

impl Pushed {
    /// The end of the pushed lease, as far as it is certain. It counts from an answered ask (rule 7: leases count from before the command;
    /// rule 16: an undated grant is confirmed before use).
    pub(crate) fn until(&self, anchor: Anchor, now: Moment) -> Deadline {
        // Another node's clock dates nothing.
        let is_of_same_clock = mutant!(RelayedGrantTrusted => true, else self.node == anchor.node);
        if self.unconfirmed || !is_of_same_clock {
            return Deadline::new(now, Duration::ZERO);
        }
        let Some(passed) = self.store_micros.checked_sub(anchor.store_micros) else {
            return Deadline::new(now, Duration::ZERO); // the ask was answered after the grant: it can't date it
        };
        // The store's clock may have run too fast for the whole time, not only during the claim.
        let dated = Deadline::new(anchor.sent, anchor.drift.trusted(Duration::from_micros(passed) + self.claim));
        // The grant was made before it arrived here, so a store clock that stepped forward can't extend the lease beyond this.
        dated.min_at(Deadline::new(now, anchor.drift.trusted(self.claim)), now)
    }
}

/// One lock to release, or one ask to withdraw.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the lease")]
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) key: Arc<str>,
    pub(crate) token: Token,
    /// The same as in the [`Ask`], like the claim.
    pub(crate) share: Option<Share>,
    pub(crate) claim: Duration,
    /// The last fencing token that was reserved, and the last that was used, if they differ.
    pub(crate) unused_fences: Option<(u64, u64)>,
    /// Whether another process is known to wait.
    pub(crate) contended: bool,
    /// Whether other locks of the same guard are released at the same time.
    pub(crate) beside_others: bool,
    /// Whether the token waited in the store's queue. The safety net may still ask for it.
    pub(crate) queued: bool,
    /// When there is nothing left to release, because everything has ended by itself.
    pub(crate) repeat_until: Deadline,
    /// Until when to keep others out. Until then the lock rests (rule 23) instead of being passed on.
    pub(crate) kept_until: Option<Box<Deadline>>,
    /// Whether it rests because a body was dropped before its end: then the lease may be shorter than the rest, and the lock rests even if
    /// it was taken by force.
    pub(crate) is_delay: bool,
    /// What owns the lock if the token does not: a ticket whose giver never read the answer (rule 24).
    pub(crate) or_ticket: Option<Box<Token>>,
}

/// Whether a token owned the lock when its hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    Owned,
    NotOwned,
    /// The token owned the lock until it was taken by force; the lock waits until its owner has stopped (rule 21).
    Forced,
}

/// One lease to lengthen.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) key: Arc<str>,
    pub(crate) token: Token,
    pub(crate) share: Option<Share>,
    pub(crate) lease: Duration,
    /// How much longer the store keeps the lease than its holder relies on it.
    pub(crate) grace: Duration,
    /// Whether the store should report, from now on, when another client changes the lock.
    pub(crate) arms: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Renewed {
    /// The lease is certain until then.
    Until(Deadline),
    NotOwned,
    /// The lock was taken by force, and waits until its owner has stopped (rule 21).
    Forced,
}

/// The answer to an adoption.
#[derive(Clone, Debug)]
pub(crate) enum TicketAnswer {
    Granted(Grant),
    /// The ticket has ended, or was adopted under another token.
    Over,
    /// The token adopted the lock, which has been taken by force since (rule 21).
    Forced,
}

/// Replaces the owner's token while a lock is shared.
pub(crate) const SHARED: &str = "cache_lock|shared";

/// What a store knows about a lock that is taken.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The mark [`SHARED`] when the lock is shared.
    pub(crate) owner: Token,
    /// The rest of the owner's lease; `None` when the lease never ends.
    pub(crate) frees_in: Option<Duration>,
    /// The leases that share the lock. Empty for an exclusive lock.
    pub(crate) sharing: Vec<(Share, Token)>,
    /// The waiting tokens, first come, first served.
    pub(crate) waiting: Vec<Token>,
}

/// The outcome of taking a lock from its owner (rule 21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    /// The lock was free.
    Free,
    /// The lock no longer belongs to its owner, a client of another kind, which can't be notified.
    Gone,
    /// The owner was told to stop. The lock has this value until the owner has stopped, for at most one claim.
    Leaving(Token),
}

impl Ownership {
    /// The ownership before a command that may have run twice.
    pub(crate) fn or_before(self, may_be_done: bool) -> Self {
        if self == Self::NotOwned && may_be_done { Self::Owned } else { self }
    }
}

impl From<bool> for Ownership {
    fn from(is_owned: bool) -> Self {
        if is_owned { Self::Owned } else { Self::NotOwned }
    }
}

impl Ask {
    pub(crate) fn withdrawal(&self) -> Release {
        Release { share: self.share, ..Release::withdrawal(&self.key, &self.token, self.claim) }
    }
}

impl Release {
    /// Withdraws an ask, whatever its effect was. The token says how its lease shares the lock.
    pub(crate) fn withdrawal(key: &Arc<str>, token: &Token, claim: Duration) -> Self {
        Self::withdrawal_at(Moment::now(), key, token, claim)
    }

    pub(crate) fn withdrawal_at(now: Moment, key: &Arc<str>, token: &Token, claim: Duration) -> Self {
        Self {
            key: Arc::clone(key),
            token: token.clone(),
            share: mutant!(StrayShareIsExclusive => None, else token.share()),
            claim,
            unused_fences: None,
            // The token may be in a queue, and the cheap script looks only at owners.
            contended: true,
            beside_others: false,
            queued: false,
            repeat_until: Deadline::new(now, WITHDRAWAL_LIFETIME),
            kept_until: None,
            is_delay: false,
            or_ticket: None,
        }
    }

    /// After this release the lock rests for at least `delay` from `now` on.
    pub(crate) fn with_delay(self, delay: Duration, now: Moment) -> Self {
        mutant!(NotDelayed => return self);
        if delay.is_zero() {
            return self;
        }
        let until = Deadline::new(now, delay);
        let until = self.kept_until.as_deref().map_or(until, |kept| kept.max_at(until, now));
        let repeat_until = self.repeat_until.max_at(until.later_by(CLAIM), now);
        Self { kept_until: Some(Box::new(until)), is_delay: true, repeat_until, ..self }
    }

    /// What is left to release once this is done, if the lock was `ownership` to the token before.
    ///
    /// After a rest that is the value at the lock's key: releasing it hands the lock to its waiters at once. If the value is gone, a
    /// replica that has not seen the rest may have become the master. Then the token itself is released.
    pub(crate) fn once_done(mut self, ownership: Ownership) -> Option<Self> {
        let owned = match ownership {
            Ownership::Owned => true,
            Ownership::NotOwned => false,
            // A lock that was taken by force does not rest: release the value at its key.
            Ownership::Forced => return self.kept_until.take().map(|_| self),
        };
        match self.kept_until {
            Some(_) => {
                mutant!(RestNotPassedOn => return None);
                owned.then(|| Self { token: self.token.to_resting(self.is_delay), ..self })
            }
            None if owned => None,
            None => {
                mutant!(RestUnseenByReplica => return None);
                self.token = self.or_ticket.take().map(|ticket| *ticket).or_else(|| self.token.unrested())?;
                Some(self)
            }
        }
    }

    /// Whether this may be dropped when too many releases wait to be sent, because what it would release soon ends by itself.
    pub(crate) fn ends_soon(&self) -> bool {
        self.repeat_until.remaining() <= WITHDRAWAL_LIFETIME
    }

    /// Whether there is most likely no waiter, and nothing to do but the release.
    pub(crate) fn is_lone(&self) -> bool {
        !self.contended
            && self.share.is_none()
            && self.unused_fences.is_none()
            && self.kept_until.is_none()
            && self.or_ticket.is_none()
    }
}

/// The failure of a verb.
#[derive(Clone, Debug)]
pub(crate) struct StoreError {
    pub(crate) retry: Retry,
    pub(crate) reach: Reach,
    /// Whether the deadline passed before an answer.
    pub(crate) out_of_time: bool,
    /// Whether nothing was sent because too much of this process is in flight. `Store::room` resolves when there is room.
    pub(crate) no_room: bool,
    /// How many replicas confirmed the verb, and how many must.
    pub(crate) replicas: Option<(u32, u32)>,
    pub(crate) problem: BackendError,
}

impl StoreError {
    pub(crate) fn later(problem: BackendError) -> Self {
        Self {
            retry: Retry::Later,
            reach: Reach::Unanswered,
            out_of_time: false,
            no_room: false,
            replicas: None,
            problem,
        }
    }

    pub(crate) fn never(problem: BackendError) -> Self {
        Self { retry: Retry::Never, ..Self::later(problem) }
    }

    /// The error for a caller that wanted the lock `key`.
    pub(crate) fn of_lock(self, key: &str) -> LockError {
        let key = key.to_owned();
        match self.replicas {
            Some((confirmed, wanted)) => LockError::TooFewReplicas { key, confirmed, wanted },
            None => LockError::Backend { key, problem: self.problem },
        }
    }

    /// The error of a task that came too late for what it was granted.
    pub(crate) fn polled_late() -> Self {
        Self::later(BackendError::new("the lock was granted, and given back: this task was not polled in time"))
    }

    /// The error for a reply that none of the scripts gives.
    pub(crate) fn no_answer() -> Self {
        Self::later(BackendError::new("the server's reply is not one of the lock's scripts"))
    }
}

/// Whether a failed verb may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Repeat it after a pause: the server is unreachable, loading, or out of memory. The verb may or may not have taken effect.
    Later,
    /// It will fail again, for example because of a missing right or a key of another type. No caller waits for a repetition. The keeper
    /// repeats it anyway: the reason may be fixed in time.
    Never,
}

#[cfg(test)]
mod tests;
