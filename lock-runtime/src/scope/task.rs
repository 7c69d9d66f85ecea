//! [`Task`]: which task is running.

/// A task, as far as can be told: what one executor polls by itself.
///
/// Futures that a body joins, selects or buffers have wakers of their own, and are polled by its task all the same. So the
/// waker does not tell, and it takes what an executor says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    /// What tokio polls, also on a `LocalSet` and on a runtime inside of another. The root of a runtime that is driven inside
    /// of a task has that task's id: it is part of it. So has the task of another executor.
    id: Option<tokio::task::Id>,
    /// Whether an executor of the futures crate polls it. That executor does not tell its root from its tasks.
    is_in_pool: bool,
}

impl Task {
    /// The one that is running on this thread.
    pub(super) fn running() -> Self {
        // It can't be entered twice; when it could be entered it is left at once.
        Self { id: tokio::task::try_id(), is_in_pool: futures_executor::enter().is_err() }
    }
}
