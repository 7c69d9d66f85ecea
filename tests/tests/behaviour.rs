//! What a lock does, over every store: in memory under a paused clock, and on a Redis of the test's own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::large_futures,
    reason = "a test fails by panicking"
)]

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::poll;
use futures_util::stream::FuturesUnordered;
use lock_runtime::{FencingToken, LockError, LockManager, OnLost};
use tests::over_every_store;
use tests::patience::{NOISE, eventually};
use tests::stores::World;
use tokio::time::{Instant, sleep};

over_every_store![
    a_lock_excludes,
    waiters_are_served_first_come_first_served,
    a_timeout_names_the_key_the_wait_and_the_holder,
    the_default_timeout_is_the_managers,
    a_single_try_gets_a_free_lock_and_not_a_taken_one,
    a_timeout_of_zero_never_queues,
    a_hold_ends_with_its_expire,
    a_waiter_gets_a_lock_that_expires,
    a_renewed_hold_outlives_its_lease,
    a_hold_without_an_expire_is_renewed,
    a_dropped_guard_frees_the_lock,
    a_waiter_is_served_when_the_guard_is_dropped,
    extending_moves_the_deadline,
    extending_never_shortens,
    a_lost_hold_is_not_extended,
    a_lease_out_of_bounds_is_not_extended_to,
    fencing_tokens_grow_from_hold_to_hold,
    fencing_tokens_grow_along_the_queue,
    fencing_tokens_grow_over_a_hold_that_expired,
    no_token_is_drawn_unasked,
    a_body_runs_and_its_value_comes_back,
    a_lost_body_is_never_polled_again,
    a_lost_body_is_dropped_before_the_next_holder_enters,
    a_body_that_may_continue_runs_to_its_end,
    a_body_that_ends_too_late_says_so,
    a_nested_body_enters_at_once,
    a_nested_body_ends_with_the_outer_hold,
    joined_nested_bodies_exclude_each_other,
    a_nested_body_of_another_key_takes_its_own_lock,
    a_spawned_task_does_not_inherit_the_hold,
    a_plain_acquire_of_a_held_key_is_reported_at_once,
    a_cloned_manager_is_the_same_manager_to_a_nested_body,
    a_scope_is_the_default_inside_it_only,
    without_a_manager_the_error_says_what_to_call,
    shutdown_refuses_new_locks,
    shutdown_fails_waiters,
    shutdown_lets_a_short_body_end,
    shutdown_drops_a_body_that_does_not_end,
    different_keys_do_not_block_each_other,
    namespaces_are_separate,
    a_key_is_named_prefix_and_escaped_parts,
    a_request_that_is_never_awaited_locks_nothing,
    a_manager_shows_its_label,
];

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(10);

/// The lock can be had right now.
async fn is_free(manager: &LockManager, key: &str) -> bool {
    manager.lock("p", key).try_acquire().await.unwrap().is_some()
}

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
    let LockError::Timeout { key, waited, holder } = error else {
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
    let start = Instant::now();
    assert!(manager.lock("p", "k").acquire().await.unwrap_err().is_timeout());
    assert!(start.elapsed() >= timeout && start.elapsed() < timeout + Duration::from_millis(100) + NOISE);
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
    if let Some(server) = world.server() {
        assert_eq!(server.keys().into_keys().collect::<Vec<_>>(), ["p:k"], "no queue");
    }
    guard.release().await.unwrap();
    assert!(is_free(&manager, "k").await);
}

async fn a_hold_ends_with_its_expire(world: World) {
    let manager = world.manager().await;
    let start = Instant::now();
    let guard = manager.lock("p", "k").expire(SHORT).acquire().await.unwrap();
    assert!(guard.is_valid());
    assert!(guard.remaining() > Duration::ZERO && guard.remaining() <= SHORT);
    guard.lost().await;
    let held = start.elapsed();
    assert!(held > SHORT / 2 && held < SHORT + NOISE, "{held:?}");
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), Duration::ZERO);
    let error = guard.release().await.unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    assert!(error.to_string().contains("`p:k`"));
}

async fn a_waiter_gets_a_lock_that_expires(world: World) {
    let manager = world.manager().await;
    let holder = manager.lock("p", "k").expire(SHORT).acquire().await.unwrap();
    let start = Instant::now();
    let next = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    assert!(!holder.is_valid(), "both hold it");
    assert!(start.elapsed() < SHORT + Duration::from_secs(1) + NOISE);
    // The release of the one that is late must not free the lock of the other.
    assert!(holder.release().await.unwrap_err().is_lost());
    assert!(next.is_valid());
    assert!(!is_free(&manager, "k").await);
    next.release().await.unwrap();
}

async fn a_renewed_hold_outlives_its_lease(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").expire(SHORT).renew(true).acquire().await.unwrap();
    for _ in 0..12 {
        sleep(SHORT / 3).await;
        assert!(guard.is_valid());
        assert!(!is_free(&manager, "k").await);
    }
    guard.release().await.unwrap();
    assert!(is_free(&manager, "k").await);
}

async fn a_hold_without_an_expire_is_renewed(world: World) {
    let manager = world.manager_with(LockManager::builder().default_expire(SHORT)).await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    sleep(SHORT * 3).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

async fn a_dropped_guard_frees_the_lock(world: World) {
    let manager = world.manager().await;
    drop(manager.lock("p", "k").acquire().await.unwrap());
    assert!(is_free(&manager, "k").await);
    if let Some(server) = world.server() {
        eventually("the key is gone", Duration::from_secs(1), || server.owner("p:k").is_none()).await;
    }
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

async fn extending_moves_the_deadline(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").expire(SHORT).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    assert!(guard.remaining() > LONG / 2 && guard.remaining() <= LONG, "{:?}", guard.remaining());
    sleep(SHORT * 2).await;
    assert!(guard.is_valid());
    assert!(!is_free(&manager, "k").await);
    guard.release().await.unwrap();
}

async fn extending_never_shortens(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").expire(LONG).acquire().await.unwrap();
    guard.extend(LONG).await.unwrap();
    guard.extend(Duration::from_millis(50)).await.unwrap();
    assert!(guard.remaining() > LONG / 2, "{:?}", guard.remaining());
    guard.release().await.unwrap();
}

async fn a_lost_hold_is_not_extended(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").expire(Duration::from_millis(50)).acquire().await.unwrap();
    guard.lost().await;
    assert!(guard.extend(LONG).await.unwrap_err().is_lost());
    assert!(!guard.is_valid());
}

async fn a_lease_out_of_bounds_is_not_extended_to(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    for lease in [Duration::ZERO, Duration::from_millis(5), Duration::from_hours(400 * 24), Duration::MAX] {
        let error = guard.extend(lease).await.unwrap_err();
        assert!(matches!(error, LockError::InvalidSetting { .. }), "{lease:?}: {error:?}");
    }
    assert!(guard.is_valid());
}

async fn fencing_tokens_grow_from_hold_to_hold(world: World) {
    let manager = world.manager().await;
    let mut last = None;
    for _ in 0..30 {
        let guard = manager.lock("p", "k").fenced(true).acquire().await.unwrap();
        let token = guard.fencing_token();
        assert!(token > last, "{token:?} after {last:?}");
        last = token;
        guard.release().await.unwrap();
    }
}

async fn fencing_tokens_grow_along_the_queue(world: World) {
    let manager = world.manager().await;
    let drawn: Arc<Mutex<Vec<FencingToken>>> = Arc::default();
    // More than the 64 that a lease may reserve.
    let tasks = (0..150).map(|_| {
        let (manager, drawn) = (manager.clone(), Arc::clone(&drawn));
        tokio::spawn(async move {
            let guard = manager.lock("p", "k").fenced(true).timeout(LONG).acquire().await.unwrap();
            drawn.lock().unwrap().push(guard.fencing_token().unwrap());
            tokio::task::yield_now().await;
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let drawn = drawn.lock().unwrap();
    assert_eq!(drawn.len(), 150);
    assert!(drawn.is_sorted_by(|earlier, later| earlier < later), "{drawn:?}");
    // A token is a number, for a column in a database.
    assert_eq!(u64::from(drawn[0]).to_string(), drawn[0].to_string());
}

async fn fencing_tokens_grow_over_a_hold_that_expired(world: World) {
    let manager = world.manager().await;
    let request = || manager.lock("p", "k").fenced(true).expire(Duration::from_millis(60)).timeout(LONG);
    let first = request().acquire().await.unwrap();
    first.lost().await;
    let second = request().acquire().await.unwrap();
    assert!(second.fencing_token() > first.fencing_token());
}

async fn no_token_is_drawn_unasked(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    assert_eq!(guard.fencing_token(), None);
    if let Some(server) = world.server() {
        assert_eq!(server.keys().into_keys().collect::<Vec<_>>(), ["p:k"], "no fence record");
    }
}

async fn a_body_runs_and_its_value_comes_back(world: World) {
    let manager = world.manager().await;
    let value = manager
        .lock("p", &("a", 7))
        .run(async {
            sleep(Duration::from_millis(5)).await;
            !is_free_pair(&manager).await
        })
        .await;
    assert!(value.unwrap(), "the lock was free during the body");
    assert!(is_free_pair(&manager).await);
}

async fn is_free_pair(manager: &LockManager) -> bool {
    let manager = manager.clone();
    // In a task of its own: in the body's task the lock is entered, not busy.
    let tried = tokio::spawn(async move { manager.lock("p", &("a", 7)).try_acquire().await });
    tried.await.unwrap().unwrap().is_some()
}

async fn a_lost_body_is_never_polled_again(world: World) {
    let manager = world.manager().await;
    let steps: Mutex<Vec<Duration>> = Mutex::default();
    let start = Instant::now();
    let error = manager
        .lock("p", "k")
        .expire(SHORT)
        .run(async {
            loop {
                steps.lock().unwrap().push(start.elapsed());
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, .. }), "{error:?}");
    assert!(start.elapsed() < SHORT + NOISE);
    let steps = steps.into_inner().unwrap();
    // From before the acquire: the first reading of a step is a hair after the poll began.
    let last = *steps.last().unwrap();
    assert!(steps.len() > 5 && last <= SHORT + Duration::from_millis(2), "{last:?} after {}", steps.len());
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

async fn a_lost_body_is_dropped_before_the_next_holder_enters(world: World) {
    let manager = world.manager().await;
    let gone = Arc::new(AtomicBool::new(false));
    let body = Dropped(Arc::clone(&gone));
    let lost = manager.lock("p", "k").expire(SHORT).run(async move {
        let _body = body;
        std::future::pending::<()>().await;
    });
    let mut lost = pin!(lost);
    assert!(poll!(&mut lost).is_pending());
    let next = async {
        // Behind the first in the queue of this process, because polled after it.
        let guard = manager.lock("p", "k").timeout(LONG).acquire().await.unwrap();
        assert!(gone.load(Ordering::SeqCst), "the lost body still exists");
        guard.release().await.unwrap();
    };
    let (lost, ()) = tokio::join!(lost, next);
    assert!(lost.unwrap_err().is_lost());
}

async fn a_body_that_may_continue_runs_to_its_end(world: World) {
    let manager = world.manager().await;
    let ended = AtomicBool::new(false);
    let error = manager
        .lock("p", "k")
        .expire(Duration::from_millis(100))
        .on_lost(OnLost::Continue)
        .run(async {
            sleep(SHORT).await;
            ended.store(true, Ordering::SeqCst);
        })
        .await
        .unwrap_err();
    assert!(ended.into_inner());
    assert!(matches!(error, LockError::Lost { completed: true, .. }), "{error:?}");
}

async fn a_body_that_ends_too_late_says_so(world: World) {
    let manager = world.manager().await;
    let error = manager
        .lock("p", "k")
        .expire(Duration::from_millis(50))
        .run(async {
            // One step that blocks its thread for longer than the lease: nobody can stop it.
            std::thread::sleep(Duration::from_millis(120));
        })
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: true, .. }), "{error:?}");
    assert!(error.to_string().contains("ran to its end"));
}

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
            // The outer hold stays after the inner ones are through.
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
        .on_lost(OnLost::Continue)
        .run(manager.lock("p", "k").expire(LONG).run(sleep(LONG)))
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
    assert!(matches!(&error, LockError::AlreadyHeld { key } if key == "p:k"), "{error:?}");
    assert!(matches!(trying.unwrap_err(), LockError::AlreadyHeld { .. }));
}

async fn a_cloned_manager_is_the_same_manager_to_a_nested_body(world: World) {
    let manager = world.manager().await;
    let clone = manager.clone();
    let outcome =
        manager.lock("p", "k").run(async { clone.lock("p", "k").timeout(Duration::ZERO).run(async { 5 }).await }).await;
    assert_eq!(outcome.unwrap().unwrap(), 5);
}

async fn a_scope_is_the_default_inside_it_only(world: World) {
    let outer = world.manager_with(LockManager::builder().label("outer")).await;
    let inner = world.manager_with(LockManager::builder().label("inner")).await;
    let current = || LockManager::current().map(|manager| format!("{manager:?}"));
    assert_eq!(current(), None);
    outer
        .scope(async {
            assert!(current().unwrap().contains("outer"));
            inner.scope(async { assert!(current().unwrap().contains("inner")) }).await;
            assert!(current().unwrap().contains("outer"));
            let spawned = tokio::spawn(async move { LockManager::current().is_none() });
            assert!(spawned.await.unwrap(), "a spawned task inherited the scope");
        })
        .await;
    assert_eq!(current(), None);
}

async fn without_a_manager_the_error_says_what_to_call(world: World) {
    use lock_runtime::__private::Spec;
    let manager = world.manager().await;
    let error = Spec::new("p", "k").enter(None).await.unwrap_err();
    assert!(matches!(error, LockError::NotInstalled));
    let text = error.to_string();
    assert!(text.contains("install()") && text.contains("LockManager::scope"), "{text}");
    manager.scope(Spec::new("p", "k").enter(None)).await.unwrap();
}

async fn shutdown_refuses_new_locks(world: World) {
    let manager = world.manager().await;
    manager.shutdown().await;
    let error = manager.lock("p", "k").acquire().await.unwrap_err();
    assert!(matches!(&error, LockError::ShutDown { key } if key == "p:k"), "{error:?}");
    let error = manager.lock("p", "k").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::ShutDown { .. }), "{error:?}");
    // Once more changes nothing.
    manager.shutdown().await;
}

async fn shutdown_fails_waiters(world: World) {
    let drain = Duration::from_millis(50);
    let manager = world.manager_with(LockManager::builder().drain(drain)).await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    let mut waiter = pin!(manager.lock("p", "k").timeout(LONG).acquire());
    assert!(poll!(&mut waiter).is_pending());
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(waiter, manager.shutdown());
    let error = outcome.unwrap_err();
    assert!(matches!(error, LockError::ShutDown { .. }), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(!guard.is_valid(), "the hold outlived the shutdown");
    if let Some(server) = world.server() {
        assert_eq!(server.owner("p:k"), None);
    }
}

async fn shutdown_lets_a_short_body_end(world: World) {
    let manager = world.manager().await;
    let body = manager.lock("p", "k").run(async {
        sleep(Duration::from_millis(100)).await;
        "ended"
    });
    let mut body = pin!(body);
    // Until it is inside.
    assert!(tokio::time::timeout(Duration::from_millis(30), &mut body).await.is_err());
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(body, manager.shutdown());
    assert_eq!(outcome.unwrap(), "ended");
    assert!(start.elapsed() < Duration::from_secs(2), "it waited for more than the body");
    if let Some(server) = world.server() {
        assert_eq!(server.owner("p:k"), None);
    }
}

async fn shutdown_drops_a_body_that_does_not_end(world: World) {
    let drain = Duration::from_millis(100);
    let manager = world.manager_with(LockManager::builder().drain(drain)).await;
    let gone = Arc::new(AtomicBool::new(false));
    let body = Dropped(Arc::clone(&gone));
    let endless = manager.lock("p", "k").run(async move {
        let _body = body;
        std::future::pending::<()>().await;
    });
    let mut endless = pin!(endless);
    assert!(tokio::time::timeout(Duration::from_millis(30), &mut endless).await.is_err());
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(endless, manager.shutdown());
    outcome.unwrap_err();
    assert!(gone.load(Ordering::SeqCst));
    assert!(start.elapsed() >= drain && start.elapsed() < drain + Duration::from_secs(1) + NOISE);
    if let Some(server) = world.server() {
        assert_eq!(server.owner("p:k"), None);
    }
}

async fn different_keys_do_not_block_each_other(world: World) {
    let manager = world.manager().await;
    let mut guards = Vec::new();
    for key in 0..50 {
        guards.push(manager.lock("p", &key).timeout(Duration::ZERO).acquire().await.unwrap());
    }
    // Nor do equal keys under different prefixes, or parts that read alike when joined.
    guards.push(manager.lock("q", &0).timeout(Duration::ZERO).acquire().await.unwrap());
    guards.push(manager.lock("p", &("a", "b:c")).timeout(Duration::ZERO).acquire().await.unwrap());
    guards.push(manager.lock("p", &("a:b", "c")).timeout(Duration::ZERO).acquire().await.unwrap());
}

async fn namespaces_are_separate(world: World) {
    let one = world.manager_with(LockManager::builder().namespace("one")).await;
    let two = world.manager_with(LockManager::builder().namespace("two")).await;
    let first = one.lock("p", "k").acquire().await.unwrap();
    let second = two.lock("p", "k").timeout(Duration::ZERO).acquire().await.unwrap();
    assert_eq!((first.key(), second.key()), ("one:p:k", "two:p:k"));
}

async fn a_key_is_named_prefix_and_escaped_parts(world: World) {
    let manager = world.manager_with(LockManager::builder().label("till-3")).await;
    let guard = manager.lock("p", &("a:b", 7_u8, '{')).expire(Duration::from_millis(1500)).acquire().await.unwrap();
    assert_eq!(guard.key(), "p:a%3Ab:7:%7B");
    if let Some(server) = world.server() {
        assert_eq!(server.ask::<String>("TYPE p:a%3Ab:7:%7B"), "string");
        let owner = server.owner(guard.key()).unwrap();
        assert!(owner.ends_with("@till-3"), "{owner}");
        let keys = server.keys();
        assert!((1..=1500).contains(&keys["p:a%3Ab:7:%7B"]), "{keys:?}");
        assert_eq!(keys.len(), 1, "{keys:?}");
    }
    guard.release().await.unwrap();
    if let Some(server) = world.server() {
        assert!(server.keys().is_empty());
    }
}

async fn a_request_that_is_never_awaited_locks_nothing(world: World) {
    let manager = world.manager().await;
    drop(manager.lock("p", "k").acquire());
    drop(manager.lock("p", "k").run(async {}));
    assert!(is_free(&manager, "k").await);
}

async fn a_manager_shows_its_label(world: World) {
    let named = world.manager_with(LockManager::builder().label("till-3")).await;
    assert!(format!("{named:?}").contains("till-3"));
    // Host and process id, when it was given none.
    let unnamed = world.manager().await;
    assert!(format!("{unnamed:?}").contains(&std::process::id().to_string()));
}
