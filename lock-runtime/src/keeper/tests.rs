//! Tests: how late the keeper may be.

use std::time::Duration;

use super::JUST_NOW;
use crate::local::{ASK_INTERVAL, TICK};

/// Promise 4: a lost wake-up delays by at most a second.
#[test]
fn a_lost_wake_up_is_found_out_within_a_second() {
    // An ask that was answered just before a tick is left to the next tick. The repetition takes a round trip.
    let round_trip = Duration::from_millis(40);
    assert!(ASK_INTERVAL + JUST_NOW + TICK + round_trip <= Duration::from_secs(1));
}
