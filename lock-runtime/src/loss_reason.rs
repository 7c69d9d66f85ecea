//! [`LossReason`]: why a hold was lost.

/// Why a lease ended under its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossReason {
    /// The deadline passed before the hold was renewed or released.
    Deadline,
    /// The store does not know the lease: its key was deleted, evicted or forgotten, or has expired.
    NotKnown,
    /// The manager was shut down, and the hold did not end in time.
    ShutDown,
    /// Somebody released the lock by force (rule 21).
    Forced,
    /// The hold had lasted for as long as its request allows.
    MaxHold,
}
