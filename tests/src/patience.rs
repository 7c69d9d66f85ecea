//! Waiting for an effect by looking for it, with a bound.

use std::fmt::Debug;
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

/// Looks every few milliseconds until it has found the same for a while, and returns that; panics after `bound`.
///
/// For counts: of commands that were sent, of tasks that have ended. What comes later than this after the last change is not
/// waited for.
pub async fn at_rest<T: PartialEq + Debug>(what: &str, bound: Duration, mut look: impl FnMut() -> T) -> T {
    let start = Instant::now();
    let (mut found, mut since) = (look(), start);
    while since.elapsed() < REST {
        assert!(start.elapsed() < bound, "not at rest within {bound:?}: {what}: {found:?}");
        tokio::time::sleep(Duration::from_millis(3)).await;
        let next = look();
        if next != found {
            (found, since) = (next, Instant::now());
        }
    }
    found
}

/// How long nothing may have changed.
const REST: Duration = Duration::from_millis(200);

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
