//! [`OnLost`]: what happens to a body when its lock is lost.

/// What happens to a body when its lock is lost.
///
/// ```
/// use lock_runtime::{LockError, LockManager, OnLost};
///
/// async fn settle(locks: &LockManager, account: u64) -> Result<(), LockError> {
///     let booking = async { /* two writes that belong together, each with the fencing token */ };
///     locks.lock("account", &account).fenced(true).on_lost(OnLost::Continue).run(booking).await
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLost {
    /// The body is never polled again; it is dropped, and the caller gets [`LockError::Lost`](crate::LockError::Lost).
    #[default]
    Cancel,
    /// The body runs to its end. Then the caller gets [`LockError::Lost`](crate::LockError::Lost) with `completed:
    /// true`. It is for bodies that must not be dropped half-way, and that protect their writes with a fencing token.
    Continue,
}
