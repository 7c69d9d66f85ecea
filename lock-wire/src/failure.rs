//! [`CallError`]: why a command has no usable reply, and what that says about the command.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// What every connection needs.
pub(crate) const RESP3: &str = "RESP3 (`HELLO 3`)";
/// Stands for the name of a server that did not tell it.
const NAMELESS: &str = "what answers there";

/// How far a failed command got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Certainly nothing was sent to any server: it has no effect, and never will.
    Unsent,
    /// Something may have been sent, and some answer is missing: the effect is unknown.
    Unanswered,
    /// The server refused the command. A script may have done part of its work before that.
    Refused,
}

/// Why a call has no usable reply.
#[derive(Clone, Debug)]
pub enum CallError {
    /// No reply within this time. It is unknown whether the command took effect.
    Silent(Duration),
    /// No reply within this time, because the server waits for this many replicas.
    Unconfirmed(Duration, u32),
    /// No connection within this time.
    NoConnection(Duration),
    /// Not sent, because too many other commands are in flight.
    NoRoom,
    /// The connection belongs to the parent process that this process was forked from.
    Inherited,
    /// The server with this name lacks a needed feature.
    Lacks(String, &'static str),
    /// The server can't be used, for this reason.
    Unsuitable(String),
    /// There are no credentials, or the server does not accept them, for this reason.
    Credentials(String, Option<Arc<RedisError>>),
    /// This process can't make this kind of connection, for this reason.
    Unsupported(String),
    /// There was no connection for this reason, and nothing was sent.
    Unsent(Box<CallError>),
    /// The answer to a command that was then sent again; the outcome of the second try is unknown.
    Before(Box<CallError>),
    /// The error of one server among several.
    Of(String, Box<CallError>),
    /// The connection could not be set up, most likely for this reason.
    Setup(&'static str, Arc<RedisError>),
    /// The server does not know the script with this digest. `repeated`: the command was sent before, when the server may have known it.
    UnknownScript {
        /// Whether an earlier try may have taken effect.
        repeated: bool,
    },
    /// The server or the connection failed.
    Failed(Arc<RedisError>),
}

impl CallError {
    /// Why a connection could not be set up.
    pub fn of_setup(error: RedisError, is_tls: bool) -> Self {
        let error = Arc::new(without_arguments(error));
        match error.kind() {
            _ if error.code() == Some("NOPROTO") || is_no_hello(&error) => Self::Lacks(NAMELESS.to_owned(), RESP3),
            ErrorKind::Io if error.is_connection_refusal() => Self::Failed(error),
            ErrorKind::Io | ErrorKind::Parse
                if is_tls
                    && (error.is_connection_dropped()
                        || error.is_timeout()
                        || error.to_string().contains("corrupt message")) =>
            {
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

    /// This error, for a server that we have connected to before. So TLS is not why the server closes connections.
    pub fn of_known(self) -> Self {
        match self {
            Self::Setup(_, error) if error.is_connection_dropped() => Self::Failed(error),
            Self::Of(server, error) => Self::Of(server, Box::new(error.of_known())),
            other => other,
        }
    }

    /// This error, for a command that was not sent.
    pub fn before_sending(self) -> Self {
        Self::Unsent(Box::new(self))
    }

    /// This error, for a command that was sent earlier over another connection.
    pub fn after_sending(self) -> Self {
        match self {
            Self::Unsent(error) => *error,
            Self::Of(server, error) => Self::Of(server, Box::new(error.after_sending())),
            other => other,
        }
    }

    /// This error instead of `last`, which the same command got when it was sent again: this one explains more.
    pub fn in_place_of(self, last: &Self) -> Self {
        mutant!(RedirectionHidesSilence => return self);
        if last.reach() == Reach::Unanswered { Self::Before(Box::new(self)) } else { self }
    }

    /// How far the command got.
    pub fn reach(&self) -> Reach {
        match self {
            Self::Unsent(_) => Reach::Unsent,
            Self::UnknownScript { .. } => Reach::Refused,
            Self::Failed(error) if error.code().is_some() => Reach::Refused,
            Self::Of(_, error) => error.reach(),
            _ => Reach::Unanswered,
        }
    }

    /// This error, for one server among several.
    pub fn of(self, server: &str) -> Self {
        Self::Of(server.to_owned(), Box::new(self))
    }

    /// Whether the same command would fail again: wrong credentials, a missing right, a key of another type.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Silent(_)
            | Self::Unconfirmed(..)
            | Self::NoConnection(_)
            | Self::NoRoom
            | Self::Unsuitable(_)
            // The provider may send newer credentials.
            | Self::Credentials(..)
            // Another caller's runtime may have what this one lacks.
            | Self::Unsupported(_)
            | Self::Setup(..)
            | Self::UnknownScript { .. }
            // The next try may reach another server.
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

    /// Whether a connection fails this way while its server restarts, another takes over, or credentials change.
    pub fn is_of_a_restart(&self) -> bool {
        match self {
            Self::Failed(error) | Self::Setup(_, error) => {
                error.is_connection_refusal() || error.is_connection_dropped() || error.code() == Some("LOADING")
            }
            Self::Unsuitable(_) | Self::Credentials(..) => true,
            Self::Of(_, error) => error.is_of_a_restart(),
            _ => false,
        }
    }

    /// Whether the only problem was too little time for an answer.
    pub fn is_out_of_time(&self) -> bool {
        match self {
            Self::Silent(_) | Self::Unconfirmed(..) | Self::NoConnection(_) => true,
            Self::Unsent(error) | Self::Before(error) | Self::Of(_, error) => error.is_out_of_time(),
            _ => false,
        }
    }

    /// Whether nothing was sent because too much else is in flight.
    pub fn is_no_room(&self) -> bool {
        match self {
            Self::Unsent(error) => matches!(**error, Self::NoRoom),
            Self::Of(_, error) => error.is_no_room(),
            _ => false,
        }
    }
}

/// Whether the server has reached its maximum number of clients.
pub fn is_full(error: &RedisError) -> bool {
    error.detail().is_some_and(|said| said.contains("max number of clients"))
}

/// Whether the server does not know `HELLO`, and so can't change the protocol.
fn is_no_hello(error: &RedisError) -> bool {
    error.detail().is_some_and(|said| said.to_ascii_lowercase().replace('`', "'").contains("unknown command 'hello'"))
}

/// Removes quoted arguments: a server that does not know a command, for example because it was renamed, quotes a token or the password.
fn without_arguments(error: RedisError) -> RedisError {
    match error.detail().and_then(|detail| detail.split_once(", with args beginning with")) {
        Some((said, _)) => RedisError::from((error.kind(), "the server refused", said.to_owned())),
        None => error,
    }
}

impl From<RedisError> for CallError {
    fn from(error: RedisError) -> Self {
        if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
            return Self::UnknownScript { repeated: false };
        }
        Self::Failed(Arc::new(without_arguments(error)))
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
