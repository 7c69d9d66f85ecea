//! The lock after its body: `linger`, `lock_delay`.

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

#[cache_lock(prefix = "delay", key = "for_ms", manager = locks, lock_delay_ms = 400)]
async fn dropped_for_milliseconds(locks: &LockManager) -> Result<()> {
    std::future::pending().await
}

#[cache_lock(prefix = "delay", manager = locks, lock_delay_s = 1)]
impl Delays {
    #[cache_lock(key = "for_s")]
    async fn dropped_for_seconds(locks: &LockManager) -> Result<()> {
        std::future::pending().await
    }

    #[cache_lock(key = "for_const", lock_delay = SHORT)]
    async fn dropped_for_a_constant(locks: &LockManager) -> Result<()> {
        std::future::pending().await
    }
}

struct Delays;

#[cache_lock(proxy = LockedDelays)]
trait Delaying {
    #[cache_lock(prefix = "delay", key = "for_text", lock_delay = "2s")]
    async fn dropped_for_a_text(&self) -> Result<()>;
}

impl Delaying for Delays {
    async fn dropped_for_a_text(&self) -> Result<()> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_rests_for_as_long_as_its_fn_says_when_its_body_is_dropped() {
    let locks = LockManager::in_memory();
    let proxy = LockedDelays::with_manager(Delays, locks.clone());
    let moment = Duration::from_millis(50);
    assert!(tokio::time::timeout(moment, dropped_for_milliseconds(&locks)).await.is_err());
    assert!(tokio::time::timeout(moment, Delays::dropped_for_seconds(&locks)).await.is_err());
    assert!(tokio::time::timeout(moment, Delays::dropped_for_a_constant(&locks)).await.is_err());
    assert!(tokio::time::timeout(moment, proxy.dropped_for_a_text()).await.is_err());
    // After 100, 350, 700, 1,200 and 2,300 ms since the last drop; the first was 150 ms before that.
    for (wait, resting) in [(100, 4), (250, 2), (350, 2), (500, 1), (1100, 0)] {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let mut held = 0;
        for key in ["for_ms", "for_s", "for_const", "for_text"] {
            held += u32::from(locks.is_locked("delay", key).await.unwrap());
        }
        assert_eq!(held, resting, "{wait}");
    }
}
