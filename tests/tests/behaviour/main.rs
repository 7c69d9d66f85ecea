//! What a lock does, over every store: in memory under a paused clock, and on servers of the test's own, by Redis and by
//! Valkey.

mod api;
mod at_least;
mod blocking;
mod bodies;
mod budget;
mod cancellation;
mod drops;
mod fenced_resources;
mod fencing;
mod installed;
mod leaks;
mod leases;
mod limits;
mod linger;
mod managers;
mod max_hold;
mod names;
mod permits;
mod reach;
mod readers;
mod reentry;
mod replace;
mod several_keys;
mod spawned;
mod tickets;
mod times;
mod tries;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_runtime::{LockError, LockManager};
use tests::patience::at_rest;
use tests::stores::World;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(10);

/// The lock can be had right now.
async fn is_free(manager: &LockManager, key: &str) -> bool {
    manager.lock("p", key).try_acquire().await.unwrap().is_some()
}

/// Waits until the lock can be had.
async fn comes_free(manager: &LockManager, key: &str) {
    manager.lock("p", key).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// Whether a lock can't be shared here. Then the refusal comes before anything is sent.
async fn refuses_sharing(world: &World) -> bool {
    if !world.is_quorum() {
        return false;
    }
    let manager = world.manager().await;
    // The last servers of a quorum may be greeted after the manager is there.
    let before = at_rest("the servers are greeted", LONG, || manager.stats().commands).await;
    let refused = [
        manager.lock("p", "k").read().acquire().await.unwrap_err(),
        manager.lock("p", "k").permits(2).run(async {}).await.unwrap_err(),
    ];
    for refused in refused {
        assert!(matches!(refused, LockError::InvalidSetting { .. }), "{refused:?}");
        assert!(refused.to_string().contains("a quorum can't share a lock"), "{refused}");
    }
    assert_eq!(manager.stats().commands, before);
    true
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
