//! [`OnLost`].

/// What happens to a body whose lock is lost under it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLost {
    /// The body is never polled again; it is dropped, and the caller gets [`LockError::Lost`](crate::LockError::Lost).
    #[default]
    Cancel,
    /// The body runs on; the caller gets [`LockError::Lost`](crate::LockError::Lost) with `completed: true` after its end. For bodies that
    /// must not be dropped half-way and that protect their writes with a fencing token.
    Continue,
}
