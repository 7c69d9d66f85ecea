//! Managers: which one a call uses, and how it shuts down.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::poll;
use lock_runtime::{LockError, LockManager};
use tests::over_every_store;
use tests::patience::{NOISE, Stopwatch};
use tests::stores::World;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::{Dropped, LONG, SHORT};

over_every_store![
    a_scope_is_the_default_inside_it_only,
    without_a_manager_the_error_says_what_to_call,
    a_manager_shows_its_label,
    shutdown_refuses_new_locks,
    shutdown_fails_waiters,
    shutdown_lets_a_short_body_end,
    shutdown_drops_a_body_that_does_not_end,
    shutdown_lets_a_body_take_further_locks,
    shutdown_lets_a_body_wait_for_a_lock,
    shutdown_lets_a_body_hand_its_work_on,
    shutdown_lets_a_closure_take_further_locks,
    shutdown_drops_a_body_that_waits_for_too_long,
];

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
    use lock_runtime::__private::{LockOptions, enter};
    let manager = world.manager().await;
    let error = enter(LockOptions::new("p", "k"), None).await.unwrap_err();
    assert!(matches!(error, LockError::NotInstalled));
    let text = error.to_string();
    assert!(text.contains("install()") && text.contains("LockManager::scope"), "{text}");
    manager.scope(async { enter(LockOptions::new("p", "k"), None).await }).await.unwrap();
}

async fn a_manager_shows_its_label(world: World) {
    let named = world.manager_with(LockManager::builder().label("till-3")).await;
    assert!(format!("{named:?}").contains("till-3"));
    // The default is host and process id.
    let unnamed = world.manager().await;
    assert!(format!("{unnamed:?}").contains(&std::process::id().to_string()));
}

async fn shutdown_refuses_new_locks(world: World) {
    let manager = world.manager().await;
    manager.shutdown().await;
    let error = manager.lock("p", "k").acquire().await.unwrap_err();
    assert!(matches!(&error, LockError::ShutDown { key, .. } if key == "p:k"), "{error:?}");
    let error = manager.lock("p", "k").try_acquire().await.unwrap_err();
    assert!(matches!(error, LockError::ShutDown { .. }), "{error:?}");
    // A second shutdown changes nothing.
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
    if let Some(server) = world.server_of("p:k") {
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
    // Wait until the body has started.
    assert!(tokio::time::timeout(Duration::from_millis(30), &mut body).await.is_err());
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(body, manager.shutdown());
    assert_eq!(outcome.unwrap(), "ended");
    assert!(start.elapsed() < Duration::from_secs(2), "it waited for more than the body");
    if let Some(server) = world.server_of("p:k") {
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
    let start = Stopwatch::start();
    let (outcome, ()) = tokio::join!(endless, manager.shutdown());
    outcome.unwrap_err();
    assert!(gone.load(Ordering::SeqCst));
    assert!(start.counted() >= drain && start.elapsed() < drain + Duration::from_secs(1) + NOISE);
    if let Some(server) = world.server_of("p:k") {
        assert_eq!(server.owner("p:k"), None);
    }
}

/// Whether a task outside of any body is refused.
async fn refuses_others(manager: &LockManager) -> bool {
    let other = tokio::spawn(manager.lock("p", "other").acquire());
    matches!(other.await.unwrap(), Err(LockError::ShutDown { .. }))
}

async fn begins_to_shut_down(manager: &LockManager) {
    while !refuses_others(manager).await {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Runs `inside` in a body that a shutdown waits for.
async fn while_shutting_down(manager: &LockManager, inside: impl Future<Output = ()>) {
    let (begins, begun) = oneshot::channel();
    let body = manager.lock("p", "outer").run(async {
        begins.send(()).unwrap();
        begins_to_shut_down(manager).await;
        inside.await;
    });
    let shutdown = async {
        begun.await.unwrap();
        manager.shutdown().await;
    };
    let (outcome, ()) = tokio::join!(body, shutdown);
    outcome.unwrap();
    assert!(manager.lock("p", "k").acquire().await.is_err());
}

async fn shutdown_lets_a_body_take_further_locks(world: World) {
    let manager = world.manager().await;
    while_shutting_down(&manager, async {
        assert_eq!(manager.lock("p", "k").run(async { 7 }).await.unwrap(), 7);
        manager.lock("p", "outer").run(async {}).await.unwrap();
        manager.lock_all("p", ["k", "l", "outer"]).run(async {}).await.unwrap();
        let guard = manager.lock("p", "k").fenced(true).try_acquire().await.unwrap().unwrap();
        guard.extend(LONG).await.unwrap();
        // The task is inside two bodies, and the shutdown waits for both.
        let deep = manager.lock("p", "m").run(async { manager.lock("p", "n").run(async {}).await });
        deep.await.unwrap().unwrap();
        guard.release().await.unwrap();
        if !world.is_quorum() {
            manager.lock("p", "r").read().run(async {}).await.unwrap();
            manager.lock("p", "s").permits(2).run(async {}).await.unwrap();
        }
        assert!(refuses_others(&manager).await, "a spawned task is in no body");
    })
    .await;
    if let Some(keys) = world.keys() {
        assert!(keys.keys().all(|key| key.ends_with(":fence")), "{keys:?}");
    }
}

async fn shutdown_lets_a_body_wait_for_a_lock(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    let outside = tokio::spawn(manager.lock("p", "k").timeout(LONG).acquire());
    let holder = async {
        begins_to_shut_down(&manager).await;
        sleep(SHORT).await;
        guard.release().await.unwrap();
    };
    let waits = while_shutting_down(&manager, async {
        manager.lock("p", "k").timeout(LONG).run(async {}).await.unwrap();
    });
    tokio::join!(waits, holder);
    assert!(matches!(outside.await.unwrap(), Err(LockError::ShutDown { .. })));
    if world.is_quorum() {
        return;
    }
    let manager = world.manager().await;
    let guards = [(); 2].map(|()| manager.lock("p", "k").permits(2).acquire());
    let guards = futures_util::future::try_join_all(guards).await.unwrap();
    let holder = async {
        begins_to_shut_down(&manager).await;
        sleep(SHORT).await;
        drop(guards);
    };
    let waits = while_shutting_down(&manager, async {
        manager.lock("p", "k").permits(2).timeout(LONG).run(async {}).await.unwrap();
    });
    tokio::join!(waits, holder);
}

async fn shutdown_lets_a_body_hand_its_work_on(world: World) {
    if world.is_quorum() {
        return;
    }
    let manager = world.manager().await;
    let ticket = manager.lock("p", "k").acquire().await.unwrap().into_ticket(LONG).await.unwrap();
    while_shutting_down(&manager, async {
        let guard = manager.adopt(ticket).await.unwrap();
        let ticket = guard.into_ticket(LONG).await.unwrap();
        manager.release_ticket(ticket).await.unwrap();
    })
    .await;
    let other = world.manager().await;
    assert!(other.lock("p", "k").try_acquire().await.unwrap().is_some(), "something is left of it");
}

async fn shutdown_lets_a_closure_take_further_locks(world: World) {
    let manager = world.manager().await;
    let (begins, begun) = oneshot::channel();
    let locks = manager.clone();
    let is_refused = |locks: &LockManager| {
        let request = locks.lock("p", "other").timeout(LONG);
        let other = std::thread::spawn(move || request.acquire_blocking().map(drop));
        matches!(other.join().unwrap(), Err(LockError::ShutDown { .. }))
    };
    let closure = tokio::task::spawn_blocking(move || {
        let body = || {
            begins.send(()).unwrap();
            while !is_refused(&locks) {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(locks.lock("p", "k").acquire_blocking().unwrap());
            locks.lock("p", "l").run_blocking(|| {}).unwrap();
        };
        locks.lock("p", "outer").run_blocking(body)
    });
    let shutdown = async {
        begun.await.unwrap();
        manager.shutdown().await;
    };
    let (outcome, ()) = tokio::join!(closure, shutdown);
    outcome.unwrap().unwrap();
}

async fn shutdown_drops_a_body_that_waits_for_too_long(world: World) {
    let drain = Duration::from_millis(200);
    let manager = world.manager_with(LockManager::builder().drain(drain)).await;
    let other = world.manager().await;
    let _taken = other.lock("p", "k").acquire().await.unwrap();
    let body = manager.lock("p", "outer").run(manager.lock("p", "k").timeout(LONG).acquire());
    let mut body = pin!(body);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut body).await.is_err());
    let (outcome, ()) = tokio::join!(body, manager.shutdown());
    match outcome {
        Err(error) => assert!(error.is_lost(), "{error:?}"),
        Ok(nested) => assert!(matches!(nested, Err(LockError::ShutDown { .. }))),
    }
}
