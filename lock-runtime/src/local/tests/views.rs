//! Tests: what ended holds still show. What their handles do does not affect the next hold.

use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Deadline;
use crate::mutants::{Mutant, Seeded};
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

/// Meanwhile another process has the lock, and the waiter has not asked again.
#[tokio::test(start_paused = true)]
async fn a_waiter_in_another_mode_does_not_name_its_own_process_after_its_hold_has_ended() {
    for (bug, is_named) in [(None, false), (Some(Mutant::EndedHoldNamed), true)] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::builder().label("ada").in_memory();
        let others = LockManager::builder().in_memory_with(&locks).unwrap();
        let guard = locks.lock("p", "k").acquire().await.unwrap();
        let next = tokio::spawn(others.lock("p", "k").acquire());
        sleep(Duration::from_millis(20)).await;
        let told = tokio::spawn(locks.lock("p", "k").read().timeout(Duration::from_millis(130)).acquire());
        sleep(Duration::from_millis(20)).await;
        guard.release().await.unwrap();
        let _next = next.await.unwrap().unwrap();
        let told = told.await.unwrap().unwrap_err();
        let LockError::Timeout { holder, held_here, .. } = &told else { panic!("{told:?}") };
        assert_eq!((holder.as_deref() == Some("ada"), *held_here), (is_named, is_named), "{bug:?}: {told:?}");
    }
}
