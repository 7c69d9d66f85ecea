//! [`LockStats`]: what a manager has counted.

/// What a manager has counted since it was made, and what it does now. [`LockManager::stats`](crate::LockManager::stats)
/// returns it.
///
/// The numbers belong to one manager of one process. Numbers that only grow start at zero with the manager.
///
/// ```
/// # use lock_runtime::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::in_memory();
/// let guard = locks.lock("order", &7).acquire().await?;
/// assert!(locks.lock("order", &7).try_acquire().await?.is_none());
/// let stats = locks.stats();
/// assert_eq!((stats.held, stats.acquired, stats.timeouts), (1, 1, 1));
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// How many locks are held now.
    pub held: u64,
    /// How many tasks wait for a lock now.
    pub waiting: u64,
    /// How many leases are kept now for the next hold in this process.
    pub lingering: u64,
    /// How many keys are in use now: a task holds the lock, waits for it, or still releases it.
    pub keys: u64,
    /// How many releases of the background work have no answer yet. It grows while a server is away.
    pub unreleased: u64,
    /// How many holds have begun. A body that enters a lock which its task holds already does not count.
    pub acquired: u64,
    /// How many of these holds came from the task before, in this process, without a command.
    pub hand_overs: u64,
    /// How many of these holds came from another process, which passed the lock on.
    pub hand_offs: u64,
    /// How many requests ended with [`LockError::Timeout`](crate::LockError::Timeout). A single try that found the lock
    /// busy counts, too.
    pub timeouts: u64,
    /// How many holds were lost.
    pub lost: u64,
    /// How many commands were sent to servers, on all connections. A batch counts as one. Locks in memory send none.
    pub commands: u64,
    /// How many times the background work has lengthened a lease.
    pub renewals: u64,
    /// How many times a connection was made again after it broke.
    pub reconnects: u64,
}
