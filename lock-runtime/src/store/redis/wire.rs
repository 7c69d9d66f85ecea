//! [`Wire`]: one connection to a server, and the commands on their way.
//!
//! A task writes its commands into an output buffer and takes a place. A server replies in the order of the commands, so the next
//! reply is always for the first place. When nothing is on its way, the task hands the buffer to the socket itself. Else the driver
//! does that, after the tasks that can run now: what they send goes out in one write. The driver also reads, on the runtime on which
//! the connection was made. Pushes are taken in with the replies, in the order in which they come.
//!
//! A place whose task is gone swallows its reply. Commands that were not handed to the socket by then are taken back.

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, ready};
use redis::{Cmd, ErrorKind, Pipeline, PushKind, RedisError, RedisResult, Value};
use tokio::sync::Notify;

use crate::mutex::Mutex;

mod decode;
mod driver;
pub(crate) mod encode;
mod output;
mod places;
mod releases;
mod socket;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;

use driver::Driver;
pub(crate) use encode::Delete;
use output::Output;
use places::{Aftermath, Places, Want};
pub(crate) use releases::LoneRelease;
pub(crate) use socket::{Peer, Socket, Trust};

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
}

struct State {
    output: Output,
    places: Places,
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
enum Ended {
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
            driver: None,
            is_called: false,
            is_full: false,
            is_left: false,
            ended: None,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), has_room: Notify::new() });
        tokio::spawn(Driver::new(Arc::clone(&shared), socket.reader, Box::new(hear)));
        Self(Arc::new(Handle(shared)))
    }

    /// How many replies have come that nobody waited for any more.
    pub(crate) fn unread_replies(&self) -> u64 {
        self.0.0.lock().places.unread()
    }

    /// Sends a command now; the future waits for its reply. An error reply is a value.
    pub(crate) fn send<'a>(&'a self, command: &'a Cmd) -> Sending<'a> {
        self.send_written(|output| command.write_packed_command(output))
    }

    /// The same for a command that `write` writes.
    pub(crate) fn send_written<'a>(&'a self, write: impl Fn(&mut Vec<u8>) + Send + 'a) -> Sending<'a> {
        self.send_for(Want::One, write)
    }

    /// Sends a command that `write` writes behind another, in one piece, and waits for both replies.
    pub(crate) fn send_behind<'a>(
        &'a self,
        first: &'a Cmd,
        write: impl Fn(&mut Vec<u8>) + Send + 'a,
    ) -> impl Future<Output = RedisResult<[Value; 2]>> + Send + 'a {
        let both = move |output: &mut Vec<u8>| {
            first.write_packed_command(output);
            write(output);
        };
        self.send_for(Want::List(2), both).map(|replies| {
            let replies = if let Value::Array(replies) = replies? { replies } else { Vec::new() };
            Ok(<[Value; 2]>::try_from(replies).unwrap_or_default())
        })
    }

    /// Sends commands in one piece, and waits for the replies to all of them.
    pub(crate) fn send_all<'a>(
        &'a self,
        commands: &'a Pipeline,
    ) -> impl Future<Output = RedisResult<Vec<Value>>> + Send + 'a {
        if commands.is_empty() {
            return Either::Left(ready(Ok(Vec::new())));
        }
        let write = |output: &mut Vec<u8>| commands.cmd_iter().for_each(|command| command.write_packed_command(output));
        Either::Right(self.send_for(Want::List(commands.len()), write).map(|replies| match replies? {
            Value::Array(replies) => Ok(replies),
            reply => Ok(vec![reply]),
        }))
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

    /// Releases a lock by `free.lua`, together with all that goes out in the same write. The reply is what the script says to this
    /// release alone. Calls `on_script` when the release is the first of those that go together.
    pub(crate) fn free<'a>(&'a self, release: LoneRelease<'a>, on_script: impl Fn() + Send + 'a) -> Sending<'a> {
        self.send_by(move |state| {
            if state.output.releases.is_empty() {
                on_script();
            }
            let is_first = state.is_idle() && !release.are_more;
            let place = state.places.take_for_later(Want::One);
            state.output.releases.add(release, place);
            if state.output.releases.is_full() {
                state.write_releases();
            }
            state.hand_over(is_first);
            place
        })
    }

    /// Releases a lock by `delete`. The reply is what `free.lua` would say to it: it may be that somebody waits for a lock that is
    /// deleted. When `are_more` releases come at once, they go out together.
    pub(crate) fn delete<'a>(
        &'a self,
        LoneRelease { lock, token, are_more, .. }: LoneRelease<'a>,
        delete: Delete,
    ) -> Sending<'a> {
        self.send_by(move |state| {
            let is_first = state.is_idle() && !are_more;
            let bytes = state.output.write(|output| encode::delete(output, lock, token, delete));
            let place = state.places.take(Want::Freed, bytes);
            state.hand_over(is_first);
            place
        })
    }

    fn send_for<'a>(&'a self, want: Want, write: impl Fn(&mut Vec<u8>) + Send + 'a) -> Sending<'a> {
        self.send_by(move |state| {
            let is_first = state.is_idle();
            let bytes = state.output.write(&write);
            let place = state.places.take(want, bytes);
            state.hand_over(is_first);
            place
        })
    }

    fn send_by<'a>(&'a self, send: impl Fn(&mut State) -> usize + Send + 'a) -> Sending<'a> {
        if let Some(answer) = self.enter(&send) {
            return Either::Left(answer);
        }
        Either::Right(Box::pin(async move {
            loop {
                self.0.0.await_room().await;
                if let Some(answer) = self.enter(&send) {
                    return answer.await;
                }
            }
        }))
    }

    /// Sends, and takes a place for the replies. `None` when there is no room.
    fn enter(&self, send: impl FnOnce(&mut State) -> usize) -> Option<Answer<'_>> {
        let mut state = self.0.0.lock();
        let place = if let Some(ended) = state.ended.clone() {
            state.places.take_ended(ended)
        } else if state.has_room() {
            send(&mut state)
        } else {
            return None;
        };
        Some(Answer { shared: &self.0.0, place: Some(place) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_left = true;
        state.call_driver();
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

    /// The connection has ended. `None` when that is known.
    fn end(&self, ended: &Ended) -> Option<Aftermath> {
        let mut state = self.lock();
        if state.ended.is_some() {
            return None;
        }
        state.ended = Some(ended.clone());
        let (output, aftermath) = (std::mem::take(&mut state.output), state.places.end(ended));
        drop(state);
        drop(output);
        self.has_room.notify_waiters();
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

/// Commands that were sent, or that wait for room. The latter is rare, and so it is boxed: every command's future would have room for it.
pub(crate) type Sending<'a> = Either<Answer<'a>, BoxFuture<'a, RedisResult<Value>>>;

/// Waits for the replies that a place is for.
pub(crate) struct Answer<'a> {
    shared: &'a Shared,
    place: Option<usize>,
}

impl Future for Answer<'_> {
    type Output = RedisResult<Value>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(place) = self.place else { return Poll::Pending };
        match self.shared.lock().places.poll(place, context.waker()) {
            Some(reply) => {
                self.place = None;
                Poll::Ready(reply.map_err(RedisError::from))
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut state = self.shared.lock();
        state.leave(place);
        let has_room_again = state.has_room_again();
        drop(state);
        if has_room_again {
            self.shared.has_room.notify_waiters();
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}
