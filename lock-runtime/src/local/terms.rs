//! [`Terms`]: how long a hold may last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::LockError;
use crate::clock::{Deadline, Drift, Moment};
use crate::lease_bounds::check_max_hold;

/// What a request says about the time of its hold. A request that says nothing has no terms, and pays nothing for them.
#[derive(Debug)]
pub(crate) struct Terms {
    max_hold: Option<Duration>,
    /// Whether the hold was lost because it had lasted for `max_hold`.
    is_spent: AtomicBool,
}

impl Terms {
    /// `None` when nothing is said.
    pub(crate) fn new(max_hold: Option<Duration>) -> Result<Option<Arc<Self>>, LockError> {
        let Some(longest) = max_hold else { return Ok(None) };
        check_max_hold(longest)?;
        Ok(Some(Arc::new(Self { max_hold, is_spent: AtomicBool::new(false) })))
    }

    /// The lease of a request that asks for a lease of `expire`: none is longer than the hold may last.
    pub(crate) fn lease(&self, expire: Duration, drift: Drift) -> Duration {
        self.max_hold.map_or(expire, |longest| expire.min(drift.lease_for(longest)))
    }

    /// The latest end of a hold that began at `since`.
    pub(super) fn latest_end(&self, since: Moment) -> Option<Deadline> {
        self.max_hold.map(|longest| Deadline::new(since, longest))
    }

    pub(super) fn note_spent(&self) {
        self.is_spent.store(true, Ordering::Release);
    }

    /// The time that the hold was allowed, if the hold was lost because this time was over.
    pub(super) fn spent(&self) -> Option<Duration> {
        self.max_hold.filter(|_| self.is_spent.load(Ordering::Acquire))
    }
}
