//! The oldest hold and the oldest wait of each prefix. A hold that hangs has not ended, so no histogram shows it; and one among many short
//! ones moves no average.
//!
//! These are ages, so they have to be reported again and again: the keeper does so each second while anything is in progress. All managers
//! of a process share their gauges.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use tokio::time::Instant;

use super::{OLDEST_HOLD, OLDEST_WAIT, labels};
use crate::mutex::Mutex;

/// How often the ages are reported.
const INTERVAL: Duration = Duration::from_secs(1);

static ALL: Mutex<All> = Mutex::new(All { prefixes: BTreeMap::new(), told: None });

/// What is in progress, by prefix, and when that was last reported.
#[derive(Debug)]
struct All {
    prefixes: BTreeMap<Box<str>, Arc<Going>>,
    told: Option<Instant>,
}

/// What is in progress under one prefix.
#[derive(Debug, Default)]
pub(super) struct Going {
    pub(super) holds: Ages,
    pub(super) waits: Ages,
}

impl Going {
    pub(super) fn of(prefix: &str) -> Arc<Self> {
        let mut all = ALL.lock();
        if let Some(going) = all.prefixes.get(prefix) {
            return Arc::clone(going);
        }
        Arc::clone(all.prefixes.entry(prefix.into()).or_default())
    }
}

/// Since when each hold, or each wait, is in progress.
#[derive(Debug, Default)]
pub(super) struct Ages(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    begun: Vec<Option<Instant>>,
    free: Vec<usize>,
}

impl Ages {
    /// Adds one. Returns its index.
    pub(super) fn begin(&self, now: Instant) -> usize {
        let mut places = self.0.lock();
        let Places { begun, free } = &mut *places;
        if let Some((place, begins)) = free.pop().and_then(|place| Some((place, begun.get_mut(place)?))) {
            *begins = Some(now);
            return place;
        }
        begun.push(Some(now));
        begun.len() - 1
    }

    pub(super) fn end(&self, place: usize) {
        let mut places = self.0.lock();
        if let Some(ended) = places.begun.get_mut(place) {
            *ended = None;
            places.free.push(place);
        }
    }

    fn oldest(&self, now: Instant) -> Option<Duration> {
        let begun = self.0.lock().begun.iter().flatten().min().copied();
        begun.map(|begun| now.saturating_duration_since(begun))
    }
}

/// Reports the ages once more, because there may be no later report.
pub(crate) fn tell_last() {
    ALL.lock().told = None;
    let _ = tell_oldest();
}

/// Reports the ages, unless that was done within the last [`INTERVAL`]. Returns when to do so again; `None` when nothing is in progress.
pub(crate) fn tell_oldest() -> Option<Duration> {
    #[cfg(test)]
    if crate::simulation::time::is_simulated() {
        return None;
    }
    let now = Instant::now();
    let mut all = ALL.lock();
    let All { prefixes, told } = &mut *all;
    if prefixes.is_empty() {
        return None;
    }
    // This runtime's clock may be paused, and behind a reading by another runtime's clock.
    let left = told.and_then(|told| INTERVAL.checked_sub(now.checked_duration_since(told)?));
    if let Some(left) = left.filter(|left| !left.is_zero()) {
        return Some(left);
    }
    *told = Some(now);
    let ages: Vec<_> = prefixes
        .iter()
        .map(|(prefix, going)| (prefix.clone(), [going.holds.oldest(now), going.waits.oldest(now)]))
        .collect();
    // A hold or wait that is about to begin also has a reference.
    prefixes.retain(|_, going| Arc::strong_count(going) > 1);
    let goes_on = !prefixes.is_empty();
    // A recorder may run any code.
    drop(all);
    for (prefix, [hold, wait]) in ages {
        gauge!(OLDEST_HOLD, labels(&prefix)).set(hold.unwrap_or_default().as_secs_f64());
        gauge!(OLDEST_WAIT, labels(&prefix)).set(wait.unwrap_or_default().as_secs_f64());
    }
    goes_on.then_some(INTERVAL)
}
