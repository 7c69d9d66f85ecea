//! Checks of options that are constants, at compile time. Other values are checked when they are used.

use std::time::Duration;

use crate::lease_bounds::{problem_of_lease, problem_of_max_hold};
use crate::timing::LONGEST_LINGER;

/// Checks `prefix = PREFIX`. Other mistakes in a prefix are found at run time: a `const fn` sees only bytes.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_prefix(prefix: &str) {
    let mut rest = prefix.as_bytes();
    assert!(!rest.is_empty(), "the prefix is empty: name what is locked, or leave `prefix` out to use the fn's path");
    while let [first, others @ ..] = rest {
        let is_brace = matches!(first, b'{' | b'}');
        assert!(!is_brace, "the prefix contains a brace, which would move the lock to another cluster slot");
        let is_blank = *first <= b' ' || *first == 0x7f;
        assert!(!is_blank, "the prefix contains a blank or a control character");
        rest = others;
    }
}

/// Checks `expire = EXPIRE`.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_expire(expire: Duration) {
    refuse(problem_of_lease(expire.as_nanos()));
}

/// Checks `expire_ms = EXPIRE`.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_expire_ms(expire: i128) {
    assert!(expire >= 0, "a lease can't be negative");
    refuse(problem_of_lease(expire.unsigned_abs().saturating_mul(1_000_000)));
}

/// Checks `expire_s = EXPIRE`.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_expire_s(expire: i128) {
    check_expire_ms(expire.saturating_mul(1000));
}

/// Checks `max_hold = MAX_HOLD`.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_max_hold(max_hold: Duration) {
    refuse(problem_of_max_hold(max_hold.as_nanos()));
}

/// Checks `max_hold_ms = MAX_HOLD`.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_max_hold_ms(max_hold: i128) {
    assert!(max_hold >= 0, "a hold can't be negative");
    refuse(problem_of_max_hold(max_hold.unsigned_abs().saturating_mul(1_000_000)));
}

/// Checks `max_hold_s = MAX_HOLD`.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_max_hold_s(max_hold: i128) {
    check_max_hold_ms(max_hold.saturating_mul(1000));
}

/// Checks `linger = LINGER`.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_linger(linger: Duration) {
    assert!(linger.as_nanos() <= LONGEST_LINGER.as_nanos(), "a lock lingers for at most 2 s");
}

/// Checks `linger_ms = LINGER`.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_linger_ms(linger: i128) {
    assert!(linger >= 0, "a linger time can't be negative");
    assert!(linger.unsigned_abs() <= LONGEST_LINGER.as_millis(), "a lock lingers for at most 2 s");
}

/// Checks `linger_s = LINGER`.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_linger_s(linger: i128) {
    check_linger_ms(linger.saturating_mul(1000));
}

#[track_caller]
#[expect(clippy::panic, reason = "the compiler shows it")]
const fn refuse(problem: Option<&str>) {
    if let Some(problem) = problem {
        panic!("{}", problem);
    }
}
