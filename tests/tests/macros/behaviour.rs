//! What a locked fn does with each option, seen from outside.

mod arguments;
mod async_traits;
mod blocking;
mod blocks;
mod bodies;
mod dropped_arguments;
mod failures;
mod futures;
mod lingering;
mod lost_holds;
mod managers;
mod names;
mod notes;
mod replacing;
mod several_keys;
mod with_other_attributes;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use lock_runtime::{LockError, LockGuard, LockManager};

type Result<T, E = LockError> = std::result::Result<T, E>;

/// An application's own error type.
#[derive(Debug)]
enum ShopError {
    SoldOut,
    Lock(LockError),
}

impl From<LockError> for ShopError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for ShopError {
    fn into_response(self) -> axum::response::Response {
        match self {
            Self::SoldOut => StatusCode::GONE,
            Self::Lock(_) => StatusCode::LOCKED,
        }
        .into_response()
    }
}

/// Runs a test in a scope with its own manager, so that tests don't block each other.
async fn alone<T>(test: impl Future<Output = T>) -> T {
    LockManager::in_memory().scope(test).await
}

async fn hold(prefix: &str, key: &str) -> LockGuard {
    let locks = LockManager::current().unwrap();
    locks.lock(prefix, key).acquire().await.unwrap()
}
