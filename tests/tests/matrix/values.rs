//! The key holds what is not ours: the token of another, or something that is no lock at all.

use std::time::{Duration, Instant};

use lock_runtime::LockError;
use tests::patience::NOISE;
use tests::server::Server;
use tokio::time::sleep;

use crate::{LATE, LONG, TIMEOUT, is_had_soon, is_lost, manager};

#[tokio::test]
async fn a_late_release_never_frees_the_lock_of_another() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let south = manager(&server.url()).await;
    let request = || north.lock("p", "k").expire(Duration::from_millis(100));
    let (one, two) = (request().acquire().await.unwrap(), south);
    is_lost(&one).await;
    let next = two.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let token = server.owner("p:k");
    assert!(token.is_some());
    assert!(one.release().await.unwrap_err().is_lost());
    assert_eq!(server.owner("p:k"), token);
    next.release().await.unwrap();
    // The same with a dropped guard.
    let one = request().acquire().await.unwrap();
    is_lost(&one).await;
    let next = two.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let token = server.owner("p:k");
    drop(one);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(server.owner("p:k"), token);
    assert!(next.is_valid());
}

#[tokio::test]
async fn row_20_a_foreign_value_without_an_end_is_respected_and_reported() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    server.tell("SET p:k somebody");
    assert!(manager.lock("p", "k").try_acquire().await.unwrap().is_none());
    let start = Instant::now();
    let error = manager.lock("p", "k").timeout(TIMEOUT).acquire().await.unwrap_err();
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE);
    assert!(matches!(error, LockError::Timeout { .. } | LockError::Backend { .. }), "{error:?}");
    assert!(!error.to_string().contains("somebody"), "a foreign token is a secret, too: {error}");
    assert_eq!(server.owner("p:k").as_deref(), Some("somebody"));
    assert_eq!(server.ask::<i64>("PTTL p:k"), -1);
    server.tell("DEL p:k");
    is_had_soon(&manager).await.release().await.unwrap();
}

#[tokio::test]
async fn row_20_a_key_of_another_type_is_reported_and_left_alone() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    server.tell("RPUSH p:k a b");
    for timeout in [Duration::ZERO, LONG] {
        let start = Instant::now();
        let error = manager.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        // Waiting would not make it a lock.
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
    assert_eq!(server.ask::<Vec<String>>("LRANGE p:k 0 -1"), ["a", "b"]);
    // One bad key does not spoil the others.
    manager.lock("p", "other").acquire().await.unwrap().release().await.unwrap();
}
