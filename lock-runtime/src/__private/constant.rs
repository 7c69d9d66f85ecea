//! Checks of options that are constants, at compile time. Other values are checked when they are used.

use std::time::Duration;

use crate::lease_bounds::{problem_of_lease, problem_of_linger, problem_of_max_hold};
use crate::share::Share;

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

/// The checks of a time as a `Duration`, in milliseconds and in seconds.
macro_rules! checks {
    ($($any:ident, $ms:ident, $s:ident: $problem:ident, $negative:literal;)*) => {$(
        /// Checks a constant `Duration`.
        ///
        /// # Panics
        ///
        /// At compile time, with the mistake.
        #[track_caller]
        pub const fn $any(time: Duration) {
            refuse($problem(time.as_nanos()));
        }

        /// Checks a constant number of milliseconds.
        ///
        /// # Panics
        ///
        /// At compile time, with the mistake.
        #[track_caller]
        pub const fn $ms(millis: i128) {
            assert!(millis >= 0, $negative);
            refuse($problem(millis.unsigned_abs().saturating_mul(1_000_000)));
        }

        /// Checks a constant number of seconds.
        ///
        /// # Panics
        ///
        /// At compile time, with the mistake.
        #[track_caller]
        pub const fn $s(seconds: i128) {
            $ms(seconds.saturating_mul(1000));
        }
    )*};
}

checks! {
    check_expire, check_expire_ms, check_expire_s: problem_of_lease, "a lease can't be negative";
    check_max_hold, check_max_hold_ms, check_max_hold_s: problem_of_max_hold, "a hold can't be negative";
    check_linger, check_linger_ms, check_linger_s: problem_of_linger, "a linger time can't be negative";
}

/// Checks a constant number of permits.
///
/// # Panics
///
/// At compile time, with the mistake.
#[track_caller]
pub const fn check_permits(permits: i128) {
    let is_possible = permits > 0 && permits.unsigned_abs() <= Share::MOST_PERMITS as u128;
    assert!(is_possible, "the number of permits is zero, negative, or more than 4,294,967,294: write at least 1");
}

#[track_caller]
#[expect(clippy::panic, reason = "the compiler shows it")]
const fn refuse(problem: Option<&str>) {
    if let Some(problem) = problem {
        panic!("{}", problem);
    }
}
