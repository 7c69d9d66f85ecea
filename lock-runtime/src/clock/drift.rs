//! [`Drift`]: how far two clocks may run apart (rule 15: a deadline is early by this part of the lease and 2 ms).

use std::time::Duration;

/// An allowance for the precision of the readings: a server gives whole milliseconds.
const READING: Duration = Duration::from_millis(2);

/// How much faster the server's clock may run than the holder's, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drift(u32);

impl Drift {
    /// Redlock's 1 %, as in redsync, node-redlock and rslock.
    pub(crate) const DEFAULT: Self = Self(10_000);
    /// The least allowance: two clocks that a kernel's `adjtime` slews against each other run apart this fast.
    pub(crate) const LEAST_PPM: u32 = 1_000;
    /// The largest allowance: with more, most of a lease would be allowance.
    pub(crate) const MOST_PPM: u32 = 500_000;

    /// `None` when `ppm` is out of bounds.
    pub(crate) fn of_ppm(ppm: u32) -> Option<Self> {
        (Self::LEAST_PPM..=Self::MOST_PPM).contains(&ppm).then_some(Self(ppm))
    }

    /// The part of a lease that its holder may trust: the lease without the allowance for drift.
    pub(crate) fn trusted(self, lease: Duration) -> Duration {
        mutant!(NoDriftAllowance => return lease);
        let apart = (lease / 1000).saturating_mul(self.ppm()) / 1000;
        lease.saturating_sub(apart.saturating_add(READING))
    }

    /// The lease of which its holder may trust so much: at least the `wanted` time, in whole milliseconds.
    pub(crate) fn lease_for(self, wanted: Duration) -> Duration {
        let wanted = wanted.saturating_add(READING).as_nanos();
        let nanos = wanted.saturating_mul(1_000_000) / u128::from(1_000_000 - self.ppm());
        let millis = u64::try_from(nanos / 1_000_000).unwrap_or(u64::MAX);
        // The division above rounds down. The server's clock rounds down, too.
        Duration::from_millis(millis.saturating_add(2))
    }

    pub(crate) fn ppm(self) -> u32 {
        mutant!(DriftAsUsual => return Self::DEFAULT.0);
        self.0
    }
}

/// A lease with the default allowance: for most tests, and for locks in this process, where there is only one clock.
pub(crate) fn without_drift(lease: Duration) -> Duration {
    Drift::DEFAULT.trusted(lease)
}
