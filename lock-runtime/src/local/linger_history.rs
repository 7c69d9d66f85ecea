//! [`LingerHistory`]: for which keys it is worth letting a lease linger.
//!
//! A lease lingers because the process that used a lock last is likely to use it next. Where two processes use a lock in turns, that is
//! wrong each time, and costs a message and a release. So a key whose lease had to yield before it was used again lingers less and less
//! often: the next 1, 3, 7 and finally 15 times it is released at once. One use of a lingering lease resets this.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Keys share these places. When two keys share one, a lease may be released that could have lingered, which does no harm.
const PLACES: usize = 1024;
/// Up to how many yields in vain are counted.
const MOST: u8 = 4;

/// Each place holds how often a lease had to yield in vain (upper half), and how many leases are still to be released at once (lower half).
/// There are no places before the first lease has yielded.
#[derive(Default)]
pub(super) struct LingerHistory(OnceLock<Box<[AtomicU8]>>);

impl LingerHistory {
    /// Whether the lease of `key` may linger now. Called once for each lease that could.
    pub(super) fn admits(&self, key: &str) -> bool {
        let Some(place) = self.0.get().and_then(|places| place(places, key)) else { return true };
        let before = place.load(Ordering::Relaxed);
        let is_due = before.is_multiple_of(16);
        if !is_due {
            // Others may count at the same time: then one lease more or less lingers.
            place.store(before - 1, Ordering::Relaxed);
        }
        is_due
    }

    /// Notes that a lease yielded to another process, and whether it was used again before.
    pub(super) fn on_yield(&self, key: &str, was_used: bool) {
        let places = self.0.get_or_init(|| (0..PLACES).map(|_| AtomicU8::new(0)).collect());
        let Some(place) = place(places, key) else { return };
        let times = if was_used { 0 } else { (place.load(Ordering::Relaxed) >> 4).saturating_add(1).min(MOST) };
        place.store((times << 4) | ((1 << times) - 1), Ordering::Relaxed);
    }
}

fn place<'a>(places: &'a [AtomicU8], key: &str) -> Option<&'a AtomicU8> {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    places.get(usize::try_from(hasher.finish() % PLACES as u64).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these leases linger if each of them yields at once.
    fn lingers_in_vain(history: &LingerHistory, leases: usize) -> usize {
        let lingers = |_: &usize| {
            let lingers = history.admits("p:k");
            if lingers {
                history.on_yield("p:k", false);
            }
            lingers
        };
        (0..leases).filter(lingers).count()
    }

    #[test]
    fn a_lease_lingers_ever_less_often_while_it_is_in_vain() {
        let history = LingerHistory::default();
        assert_eq!(lingers_in_vain(&history, 1 + 1 + 1 + 3 + 1 + 7 + 1 + 15), 4);
        assert_eq!(lingers_in_vain(&history, 160), 10);
        assert!(history.admits("p:another"));
    }

    #[test]
    fn one_use_of_a_lease_that_lingered_makes_up_for_all() {
        let history = LingerHistory::default();
        lingers_in_vain(&history, 100);
        while !history.admits("p:k") {}
        history.on_yield("p:k", true);
        assert!(history.admits("p:k"));
    }
}
