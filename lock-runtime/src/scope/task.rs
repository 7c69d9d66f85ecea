//! [`Task`]: the task that is running on a thread.

/// A task, as far as this crate can know: the unit that one executor polls by itself.
///
/// Futures that a body joins, selects or buffers have wakers of their own, but the task of the body polls them. So a
/// waker does not identify a task. The identity comes from what an executor says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    /// The id of the task that tokio polls, also on a `LocalSet` and on a runtime inside of another runtime. The root
    /// of a runtime that is driven inside of a task has the id of that task, and is part of it. The same is true for
    /// the task of another executor.
    id: Option<tokio::task::Id>,
    /// Whether an executor of the futures crate polls the task. That executor does not tell its root from its tasks.
    is_in_pool: bool,
}

impl Task {
    /// The task that is running on this thread.
    pub(super) fn running() -> Self {
        // The executor can't be entered twice. When entering succeeds here, its guard is dropped at once.
        Self { id: tokio::task::try_id(), is_in_pool: futures_executor::enter().is_err() }
    }
}
