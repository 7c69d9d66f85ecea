//! [`LockInfo`]: what a look at a lock shows. [`LockStats`]: what a manager has counted.

use std::fmt;
use std::time::Duration;

/// Who has a lock, for how long, and who waits for it: see [`LockManager::inspect`](crate::LockManager::inspect).
///
/// It was true at one instant on the server, and may be out of date when it is read. It is for people and for dashboards.
/// Code that needs the lock asks for the lock.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the lock")]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock's name in Redis.
    pub key: String,
    /// The label of the manager that holds the lock (by default its host and process id), the first of them when several do.
    /// `None` when another kind of client holds it.
    pub holder: Option<String>,
    /// The labels of the managers that hold the lock, one for each lease. A lock that is held alone has one. The readers of one
    /// manager have one lease together. At most 1,000 are named.
    pub holders: Vec<String>,
    /// How much longer the server keeps the lock for its holder, if the holder does not renew its lease. `Duration::MAX` for
    /// a lock that another kind of client set without an expiry.
    pub remaining: Duration,
    /// The labels of the processes that wait for the lock, first come first. A process with many waiting tasks is one entry.
    /// At most 1,000 are named.
    pub waiting: Vec<String>,
    /// How the lock is held.
    pub mode: LockMode,
    /// Whether the manager that was asked holds the lock itself. The tasks of one manager share its lease.
    pub is_held_here: bool,
    /// Whether the lock rests: no hold is left, and others are still kept out for `remaining` because of an
    /// [`at_least`](crate::LockRequest::at_least). The holder is who held it last.
    pub rests: bool,
    /// Whether the lock waits for its adopter: its hold was given away by
    /// [`LockGuard::into_ticket`](crate::LockGuard::into_ticket), and is renewed by nobody. `remaining` is the rest of the ticket's
    /// time, and the holder is who gave it away.
    pub awaits_adopter: bool,
    /// Whether the lock was released by force, and its holder was not yet seen to stop. It takes at most 2.5 s.
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
    /// By holders of permits, of which there are this many. Where the holders named different numbers, it is the smallest.
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
