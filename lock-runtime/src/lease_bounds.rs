//! The bounds of a lease, of a hold and of a linger time, and the texts about what is out of bounds.

use std::time::Duration;

use crate::LockError;
use crate::timing::LONGEST_LINGER;

/// The shortest lease. A shorter lease would end before a release can be sent on a usual network.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest lease. A longer lease comes from a mistaken unit: users of similar libraries got 10,000 s for 10 s.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Refuses a longest hold that is out of bounds.
pub(crate) fn check_max_hold(max_hold: Duration) -> Result<(), LockError> {
    refuse("max_hold", max_hold, problem_of_max_hold(max_hold.as_nanos()))
}

/// Refuses a time that keeps others out for too long.
pub(crate) fn check_at_least(at_least: Duration) -> Result<(), LockError> {
    let problem = "a time of more than a year is a unit mistaken for another; nobody could lock until then";
    refuse("at_least", at_least, (at_least > LONGEST).then_some(problem))
}

/// Refuses a lease that is out of bounds.
pub(crate) fn check_lease(setting: &'static str, lease: Duration) -> Result<(), LockError> {
    refuse(setting, lease, problem_of_lease(lease.as_nanos()))
}

fn refuse(setting: &'static str, time: Duration, problem: Option<&str>) -> Result<(), LockError> {
    let Some(problem) = problem else { return Ok(()) };
    Err(LockError::setting(setting, format!("{problem} ({time:?})")))
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

/// What is wrong with a linger time of this many nanoseconds, as the compiler tells it of constants.
pub(crate) const fn problem_of_linger(nanos: u128) -> Option<&'static str> {
    if nanos > LONGEST_LINGER.as_nanos() { Some("a lock lingers for at most 2 s") } else { None }
}
