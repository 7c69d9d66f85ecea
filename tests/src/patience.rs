//! Waiting for an effect by looking for it, with a bound.

use std::time::{Duration, Instant};

/// Looks every few milliseconds, on the machine's own clock, until `happened`; panics after `bound`.
///
/// Returns how long it took, for a test whose promise is about that.
pub async fn eventually(what: &str, bound: Duration, mut happened: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < bound, "not within {bound:?}: {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    start.elapsed()
}

/// As [`eventually`], for a test without a runtime.
pub fn eventually_blocking(what: &str, bound: Duration, mut happened: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < bound, "not within {bound:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
    start.elapsed()
}

/// What a busy machine may add to any bound that is promised in milliseconds.
pub const NOISE: Duration = Duration::from_millis(150);
