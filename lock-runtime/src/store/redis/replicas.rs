//! [`Replicas`]: how many replicas must have a grant before it counts.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lock_wire::CallError;

use crate::clock::Deadline;
use crate::mutex::Mutex;
use crate::store::StoreError;

/// Reserved so that "too few replicas" still reaches the caller before its deadline.
const REPLY_MARGIN: Duration = Duration::from_millis(5);
/// The replicas that have to confirm, for the server of one connection. The connection keeps this.
#[derive(Debug)]
pub(crate) struct Replicas {
    pub(super) count: u32,
    pub(super) within: Duration,
    /// How many callers have asked so far.
    pub(super) asked: AtomicU64,
    pub(super) last: tokio::sync::Mutex<Last>,
    /// Until when a `WAIT` is the reason that callers have no answer: it is in progress, or has just failed.
    waiting: Mutex<Option<Deadline>>,
}

/// The last confirmation. All callers that asked before it was sent share it. At most one is in progress: a `WAIT` delays everything else
/// on its connection.
#[derive(Debug)]
pub(super) struct Last {
    /// It counts for the callers up to this number.
    pub(super) covers: u64,
    pub(super) outcome: Result<(), StoreError>,
}

impl Replicas {
    pub(crate) fn new(count: u32, within: Duration) -> Self {
        let last = tokio::sync::Mutex::new(Last { covers: 0, outcome: Ok(()) });
        Self { count, within, asked: AtomicU64::new(0), last, waiting: Mutex::default() }
    }

    /// Whether a `WAIT` delays everything else on the connection, or has just failed.
    pub(super) fn keep_waiting(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.is_some_and(|until| !until.has_passed())
    }

    pub(super) fn wait_until(&self, answered: Option<Deadline>) {
        *self.waiting.lock() = answered;
    }

    pub(super) fn unconfirmed(&self, limit: Duration) -> CallError {
        CallError::Unconfirmed(limit, self.count)
    }

    /// How long the replicas have for a caller with this deadline.
    pub(super) fn within_of(&self, deadline: Deadline) -> Duration {
        self.within.min(deadline.span().saturating_sub(REPLY_MARGIN))
    }
}
