//! This process's wall clock, which may be wrong by as much as its part says.

use std::sync::atomic::{AtomicI64, Ordering};

use history::event::wall;

static AHEAD: AtomicI64 = AtomicI64::new(0);

/// Puts this process's clock ahead of the others, or behind.
pub(crate) fn set_ahead(milliseconds: i64) {
    AHEAD.store(milliseconds, Ordering::Relaxed);
}

/// Milliseconds since 1970, by this process's clock.
pub(crate) fn millis() -> i64 {
    let right = i64::try_from(wall() / 1_000_000).unwrap_or(i64::MAX);
    right.saturating_add(AHEAD.load(Ordering::Relaxed))
}
