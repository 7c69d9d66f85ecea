//! [`Link`]: one connection to the server, replaced when it breaks.
//!
//! The `redis` crate's `ConnectionManager` never reconnects when commands time out, and blocks for seconds while the server is
//! down. Here every call has a deadline, and a connection that stays silent is replaced. The next caller begins to make the new
//! connection, in a task on the caller's runtime.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::super::Connection;
use super::endpoint::Endpoint;
use super::failure::CallError;
use super::push::Message;
use super::replicas::Replicas;
use super::vote::Vote;
use super::wire::Wire;
use crate::clock::{Deadline, Drift, Moment};
use crate::fork::Origin;
use crate::mutex::Mutex;
use crate::observe;
use crate::settings::Settings;
use crate::store::server_age::Sighting;
use crate::store::{Anchor, Events, StoreError, Traffic};

mod again;
mod call;
mod called;
mod channel;
mod connect;
mod drifting;
mod known;
mod outage;
mod reader;
mod receiver;
mod server_clock;
mod sharded;
mod silence;

pub(super) use again::Again;
pub(super) use called::{Called, Outgoing};
pub(crate) use channel::Channel;
use connect::Attempt;
use drifting::Drifting;
use reader::Reader;
use sharded::Shard;

/// What all connections of a manager have in common.
#[derive(Clone)]
pub(crate) struct Common {
    /// How far the server's clock and this process's clock may drift apart.
    pub(crate) drift: Drift,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) spawn: Spawn,
}

impl Common {
    /// What the connections need in the background is run by `spawn`.
    pub(crate) fn new(settings: &Settings, spawn: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static) -> Self {
        let Settings { command_timeout, connect_timeout, .. } = *settings;
        Self { drift: settings.drift(), command_timeout, connect_timeout, spawn: Arc::new(spawn) }
    }
}

/// Has a task run where nothing blocks.
type Spawn = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

pub(crate) struct Link {
    this: Weak<Link>,
    endpoint: Endpoint,
    server: String,
    /// What this connection hears; `None` for a connection without pushes.
    channel: Option<Channel>,
    /// The replicas that have to confirm a grant.
    pub(super) replicas: Option<Replicas>,
    /// On a server of a quorum, the longest lease that it may have forgotten in a restart.
    max_lease: Option<Duration>,
    /// Since when the server process there has been known.
    sighting: Sighting,
    /// The process that may use the connection. A forked child has the same socket, and would read the parent's replies.
    origin: Origin,
    /// How far the server's clock and this process's clock may drift apart.
    pub(super) drift: Drift,
    events: OnceLock<Weak<dyn Events>>,
    /// Where commands are counted.
    traffic: OnceLock<Arc<Traffic>>,
    /// Which locks live on this server; all when it is not set.
    own: OnceLock<Own>,
    command_timeout: Duration,
    connect_timeout: Duration,
    spawn: Spawn,
    state: Mutex<State>,
    /// An attempt to connect has ended.
    attempted: Notify,
    generations: AtomicU64,
    /// How long the server took to answer when the connection was made, or much less than that since, in nanoseconds; 0 when that
    /// is not known.
    round_trip: AtomicU64,
    /// The scripts whose text was sent on this connection, a bit for each.
    scripts: AtomicU32,
    /// The command by which the server deletes a lock that it has compared, as a number: see `known`.
    delete: AtomicU8,
    /// Whether `silence` may be set. Each reply reads this flag, without the lock.
    is_silent: AtomicBool,
    /// Whether the server has hash slots, so that a script may use the keys of one lock only.
    has_slots: AtomicBool,
    is_probing: AtomicBool,
}

/// Whether a lock lives on the server.
pub(super) type Own = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// No command was answered to who sent it.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// When the first such command was sent since the last answer.
    since: Moment,
    /// How many answers had come by then, also those that nobody read.
    heard: u64,
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    /// Who reads the callers' connection.
    reader: Option<Reader>,
    silence: Option<Silence>,
    /// Since when attempts to connect fail.
    down_since: Option<Moment>,
    /// When the last connection was given up for its silence.
    given_up: Option<Moment>,
    failed: Option<(Moment, CallError)>,
    /// Whether it was told that no connection can be made.
    is_failure_told: bool,
    /// When the last connection broke.
    broke: Option<Moment>,
    clock: Option<Anchor>,
    drifting: Drifting,
    is_drift_told: bool,
    was_connected: bool,
    /// The attempts that are under way, the oldest first.
    attempts: Vec<Attempt>,
}

/// A connection that is ready. Each command has a reference to it.
pub(crate) struct Live {
    wire: Wire,
    pub(super) made: Made,
    /// Whether the server tells of changed keys on this connection.
    has_alarms: bool,
    /// On a connection to a node of a cluster.
    shard: Option<Shard>,
    _listening: Option<JoinSet<()>>,
    pub(super) vote: Option<Arc<Vote>>,
}

/// Which connection it is, and since when.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) generation: u64,
    at: Moment,
}

impl Link {
    pub(crate) fn new(
        endpoint: Endpoint,
        channel: Option<Channel>,
        replicas: Option<Replicas>,
        max_lease: Option<Duration>,
        Common { drift, command_timeout, connect_timeout, spawn }: Common,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            server: endpoint.address(),
            endpoint,
            channel,
            replicas,
            max_lease,
            sighting: Sighting::default(),
            origin: Origin::here(),
            drift,
            events: OnceLock::new(),
            traffic: OnceLock::new(),
            own: OnceLock::new(),
            command_timeout,
            connect_timeout,
            spawn,
            state: Mutex::default(),
            attempted: Notify::new(),
            generations: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
            scripts: AtomicU32::new(0),
            delete: AtomicU8::new(0),
            is_silent: AtomicBool::new(false),
            has_slots: AtomicBool::new(false),
            is_probing: AtomicBool::new(false),
        })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// The error of one of several locks, with the name of the server that says it.
    pub(super) fn name(&self, error: StoreError) -> StoreError {
        StoreError { problem: error.problem.of(&self.server), ..error }
    }

    pub(super) fn attach(&self, events: Weak<dyn Events>) {
        // The engine of the link attaches itself once.
        if let Some(events) = events.upgrade() {
            let _ = self.traffic.set(events.traffic());
        }
        let _ = self.events.set(events);
    }

    /// Limits pushes and interruptions to the locks that live on this server.
    pub(super) fn restrict(&self, own: Own) {
        // The maker of the link calls this once.
        let _ = self.own.set(own);
    }

    fn is_own(&self, key: &str) -> bool {
        self.own.get().is_none_or(|own| own(key))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state.lock().live.is_some()
    }

    pub(super) fn connection(&self) -> Connection {
        let live = &self.state.lock().live;
        let is_connected = live.is_some();
        Connection {
            round_trip: self.round_trip(),
            is_cut_off: !is_connected,
            hears: is_connected,
            has_alarms: live.as_ref().is_some_and(|live| live.has_alarms),
        }
    }

    /// Connects when there is no connection. Somebody else has seen a connection break or be made just now: that a try failed before
    /// says nothing any more.
    pub(super) async fn connect_again(&self, deadline: Deadline) {
        self.state.lock().failed = None;
        // The next command reports why there is no connection.
        let _ = self.live(deadline).await;
    }

    /// Takes in a message that came on the connection of `generation`.
    pub(super) fn dispatch(&self, message: Message<'_>, generation: u64) {
        let Some(events) = self.events() else {
            return;
        };
        match message {
            // A message reaches all servers of a cluster. Only the copy from the lock's own server counts.
            Message::Grant(key, _) | Message::Wait(key) | Message::Near(key, _) | Message::Forced(key, _)
                if !self.is_own(key) => {}
            Message::Grant(key, mut pushed) => {
                // In a cluster a server may count no subscriber here, pass the lock on, and the message arrives all the same: by
                // another node. Only a message of the very node that this connection leads to was counted there (rule 16).
                let is_counted = || pushed.node.is_some_and(|sender| self.leads_to(sender, generation));
                pushed.unconfirmed = self.replicas.is_some() || (self.own.get().is_some() && !is_counted());
                events.on_grant(key, &pushed);
            }
            Message::Wait(key) => events.on_contention(key),
            Message::Near(key, store_micros) => events.on_near(key, store_micros),
            Message::Forced(key, token) => events.on_forced(key, &token),
            Message::Alarm(key) => events.on_alarm(key),
        }
    }

    /// The connection, and the deadline counted from when there is a connection. An error says that nothing was sent.
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
        // Boxed: otherwise every command's future would have room for a whole connection set-up. The box also hides the
        // type: to see that it is `Send`, a compiler would exceed its default recursion limit in each user's crate.
        let made: BoxFuture<'_, _> = Box::pin(self.made_live(deadline));
        Ok((made.await.map_err(CallError::before_sending)?, deadline.counted_from(Moment::now())))
    }

    /// Connects if there is no connection. Returns the deadline, counted from when there is a connection.
    pub(super) async fn ready(&self, deadline: Deadline) -> Result<Deadline, CallError> {
        self.live(deadline).await.map(|(_, deadline)| deadline)
    }

    /// The vote of the server that is connected.
    pub(super) fn live_vote(&self) -> Option<Arc<Vote>> {
        self.state.lock().live.as_ref()?.vote.clone()
    }

    /// The connection of `generation` broke. Everybody who waits for a push has to ask again.
    pub(super) fn drop_connection(&self, generation: u64) {
        if self.leave(generation, true) {
            observe::disconnected(&self.server, self.is_of_callers());
            self.interrupted();
        }
    }

    /// The same of a connection that works, and may lead to the wrong server.
    fn leave_connection(&self, generation: u64) {
        mutant!(ReadOnlyServerKept => return);
        if self.leave(generation, false) {
            self.interrupted();
        }
    }

    /// Returns whether it was still the connection.
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

    /// Whom this tells of what happens here.
    pub(super) fn events(&self) -> Option<Arc<dyn Events>> {
        self.events.get().and_then(Weak::upgrade)
    }

    fn note_commands(&self, count: usize) {
        if let Some(traffic) = self.traffic.get() {
            traffic.note_commands(count);
        }
    }

    fn interrupted(&self) {
        if let Some(events) = self.events() {
            events.on_interruption(&|key| self.is_own(key));
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.server).finish_non_exhaustive()
    }
}
