//! [`Share`]: how a lock is shared by several holders.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a lease shares its lock with other leases. A lease without a share is exclusive: it has the lock alone.
///
/// Readers and permits are one mechanism. A shared lease is granted while fewer leases than its capacity share the lock.
///
/// It takes four bytes, since every waiter keeps its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Share(NonZeroU32);

impl Share {
    /// Together with any number of others.
    pub(crate) const READ: Self = Self(NonZeroU32::MAX);
    /// The largest number of permits.
    pub(crate) const MOST_PERMITS: u32 = u32::MAX - 1;

    /// One of this many permits. `None` for zero, and for more than [`MOST_PERMITS`](Self::MOST_PERMITS).
    pub(crate) fn permit(of: u64) -> Option<Self> {
        let of = u32::try_from(of).ok().filter(|of| *of <= Self::MOST_PERMITS)?;
        NonZeroU32::new(of).map(Self)
    }

    /// How many permits there are. `None` for a reader.
    pub(crate) fn permits(self) -> Option<u32> {
        (self != Self::READ).then(|| self.0.get())
    }

    /// How many leases may share the lock, as the protocol writes it: 0 for any number.
    pub(crate) fn capacity(self) -> u32 {
        self.permits().unwrap_or(0)
    }

    /// The share with this capacity.
    pub(crate) fn of_capacity(capacity: u32) -> Self {
        Self::permit(capacity.into()).unwrap_or(Self::READ)
    }

    /// Whether a lease with this share may do what a lease with the share `inner` may. One of N permits runs together with N - 1 others, so
    /// it does not cover one of fewer permits.
    pub(crate) fn covers(self, inner: Self) -> bool {
        let are_enough = self.permits().zip(inner.permits()).is_some_and(|(outer, inner)| outer <= inner);
        inner == Self::READ || mutant!(PermitsCoverFewer => self != Self::READ, else are_enough)
    }

    /// Whether one more lease fits when `held` others share the lock.
    pub(crate) fn fits_beside(self, held: usize) -> bool {
        self.permits().is_none_or(|of| held < usize::try_from(of).unwrap_or(usize::MAX))
    }
}

/// How many leases of this process share the lock of one name, in any mode.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedLeases(Arc<AtomicUsize>);

/// One of these leases. It counts until it ends.
#[derive(Debug)]
pub(crate) struct CountedLease(SharedLeases);

impl SharedLeases {
    pub(crate) fn count(&self) -> CountedLease {
        self.0.fetch_add(1, Ordering::Relaxed);
        CountedLease(self.clone())
    }
}

impl CountedLease {
    /// How many there are apart from this one.
    pub(crate) fn others(&self) -> usize {
        self.0.0.load(Ordering::Relaxed).saturating_sub(1)
    }
}

impl Drop for CountedLease {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
