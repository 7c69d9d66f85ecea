//! What a lock does, over every store: in memory under a paused clock, and on servers of the test's own, by Redis and by
//! Valkey.

mod api;
mod at_least;
mod blocking;
mod bodies;
mod cancellation;
mod drops;
mod fenced_resources;
mod fencing;
mod installed;
mod leaks;
mod leases;
mod limits;
mod managers;
mod max_hold;
mod names;
mod reach;
mod reentry;
mod several_keys;
mod spawned;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_runtime::LockManager;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(10);

/// The lock can be had right now.
async fn is_free(manager: &LockManager, key: &str) -> bool {
    manager.lock("p", key).try_acquire().await.unwrap().is_some()
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
