//! Tests: whoever calls a task, or forgets it, holds no lock meanwhile. A waker may do anything, also when it is dropped.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::task::{ArcWake, waker};

use crate::mutants::{Mutant, Seeded};
use crate::{LockManager, OnBusy};

const PATIENT: Duration = Duration::from_secs(60);

/// A task that tells, when it is called and when it is forgotten, whether another thread has to wait for a lock of the manager.
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
async fn a_task_whose_turn_is_taken_is_called_without_the_lock_of_the_table() {
    for bug in [None, Some(Mutant::CallsUnderTable)] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::in_memory();
        let others = LockManager::builder().in_memory_with(&locks).unwrap();
        let _held = others.lock("p", "k").acquire().await.unwrap();
        let (called, is_locked) = channel();
        let task = waker(Arc::new(Task { locks: locks.clone(), called, forgotten: channel().0 }));
        let mut waiting = Box::pin(locks.lock("p", "k").timeout(PATIENT).acquire());
        for _ in 0..3 {
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
        }
        while is_locked.try_recv().is_ok() {}
        let mut newest = Box::pin(locks.lock("p", "k").timeout(PATIENT).on_busy(OnBusy::Replace).acquire());
        assert!((&mut newest).now_or_never().is_none());
        assert_eq!(is_locked.try_recv(), Ok(bug.is_some()));
    }
}

/// It has drawn its fencing token. Other readers stay.
#[tokio::test(start_paused = true)]
async fn a_reader_that_is_gone_is_forgotten_without_the_lock_of_the_slot() {
    for bug in [None, Some(Mutant::AttendanceKeepsWaker)] {
        let _seeded = Seeded::begin(bug);
        let locks = LockManager::in_memory();
        let stays = locks.lock("p", "k").read().acquire().await.unwrap();
        let (forgotten, is_locked) = channel();
        let task = waker(Arc::new(Task { locks: locks.clone(), called: channel().0, forgotten }));
        let mut acquiring = Box::pin(locks.lock("p", "k").read().fenced(true).acquire());
        let acquired = acquiring.as_mut().poll(&mut Context::from_waker(&task));
        assert!(matches!(acquired, Poll::Ready(Ok(_))));
        drop((acquiring, task, acquired, stays));
        assert_eq!(is_locked.try_recv(), Ok(bug.is_some()));
    }
}
