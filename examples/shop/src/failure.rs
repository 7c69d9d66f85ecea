//! [`Failure`]: why the shop did not do what it was asked to do.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lock_runtime::LockError;

use crate::{LockProblem, Problem};

/// Why the shop did not do it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The lock could not be acquired, or was lost.
    #[error("{}", .0.error())]
    Lock(LockProblem),
    /// A later holder of the lock has claimed the row since. Nothing was written.
    #[error("refused by the fence: another holder of the lock came later")]
    Fenced,
    /// Nothing is left of the item.
    #[error("sold out")]
    SoldOut,
    /// There is no such item or order.
    #[error("there is no such thing")]
    NotFound,
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let problem = match self {
            Self::Lock(problem) => return problem.into_response(),
            Self::Fenced => {
                tracing::warn!("a write was refused by its fence: the lock was lost before");
                let detail = "The service was interrupted. Nothing was done. Try again.";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "fenced", detail).retry_after(Duration::from_secs(1))
            }
            Self::SoldOut => Problem::new(StatusCode::CONFLICT, "sold_out", "Nothing is left of this item."),
            Self::NotFound => Problem::new(StatusCode::NOT_FOUND, "not_found", "There is no such thing here."),
            Self::Database(error) => {
                tracing::error!(%error, "the database failed");
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The service has an error.")
            }
        };
        problem.into_response()
    }
}
