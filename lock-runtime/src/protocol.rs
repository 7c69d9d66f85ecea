//! What is asked of a store, and what it answers or tells: plain data.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::share::Share;
use crate::timing::WITHDRAWAL_LIFETIME;
use crate::token::Token;
use crate::{BackendError, LockError};

pub(crate) use lock_wire::{Anchor, NodeId, Reach};

/// What a store can do, and what it can't. It never changes.
#[derive(Debug)]
pub(crate) struct StoreKind {
    /// Whether every verb completes at its first poll, on any thread.
    pub(crate) is_immediate: bool,
    /// Whether a task that waits has a place in a queue of the store. Without a queue it polls: each ask is over when it is refused, and
    /// the next one goes out after a random pause.
    pub(crate) queues: bool,
    /// Why the store refuses a feature; `None` where it has it.
    pub(crate) refuses: fn(Feature) -> Option<&'static str>,
}

impl StoreKind {
    /// One server for each lock.
    pub(crate) const SERVER: Self = Self { is_immediate: false, queues: true, refuses: |_| None };

    /// An error about the `setting` when the store does not have the feature.
    pub(crate) fn check(&self, feature: Feature, setting: &'static str) -> Result<(), LockError> {
        (self.refuses)(feature).map_or(Ok(()), |reason| Err(LockError::setting(setting, reason)))
    }
}

/// What not every store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// A lock is taken from its owner.
    Force,
    /// Several owners have a lock together.
    Sharing,
    /// A lock waits for an adopter.
    Tickets,
}

/// What is known of the connection to the server of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    /// How long the server takes to answer.
    pub(crate) round_trip: Duration,
    /// Whether there is none: a command waits for one, or is not sent at all.
    pub(crate) is_cut_off: bool,
    /// Whether messages arrive over it now: another process waits for the lock, or takes it by force.
    pub(crate) hears: bool,
    /// Whether a renewal over it can arm the alarm of a lease.
    pub(crate) has_alarms: bool,
}

impl Connection {
    /// To a store in this process.
    pub(crate) const IN_PROCESS: Self =
        Self { round_trip: Duration::ZERO, is_cut_off: false, hears: true, has_alarms: false };
}

/// One request for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Arc<str>,
    pub(crate) token: Token,
    /// `None` for the lock alone.
    pub(crate) share: Option<Share>,
    /// The first lease, short: see [`CLAIM`].
    pub(crate) claim: Duration,
    /// Whether to wait in the queue.
    pub(crate) wait: bool,
    /// Waits in front of all others, and takes the lock from its owner (rule 25).
    pub(crate) replaces: Option<Replacing>,
    /// How many fencing tokens to draw with the grant.
    pub(crate) fences: u32,
    /// When the caller gives up. A store must not act on an ask that arrives later.
    pub(crate) give_up: Deadline,
}

/// A request that takes the lock from its owner (rule 25).
#[derive(Clone, Debug)]
pub(crate) struct Replacing {
    /// The first token under which the request asked. It tells the request from those that come later, whatever its token is by now.
    pub(crate) name: Token,
    /// Whether the store has answered such an ask of the request.
    pub(crate) is_known: bool,
}

/// A lock whose owner gives it away.
#[derive(Clone, Debug)]
pub(crate) struct Giving {
    pub(crate) key: Arc<str>,
    pub(crate) token: Token,
    pub(crate) share: Option<Share>,
    pub(crate) ticket: Token,
    /// For how long the lock waits for its adopter.
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
    /// A newer request replaces the holder, and this one never gets the lock (rule 25).
    Replaced,
    /// The ask came after its `give_up` by the store's clock, and did nothing.
    Late,
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    /// The end of the lease, as far as it is certain.
    pub(crate) until: Deadline,
    /// Whether another process waits behind.
    pub(crate) contended: bool,
    /// The first fencing token that was drawn.
    pub(crate) fence: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Busy {
    pub(crate) owner: Token,
    /// The rest of the owner's lease; `None` when the lease has no end, or the store did not say.
    pub(crate) frees_in: Option<Duration>,
    /// Whether the lease never ends: another client set the key without an expiry.
    pub(crate) endless: bool,
    /// When this was true. It dates a later push; `None` when the store did not say its time.
    pub(crate) anchor: Option<Anchor>,
    /// The ask need not be repeated for this long: others wait in front, and the store sends a message when they are few.
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
    /// The grant has to be confirmed before use, even when it is dated.
    pub(crate) unconfirmed: bool,
}

impl Pushed {
    /// The end of the pushed lease, as far as it is certain. It is counted from an answered ask (rule 7: leases count from
    /// before the command; rule 16: an undated grant is confirmed before use).
    pub(crate) fn until(&self, anchor: Anchor, now: Moment) -> Deadline {
        // Another node's clock dates nothing.
        let is_of_same_clock = mutant!(RelayedGrantTrusted => true, else self.node == anchor.node);
        if self.unconfirmed || !is_of_same_clock {
            return Deadline::new(now, Duration::ZERO);
        }
        let Some(passed) = self.store_micros.checked_sub(anchor.store_micros) else {
            return Deadline::new(now, Duration::ZERO); // the ask was answered after the grant: it can't date it
        };
        // The store's clock may have run too fast during the whole time, and not only during the claim.
        let dated = Deadline::new(anchor.sent, anchor.drift.trusted(Duration::from_micros(passed) + self.claim));
        // The grant was made before it arrived here. So a store clock that stepped forward can't make the lease longer than
        // that.
        dated.min_at(Deadline::new(now, anchor.drift.trusted(self.claim)), now)
    }
}

/// One lock to release, or one ask to withdraw.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) key: Arc<str>,
    pub(crate) token: Token,
    /// As it was in the [`Ask`], like the claim.
    pub(crate) share: Option<Share>,
    pub(crate) claim: Duration,
    /// The last fencing token that was reserved, and the last that was used, when they differ.
    pub(crate) unused_fences: Option<(u64, u64)>,
    /// An ask that joins the end of the queue in the same step.
    pub(crate) again: Option<(Token, Duration)>,
    /// Another process is known to wait.
    pub(crate) contended: bool,
    /// Other locks of the same guard are released at the same moment.
    pub(crate) beside_others: bool,
    /// The token waited in the store's queue. The safety net may still ask for it.
    pub(crate) queued: bool,
    /// When there is nothing left to release: everything has ended by itself.
    pub(crate) repeat_until: Deadline,
    /// Until when others are still kept out. Until then the lock rests (rule 23), and is not passed on.
    pub(crate) kept_until: Option<Box<Deadline>>,
    /// What has the lock in the place of the token, if the token does not own it: a ticket whose giver read no answer (rule 24).
    pub(crate) or_ticket: Option<Box<Token>>,
}

/// What the lock was to a token whose hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The token owned the lock.
    Owned,
    NotOwned,
    /// The token owned the lock until that was released by force, and waits until its owner has stopped (rule 21).
    Forced,
}

#[derive(Clone, Debug)]
pub(crate) struct Released {
    pub(crate) ownership: Ownership,
    /// The answer to the ask that went along.
    pub(crate) again: Option<Answer>,
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
    /// Whether the store is to tell, from now on, when somebody else changes the lock.
    pub(crate) arms: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Renewed {
    /// The lease is certain until then.
    Until(Deadline),
    NotOwned,
    /// The lock was released by force, and waits until its owner has stopped (rule 21).
    Forced,
}

/// The answer to an adoption.
#[derive(Clone, Debug)]
pub(crate) enum TicketAnswer {
    Granted(Grant),
    /// The ticket is over, or was adopted under another token.
    Over,
    /// The token has adopted the lock, which was released by force since (rule 21).
    Forced,
}

impl Ownership {
    /// What it was before a command that may have taken effect twice.
    pub(crate) fn or_before(self, may_be_done: bool) -> Self {
        if self == Self::NotOwned && may_be_done { Self::Owned } else { self }
    }
}

impl From<bool> for Ownership {
    fn from(is_owned: bool) -> Self {
        if is_owned { Self::Owned } else { Self::NotOwned }
    }
}

impl Released {
    /// The token owned the lock, and no ask went along.
    pub(crate) const DONE: Self = Self { ownership: Ownership::Owned, again: None };
}

impl Ask {
    /// The ask that goes along with a release.
    pub(crate) fn along(release: &Release, give_up: Deadline) -> Option<Self> {
        let (token, claim) = release.again.clone()?;
        let (key, share) = (Arc::clone(&release.key), release.share);
        Some(Self { key, token, share, claim, wait: true, replaces: None, fences: 0, give_up })
    }

    /// The release that withdraws this ask.
    pub(crate) fn withdrawal(&self) -> Release {
        Release { share: self.share, ..Release::withdrawal(&self.key, &self.token, self.claim) }
    }
}

impl Release {
    /// Withdraws an ask, whatever its effect was. The token knows how its lease shares the lock.
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
            again: None,
            // The token may be in a queue, and the cheap script looks only at owners.
            contended: true,
            beside_others: false,
            queued: false,
            repeat_until: Deadline::new(now, WITHDRAWAL_LIFETIME),
            kept_until: None,
            or_ticket: None,
        }
    }

    /// What is left to release when this is done, and the lock was this to the token before.
    ///
    /// After a rest that is what stands at the lock's key: its waiters then get the lock at once. When that is gone, a replica
    /// that has not seen the rest may have taken the master's place. Then the token itself is released.
    pub(crate) fn once_done(mut self, ownership: Ownership) -> Option<Self> {
        let owned = match ownership {
            Ownership::Owned => true,
            Ownership::NotOwned => false,
            // A lock that was released by force does not rest: what stands at its key is released.
            Ownership::Forced => return self.kept_until.take().map(|_| self),
        };
        match self.kept_until {
            Some(_) => {
                mutant!(RestNotPassedOn => return None);
                owned.then(|| Self { token: self.token.to_resting(), ..self })
            }
            None if owned => None,
            None => {
                mutant!(RestUnseenByReplica => return None);
                self.token = self.or_ticket.take().map(|ticket| *ticket).or_else(|| self.token.unrested())?;
                Some(self)
            }
        }
    }

    /// Whether this may be forgotten when too many releases wait to be sent: what it would release soon ends by itself.
    pub(crate) fn ends_soon(&self) -> bool {
        self.repeat_until.remaining() <= WITHDRAWAL_LIFETIME
    }

    /// Whether most likely nobody waits, and there is nothing to do but the release.
    pub(crate) fn is_lone(&self) -> bool {
        !self.contended
            && self.share.is_none()
            && self.unused_fences.is_none()
            && self.again.is_none()
            && self.kept_until.is_none()
            && self.or_ticket.is_none()
    }
}

/// The failure of a verb.
#[derive(Clone, Debug)]
pub(crate) struct StoreError {
    pub(crate) retry: Retry,
    pub(crate) reach: Reach,
    /// There was only too little time: the deadline came before an answer.
    pub(crate) out_of_time: bool,
    /// Nothing was sent: what this process has sent before is too much for now. The store tells when there is room (`Store::room`).
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

    /// The error for a reply that is none of the scripts'.
    pub(crate) fn no_answer() -> Self {
        Self::later(BackendError::new("the server's reply is not one of the lock's scripts"))
    }
}

/// Whether a failed verb may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Repeat it after a pause: the server is unreachable, loading, or out of memory. The verb may or may not have taken
    /// effect.
    Later,
    /// It will fail again, because of a missing right or a key of another type, for example. No caller waits for a repetition. The
    /// keeper repeats it anyway: somebody may correct the reason while there is time.
    Never,
}

#[cfg(test)]
mod tests;
