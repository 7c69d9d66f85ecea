//! [`HandOffs`]: how long after one process's hold another process's hold began.

use std::time::Duration;

use crate::stats::{Sample, float};

/// From one process's hold of a key to another's.
#[derive(Debug)]
pub(crate) struct HandOffs {
    /// The microseconds of each.
    pub(crate) micros: Sample,
    pub(crate) count: usize,
    /// The share of holds that followed another process's.
    pub(crate) followed: f64,
    pub(crate) overlaps: u64,
}

impl HandOffs {
    /// Made from the holds of each process, by key.
    pub(crate) fn of(processes: &[Vec<Vec<(u64, u64)>>]) -> Self {
        let keys = processes.iter().map(Vec::len).max().unwrap_or_default();
        let (mut gaps, mut total, mut overlaps) = (Vec::new(), 0, 0);
        for key in 0..keys {
            let mut holds: Vec<(u64, u64, usize)> = Vec::new();
            for (process, of_process) in processes.iter().enumerate() {
                let of_key = of_process.get(key).into_iter().flatten();
                holds.extend(of_key.map(|(began, ended)| (*began, *ended, process)));
            }
            holds.sort_unstable();
            total += holds.len();
            for pair in holds.windows(2) {
                let [(_, ended, before), (began, _, after)] = pair else { continue };
                if began < ended {
                    overlaps += 1;
                } else if before != after {
                    gaps.push(Duration::from_nanos(began - ended).as_secs_f64() * 1e6);
                }
            }
        }
        let (count, followed) = (gaps.len(), float(gaps.len()) / float(total.max(1)));
        Self { micros: Sample::new(gaps), count, followed, overlaps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_off_is_from_one_process_to_another_on_one_key() {
        // On the first key: one, one, other, one. On the second nobody follows.
        let one = vec![vec![(0, 1_000), (1_500, 2_000), (10_000, 11_000)], vec![(0, 5)]];
        let other = vec![vec![(4_000, 5_000)]];
        let hand_offs = HandOffs::of(&[one, other]);
        assert_eq!((hand_offs.count, hand_offs.overlaps), (2, 0));
        assert!((hand_offs.micros.median() - 3.5).abs() < 1e-9, "2 and 5 µs: {:?}", hand_offs.micros);
        assert!((hand_offs.followed - 0.4).abs() < 1e-9, "two of five");
    }

    #[test]
    fn two_that_hold_at_once_are_seen() {
        let (one, other) = (vec![vec![(0, 1_000)]], vec![vec![(999, 2_000)]]);
        assert_eq!(HandOffs::of(&[one, other]).overlaps, 1);
    }
}
