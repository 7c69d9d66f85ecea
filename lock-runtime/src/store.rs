//! [`Store`]: where leases live, in the verbs of the protocol. Above this module only `address`, `builder` and `manager`
//! know Redis. Nothing below it knows tasks.
//!
//! Every verb is idempotent for its token, and its caller may give up at any time. Then nobody knows whether the verb took
//! effect, and the token has to be released before it is forgotten.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::BackendError;
use crate::clock::Deadline;
use crate::error::within;
use crate::share::Share;
use crate::token::Token;

mod any;
#[cfg(feature = "testing")]
pub(crate) mod faulty;
pub(crate) mod memory;
pub(crate) mod quorum;
pub(crate) mod redis;
pub(crate) mod seen;
pub(crate) mod server_age;
mod traffic;
pub(crate) mod voter;

pub(crate) use crate::protocol::{
    Adoption, Anchor, Answer, Ask, Busy, Connection, Feature, Giving, Grant, NodeId, Ownership, Pushed, Reach, Release,
    Released, Renewal, Renewed, Replacing, Retry, StoreError, StoreKind, TicketAnswer,
};
pub(crate) use any::AnyStore;
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
/// instant, too. What has a default is so at a store in this process.
pub(crate) trait Store {
    /// What is so at all stores of this kind.
    fn kind(&self) -> &'static StoreKind;

    /// Takes a free lock: the uncontended path, as cheap as the store can make it. Never queues.
    fn claim<'a>(
        &'a self,
        ask: &'a Ask,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send + 'a;

    /// Asks for locks. An ask with [`Ask::wait`] queues when the lock is taken.
    fn ask(&self, asks: &[Ask], deadline: Deadline) -> impl Future<Output = Answers<Answer>> + Send;

    /// Releases one lock for a task that waits for the answer.
    fn release_one<'a>(
        &'a self,
        release: &'a Release,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Released, StoreError>> + Send + 'a;

    /// Releases locks, or withdraws asks.
    fn release(&self, releases: &[Release], deadline: Deadline) -> impl Future<Output = Answers<Released>> + Send;

    /// Withdraws an ask on the same path, behind the ask, and waits for no answer. It only saves time: the caller also has
    /// the release repeated until it is answered. In memory the answer comes at once.
    fn withdraw_behind(&self, _release: &Release) {}

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

    /// Puts a ticket in the place of an owner's token (rule 24). The token owned the lock also when the ticket stands there
    /// already.
    fn give(&self, giving: &Giving, deadline: Deadline) -> impl Future<Output = Result<Ownership, StoreError>> + Send;

    /// Puts the token of an adopter in the place of a ticket (rule 24).
    fn adopt(
        &self,
        adoption: &Adoption,
        deadline: Deadline,
    ) -> impl Future<Output = Result<TicketAnswer, StoreError>> + Send;

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

    /// The connection over which the store is told about `key`, as far as is known. A slot asks for it under its lock, so it must not
    /// call back.
    fn connection(&self, _key: &str) -> Connection {
        Connection::IN_PROCESS
    }

    /// Asks the runtimes that read pushes whether they run. Returns whether one has not answered since the last call: what is pushed
    /// there is not read.
    fn probe_reader(&self) -> bool {
        false
    }

    /// Has the runtime that read the pushes for `key` begin to connect again, if that connection broke. Nobody else hears of a grant,
    /// and the task that is to ask again may not be polled.
    fn reconnect_reader(&self, _key: &str) {}

    /// Whether the store could be asked at once, as far as is known.
    fn is_connected(&self) -> bool {
        true
    }

    /// Begins to connect again where there is no connection, and waits for nothing. It must be called inside a runtime.
    fn begin_to_connect(&self) {}

    /// How long the store has been unreachable for `key`, and why. `None` when it may be there. As
    /// [`connection`](Self::connection), it must not call back.
    fn outage(&self, _key: &str) -> Option<(Duration, StoreError)> {
        None
    }

    /// The error for a store that has not answered about `key` for this long.
    fn unanswered(&self, _key: &str, since: Duration) -> StoreError {
        StoreError::later(BackendError::new(format!("no answer from the server {}", within(since))))
    }

    /// How long an answer takes now until its task has it, because many are on their way. Zero while few are: such an answer is late.
    fn lag(&self) -> Duration {
        Duration::ZERO
    }

    /// Resolves when there is room for an ask for `key`, after one failed for want of it, or when it would fail for another reason.
    fn room(&self, _key: &str) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Resolves when no release goes on in the background. A verb may be answered before all servers have executed it.
    fn wait_for_releases(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// From now on `events` gets the pushes for tokens of `process`, and the news of a broken connection.
    fn attach(&self, process: &str, events: Weak<dyn Events>);

    /// The number of the server that has `key`. A command to one server need not wait for another server.
    fn server_of(&self, _key: &str) -> usize {
        0
    }

    /// The server that has `key`, as people write it.
    fn server_name(&self, _key: &str) -> String {
        "memory".to_owned()
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
