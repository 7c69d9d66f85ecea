//! Tests: what ended holds still show. What their handles do does not affect the next hold.

use std::time::Duration;

use crate::clock::Deadline;
use crate::store::Renewed;
use crate::{LockError, LockManager};

/// The answer to an extension arrives after the lease and its token were handed over.
#[tokio::test(start_paused = true)]
async fn an_extension_that_comes_too_late_does_not_end_the_next_hold() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let handle = guard.first.handle().clone();
    let next = tokio::spawn(locks.lock("p", "k").acquire());
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    let (lease, before) = (Deadline::after(Duration::from_secs(20)), next.remaining());
    assert!(handle.on_renewed(Renewed::Until(lease), lease).unwrap_err().is_lost());
    assert!(next.is_valid() && next.remaining() <= before, "{:?}", next.remaining());
    // That the store does not know the lease matters to the hold that has the lease now.
    assert!(handle.on_renewed(Renewed::NotOwned, lease).unwrap_err().is_lost());
    assert!(!next.is_valid());
    assert!(next.release().await.unwrap_err().is_lost());
}

/// No task holds the lock, and it is known when its rest ends.
#[tokio::test(start_paused = true)]
async fn a_refused_try_says_when_the_rest_of_the_lock_ends() {
    let (locks, second) = (LockManager::in_memory(), Duration::from_secs(1));
    locks.lock("p", "k").at_least(second * 9).run(tokio::time::sleep(second)).await.unwrap();
    let told = locks.lock("p", "k").timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert!(told.retry_after().is_some_and(|rest| rest <= second * 8 && rest > second * 7), "{told:?}");
    tokio::time::sleep(second * 8).await;
    let _holder = locks.lock("p", "k").acquire().await.unwrap();
    let told = locks.lock("p", "k").timeout(Duration::ZERO).acquire().await.unwrap_err();
    assert!(matches!(told, LockError::Timeout { held_here: true, frees_in: None, .. }), "{told:?}");
}
