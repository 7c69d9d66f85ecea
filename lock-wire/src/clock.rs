//! [`Moment`], [`Deadline`] and [`Drift`]: time as the owner of an expiring right on a server must measure it.
//!
//! `std::time::Instant` stops while a Linux machine is suspended, but the server's clock goes on. So elapsed time here is the maximum over
//! three clocks: the boot-time clock (it counts suspend), the wall clock (it is corrected after a virtual machine was paused), and tokio's
//! clock (tests control it). When the wall clock steps forward, a hold ends early, which is safe. When it steps back, the other clocks show
//! more elapsed time, and that counts.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

pub mod lent;

/// A point in time on all three clocks, in nanoseconds. The range lasts until the year 2554.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    boot: u64,
    wall: u64,
    /// Never zero, so that `Option<Moment>` is no larger than `Moment`.
    tokio: NonZeroU64,
}

impl Moment {
    /// Reads the clocks.
    #[inline]
    pub fn now() -> Self {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(nanos) = crate::simulation::now() {
            return Self { boot: nanos, wall: nanos, tokio: tokio_time() };
        }
        let boot = boot_time();
        Self { boot, wall: wall_time(boot), tokio: tokio_time() }
    }

    /// The time since `earlier`, by the clock that advanced most.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    #[inline]
    fn nanos_since(self, earlier: Self) -> u64 {
        mutant!(SuspendUnseen => return self.tokio.get().saturating_sub(earlier.tokio.get()));
        self.boot
            .saturating_sub(earlier.boot)
            .max(self.wall.saturating_sub(earlier.wall))
            .max(self.tokio.get().saturating_sub(earlier.tokio.get()))
    }

    /// Microseconds since the Unix epoch: the wall clock at this process's first call plus the time since then. It never steps, and follows
    /// a clock that a test has paused.
    #[inline]
    pub fn unix_micros(self) -> u64 {
        static FIRST: OnceLock<Moment> = OnceLock::new();
        // A simulated world has no epoch; names made from its time are counted from 1 there.
        #[cfg(any(test, feature = "simulation"))]
        if crate::simulation::now().is_some() {
            return 0;
        }
        let first = *FIRST.get_or_init(|| self);
        first.wall.saturating_add(self.nanos_since(first)) / 1000
    }

    /// How much of the time since `earlier` tokio's timers did not see.
    #[inline]
    pub fn missed_by_timers(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier) - self.tokio.get().saturating_sub(earlier.tokio.get()))
    }

    /// The time since this moment.
    #[inline]
    pub fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    /// This moment plus `span`, on each clock.
    #[cfg(any(test, feature = "simulation"))]
    #[inline]
    pub fn later(self, span: Duration) -> Self {
        let span = nanos(span);
        Self { boot: self.boot + span, wall: self.wall + span, tokio: self.tokio.saturating_add(span) }
    }
}

#[inline]
fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

/// tokio's clock. Zero is a day before its first reading: a clock that a test has paused may be earlier than that reading.
#[inline]
fn tokio_time() -> NonZeroU64 {
    NonZeroU64::MIN.saturating_add(nanos(lent::now().saturating_duration_since(tokio_zero())))
}

#[inline]
fn tokio_zero() -> Instant {
    static ZERO: OnceLock<Instant> = OnceLock::new();
    *ZERO.get_or_init(|| {
        let now = std::time::Instant::now();
        now.checked_sub(Duration::from_secs(24 * 3600)).unwrap_or(now).into()
    })
}

#[cfg(target_os = "linux")]
#[inline]
fn boot_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default().saturating_mul(1_000_000_000).saturating_add(rest.unwrap_or_default())
}

/// Other systems have only the other two clocks.
#[cfg(not(target_os = "linux"))]
#[inline]
fn boot_time() -> u64 {
    0
}

/// The wall clock at the boot time `boot`. Each thread reads it at most once per millisecond of boot time, because it matters only after a
/// virtual machine was paused or the clock was set. Such a change is seen at most a millisecond late.
///
/// It uses the standard library, so that a test can set a process's wall clock; rustix bypasses the C library.
#[inline]
fn wall_time(boot: u64) -> u64 {
    thread_local! {
        /// The last reading, and the boot time of that reading.
        static READ: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }
    let (wall, at) = READ.get();
    if boot > 0 && boot.saturating_sub(at) < 1_000_000 {
        return wall.saturating_add(boot.saturating_sub(at));
    }
    let wall = nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    READ.set((wall, boot));
    wall
}

/// A deadline that has passed as soon as any of the clocks says so.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: Moment,
    /// In nanoseconds. A span of more than five centuries never ends.
    span: u64,
}

impl Deadline {
    /// The deadline `span` after `start`.
    #[inline]
    pub fn new(start: Moment, span: Duration) -> Self {
        Self { start, span: nanos(span) }
    }

    /// The deadline `span` from now.
    #[inline]
    pub fn after(span: Duration) -> Self {
        Self::new(Moment::now(), span)
    }

    /// The same deadline, counted from `now`.
    #[inline]
    pub fn counted_from(self, now: Moment) -> Self {
        Self::new(now, self.remaining_at(now))
    }

    /// The moment that the deadline counts from.
    #[inline]
    pub fn start(self) -> Moment {
        self.start
    }

    /// The time from [`start`](Self::start) to the deadline.
    #[inline]
    pub fn span(self) -> Duration {
        Duration::from_nanos(self.span)
    }

    /// The deadline as a timer's instant, without reading the clocks. A deadline that never ends is decades away.
    #[inline]
    pub fn on_timer(self) -> Instant {
        const DECADES: u64 = 30 * 365 * 24 * 3600 * 1_000_000_000;
        if lent::is_lent() {
            return Instant::now() + self.remaining().min(Duration::from_nanos(DECADES));
        }
        tokio_zero() + Duration::from_nanos((self.start.tokio.get() - 1).saturating_add(self.span.min(DECADES)))
    }

    /// The same span again, from now: each command of a release gets as much time as the first. A distant server that has answered the
    /// first command is not silent.
    #[inline]
    pub fn anew(self) -> Self {
        mutant!(TwoCommandsInTimeOfOne => return self.counted_from(Moment::now()));
        Self::after(self.span())
    }

    /// This deadline plus `span`.
    #[inline]
    pub fn later_by(self, span: Duration) -> Self {
        Self { start: self.start, span: self.span.saturating_add(nanos(span)) }
    }

    /// By how much this deadline is later than `other`, as seen now. Zero if it is earlier.
    #[inline]
    pub fn later_than(self, other: Self, now: Moment) -> Duration {
        let from_start = now.nanos_since(other.start).saturating_add(self.nanos_left_at(now));
        Duration::from_nanos(from_start.saturating_sub(other.span))
    }

    /// The time left.
    #[inline]
    pub fn remaining(self) -> Duration {
        self.remaining_at(Moment::now())
    }

    /// The time left at `now`.
    #[inline]
    pub fn remaining_at(self, now: Moment) -> Duration {
        Duration::from_nanos(self.nanos_left_at(now))
    }

    #[inline]
    fn nanos_left_at(self, now: Moment) -> u64 {
        self.span.saturating_sub(now.nanos_since(self.start))
    }

    /// Whether the deadline has passed.
    #[inline]
    pub fn has_passed(self) -> bool {
        self.has_passed_at(Moment::now())
    }

    /// Whether the deadline has passed at `now`.
    #[inline]
    pub fn has_passed_at(self, now: Moment) -> bool {
        self.nanos_left_at(now) == 0
    }

    /// The earlier of the two deadlines, as seen now.
    #[inline]
    pub fn min_at(self, other: Self, now: Moment) -> Self {
        if self.nanos_left_at(now) <= other.nanos_left_at(now) { self } else { other }
    }

    /// The later of the two deadlines, as seen now.
    #[inline]
    pub fn max_at(self, other: Self, now: Moment) -> Self {
        if self.nanos_left_at(now) >= other.nanos_left_at(now) { self } else { other }
    }
}

/// Allows for the precision of the readings: a server reports whole milliseconds.
const READING: Duration = Duration::from_millis(2);

/// How much faster than the holder's clock the server's clock may run, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift(u32);

impl Drift {
    /// Redlock's 1 %, as in redsync, node-redlock and rslock.
    pub const DEFAULT: Self = Self(10_000);
    /// The minimum: two clocks that a kernel's `adjtime` slews against each other drift apart this fast.
    pub const LEAST_PPM: u32 = 1_000;
    /// The maximum: with more, most of a lease would be allowance.
    pub const MOST_PPM: u32 = 500_000;

    /// `None` when `ppm` is out of bounds.
    #[inline]
    pub fn of_ppm(ppm: u32) -> Option<Self> {
        (Self::LEAST_PPM..=Self::MOST_PPM).contains(&ppm).then_some(Self(ppm))
    }

    /// The part of a lease that its holder may trust: the lease minus the allowance for drift.
    #[inline]
    pub fn trusted(self, lease: Duration) -> Duration {
        mutant!(NoDriftAllowance => return lease);
        let apart = (lease / 1000).saturating_mul(self.ppm()) / 1000;
        lease.saturating_sub(apart.saturating_add(READING))
    }

    /// The lease, in whole milliseconds, of which a holder may trust at least the `wanted` time.
    #[inline]
    pub fn lease_for(self, wanted: Duration) -> Duration {
        let wanted = wanted.saturating_add(READING).as_nanos();
        let nanos = wanted.saturating_mul(1_000_000) / u128::from(1_000_000 - self.ppm());
        let millis = u64::try_from(nanos / 1_000_000).unwrap_or(u64::MAX);
        // The division above rounds down, and so does the server's clock.
        Duration::from_millis(millis.saturating_add(2))
    }

    /// Parts per million.
    #[inline]
    pub fn ppm(self) -> u32 {
        mutant!(DriftAsUsual => return Self::DEFAULT.0);
        self.0
    }
}

/// [`Drift::trusted`] with the default allowance: for most tests, and for locks in this process, which have a single clock.
#[inline]
pub fn without_drift(lease: Duration) -> Duration {
    Drift::DEFAULT.trusted(lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn later(moment: Moment, boot: u64, wall: u64, tokio: u64) -> Moment {
        Moment {
            boot: moment.boot + boot,
            wall: moment.wall.saturating_add_signed(wall.cast_signed()),
            tokio: moment.tokio.saturating_add(tokio),
        }
    }

    #[test]
    fn the_clock_that_saw_most_time_pass_counts() {
        let start = Moment::now();
        for (boot, wall, tokio) in [(9, 1, 1), (1, 9, 1), (1, 1, 9)] {
            let deadline = Deadline::new(start, Duration::from_nanos(10));
            assert_eq!(deadline.remaining_at(later(start, boot, wall, tokio)), Duration::from_nanos(1));
        }
    }

    #[test]
    fn timers_miss_what_another_clock_saw() {
        let start = Moment::now();
        for (boot, wall, tokio, missed) in [(9, 1, 1, 8), (1, 9, 1, 8), (1, 1, 9, 0), (5, 5, 5, 0)] {
            assert_eq!(later(start, boot, wall, tokio).missed_by_timers(start), Duration::from_nanos(missed));
        }
    }

    #[test]
    fn a_wall_clock_that_steps_back_is_outvoted() {
        let start = Moment::now();
        let stepped = later(start, 5, u64::MAX - 100, 5);
        assert_eq!(stepped.since(start), Duration::from_nanos(5));
    }

    #[test]
    fn the_longest_time_does_not_overflow() {
        let deadline = Deadline::after(Duration::MAX).later_by(Duration::MAX);
        assert!(deadline.remaining() > Duration::from_hours(24 * 365 * 500));
    }

    #[test]
    fn the_drift_allowance_leaves_nothing_of_a_tiny_lease() {
        assert_eq!(without_drift(Duration::from_millis(2)), Duration::ZERO);
        assert_eq!(without_drift(Duration::from_secs(1)), Duration::from_millis(988));
        for (ppm, left) in [(1_000, 997), (166_667, 831), (500_000, 498)] {
            let trusted = Drift::of_ppm(ppm).unwrap().trusted(Duration::from_secs(1));
            assert_eq!(trusted.as_millis(), left, "{ppm}");
        }
        assert!(Drift::of_ppm(999).is_none() && Drift::of_ppm(500_001).is_none());
    }

    #[test]
    fn the_holder_of_a_lease_for_a_time_may_trust_that_time_and_little_more() {
        for ppm in [1_000, 10_000, 500_000] {
            let drift = Drift::of_ppm(ppm).unwrap();
            for wanted in [0, 1, 10, 999, 50_000, 31_536_000_000].map(Duration::from_millis) {
                let trusted = drift.trusted(drift.lease_for(wanted));
                assert!(
                    trusted >= wanted && trusted <= wanted + Duration::from_millis(3),
                    "{ppm} {wanted:?} {trusted:?}"
                );
            }
        }
    }

    /// Any readings of the three clocks, close together or far apart.
    fn moment() -> impl Strategy<Value = Moment> {
        let nanos = || prop_oneof![0..20_u64, any::<u64>()];
        let moment = |(boot, wall, tokio)| Moment { boot, wall, tokio: NonZeroU64::MIN.saturating_add(tokio) };
        (nanos(), nanos(), nanos()).prop_map(moment)
    }

    fn span() -> impl Strategy<Value = Duration> {
        prop_oneof![(0..20_u64).prop_map(Duration::from_nanos), any::<Duration>(), Just(Duration::MAX)]
    }

    fn after(moment: Moment, (boot, wall, tokio): (u32, u32, u32)) -> Moment {
        Moment {
            boot: moment.boot.saturating_add(boot.into()),
            wall: moment.wall.saturating_add(wall.into()),
            tokio: moment.tokio.saturating_add(tokio.into()),
        }
    }

    proptest! {
        #[test]
        fn what_remains_is_never_more_than_the_span(start in moment(), span in span(), now in moment()) {
            let deadline = Deadline::new(start, span);
            prop_assert!(deadline.remaining_at(now) <= deadline.span() && deadline.span() <= span);
            prop_assert_eq!(deadline.remaining_at(start), deadline.span());
            prop_assert!(deadline.on_timer() >= tokio_zero() + Duration::from_nanos(start.tokio.get() - 1));
            prop_assert!(now.missed_by_timers(start) <= now.since(start));
        }

        #[test]
        fn what_remains_only_shrinks(start in moment(), span in span(), now in moment(), passed: (u32, u32, u32)) {
            let (deadline, later) = (Deadline::new(start, span), after(now, passed));
            prop_assert!(deadline.remaining_at(later) <= deadline.remaining_at(now));
            prop_assert!(later.since(start) >= now.since(start));
        }

        /// Whatever the clocks did in between.
        #[test]
        fn counting_again_never_moves_the_end_away(start in moment(), span in span(), now in moment(), later in moment()) {
            let deadline = Deadline::new(start, span);
            let anew = deadline.counted_from(now);
            prop_assert_eq!(anew.remaining_at(now), deadline.remaining_at(now));
            prop_assert!(anew.remaining_at(later) <= deadline.remaining_at(later));
        }

        #[test]
        fn the_earlier_and_the_later_are_the_two(a in (moment(), span()), b in (moment(), span()), now in moment()) {
            let (a, b) = (Deadline::new(a.0, a.1), Deadline::new(b.0, b.1));
            let (left_a, left_b) = (a.remaining_at(now), b.remaining_at(now));
            prop_assert_eq!(a.min_at(b, now).remaining_at(now), left_a.min(left_b));
            prop_assert_eq!(a.max_at(b, now).remaining_at(now), left_a.max(left_b));
        }

        #[test]
        fn a_later_deadline_is_later_by_no_more(start in moment(), first in span(), more in span(), now in moment()) {
            let (deadline, later) = (Deadline::new(start, first), Deadline::new(start, first).later_by(more));
            prop_assert!(later.remaining_at(now) >= deadline.remaining_at(now));
            prop_assert!(later.remaining_at(now) <= deadline.remaining_at(now).saturating_add(more));
        }

        /// A deadline plus a span has the same time left as the later of the two.
        #[test]
        fn so_much_later_is_the_later_of_the_two(
            start in moment(), other: (u32, u32, u32), passed: (u32, u32, u32), spans: (u32, u32)
        ) {
            let from = |start, nanos: u32| Deadline::new(start, Duration::from_nanos(nanos.into()));
            let (one, two) = (from(start, spans.0), from(after(start, other), spans.1));
            let now = after(after(start, other), passed);
            let left = one.remaining_at(now).max(two.remaining_at(now));
            prop_assert_eq!(two.later_by(one.later_than(two, now)).remaining_at(now), left);
            prop_assert_eq!(one.later_by(two.later_than(one, now)).remaining_at(now), left);
        }

        #[test]
        fn the_drift_allowance_only_shortens(lease in span(), longer in span()) {
            prop_assert!(without_drift(lease) <= lease);
            prop_assert!(without_drift(lease.min(longer)) <= without_drift(lease.max(longer)));
        }
    }
}
