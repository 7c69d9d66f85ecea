//! Limits on the number of waiters, and the error for one too many.

use std::pin::pin;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, poll};
use lock_runtime::{LockError, LockGuard, LockManager};
use tests::over_every_store;
use tests::patience::{NOISE, eventually};
use tests::stores::World;
use tokio::time::{Instant, sleep, timeout};

use crate::{LONG, SHORT, is_free};

over_every_store![
    one_waiter_too_many_for_a_key_is_refused_at_once,
    the_task_that_asks_the_store_counts_as_a_waiter,
    one_waiter_too_many_in_all_is_refused_and_leaves_nothing,
    a_request_that_does_not_wait_is_not_counted,
    a_waiter_that_leaves_makes_room,
    a_hundred_thousand_wait_for_one_key_by_default,
    a_hundred_thousand_wait_for_ten_thousand_keys_by_default,
];

fn is_one_too_many(outcome: Result<LockGuard, LockError>, allowed: usize) {
    let error = outcome.unwrap_err();
    assert!(!error.is_timeout() && !error.is_lost(), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("`p:") && text.contains("max_waiters"), "{text}");
    let LockError::TooManyWaiters { limit, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(limit, allowed);
}

/// Waits until each of the keys has a waiter here and in the store's queue.
///
/// The server knows it first: a task counts as a waiter as soon as it has seen the server's refusal.
async fn are_queued_for(world: &World, manager: &LockManager, keys: std::ops::Range<u32>) {
    match world.keys() {
        Some(_) => {
            let are_queued = || {
                let there = world.keys().unwrap_or_default();
                // A quorum has no queue.
                world.is_quorum() || keys.clone().all(|key| there.contains_key(&format!("{{p:{key}}}:queue")))
            };
            eventually("the waiters are queued", LONG, are_queued).await;
            eventually("they wait", LONG, || manager.stats().waiting == u64::from(keys.end)).await;
        }
        // The paused clock advances when every task waits.
        None => sleep(Duration::from_millis(1)).await,
    }
}

async fn one_waiter_too_many_for_a_key_is_refused_at_once(world: World) {
    let manager = world.manager_with(LockManager::builder().max_waiters_per_key(3)).await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    let mut waiters: Vec<_> = (0..3).map(|_| Box::pin(manager.lock("p", "k").timeout(LONG).acquire())).collect();
    for waiter in &mut waiters {
        assert!(poll!(waiter).is_pending());
    }
    let start = Instant::now();
    is_one_too_many(manager.lock("p", "k").timeout(LONG).acquire().await, 3);
    assert!(start.elapsed() < NOISE);
    // Other keys accept waiters, and the queued ones are served.
    drop(manager.lock("p", "other").acquire().await.unwrap());
    drop(guard);
    for waiter in waiters {
        drop(waiter.await.unwrap());
    }
    assert!(is_free(&manager, "k").await);
}

async fn the_task_that_asks_the_store_counts_as_a_waiter(world: World) {
    let holder = world.manager().await;
    let guard = holder.lock("p", "k").acquire().await.unwrap();
    let manager = world.manager_with(LockManager::builder().max_waiters_per_key(2)).await;
    let request = || manager.lock("p", "k").timeout(LONG).acquire();
    let (mut one, mut two) = (Box::pin(request()), Box::pin(request()));
    assert!(poll!(&mut one).is_pending() && poll!(&mut two).is_pending());
    is_one_too_many(request().await, 2);
    let (released, one) = tokio::join!(guard.release(), one);
    released.unwrap();
    drop(one.unwrap());
    drop(two.await.unwrap());
}

async fn one_waiter_too_many_in_all_is_refused_and_leaves_nothing(world: World) {
    let holder = world.manager().await;
    let mut held = Vec::new();
    for key in 0..4 {
        held.push(holder.lock("p", &key).acquire().await.unwrap());
    }
    let manager = world.manager_with(LockManager::builder().max_waiters(3)).await;
    let waiters: Vec<_> = (0..3)
        .map(|key| {
            let manager = manager.clone();
            tokio::spawn(async move { manager.lock("p", &key).timeout(LONG).acquire().await.map(drop) })
        })
        .collect();
    are_queued_for(&world, &manager, 0..3).await;
    is_one_too_many(manager.lock("p", &3).timeout(LONG).acquire().await, 3);
    held.pop().unwrap().release().await.unwrap();
    // The refused request is not queued: the lock is free.
    let next = timeout(Duration::from_secs(3), holder.lock("p", &3).timeout(LONG).acquire()).await.unwrap().unwrap();
    drop(next);
    drop(held);
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    let again = manager.lock("p", &3).timeout(LONG).acquire().await.unwrap();
    again.release().await.unwrap();
}

async fn a_request_that_does_not_wait_is_not_counted(world: World) {
    let manager = world.manager_with(LockManager::builder().max_waiters(1)).await;
    let _guard = manager.lock("p", "k").acquire().await.unwrap();
    let mut waiter = pin!(manager.lock("p", "k").timeout(LONG).acquire());
    assert!(poll!(&mut waiter).is_pending());
    is_one_too_many(manager.lock("p", "k").timeout(SHORT).acquire().await, 1);
    assert!(!is_free(&manager, "k").await);
    let guards = [manager.lock("p", "a").acquire().await, manager.lock("p", "b").acquire().await];
    for guard in guards {
        guard.unwrap().release().await.unwrap();
    }
}

async fn a_waiter_that_leaves_makes_room(world: World) {
    let manager = world.manager_with(LockManager::builder().max_waiters(1)).await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    for _ in 0..3 {
        assert!(manager.lock("p", "k").timeout(Duration::from_millis(10)).acquire().await.unwrap_err().is_timeout());
        let mut waiter = Box::pin(manager.lock("p", "k").timeout(LONG).acquire());
        assert!(poll!(&mut waiter).is_pending());
        is_one_too_many(manager.lock("p", "k").acquire().await, 1);
    }
    guard.release().await.unwrap();
    assert!(is_free(&manager, "k").await);
}

/// A hundred thousand requests wait, and are dropped.
async fn crowds(world: World, keys: u32) {
    const CROWD: u32 = 100_000;
    let manager = world.manager().await;
    let mut held = Vec::new();
    for key in 0..keys {
        held.push(manager.lock("p", &key).expire(Duration::from_mins(5)).renew(false).acquire().await.unwrap());
    }
    let mut crowd: FuturesUnordered<_> = (0..CROWD)
        .map(|number| Box::pin(manager.lock("p", &(number % keys)).timeout(Duration::from_mins(5)).acquire()))
        .collect();
    assert!(poll!(crowd.next()).is_pending(), "one did not wait");
    drop(crowd);
    drop(held);
}

async fn a_hundred_thousand_wait_for_one_key_by_default(world: World) {
    crowds(world, 1).await;
}

async fn a_hundred_thousand_wait_for_ten_thousand_keys_by_default(world: World) {
    crowds(world, 10_000).await;
}
