//! What a lock does on every store: in memory with a paused clock, and on the test's own Redis and Valkey servers.

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
mod lock_delay;
mod managers;
mod max_hold;
mod names;
mod notes;
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

/// Whether the lock is free now.
async fn is_free(manager: &LockManager, key: &str) -> bool {
    manager.lock("p", key).try_acquire().await.unwrap().is_some()
}

/// Waits until the lock is free.
async fn wait_until_free(manager: &LockManager, key: &str) {
    manager.lock("p", key).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// Whether the store refuses shared locks. If it does, it must refuse before it sends a command.
async fn refuses_sharing(world: &World) -> bool {
    if !world.is_quorum() {
        return false;
    }
    let manager = world.manager().await;
    // A manager may connect to the last servers of a quorum after `connect` has returned.
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

/// Records that it was dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
