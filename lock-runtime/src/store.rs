//! [`Store`]: where leases live, in the verbs of the protocol. Nothing above this module knows Redis, and nothing below it
//! knows tasks.
//!
//! Every verb is idempotent for its token, and its caller may give up at any time. Then nobody knows whether the verb took
//! effect, and the token has to be released before it is forgotten.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::BackendError;
use crate::clock::{Deadline, Drift, Moment};
use crate::error::within;
use crate::share::Share;
use crate::timing::WITHDRAWAL_LIFETIME;
use crate::token::Token;

mod any;
mod error;
#[cfg(feature = "testing")]
pub(crate) mod faulty;
pub(crate) mod memory;
pub(crate) mod quorum;
pub(crate) mod redis;
pub(crate) mod seen;
pub(crate) mod server_age;
mod traffic;
pub(crate) mod voter;

pub(crate) use any::AnyStore;
pub(crate) use error::{Reach, Retry, StoreError};
pub(crate) use seen::{Forced, Seen};
pub(crate) use traffic::Traffic;

/// The answers of a verb, one per item and in the order of the items, or the failure of all.
pub(crate) type Answers<T> = Result<Vec<Result<T, StoreError>>, StoreError>;

/// The answer to a verb with one item.
pub(crate) fn exactly_one<T>(answers: Answers<T>) -> Result<T, StoreError> {
    answers?.pop().unwrap_or_else(|| Err(StoreError::no_answer()))
}

/// The answers to a verb with `count` items, one for each item also where the store gave none.
pub(crate) fn each<T>(answers: Answers<T>, count: usize) -> Vec<Result<T, StoreError>> {
    match answers {
        Ok(mut answers) => {
            answers.resize_with(count, || Err(StoreError::no_answer()));
            answers
        }
        Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
    }
}

/// The verbs of a store.
///
/// Each verb ends at its deadline. The deadline counts from the instant before the call, and leases are counted from that
/// instant, too.
pub(crate) trait Store {
    /// Takes a free lock: the uncontended path, as cheap as the store can make it. Never queues.
    fn claim(&self, ask: &Ask, deadline: Deadline) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Asks for locks. An ask with [`Ask::wait`] queues when the lock is taken.
    fn ask(&self, asks: &[Ask], deadline: Deadline) -> impl Future<Output = Answers<Answer>> + Send;

    /// Releases one lock for a task that waits for the answer.
    fn release_one(
        &self,
        release: &Release,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Released, StoreError>> + Send;

    /// Releases locks, or withdraws asks.
    fn release(&self, releases: &[Release], deadline: Deadline) -> impl Future<Output = Answers<Released>> + Send;

    /// Withdraws an ask on the same path, behind the ask, and waits for no answer. It only saves time: the caller also has
    /// the release repeated until it is answered. In memory the answer comes at once.
    fn withdraw_behind(&self, _release: &Release) {}

    /// Takes in that a lease is about to be released on another path than that of its ask. A store of several servers may have
    /// granted it before each of them had the ask.
    fn on_release_by_keeper(&self, _release: &Release) {}

    /// Lengthens leases that are still owned.
    fn renew(&self, renewals: &[Renewal], deadline: Deadline) -> impl Future<Output = Answers<Renewed>> + Send;

    /// Draws `count` fencing tokens in a row for an owned lock, and returns the first of them; `None` when the token does
    /// not own the lock.
    fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        share: Option<Share>,
        count: u32,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;

    /// Looks at a lock, and changes nothing. `None` when nobody has the lock.
    fn inspect(&self, key: &str, deadline: Deadline) -> impl Future<Output = Result<Option<Seen>, StoreError>> + Send;

    /// Takes a lock from its owner, whoever that is (rule 21: the owner has at most a claim to stop).
    fn force(&self, key: &str, deadline: Deadline) -> impl Future<Output = Result<Forced, StoreError>> + Send;

    /// Why locks can't be taken by force here; `None` where they can.
    fn refuses_force(&self) -> Option<&'static str> {
        None
    }

    /// Why locks can't be shared here; `None` where they can.
    fn refuses_sharing(&self) -> Option<&'static str> {
        None
    }

    /// Finds out whether pushes can still arrive, and replaces a dead connection.
    fn heartbeat(&self, _deadline: Deadline) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Replaces broken connections before they are needed.
    fn connect_again(&self, _deadline: Deadline) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// How long the store takes to answer, as far as is known.
    fn round_trip(&self) -> Duration {
        Duration::ZERO
    }

    /// How many commands, one after the other, a verb may take.
    fn round_trips_of_a_verb(&self) -> u32 {
        1
    }

    /// Whether there is no connection: a command about `key` waits for one, or is not sent at all. A slot calls this under
    /// its lock, so it must not call back.
    fn is_cut_off(&self, _key: &str) -> bool {
        false
    }

    /// Whether this path hears now that another process waits for `key`, or takes it by force. As
    /// [`is_cut_off`](Self::is_cut_off), it must not call back.
    fn hears_of(&self, _key: &str) -> bool {
        true
    }

    /// Asks the runtimes that read pushes whether they run. Returns whether one has not answered since the last call: what is pushed
    /// there is not read.
    fn probe_reader(&self) -> bool {
        false
    }

    /// Whether a renewal of the lease of `key` can arm its alarm (see [`Events::on_alarm`]). As [`is_cut_off`](Self::is_cut_off),
    /// it must not call back.
    fn has_alarms(&self, _key: &str) -> bool {
        false
    }

    /// Whether the store could be asked at once, as far as is known.
    fn is_connected(&self) -> bool {
        true
    }

    /// Begins to connect again where there is no connection, and waits for nothing. It must be called inside a runtime.
    fn begin_to_connect(&self) {}

    /// How long the store has been unreachable for `key`, and why. `None` when it may be there.
    fn outage(&self, _key: &str) -> Option<(Duration, StoreError)> {
        None
    }

    /// The error for a store that has not answered about `key` for this long.
    fn unanswered(&self, _key: &str, since: Duration) -> StoreError {
        StoreError::later(BackendError::new(format!("no answer from the server {}", within(since))))
    }

    /// Resolves when no release goes on in the background. A verb may be answered before all servers have executed it.
    fn wait_for_releases(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// From now on `events` gets the pushes for tokens of `process`, and the news of a broken connection.
    fn attach(&self, process: &str, events: Weak<dyn Events>);

    /// Whether every verb completes at its first poll, on any thread.
    fn is_immediate(&self) -> bool {
        false
    }

    /// The number of the server that has `key`. A command to one server need not wait for another server.
    fn server_of(&self, _key: &str) -> usize {
        0
    }

    /// The server that has `key`, as people write it.
    fn server_name(&self, _key: &str) -> String {
        "memory".to_owned()
    }

    /// Whether an ask can draw fencing tokens together with its grant, which saves a round trip. Otherwise they are drawn
    /// afterwards.
    fn draws_with_grants(&self) -> bool {
        true
    }

    /// Whether a plain claim may be granted although another process waits, for a moment after a release: it waits at one server, and
    /// the others know nothing of it.
    fn claims_overtake_waiters(&self) -> bool {
        false
    }

    /// Whether the store itself withdraws a try that is refused, perhaps after the answer. Then nobody else may ask under the
    /// token of a try that is still to be answered: the withdrawal would release a lease in use.
    fn withdraws_refused_tries(&self) -> bool {
        false
    }
}

/// What a store reports on its own.
pub(crate) trait Events: Send + Sync {
    /// The lock was passed on to a token of this process.
    fn on_grant(&self, key: &str, pushed: &Pushed);
    /// Another process waits for a lock of this one.
    fn on_contention(&self, key: &str);
    /// A waiter of this process has come to be one of the first: it repeats its ask as often as they do (rule 5).
    fn on_near(&self, _key: &str, _store_micros: u64) {}
    /// The lock of this token was taken away by force (rule 21).
    fn on_forced(&self, _key: &str, _token: &Token) {}
    /// Somebody else may have changed the lock of `key`, whose alarm was armed; `None` for all locks. It is a hint: the alarm is
    /// armed no more.
    fn on_alarm(&self, _key: Option<&str>) {}
    /// Pushes may have been missed and leases lost, for all keys that this `affects`: repeat each ask, and verify each hold.
    fn on_interruption(&self, affects: &dyn Fn(&str) -> bool);
    /// A connection that broke was made again: one of the callers, or one of the keeper.
    fn on_reconnect(&self, _server: &str, _of_callers: bool, _away: Duration) {}
    /// A withdrawal went out behind its ask, and was not answered: the connection has ended. Another withdrawal, which was sent by
    /// another way, may have come before the ask.
    fn on_lost_withdrawal(&self, _release: Release) {}
    /// Where commands are counted.
    fn traffic(&self) -> Arc<Traffic> {
        Arc::default()
    }
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
    /// How many fencing tokens to draw with the grant.
    pub(crate) fences: u32,
    /// When the caller gives up. A store must not act on an ask that arrives later.
    pub(crate) give_up: Deadline,
    pub(crate) cause: Cause,
}

/// Why the store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A task wants the lock.
    Task,
    /// One server pushed a grant: see [`Pushed::partial`].
    Push,
    /// The store was silent for a while.
    Silence,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Granted(Grant),
    Busy(Busy),
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
    /// For so long the ask need not be repeated: others wait in front, and the store tells when they are few.
    pub(crate) pause: Duration,
    /// The token owns the lock on some servers, and another token has the better claim to the other servers: withdraw the
    /// ask.
    pub(crate) yields: bool,
}

/// An instant of the store's clock, and an instant of this process's clock that was certainly not later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    pub(crate) sent: Moment,
    pub(crate) store_micros: u64,
    /// How far the two clocks may drift apart.
    pub(crate) drift: Drift,
    /// The node of a cluster whose clock it is.
    pub(crate) node: Option<NodeId>,
}

/// A node of a cluster: the first 64 of the 160 random bits by which the node calls itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(u64);

impl NodeId {
    /// Reads the node's name: 40 hex digits.
    pub(crate) fn read(name: &str) -> Option<Self> {
        let is_name = name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let first = name.get(..16).filter(|_| is_name)?;
        u64::from_str_radix(first, 16).ok().map(Self)
    }
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
    /// It is the grant of one server out of several: the others have to be asked.
    pub(crate) partial: bool,
}

impl Pushed {
    /// Another node's clock dates nothing.
    fn is_of_same_clock(&self, anchor: Anchor) -> bool {
        mutant!(RelayedGrantTrusted => return true);
        self.node == anchor.node
    }

    /// The end of the pushed lease, as far as it is certain. It is counted from an answered ask (rule 7: leases count from
    /// before the command; rule 16: an undated grant is confirmed before use).
    pub(crate) fn until(&self, anchor: Anchor) -> Deadline {
        let now = Moment::now();
        if self.unconfirmed || !self.is_of_same_clock(anchor) {
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
}

#[derive(Clone, Debug)]
pub(crate) struct Released {
    /// Whether the token owned the lock.
    pub(crate) owned: bool,
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
    /// A majority does not have the lease any more, but a minority may still have it.
    Partial,
}

impl Ask {
    /// The ask that goes along with a release.
    pub(crate) fn along(release: &Release, give_up: Deadline) -> Option<Self> {
        let (token, claim) = release.again.clone()?;
        let (key, share) = (Arc::clone(&release.key), release.share);
        Some(Self { key, token, share, claim, wait: true, fences: 0, give_up, cause: Cause::Task })
    }

    /// The release that withdraws this ask.
    pub(crate) fn withdrawal(&self) -> Release {
        Release { share: self.share, ..Release::withdrawal(&self.key, &self.token, self.claim) }
    }
}

/// How the lease of a token shares its lock.
fn share_of(token: &Token) -> Option<Share> {
    mutant!(StrayShareIsExclusive => return None);
    token.share()
}

impl Release {
    /// Withdraws an ask, whatever its effect was. The token knows how its lease shares the lock.
    pub(crate) fn withdrawal(key: &Arc<str>, token: &Token, claim: Duration) -> Self {
        Self {
            key: Arc::clone(key),
            token: token.clone(),
            share: share_of(token),
            claim,
            unused_fences: None,
            again: None,
            // The token may be in a queue, and the cheap script looks only at owners.
            contended: true,
            beside_others: false,
            queued: false,
            repeat_until: Deadline::after(WITHDRAWAL_LIFETIME),
            kept_until: None,
        }
    }

    /// What is left to release when this is done, and the token `owned` the lock before.
    ///
    /// After a rest that is what stands at the lock's key: its waiters then get the lock at once. When that is gone, a replica
    /// that has not seen the rest may have taken the master's place. Then the token itself is released.
    pub(crate) fn once_done(mut self, owned: bool) -> Option<Self> {
        match self.kept_until {
            Some(_) => {
                mutant!(RestNotPassedOn => return None);
                owned.then(|| Self { token: self.token.to_resting(), ..self })
            }
            None if owned => None,
            None => {
                mutant!(RestUnseenByReplica => return None);
                self.token = self.token.unrested()?;
                Some(self)
            }
        }
    }

    /// The release of what stands at the lock's key once the lock was released by force (rule 21).
    pub(crate) fn of_forced(&self) -> Self {
        // A shared lease keeps its token.
        let token = if self.share.is_some() { self.token.clone() } else { self.token.to_forced() };
        Self { share: self.share, ..Self::withdrawal(&self.key, &token, self.claim) }
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
    }
}

#[cfg(test)]
mod tests;
