//! [`LockInfo`]: the state of a lock. [`LockStats`]: what a manager has counted.

use std::fmt;
use std::time::Duration;

/// The holder of a lock, its time, and the waiters: see [`LockManager::inspect`](crate::LockManager::inspect).
///
/// It was true at one instant on the server, and may be out of date when you read it. It is for people and for dashboards. Code that needs
/// the lock should acquire it.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the lock")]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock's name in Redis.
    pub key: String,
    /// The label of the manager that holds the lock (by default its host and process id), the first of them when several do.
    /// `None` when another kind of client holds it.
    pub holder: Option<String>,
    /// The labels of the managers that hold the lock, one for each lease. An exclusive lock has one. The readers of one manager share one
    /// lease. At most 1,000 are named.
    pub holders: Vec<String>,
    /// The [`note`](crate::LockRequest::note) of the request with which `holder` got the lock, if it had one. Tasks of one process may hand
    /// the lock over without the server: then other managers still see the note of the task that asked the server, and the manager that
    /// holds the lock sees the note of the task that has it now.
    pub note: Option<String>,
    /// How long `holder` has had the lock. On the manager that holds it, this is the time of the current hold. On another manager it is the
    /// time since that process asked for the lock, by the clocks of both hosts: it includes the wait, and earlier holds that tasks of the
    /// process handed over to each other. `None` when the holder is another kind of client or an earlier version of this one, and when
    /// there is none because the lock rests or waits for its adopter.
    pub held_for: Option<Duration>,
    /// How much longer the server keeps the lock for its holder, if the holder does not renew its lease. `Duration::MAX` for
    /// a lock that another kind of client set without an expiry.
    pub remaining: Duration,
    /// The labels of the processes that wait for the lock, in the order of the queue. A process with many waiting tasks is one entry. At
    /// most 1,000 are named.
    pub waiting: Vec<String>,
    /// How the lock is held.
    pub mode: LockMode,
    /// Whether the manager that was asked holds the lock itself. The tasks of one manager share its lease.
    pub is_held_here: bool,
    /// Whether the lock rests: no hold is left, and others are still kept out for `remaining` because of an
    /// [`at_least`](crate::LockRequest::at_least) or a [`lock_delay`](crate::LockRequest::lock_delay). `holder` had it last.
    pub rests: bool,
    /// Whether the lock waits for its adopter: its hold was given away by [`LockGuard::into_ticket`](crate::LockGuard::into_ticket), and is
    /// not renewed. `remaining` is the rest of the ticket's time, and `holder` gave it away.
    pub awaits_adopter: bool,
    /// Whether the lock was released by force, and its holder has not stopped yet. That takes at most 2.5 s.
    pub is_forced: bool,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockMode {
    /// By one holder, alone.
    Exclusive,
    /// By readers, together.
    Read,
    /// By holders of permits. If the holders named different numbers, this is the smallest.
    #[non_exhaustive]
    Permits {
        /// How many permits there are.
        of: u32,
    },
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Read => "read",
            Self::Permits { of } => return write!(f, "permits of {of}"),
        })
    }
}

/// What a manager has counted since it was made, and what it does now. [`LockManager::stats`](crate::LockManager::stats)
/// returns it.
///
/// They belong to one manager of one process. Counters start at zero with the manager.
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
    /// How many background releases have no answer yet. It grows while a server is unreachable.
    pub unreleased: u64,
    /// How many holds have begun. A body that enters a lock that its task already holds does not count.
    pub acquired: u64,
    /// How many of these holds were handed over by another task of this process, without a command.
    pub hand_overs: u64,
    /// How many of these holds were handed off by another process.
    pub hand_offs: u64,
    /// How many requests ended with [`LockError::Timeout`](crate::LockError::Timeout), including single tries that found the lock busy.
    pub timeouts: u64,
    /// How many holds were lost.
    pub lost: u64,
    /// How many commands were sent to servers, on all connections. A batch counts as one. Locks in memory send none.
    pub commands: u64,
    /// How many times a lease was renewed in the background.
    pub renewals: u64,
    /// How many times a connection was made again after a break.
    pub reconnects: u64,
}
