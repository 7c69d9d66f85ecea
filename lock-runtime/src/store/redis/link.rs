//! [`Link`]: one connection to the server, made anew when it breaks.
//!
//! Not the `redis` crate's `ConnectionManager`: that one never reconnects when commands time out, and blocks for
//! seconds while the server is down. Here every call has a deadline, a connection that stays silent is replaced, and
//! whoever needs a connection next begins to make it, in a task on the runtime it runs on.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::endpoint::Endpoint;
use super::failure::CallError;
use super::push::Message;
use super::replicas::Replicas;
use super::reply;
use super::vote::Vote;
use crate::clock::{Deadline, Drift, Moment};
use crate::fork::Origin;
use crate::observe;
use crate::store::server_age::Sighting;
use crate::store::{Anchor, Events};

mod called;
mod connect;
mod drifting;
mod known;
mod probe;
mod receiver;
mod server_clock;

pub(super) use called::Called;
use called::InFlight;
use connect::Attempt;
use drifting::Drifting;

/// A server that only waits for something is left for another one at most this often.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Link {
    this: Weak<Link>,
    endpoint: Endpoint,
    server: String,
    /// Whose channel to listen on; `None` for a connection without pushes.
    process: Option<String>,
    /// Who has to confirm a grant.
    pub(super) replicas: Option<Replicas>,
    /// On a server of a quorum, the longest lease that it may have forgotten in a restart.
    max_lease: Option<Duration>,
    /// Since when the server process there has been known.
    sighting: Sighting,
    /// The process that may use the connection. A child has the same socket, and would take the parent's replies.
    origin: Origin,
    /// How the server's clock and ours may run apart.
    pub(super) drift: Drift,
    events: OnceLock<Weak<dyn Events>>,
    /// Which locks live on this server; all when it is not set.
    own: OnceLock<Own>,
    command_timeout: Duration,
    connect_timeout: Duration,
    state: Mutex<State>,
    /// An attempt to connect has ended.
    attempted: Notify,
    generations: AtomicU64,
    /// How long the server took to answer when the connection was made, in nanoseconds; 0 when that is not known.
    round_trip: AtomicU64,
    /// The scripts that were sent by their text on this connection, a bit for each.
    scripts: AtomicU32,
    /// Whether `silent_since` may be set: looked at after each reply, without the lock.
    is_silent: AtomicBool,
    is_probing: AtomicBool,
    /// Commands on their way.
    in_flight: AtomicUsize,
}

/// Whether a lock lives on the server.
pub(super) type Own = Box<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    live: Option<Live>,
    /// When the oldest of the commands was sent that were all left unanswered since.
    silent_since: Option<Moment>,
    failed: Option<(Moment, CallError)>,
    clock: Option<Anchor>,
    drifting: Drifting,
    is_drift_told: bool,
    was_connected: bool,
    /// Under way, the oldest first.
    attempts: Vec<Attempt>,
}

#[derive(Clone)]
pub(crate) struct Live {
    connection: MultiplexedConnection,
    pub(super) made: Made,
    _listening: Option<Arc<JoinSet<()>>>,
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
        process: Option<&str>,
        replicas: Option<Replicas>,
        max_lease: Option<Duration>,
        drift: Drift,
        (command_timeout, connect_timeout): (Duration, Duration),
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            server: endpoint.address(),
            endpoint,
            process: process.map(str::to_owned),
            replicas,
            max_lease,
            sighting: Sighting::default(),
            origin: Origin::here(),
            drift,
            events: OnceLock::new(),
            own: OnceLock::new(),
            command_timeout,
            connect_timeout,
            state: Mutex::default(),
            attempted: Notify::new(),
            generations: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
            scripts: AtomicU32::new(0),
            is_silent: AtomicBool::new(false),
            is_probing: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
        })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn attach(&self, events: Weak<dyn Events>) {
        // Attached once, by the engine that the link was made for.
        let _ = self.events.set(events);
    }

    /// Has pushes and interruptions concern only the locks that live on this server.
    pub(super) fn restrict(&self, own: Own) {
        // Once, by whoever made the link.
        let _ = self.own.set(own);
    }

    fn is_own(&self, key: &str) -> bool {
        self.own.get().is_none_or(|own| own(key))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.locked().live.is_some()
    }

    /// Connects when there is no connection.
    pub(super) async fn connect_again(&self, deadline: Deadline) {
        // Whoever needs the connection is told why there is none.
        let _ = self.live(deadline).await;
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn dispatch(&self, message: Message<'_>) {
        let Some(events) = self.events.get().and_then(Weak::upgrade) else {
            return;
        };
        match message {
            // A message reaches all servers of a cluster: a copy that came by another one is left to the lock's own.
            Message::Grant(key, _) | Message::Wait(key) if !self.is_own(key) => {}
            Message::Grant(key, mut pushed) => {
                // In a cluster it may have come from a server that counts nobody here, and has passed the lock on.
                pushed.unconfirmed = self.replicas.is_some() || self.own.get().is_some();
                events.on_grant(key, &pushed);
            }
            Message::Wait(key) => events.on_contention(key),
        }
    }

    /// Sends a command and waits for its reply, until `by` or the command timeout.
    ///
    /// A connection that turns out to be broken (its runtime may be gone) is replaced and the command repeated, once:
    /// every command is idempotent for its token.
    ///
    /// Boxed: the client's future is more than a kilobyte, which every task that waits for a lock would have room for.
    pub(super) fn call(self: &Arc<Self>, command: Cmd, deadline: Deadline) -> BoxFuture<'_, Result<Called, CallError>> {
        Box::pin(async move {
            match self.send(&command, deadline).await {
                Err(CallError::Failed(error)) if error.is_io_error() => {
                    match self.send(&command, deadline.counted_from(Moment::now())).await {
                        Ok(called) => Ok(Called { repeated: true, ..called }),
                        Err(CallError::UnknownScript { .. }) => Err(CallError::UnknownScript { repeated: true }),
                        Err(error) => Err(error.after_sending()),
                    }
                }
                outcome => outcome,
            }
        })
    }

    async fn send(self: &Arc<Self>, command: &Cmd, deadline: Deadline) -> Result<Called, CallError> {
        let (mut live, deadline) = self.live(deadline).await?;
        let reply = live.connection.send_packed_command(command);
        let value = self.await_reply(live.made, deadline, reply).await?;
        let sent = mutant!(DeadlineFromReply => Moment::now(), deadline.start());
        Ok(Called { value, sent, repeated: false, live, link: Arc::clone(self) })
    }

    /// The connection, and the deadline counted from when there is one. Its error says that nothing was sent.
    async fn live(&self, deadline: Deadline) -> Result<(Live, Deadline), CallError> {
        if self.origin.is_inherited_at(deadline.start()) {
            return Err(CallError::Inherited);
        }
        let live = self.locked().live.clone();
        if let Some(live) = live {
            return Ok((live, deadline));
        }
        if self.origin.is_inherited() {
            return Err(CallError::Inherited);
        }
        // What is left: the deadline may count from an earlier step of the same verb.
        let deadline = deadline.counted_from(Moment::now());
        // Boxed: otherwise every command's future would have room for a whole connection set-up. Its type is hidden: to see
        // that it is `Send` a compiler would have to look deeper than it does by default, in each user's crate.
        let made: BoxFuture<'_, _> = Box::pin(self.made_live(deadline));
        Ok((made.await.map_err(CallError::before_sending)?, deadline.counted_from(Moment::now())))
    }

    /// Connects if there is no connection; returns the deadline counted from when there is one.
    pub(super) async fn ready(&self, deadline: Deadline) -> Result<Deadline, CallError> {
        self.live(deadline).await.map(|(_, deadline)| deadline)
    }

    /// Sends a command to a server that is about to take over its slot, and does what it is asked to meanwhile.
    pub(super) fn call_asking(
        self: &Arc<Self>,
        command: Cmd,
        deadline: Deadline,
    ) -> BoxFuture<'_, Result<Called, CallError>> {
        Box::pin(async move {
            let (mut live, deadline) = self.live(deadline).await?;
            let mut both = redis::pipe();
            // In one piece: it is for the very next command on this connection.
            both.cmd("ASKING").add_command(command);
            let replies = live.connection.send_packed_commands(&both, 0, 2);
            // When the one is refused, the other is only sent back to where it came from.
            let told = |asked, answer| if matches!(asked, Value::ServerError(_)) { asked } else { answer };
            let reply = async { Ok(replies.await?.into_iter().reduce(told).unwrap_or(Value::Nil)) };
            let value = self.await_reply(live.made, deadline, reply).await?;
            Ok(Called { value, sent: deadline.start(), repeated: false, live, link: Arc::clone(self) })
        })
    }

    /// Sends commands on the very connection of an earlier answer, which is not replaced if it breaks.
    pub(super) async fn call_on(
        &self,
        live: &Live,
        commands: &Pipeline,
        deadline: Deadline,
    ) -> Result<Vec<Value>, CallError> {
        let mut connection = live.connection.clone();
        let count = commands.len();
        let replies = async { connection.send_packed_commands(commands, 0, count).await.map(Value::Array) };
        match self.await_reply(live.made, deadline, replies).await? {
            Value::Array(values) => Ok(values),
            value => Ok(vec![value]),
        }
    }

    /// Waits for a reply, and draws the conclusions from it or from its absence.
    async fn await_reply(
        &self,
        made: Made,
        deadline: Deadline,
        reply: impl Future<Output = RedisResult<Value>>,
    ) -> Result<Value, CallError> {
        let limit = mutant!(EndlessCommand => Duration::from_hours(1), deadline.span().min(self.command_timeout));
        let sent = deadline.start();
        let in_flight = InFlight::new(self);
        let outcome = timeout_at(Deadline::new(sent, limit).on_timer(), reply).await;
        drop(in_flight);
        let Ok(reply) = outcome else {
            self.on_silence(made.generation, sent, limit);
            return Err(self.unanswered(limit));
        };
        self.on_reply();
        let reply = reply.and_then(Value::extract_error);
        let is_over = match &reply {
            Ok(value) => self.endpoint.moves() && self.is_reason_to_move(made, reply::caught(value)),
            Err(error) => error.is_io_error() || self.is_reason_to_move(made, error.code()),
        };
        if is_over {
            self.drop_connection(made.generation);
        }
        Ok(reply?)
    }

    /// Why there was no answer within a time.
    pub(super) fn unanswered(&self, limit: Duration) -> CallError {
        match &self.replicas {
            Some(replicas) if replicas.keep_waiting() => replicas.unconfirmed(limit),
            _ => CallError::Silent(limit),
        }
    }

    /// Whether a refusal with this code is a reason to look where the locks live now.
    fn is_reason_to_move(&self, made: Made, code: Option<&str>) -> bool {
        self.endpoint.moves()
            && match code {
                Some("READONLY" | "MASTERDOWN") => true,
                // Most often it is still the one, and has only started, or lost its replicas.
                Some("LOADING" | "NOREPLICAS") => made.at.elapsed() >= LOOK_PAUSE,
                _ => false,
            }
    }

    /// Finds out whether anything can still arrive; connects when there is no connection.
    pub(super) async fn heartbeat(self: &Arc<Self>, deadline: Deadline) {
        // An error reply is an answer too; conclusions are drawn from silence.
        let _ = self.call(redis::cmd("PING"), deadline).await;
    }

    /// Whether commands of several tasks are on their way.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 1
    }

    /// Hands a command to the connection behind all that was sent before, without waiting for anything. Without a
    /// connection, or with a full one, it is not sent.
    pub(super) fn send_behind(&self, command: &Cmd) {
        if self.origin.is_inherited() {
            return;
        }
        let Some(mut live) = self.locked().live.clone() else {
            return;
        };
        let mut sending = std::pin::pin!(live.connection.send_packed_command(command));
        // A command without a response is handed over at the first poll, when there is room.
        let _: Poll<_> = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }

    /// The vote of the server that is connected.
    pub(super) fn live_vote(&self) -> Option<Arc<Vote>> {
        self.locked().live.as_ref()?.vote.clone()
    }

    fn on_reply(&self) {
        if self.is_silent.load(Ordering::Relaxed) {
            self.is_silent.store(false, Ordering::Relaxed);
            self.locked().silent_since = None;
        }
    }

    /// A command went unanswered. After twice the command timeout without any answer the connection is given up:
    /// a server that is merely slow is not flooded with new connections, a dead connection is replaced soon.
    fn on_silence(&self, generation: u64, sent: Moment, limit: Duration) {
        let mut state = self.locked();
        if state.live.as_ref().is_none_or(|live| live.made.generation != generation) {
            return;
        }
        let since = *state.silent_since.get_or_insert(sent);
        self.is_silent.store(true, Ordering::Relaxed);
        drop(state);
        if since.elapsed() < self.command_timeout * 2 || mutant!(ConnectionNeverGivenUp) {
            return;
        }
        if self.was_cut_short(limit) { self.probe() } else { self.drop_connection(generation) }
    }

    /// Gives up the connection of `generation`; everybody who waits for a push is told to ask again.
    pub(super) fn drop_connection(&self, generation: u64) {
        let dropped = {
            let mut state = self.locked();
            if state.live.as_ref().is_none_or(|live| live.made.generation != generation) {
                return;
            }
            state.silent_since = None;
            state.live.take()
        };
        observe::disconnected(&self.server);
        self.interrupted();
        drop(dropped);
    }

    fn interrupted(&self) {
        if let Some(events) = self.events.get().and_then(Weak::upgrade) {
            events.on_interruption(&|key| self.is_own(key));
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.server).finish_non_exhaustive()
    }
}
