//! What an administrator does to a server in use: flush, kill, pause, delete, limit, demote.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lock_runtime::LockError;
use tests::patience::{NOISE, eventually};
use tests::server::Server;
use tokio::time::sleep;

use crate::{LATE, LONG, TIMEOUT, fails_in_time, is_confirmed, is_had_soon, manager, warm_up};

/// Runs `nemesis` every so often while two processes of two tasks each want one lock; returns how often they got it.
async fn under_fire(server: &Server, pause: Duration, nemesis: impl Fn()) -> usize {
    let inside = Arc::new(AtomicBool::new(false));
    let grants = Arc::new(AtomicUsize::new(0));
    let end = Instant::now() + Duration::from_secs(3);
    let managers = [manager(&server.url()).await, manager(&server.url()).await];
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            let manager = managers[number % 2].clone();
            let (inside, grants) = (Arc::clone(&inside), Arc::clone(&grants));
            tokio::spawn(async move {
                while Instant::now() < end {
                    let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two hold the lock");
                    grants.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_millis(1)).await;
                    assert!(guard.is_valid());
                    inside.store(false, Ordering::SeqCst);
                    match guard.release().await {
                        Ok(()) | Err(LockError::Backend { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            })
        })
        .collect();
    while Instant::now() < end {
        nemesis();
        sleep(pause).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    eventually("the key is gone", Duration::from_secs(3), || server.owner("p:k").is_none()).await;
    grants.load(Ordering::SeqCst)
}

#[tokio::test]
async fn scripts_may_be_flushed_at_any_time() {
    let server = Server::start();
    let grants = under_fire(&server, Duration::from_millis(2), || server.tell("SCRIPT FLUSH")).await;
    assert!(grants > 100, "only {grants} grants in 3 s");
}

#[tokio::test]
async fn connections_may_be_killed_at_any_time() {
    let server = Server::start();
    let grants = under_fire(&server, Duration::from_millis(50), || {
        server.tell("CLIENT KILL TYPE normal");
        server.tell("CLIENT KILL TYPE pubsub");
    })
    .await;
    assert!(grants > 20, "only {grants} grants in 3 s");
}

#[tokio::test]
async fn writes_may_be_paused_at_any_time() {
    let server = Server::start();
    let grants = under_fire(&server, Duration::from_millis(300), || {
        server.tell("CLIENT PAUSE 100 WRITE");
    })
    .await;
    assert!(grants > 20, "only {grants} grants in 3 s");
}

#[tokio::test]
async fn a_flushed_server_is_noticed_by_the_next_renewal() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let lease = Duration::from_millis(900);
    let request = manager.lock("p", "k").expire(lease).renew(true);
    let guard = request.acquire().await.unwrap();
    sleep(Duration::from_millis(100)).await;
    server.tell("FLUSHALL");
    let flushed = Instant::now();
    guard.lost().await;
    assert!(flushed.elapsed() < lease / 3 + LATE + NOISE, "{:?}", flushed.elapsed());
    assert!(!guard.is_valid());
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn a_body_is_stopped_when_an_admin_deletes_its_lock() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let lease = Duration::from_millis(900);
    let mut deleted = Instant::now();
    let outcome = manager
        .lock("p", "k")
        .expire(lease)
        .renew(true)
        .run(async {
            sleep(Duration::from_millis(50)).await;
            server.tell("DEL p:k");
            deleted = Instant::now();
            sleep(LONG).await;
        })
        .await;
    let error = outcome.unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, .. }), "{error:?}");
    assert!(deleted.elapsed() < lease / 3 + LATE + NOISE, "{:?}", deleted.elapsed());
}

#[tokio::test]
async fn a_waiter_gets_a_lock_that_an_admin_deletes() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let south = manager(&server.url()).await;
    let guard = north.lock("p", "k").acquire().await.unwrap();
    is_confirmed(&guard, LONG).await;
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).acquire().await });
    eventually("the waiter queues", Duration::from_secs(2), || server.keys().contains_key("{p:k}:queue")).await;
    server.tell("DEL p:k");
    let deleted = Instant::now();
    let next = waiter.await.unwrap().unwrap();
    assert!(deleted.elapsed() < Duration::from_secs(1) + LATE + NOISE, "{:?}", deleted.elapsed());
    // The release of the one that lost it frees nobody's lock.
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(server.owner("p:k").is_some());
    assert!(next.is_valid());
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_full_server_is_not_a_busy_lock_and_still_releases() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    warm_up(&[&manager]).await;
    let guard = manager.lock("p", "held").acquire().await.unwrap();
    server.tell("CONFIG SET maxmemory 1000");
    let error = manager.lock("p", "k").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(error.to_string().contains("OOM"), "{error}");
    // Waiting for it is either granted or refused, in time and without taking the lock for busy.
    let start = Instant::now();
    let outcome = manager.lock("p", "k").timeout(TIMEOUT).acquire().await;
    assert!(!outcome.is_err_and(|error| error.is_timeout()));
    assert!(start.elapsed() < TIMEOUT + LATE + NOISE);
    is_confirmed(&guard, LONG).await;
    guard.release().await.unwrap();
    assert_eq!(server.owner("p:held"), None);
    server.tell("CONFIG SET maxmemory 0");
    is_had_soon(&manager).await.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_reported_and_used_again_when_it_is_a_master() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    server.tell("REPLICAOF 127.0.0.1 1");
    fails_in_time(&manager).await;
    server.tell("REPLICAOF NO ONE");
    is_had_soon(&manager).await.release().await.unwrap();
}
