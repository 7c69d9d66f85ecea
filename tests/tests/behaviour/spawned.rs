//! Every future of the public API can be spawned in a crate with the default `recursion_limit`: for no kind of place are its
//! types nested so deeply that the compiler gives up on proving `Send`.

use std::time::Duration;

use lock_runtime::{LockError, LockManager, cache_lock};
use tests::server::free_port;
use tokio::spawn;

const SHORT: Duration = Duration::from_millis(200);

/// Handlers and services add a few layers of futures around it.
async fn within_layers<F: Future>(inside: F) -> F::Output {
    let inside = tokio::task::unconstrained(inside);
    tokio::time::timeout(SHORT * 50, inside).await.unwrap()
}

#[tokio::test]
async fn what_a_manager_returns_can_be_spawned() {
    let locks = LockManager::in_memory();
    let request = || locks.lock("p", "k");
    let guard = spawn(within_layers(request().expire(SHORT).renew(false).acquire())).await.unwrap().unwrap();
    assert!(spawn(within_layers(request().try_acquire())).await.unwrap().unwrap().is_none());
    let guard = spawn(within_layers(async move {
        guard.extend(SHORT).await.unwrap();
        guard.lost().await;
        guard
    }));
    assert!(spawn(within_layers(guard.await.unwrap().release())).await.unwrap().unwrap_err().is_lost());
    let nested = request().run(within_layers(request().run(within_layers(async { 7 }))));
    assert_eq!(spawn(within_layers(nested)).await.unwrap().unwrap().unwrap(), 7);
    let scoped = locks.clone();
    let number = spawn(async move { scoped.scope(Box::pin(within_layers(locked(3)))).await }).await.unwrap();
    assert_eq!(number.unwrap(), 6);
    spawn(within_layers(async move { locks.shutdown().await })).await.unwrap();
}

#[tokio::test]
async fn connecting_to_every_kind_of_place_can_be_spawned() {
    let (one, two, three) = (free_port(), free_port(), free_port());
    let places = [
        format!("redis://127.0.0.1:{one}"),
        format!("rediss://127.0.0.1:{one}"),
        format!("redis-sentinel://127.0.0.1:{one}/till"),
        format!("redis-cluster://127.0.0.1:{one},127.0.0.1:{two}"),
        format!("redlock://127.0.0.1:{one},127.0.0.1:{two},127.0.0.1:{three}"),
    ];
    for place in places {
        let builder = LockManager::builder().url(&place).connect_timeout(SHORT);
        spawn(within_layers(builder.connect())).await.unwrap().unwrap_err();
        spawn(within_layers(async move { LockManager::connect(&place).await })).await.unwrap().unwrap_err();
    }
    let client = redis::Client::open(format!("redis://127.0.0.1:{one}")).unwrap();
    spawn(within_layers(LockManager::from_client(client))).await.unwrap().unwrap_err();
}

#[cache_lock(prefix = "spawned", key = number, fenced = token)]
async fn locked(number: u64) -> Result<u64, LockError> {
    let _ = token;
    Ok(within_layers(locks_again(number)).await? + number)
}

#[cache_lock(prefix = "spawned:again", key = number)]
async fn locks_again(number: u64) -> Result<u64, LockError> {
    Box::pin(locks_once_more(number)).await
}

#[cache_lock(prefix = "spawned:once-more", key = number)]
fn locks_once_more(number: u64) -> impl Future<Output = Result<u64, LockError>> + Send {
    within_layers(async move { Ok(number) })
}
