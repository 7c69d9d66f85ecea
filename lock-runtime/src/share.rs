//! [`Share`]: how a lock is shared by several holders.

use std::num::NonZeroU32;

/// How a lease shares its lock with other leases. A lease without a share is exclusive: it has the lock alone.
///
/// Readers and permits are one mechanism. A shared lease is granted while fewer leases than its capacity share the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Share {
    /// Beside any number of others.
    Read,
    /// One of at most this many.
    Permit(NonZeroU32),
}

impl Share {
    /// How many leases may share the lock, as the protocol writes it: 0 for any number.
    pub(crate) fn capacity(self) -> u32 {
        match self {
            Self::Read => 0,
            Self::Permit(of) => of.get(),
        }
    }

    /// The share of this capacity.
    pub(crate) fn of_capacity(capacity: u32) -> Self {
        NonZeroU32::new(capacity).map_or(Self::Read, Self::Permit)
    }

    /// Whether one more lease fits beside `held` others.
    pub(crate) fn fits_beside(self, held: usize) -> bool {
        match self {
            Self::Read => true,
            Self::Permit(of) => held < usize::try_from(of.get()).unwrap_or(usize::MAX),
        }
    }
}
