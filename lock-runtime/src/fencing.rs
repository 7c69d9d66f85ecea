//! [`FencingToken`]: the growing number by which a resource refuses a stale holder.

use std::fmt;
use std::num::{ParseIntError, TryFromIntError};
use std::str::FromStr;

/// A number that grows from hold to hold of one key. With it the protected resource can refuse a stale holder.
///
/// No lock with leases can stop a holder that is paused after its last look at the clock. The resource can: keep the largest token with the
/// data. Accept a write whose token is greater or equal, since one holder may write twice. Refuse a write whose token is smaller. The idea
/// is Kleppmann's ("How to do distributed locking", 2016).
///
/// ```
/// use lock_runtime::FencingToken;
///
/// struct Row {
///     value: String,
///     fence: u64,
/// }
///
/// /// Returns `false` for a writer whose lock has had a newer holder since.
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

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

/// A token that was kept with the data.
///
/// ```
/// use lock_runtime::FencingToken;
///
/// let kept = FencingToken::from(7);
/// assert!(FencingToken::from(8) > kept);
/// assert_eq!("7".parse(), Ok(kept));
/// ```
impl From<u64> for FencingToken {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// For databases whose integers have a sign.
///
/// ```
/// use lock_runtime::FencingToken;
///
/// assert_eq!(FencingToken::try_from(7_i64), Ok(FencingToken::from(7)));
/// assert!(FencingToken::try_from(-1_i64).is_err());
/// ```
impl TryFrom<i64> for FencingToken {
    type Error = TryFromIntError;

    fn try_from(number: i64) -> Result<Self, TryFromIntError> {
        u64::try_from(number).map(Self)
    }
}

/// For databases whose integers have a sign.
///
/// Nothing is lost: a token is the server's time in microseconds, which fits for 290,000 years. A number that no server draws, above
/// `i64::MAX`, becomes `i64::MAX`.
///
/// ```
/// use lock_runtime::FencingToken;
///
/// let token = FencingToken::from(1_767_225_600_000_000);
/// assert_eq!(i64::from(token), 1_767_225_600_000_000);
/// assert_eq!(i64::from(FencingToken::from(u64::MAX)), i64::MAX);
/// ```
impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        Self::try_from(token.0).unwrap_or(Self::MAX)
    }
}

/// Serialized as a number. It is below 2^53 until the year 2255, so JavaScript reads it exactly.
#[cfg(feature = "serde")]
impl serde::Serialize for FencingToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for FencingToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self)
    }
}

impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::FencingToken;

    #[test]
    fn a_token_is_a_number_in_json() {
        let token = FencingToken::from(1_767_225_600_000_000);
        assert_eq!(serde_json::to_string(&token).unwrap(), "1767225600000000");
        assert_eq!(serde_json::from_str::<FencingToken>("1767225600000000").unwrap(), token);
        assert!(serde_json::from_str::<FencingToken>("-1").is_err());
    }
}
