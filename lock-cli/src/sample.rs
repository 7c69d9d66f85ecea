//! [`Sample`]: measured times, and their summary.

use std::time::Duration;

use serde::Serialize;

#[derive(Debug, Default)]
pub(crate) struct Sample(Vec<Duration>);

/// In microseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) median_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) slowest_us: u64,
}

impl Sample {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(crate) fn summary(mut self) -> Summary {
        self.0.sort_unstable();
        let micros = |time: &Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // The smallest time that this percentage of all times does not exceed.
        let at = |percent: usize| {
            let place = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
            self.0.get(place).map_or(0, micros)
        };
        Summary { count: self.0.len(), median_us: at(50), p99_us: at(99), slowest_us: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_from_the_smallest() {
        let mut sample = Sample::default();
        for millis in (1..=200).rev() {
            sample.add(Duration::from_micros(millis));
        }
        let Summary { count, median_us, p99_us, slowest_us } = sample.summary();
        assert_eq!((count, median_us, p99_us, slowest_us), (200, 100, 198, 200));
        assert_eq!(Sample::default().summary().median_us, 0);
    }
}
