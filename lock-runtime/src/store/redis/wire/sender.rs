//! [`Sender`]: sends commands on a connection, and waits for their replies.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, ready};
use redis::{Cmd, Pipeline, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::encode::{self, Delete};
use super::places::{By, Want};
use super::releases::LoneRelease;
use super::{NoReply, Shared, State};
use crate::timing::LAST_LOOK;

/// Sends commands whose replies have to come by some instant.
#[derive(Clone, Copy)]
pub(crate) struct Sender<'a> {
    shared: &'a Shared,
    by: By,
}

impl<'a> Sender<'a> {
    pub(super) fn new(shared: &'a Shared, by: Option<Instant>) -> Self {
        Self { shared, by: by.map_or(By::Any, By::At) }
    }

    /// Sends a command now; the future waits for its reply. An error reply is a value.
    pub(crate) fn send(self, command: &'a Cmd) -> Sending<'a> {
        self.send_written(|output| command.write_packed_command(output))
    }

    /// The same for a command that `write` writes.
    pub(crate) fn send_written(self, write: impl Fn(&mut Vec<u8>) + Send + 'a) -> Sending<'a> {
        self.send_for(Want::One, write)
    }

    /// Sends a command that `write` writes behind another, in one piece, and waits for both replies.
    pub(crate) fn send_pair(
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
    pub(crate) fn send_all(
        self,
        commands: &'a Pipeline,
    ) -> impl Future<Output = Result<Vec<Value>, NoReply>> + Send + 'a {
        if commands.is_empty() {
            return Either::Left(ready(Ok(Vec::new())));
        }
        let write = |output: &mut Vec<u8>| commands.cmd_iter().for_each(|command| command.write_packed_command(output));
        Either::Right(self.send_for(Want::List(commands.len()), write).map(|replies| match replies? {
            Value::Array(replies) => Ok(replies),
            reply => Ok(vec![reply]),
        }))
    }

    /// Takes a free lock. The reply to a claim that is refused is what the lock's key holds.
    pub(crate) fn claim_or_tell(self, lock: &'a str, token: &'a str, millis: u64) -> Sending<'a> {
        self.send_for(Want::Claimed, move |output| {
            encode::claim(output, lock, token, millis);
            encode::owner(output, lock);
        })
    }

    /// Releases a lock by `free.lua`, together with all that goes out in the same write. The reply is what the script says to this
    /// release alone. Calls `on_script` when the release is the first of those that go together.
    pub(crate) fn free(self, release: LoneRelease<'a>, on_script: impl Fn() + Send + 'a) -> Sending<'a> {
        self.send_by(move |state| {
            if state.output.releases.is_empty() {
                on_script();
            }
            let is_first = state.is_idle() && !release.are_more;
            let place = state.places.take_for_later(Want::One, self.by);
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
    pub(crate) fn delete(
        self,
        LoneRelease { lock, token, are_more, .. }: LoneRelease<'a>,
        delete: Delete,
    ) -> Sending<'a> {
        self.send_by(move |state| {
            let is_first = state.is_idle() && !are_more;
            let bytes = state.output.write(|output| encode::delete(output, lock, token, delete));
            let place = state.places.take(Want::Freed, self.by, bytes);
            state.hand_over(is_first);
            place
        })
    }

    fn send_for(self, want: Want, write: impl Fn(&mut Vec<u8>) + Send + 'a) -> Sending<'a> {
        self.send_by(move |state| {
            let is_first = state.is_idle();
            let bytes = state.output.write(&write);
            let place = state.places.take(want, self.by, bytes);
            state.hand_over(is_first);
            place
        })
    }

    fn send_by(self, send: impl Fn(&mut State) -> usize + Send + 'a) -> Sending<'a> {
        if let Some(answer) = self.enter(&send) {
            return Either::Left(answer);
        }
        Either::Right(Box::pin(async move {
            loop {
                match self.by {
                    By::At(by) => {
                        let waited = timeout_at(by, self.shared.await_room()).await;
                        // A task may be polled late.
                        waited.ok().filter(|()| Instant::now() < by).ok_or(NoReply::Overdue)?;
                    }
                    By::Any | By::Over => self.shared.await_room().await,
                }
                if let Some(answer) = self.enter(&send) {
                    return answer.await;
                }
            }
        }))
    }

    /// Sends, and takes a place for the replies. `None` when there is no room.
    fn enter(self, send: impl FnOnce(&mut State) -> usize) -> Option<Answer<'a>> {
        let mut state = self.shared.lock();
        let place = if let Some(ended) = state.ended.clone() {
            state.places.take_ended(ended)
        } else if state.has_room() {
            send(&mut state)
        } else {
            return None;
        };
        if let By::At(by) = self.by {
            state.watched.expect(by);
        }
        drop(state);
        Some(Answer { shared: self.shared, place: Some(place), last_look: None })
    }
}

/// Commands that were sent, or that wait for room. The latter is rare, and so it is boxed: every command's future would have room for it.
pub(crate) type Sending<'a> = Either<Answer<'a>, BoxFuture<'a, Result<Value, NoReply>>>;

/// Waits for the replies that a place is for.
pub(crate) struct Answer<'a> {
    shared: &'a Shared,
    place: Option<usize>,
    /// Before the task believes that there is no reply in time. The thread that reads the connection may have been blocked, and the
    /// reply may be there.
    last_look: Option<BoxFuture<'a, ()>>,
}

impl Future for Answer<'_> {
    type Output = Result<Value, NoReply>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(place) = self.place else { return Poll::Pending };
        loop {
            if let Some(look) = &mut self.last_look {
                ready!(look.as_mut().poll(context));
            }
            let Some(reply) = self.shared.lock().places.poll(place, context.waker()) else { return Poll::Pending };
            let Err(NoReply::Overdue) = reply else {
                self.place = None;
                return Poll::Ready(reply);
            };
            if self.last_look.is_some() || is_believed_at_once() {
                // The place is left when this is dropped.
                return Poll::Ready(reply);
            }
            let shared = self.shared;
            self.last_look = Some(Box::pin(async move {
                // A thread that is blocked reads nothing.
                let _ = timeout(LAST_LOOK, shared.read_all()).await;
            }));
        }
    }
}

fn is_believed_at_once() -> bool {
    mutant!(OverdueBelieved => return true);
    false
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
