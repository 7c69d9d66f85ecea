//! [`CallError`]: why a command has no usable reply, and what errors say about it.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::BackendError;
use crate::error::within;
use crate::store::{Reach, Retry, StoreError};

/// What the protocol needs first of all.
pub(super) const RESP3: &str = "RESP3 (`HELLO 3`)";
/// Why nothing was sent in time over a connection that is well.
const NO_ROOM: &str = "nothing could be sent in time: this process asks for more than the server answers";
/// A server that has not told its name.
const NAMELESS: &str = "what answers there";

/// A call without a usable reply.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// No reply within this time. Whether the command took effect is unknown.
    Silent(Duration),
    /// No reply within this time because the server waits for this number of replicas.
    Unconfirmed(Duration, u32),
    /// No connection within this time.
    NoConnection(Duration),
    /// It was not sent: too many others are on their way.
    NoRoom,
    /// The connection belongs to a parent process, and this process is a fork of it.
    Inherited,
    /// The server of this name can't do something that the protocol needs.
    Lacks(String, &'static str),
    /// What answers there can't hold locks, for this reason.
    Unsuitable(String),
    /// This process can't make such a connection here, for this reason.
    Unsupported(String),
    /// There was no connection for this reason, and nothing was sent.
    Unsent(Box<CallError>),
    /// The answer to a command that was then sent again. What became of that is unknown.
    Before(Box<CallError>),
    /// The error of one server among several.
    Of(String, Box<CallError>),
    /// The connection could not be set up, most likely for this reason.
    Setup(&'static str, Arc<RedisError>),
    /// The server does not know the script of this digest. `repeated`: the command was sent before, when the server may have
    /// known the script.
    UnknownScript { repeated: bool },
    /// The server or the connection failed.
    Failed(Arc<RedisError>),
}

impl CallError {
    pub(crate) fn of_setup(error: RedisError, is_tls: bool) -> Self {
        let error = Arc::new(without_arguments(error));
        match error.kind() {
            _ if error.code() == Some("NOPROTO") || is_no_hello(&error) => Self::Lacks(NAMELESS.to_owned(), RESP3),
            ErrorKind::Io if error.is_connection_refusal() => Self::Failed(error),
            ErrorKind::Io | ErrorKind::Parse if is_tls && is_no_tls(&error) => {
                Self::Setup("TLS could not be set up: does the server speak TLS on this port?", error)
            }
            ErrorKind::Io if error.is_connection_dropped() => Self::Setup(
                "the connection was closed before an answer: if the server wants TLS on this port, write rediss://",
                error,
            ),
            ErrorKind::Parse => Self::Setup(
                "what answers there does not speak Redis's protocol; if it wants TLS on this port, write rediss://",
                error,
            ),
            _ => Self::Failed(error),
        }
    }

    /// The same error, for a server that was connected before. So it is not TLS that makes the server close connections.
    pub(super) fn of_known(self) -> Self {
        match self {
            Self::Setup(_, error) if error.is_connection_dropped() => Self::Failed(error),
            Self::Of(server, error) => Self::Of(server, Box::new(error.of_known())),
            other => other,
        }
    }

    /// The same error, for a command that was not sent.
    pub(super) fn before_sending(self) -> Self {
        Self::Unsent(Box::new(self))
    }

    /// The same error, for a command that had been sent before over another connection.
    pub(super) fn after_sending(self) -> Self {
        match self {
            Self::Unsent(error) => *error,
            Self::Of(server, error) => Self::Of(server, Box::new(error.after_sending())),
            other => other,
        }
    }

    /// This answer to a command explains more than the error `last` of the same command, which was sent again.
    pub(super) fn in_place_of(self, last: &Self) -> Self {
        mutant!(RedirectionHidesSilence => return self);
        if last.reach() == Reach::Unanswered { Self::Before(Box::new(self)) } else { self }
    }

    /// How far the command came.
    pub(super) fn reach(&self) -> Reach {
        match self {
            Self::Unsent(_) => Reach::Unsent,
            Self::UnknownScript { .. } => Reach::Refused,
            Self::Failed(error) if error.code().is_some() => Reach::Refused,
            Self::Of(_, error) => error.reach(),
            _ => Reach::Unanswered,
        }
    }

    /// The same error, for one server among several.
    pub(super) fn of(self, server: &str) -> Self {
        Self::Of(server.to_owned(), Box::new(self))
    }

    /// Whether the same command would fail again: wrong credentials, a missing right, a key of another type.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Silent(_)
            | Self::Unconfirmed(..)
            | Self::NoConnection(_)
            | Self::NoRoom
            | Self::Unsuitable(_)
            // Another caller's runtime may have what this one lacks.
            | Self::Unsupported(_)
            | Self::Setup(..)
            | Self::UnknownScript { .. }
            // The next time it may be another server.
            | Self::Of(..) => false,
            Self::Unsent(error) | Self::Before(error) => error.is_final(),
            Self::Inherited | Self::Lacks(..) => true,
            Self::Failed(error) => {
                matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig)
                    || matches!(error.code(), Some("NOPERM" | "NOAUTH" | "WRONGPASS" | "WRONGTYPE"))
                    || error.code() == Some("ERR") && !is_full(error)
            }
        }
    }

    /// Whether a connection fails so while its server restarts or another takes its place.
    pub(super) fn is_of_a_restart(&self) -> bool {
        match self {
            Self::Failed(error) | Self::Setup(_, error) => {
                error.is_connection_refusal() || error.is_connection_dropped() || error.code() == Some("LOADING")
            }
            Self::Unsuitable(_) => true,
            Self::Of(_, error) => error.is_of_a_restart(),
            _ => false,
        }
    }

    /// Whether there was only too little time for an answer.
    pub(super) fn is_out_of_time(&self) -> bool {
        match self {
            Self::Silent(_) | Self::Unconfirmed(..) | Self::NoConnection(_) => true,
            Self::Unsent(error) | Self::Before(error) | Self::Of(_, error) => error.is_out_of_time(),
            _ => false,
        }
    }

    /// Whether nothing was sent because too much else is on its way.
    pub(super) fn is_no_room(&self) -> bool {
        match self {
            Self::Unsent(error) => matches!(**error, Self::NoRoom),
            Self::Of(_, error) => error.is_no_room(),
            _ => false,
        }
    }

    pub(crate) fn into_problem(self) -> BackendError {
        match self {
            Self::Silent(limit) => BackendError::new(format!("no answer from the server {}", within(limit))),
            Self::Unconfirmed(limit, count) => {
                BackendError::new(format!("no answer {}: the server waits for {count} replicas", within(limit)))
            }
            Self::NoConnection(limit) => BackendError::new(format!("no connection to the server {}", within(limit))),
            Self::NoRoom => BackendError::new(NO_ROOM),
            Self::Inherited => BackendError::new(
                "this process is a fork of the one that made the lock manager: make a new manager in the child",
            ),
            Self::Lacks(server, what) => BackendError::new(format!(
                "{server} lacks {what}: locks need Redis 7.0 or newer, any Valkey, or a server that can do the same"
            )),
            Self::Unsuitable(text) | Self::Unsupported(text) => BackendError::new(text),
            Self::UnknownScript { .. } => BackendError::new("the server does not know the script"),
            Self::Unsent(error) | Self::Before(error) => error.into_problem(),
            Self::Of(server, error) => error.into_problem().of(&server),
            Self::Setup(text, error) => BackendError::caused_by_shared(format!("{text} ({error})"), error),
            Self::Failed(error) => {
                let text = match error.kind() {
                    ErrorKind::AuthenticationFailed => "the server refused the user name or password".to_owned(),
                    ErrorKind::Io if error.is_connection_refusal() => {
                        "connection refused: is the server running there?".to_owned()
                    }
                    ErrorKind::Parse => "what answers there does not speak Redis's protocol".to_owned(),
                    _ => match error.code() {
                        Some("WRONGPASS") => "the server refused the user name or password (WRONGPASS)".to_owned(),
                        Some("NOAUTH") => "it wants a password and was given none: write it in the URL, before the \
                                           first host, as in redis://:password@host, redis://user:password@host or \
                                           redis-sentinel://:password@host/master-name (NOAUTH)"
                            .to_owned(),
                        Some("ERR") if is_full(&error) => {
                            "the server has no room for another client: close some, or raise its `maxclients` (ERR max \
                             number of clients reached)"
                                .to_owned()
                        }
                        Some("ERR") if is_no_sentinel(&error) => {
                            "a server answers there, and no sentinel: write redis://host:port".to_owned()
                        }
                        Some(code) => server_message(&format!("{code} {}", error.detail().unwrap_or_default())),
                        None => format!("the server or the connection failed: {error}"),
                    },
                };
                BackendError::caused_by_shared(text, error)
            }
        }
    }
}

/// Whether the other side behaves as a server without TLS.
fn is_no_tls(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_timeout() || error.to_string().contains("corrupt message")
}

/// Whether the server has as many clients as it takes.
fn is_full(error: &RedisError) -> bool {
    error.detail().is_some_and(|said| said.contains("max number of clients"))
}

/// Whether the server does not know how to change the protocol.
fn is_no_hello(error: &RedisError) -> bool {
    error.detail().is_some_and(|said| said.to_ascii_lowercase().replace('`', "'").contains("unknown command 'hello'"))
}

/// Whether a server that is no sentinel got a command for sentinels.
fn is_no_sentinel(error: &RedisError) -> bool {
    error.detail().is_some_and(|said| said.to_ascii_lowercase().contains("unknown command 'sentinel'"))
}

/// The server's message, and what it means.
pub(super) fn server_message(message: &str) -> String {
    if !is_denial(message) {
        return format!("the server says: {message}");
    }
    let right = if message.contains("channel") {
        " (&cache_lock:*)"
    } else if message.contains("key") {
        " (the lock's name, and the same in braces with `:*` behind)"
    } else {
        ""
    };
    format!("the server's user lacks a right{right}, see \"Rights\" in docs/protocol.md: {message}")
}

/// Removes quoted arguments: a server that does not know a command, because it was renamed for example, quotes a token or
/// the password.
fn without_arguments(error: RedisError) -> RedisError {
    match error.detail().and_then(|detail| detail.split_once(", with args beginning with")) {
        Some((said, _)) => RedisError::from((error.kind(), "the server refused", said.to_owned())),
        None => error,
    }
}

/// Whether the server refused because of a missing right. Inside a script servers have no code for this: Redis 7.0 says the second, and
/// Valkey the third.
fn is_denial(message: &str) -> bool {
    ["NOPERM", "The user executing the script", "ACL failure in script"].iter().any(|said| message.contains(said))
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
            return Self::UnknownScript { repeated: false };
        }
        Self::Failed(Arc::new(without_arguments(error)))
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        let retry = if error.is_final() { Retry::Never } else { Retry::Later };
        let (out_of_time, no_room) = (error.is_out_of_time(), error.is_no_room());
        let replicas = if let CallError::Unconfirmed(_, count) = error { Some((0, count)) } else { None };
        let reach = error.reach();
        let problem = error.into_problem();
        Self { retry, reach, out_of_time, no_room, replicas, ..Self::later(problem) }
    }
}

impl StoreError {
    /// Whether the server refused because of a missing right.
    pub(super) fn is_denied(&self) -> bool {
        self.retry == Retry::Never && is_denial(&self.problem.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::{Mutant, Seeded};

    /// The command may have taken effect at the next master, and has to be withdrawn.
    #[test]
    fn a_redirection_does_not_hide_that_the_next_master_did_not_answer() {
        for bug in [None, Some(Mutant::RedirectionHidesSilence)] {
            let _seeded = Seeded::begin(bug);
            let moved = || CallError::from(RedisError::from((ServerErrorKind::Moved.into(), "MOVED")));
            let reach = |last: CallError| moved().in_place_of(&last).reach();
            let wanted = if bug.is_none() { Reach::Unanswered } else { Reach::Refused };
            assert_eq!(reach(CallError::Silent(Duration::ZERO)), wanted);
            assert_eq!(reach(moved()), Reach::Refused);
        }
    }
}
