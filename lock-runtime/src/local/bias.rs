//! [`Bias`]: for which keys it is worth to let a lease linger.
//!
//! A lease lingers because whoever used a lock last is likely to use it next. Where two processes use a lock in turns, that is
//! wrong each time, and costs a message and a release. So a key whose lease had to yield before it was used again lingers less
//! and less often: the next 1, 3, 7 and at last 15 times it is released at once. One use of a lease that lingered makes up for
//! all of that.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Keys share these places. When two keys have one place, a lease is released that might have lingered, and no harm is done.
const PLACES: usize = 1024;
/// How often a lease had to yield in vain, at most.
const MOST: u8 = 4;

/// In each place: how often a lease had to yield in vain (upper half), and how many leases are still to be released at once.
/// There are no places before the first lease has yielded.
#[derive(Default)]
pub(super) struct Bias(OnceLock<Box<[AtomicU8]>>);

impl Bias {
    /// Whether the lease of `key` may linger now. It is asked once for each lease that could.
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

    /// How many of this number of leases linger, when each of them yields at once.
    fn lingers_in_vain(bias: &Bias, leases: usize) -> usize {
        let lingers = |_: &usize| {
            let lingers = bias.admits("p:k");
            if lingers {
                bias.on_yield("p:k", false);
            }
            lingers
        };
        (0..leases).filter(lingers).count()
    }

    #[test]
    fn a_lease_lingers_ever_less_often_while_it_is_in_vain() {
        let bias = Bias::default();
        assert_eq!(lingers_in_vain(&bias, 1 + 1 + 1 + 3 + 1 + 7 + 1 + 15), 4);
        assert_eq!(lingers_in_vain(&bias, 160), 10);
        assert!(bias.admits("p:another"));
    }

    #[test]
    fn one_use_of_a_lease_that_lingered_makes_up_for_all() {
        let bias = Bias::default();
        lingers_in_vain(&bias, 100);
        while !bias.admits("p:k") {}
        bias.on_yield("p:k", true);
        assert!(bias.admits("p:k"));
    }
}
