//! [`Store`]: where leases live, in the verbs of the protocol. Above this module only `address`, `builder` and `manager` know Redis.
//! Nothing below it knows tasks.
//!
//! Every verb is idempotent for its token, and its caller may give up at any time. Then it is unknown whether the verb took effect, and the
//! token has to be released before it is forgotten.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::BackendError;
use crate::clock::Deadline;
use crate::error::within;
use crate::observe::metrics;
use crate::share::Share;
use crate::token::Token;

mod any;
#[cfg(feature = "testing")]
pub(crate) mod faulty;
pub(crate) mod memory;
pub(crate) mod quorum;
pub(crate) mod redis;
pub(crate) mod voter;

pub(crate) use crate::protocol::{
    Adoption, Anchor, Answer, Ask, Busy, Connection, Feature, Forced, Giving, Grant, NodeId, Ownership, Pushed, Reach,
    Release, Renewal, Renewed, Replacing, Retry, SHARED, Seen, StoreError, StoreKind, TicketAnswer,
};
pub(crate) use any::AnyStore;

/// The answers of a verb, one per item and in the order of the items, or one failure for all of them.
pub(crate) type Answers<T> = Result<Vec<Result<T, StoreError>>, StoreError>;

pub(crate) fn exactly_one<T>(answers: Answers<T>) -> Result<T, StoreError> {
    answers?.pop().unwrap_or_else(|| Err(StoreError::no_answer()))
}

/// The answers to a verb with `count` items. An item without an answer gets an error.
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
/// Each verb ends at its deadline. Deadlines and leases count from the instant before the call. The defaults are those of a store in this
/// process.
pub(crate) trait Store {
    /// What holds for all stores of this kind.
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
    ) -> impl Future<Output = Result<Ownership, StoreError>> + Send + 'a;

    /// Releases locks, or withdraws asks.
    fn release(&self, releases: &[Release], deadline: Deadline) -> impl Future<Output = Answers<Ownership>> + Send;

    /// Withdraws an ask on the same path, behind the ask, without waiting for an answer. This only saves time: the caller also has the
    /// release repeated until it is answered. In memory the withdrawal is done at once.
    fn withdraw_behind(&self, _release: &Release) {}

    /// Lengthens leases that are still owned.
    fn renew(&self, renewals: &[Renewal], deadline: Deadline) -> impl Future<Output = Answers<Renewed>> + Send;

    /// Draws `count` consecutive fencing tokens for an owned lock, and returns the first of them; `None` when the token does not own the
    /// lock.
    fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        share: Option<Share>,
        count: u32,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;

    /// Looks at a lock, and changes nothing. `None` when the lock is free.
    fn inspect(&self, key: &str, deadline: Deadline) -> impl Future<Output = Result<Option<Seen>, StoreError>> + Send;

    /// Takes a lock from its current owner (rule 21: the owner has at most a claim to stop). If `one` is given, takes only that one of the
    /// leases that share the lock.
    fn force(
        &self,
        key: &str,
        one: Option<(Share, Token)>,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Forced, StoreError>> + Send;

    /// Replaces an owner's token by a ticket (rule 24). If the ticket is there already, the token counts as the owner, too.
    fn give(&self, giving: &Giving, deadline: Deadline) -> impl Future<Output = Result<Ownership, StoreError>> + Send;

    /// Replaces a ticket by the token of its adopter (rule 24).
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

    /// The connection on which messages about `key` arrive, as far as is known. A slot calls this under its lock, so it must not call back.
    fn connection(&self, _key: &str) -> Connection {
        Connection::IN_PROCESS
    }

    /// Probes the runtimes that read pushes. Returns whether one of them has not answered since the last call: its pushes are not read.
    fn probe_reader(&self) -> bool {
        false
    }

    /// If the connection with the pushes for `key` broke, has the runtime that read it start to reconnect. Otherwise a grant would go
    /// unnoticed, because the task that is to ask again may not be polled.
    fn reconnect_reader(&self, _key: &str) {}

    /// Whether the store could be asked at once, as far as is known.
    fn is_connected(&self) -> bool {
        true
    }

    /// Starts to reconnect where there is no connection, without waiting. Must be called inside a runtime.
    fn begin_to_connect(&self) {}

    /// How long the store has been unreachable for `key`, and why. `None` when it may be reachable. Like [`connection`](Self::connection),
    /// it must not call back.
    fn outage(&self, _key: &str) -> Option<(Duration, StoreError)> {
        None
    }

    /// The error for a store that has not answered about `key` for this long.
    fn unanswered(&self, _key: &str, since: Duration) -> StoreError {
        StoreError::later(BackendError::new(format!("no answer from the server {}", within(since))))
    }

    /// How long an answer now takes to reach its task because many are in flight. Zero while few are: then a missing answer is late.
    fn lag(&self) -> Duration {
        Duration::ZERO
    }

    /// Call it after an ask for `key` failed for lack of room. Resolves when there is room, or the ask would fail for another reason.
    fn room(&self, _key: &str) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Resolves when no release is running in the background. A verb may be answered before all servers have executed it.
    fn wait_for_releases(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// From now on `events` gets the pushes for tokens of `process`, and learns of broken connections.
    fn attach(&self, process: &str, events: Weak<dyn Events>);

    /// The number of the server that has `key`. A command to one server need not wait for another server.
    fn server_of(&self, _key: &str) -> usize {
        0
    }

    /// The address of the server that has `key`, for messages.
    fn server_name(&self, _key: &str) -> String {
        "memory".to_owned()
    }
}

/// Counts for all connections of a manager. Each count is next to a command, which costs much more.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    commands: AtomicU64,
    reconnects: AtomicU64,
}

impl Traffic {
    pub(crate) fn note_commands(&self, count: usize) {
        let count = count as u64;
        self.commands.fetch_add(count, Ordering::Relaxed);
        metrics::commands(count);
    }

    pub(crate) fn note_reconnect(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
        metrics::reconnected();
    }

    pub(crate) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// How often a connection was replaced.
    pub(crate) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }
}

/// What a store reports on its own.
pub(crate) trait Events: Send + Sync {
    /// The lock was passed on to a token of this process.
    fn on_grant(&self, key: &str, pushed: &Pushed);
    /// Another process waits for a lock that this process has.
    fn on_contention(&self, key: &str);
    /// A waiter of this process is now one of the first: it repeats its ask as often as they do (rule 5).
    fn on_near(&self, _key: &str, _store_micros: u64) {}
    /// This token's lock was taken away by force (rule 21).
    fn on_forced(&self, _key: &str, _token: &Token) {}
    /// Another client may have changed the lock of `key`, whose alarm was armed; `None` for all locks. This is a hint, and the alarm is no
    /// longer armed.
    fn on_alarm(&self, _key: Option<&str>) {}
    /// Pushes may have been missed and leases lost, for all keys that this `affects`: repeat each ask, and verify each hold.
    fn on_interruption(&self, affects: &dyn Fn(&str) -> bool);
    /// A broken connection was replaced: one of the callers', or one of the keeper's.
    fn on_reconnect(&self, _server: &str, _of_callers: bool, _away: Duration) {}
    /// A withdrawal went out behind its ask, and the connection ended before the answer. Another withdrawal, on another path, may have
    /// arrived before the ask.
    fn on_lost_withdrawal(&self, _release: Release) {}
    /// Where commands are counted.
    fn traffic(&self) -> Arc<Traffic> {
        Arc::default()
    }
}
