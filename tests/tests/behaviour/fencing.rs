//! Fencing tokens: they grow, and a hold has one only on request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_runtime::{FencingToken, LockError, LockManager, cache_lock};
use tests::over_every_store;
use tests::stores::World;

use crate::LONG;

over_every_store![
    fencing_tokens_grow_from_hold_to_hold,
    fencing_tokens_grow_along_the_queue,
    fencing_tokens_grow_over_a_hold_that_expired,
    a_nested_bodys_token_is_below_the_next_holds,
    no_token_is_drawn_unasked,
    a_single_try_gets_a_free_lock_with_a_token,
    a_single_try_gets_a_token_with_what_is_left_of_a_lease,
];

async fn a_single_try_gets_a_free_lock_with_a_token(world: World) {
    let manager = world.manager().await;
    for key in 0..20 {
        let guard = manager.lock("p", &key).fenced(true).try_acquire().await.unwrap().expect("it is free");
        assert!(guard.fencing_token().is_some());
        guard.release().await.unwrap();
    }
}

/// The rest of the lease is too short, so it has to be renewed before the token is drawn.
async fn a_single_try_gets_a_token_with_what_is_left_of_a_lease(world: World) {
    let manager = world.manager().await;
    for _ in 0..5 {
        let guard = manager.lock("p", "k").expire(Duration::from_millis(400)).renew(false).acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(260)).await;
        drop(guard);
        let guard = manager.lock("p", "k").fenced(true).try_acquire().await.unwrap().expect("it is free");
        guard.release().await.unwrap();
    }
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
    // More than the 64 tokens that a lease may reserve.
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
    // A token converts to a number, for a database column.
    assert_eq!(u64::from(drawn[0]).to_string(), drawn[0].to_string());
}

#[cache_lock(prefix = "p", key = "k", manager = locks, timeout = LONG, fenced = token)]
async fn fenced(locks: &LockManager, drawn: &Mutex<Vec<FencingToken>>) -> Result<(), LockError> {
    drawn.lock().unwrap().push(token);
    Ok(())
}

#[cache_lock(prefix = "p", key = "k", manager = locks, timeout = LONG)]
async fn outer(locks: &LockManager, drawn: &Mutex<Vec<FencingToken>>) -> Result<(), LockError> {
    fenced(locks, drawn).await
}

async fn a_nested_bodys_token_is_below_the_next_holds(world: World) {
    let (north, south) = (world.manager().await, world.manager().await);
    let guard = north.lock("p", "k").acquire().await.unwrap();
    let drawn: Arc<Mutex<Vec<FencingToken>>> = Arc::default();
    // The first hold reserves a token for the third, before the nested body of the second draws its own.
    let mut tasks = Vec::new();
    for nested in [false, true, false] {
        let (south, drawn) = (south.clone(), Arc::clone(&drawn));
        tasks.push(tokio::spawn(async move {
            let outcome = if nested { outer(&south, &drawn).await } else { fenced(&south, &drawn).await };
            outcome.unwrap();
        }));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    guard.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let drawn = drawn.lock().unwrap();
    assert!(drawn.len() == 3 && drawn.is_sorted_by(|earlier, later| earlier < later), "{drawn:?}");
}

async fn fencing_tokens_grow_over_a_hold_that_expired(world: World) {
    let manager = world.manager().await;
    let request = || manager.lock("p", "k").fenced(true).expire(Duration::from_millis(60)).renew(false).timeout(LONG);
    let first = request().acquire().await.unwrap();
    first.lost().await;
    let second = request().acquire().await.unwrap();
    assert!(second.fencing_token() > first.fencing_token());
}

async fn no_token_is_drawn_unasked(world: World) {
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    assert_eq!(guard.fencing_token(), None);
    world.agrees().await;
    if let Some(keys) = world.keys() {
        assert_eq!(keys.into_keys().collect::<Vec<_>>(), ["p:k"], "no fence record");
    }
}
