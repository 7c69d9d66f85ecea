//! What a locked fn does: each option, seen from outside.

mod arguments;
mod async_traits;
mod beside_other_attributes;
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
mod replacing;
mod several_keys;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use lock_runtime::{LockError, LockGuard, LockManager};

type Result<T, E = LockError> = std::result::Result<T, E>;

/// The error of an application, as its author writes it.
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

/// Inside a scope of its own, so that no other test is met.
async fn alone<T>(test: impl Future<Output = T>) -> T {
    LockManager::in_memory().scope(test).await
}

async fn hold(prefix: &str, key: &str) -> LockGuard {
    let locks = LockManager::current().unwrap();
    locks.lock(prefix, key).acquire().await.unwrap()
}
