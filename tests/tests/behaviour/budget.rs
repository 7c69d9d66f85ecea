//! A call that needs no command consumes tokio's coop budget, like tokio's own locks do. So a loop over such calls lets the other
//! tasks of its thread run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_runtime::LockManager;
use tests::over_every_store;
use tests::stores::World;
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::{LONG, refuses_sharing};

over_every_store![
    a_loop_over_a_lock_lets_others_run,
    a_loop_over_a_lock_that_lingers_lets_others_run,
    a_loop_over_readers_that_join_lets_others_run,
    a_loop_over_a_lock_that_is_entered_again_lets_others_run,
    a_loop_over_busy_tries_lets_others_run,
    a_loop_over_releases_lets_others_run,
    a_loop_over_looks_lets_others_run,
    a_loop_over_tickets_lets_others_run,
    a_loop_over_extensions_lets_others_run,
    a_loop_over_what_has_ended_lets_others_run,
];

/// More than the budget of a task, and few enough that a loop that starves the others still ends.
const MOST: usize = 2000;

/// Repeats the call until another task of this thread has run.
async fn lets_others_run(mut call: impl AsyncFnMut()) {
    let has_run = Arc::new(AtomicBool::new(false));
    let other = Arc::clone(&has_run);
    tokio::spawn(async move { other.store(true, Ordering::SeqCst) });
    for _ in 0..MOST {
        if has_run.load(Ordering::SeqCst) {
            return;
        }
        call().await;
    }
    panic!("the loop kept its thread");
}

async fn a_loop_over_a_lock_lets_others_run(world: World) {
    let manager = world.manager().await;
    lets_others_run(async || drop(manager.lock("p", "k").acquire().await.unwrap())).await;
    lets_others_run(async || manager.lock("p", "k").run(async {}).await.unwrap()).await;
}

async fn a_loop_over_a_lock_that_lingers_lets_others_run(world: World) {
    if world.is_quorum() {
        return;
    }
    let manager = world.manager_with(LockManager::builder().linger(LONG / 10)).await;
    manager.lock("p", "k").run(async {}).await.unwrap();
    lets_others_run(async || manager.lock("p", "k").run(async {}).await.unwrap()).await;
    lets_others_run(async || manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap()).await;
}

async fn a_loop_over_readers_that_join_lets_others_run(world: World) {
    if refuses_sharing(&world).await {
        return;
    }
    let manager = world.manager().await;
    let _reader = manager.lock("p", "k").read().acquire().await.unwrap();
    lets_others_run(async || manager.lock("p", "k").read().run(async {}).await.unwrap()).await;
    lets_others_run(async || drop(manager.lock("p", "k").read().acquire().await.unwrap())).await;
}

async fn a_loop_over_a_lock_that_is_entered_again_lets_others_run(world: World) {
    let manager = world.manager().await;
    let nested = lets_others_run(async || manager.lock("p", "k").run(async {}).await.unwrap());
    manager.lock("p", "k").run(nested).await.unwrap();
}

async fn a_loop_over_busy_tries_lets_others_run(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    lets_others_run(async || assert!(manager.lock("p", "k").try_acquire().await.unwrap().is_none())).await;
    // Another task of the same thread is the holder.
    tokio::spawn(async move { drop(guard) });
    let mut tries = 0;
    while manager.lock("p", "k").try_acquire().await.unwrap().is_none() {
        tries += 1;
        assert!(tries < MOST, "the holder is never polled");
    }
}

async fn a_loop_over_releases_lets_others_run(world: World) {
    let manager = world.manager().await;
    let mut guards = Vec::new();
    for key in 0..MOST {
        guards.push(manager.lock("p", &key).acquire().await.unwrap());
        // On servers even the first release waits.
        if world.server_of("p:k").is_some() {
            break;
        }
    }
    let mut guards = guards.into_iter();
    lets_others_run(async || {
        if let Some(guard) = guards.next() {
            guard.release().await.unwrap();
        }
    })
    .await;
}

async fn a_loop_over_looks_lets_others_run(world: World) {
    let manager = world.manager().await;
    lets_others_run(async || assert!(!manager.is_locked("p", "k").await.unwrap())).await;
    if !world.is_quorum() {
        lets_others_run(async || assert!(!manager.force_release("p", "k").await.unwrap())).await;
    }
}

async fn a_loop_over_tickets_lets_others_run(world: World) {
    if world.is_quorum() {
        return;
    }
    let manager = world.manager().await;
    let mut guard = Some(manager.lock("p", "k").acquire().await.unwrap());
    lets_others_run(async || {
        let ticket = guard.take().unwrap().into_ticket(LONG).await.unwrap();
        guard = Some(manager.adopt(ticket).await.unwrap());
    })
    .await;
}

async fn a_loop_over_extensions_lets_others_run(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    lets_others_run(async || guard.extend(LONG).await.unwrap()).await;
}

/// The loops occupy all worker threads, so the holder and its timer only run if a loop yields.
#[test]
fn loops_over_tries_do_not_stop_the_runtime() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let manager = LockManager::in_memory();
        let guard = manager.lock("p", "k").acquire().await.unwrap();
        let tries = |manager: LockManager| async move {
            for _ in 0..MOST * 1000 {
                if manager.lock("p", "k").try_acquire().await.unwrap().is_some() {
                    return;
                }
            }
            panic!("the holder is never polled");
        };
        let tries = [tokio::spawn(tries(manager.clone())), tokio::spawn(tries(manager.clone()))];
        let holder = tokio::spawn(async move {
            sleep(LONG / 1000).await;
            drop(guard);
        });
        for task in tries.into_iter().chain([holder]) {
            task.await.unwrap();
        }
    });
}

/// Without tokio there is no budget, and nothing would wake a task that waits for one.
#[test]
fn a_thread_without_a_runtime_has_no_budget() {
    let manager = LockManager::in_memory();
    for _ in 0..MOST {
        drop(manager.lock("p", "k").acquire_blocking().unwrap());
        manager.lock("p", "k").run_blocking(|| {}).unwrap();
    }
}

async fn a_loop_over_what_has_ended_lets_others_run(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").max_hold(LONG / 50).acquire().await.unwrap();
    guard.lost().await;
    lets_others_run(async || guard.lost().await).await;
    drop(guard);
    manager.shutdown().await;
    lets_others_run(async || manager.shutdown().await).await;
}
