//! [`Drift`]: by how much two clocks may run apart (rule 15).

use std::time::Duration;

/// For what clocks are read in: whole milliseconds on a server.
const READING: Duration = Duration::from_millis(2);

/// How much faster the server's clock may run than the holder's, in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drift(u32);

impl Drift {
    /// Redlock's 1 %, as redsync, node-redlock and rslock have it.
    pub(crate) const DEFAULT: Self = Self(10_000);
    /// Two clocks that `adjtime` of a kernel slews, one against the other, are apart by no less.
    pub(crate) const LEAST_PPM: u32 = 1_000;
    /// With more than that a lease would be mostly allowance.
    pub(crate) const MOST_PPM: u32 = 500_000;

    /// `None` when it is out of bounds.
    pub(crate) fn of_ppm(ppm: u32) -> Option<Self> {
        (Self::LEAST_PPM..=Self::MOST_PPM).contains(&ppm).then_some(Self(ppm))
    }

    /// A lease as its holder may trust it: shorter by what the clocks may run apart.
    pub(crate) fn trusted(self, lease: Duration) -> Duration {
        mutant!(NoDriftAllowance => return lease);
        let apart = (lease / 1000).saturating_mul(self.ppm()) / 1000;
        lease.saturating_sub(apart.saturating_add(READING))
    }

    pub(crate) fn ppm(self) -> u32 {
        mutant!(DriftAsUsual => return Self::DEFAULT.0);
        self.0
    }
}

/// The allowance of most tests, and of locks in this process, where there is one clock.
pub(crate) fn without_drift(lease: Duration) -> Duration {
    Drift::DEFAULT.trusted(lease)
}
