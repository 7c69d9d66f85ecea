//! The bounds of a lease and of a hold, and the texts about what is out of bounds.

use std::time::Duration;

use crate::LockError;

/// The shortest lease. A shorter lease would end before a release can be sent on a usual network.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest lease. A longer lease comes from a mistaken unit: users of similar libraries got 10,000 s for 10 s.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// Refuses a longest hold that is out of bounds.
pub(crate) fn check_max_hold(max_hold: Duration) -> Result<(), LockError> {
    let Some(problem) = problem_of_max_hold(max_hold.as_nanos()) else { return Ok(()) };
    Err(LockError::InvalidSetting { setting: "max_hold", reason: format!("{problem} ({max_hold:?})") })
}

/// What is wrong with a longest hold of this many nanoseconds. The compiler runs it for constants.
pub(crate) const fn problem_of_max_hold(nanos: u128) -> Option<&'static str> {
    if nanos == 0 {
        Some("a hold of zero is over before the body starts")
    } else if nanos < SHORTEST.as_nanos() {
        Some("a hold of less than 10 ms would end before it can be used")
    } else if nanos > LONGEST.as_nanos() {
        Some(
            "a hold of more than a year is a unit mistaken for another; leave `max_hold` out for a hold without a limit",
        )
    } else {
        None
    }
}

/// Refuses a lease that is out of bounds.
pub(crate) fn check_lease(setting: &'static str, lease: Duration) -> Result<(), LockError> {
    match problem_of_lease(lease.as_nanos()) {
        Some(problem) => Err(LockError::InvalidSetting { setting, reason: format!("{problem} ({lease:?})") }),
        None => Ok(()),
    }
}

/// What is wrong with a lease of this many nanoseconds. The compiler runs it for constants.
pub(crate) const fn problem_of_lease(nanos: u128) -> Option<&'static str> {
    if nanos == 0 {
        Some("a lease of zero would protect nothing")
    } else if nanos < SHORTEST.as_nanos() {
        Some("a lease of less than 10 ms would end before it can be used")
    } else if nanos > LONGEST.as_nanos() {
        Some("a lease of more than a year is a unit mistaken for another; after a crash nobody could lock until then")
    } else {
        None
    }
}
