//! [`FencingToken`]: the growing number by which a resource refuses a stale holder.

use std::fmt;

/// A number that grows from hold to hold of one key. With it the protected resource can refuse a stale holder.
///
/// No lock with leases can stop a holder that is paused after it last checked the clock. The resource can stop it: keep
/// the largest token beside the data. Accept a write whose token is greater or equal, since one holder may write twice.
/// Refuse a write whose token is smaller. The idea is Kleppmann's ("How to do distributed locking", 2016).
///
/// ```
/// use lock_runtime::FencingToken;
///
/// struct Row {
///     value: String,
///     fence: u64,
/// }
///
/// /// Returns `false` for a writer whose lock somebody else has had since.
/// fn write(row: &mut Row, token: FencingToken, value: &str) -> bool {
///     if u64::from(token) < row.fence {
///         return false;
///     }
///     *row = Row { value: value.to_owned(), fence: token.into() };
///     true
/// }
/// ```
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
