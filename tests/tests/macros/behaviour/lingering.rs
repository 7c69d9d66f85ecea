//! What becomes of a lock after its body: `linger`.

use std::time::Duration;

use lock_runtime::{LockManager, cache_lock};

use crate::behaviour::Result;

const SHORT: Duration = Duration::from_millis(300);

#[cache_lock(prefix = "linger", key = "for_ms", manager = locks, linger_ms = 500)]
async fn for_milliseconds(locks: &LockManager) -> Result<u64> {
    Ok(locks.stats().held)
}

#[cache_lock(prefix = "linger", key = "for_s", manager = locks, linger_s = 2)]
async fn for_seconds(locks: &LockManager) -> Result<u64> {
    Ok(locks.stats().held)
}

#[cache_lock(prefix = "linger", key = "for_text", manager = locks, linger = "1500ms")]
async fn for_a_text(locks: &LockManager) -> Result<u64> {
    Ok(locks.stats().held)
}

#[cache_lock(prefix = "linger", key = "for_const", manager = locks, linger = SHORT)]
async fn for_a_constant(locks: &LockManager) -> Result<u64> {
    Ok(locks.stats().held)
}

#[cache_lock(prefix = "linger", key = "never", manager = locks, linger_ms = 0)]
async fn never(locks: &LockManager) -> Result<u64> {
    Ok(locks.stats().held)
}

#[tokio::test(start_paused = true)]
async fn a_lock_lingers_for_as_long_as_its_fn_says() {
    let locks = LockManager::builder().linger(Duration::from_secs(1)).in_memory();
    for held in [for_milliseconds(&locks), for_milliseconds(&locks)] {
        assert_eq!(held.await.unwrap(), 1);
    }
    for_seconds(&locks).await.unwrap();
    for_a_text(&locks).await.unwrap();
    for_a_constant(&locks).await.unwrap();
    never(&locks).await.unwrap();
    // After 0, 400, 800, 1,600 and 2,100 ms.
    for (wait, lingering) in [(0, 4), (400, 3), (400, 2), (800, 1), (500, 0)] {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        assert_eq!(locks.stats().lingering, lingering, "{wait}");
    }
}
