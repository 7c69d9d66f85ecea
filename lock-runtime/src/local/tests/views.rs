//! Tests: handles of holds that have ended. What they do does not touch the next hold.

use std::time::Duration;

use crate::LockManager;
use crate::clock::Deadline;
use crate::store::Renewed;

/// The answer to an extension comes after the lease and its token were handed over to the next hold.
#[tokio::test(start_paused = true)]
async fn an_extension_that_comes_too_late_does_not_end_the_next_hold() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let handle = guard.handle().clone();
    let next = tokio::spawn(locks.lock("p", "k").acquire());
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    let (lease, before) = (Deadline::after(Duration::from_secs(20)), next.remaining());
    assert!(handle.on_renewed(Renewed::Until(lease), lease).unwrap_err().is_lost());
    assert!(next.is_valid() && next.remaining() <= before, "{:?}", next.remaining());
    // That the store does not know the lease concerns the hold that has the lease now.
    assert!(handle.on_renewed(Renewed::NotOwned, lease).unwrap_err().is_lost());
    assert!(!next.is_valid());
    assert!(next.release().await.unwrap_err().is_lost());
}
