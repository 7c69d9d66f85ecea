//! Tests: no mutex is held while a task is woken or its waker dropped. A waker may do anything, even when it is dropped.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::Context;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::task::{ArcWake, waker};

use crate::mutants::{Mutant, Seeded};
use crate::{LockError, LockGuard, LockManager, OnBusy};

const PATIENT: Duration = Duration::from_secs(60);

/// A task that reports, when it is woken and when its waker is dropped, whether another thread would have to wait for the manager's mutex.
struct Task {
    locks: LockManager,
    called: Sender<bool>,
    forgotten: Sender<bool>,
}

impl Task {
    fn is_locked(&self) -> bool {
        let (done, is_done) = channel();
        let locks = self.locks.clone();
        thread::spawn(move || done.send(locks.stats()));
        is_done.recv_timeout(Duration::from_millis(500)).is_err()
    }
}

impl ArcWake for Task {
    fn wake_by_ref(task: &Arc<Self>) {
        let _ = task.called.send(task.is_locked());
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let _ = self.forgotten.send(self.is_locked());
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_replaced_is_woken_without_the_lock_of_the_table() {
    for bug in [None, Some(Mutant::CallsUnderTable)] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::in_memory();
        let others = LockManager::builder().in_memory_with(&locks).unwrap();
        let _held = others.lock("p", "k").acquire().await.unwrap();
        let (called, is_locked) = channel();
        let task = waker(Arc::new(Task { locks: locks.clone(), called, forgotten: channel().0 }));
        let mut waiting = Box::pin(locks.lock("p", "k").timeout(PATIENT).on_busy(OnBusy::Replace).acquire());
        for _ in 0..3 {
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
        }
        while is_locked.try_recv().is_ok() {}
        let mut newest = Box::pin(locks.lock("p", "k").timeout(PATIENT).on_busy(OnBusy::Replace).acquire());
        assert!((&mut newest).now_or_never().is_none());
        assert_eq!(is_locked.try_recv(), Ok(bug.is_some()));
    }
}

/// The request of a task that waits at this place.
fn waiting(locks: &LockManager, place: &str) -> BoxFuture<'static, Result<LockGuard, LockError>> {
    let request = |key| locks.lock("p", key).timeout(PATIENT);
    match place {
        "for a hold" => Box::pin(request("k").acquire()),
        "for readers" => Box::pin(request("k").read().acquire()),
        "for any permit" => Box::pin(request("permits").permits(1).acquire()),
        "for one of several keys" => Box::pin(locks.lock_all("p", ["free", "k"]).timeout(PATIENT).acquire()),
        _ => unreachable!("{place}"),
    }
}

/// As in the thread pool of `futures`: the last waker may hold the last reference to its task.
#[tokio::test(start_paused = true)]
async fn a_task_whose_future_moves_to_another_or_is_dropped_ends_without_any_lock() {
    for place in ["for a hold", "for readers", "for any permit", "for one of several keys"] {
        for moves in [true, false] {
            let locks = LockManager::in_memory();
            let _held = locks.lock("p", "k").acquire().await.unwrap();
            let _permit = locks.lock("p", "permits").permits(1).acquire().await.unwrap();
            let (forgotten, is_locked) = channel();
            let task = waker(Arc::new(Task { locks: locks.clone(), called: channel().0, forgotten }));
            let mut acquiring = waiting(&locks, place);
            for _ in 0..3 {
                assert!(acquiring.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
            }
            drop(task);
            assert!(is_locked.try_recv().is_err(), "{place}: somebody still refers to it");
            if moves {
                assert!((&mut acquiring).now_or_never().is_none());
            } else {
                drop(acquiring);
            }
            // A timer or the background work may hold the last reference.
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(is_locked.try_recv(), Ok(false), "{place}, moves: {moves}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_waits_for_the_last_hold_is_woken_without_the_lock_of_the_table() {
    for bug in [None, Some(Mutant::CallsUnderTable)] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::in_memory();
        let guard = locks.lock("p", "k").acquire().await.unwrap();
        let (called, is_locked) = channel();
        let task = waker(Arc::new(Task { locks: locks.clone(), called, forgotten: channel().0 }));
        let mut closing = Box::pin(locks.shutdown());
        assert!(closing.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
        drop(guard);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let calls: Vec<_> = is_locked.try_iter().collect();
        assert!(!calls.is_empty());
        assert_eq!(calls.contains(&true), bug.is_some(), "{bug:?}: {calls:?}");
    }
}
