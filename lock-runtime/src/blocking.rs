//! [`Blocking`]: callers that wait on their own thread, without a runtime.
//!
//! The caller's thread polls the future. The keepers' thread, whose runtime always runs, drives the timers and the connections. So the
//! caller needs no runtime.
//!
//! A thread that runs asynchronous tasks must not wait: the task that would release the lock may be one of them.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::runtime::Handle;
use tokio::task::coop::consume_budget;

use crate::clock::lent::with_clock_of;
use crate::entry::Entry;
use crate::held::Held;
use crate::keeper::thread::KeeperThread;
use crate::{BackendError, LockError};

/// More than tokio allows a task to do in one poll.
const MOST_BUDGET: usize = 256;

/// A held lock around a closure.
#[derive(Debug)]
pub struct Blocking {
    /// It has the body's guard and tokens, and runs the body.
    pub held: Held,
    thread: Arc<KeeperThread>,
    /// The runtime whose time the lock uses. `None` where that makes no difference.
    clock: Option<Handle>,
}

impl Blocking {
    /// Waits for the lock on this thread. Fails on a thread that must not wait.
    pub(crate) fn enter(entry: &mut Entry, is_body: bool) -> Result<Self, LockError> {
        let key = || entry.request.key.to_string();
        if runs_tasks() {
            return Err(LockError::InAsyncTask { key: key() });
        }
        let clock = Handle::try_current().ok().filter(|_| !entry.engine.keeper.has_thread());
        let thread = entry.engine.thread().map_err(|error| LockError::Backend {
            key: key(),
            problem: BackendError::caused_by(format!("the thread that keeps locks can't be started: {error}"), error),
        })?;
        let held = thread.block_on(with_clock_of(clock.clone(), entry.enter(is_body)))?;
        Ok(Self { held, thread, clock })
    }

    /// Releases the lock and returns the outcome of the body.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] when the hold did not last until now.
    pub fn finish<T>(mut self, outcome: Result<T, LockError>) -> Result<T, LockError> {
        match outcome {
            Ok(value) => self.release().map(|()| value),
            Err(error) => {
                self.held.guard.span.end(Some(&error));
                Err(error)
            }
        }
    }

    /// Not part of the generic fn, which each user's crate compiles again.
    fn release(self) -> Result<(), LockError> {
        let Self { held, thread, clock } = self;
        thread.block_on(with_clock_of(clock, async { held.release().await }))
    }
}

/// Whether this thread is polling an asynchronous task, and must not wait.
///
/// A thread of `spawn_blocking` has a current runtime as well, and may wait; so may code in `block_in_place`. tokio tells them apart
/// only by a panic, or by this: each poll of a task has a budget, and code that may wait has none. A future in `unconstrained` has none
/// either: there tokio's own check panics when this thread begins to wait.
fn runs_tasks() -> bool {
    // The executors of the futures crate can't be entered twice on a thread. They may run on a thread that is inside of a tokio runtime.
    if futures_executor::enter().is_err() {
        return true;
    }
    if Handle::try_current().is_err() {
        return false;
    }
    let mut context = Context::from_waker(Waker::noop());
    (0..MOST_BUDGET).any(|_| pin!(consume_budget()).poll(&mut context).is_pending())
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::{LocalSet, block_in_place, spawn_blocking};

    use super::runs_tasks;

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).build().unwrap()
    }

    #[test]
    fn a_thread_that_polls_tasks_differs_from_one_that_may_wait() {
        assert!(!runs_tasks());
        assert!(futures_executor::block_on(async { runs_tasks() }), "another executor");
        let runtime = runtime();
        let entered = runtime.enter();
        assert!(!runs_tasks(), "the runtime is only named here");
        assert!(futures_executor::block_on(async { runs_tasks() }), "another executor inside a runtime");
        drop(entered);
        runtime.block_on(async {
            assert!(runs_tasks(), "the root of a runtime");
            assert!(runs_tasks(), "also when its budget is used up");
            assert!(tokio::spawn(async { runs_tasks() }).await.unwrap());
            assert!(!spawn_blocking(runs_tasks).await.unwrap());
            assert!(spawn_blocking(|| futures_executor::block_on(async { runs_tasks() })).await.unwrap());
            assert!(!tokio::spawn(async { block_in_place(runs_tasks) }).await.unwrap());
            assert!(LocalSet::new().run_until(async { runs_tasks() }).await);
        });
        assert!(!std::thread::spawn(runs_tasks).join().unwrap());
        let current = Builder::new_current_thread().build().unwrap();
        assert!(current.block_on(async { runs_tasks() }));
    }
}
