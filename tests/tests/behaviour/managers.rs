//! Managers: which one is meant, and how it shuts down.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::poll;
use lock_runtime::{LockError, LockManager};
use tests::over_every_store;
use tests::patience::NOISE;
use tests::stores::World;
use tokio::time::{Instant, sleep};

use crate::{Dropped, LONG};

over_every_store![
    a_scope_is_the_default_inside_it_only,
    without_a_manager_the_error_says_what_to_call,
    a_manager_shows_its_label,
    shutdown_refuses_new_locks,
    shutdown_fails_waiters,
    shutdown_lets_a_short_body_end,
    shutdown_drops_a_body_that_does_not_end,
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
    // Host and process id, when it was given none.
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
    // Until it is inside.
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
    let start = Instant::now();
    let (outcome, ()) = tokio::join!(endless, manager.shutdown());
    outcome.unwrap_err();
    assert!(gone.load(Ordering::SeqCst));
    assert!(start.elapsed() >= drain && start.elapsed() < drain + Duration::from_secs(1) + NOISE);
    if let Some(server) = world.server_of("p:k") {
        assert_eq!(server.owner("p:k"), None);
    }
}
