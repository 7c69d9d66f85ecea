//! Who gets a lock and when, and the errors of the others.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, poll};
use lock_runtime::{LockError, LockManager};
use tests::over_every_store;
use tests::patience::{NOISE, Stopwatch};
use tests::stores::World;
use tokio::time::{Instant, sleep};

use crate::{LONG, SHORT, is_free};

over_every_store![
    a_lock_excludes,
    waiters_are_served_first_come_first_served,
    a_timeout_names_the_key_the_wait_and_the_holder,
    the_default_timeout_is_the_managers,
    a_single_try_gets_a_free_lock_and_not_a_taken_one,
    a_timeout_of_zero_never_queues,
    a_waiter_gets_a_lock_that_expires,
    a_waiter_is_served_when_the_guard_is_dropped,
    a_request_that_is_never_awaited_locks_nothing,
];

async fn a_lock_excludes(world: World) {
    let manager = world.manager().await;
    let inside = Arc::new(AtomicBool::new(false));
    let tasks = (0..8).map(|_| {
        let (manager, inside) = (manager.clone(), Arc::clone(&inside));
        tokio::spawn(async move {
            for _ in 0..20 {
                let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two hold the lock");
                tokio::task::yield_now().await;
                inside.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

async fn waiters_are_served_first_come_first_served(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..20 {
        let request = manager.lock("p", "k").timeout(LONG);
        let mut waiter = Box::pin(async move {
            let guard = request.acquire().await.unwrap();
            sleep(Duration::from_millis(1)).await;
            drop(guard);
            number
        });
        assert!(poll!(&mut waiter).is_pending());
        waiters.push(waiter);
    }
    drop(guard);
    let served: Vec<_> = waiters.into_iter().collect::<FuturesUnordered<_>>().collect().await;
    assert_eq!(served, (0..20).collect::<Vec<_>>());
}

async fn a_timeout_names_the_key_the_wait_and_the_holder(world: World) {
    let manager = world.manager_with(LockManager::builder().label("till 3@north")).await;
    let _guard = manager.lock("p", "k").acquire().await.unwrap();
    let timeout = Duration::from_millis(50);
    let start = Instant::now();
    let error = manager.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
    assert!(start.elapsed() < timeout + Duration::from_millis(100) + NOISE);
    assert!(error.is_timeout());
    let text = error.to_string();
    assert!(text.contains("`p:k`") && text.contains("till 3@north"), "{text}");
    assert!(text.contains("held by this process") && error.retry_after().is_none(), "{text}");
    let LockError::Timeout { key, waited, holder, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(key, "p:k");
    assert!(waited >= timeout && waited < timeout + Duration::from_millis(100) + NOISE, "{waited:?}");
    assert_eq!(holder.as_deref(), Some("till 3@north"));
}

async fn the_default_timeout_is_the_managers(world: World) {
    let timeout = Duration::from_millis(40);
    let manager = world.manager_with(LockManager::builder().default_timeout(timeout)).await;
    let _guard = manager.lock("p", "k").acquire().await.unwrap();
    let start = Stopwatch::start();
    assert!(manager.lock("p", "k").acquire().await.unwrap_err().is_timeout());
    assert!(start.counted() >= timeout && start.elapsed() < timeout + Duration::from_millis(100) + NOISE);
}

async fn a_single_try_gets_a_free_lock_and_not_a_taken_one(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").try_acquire().await.unwrap().expect("it is free");
    assert!(manager.lock("p", "k").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(is_free(&manager, "k").await);
}

async fn a_timeout_of_zero_never_queues(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    for _ in 0..3 {
        let start = Instant::now();
        let refused = manager.lock("p", "k").timeout(Duration::ZERO).acquire().await;
        assert!(refused.unwrap_err().is_timeout());
        assert!(start.elapsed() < Duration::from_millis(100) + NOISE);
    }
    world.agrees().await;
    if let Some(keys) = world.keys() {
        assert_eq!(keys.into_keys().collect::<Vec<_>>(), ["p:k"], "no queue");
    }
    guard.release().await.unwrap();
    assert!(is_free(&manager, "k").await);
}

async fn a_waiter_gets_a_lock_that_expires(world: World) {
    let manager = world.manager().await;
    let holder = manager.lock("p", "k").expire(SHORT).renew(false).acquire().await.unwrap();
    let start = Instant::now();
    let next = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    assert!(!holder.is_valid(), "both hold it");
    assert!(start.elapsed() < SHORT + Duration::from_secs(1) + NOISE);
    // The late holder's release must not free the other's lock.
    assert!(holder.release().await.unwrap_err().is_lost());
    assert!(next.is_valid());
    assert!(!is_free(&manager, "k").await);
    next.release().await.unwrap();
}

async fn a_waiter_is_served_when_the_guard_is_dropped(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    let mut waiter = pin!(manager.lock("p", "k").timeout(LONG).acquire());
    assert!(poll!(&mut waiter).is_pending());
    let start = Instant::now();
    drop(guard);
    waiter.await.unwrap().release().await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(100) + NOISE, "{:?}", start.elapsed());
}

async fn a_request_that_is_never_awaited_locks_nothing(world: World) {
    let manager = world.manager().await;
    drop(manager.lock("p", "k").acquire());
    drop(manager.lock("p", "k").run(async {}));
    assert!(is_free(&manager, "k").await);
}
