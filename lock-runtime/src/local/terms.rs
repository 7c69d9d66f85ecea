//! [`Terms`]: a request with every default filled in.

use std::sync::Arc;
use std::time::Duration;

use crate::LockError;

/// Shorter leases than this end before a release can be sent on a usual network.
const SHORTEST: Duration = Duration::from_millis(10);
/// A longer lease is a unit mistaken for another (peers' users: 10 s became 10,000 s).
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// What a task asks for.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) key: Arc<str>,
    pub(crate) timeout: Duration,
    pub(crate) expire: Duration,
    pub(crate) renew: bool,
    pub(crate) fenced: bool,
    /// Whether the hold is around a body that is dropped when the hold is lost; see rule L6.
    pub(crate) body: bool,
}

/// Refuses a lease that can't be meant.
pub(crate) fn check_lease(setting: &'static str, lease: Duration) -> Result<(), LockError> {
    let reason = if lease.is_zero() {
        "a lease of zero would protect nothing".to_owned()
    } else if lease < SHORTEST {
        format!("a lease of {lease:?} would end before it can be used; the shortest is {SHORTEST:?}")
    } else if lease > LONGEST {
        format!("a lease of {lease:?} is longer than a year; after a crash nobody could lock until then")
    } else {
        return Ok(());
    };
    Err(LockError::InvalidSetting { setting, reason })
}
