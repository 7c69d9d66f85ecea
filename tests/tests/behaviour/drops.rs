//! The seven ways to drop a guard, also without a runtime that could send its release.

#![allow(
    clippy::needless_pass_by_value,
    reason = "each scene owns the runtime and the manager, and most of them drop them"
)]

use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_runtime::{LockGuard, LockManager};
use tests::events::Events;
use tests::patience::eventually_blocking;
use tests::stores::World;
use tokio::runtime::Runtime;

const SOON: Duration = Duration::from_secs(2);

/// Each scene gets a manager made on its runtime, and lets go of the lock `p:k` in its own way.
macro_rules! scenes {
    ($($scene:ident),+ $(,)?) => {
        mod memory {
            $(#[test]
            fn $scene() {
                super::play(&tests::stores::World::memory(), super::$scene);
            })+
        }
        mod redis {
            $(#[test]
            fn $scene() {
                super::play(&tests::stores::World::redis(), super::$scene);
            })+
        }
    };
}

scenes![
    a_future_is_dropped,
    a_task_is_aborted,
    a_body_panics,
    a_runtime_is_dropped,
    a_runtime_is_shut_down_in_the_background,
    a_guard_is_dropped_outside_of_a_runtime,
    a_guard_moves_to_a_thread_and_outlives_its_runtime,
];

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn play(world: &World, scene: fn(Runtime, LockManager)) {
    let runtime = runtime();
    let manager = runtime.block_on(world.manager());
    scene(runtime, manager.clone());
    if let Some(server) = world.server_of("p:k") {
        eventually_blocking("the key is gone", SOON, || server.owner("p:k").is_none());
    }
    // The manager still works on another runtime, and the lock is free there.
    let later = self::runtime();
    let guard = later.block_on(manager.lock("p", "k").timeout(SOON).acquire()).unwrap();
    later.block_on(guard.release()).unwrap();
}

/// A hold with a confirmed lease: without a release, the key would stay for half a minute.
async fn hold(manager: &LockManager) -> LockGuard {
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    let confirmed = async {
        while guard.remaining() < Duration::from_secs(20) {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    tokio::time::timeout(SOON, confirmed).await.expect("the lease is confirmed");
    guard
}

fn a_future_is_dropped(runtime: Runtime, manager: LockManager) {
    runtime.block_on(async {
        let holding = async {
            let _guard = hold(&manager).await;
            std::future::pending::<()>().await;
        };
        let _ = tokio::time::timeout(Duration::from_millis(200), holding).await;
    });
    // The runtime keeps running, with no task on it.
    std::mem::forget(runtime);
}

fn a_task_is_aborted(runtime: Runtime, manager: LockManager) {
    runtime.block_on(async {
        let (held, is_held) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let _guard = hold(&manager).await;
            held.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        is_held.await.unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    });
}

fn a_body_panics(runtime: Runtime, manager: LockManager) {
    runtime.block_on(async {
        let task = tokio::spawn(async move {
            let body: BoxFuture<'_, ()> = Box::pin(async { panic!("a body of a test") });
            manager.lock("p", "k").run(body).await
        });
        assert!(task.await.unwrap_err().is_panic());
    });
}

fn a_runtime_is_dropped(runtime: Runtime, manager: LockManager) {
    let (held, is_held) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        let _guard = hold(&manager).await;
        held.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    is_held.recv().unwrap();
    drop(runtime);
}

fn a_runtime_is_shut_down_in_the_background(runtime: Runtime, manager: LockManager) {
    let (held, is_held) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        let _guard = hold(&manager).await;
        held.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    is_held.recv().unwrap();
    runtime.shutdown_background();
}

fn a_guard_is_dropped_outside_of_a_runtime(runtime: Runtime, manager: LockManager) {
    let guard = runtime.block_on(hold(&manager));
    drop(guard);
    drop(runtime);
}

fn a_guard_moves_to_a_thread_and_outlives_its_runtime(runtime: Runtime, manager: LockManager) {
    let guard = runtime.block_on(hold(&manager));
    drop(runtime);
    let is_valid = std::thread::spawn(move || guard.is_valid());
    assert!(is_valid.join().unwrap());
}

/// Dropping the last guard drops the rest of its manager. The release must still be sent.
#[test]
fn a_guard_that_outlives_its_manager_gives_the_lock_back() {
    let world = World::redis();
    let server = world.server_of("p:k").unwrap();
    for _ in 0..10 {
        let runtime = runtime();
        let manager = runtime.block_on(LockManager::connect(&server.url())).unwrap();
        let guard = runtime.block_on(hold(&manager));
        // Old enough that the keeper sleeps. When it wakes, its manager is gone.
        eventually_blocking("the lease is confirmed", SOON, || guard.remaining() > Duration::from_secs(10));
        drop(manager);
        drop(guard);
        eventually_blocking("the key is gone", SOON, || server.owner("p:k").is_none());
    }
}

/// The process renews a hold, not the runtime that acquired it.
#[test]
fn a_hold_outlives_its_runtime_while_its_guard_lives() {
    let world = World::redis();
    let first = runtime();
    let manager = first.block_on(world.manager());
    let request = manager.lock("p", "k").expire(Duration::from_millis(600)).renew(true);
    let guard = first.block_on(request.acquire()).unwrap();
    drop(first);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(guard.is_valid());
    assert!(world.server_of("p:k").unwrap().owner("p:k").is_some());
    drop(guard);
    eventually_blocking("the key is gone", SOON, || world.server_of("p:k").unwrap().owner("p:k").is_none());
}

/// The connection ended with its runtime; the caller's runtime makes a new one.
#[test]
fn a_release_on_another_runtime_is_answered() {
    let world = World::redis();
    let first = runtime();
    let manager = first.block_on(world.manager());
    let guard = first.block_on(hold(&manager));
    drop(first);
    runtime().block_on(guard.release()).unwrap();
    assert_eq!(world.server_of("p:k").unwrap().owner("p:k"), None);
}

#[test]
fn a_runtime_that_stands_still_while_it_connects_is_overtaken() {
    let events = Events::of_this_process();
    let server = tests::server::Server::start();
    let (used, parked) = (runtime(), tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    let manager = used.block_on(LockManager::connect(&server.url())).unwrap();
    server.tell("CLIENT KILL TYPE pubsub");
    let is_lost = || !events.with(&["connection lost", &server.address()]).is_empty();
    eventually_blocking("the client notices that its connection is gone", SOON, is_lost);
    // The runtime's task is in the middle of connecting, and is never polled again.
    let mut standing = Box::pin(manager.lock("p", "standing").timeout(Duration::from_mins(1)).acquire());
    parked.block_on(async { assert!(futures_util::poll!(&mut standing).is_pending()) });
    let acquired = used.block_on(manager.lock("p", "k").timeout(SOON * 2).acquire());
    used.block_on(acquired.unwrap().release()).unwrap();
    drop(standing);
}

#[test]
fn a_panic_in_a_body_serves_the_next_waiter_of_the_process() {
    let world = World::memory();
    let runtime = runtime();
    runtime.block_on(async {
        let manager = world.manager().await;
        let (held, is_held) = tokio::sync::oneshot::channel();
        let panicking = manager.clone();
        let task = tokio::spawn(async move {
            let body: BoxFuture<'_, ()> = Box::pin(async {
                held.send(()).unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                panic!("a body of a test")
            });
            panicking.lock("p", "k").run(body).await
        });
        is_held.await.unwrap();
        let next = manager.lock("p", "k").timeout(SOON).acquire().await.unwrap();
        assert!(next.is_valid());
        assert!(task.await.unwrap_err().is_panic());
    });
}

/// The keeper ends a hold at the moment its owner drops it. Only one of them may pass the lock on.
#[test]
fn guards_dropped_the_moment_they_are_lost_pass_the_lock_on() {
    let world = World::redis();
    let runtime = runtime();
    runtime.block_on(async {
        let manager = world.manager().await;
        for round in 0..100 {
            let users: Vec<_> = (0..4)
                .map(|_| {
                    let manager = manager.clone();
                    tokio::spawn(async move {
                        let request = manager.lock("p", "k").expire(Duration::from_millis(12)).renew(false);
                        let guard = request.timeout(SOON).acquire().await.unwrap();
                        guard.lost().await;
                    })
                })
                .collect();
            let all = async {
                for user in users {
                    user.await.unwrap();
                }
            };
            let start = std::time::Instant::now();
            all.await;
            assert!(start.elapsed() < SOON, "round {round} took {:?}", start.elapsed());
        }
    });
}
