//! [`LockProblem`]: how a `LockError` is answered in HTTP. No other file decides that.
//!
//! | kind of error | status | `Retry-After` | why |
//! |---|---|---|---|
//! | `Busy` | 409 | when the lease of the holder ends, if known, but 5 s at most: a holder that lives may release sooner | Somebody else does the same thing. The service is well: an error of the 500s would count against this instance, in alerts and in proxies that put instances out of service. |
//! | `Busy`, [of a crowd](LockProblem::of_crowd) | 503 | the same, else 1 s | Waiting is usual there. Its end means that there are more customers than the service can serve. |
//! | `Overloaded` | 503 | 1 s | The limit counts all callers together. 429 would blame this caller. |
//! | `Unavailable` | 503 | 1 s | The server of the locks is away. Nothing was done. |
//! | `ShutDown` | 503 | 1 s | This instance ends, and another instance can serve. |
//! | `Lost` | 500 | – | The work may be done, half done or not done. 503 invites callers and proxies to send it again without a look. |
//! | `Misuse` of [`LockError::InvalidKey`] | 400 | – | A caller sent a key that names nothing. |
//! | `Misuse` else, and kinds to come | 500 | – | The program is wrong. |
//!
//! 504 is not used: it is for a proxy whose own server did not answer, and callers do not know of the locks' server.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lock_runtime::{ErrorKind, LockError};

use crate::Problem;

/// When the error has no time: long enough for a hand-over, short enough for a customer.
const SOON: Duration = Duration::from_secs(1);
/// The longest wait that a caller is given. The holder's lease only limits how long others wait when it has crashed.
const LATE: Duration = Duration::from_secs(5);

/// A [`LockError`] as an answer. The log gets everything, and the caller gets what the caller can act on.
///
/// It needs nothing from the shop, so it could be a feature `axum` of the crate. It is here because a service has to decide two
/// things itself: whether a busy thing is a conflict (409) or a load (503), and whether lost work may be sent again (here: no).
/// A default for both would be wrong for half of all services. And a new major version of axum would force one of the crate.
#[derive(Debug)]
pub struct LockProblem {
    error: LockError,
    is_of_crowd: bool,
}

impl From<LockError> for LockProblem {
    fn from(error: LockError) -> Self {
        Self { error, is_of_crowd: false }
    }
}

impl LockProblem {
    /// For a lock that many unrelated callers want at once.
    #[must_use]
    pub fn of_crowd(error: LockError) -> Self {
        Self { error, is_of_crowd: true }
    }

    /// The error, with the name of the lock: for the log, not for callers.
    #[must_use]
    pub fn error(&self) -> &LockError {
        &self.error
    }

    /// The caller's answer.
    #[must_use]
    pub fn problem(&self) -> Problem {
        let unavailable = |code, detail| Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).retry_after(SOON);
        match self.error.kind() {
            ErrorKind::Busy => self.busy(),
            ErrorKind::Overloaded => unavailable("overloaded", "Too many callers wait already. Try again soon."),
            ErrorKind::Unavailable => {
                unavailable("unavailable", "The service can't do this at the moment. Nothing was done. Try again soon.")
            }
            ErrorKind::ShutDown => unavailable("shutting_down", "This instance is about to end. Try again."),
            ErrorKind::Lost => Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "lost",
                "The service was interrupted. Look whether it was done before you try again.",
            ),
            _ if matches!(self.error, LockError::InvalidKey { .. }) => {
                Problem::new(StatusCode::BAD_REQUEST, "invalid", "The request names nothing that exists.")
            }
            _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The service has an error."),
        }
    }

    fn busy(&self) -> Problem {
        let retry_after = self.error.retry_after().map(|after| after.min(LATE));
        if self.is_of_crowd {
            let detail = "Too many callers want this at once. Nothing was done. Try again soon.";
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "crowded", detail);
            return problem.retry_after(retry_after.unwrap_or(SOON));
        }
        let detail = "Somebody else works on this at the moment. Nothing was done. Try again soon.";
        Problem { retry_after, ..Problem::new(StatusCode::CONFLICT, "busy", detail) }
    }

    fn log(&self) {
        let (error, status) = (&self.error, self.problem().status.as_u16());
        match self.error.kind() {
            // Many callers at once are no reason to wake an operator. Busy locks are counted in the metrics.
            ErrorKind::Busy | ErrorKind::Overloaded | ErrorKind::ShutDown => {
                tracing::debug!(status, %error, "no lock");
            }
            ErrorKind::Unavailable => tracing::warn!(status, %error, "no lock"),
            _ => tracing::error!(status, %error, "a lock failed"),
        }
    }
}

impl IntoResponse for LockProblem {
    fn into_response(self) -> Response {
        self.log();
        self.problem().into_response()
    }
}
