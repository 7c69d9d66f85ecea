//! How the failure of a command is worded, and what can be concluded from it.

use lock_wire::{CallError, Link, is_full};
use redis::{ErrorKind, RedisError};

use crate::BackendError;
use crate::error::within;
use crate::store::{Retry, StoreError};

/// Why nothing was sent in time over a working connection.
const NO_ROOM: &str = "nothing could be sent in time: this process asks for more than the server answers";

pub(crate) fn problem(error: CallError) -> BackendError {
    match error {
        CallError::Silent(limit) => BackendError::new(format!("no answer from the server {}", within(limit))),
        CallError::Unconfirmed(limit, count) => {
            BackendError::new(format!("no answer {}: the server waits for {count} replicas", within(limit)))
        }
        CallError::NoConnection(limit) => BackendError::new(format!("no connection to the server {}", within(limit))),
        CallError::NoRoom => BackendError::new(NO_ROOM),
        CallError::Inherited => BackendError::new(
            "this process is a fork of the one that made the lock manager: make a new manager in the child",
        ),
        CallError::Lacks(server, what) => BackendError::new(format!(
            "{server} lacks {what}: locks need Redis 7.0 or newer, any Valkey, or a server that can do the same"
        )),
        CallError::Credentials(text, Some(error)) => BackendError::caused_by_shared(text, error),
        CallError::Unsuitable(text) | CallError::Unsupported(text) | CallError::Credentials(text, None) => {
            BackendError::new(text)
        }
        CallError::UnknownScript { .. } => BackendError::new("the server does not know the script"),
        CallError::Unsent(error) | CallError::Before(error) => problem(*error),
        CallError::Of(server, error) => problem(*error).of(&server),
        CallError::Setup(text, error) => BackendError::caused_by_shared(format!("{text} ({error})"), error),
        CallError::Failed(error) => {
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
                    // A server that is not a sentinel got a command for sentinels.
                    Some("ERR") if is_said(&error, "unknown command 'sentinel'") => {
                        "a server answers there, and no sentinel: write redis://host:port".to_owned()
                    }
                    Some("ERR") if is_said(&error, "select is not allowed in cluster mode") => {
                        "the server has database 0 alone in a cluster: leave the number out of the URL; Valkey from 9.0 on has as \
                         many as its `cluster-databases` says (ERR SELECT is not allowed in cluster mode)"
                            .to_owned()
                    }
                    Some("ERR") if is_said(&error, "db index is out of range") => {
                        "the server has no database of this number: take another, or raise its `databases`, in a cluster its \
                         `cluster-databases` (ERR DB index is out of range)"
                            .to_owned()
                    }
                    Some(code) => server_message(&format!("{code} {}", error.detail().unwrap_or_default())),
                    None => format!("the server or the connection failed: {error}"),
                },
            };
            BackendError::caused_by_shared(text, error)
        }
    }
}

/// Whether the server's message contains this, in any case.
fn is_said(error: &RedisError, what: &str) -> bool {
    error.detail().is_some_and(|said| said.to_ascii_lowercase().contains(what))
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

/// Whether the server refused because of a missing right. Inside a script servers have no code for this: Redis 7.0 says the second, and
/// Valkey the third.
fn is_denial(message: &str) -> bool {
    ["NOPERM", "The user executing the script", "ACL failure in script"].iter().any(|said| message.contains(said))
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        let retry = if error.is_final() { Retry::Never } else { Retry::Later };
        let (out_of_time, no_room) = (error.is_out_of_time(), error.is_no_room());
        let replicas = if let CallError::Unconfirmed(_, count) = error { Some((0, count)) } else { None };
        let reach = error.reach();
        let problem = problem(error);
        Self { retry, reach, out_of_time, no_room, replicas, ..Self::later(problem) }
    }
}

impl StoreError {
    /// The error with the name of the server that reports it.
    pub(super) fn of(self, link: &Link) -> Self {
        Self { problem: self.problem.of(link.server()), ..self }
    }

    /// Whether the server refused because of a missing right.
    pub(super) fn is_denied(&self) -> bool {
        self.retry == Retry::Never && is_denial(&self.problem.to_string())
    }
}
