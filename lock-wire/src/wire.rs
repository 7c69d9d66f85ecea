//! [`Wire`]: one connection to a server, and the commands in flight.
//!
//! A task writes its commands into an output buffer and takes a place. A server replies in the order of the commands, so the next reply is
//! always for the first place. When nothing is in flight, the task hands the buffer to the socket itself. Otherwise the driver does, after
//! all tasks that can run now have run, so what they send goes out in one write. The driver also reads, on the runtime on which the
//! connection was made. It handles pushes and replies in the order in which they arrive.
//!
//! When a task is gone, its place swallows its reply. Its commands that were not handed to the socket yet are taken back, except those that
//! are [kept](Merge::is_kept).
//!
//! While too many replies are outstanding, or the socket is full, nothing is begun: such a command is not sent, and its task waits until
//! there is room (`Wire::room`). What ends or renews something is always sent.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::task::Waker;
use std::time::Duration;

use redis::{Cmd, ErrorKind, PushKind, RedisError, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::failure::CallError;
use crate::mutex::Mutex;

mod credentials;
mod decode;
mod driver;
pub mod encode;
mod group;
mod output;
mod places;
mod sender;
mod socket;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod watch;

pub use credentials::{Credentials, Follower, Login, Provider};
#[cfg(test)]
pub(crate) use decode::tests::value;
pub use decode::{integer, text};
use driver::Driver;
pub use group::{Columns, Grouped};
use output::Output;
pub use places::Merge;
pub(crate) use places::Patience;
use places::{Aftermath, Leaving, MANY, Places};
pub use sender::{LAST_LOOK, Sender, Sent};
pub(crate) use socket::Peer;
pub use socket::{Socket, Trust};
pub(crate) use watch::Watch;
use watch::Watched;

/// At first this many replies to commands that begin something may be outstanding before another task has to wait. The number doubles while
/// replies are fast, and halves when they are late: more would not be answered sooner.
const IN_FLIGHT: usize = 256;
const LEAST_IN_FLIGHT: usize = 2 * MANY;
/// Enough for a nearby server.
const MOST_IN_FLIGHT: usize = 1024;
/// This many more for each millisecond of round trip: a server answers at least that many in this time. But there is an upper limit.
const MORE_PER_MILLISECOND: usize = 80;
const MOST_IN_FLIGHT_FROM_AFAR: usize = 4096;
/// A reply that takes longer than this plus two round trips to reach its task is late: much sooner than a claim ends.
const LATE: Duration = Duration::from_millis(200);
/// While tasks wait for room, check this often whether a woken one has not been polled: then wake the next one.
const CALLED_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Handles what a server sends that is not a reply.
pub(crate) trait Hear: Send + Sync + 'static {
    fn on_push(&self, kind: &PushKind, data: &[Value]);

    /// There will be no more pushes.
    fn on_ended(&self) {}
}

/// For a connection on which no push matters.
impl Hear for () {
    fn on_push(&self, _: &PushKind, _: &[Value]) {}
}

/// A connection. Clones share it, and dropping the last one closes it.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Handle>);

/// A reference that does not keep the connection.
pub(crate) struct WeakWire(Weak<Handle>);

/// Closes the connection when dropped.
struct Handle(Arc<Shared>);

/// What the driver and the tasks share.
struct Shared {
    state: Mutex<State>,
    /// Wakes the tasks that wait for room, in the order of arrival.
    has_room: Notify,
    /// Whether the driver is to read everything that has arrived, and then notify `has_read`.
    is_to_read: AtomicBool,
    /// The driver has done so.
    has_read: Notify,
}

struct State {
    output: Output,
    places: Places,
    watched: Watched,
    /// Wakes the driver; `None` before its first poll.
    driver: Option<Waker>,
    /// Whether the driver was woken for the output.
    is_called: bool,
    /// How many replies to commands that begin something may be outstanding.
    most: usize,
    /// The upper limit of `most`, and when a reply is late: both depend on the server's distance.
    limit: (usize, Duration),
    /// How many tasks wait for room.
    waiting: usize,
    /// How many of them were woken and not polled yet.
    called: usize,
    /// Whether nothing more is begun on this connection, because another replaces it.
    is_given_up: bool,
    /// Whether the last [`Wire`] is gone.
    is_left: bool,
    ended: Option<Ended>,
}

/// Why a connection has ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// The socket failed, or was closed.
    Io(Arc<io::Error>),
    /// What was read does not follow the protocol.
    Malformed,
}

impl Ended {
    fn by_close() -> Self {
        Self::from(io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// Why there is no reply.
#[derive(Debug)]
pub enum NoReply {
    /// The connection has ended.
    Ended(Ended),
    /// The reply did not arrive in time.
    Overdue {
        /// Whether no other reply arrived either since the command was sent.
        is_silent: bool,
    },
    /// The command was not sent, because too many others are in flight.
    NoRoom,
}

impl From<NoReply> for RedisError {
    fn from(error: NoReply) -> Self {
        match error {
            NoReply::Ended(ended) => ended.into(),
            NoReply::Overdue { .. } => io::Error::from(io::ErrorKind::TimedOut).into(),
            NoReply::NoRoom => io::Error::from(io::ErrorKind::WouldBlock).into(),
        }
    }
}

impl From<NoReply> for CallError {
    fn from(error: NoReply) -> Self {
        match error {
            NoReply::NoRoom => Self::NoRoom,
            error => RedisError::from(error).into(),
        }
    }
}

impl From<Ended> for RedisError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Io(error) => io::Error::new(error.kind(), error.to_string()).into(),
            Ended::Malformed => (ErrorKind::Parse, "what was read does not follow RESP3").into(),
        }
    }
}

impl Wire {
    /// A connection over `socket`, driven by a task on the caller's runtime.
    pub(crate) fn over(socket: Socket, hear: impl Hear) -> Self {
        let state = State {
            output: Output::to(socket.writer),
            places: Places::default(),
            watched: Watched::default(),
            driver: None,
            is_called: false,
            most: IN_FLIGHT,
            limit: (MOST_IN_FLIGHT, LATE),
            waiting: 0,
            called: 0,
            is_given_up: false,
            is_left: false,
            ended: None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            has_room: Notify::new(),
            is_to_read: AtomicBool::new(false),
            has_read: Notify::new(),
        });
        tokio::spawn(Driver::new(Arc::clone(&shared), socket.reader, Box::new(hear)));
        Self(Arc::new(Handle(shared)))
    }

    pub(crate) fn downgrade(&self) -> WeakWire {
        WeakWire(Arc::downgrade(&self.0))
    }

    /// How many replies have arrived.
    pub(crate) fn heard(&self) -> u64 {
        self.0.0.lock().places.heard()
    }

    /// How long a reply now takes to reach its task. Zero while few are outstanding.
    pub(crate) fn lag(&self) -> Duration {
        self.0.0.lock().places.lag()
    }

    /// Sets the limits for a server at this distance.
    pub(crate) fn make_room_for(&self, round_trip: Duration) {
        let way = usize::try_from(round_trip.as_millis()).unwrap_or(MOST_IN_FLIGHT_FROM_AFAR);
        let most =
            way.saturating_mul(MORE_PER_MILLISECOND).saturating_add(MOST_IN_FLIGHT).min(MOST_IN_FLIGHT_FROM_AFAR);
        #[cfg(any(test, feature = "simulation"))]
        let most = crate::simulation::room().unwrap_or(most);
        let mut state = self.0.0.lock();
        state.limit = (most, LATE + round_trip * 2);
        state.most = state.most.min(most);
    }

    /// A sender whose replies are awaited with this patience; `None` for no limit.
    #[inline]
    pub(crate) fn until(&self, by: Option<Patience>) -> Sender<'_> {
        Sender::new(&self.0.0, by)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.0.lock().waiting > 0
    }

    /// Another connection replaces this one, so tasks stop waiting for room here.
    pub(crate) fn give_up(&self) {
        mutant!(RoomOfFormerConnection => return);
        self.0.0.lock().is_given_up = true;
        self.0.0.has_room.notify_waiters();
    }

    /// Resolves when something may be begun, or the connection is of no use any more. Tasks are woken in the order of arrival.
    #[inline]
    pub(crate) async fn room(&self) {
        let shared = &self.0.0;
        let mut waiting = None;
        loop {
            // Register before looking, so that no wake-up is missed.
            let mut called = pin!(shared.has_room.notified());
            called.as_mut().enable();
            {
                let mut state = shared.lock();
                if waiting.is_some() {
                    state.called = state.called.saturating_sub(1);
                }
                if state.is_given_up || state.ended.is_some() || state.has_room() {
                    return;
                }
                waiting.get_or_insert_with(|| Waiting::begin(shared, &mut state));
            }
            called.await;
        }
    }

    /// The future that ends overdue waits for replies. The caller has to run it.
    pub(crate) fn watch(&self) -> Watch {
        Watch::new(&self.0.0)
    }

    /// Sends a command behind all earlier ones, without waiting. It is not sent when there is no room. If the connection ends before the
    /// command is answered, `on_lost` is called.
    pub(crate) fn send_unread(&self, command: &Cmd, on_lost: impl FnOnce() + Send + 'static) {
        let mut state = self.0.0.lock();
        if state.ended.is_none() && state.room() > 0 {
            let is_first = state.is_idle();
            let bytes = state.output.write(|output| command.write_packed_command(output));
            state.places.take_unread(Box::new(on_lost), bytes);
            state.hand_over(is_first);
        }
    }
}

impl WeakWire {
    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn upgrade(&self) -> Option<Wire> {
        self.0.upgrade().map(Wire)
    }
}

struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn begin(shared: &'a Shared, state: &mut State) -> Self {
        state.waiting += 1;
        state.watched.expect(Instant::now() + CALLED_AGAIN_AFTER);
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.waiting -= 1;
        state.called = state.called.min(state.waiting);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_left = true;
        state.call_driver();
        state.watched.wake();
    }
}

impl Shared {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Wakes this many tasks that wait for room.
    fn call_for_room(&self, calls: usize) {
        for _ in 0..calls {
            self.has_room.notify_one();
        }
    }

    /// Waits until the driver has read everything that has arrived by now.
    async fn read_all(&self) {
        // Register before waking the driver, so that no change is missed.
        let has_read = pin!(self.has_read.notified());
        self.is_to_read.store(true, Ordering::Relaxed);
        let driver = {
            let state = self.lock();
            if state.ended.is_some() {
                return;
            }
            state.driver.clone()
        };
        driver.into_iter().for_each(Waker::wake);
        has_read.await;
    }

    /// Marks the connection as ended. `None` if it was already.
    fn end(&self, ended: &Ended) -> Option<Aftermath> {
        let mut state = self.lock();
        if state.ended.is_some() {
            return None;
        }
        state.ended = Some(ended.clone());
        let (output, aftermath) = (std::mem::take(&mut state.output), state.places.end(ended));
        state.watched.wake();
        drop(state);
        drop(output);
        self.has_room.notify_waiters();
        self.has_read.notify_waiters();
        Some(aftermath)
    }
}

impl State {
    /// How many more commands may begin something.
    fn room(&self) -> usize {
        if self.output.is_large() { 0 } else { self.most.saturating_sub(self.places.beginnings()) }
    }

    /// Adjusts the room to how long a reply now takes to reach its task.
    fn fit_room(&mut self) {
        let Some(lag) = self.places.take_measured() else { return };
        let (limit, late) = self.limit;
        if lag > late {
            self.most = (self.most / 2).max(LEAST_IN_FLIGHT);
        } else if lag < late / 2 {
            self.most *= 2;
        }
        self.most = self.most.min(limit);
    }

    /// Whether one more command may begin something, besides those of the tasks that were woken.
    #[inline]
    fn has_room(&self) -> bool {
        self.room() > self.called
    }

    /// How many waiting tasks to wake now; notes them as woken.
    fn call_waiting(&mut self) -> usize {
        if self.waiting <= self.called {
            return 0;
        }
        let calls = self.room().min(self.waiting).saturating_sub(self.called);
        self.called += calls;
        calls
    }

    /// Like [`call_waiting`](Self::call_waiting), also in place of tasks that were woken and not polled.
    fn call_waiting_again(&mut self) -> usize {
        mutant!(CalledForRoomOnce => return self.call_waiting());
        self.called = 0;
        self.call_waiting()
    }

    /// Whether nothing is in flight.
    #[inline]
    fn is_idle(&self) -> bool {
        self.places.to_come() == 0 && self.output.is_flushed()
    }

    /// Hands the output to the socket if it `is_first`, or large. Otherwise the driver does.
    #[inline]
    fn hand_over(&mut self, is_first: bool) {
        if (is_first || self.output.is_large())
            && let Some(driver) = self.driver.take()
        {
            // The driver gets the same error, and ends the connection.
            let _ = self.flush(&driver);
            self.driver = Some(driver);
        }
        if !self.output.is_flushed() {
            self.call_driver();
        }
    }

    #[inline]
    fn flush(&mut self, driver: &Waker) -> io::Result<()> {
        if !self.output.group.is_empty() {
            self.write_group();
        }
        self.output.flush(driver)
    }

    fn write_group(&mut self) {
        if let (Some(members), bytes) = self.output.write_group() {
            self.places.expect_group(members, bytes);
        }
    }

    /// The task no longer waits for its replies. What the socket does not have yet need not be sent.
    #[must_use = "it is dropped without the mutex"]
    fn leave(&mut self, place: usize) -> Leaving {
        let left = self.places.leave(place, self.output.unsent());
        if let Some((before_end, count)) = left.unsent {
            self.output.take_back(before_end, count);
        }
        left
    }

    #[inline]
    fn call_driver(&mut self) {
        if let Some(driver) = self.driver.as_ref().filter(|_| !self.is_called) {
            driver.wake_by_ref();
            self.is_called = true;
        }
    }
}
