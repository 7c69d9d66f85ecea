//! [`PrefixPlace`]: where the prefix is in a lock's name.

use std::fmt;

/// Where in the name of a lock its prefix is. A copy of the prefix would cost each lock an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PrefixPlace {
    start: u16,
    end: u16,
}

impl PrefixPlace {
    /// The prefix has `length` bytes and stands behind a namespace.
    pub(crate) fn behind(namespace: Option<&str>, length: u16) -> Self {
        let start = namespace.map_or(0, |namespace| u16::try_from(namespace.len() + 1).unwrap_or(u16::MAX));
        Self { start, end: start.saturating_add(length) }
    }

    /// As a ticket tells it, in these digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (start, end) = text.split_once('-')?;
        let place = Self { start: start.parse().ok()?, end: end.parse().ok()? };
        (place != Self::default() && place.to_string() == text).then_some(place)
    }

    /// The prefix of the lock `key`.
    pub(crate) fn of(self, key: &str) -> &str {
        key.get(self.start.into()..self.end.into()).unwrap_or_default()
    }
}

impl fmt::Display for PrefixPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}
