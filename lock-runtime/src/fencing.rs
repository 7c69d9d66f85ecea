//! [`FencingToken`].

use std::fmt;

/// A number that grows from hold to hold of one key, for the protected resource to refuse a stale holder.
///
/// No lock with leases can stop a holder that is paused after its last look at the clock; the resource can: keep
/// the largest token seen beside the data, accept a write when its token is greater or equal (one holder may write
/// twice), refuse it when it is smaller. The idea is Kleppmann's ("How to do distributed locking", 2016).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
