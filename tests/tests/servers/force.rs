//! Locks that are released by force although their holder is dead, or is another client.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::patience::{NOISE, eventually};
use tests::server::Server;

/// The short first lease of a grant.
const CLAIM: Duration = Duration::from_millis(2500);
const LONG: Duration = Duration::from_secs(20);
/// A token of a process that does not exist.
const DEAD: &str = "0123456789abcdef0123456789abcdef.7@web-3";

#[tokio::test]
async fn a_dead_holder_keeps_the_lock_for_a_claim_and_no_longer() {
    let server = Server::start();
    server.tell(&format!("SET p:k {DEAD} PX 60000"));
    let locks = LockManager::connect(&server.url()).await.unwrap();
    assert_eq!(locks.inspect("p", "k").await.unwrap().unwrap().holder.as_deref(), Some("web-3"));
    let start = Instant::now();
    assert!(locks.force_release("p", "k").await.unwrap());
    assert!(start.elapsed() < CLAIM + NOISE * 2, "{:?}", start.elapsed());
    assert!(
        start.elapsed() > CLAIM * 9 / 10,
        "the holder may only be cut off and still be running: {:?}",
        start.elapsed()
    );
    assert!(locks.lock("p", "k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_lease_that_ends_sooner_is_not_lengthened() {
    let server = Server::start();
    server.tell(&format!("SET p:k {DEAD} PX 700"));
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let start = Instant::now();
    assert!(locks.force_release("p", "k").await.unwrap());
    assert!(start.elapsed() < Duration::from_millis(700) + NOISE * 2, "{:?}", start.elapsed());
}

#[tokio::test]
async fn what_another_client_holds_goes_to_the_next_waiter_at_once() {
    let server = Server::start();
    server.tell("SET p:k somebody");
    let (locks, other) =
        (LockManager::connect(&server.url()).await.unwrap(), LockManager::connect(&server.url()).await.unwrap());
    let waiting =
        tokio::spawn(async move { other.lock("p", "k").timeout(LONG).acquire().await.map(|_| Instant::now()) });
    eventually("it waits", LONG, || server.keys().contains_key("{p:k}:queue")).await;
    assert_eq!(locks.inspect("p", "k").await.unwrap().unwrap().remaining, Duration::MAX);
    let start = Instant::now();
    assert!(locks.force_release("p", "k").await.unwrap());
    let granted = waiting.await.unwrap().unwrap();
    assert!(granted.duration_since(start) < NOISE * 2, "{:?}", granted.duration_since(start));
}

#[tokio::test]
async fn a_lock_can_be_released_by_force_while_memory_is_full() {
    let server = Server::start();
    let (locks, other) =
        (LockManager::connect(&server.url()).await.unwrap(), LockManager::connect(&server.url()).await.unwrap());
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    // Wait until the hold is confirmed, so that no refused renewal reports the loss before the message does.
    guard.extend(LONG).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.tell("CONFIG SET maxmemory 1");
    assert!(other.force_release("p", "k").await.unwrap());
    guard.lost().await;
    server.tell("CONFIG SET maxmemory 0");
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { forced: true, .. }), "{error:?}");
    assert!(other.lock("p", "k").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn what_is_no_lock_is_an_error_and_stays() {
    let server = Server::start();
    server.tell("RPUSH p:k value");
    let locks = LockManager::connect(&server.url()).await.unwrap();
    for refused in [locks.force_release("p", "k").await, locks.is_locked("p", "k").await] {
        let error = refused.unwrap_err();
        assert!(matches!(&error, LockError::Backend { .. }) && error.to_string().contains("WRONGTYPE"), "{error}");
        assert!(error.to_string().contains(&server.address()), "the server is named: {error}");
    }
    assert_eq!(server.ask::<i64>("LLEN p:k"), 1);
}
