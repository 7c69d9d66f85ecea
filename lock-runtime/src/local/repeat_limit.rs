//! [`RepeatLimit`]: a warning about one key is not told again and again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::clock::Moment;
use crate::mutex::Mutex;

/// A warning about a key is told at most once in this time.
const PAUSE: Duration = Duration::from_secs(10);
/// So many warnings are told in that time at most, for all keys together. This bounds the memory, too.
const MOST: usize = 128;

/// What is warned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Warning {
    TimedOut,
    Lost,
    Replaced,
    HeldLong,
    Refused,
}

/// The warnings that were told a short time ago.
#[derive(Debug, Default)]
pub(crate) struct RepeatLimit(Mutex<Vec<Told>>);

#[derive(Debug)]
struct Told {
    /// Stands for the warning and its key.
    hash: u64,
    at: Moment,
    /// How many equal warnings were left out since.
    left_out: u64,
}

impl RepeatLimit {
    /// Whether to warn: then it is the number of equal warnings that were left out since the last one. `None` when the same
    /// was told a short time ago, or too much was.
    pub(crate) fn admit(&self, warning: Warning, key: &str) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        (warning, key).hash(&mut hasher);
        let hash = hasher.finish();
        let now = Moment::now();
        let is_old = |told: &Told| now.since(told.at) >= PAUSE;
        // Nothing that can panic runs under this lock.
        let mut all = self.0.lock();
        if let Some(told) = all.iter_mut().find(|told| told.hash == hash) {
            if !is_old(told) {
                told.left_out += 1;
                return None;
            }
            told.at = now;
            return Some(std::mem::take(&mut told.left_out));
        }
        if all.len() >= MOST {
            all.retain(|told| !is_old(told));
        }
        (all.len() < MOST).then(|| {
            all.push(Told { hash, at: now, left_out: 0 });
            0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_warning_about_a_key_is_told_once_and_then_with_the_number_that_was_left_out() {
        let limit = RepeatLimit::default();
        assert_eq!(limit.admit(Warning::Lost, "a"), Some(0));
        assert_eq!(limit.admit(Warning::Lost, "a"), None);
        assert_eq!(limit.admit(Warning::TimedOut, "a"), Some(0));
        assert_eq!(limit.admit(Warning::Lost, "b"), Some(0));
        tokio::time::advance(PAUSE.saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(limit.admit(Warning::Lost, "a"), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(limit.admit(Warning::Lost, "a"), Some(2));
        assert_eq!(limit.admit(Warning::Lost, "a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_warnings_of_all_keys_together_are_bounded() {
        let limit = RepeatLimit::default();
        let told = |count: usize| (0..count).filter_map(|key| limit.admit(Warning::Lost, &key.to_string())).count();
        assert_eq!(told(10 * MOST), MOST);
        tokio::time::advance(PAUSE).await;
        assert_eq!(limit.admit(Warning::Lost, "another"), Some(0));
        assert!(limit.0.lock().capacity() <= 2 * MOST);
    }
}
