//! [`RepeatLimit`]: limits how often a warning about one key is repeated.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::clock::Moment;
use crate::mutex::Mutex;

/// How long a warning about a key is not repeated.
const PAUSE: Duration = Duration::from_secs(10);
/// How many warnings are admitted in that time, for all keys together. This bounds the memory, too.
const MOST: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Warning {
    TimedOut,
    Lost,
    Replaced,
    HeldLong,
    Refused,
}

/// The recent warnings.
#[derive(Debug, Default)]
pub(crate) struct RepeatLimit(Mutex<Vec<Reported>>);

#[derive(Debug)]
struct Reported {
    /// Stands for the warning and its key.
    hash: u64,
    at: Moment,
    /// How many equal warnings were left out since.
    left_out: u64,
}

impl RepeatLimit {
    /// If the warning is to be logged: the number of equal warnings left out since the last one. `None` if the same one was logged
    /// recently, or there were too many.
    pub(crate) fn admit(&self, warning: Warning, key: &str) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        (warning, key).hash(&mut hasher);
        let hash = hasher.finish();
        let now = Moment::now();
        let is_old = |known: &Reported| now.since(known.at) >= PAUSE;
        // Nothing that can panic runs under this lock.
        let mut all = self.0.lock();
        if let Some(known) = all.iter_mut().find(|known| known.hash == hash) {
            if !is_old(known) {
                known.left_out += 1;
                return None;
            }
            known.at = now;
            return Some(std::mem::take(&mut known.left_out));
        }
        if all.len() >= MOST {
            all.retain(|known| !is_old(known));
        }
        (all.len() < MOST).then(|| {
            all.push(Reported { hash, at: now, left_out: 0 });
            0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_warning_about_a_key_is_logged_once_and_then_with_the_number_that_was_left_out() {
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
