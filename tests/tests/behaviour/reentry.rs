//! Bodies that ask for a lock that they already hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockManager, OnLost};
use tests::over_every_store;
use tests::patience::{NOISE, Stopwatch};
use tests::stores::World;
use tokio::time::{Instant, sleep};

use crate::{LONG, SHORT, is_free};

over_every_store![
    a_nested_body_enters_at_once,
    a_nested_body_ends_with_the_outer_hold,
    joined_nested_bodies_exclude_each_other,
    a_nested_body_of_another_key_takes_its_own_lock,
    a_spawned_task_does_not_inherit_the_hold,
    a_plain_acquire_of_a_held_key_is_reported_at_once,
    a_plain_acquire_under_a_plain_guard_waits_and_names_this_process,
    a_cloned_manager_is_the_same_manager_to_a_nested_body,
];

async fn a_nested_body_enters_at_once(world: World) {
    let manager = world.manager().await;
    let inner = |depth| {
        let manager = &manager;
        async move { manager.lock("p", "k").timeout(Duration::ZERO).run(async { depth }).await }
    };
    let start = Instant::now();
    let depths = manager
        .lock("p", "k")
        .run(async {
            let first = inner(1).await.unwrap();
            let nested = manager.lock("p", "k").run(inner(2)).await.unwrap().unwrap();
            // The outer hold remains when the inner ones have ended.
            assert!(!is_free_elsewhere(&manager).await);
            (first, nested)
        })
        .await
        .unwrap();
    assert_eq!(depths, (1, 2));
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(is_free(&manager, "k").await);
}

async fn is_free_elsewhere(manager: &LockManager) -> bool {
    let manager = manager.clone();
    tokio::spawn(async move { is_free(&manager, "k").await }).await.unwrap()
}

async fn a_nested_body_ends_with_the_outer_hold(world: World) {
    let manager = world.manager().await;
    let start = Instant::now();
    let outcome = manager
        .lock("p", "k")
        .expire(SHORT)
        .renew(false)
        .on_lost(OnLost::Continue)
        .run(manager.lock("p", "k").expire(LONG).renew(false).run(sleep(LONG)))
        .await;
    assert!(start.elapsed() < SHORT + NOISE, "the inner body ran on under a lost lock");
    assert!(outcome.unwrap_err().is_lost());
}

async fn joined_nested_bodies_exclude_each_other(world: World) {
    let manager = world.manager().await;
    let inside = AtomicUsize::new(0);
    let inner = || {
        manager.lock("p", "k").run(async {
            for _ in 0..5 {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two joined bodies at once");
                sleep(Duration::from_millis(2)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        })
    };
    let (one, two, three) =
        manager.lock("p", "k").run(async { tokio::join!(inner(), inner(), inner()) }).await.unwrap();
    one.and(two).and(three).unwrap();
}

async fn a_nested_body_of_another_key_takes_its_own_lock(world: World) {
    let manager = world.manager().await;
    let _other = manager.lock("p", "other").acquire().await.unwrap();
    let inner = manager.lock("p", "other").timeout(Duration::ZERO).run(async {});
    let outcome = manager.lock("p", "k").run(inner).await.unwrap();
    assert!(outcome.unwrap_err().is_timeout());
}

async fn a_spawned_task_does_not_inherit_the_hold(world: World) {
    let manager = world.manager().await;
    let spawned = manager.clone();
    let outcome = manager
        .lock("p", "k")
        .run(async {
            let task =
                tokio::spawn(
                    async move { spawned.lock("p", "k").timeout(Duration::from_millis(20)).run(async {}).await },
                );
            task.await.unwrap()
        })
        .await
        .unwrap();
    assert!(outcome.unwrap_err().is_timeout());
}

async fn a_plain_acquire_of_a_held_key_is_reported_at_once(world: World) {
    let manager = world.manager().await;
    let start = Instant::now();
    let (waiting, trying) = manager
        .lock("p", "k")
        .run(async {
            let waiting = manager.lock("p", "k").timeout(LONG).acquire().await;
            let trying = manager.lock("p", "k").try_acquire().await;
            (waiting, trying)
        })
        .await
        .unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
    let error = waiting.unwrap_err();
    assert!(matches!(&error, LockError::AlreadyHeld { key, .. } if key == "p:k"), "{error:?}");
    assert!(matches!(trying.unwrap_err(), LockError::AlreadyHeld { .. }));
}

/// A guard belongs to no task: another task may release it while this one waits.
async fn a_plain_acquire_under_a_plain_guard_waits_and_names_this_process(world: World) {
    let manager = world.manager_with(LockManager::builder().label("this process")).await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    let start = Stopwatch::start();
    let error = manager.lock("p", "k").timeout(SHORT).acquire().await.unwrap_err();
    assert!(start.counted() >= SHORT, "{:?}", start.elapsed());
    let LockError::Timeout { holder, .. } = error else { panic!("{error:?}") };
    assert_eq!(holder.as_deref(), Some("this process"));
    let waiting = manager.lock("p", "k").timeout(LONG).acquire();
    let (next, released) = tokio::join!(waiting, guard.release());
    released.unwrap();
    next.unwrap().release().await.unwrap();
}

async fn a_cloned_manager_is_the_same_manager_to_a_nested_body(world: World) {
    let manager = world.manager().await;
    let clone = manager.clone();
    let outcome =
        manager.lock("p", "k").run(async { clone.lock("p", "k").timeout(Duration::ZERO).run(async { 5 }).await }).await;
    assert_eq!(outcome.unwrap().unwrap(), 5);
}
