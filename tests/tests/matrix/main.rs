//! The fault matrix: what happens when the server, the network or a client fails, one test per row of docs/faults.md.
//!
//! A test named `row_06_…` shows row 6. Tests without a number show details that have no row.

mod administration;
mod client;
mod clocks;
mod connection;
mod crowd;
mod denials;
mod docs;
mod eviction;
mod forks;
mod names;
mod outages;
mod queues;
mod rights;
mod server;
mod shared;
mod stalls;
mod tickets;
mod together;
mod values;
mod verbs;

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager};
use tests::patience::{NOISE, eventually};
use tests::server::Server;

const LONG: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(300);
/// The command timeout: how long a single try waits for its reply.
const ANSWER: Duration = Duration::from_millis(500);
/// How long after its timeout a request may return.
const LATE: Duration = Duration::from_millis(100);

async fn manager(url: &str) -> LockManager {
    LockManager::connect(url).await.unwrap()
}

/// Acquires and releases a lock, so that the server has the scripts.
async fn warm_up(managers: &[&LockManager]) {
    for manager in managers {
        manager.lock("warm", "up").acquire().await.unwrap().release().await.unwrap();
    }
}

async fn wait_until_confirmed(guard: &LockGuard, at_least: Duration) {
    eventually("the lease is confirmed", Duration::from_secs(2), || guard.remaining() > at_least).await;
}

async fn wait_until_lost(guard: &LockGuard) {
    tokio::time::timeout(LONG, guard.lost()).await.expect("the holder learns of the loss");
}

/// Waits until the server's queue of the lock `p:k` has a waiter.
async fn wait_until_queued(server: &Server) {
    eventually("the waiter queues", Duration::from_secs(5), || server.keys().contains_key("{p:k}:queue")).await;
}

/// Acquires the lock, and checks that it took at most the three seconds for which an abandoned request may block it.
async fn assert_granted_soon(manager: &LockManager) -> LockGuard {
    let start = Instant::now();
    let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3) + NOISE, "{:?}", start.elapsed());
    guard
}

/// While the server can't be reached, requests must return in time, with an error that does not call the lock busy.
async fn assert_fails_in_time(manager: &LockManager) {
    for timeout in [TIMEOUT, Duration::ZERO] {
        let start = Instant::now();
        let error = manager.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
        let waited = start.elapsed();
        assert!(matches!(error, LockError::Backend { .. }), "{timeout:?}: {error:?}");
        assert!(error.to_string().contains("p:k"), "{error}");
        let bound = if timeout.is_zero() { ANSWER } else { timeout };
        assert!(waited < bound + LATE + NOISE, "{timeout:?}: {waited:?}");
    }
    let start = Instant::now();
    let error = manager.lock("p", "k").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(start.elapsed() < ANSWER + LATE + NOISE, "{:?}", start.elapsed());
}

/// Runs a command that keeps the whole server busy, on a new thread. The reply may be an error.
fn occupy(server: &Server, command: &[&str]) -> std::thread::JoinHandle<()> {
    let client = redis::Client::open(server.url()).unwrap();
    let mut asked = redis::cmd(command[0]);
    asked.arg(&command[1..]);
    std::thread::spawn(move || {
        let mut connection = client.get_connection().unwrap();
        let _ = asked.query::<redis::Value>(&mut connection);
    })
}
