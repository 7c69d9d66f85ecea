//! [`Wire`]: one connection to a server, and the commands on their way.
//!
//! A task writes its commands into an output buffer and takes a place. A server replies in the order of the commands, so the next
//! reply is always for the first place. When nothing is on its way, the task hands the buffer to the socket itself. Else the driver
//! does that, after the tasks that can run now: what they send goes out in one write. The driver also reads, on the runtime on which
//! the connection was made. Pushes are taken in with the replies, in the order in which they come.
//!
//! A place whose task is gone swallows its reply. Its commands that were not handed to the socket by then are taken back, but for
//! releases.

use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::Waker;

use redis::{Cmd, ErrorKind, PushKind, RedisError, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::failure::CallError;
use crate::mutex::Mutex;

mod decode;
mod driver;
pub(crate) mod encode;
mod output;
mod places;
mod releases;
mod sender;
mod socket;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
mod watch;

use driver::Driver;
pub(crate) use encode::Delete;
use output::Output;
use places::{Aftermath, Places};
pub(crate) use releases::LoneRelease;
pub(crate) use sender::{Sender, Sending};
pub(crate) use socket::{Peer, Socket, Trust};
pub(crate) use watch::Watch;
use watch::Watched;

/// How many replies are to come before one more task has to wait with its command.
const IN_FLIGHT: usize = 4096;

/// Takes in what a server sends that is no reply.
pub(crate) trait Hear: Send + Sync + 'static {
    fn on_push(&self, kind: &PushKind, data: &[Value]);

    /// No more pushes come.
    fn on_ended(&self) {}
}

/// For a connection on which nothing is pushed that matters.
impl Hear for () {
    fn on_push(&self, _: &PushKind, _: &[Value]) {}
}

/// A connection. Clones share it, and it is closed with the last of them.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Handle>);

/// Closes the connection when it is dropped.
struct Handle(Arc<Shared>);

/// What the driver and the tasks share.
struct Shared {
    state: Mutex<State>,
    /// There is room for another command.
    has_room: Notify,
    /// Whether the driver is to read all that has come, and to tell.
    is_to_read: AtomicBool,
    /// The driver has done so.
    has_read: Notify,
}

struct State {
    output: Output,
    places: Places,
    watched: Watched,
    /// Wakes the driver; `None` before it runs for the first time.
    driver: Option<Waker>,
    /// Whether the driver was woken for the output.
    is_called: bool,
    /// Whether a task waits for room.
    is_full: bool,
    /// Whether the last [`Wire`] is gone.
    is_left: bool,
    ended: Option<Ended>,
}

/// Why a connection has ended.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    Io(Arc<io::Error>),
    /// What came does not follow the protocol.
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
pub(crate) enum NoReply {
    Ended(Ended),
    /// It did not come in time.
    Overdue,
}

impl From<NoReply> for RedisError {
    fn from(error: NoReply) -> Self {
        match error {
            NoReply::Ended(ended) => ended.into(),
            NoReply::Overdue => io::Error::from(io::ErrorKind::TimedOut).into(),
        }
    }
}

impl From<NoReply> for CallError {
    fn from(error: NoReply) -> Self {
        RedisError::from(error).into()
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
    /// A connection over `socket`, which a task on the caller's runtime drives.
    pub(crate) fn over(socket: Socket, hear: impl Hear) -> Self {
        let state = State {
            output: Output::to(socket.writer),
            places: Places::default(),
            watched: Watched::default(),
            driver: None,
            is_called: false,
            is_full: false,
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

    /// How many replies have come that nobody waited for any more.
    pub(crate) fn unread_replies(&self) -> u64 {
        self.0.0.lock().places.unread()
    }

    /// Sends commands whose replies have to come by then; `None` for no end.
    pub(crate) fn until(&self, by: Option<Instant>) -> Sender<'_> {
        Sender::new(&self.0.0, by)
    }

    /// What ends the waits for replies that do not come in time. It has to run somewhere.
    pub(crate) fn watch(&self) -> Watch {
        Watch::new(&self.0.0)
    }

    /// Sends a command behind all that were sent before, and waits for nothing. It is not sent when there is no room. When the
    /// connection ends before the command is answered, `on_lost` is called.
    pub(crate) fn send_unread(&self, command: &Cmd, on_lost: impl FnOnce() + Send + 'static) {
        let mut state = self.0.0.lock();
        if state.ended.is_none() && state.has_room() {
            let is_first = state.is_idle();
            let bytes = state.output.write(|output| command.write_packed_command(output));
            state.places.take_unread(Box::new(on_lost), bytes);
            state.hand_over(is_first);
        }
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
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    async fn await_room(&self) {
        // This comes before the look, so that no change is missed.
        let freed = pin!(self.has_room.notified());
        if !self.lock().has_room() {
            freed.await;
        }
    }

    /// Waits until the driver has read all that has come by now.
    async fn read_all(&self) {
        // This comes before the driver is called, so that no change is missed.
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

    /// The connection has ended. `None` when that is known.
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
    /// Whether one more task may send. One that may not has to wait for room.
    fn has_room(&mut self) -> bool {
        let has_room = self.places.to_come() < IN_FLIGHT;
        self.is_full |= !has_room;
        has_room
    }

    /// Whether tasks wait for room, and there is some. They are to be told.
    fn has_room_again(&mut self) -> bool {
        let has_room_again = self.is_full && self.has_room();
        if has_room_again {
            self.is_full = false;
        }
        has_room_again
    }

    /// Whether nothing is on its way.
    fn is_idle(&self) -> bool {
        self.places.to_come() == 0 && self.output.is_flushed()
    }

    /// Hands the output to the socket when it `is_first`, and to the driver else.
    fn hand_over(&mut self, is_first: bool) {
        if is_first && let Some(driver) = self.driver.take() {
            // What goes wrong here goes wrong for the driver as well, which ends the connection.
            let _ = self.flush(&driver);
            self.driver = Some(driver);
        }
        if !self.output.is_flushed() {
            self.call_driver();
        }
    }

    fn flush(&mut self, driver: &Waker) -> io::Result<()> {
        if !self.output.releases.is_empty() {
            self.write_releases();
        }
        self.output.flush(driver)
    }

    fn write_releases(&mut self) {
        let (places, bytes) = self.output.write_releases();
        self.places.expect_together(places, bytes);
    }

    /// Nobody waits for the replies any more. What is not with the socket need not go there.
    fn leave(&mut self, place: usize) {
        if let Some((before_end, count)) = self.places.leave(place, self.output.unsent()) {
            self.output.take_back(before_end, count);
        }
    }

    fn call_driver(&mut self) {
        if let Some(driver) = self.driver.as_ref().filter(|_| !self.is_called) {
            driver.wake_by_ref();
            self.is_called = true;
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}
