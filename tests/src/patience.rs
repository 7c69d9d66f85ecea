//! Waiting for an effect by polling, with a bound.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Polls every few milliseconds, on the machine's own clock, until `happened`; panics after `bound`.
///
/// Returns how long it took, for tests that check the time.
pub async fn eventually(what: &str, bound: Duration, mut happened: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < bound, "not within {bound:?}: {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    start.elapsed()
}

/// Polls every few milliseconds until the result has not changed for a while, and returns it; panics after `bound`.
///
/// For counts, of commands that were sent or of tasks that ended. It misses a change that comes more than 200 ms after the last one.
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

/// How long nothing may change.
const REST: Duration = Duration::from_millis(200);

/// [`eventually`] for a test without a runtime.
pub fn eventually_blocking(what: &str, bound: Duration, mut happened: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < bound, "not within {bound:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
    start.elapsed()
}

/// How much a busy machine may add to a bound of milliseconds.
pub const NOISE: Duration = Duration::from_millis(150);

/// Measures by tokio's clock.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    start: tokio::time::Instant,
    really: Instant,
}

impl Stopwatch {
    /// Begins to measure.
    #[must_use]
    pub fn start() -> Self {
        Self { start: tokio::time::Instant::now(), really: Instant::now() }
    }

    /// The time that has passed.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.start.elapsed()
    }

    /// The time that the lock may have counted. Where a test has paused tokio's clock, the time that really passes counts for the lock as
    /// well.
    #[must_use]
    pub fn counted(self) -> Duration {
        let (passed, really) = (self.start.elapsed(), self.really.elapsed());
        // Both are the same time on a clock that runs.
        if passed > really + Duration::from_millis(1) { passed + really } else { passed }
    }
}
