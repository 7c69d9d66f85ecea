//! Tests: a task is woken, and polled only after something else has happened. Whatever that is, the task holds the lock alone, and the
//! manager knows of its hold.

use std::cell::Cell;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep};

use crate::clock::Deadline;
use crate::error::LossReason;
use crate::{LockError, LockGuard, LockManager, LockRequest, OnBusy};

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

const LONG: Duration = Duration::from_mins(1);

type Mode = fn(LockRequest) -> LockRequest;

const MODES: [Mode; 4] =
    [|request| request, LockRequest::read, |request| request.read().fenced(true), |request| request.permits(1)];

/// What happens to another task's hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Released,
    Dropped,
    Forced,
    Replaced,
    /// Lost after an alarm, or after a refused renewal.
    Gone,
    /// Its deadline has passed, and the keeper has not noticed yet.
    Expired,
}

const LOSSES: [Loss; 6] = [Loss::Released, Loss::Dropped, Loss::Forced, Loss::Replaced, Loss::Gone, Loss::Expired];

impl Loss {
    async fn befalls(self, guard: LockGuard, locks: &LockManager, beside: &LockManager) {
        let slots = locks.core().table().all();
        match self {
            Self::Released => guard.release().await.unwrap(),
            Self::Dropped => drop(guard),
            Self::Forced => {
                tokio::join!(beside.force_release("p", "k").map(Result::unwrap), lost(guard));
            }
            Self::Replaced => {
                let replaces = beside.lock("p", "k").on_busy(OnBusy::Replace).timeout(LONG).run(async {});
                tokio::join!(replaces.map(Result::unwrap), lost(guard));
            }
            Self::Gone => {
                for slot in &slots {
                    locks.core().revoke(slot, None, LossReason::NotKnown);
                }
                lost(guard).await;
            }
            Self::Expired => {
                for slot in slots {
                    slot.state.lock().lock.any_lease().until = Deadline::after(Duration::ZERO);
                }
                drop(guard);
            }
        }
    }
}

/// The holder finds that it has lost the lock.
async fn lost(guard: LockGuard) {
    guard.lost().await;
}

fn two() -> (LockManager, LockManager) {
    let locks = LockManager::in_memory();
    let beside = LockManager::builder().in_memory_with(&locks).unwrap();
    (locks, beside)
}

fn waits(locks: &LockManager, mode: Mode) -> Acquiring {
    let mut acquiring: Acquiring = Box::pin(mode(locks.lock("p", "k")).timeout(LONG).acquire());
    assert!((&mut acquiring).now_or_never().is_none());
    acquiring
}

/// Two tasks wait behind a holder, and one of them gets the lock next. The second is not polled in between, and not until `later`.
async fn second(locks: &LockManager, beside: &LockManager, mode: Mode, loss: Loss, later: Duration) -> LockGuard {
    let holder = locks.lock("p", "k").acquire().await.unwrap();
    let (first, second) = (waits(locks, mode), waits(locks, mode));
    holder.release().await.unwrap();
    let first = first.await.unwrap();
    loss.befalls(first, locks, beside).await;
    sleep(later).await;
    second.await.unwrap()
}

/// What is wrong with its hold.
async fn wrong(mode: Mode, loss: Loss, later: Duration) -> Vec<&'static str> {
    let (locks, beside) = two();
    let guard = second(&locks, &beside, mode, loss, later).await;
    let is_unknown = locks.stats().keys == 0;
    assert!(guard.is_valid() && beside.force_release("p", "k").await.unwrap());
    let writer = beside.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    let are_two = guard.is_valid();
    drop((guard, writer));
    let is_left = [&locks, &beside].iter().any(|locks| !locks.core().table().all().is_empty());
    let seen = [(is_unknown, "it is not known"), (are_two, "two have the lock"), (is_left, "something is left")];
    seen.into_iter().filter_map(|(is_seen, what)| is_seen.then_some(what)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_woken_task_that_is_polled_late_holds_the_lock_alone() {
    let mut found = Vec::new();
    for (number, mode) in MODES.into_iter().enumerate() {
        for loss in LOSSES {
            for later in [0, 20, 80, 1500].map(Duration::from_millis) {
                found.extend(wrong(mode, loss, later).await.into_iter().map(|wrong| (number, loss, later, wrong)));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_body_of_a_woken_task_that_was_polled_late() {
    for (mode, loss) in MODES.into_iter().flat_map(|mode| LOSSES.map(|loss| (mode, loss))) {
        let (locks, beside) = two();
        let holder = locks.lock("p", "k").acquire().await.unwrap();
        let first = waits(&locks, mode);
        let (has_begun, has_ended) = (Cell::new(false), Cell::new(false));
        let body = async {
            has_begun.set(true);
            sleep(Duration::from_millis(4900)).await;
            has_ended.set(true);
        };
        let mut second = Box::pin(mode(locks.lock("p", "k")).timeout(LONG).run(body));
        assert!((&mut second).now_or_never().is_none());
        holder.release().await.unwrap();
        loss.befalls(first.await.unwrap(), &locks, &beside).await;
        let shut_down = async {
            while !has_begun.get() {
                sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(locks.stats().keys, 1, "{loss:?}");
            locks.shutdown().await;
            assert!(has_ended.get(), "{loss:?}");
        };
        let (outcome, ()) = tokio::join!(second, shut_down);
        outcome.unwrap();
    }
}

/// A reader that is polled only later gets the error when it is polled.
#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_woken_readers_that_are_not_polled() {
    for loss in LOSSES {
        let (locks, beside) = two();
        let holder = locks.lock("p", "k").acquire().await.unwrap();
        let (first, second) = (waits(&locks, LockRequest::read), waits(&locks, LockRequest::read));
        holder.release().await.unwrap();
        let first = first.await.unwrap();
        let begin = Instant::now();
        let end = async {
            sleep(Duration::from_millis(100)).await;
            loss.befalls(first, &locks, &beside).await;
        };
        tokio::join!(locks.shutdown(), end);
        assert!(begin.elapsed() < Duration::from_secs(1), "{loss:?}: {:?}", begin.elapsed());
        assert!(matches!(second.await, Err(LockError::ShutDown { .. })), "{loss:?}");
    }
}
