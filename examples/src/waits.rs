//! [`Waits`]: how long tasks waited for the lock.

use std::fmt;
use std::time::Duration;

/// The waiting times of one run; shown as p50, p99 and max.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    waits: Vec<Duration>,
}

impl Waits {
    /// Adds the time a task waited, if it needed the lock.
    pub fn extend(&mut self, waited: Option<Duration>) {
        self.waits.extend(waited);
    }

    /// All waiting times, in the order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Duration> + '_ {
        self.waits.iter().copied()
    }

    /// The longest of the shortest `percent` per cent (nearest rank); `None` when nobody waited.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.waits.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied()
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.percentile(50), self.percentile(99), self.percentile(100)) {
            (Some(p50), Some(p99), Some(max)) => write!(f, "p50 {p50:.1?}, p99 {p99:.1?}, max {max:.1?}"),
            _ => f.write_str("nobody"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(milliseconds: impl IntoIterator<Item = u64>) -> Waits {
        Waits { waits: milliseconds.into_iter().map(Duration::from_millis).collect() }
    }

    #[test]
    fn percentiles_are_nearest_ranks_whatever_the_order() {
        let waits = waits((1..=200).rev());
        assert_eq!(waits.percentile(50), Some(Duration::from_millis(100)));
        assert_eq!(waits.percentile(99), Some(Duration::from_millis(198)));
        assert_eq!(waits.percentile(100), Some(Duration::from_millis(200)));
    }

    #[test]
    fn a_single_wait_is_every_percentile() {
        assert_eq!(waits([7]).to_string(), "p50 7.0ms, p99 7.0ms, max 7.0ms");
    }

    #[test]
    fn no_wait_has_no_percentile() {
        assert_eq!(waits([]).to_string(), "nobody");
    }
}
