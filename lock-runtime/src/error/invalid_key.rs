//! [`InvalidKey`]: why a value can't name a lock.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// Why a value can't be the key of a lock.
///
/// ```
/// use lock_runtime::{InvalidKey, LockKey, NameParts};
///
/// struct Percent(u8);
///
/// impl LockKey for Percent {
///     fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
///         if self.0 > 100 {
///             return Err(InvalidKey::new("a percentage is at most 100"));
///         }
///         self.0.write_parts(name)
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidKey {
    reason: Cow<'static, str>,
}

impl InvalidKey {
    /// Makes the error from its reason, which completes the sentence "the key is unusable because …".
    ///
    /// ```
    /// # use lock_runtime::InvalidKey;
    /// assert_eq!(InvalidKey::new("it has no tenant").to_string(), "it has no tenant");
    /// ```
    #[must_use]
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error for InvalidKey {}
