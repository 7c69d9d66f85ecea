//! Grants that need a confirmation by replicas.

use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use lock_runtime::{LockError, LockManager};
use tests::patience::{NOISE, eventually};
use tests::sentinel::Sentinels;
use tests::server::Server;

const LONG: Duration = Duration::from_secs(20);
const WITHIN: Duration = Duration::from_millis(200);

async fn manager(url: &str, replicas: u32) -> LockManager {
    LockManager::builder().url(url).min_replicas(replicas, WITHIN).connect().await.unwrap()
}

/// Checks that the lock is granted within the three seconds for which an abandoned request may block it.
async fn assert_granted_soon(url: &str) {
    let start = Instant::now();
    let manager = LockManager::connect(url).await.unwrap();
    manager.lock("p", "k").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(3) + NOISE, "{:?}", start.elapsed());
}

fn is_too_few(error: &LockError) -> bool {
    matches!(error, LockError::TooFewReplicas { confirmed: 0, wanted: 1, .. })
}

#[tokio::test]
async fn a_replica_has_the_lock_when_it_is_granted() {
    let sentinels = Sentinels::start(1);
    let manager = manager(&sentinels.url(), 1).await;
    for fenced in [false, true] {
        let guard = manager.lock("p", "k").fenced(fenced).acquire().await.unwrap();
        assert!(sentinels.server(1).owner("p:k").is_some());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_grant_that_too_few_replicas_have_is_withdrawn_and_reported() {
    let sentinels = Sentinels::start(1);
    let url = sentinels.url();
    let manager = manager(&url, 1).await;
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    sentinels.cut_replication();
    for fenced in [false, true] {
        let start = Instant::now();
        let error = manager.lock("p", "k").timeout(LONG).fenced(fenced).acquire().await.unwrap_err();
        assert!(is_too_few(&error), "{error:?}");
        assert!(error.to_string().contains("p:k") && error.to_string().contains("0 of 1"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        assert_granted_soon(&url).await;
    }
    sentinels.heal_replication();
    sentinels.settle();
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_server_without_replicas_grants_nothing_that_needs_one() {
    let server = Server::start();
    let error = manager(&server.url(), 1).await.lock("p", "k").try_acquire().await.unwrap_err();
    assert!(is_too_few(&error), "{error:?}");
    assert_granted_soon(&server.url()).await;
}

#[tokio::test]
async fn a_task_that_is_not_polled_while_it_is_confirmed_delays_no_other() {
    let sentinels = Sentinels::start(1);
    let manager = manager(&sentinels.url(), 1).await;
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    let mut unpolled: Vec<_> = (0..9)
        .map(|key| {
            let mut acquiring = Box::pin(manager.lock("q", &key).timeout(LONG).acquire());
            assert!(acquiring.as_mut().now_or_never().is_none(), "it claims");
            acquiring
        })
        .collect();
    // Replies come in order: once this lock is granted, the claims are answered, too.
    manager.lock("p", "k").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    for acquiring in &mut unpolled {
        drop(acquiring.as_mut().now_or_never());
    }
    for key in 0..9 {
        manager.lock("p", &key).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn many_grants_share_a_confirmation() {
    let server = Server::start();
    let manager = manager(&server.url(), 1).await;
    let start = Instant::now();
    let all = (0..200).map(|key| {
        let manager = manager.clone();
        tokio::spawn(async move { manager.lock("p", &key).timeout(LONG).acquire().await.map(drop) })
    });
    for task in all.collect::<Vec<_>>() {
        let error = task.await.unwrap().unwrap_err();
        assert!(is_too_few(&error), "{error:?}");
    }
    // One after another they would take 20 s, and the library would give up the connection.
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(server.commandstats().of("wait") < 20, "{:?}", server.commandstats());
}

/// The median overshoot of several acquires past their timeout. Each has its own key, and is refused. Most of the errors must name
/// the replicas; on a busy machine a request may not even reach the server.
async fn overtime(manager: &LockManager, name: &str, timeout: Duration) -> Duration {
    let (mut all, mut named) = (Vec::new(), 0);
    // A single try waits for one reply, for at most the command timeout.
    let own = if timeout.is_zero() { Duration::from_millis(500) } else { timeout };
    for number in 0..9 {
        let start = Instant::now();
        let key = (name, timeout.as_millis().try_into().unwrap_or(0u64), number);
        let error = manager.lock("p", &key).timeout(timeout).acquire().await.unwrap_err();
        all.push(start.elapsed().saturating_sub(own));
        named += usize::from(is_too_few(&error));
    }
    assert!(named > all.len() / 2, "timeout {timeout:?}: {named} of {}", all.len());
    all.sort();
    all[all.len() / 2]
}

#[tokio::test]
async fn replicas_that_do_not_answer_are_named_in_time_whatever_the_timeout() {
    let server = Server::start();
    let manager = manager(&server.url(), 1).await;
    for timeout in [0, 1, 20, 50, 90, 150, 220, 300] {
        let overtime = overtime(&manager, "alone", Duration::from_millis(timeout)).await;
        assert!(overtime < Duration::from_millis(100), "timeout {timeout} ms: {overtime:?}");
    }
}

#[tokio::test]
async fn silent_replicas_are_named_in_time_to_every_waiter() {
    let server = Server::start();
    let manager = manager(&server.url(), 1).await;
    let crowd = [0, 1, 20, 50, 90, 150, 220, 300, 1000].map(|timeout| {
        let manager = manager.clone();
        tokio::spawn(async move {
            let overtime = overtime(&manager, "crowd", Duration::from_millis(timeout)).await;
            assert!(overtime < Duration::from_millis(100), "timeout {timeout} ms: {overtime:?}");
        })
    });
    for task in crowd {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn requests_for_the_same_lock_name_the_replicas_too() {
    let server = Server::start();
    let manager = manager(&server.url(), 1).await;
    for _ in 0..5 {
        let timeouts = [300, 0, 60, 200].map(Duration::from_millis);
        let all = timeouts.map(|timeout| manager.lock("p", "k").timeout(timeout).acquire());
        let errors: Vec<_> = futures_util::future::join_all(all).await.into_iter().map(Result::unwrap_err).collect();
        // Some may time out while the lock that was granted to another is being released.
        assert!(errors.iter().all(|error| is_too_few(error) || error.is_timeout()), "{errors:?}");
        assert!(errors.iter().any(is_too_few), "{errors:?}");
    }
}

#[tokio::test]
async fn a_lock_that_is_passed_on_counts_no_sooner() {
    let sentinels = Sentinels::start(1);
    let url = sentinels.url();
    let holder = LockManager::connect(&url).await.unwrap();
    let guard = holder.lock("p", "k").acquire().await.unwrap();
    let waiter = manager(&url, 1).await;
    let waiting = tokio::spawn(async move { waiter.lock("p", "k").timeout(LONG).acquire().await.map(drop) });
    eventually("the waiter queues", LONG, || sentinels.server(0).keys().contains_key("{p:k}:queue")).await;
    sentinels.cut_replication();
    guard.release().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(is_too_few(&error), "{error:?}");
    assert_granted_soon(&url).await;
}

#[tokio::test]
async fn a_lease_that_replicas_do_not_confirm_any_more_ends_at_its_deadline() {
    let sentinels = Sentinels::start(1);
    let manager = manager(&sentinels.url(), 1).await;
    let expire = Duration::from_secs(1);
    let guard = manager.lock("p", "k").expire(expire).renew(true).acquire().await.unwrap();
    tokio::time::sleep(expire * 2).await;
    assert!(guard.is_valid(), "it must be renewed while the replica is up");
    sentinels.cut_replication();
    let start = Instant::now();
    tokio::time::timeout(LONG, guard.lost()).await.expect("the holder learns of the loss");
    assert!(start.elapsed() < expire + NOISE, "{:?}", start.elapsed());
    let error = manager.lock("p", "other").acquire().await.unwrap_err();
    assert!(is_too_few(&error), "{error:?}");
}

#[tokio::test]
async fn a_confirmed_lock_outlives_the_master() {
    let mut sentinels = Sentinels::start(1);
    let manager = manager(&sentinels.url(), 1).await;
    let guard = manager.lock("p", "k").expire(Duration::from_mins(1)).renew(false).acquire().await.unwrap();
    eventually("the full lease is confirmed", LONG, || guard.remaining() > Duration::from_secs(10)).await;
    // At once: the promise must not depend on the replica catching up later.
    sentinels.server_mut(0).kill();
    assert_eq!(sentinels.await_another(0), 1);
    let left = sentinels.server(1).keys()["p:k"];
    assert!(left > 30_000, "{left}");
    assert!(guard.is_valid());
    // No replica is left that could confirm a grant.
    let error = manager.lock("p", "other").timeout(LONG).acquire().await.unwrap_err();
    assert!(is_too_few(&error), "{error:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn without_min_replicas_nothing_waits_for_replicas() {
    let server = Server::start();
    for builder in [LockManager::builder(), LockManager::builder().min_replicas(0, WITHIN)] {
        let manager = builder.url(&server.url()).connect().await.unwrap();
        manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(server.commandstats().of("wait"), 0);
}

#[tokio::test]
async fn a_timeout_that_would_pass_for_a_dead_connection_is_refused() {
    for within in [Duration::ZERO, Duration::from_millis(251), Duration::from_mins(1)] {
        let builder = LockManager::builder().url("redis://127.0.0.1").min_replicas(1, within);
        let error = builder.connect().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidSetting { setting: "min_replicas", .. }), "{error:?}");
    }
}

#[tokio::test]
async fn more_replicas_than_there_can_be_are_refused() {
    for count in [101, u32::MAX] {
        let builder = LockManager::builder().url("redis://127.0.0.1").min_replicas(count, WITHIN);
        let error = builder.connect().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidSetting { setting: "min_replicas", .. }), "{error:?}");
    }
}

#[tokio::test]
async fn locks_in_this_process_have_no_replicas_to_wait_for() {
    let builder = || LockManager::builder().min_replicas(1, WITHIN);
    let is_refused = |error: LockError| {
        assert!(matches!(error, LockError::InvalidSetting { setting: "min_replicas", .. }), "{error:?}");
    };
    is_refused(builder().url("memory://").connect().await.unwrap_err());
    let first = LockManager::in_memory();
    for manager in [builder().in_memory(), builder().in_memory_with(&first).unwrap()] {
        is_refused(manager.lock("p", "k").acquire().await.unwrap_err());
    }
}
