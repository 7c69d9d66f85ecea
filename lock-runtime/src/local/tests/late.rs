//! Tests: tasks that are not polled when they are woken (rule L7).

use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep};

use crate::{LockError, LockGuard, LockManager};

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

const LONG: Duration = Duration::from_mins(1);
/// The patience, and a few ticks of the keeper.
const PASSED_ON: Duration = Duration::from_millis(70);

/// Starts to wait, and is not polled again.
fn kept(locks: &LockManager, timeout: Duration) -> Acquiring {
    let mut acquiring: Acquiring = Box::pin(locks.lock("p", "k").timeout(timeout).acquire());
    assert!(acquiring.as_mut().now_or_never().is_none());
    acquiring
}

fn two() -> (LockManager, LockManager) {
    let locks = LockManager::in_memory();
    let beside = LockManager::builder().in_memory_with(&locks).unwrap();
    (locks, beside)
}

#[tokio::test(start_paused = true)]
async fn a_late_task_loses_its_turn_and_is_next_when_it_is_polled() {
    let (locks, _) = two();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let (mut late, next, mut last) = (kept(&locks, LONG), kept(&locks, LONG), kept(&locks, LONG));
    let released = Instant::now();
    drop(guard);
    let guard = next.await.unwrap();
    assert!(released.elapsed() < PASSED_ON, "{:?}", released.elapsed());
    assert!(late.as_mut().now_or_never().is_none(), "it keeps its place");
    drop(guard);
    assert!(last.as_mut().now_or_never().is_none(), "it is behind the late one");
    let guard = late.await.unwrap();
    drop(guard);
    last.await.unwrap().release().await.unwrap();
    assert!(locks.core().table().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_late_task_takes_the_turn_of_an_unpolled_task_behind_it() {
    let (locks, _) = two();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let (first, second) = (kept(&locks, LONG), kept(&locks, LONG));
    drop(guard);
    sleep(PASSED_ON).await;
    let guard = first.now_or_never().unwrap().unwrap();
    drop(guard);
    second.now_or_never().unwrap().unwrap().release().await.unwrap();
    assert!(locks.core().table().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_process_gets_the_lock_that_no_task_here_takes() {
    let (locks, beside) = two();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let late = kept(&locks, LONG);
    drop(guard);
    sleep(PASSED_ON).await;
    let pending = Instant::now();
    beside.lock("p", "k").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    assert!(pending.elapsed() < PASSED_ON, "{:?}", pending.elapsed());
    late.await.unwrap().release().await.unwrap();
    assert!(locks.core().table().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_no_task_here_takes_is_free_within_a_second() {
    let (locks, beside) = two();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let late = [kept(&locks, LONG), kept(&locks, LONG), kept(&locks, LONG)];
    drop(guard);
    sleep(Duration::from_secs(1)).await;
    let guard = beside.lock("p", "k").try_acquire().await.unwrap();
    assert!(guard.is_some());
    drop((guard, late));
    assert!(locks.core().table().all().is_empty(), "late tasks that are dropped leave nothing");
}

#[tokio::test(start_paused = true)]
async fn a_polled_task_takes_the_turn_of_late_tasks_even_by_a_single_try() {
    let (locks, _) = two();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let late = kept(&locks, LONG);
    drop(guard);
    sleep(PASSED_ON).await;
    let guard = locks.lock("p", "k").try_acquire().await.unwrap().expect("nobody holds it");
    drop(guard);
    let guard = locks.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    drop((guard, late));
    assert!(locks.core().table().all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_polled_after_its_timeout_fails_although_it_could_take_the_lease() {
    let (locks, beside) = two();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let late = kept(&locks, Duration::from_millis(10));
    drop(guard);
    // The lease is still free: no time has passed for the keeper.
    sleep(Duration::from_millis(500)).await;
    let error = late.await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(beside.lock("p", "k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_tasks_that_are_late() {
    let (locks, beside) = two();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let late = [kept(&locks, LONG), kept(&locks, LONG)];
    drop(guard);
    sleep(PASSED_ON * 2).await;
    let begin = Instant::now();
    locks.shutdown().await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(beside.lock("p", "k").try_acquire().await.unwrap().is_some());
    for late in late {
        assert!(matches!(late.await, Err(LockError::ShutDown { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_late_tasks_delay_the_one_behind_them_no_longer_than_a_few() {
    let (locks, _) = two();
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    let late: Vec<_> = (0..300).map(|_| kept(&locks, LONG)).collect();
    let next = kept(&locks, LONG);
    let released = Instant::now();
    drop(guard);
    next.await.unwrap().release().await.unwrap();
    assert!(released.elapsed() < PASSED_ON * 4, "{:?}", released.elapsed());
    for acquiring in late {
        acquiring.await.unwrap().release().await.unwrap();
    }
    assert!(locks.core().table().all().is_empty());
}
