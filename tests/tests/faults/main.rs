//! The server or the network fails: what is reported, how soon, and what is left when it is well again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod administration;
mod connections;
mod eviction;
mod foreign_values;
mod outages;
mod rights;

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager};
use tests::patience::{NOISE, eventually};

const LONG: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(300);
/// How late an answer may come that is promised for the timeout.
const LATE: Duration = Duration::from_millis(100);

async fn manager(url: &str) -> LockManager {
    LockManager::connect(url).await.unwrap()
}

/// Takes the lock and gives it back, so that the server knows every script.
async fn warm_up(managers: &[&LockManager]) {
    for manager in managers {
        manager.lock("warm", "up").acquire().await.unwrap().release().await.unwrap();
    }
}

async fn is_confirmed(guard: &LockGuard, at_least: Duration) {
    eventually("the lease is confirmed", Duration::from_secs(2), || guard.remaining() > at_least).await;
}

/// The lock can be had within the three seconds that a request given up may block it.
async fn is_had_soon(manager: &LockManager) -> LockGuard {
    let start = Instant::now();
    let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3) + NOISE, "{:?}", start.elapsed());
    guard
}

async fn fails_in_time(manager: &LockManager) {
    for timeout in [TIMEOUT, Duration::ZERO] {
        let start = Instant::now();
        let error = manager.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
        let waited = start.elapsed();
        assert!(matches!(error, LockError::Backend { .. }), "{timeout:?}: {error:?}");
        assert!(error.to_string().contains("p:k"), "{error}");
        assert!(waited < timeout + LATE + NOISE, "{timeout:?}: {waited:?}");
    }
    let start = Instant::now();
    let error = manager.lock("p", "k").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(start.elapsed() < LATE + NOISE, "{:?}", start.elapsed());
}
