//! Tests: which tasks wait in a slot, and which no longer do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::__private::LockOptions;
use crate::{LockError, LockGuard, LockManager};
use futures_util::FutureExt as _;

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_gone_does_not_count() {
    let builder = LockManager::builder().url("memory://").max_waiters_per_key(1);
    let locks = builder.connect().await.unwrap();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    for _ in 0..3 {
        let waiting = locks.lock("p", "k").timeout(Duration::from_millis(10)).acquire().await;
        assert!(matches!(waiting, Err(LockError::Timeout { .. })), "{waiting:?}");
        assert!(locks.lock("p", "k").acquire().now_or_never().is_none());
    }
    guard.release().await.unwrap();
    assert!(locks.core().table().all().is_empty());
}

/// How many fencing tokens a hold's lease has left for the next holds.
async fn reserved(locks: &LockManager, acquiring: impl Future<Output = Result<LockGuard, LockError>>) -> usize {
    let guard = acquiring.await.unwrap();
    let slot = locks.core().table().get(guard.key()).unwrap();
    let mut fences = slot.state.lock().lock.any_lease().fences;
    guard.release().await.unwrap();
    std::iter::from_fn(|| fences.take()).count()
}

#[tokio::test(start_paused = true)]
async fn as_many_fencing_tokens_are_reserved_as_there_are_tasks_that_want_one() {
    let locks = LockManager::in_memory();
    let fenced = || locks.lock("p", "k").fenced(true).timeout(Duration::from_mins(1)).acquire();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    for _ in 0..9 {
        assert!(fenced().now_or_never().is_none(), "it waits, and is dropped");
    }
    let waiting = || reserved(&locks, fenced());
    let (first, second, third, released) = tokio::join!(biased; waiting(), waiting(), waiting(), guard.release());
    released.unwrap();
    assert_eq!((first, second, third), (2, 1, 0));
    assert_eq!(waiting().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_fails_waiters_at_once_and_not_when_the_holder_is_done() {
    let locks = LockManager::in_memory();
    let _guard = locks.lock("p", "k").acquire().await.unwrap();
    let wait = async {
        let waiting = locks.lock("p", "k").timeout(Duration::from_mins(1)).acquire().await;
        (waiting, Instant::now())
    };
    let start = Instant::now();
    let ((waiting, failed), ()) = tokio::join!(biased; wait, locks.shutdown());
    assert!(matches!(waiting, Err(LockError::ShutDown { .. })), "{waiting:?}");
    assert_eq!(failed, start);
}

/// A waiter that takes the lock in the moment of the shutdown holds it like any other, or it would be held until its lease ends.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_takes_the_lock_while_a_shutdown_begins_holds_it() {
    let locks = LockManager::in_memory();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let mut waiting = locks.lock("p", "k").timeout(Duration::from_mins(1)).acquire();
    assert!((&mut waiting).now_or_never().is_none());
    guard.release().await.unwrap();
    locks.core().is_closed.store(true, Ordering::SeqCst);
    drop(waiting.await.unwrap());
    assert!(locks.core().table().all().is_empty());
}

/// Every waiter pays for the whole future and for what it boxes. What few tasks need has a box of its own.
#[tokio::test]
async fn the_future_of_a_waiter_stays_small() {
    let locks = LockManager::in_memory();
    let run = std::mem::size_of_val(&locks.lock("p", "k").run(async {}));
    let engine = locks.engine;
    let options = || LockOptions::new("p", "k");
    let (acquiring, entering) = (options().acquire(engine.clone()), options().enter(Some(engine)));
    // With metrics a waiting task counts itself.
    let metrics = if cfg!(feature = "metrics") { 96 } else { 0 };
    let sizes = [run, std::mem::size_of_val(&*acquiring), std::mem::size_of_val(&*entering)];
    assert!(sizes.iter().zip([256, 504, 504]).all(|(size, most)| *size <= most + metrics), "{sizes:?}");
}
