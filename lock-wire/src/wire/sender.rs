//! [`Sender`]: sends commands on a connection, and waits for their replies.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, ready};
use redis::{Cmd, Pipeline, Value};
use tokio::time::timeout;

use super::group::{Columns, Grouped};
use super::places::{By, Merge, Patience, Polled, Want};
use super::{NoReply, Shared, State};

/// A task whose reply is overdue waits at most this long until everything that has arrived is read.
pub const LAST_LOOK: Duration = Duration::from_millis(20);

/// Sends commands, with a limit for their replies.
#[derive(Clone, Copy)]
pub struct Sender<'a> {
    shared: &'a Shared,
    by: By,
    /// Whether the commands begin something, and so are sent only when there is room.
    is_beginning: bool,
    /// Whether more follows at once, which this waits for.
    is_followed: bool,
}

impl<'a> Sender<'a> {
    #[inline]
    pub(super) fn new(shared: &'a Shared, by: Option<Patience>) -> Self {
        Self { shared, by: by.map_or(By::Any, By::At), is_beginning: false, is_followed: false }
    }

    /// For a command that begins something, and so is not sent while there is no room.
    #[inline]
    pub fn beginning(self, is_beginning: bool) -> Self {
        Self { is_beginning, ..self }
    }

    /// For a command that more will follow at once, to go out in the same write.
    #[inline]
    pub fn followed(self, is_followed: bool) -> Self {
        Self { is_followed, ..self }
    }

    /// Sends a command now; the future waits for its reply. An error reply is a value.
    pub fn send(self, command: &'a Cmd) -> Sent<'a> {
        self.send_written(|output| command.write_packed_command(output))
    }

    /// Like [`send`](Self::send), for a command that `write` writes.
    pub fn send_written(self, write: impl FnOnce(&mut Vec<u8>)) -> Sent<'a> {
        self.send_for(Want::One, write)
    }

    /// Sends a command that `write` writes behind `first`, in one piece, and waits for both replies.
    pub fn send_pair(
        self,
        first: &'a Cmd,
        write: impl Fn(&mut Vec<u8>) + Send + 'a,
    ) -> impl Future<Output = Result<[Value; 2], NoReply>> + Send + 'a {
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
    pub fn send_all(self, commands: &'a Pipeline) -> impl Future<Output = Result<Vec<Value>, NoReply>> + Send + 'a {
        if commands.is_empty() {
            return Either::Left(ready(Ok(Vec::new())));
        }
        let write = |output: &mut Vec<u8>| commands.cmd_iter().for_each(|command| command.write_packed_command(output));
        Either::Right(self.send_for(Want::List(commands.len()), write).map(|replies| match replies? {
            Value::Array(replies) => Ok(replies),
            reply => Ok(vec![reply]),
        }))
    }

    /// Sends commands that `write` writes, in one piece. Their replies become one value.
    pub fn send_merged(self, merge: &'static Merge, write: impl FnOnce(&mut Vec<u8>)) -> Sent<'a> {
        self.send_for(Want::Merged(merge), write)
    }

    /// Calls a script, together with all other calls in the same write. The reply is what the script answers to this call alone. Calls
    /// `on_run` if this is the first call of the run.
    pub fn send_grouped(
        self,
        script: &'static Grouped,
        is_known: bool,
        write: impl FnOnce(&mut Columns),
        on_run: impl FnOnce(),
    ) -> Sent<'a> {
        let mut is_run = false;
        let answer = self.send_by(|state| {
            if state.output.group.is_closed_to(script) {
                state.write_group();
            }
            is_run = state.output.group.is_empty();
            let is_first = state.is_idle() && !self.is_followed;
            let place = state.places.take_for_later(Want::One, self.by);
            state.output.group.add(script, is_known, write, place);
            state.hand_over(is_first);
            place
        });
        if is_run {
            on_run();
        }
        answer
    }

    fn send_for(self, want: Want, write: impl FnOnce(&mut Vec<u8>)) -> Sent<'a> {
        self.send_by(move |state| {
            let is_first = state.is_idle() && !self.is_followed;
            let bytes = state.output.write(write);
            let place = state.places.take(want, self.by, bytes, self.is_beginning);
            state.hand_over(is_first);
            place
        })
    }

    fn send_by(self, send: impl FnOnce(&mut State) -> usize) -> Sent<'a> {
        let mut state = self.shared.lock();
        let place = if let Some(ended) = state.ended.clone() {
            state.places.take_refused(NoReply::Ended(ended))
        } else if self.is_beginning && !state.has_room() {
            state.places.take_refused(NoReply::NoRoom)
        } else {
            send(&mut state)
        };
        if let By::At(patience) = self.by {
            state.watched.expect(patience.silent_at);
        }
        drop(state);
        Sent { shared: self.shared, place: Some(place), is_known: false, last_look: None }
    }
}

/// A command that was sent, or that was refused. As a future it waits for the replies.
pub struct Sent<'a> {
    shared: &'a Shared,
    place: Option<usize>,
    /// Whether the place has a waker.
    is_known: bool,
    /// The last look before the reply counts as overdue. The thread that reads the connection may have been blocked, and the reply may have
    /// arrived.
    last_look: Option<BoxFuture<'a, ()>>,
}

impl Future for Sent<'_> {
    type Output = Result<Value, NoReply>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(place) = self.place else { return Poll::Pending };
        loop {
            if let Some(look) = &mut self.last_look {
                ready!(look.as_mut().poll(context));
            }
            // Cloning or dropping a waker may run any code, so do both without the mutex. The first poll always needs a clone.
            let mut clone = (!self.is_known).then(|| context.waker().clone());
            let reply = loop {
                let mut state = self.shared.lock();
                let polled = state.places.poll(place, context.waker(), &mut clone);
                state.fit_room();
                mutant!(DropsUnderMutex => clone = None);
                drop(state);
                match polled {
                    Polled::Reply(reply) => break reply,
                    Polled::Waits => {
                        self.is_known = true;
                        return Poll::Pending;
                    }
                    Polled::Unknown => clone = Some(context.waker().clone()),
                }
            };
            let Err(NoReply::Overdue { .. }) = reply else {
                self.place = None;
                return Poll::Ready(reply);
            };
            if self.last_look.is_some() || mutant!(OverdueBelieved) {
                // Dropping this leaves the place.
                return Poll::Ready(reply);
            }
            let shared = self.shared;
            self.last_look = Some(Box::pin(async move {
                // A blocked thread reads nothing.
                let _ = timeout(LAST_LOOK, shared.read_all()).await;
            }));
        }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut state = self.shared.lock();
        let mut left = Some(state.leave(place));
        mutant!(DropsUnderMutex => left = None);
        let calls = state.call_waiting();
        drop(state);
        drop(left.take());
        self.shared.call_for_room(calls);
    }
}
