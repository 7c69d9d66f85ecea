//! [`Link`]: one connection to the server, replaced when it breaks.
//!
//! The `redis` crate's `ConnectionManager` never reconnects when commands time out, and blocks for seconds while the server is down. Here
//! every call has a deadline, and a silent connection is replaced: the next caller starts the new connection, in a task on its runtime.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock::{Deadline, Drift, Moment};
use crate::endpoint::Endpoint;
use crate::failure::CallError;
use crate::fork::Origin;
use crate::mutex::Mutex;
use crate::wire::Wire;

mod again;
mod call;
mod connect;
mod health;
mod reader;
mod server_clock;
mod sharded;
mod user;

pub(crate) use again::Again;
pub use call::{Called, Outgoing};
use connect::Attempt;
use reader::Reader;
use server_clock::Drifting;
use sharded::Shard;
pub use user::{Anchor, Command, Events, Known, Purpose, Source};

/// What all connections of a client share.
#[derive(Clone)]
pub struct Common {
    /// How far the server's clock and this process's clock may drift apart.
    pub drift: Drift,
    /// A server that answers nothing for this long is silent.
    pub command_timeout: Duration,
    /// The time limit for making a connection.
    pub connect_timeout: Duration,
    /// Runs a task where nothing blocks.
    pub spawn: Spawn,
    /// Receives the events.
    pub events: Arc<dyn Events>,
}

/// The channel on which a server sends messages to this process.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The channel's name. In a cluster, the name of a sharded channel is followed by a number in braces.
    pub name: String,
    /// Whether tasks send on this connection, or else the background work.
    pub is_of_callers: bool,
}

/// Runs a task where nothing blocks.
pub type Spawn = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// One connection to a server, replaced when it breaks.
pub struct Link {
    this: Weak<Link>,
    endpoint: Endpoint,
    server: String,
    /// The channel that this connection subscribes to; `None` for a connection without pushes.
    channel: Option<Channel>,
    purpose: Arc<dyn Purpose>,
    /// The process that may use the connection. A forked child shares the socket, and would read the parent's replies.
    origin: Origin,
    /// Which keys live on this server; all of them if unset.
    own: OnceLock<Own>,
    common: Common,
    state: Mutex<State>,
    /// Notified when an attempt to connect has ended.
    attempted: Notify,
    generations: AtomicU64,
    /// How long the server took to answer when the connection was made, or much less than that since, in nanoseconds; 0 when unknown.
    round_trip: AtomicU64,
    /// What the user of the client notes about the server, one bit each.
    marks: AtomicU32,
    /// Whether `silence` may be set. Each reply reads this flag, without the lock.
    is_silent: AtomicBool,
    /// Whether the server has hash slots, so that all keys of a script must be in one slot.
    has_slots: AtomicBool,
    is_probing: AtomicBool,
}

/// Whether a key lives on the server.
pub(crate) type Own = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// A task's command went unanswered, and no task has had an answer since.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// When the first such command since the last answer was sent.
    since: Moment,
    /// How many answers had arrived by then, including those that no task reads.
    heard: u64,
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    /// Where the callers' connection is read.
    reader: Option<Reader>,
    silence: Option<Silence>,
    /// Since when attempts to connect fail.
    down_since: Option<Moment>,
    /// When the last connection was given up because it was silent.
    given_up: Option<Moment>,
    failed: Option<(Moment, CallError)>,
    /// Whether it was reported that no connection can be made.
    is_failure_told: bool,
    /// When the last connection broke.
    broke: Option<Moment>,
    clock: Option<Anchor>,
    drifting: Drifting,
    is_drift_told: bool,
    was_connected: bool,
    /// The attempts in progress, oldest first.
    attempts: Vec<Attempt>,
}

/// A connection that is ready. Each command has a reference to it.
pub struct Live {
    wire: Wire,
    made: Made,
    /// Whether the server reports changed keys on this connection.
    has_alarms: bool,
    /// For a connection to a node of a cluster.
    shard: Option<Shard>,
    _listening: Option<JoinSet<()>>,
    kept: Option<Arc<dyn Any + Send + Sync>>,
}

/// The state of the connection.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Whether there is a connection.
    pub is_connected: bool,
    /// Whether a command can be [arming](Outgoing::arming).
    pub has_alarms: bool,
}

/// Which connection it is, and since when.
#[derive(Clone, Copy)]
struct Made {
    generation: u64,
    at: Moment,
}

impl Link {
    /// A link to a server. It connects when it is first needed.
    pub fn new(endpoint: Endpoint, channel: Option<Channel>, purpose: Arc<dyn Purpose>, common: Common) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            server: endpoint.address(),
            endpoint,
            channel,
            purpose,
            origin: Origin::here(),
            own: OnceLock::new(),
            common,
            state: Mutex::default(),
            attempted: Notify::new(),
            generations: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
            marks: AtomicU32::new(0),
            is_silent: AtomicBool::new(false),
            has_slots: AtomicBool::new(false),
            is_probing: AtomicBool::new(false),
        })
    }

    /// The server's address for messages, without credentials.
    #[inline]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// How far the server's clock and this process's clock may drift apart.
    #[inline]
    pub fn drift(&self) -> Drift {
        self.common.drift
    }

    /// The time limit for a command.
    pub fn command_timeout(&self) -> Duration {
        self.common.command_timeout
    }

    /// Whether tasks send on this connection, rather than the background work.
    #[inline]
    pub fn is_of_callers(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.is_of_callers)
    }

    /// Limits pushes and interruptions to the keys on this server.
    pub(crate) fn restrict(&self, own: Own) {
        // The maker of the link calls this once.
        let _ = self.own.set(own);
    }

    pub(crate) fn is_one_of_several(&self) -> bool {
        self.own.get().is_some()
    }

    /// Whether `key` lives on this server, as far as is known.
    pub fn is_own(&self, key: &str) -> bool {
        self.own.get().is_none_or(|own| own(key))
    }

    /// Whether there is a connection.
    #[inline]
    pub fn is_connected(&self) -> bool {
        self.state.lock().live.is_some()
    }

    /// The state of the connection.
    #[inline]
    pub fn status(&self) -> Status {
        let live = &self.state.lock().live;
        Status { is_connected: live.is_some(), has_alarms: live.as_ref().is_some_and(|live| live.has_alarms) }
    }

    /// Connects if there is no connection. A connection was just seen to break or to be made elsewhere, so an earlier failed try says
    /// nothing any more.
    pub async fn connect_again(&self, deadline: Deadline) {
        self.state.lock().failed = None;
        // The next command reports why there is no connection.
        let _ = self.live(deadline).await;
    }

    /// The connection, and the deadline counted from when there is a connection. On an error nothing was sent.
    async fn live(&self, deadline: Deadline) -> Result<(Arc<Live>, Deadline), CallError> {
        if self.origin.is_inherited_at(deadline.start()) {
            return Err(CallError::Inherited);
        }
        let live = self.state.lock().live.clone();
        if let Some(live) = live {
            return Ok((live, deadline));
        }
        if self.origin.is_inherited() {
            return Err(CallError::Inherited);
        }
        // The deadline may count from an earlier step of the same verb, so only the rest of the time is left.
        let deadline = deadline.counted_from(Moment::now());
        // Boxed: otherwise every command's future would have room for a whole connection set-up. The box also hides the type: to see that
        // it is `Send`, a compiler would exceed its default recursion limit in each user's crate.
        let made: BoxFuture<'_, _> = Box::pin(self.made_live(deadline));
        Ok((made.await.map_err(CallError::before_sending)?, deadline.counted_from(Moment::now())))
    }

    /// Connects if there is no connection. Returns the deadline, counted from when there is a connection.
    pub async fn ready(&self, deadline: Deadline) -> Result<Deadline, CallError> {
        self.live(deadline).await.map(|(_, deadline)| deadline)
    }

    /// What was [kept](crate::Known::kept) about the connected server.
    pub fn known<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.state.lock().live.as_ref()?.kept.clone()?.downcast().ok()
    }

    /// The connection of `generation` broke: every task that waits for a push has to ask again.
    fn drop_connection(&self, generation: u64) {
        if self.leave(generation, true) {
            self.common.events.on_disconnected(self);
            self.interrupted();
        }
    }

    /// Leaves a connection that works but may lead to the wrong server.
    fn leave_connection(&self, generation: u64) {
        mutant!(ReadOnlyServerKept => return);
        if self.leave(generation, false) {
            self.interrupted();
        }
    }

    /// Returns whether it was still the current connection.
    fn leave(&self, generation: u64, is_broken: bool) -> bool {
        let left = {
            let mut state = self.state.lock();
            if state.live.as_ref().is_none_or(|live| live.made.generation != generation) {
                return false;
            }
            state.down_since = state.silence.take().map(|silence| silence.since);
            state.given_up = state.down_since.map(|_| Moment::now());
            if is_broken {
                state.broke.get_or_insert_with(Moment::now);
            }
            state.live.take()
        };
        if let Some(left) = left {
            left.wire.give_up();
        }
        true
    }

    /// Counts commands that a [`Command`](crate::Command) sends itself.
    #[inline]
    pub fn note_commands(&self, count: usize) {
        self.common.events.on_commands(count);
    }

    fn interrupted(&self) {
        self.common.events.on_interruption(&|key| self.is_own(key));
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.server).finish_non_exhaustive()
    }
}
