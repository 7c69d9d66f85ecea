//! Days, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Days since 1 January 1970.
pub(crate) fn today() -> i64 {
    i64::try_from(seconds() / SECONDS_PER_DAY).unwrap_or(i64::MAX)
}

pub(crate) fn until_midnight() -> Duration {
    Duration::from_secs(SECONDS_PER_DAY - seconds() % SECONDS_PER_DAY)
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
