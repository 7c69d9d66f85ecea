//! [`Link`]: one connection to the server, made anew when it breaks.
//!
//! Not the `redis` crate's `ConnectionManager`: that one never reconnects when commands time out, and blocks for
//! seconds while the server is down. Here every call has a deadline, a connection that stays silent is replaced, and
//! whoever needs a connection next makes it, on the runtime it runs on.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Value};
use tokio::time::{timeout, timeout_at};

use super::endpoint::Endpoint;
use super::failure::CallError;
use super::push::{Message, Receiver};
use crate::clock::{Deadline, Moment};
use crate::observe;
use crate::store::{Anchor, Events};

/// A failed attempt to connect speaks for everybody who comes within this time.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Commands in flight before a sender has to wait; the crate's 50 makes a thousand tasks wait in turn.
const IN_FLIGHT: usize = 4096;
/// The oldest server with everything that the protocol uses (`SET … NX GET`, `PEXPIRE … GT`).
pub(super) const OLDEST: (u64, u64) = (7, 0);

pub(crate) struct Link {
    this: Weak<Link>,
    endpoint: Endpoint,
    server: String,
    /// Whose channel to listen on; `None` for a connection without pushes.
    process: Option<String>,
    events: OnceLock<Weak<dyn Events>>,
    command_timeout: Duration,
    connect_timeout: Duration,
    state: Mutex<State>,
    /// Held by whoever is connecting.
    connecting: tokio::sync::Mutex<()>,
    generations: AtomicU64,
    /// Whether `silent_since` may be set: looked at after each reply, without the lock.
    is_silent: AtomicBool,
    /// Commands on their way.
    in_flight: AtomicUsize,
}

#[derive(Default)]
struct State {
    live: Option<Live>,
    /// When the oldest of the commands was sent that were all left unanswered since.
    silent_since: Option<Moment>,
    failed: Option<(Moment, CallError)>,
    clock: Option<Anchor>,
    was_connected: bool,
}

#[derive(Clone)]
pub(crate) struct Live {
    connection: MultiplexedConnection,
    generation: u64,
}

impl Link {
    pub(crate) fn new(
        endpoint: Endpoint,
        process: Option<&str>,
        command_timeout: Duration,
        connect_timeout: Duration,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            server: endpoint.address(),
            endpoint,
            process: process.map(str::to_owned),
            events: OnceLock::new(),
            command_timeout,
            connect_timeout,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::new(()),
            generations: AtomicU64::new(0),
            is_silent: AtomicBool::new(false),
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

    fn locked(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, message: Message<'_>) {
        let Some(events) = self.events.get().and_then(Weak::upgrade) else {
            return;
        };
        match message {
            Message::Grant(key, pushed) => events.granted(key, &pushed),
            Message::Wait(key) => events.contended(key),
        }
    }

    /// Sends a command and waits for its reply, until `by` or the command timeout.
    ///
    /// A connection that turns out to be broken (its runtime may be gone) is replaced and the command repeated, once:
    /// every command is idempotent for its token.
    ///
    /// Boxed: the client's future is more than a kilobyte, which every task that waits for a lock would have room for.
    pub(super) fn call(&self, command: Cmd, by: Deadline) -> BoxFuture<'_, Result<Called, CallError>> {
        Box::pin(async move {
            match self.send(&command, by).await {
                Err(CallError::Failed(error)) if error.is_io_error() => {
                    let by = by.counted_from(Moment::now());
                    Ok(Called { repeated: true, ..self.send(&command, by).await? })
                }
                outcome => outcome,
            }
        })
    }

    async fn send(&self, command: &Cmd, by: Deadline) -> Result<Called, CallError> {
        let live = self.locked().live.clone();
        // Boxed: otherwise every command's future would have room for a whole connection set-up.
        let (mut live, by) = match live {
            Some(live) => (live, by),
            None => (Box::pin(self.made_live(by)).await?, by.counted_from(Moment::now())),
        };
        let limit = mutant!(EndlessCommand => Duration::from_hours(1), by.span().min(self.command_timeout));
        let sent = by.start();
        let in_flight = InFlight::new(self);
        let outcome =
            timeout_at(Deadline::new(sent, limit).on_timer(), live.connection.send_packed_command(command)).await;
        drop(in_flight);
        let Ok(reply) = outcome else {
            self.silence(live.generation, sent);
            return Err(CallError::Silent(limit));
        };
        self.heard();
        match reply.and_then(Value::extract_error) {
            Ok(value) => {
                let since = mutant!(DeadlineFromReply => Moment::now(), sent);
                Ok(Called { value, sent: since, repeated: false })
            }
            Err(error) => {
                if error.is_io_error() {
                    self.drop_connection(live.generation);
                }
                Err(CallError::from(error))
            }
        }
    }

    /// Whether commands of several tasks are on their way.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 1
    }

    /// Hands a command to the connection behind all that was sent before, without waiting for anything. Without a
    /// connection, or with a full one, it is not sent.
    pub(super) fn send_behind(&self, command: &Cmd) {
        let Some(mut live) = self.locked().live.clone() else {
            return;
        };
        let mut sending = std::pin::pin!(live.connection.send_packed_command(command));
        // A command without a response is handed over at the first poll, when there is room.
        let _: Poll<_> = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }

    fn heard(&self) {
        if self.is_silent.load(Ordering::Relaxed) {
            self.is_silent.store(false, Ordering::Relaxed);
            self.locked().silent_since = None;
        }
    }

    /// A command went unanswered. After twice the command timeout without any answer the connection is given up:
    /// a server that is merely slow is not flooded with new connections, a dead connection is replaced soon.
    fn silence(&self, generation: u64, sent: Moment) {
        let mut state = self.locked();
        if state.live.as_ref().is_none_or(|live| live.generation != generation) {
            return;
        }
        let since = *state.silent_since.get_or_insert(sent);
        self.is_silent.store(true, Ordering::Relaxed);
        drop(state);
        if since.elapsed() >= self.command_timeout * 2 && !mutant!(ConnectionNeverGivenUp) {
            self.drop_connection(generation);
        }
    }

    /// Gives up the connection of `generation`; everybody who waits for a push is told to ask again.
    pub(super) fn drop_connection(&self, generation: u64) {
        let dropped = {
            let mut state = self.locked();
            if state.live.as_ref().is_none_or(|live| live.generation != generation) {
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
            events.interrupted();
        }
    }

    /// Makes the connection.
    async fn made_live(&self, by: Deadline) -> Result<Live, CallError> {
        let limit = by.span().min(self.connect_timeout);
        match timeout(limit, self.connect()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallError::NoConnection(limit)),
        }
    }

    /// Connects, unless somebody else just did, or just failed to.
    pub(crate) async fn connect(&self) -> Result<Live, CallError> {
        let _connecting = self.connecting.lock().await;
        {
            let state = self.locked();
            if let Some(live) = state.live.clone() {
                return Ok(live);
            }
            if let Some((at, error)) = &state.failed
                && at.elapsed() < CONNECT_PAUSE
            {
                return Err(error.clone());
            }
        }
        let outcome = self.open().await;
        let mut state = self.locked();
        match &outcome {
            Ok(live) => {
                state.live = Some(live.clone());
                state.failed = None;
                state.silent_since = None;
                let again = std::mem::replace(&mut state.was_connected, true);
                drop(state);
                observe::connected(&self.server);
                if again {
                    // Whatever was asked for and held before may be gone: on this connection the answers are new.
                    self.interrupted();
                }
            }
            Err(error) => state.failed = Some((Moment::now(), error.clone())),
        }
        outcome
    }

    async fn open(&self) -> Result<Live, CallError> {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let config = AsyncConnectionConfig::new()
            // The calls' own deadlines are the only ones.
            .set_response_timeout(None)
            .set_connection_timeout(Some(self.connect_timeout))
            .set_pipeline_buffer_size(IN_FLIGHT)
            .set_push_sender(Receiver { link: Weak::clone(&self.this), generation });
        let of_setup = |error| CallError::of_setup(error, self.endpoint.is_tls());
        let mut connection = self.endpoint.connect(config).await.map_err(of_setup)?;
        let hello = connection
            .send_packed_command(&redis::cmd("HELLO"))
            .await
            .and_then(Value::extract_error)
            .map_err(of_setup)?;
        check_version(&hello)?;
        let sent = Moment::now();
        let time: (u64, u64) = redis::cmd("TIME").query_async(&mut connection).await?;
        self.learn(Anchor { sent, store_micros: time.0 * 1_000_000 + time.1 });
        if let Some(process) = &self.process {
            connection.subscribe(format!("cache_lock:{process}")).await?;
        }
        Ok(Live { connection, generation })
    }

    /// Remembers what the server's clock shows.
    pub(super) fn learn(&self, anchor: Anchor) {
        self.locked().clock = Some(anchor);
    }

    /// What the server's clock will show at `deadline`; at most a round trip too late.
    pub(super) fn store_micros_at(&self, deadline: Deadline) -> Option<u64> {
        let anchor = self.locked().clock?;
        let ahead = anchor.sent.elapsed() + deadline.remaining().min(Duration::from_hours(366 * 24));
        Some(anchor.store_micros + u64::try_from(ahead.as_micros()).ok()?)
    }
}

/// Reads the version out of the reply to `HELLO`.
fn check_version(hello: &Value) -> Result<(), CallError> {
    let field = |name: &str| {
        hello.as_map_iter()?.find_map(|(key, value)| {
            let is_it = super::text(key.clone())? == name;
            is_it.then(|| super::text(value.clone())).flatten()
        })
    };
    let (server, version) = (field("server").unwrap_or_default(), field("version").unwrap_or_default());
    let mut numbers = version.split('.').map_while(|number| number.parse::<u64>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= OLDEST {
        return Ok(());
    }
    Err(CallError::TooOld(format!("{} {version}", if server.is_empty() { "server" } else { &server })))
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Counts a command while it is on its way.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn new(link: &'a Link) -> Self {
        link.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(&link.in_flight)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A reply.
pub(super) struct Called {
    pub(super) value: Value,
    /// The instant before the command was sent.
    pub(super) sent: Moment,
    /// It was sent before, and took effect then or did not.
    pub(super) repeated: bool,
}
