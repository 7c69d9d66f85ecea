//! Callers that block their thread: [`LockRequest::acquire_blocking`](lock_runtime::LockRequest::acquire_blocking) and
//! [`run_blocking`](lock_runtime::LockRequest::run_blocking).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lock_runtime::{ErrorKind, LockError, LockManager};
use tests::over_every_store;
use tests::patience::NOISE;
use tests::stores::World;
use tokio::task::spawn_blocking;

use crate::{LONG, SHORT, is_free};

over_every_store![
    a_closure_runs_under_the_lock,
    a_guard_of_a_thread_frees_the_lock_when_it_is_dropped,
    a_thread_waits_no_longer_than_its_timeout,
    a_thread_gets_the_lock_when_it_is_released,
    threads_and_tasks_exclude_each_other,
    acquire_blocking_in_an_async_task_fails_at_once,
    what_a_closure_calls_enters_its_lock,
    a_closure_runs_to_its_end_when_its_lock_is_lost,
    a_closure_that_panics_frees_the_lock,
    a_closure_holds_several_keys,
];

/// Runs `work` on a thread that may block.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.unwrap()
}

fn is_free_here(manager: &LockManager, key: &str) -> bool {
    manager.lock("p", key).timeout(Duration::ZERO).acquire_blocking().is_ok()
}

async fn a_closure_runs_under_the_lock(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    on_thread(move || {
        let body = || {
            assert!(!is_free_here(&other, "k"));
            7
        };
        assert_eq!(manager.lock("p", "k").fenced(true).run_blocking(body).unwrap(), 7);
        assert!(is_free_here(&other, "k"));
        // A thread without a runtime.
        let plain = thread::spawn(move || manager.lock("p", "k").run_blocking(|| !is_free_here(&other, "k")));
        assert!(plain.join().unwrap().unwrap());
    })
    .await;
}

async fn a_guard_of_a_thread_frees_the_lock_when_it_is_dropped(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    on_thread(move || {
        let guard = manager.lock("p", "k").acquire_blocking().unwrap();
        assert!(guard.is_valid() && !is_free_here(&other, "k"));
        drop(guard);
        drop(other.lock("p", "k").timeout(LONG).acquire_blocking().unwrap());
    })
    .await;
}

async fn a_thread_waits_no_longer_than_its_timeout(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    for holder in [manager.clone(), other] {
        let manager = manager.clone();
        on_thread(move || {
            let _held = holder.lock("p", "k").acquire_blocking().unwrap();
            let start = Instant::now();
            let error = manager.lock("p", "k").timeout(SHORT).acquire_blocking().unwrap_err();
            assert!(error.is_timeout(), "{error:?}");
            assert!(start.elapsed() >= SHORT && start.elapsed() < SHORT + NOISE, "{:?}", start.elapsed());
        })
        .await;
    }
}

async fn a_thread_gets_the_lock_when_it_is_released(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    let bound = NOISE + world.pause();
    on_thread(move || {
        let held = other.lock("p", "k").acquire_blocking().unwrap();
        let waiting = thread::spawn(move || {
            let _guard = manager.lock("p", "k").timeout(LONG).acquire_blocking().unwrap();
            Instant::now()
        });
        thread::sleep(SHORT);
        let released = Instant::now();
        drop(held);
        assert!(waiting.join().unwrap().saturating_duration_since(released) < bound);
    })
    .await;
}

async fn threads_and_tasks_exclude_each_other(world: World) {
    let managers = [world.manager().await, world.manager().await];
    let inside = Arc::new(AtomicBool::new(false));
    let enter = move || {
        assert!(!inside.swap(true, Ordering::SeqCst));
        thread::sleep(Duration::from_millis(1));
        inside.store(false, Ordering::SeqCst);
    };
    let task = {
        let (manager, enter) = (managers[0].clone(), enter.clone());
        async move {
            for _ in 0..10 {
                manager.lock("p", "k").timeout(LONG).run(async { enter() }).await.unwrap();
            }
        }
    };
    let threads = on_thread(move || {
        let threads = (0..6).map(|number| {
            let (manager, enter) = (managers[number % 2].clone(), enter.clone());
            thread::spawn(move || {
                for _ in 0..10 {
                    manager.lock("p", "k").timeout(LONG).run_blocking(&enter).unwrap();
                }
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    });
    tokio::join!(task, threads);
}

async fn acquire_blocking_in_an_async_task_fails_at_once(world: World) {
    let manager = world.manager().await;
    let error = manager.lock("p", "k").acquire_blocking().unwrap_err();
    assert!(matches!(error, LockError::InAsyncTask { .. }), "{error:?}");
    assert!(error.to_string().contains("spawn_blocking"), "{error}");
    assert_eq!((error.kind(), error.key()), (ErrorKind::Misuse, Some("p:k")));
    let nested = async { manager.lock("p", "k").run_blocking(|| ()) };
    let nested = manager.lock("p", "other").run(nested).await.unwrap();
    assert!(matches!(nested, Err(LockError::InAsyncTask { .. })), "{nested:?}");
    assert!(is_free(&manager, "k").await);
}

async fn what_a_closure_calls_enters_its_lock(world: World) {
    let manager = world.manager().await;
    on_thread(move || {
        let request = || manager.lock("p", "k").timeout(SHORT);
        let inner = || request().run_blocking(|| request().run_blocking(|| 7));
        assert_eq!(request().run_blocking(inner).unwrap().unwrap().unwrap(), 7);
        let refused = request().run_blocking(|| request().acquire_blocking()).unwrap();
        assert!(matches!(refused, Err(LockError::AlreadyHeld { .. })), "{refused:?}");
        let elsewhere = || thread::scope(|scope| scope.spawn(|| is_free_here(&manager, "k")).join().unwrap());
        assert!(!request().run_blocking(elsewhere).unwrap(), "another thread does not inherit the hold of the closure");
        assert!(is_free_here(&manager, "k"));
    })
    .await;
}

async fn a_closure_runs_to_its_end_when_its_lock_is_lost(world: World) {
    let (manager, is_paused) = (world.manager().await, world.servers().is_empty());
    on_thread(move || {
        let mut steps = 0;
        let error = manager.lock("p", "k").expire(SHORT).renew(false).run_blocking(|| {
            thread::sleep(SHORT * 2);
            steps += 1;
        });
        assert!(matches!(error, Err(LockError::Lost { completed: true, .. })), "{error:?}");
        assert_eq!(steps, 1);
        let error = manager.lock("p", "k").max_hold(SHORT).run_blocking(|| thread::sleep(SHORT * 2)).unwrap_err();
        assert!(matches!(error, LockError::Lost { completed: true, max_hold: Some(_), .. }), "{error:?}");
        if is_paused {
            return; // the test's clock is paused, and the thread's is not
        }
        let renewed = manager.lock("p", "k").timeout(LONG).expire(SHORT).run_blocking(|| thread::sleep(SHORT * 2));
        renewed.unwrap();
    })
    .await;
}

async fn a_closure_that_panics_frees_the_lock(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    on_thread(move || {
        let panics = || manager.lock("p", "k").run_blocking(|| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        drop(other.lock("p", "k").timeout(LONG).acquire_blocking().unwrap());
        drop(manager.lock("p", "k").timeout(LONG).acquire_blocking().unwrap());
    })
    .await;
}

async fn a_closure_holds_several_keys(world: World) {
    let (manager, other) = (world.manager().await, world.manager().await);
    on_thread(move || {
        let body = || (is_free_here(&other, "a"), is_free_here(&other, "b"));
        assert_eq!(manager.lock_all("p", ["b", "a"]).run_blocking(body).unwrap(), (false, false));
        assert!(is_free_here(&other, "a") && is_free_here(&other, "b"));
    })
    .await;
}
