//! Time as a lease must see it: [`Moment`] and [`Deadline`].
//!
//! `std::time::Instant` stands still while a Linux machine is suspended, and a lease in Redis does not. So elapsed
//! time here is the largest of three clocks' elapsed times: the boot-time clock (counts suspend), the wall clock
//! (is set right after a virtual machine was paused), and tokio's clock (which tests control). A wall clock that
//! steps forward makes a hold end early, which is safe; one that steps back is outvoted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A point in time on all three clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    boot: Duration,
    wall: Duration,
    tokio: Instant,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            boot: boot_time(),
            wall: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            tokio: Instant::now(),
        }
    }

    /// The largest time that any clock saw pass since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.boot
            .saturating_sub(earlier.boot)
            .max(self.wall.saturating_sub(earlier.wall))
            .max(self.tokio.saturating_duration_since(earlier.tokio))
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now().since(self)
    }
}

#[cfg(target_os = "linux")]
fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// Elsewhere the other two clocks have to do.
#[cfg(not(target_os = "linux"))]
fn boot_time() -> Duration {
    Duration::ZERO
}

/// A point in time that has come as soon as any clock says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    start: Moment,
    span: Duration,
}

impl Deadline {
    pub(crate) fn new(start: Moment, span: Duration) -> Self {
        Self { start, span }
    }

    pub(crate) fn after(span: Duration) -> Self {
        Self::new(Moment::now(), span)
    }

    pub(crate) fn later_by(self, span: Duration) -> Self {
        Self { start: self.start, span: self.span + span }
    }

    pub(crate) fn remaining(self) -> Duration {
        self.remaining_at(Moment::now())
    }

    pub(crate) fn remaining_at(self, now: Moment) -> Duration {
        self.span.saturating_sub(now.since(self.start))
    }

    pub(crate) fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// The earlier of the two, as seen now.
    pub(crate) fn min_at(self, other: Self, now: Moment) -> Self {
        if self.remaining_at(now) <= other.remaining_at(now) { self } else { other }
    }

    /// The later of the two, as seen now.
    pub(crate) fn max_at(self, other: Self, now: Moment) -> Self {
        if self.remaining_at(now) >= other.remaining_at(now) { self } else { other }
    }
}

/// A lease as its holder may trust it: shorter by what two clocks may drift apart (1 % + 2 ms).
///
/// The allowance is Redlock's, as redsync, node-redlock and rslock have it.
pub(crate) fn without_drift(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}
