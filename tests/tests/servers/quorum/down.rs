//! Some or most of the servers are down.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::patience::{NOISE, eventually};
use tests::quorum::Servers;
use tokio::time::sleep;

use super::{LONG, ORPHAN, POLLED, QUICK, SOON, fenced, held, manager, median};

/// Locks, waits, renews and releases while one server is down. No step may wait for that server.
async fn works_without(one: &LockManager, two: &LockManager) {
    let mut rounds = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        let guard = held(one, "quick").await;
        guard.extend(Duration::from_secs(30)).await.unwrap();
        guard.release().await.unwrap();
        rounds.push(start.elapsed());
    }
    assert!(median(&mut rounds) < QUICK, "{rounds:?}");
    assert!(fenced(one, "numbered").await < fenced(two, "numbered").await);
    rounds.clear();
    for _ in 0..5 {
        let guard = held(one, "passed").await;
        let waiting = tokio::spawn({
            let two = two.clone();
            async move { held(&two, "passed").await }
        });
        sleep(POLLED).await;
        let start = Instant::now();
        guard.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        rounds.push(start.elapsed());
    }
    assert!(median(&mut rounds) < QUICK, "{rounds:?}");
}

#[tokio::test]
async fn a_killed_minority_is_not_missed() {
    for dead in 0..3 {
        let mut servers = Servers::start(3);
        let (one, two) = (manager(&servers).await, manager(&servers).await);
        let before = held(&one, "before").await;
        servers.server_mut(dead).kill();
        works_without(&one, &two).await;
        before.release().await.unwrap();
        // Managers that start without it don't miss it either.
        let start = Instant::now();
        let late = manager(&servers).await;
        held(&late, "late").await.release().await.unwrap();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_stopped_minority_is_not_missed() {
    for stopped in 0..3 {
        let servers = Servers::start(3);
        let (one, two) = (manager(&servers).await, manager(&servers).await);
        let before = held(&one, "before").await;
        servers.server(stopped).freeze();
        works_without(&one, &two).await;
        before.release().await.unwrap();
        let start = Instant::now();
        let late = manager(&servers).await;
        held(&late, "late").await.release().await.unwrap();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        servers.server(stopped).thaw();
    }
}

/// Without a majority nobody gets a lock, and holds end at their deadlines.
async fn nobody_locks_without_a_majority(mut servers: Servers, fall: impl Fn(&mut Servers, usize)) {
    let manager = manager(&servers).await;
    let (lasts, expire) = (held(&manager, "lasts").await, Duration::from_secs(2));
    let ends = manager.lock("p", "ends").expire(expire).renew(true).acquire().await.unwrap();
    fall(&mut servers, 1);
    fall(&mut servers, 2);
    for timeout in [Duration::ZERO, Duration::from_millis(700)] {
        for key in ["free", "lasts"] {
            let start = Instant::now();
            let error = manager.lock("q", key).timeout(timeout).acquire().await.unwrap_err();
            assert!(matches!(error, LockError::Backend { .. }), "{timeout:?}: {error:?}");
            assert!(
                // A single try waits for one reply, for at most the command timeout.
                start.elapsed() < timeout.max(Duration::from_millis(500)) + Duration::from_millis(100) + NOISE,
                "{timeout:?}: {:?}",
                start.elapsed()
            );
        }
    }
    let start = Instant::now();
    tokio::time::timeout(LONG, ends.lost()).await.unwrap();
    assert!(start.elapsed() < expire + NOISE);
    assert!(lasts.is_valid());
    let error = lasts.release().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    eventually("nothing is left on the live server", ORPHAN + NOISE, || servers.server(0).keys().is_empty()).await;
}

#[tokio::test]
async fn a_killed_majority_is_reported_in_time_and_ends_all_holds() {
    nobody_locks_without_a_majority(Servers::start(3), |servers, number| servers.server_mut(number).kill()).await;
}

#[tokio::test]
async fn a_stopped_majority_is_reported_in_time_and_ends_all_holds() {
    nobody_locks_without_a_majority(Servers::start(3), |servers, number| servers.server(number).freeze()).await;
}

#[tokio::test]
async fn a_lock_that_a_minority_still_keeps_is_not_called_busy_while_the_majority_is_down() {
    let mut servers = Servers::start(3);
    let (holder, other) = (manager(&servers).await, manager(&servers).await);
    let guard = held(&holder, "k").await;
    servers.server_mut(1).kill();
    servers.server_mut(2).kill();
    let error = other.lock("p", "k").timeout(Duration::from_millis(500)).acquire().await.unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(error.to_string().contains(&servers.server(2).address()), "{error}");
    drop(guard);
}

/// The task's first reply was that the lock is busy; its error must be about the last one.
async fn a_waiting_task_gets_an_error_when(fall: impl Fn(&mut Servers, usize)) {
    let mut servers = Servers::start(3);
    let (holder, other) = (manager(&servers).await, manager(&servers).await);
    let guard = held(&holder, "k").await;
    let waiting = tokio::spawn(async move { other.lock("p", "k").timeout(Duration::from_secs(4)).acquire().await });
    sleep(POLLED).await;
    fall(&mut servers, 1);
    fall(&mut servers, 2);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(error.to_string().contains(&servers.server(2).address()), "{error}");
    drop(guard);
}

#[tokio::test]
async fn a_waiting_task_gets_an_error_when_a_majority_dies() {
    a_waiting_task_gets_an_error_when(|servers, number| servers.server_mut(number).kill()).await;
}

#[tokio::test]
async fn a_waiting_task_gets_an_error_when_a_majority_stops() {
    a_waiting_task_gets_an_error_when(|servers, number| servers.server(number).freeze()).await;
}

#[tokio::test]
async fn managers_that_name_the_servers_in_different_orders_share_what_is_left() {
    let mut servers = Servers::start(3);
    let (scheme, hosts) = servers.url().split_once("://").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let reversed: Vec<_> = hosts.rsplit(',').collect();
    let other = LockManager::connect(&format!("{scheme}://{}", reversed.join(","))).await.unwrap();
    let managers = [manager(&servers).await, other];
    servers.server_mut(0).kill();
    let tasks = managers.map(|manager| {
        tokio::spawn(async move {
            for _ in 0..100 {
                let guard = held(&manager, "k").await;
                sleep(Duration::from_millis(1)).await;
                guard.release().await.unwrap();
            }
        })
    });
    for task in tasks {
        tokio::time::timeout(LONG, task).await.expect("all are soon served").unwrap();
    }
}
