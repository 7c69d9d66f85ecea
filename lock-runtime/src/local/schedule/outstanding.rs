//! [`OutstandingReleases`]: the releases that tasks wait for, until each is answered or its task is late.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use crate::local::slot::Slot;
use crate::store::Release;
use crate::token::Token;

#[derive(Debug)]
pub(crate) struct OutstandingRelease {
    /// From then on the task counts as late.
    by: Instant,
    pub(crate) slot: Arc<Slot>,
    pub(crate) release: Release,
}

/// The outstanding releases in the order in which they began. All tasks get the same time, so this is also the order in which they become
/// late.
///
/// Adding and removing a release allocates nothing, once there is capacity.
#[derive(Debug, Default)]
pub(super) struct OutstandingReleases {
    /// The number of the first entry.
    first: u64,
    /// `None` for releases that have ended. The first entry is never `None`.
    entries: VecDeque<Option<OutstandingRelease>>,
}

impl OutstandingReleases {
    pub(super) fn add(&mut self, slot: &Arc<Slot>, release: Release, by: Instant) -> u64 {
        self.entries.push_back(Some(OutstandingRelease { by, slot: Arc::clone(slot), release }));
        self.first + self.entries.len() as u64 - 1
    }

    /// Removes a release that has ended. `None` if the keeper has taken the release over.
    pub(super) fn remove(&mut self, number: u64) -> Option<OutstandingRelease> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let removed = self.entries.get_mut(place)?.take();
        self.drop_ended();
        removed
    }

    pub(super) fn has(&self, token: &Token) -> bool {
        self.entries.iter().flatten().any(|outstanding| outstanding.release.token == *token)
    }

    pub(super) fn take_overdue(&mut self, now: Instant) -> Vec<OutstandingRelease> {
        let mut overdue = Vec::new();
        while self.next_look().is_some_and(|by| by <= now) {
            overdue.extend(self.entries.front_mut().and_then(Option::take));
            self.drop_ended();
        }
        overdue
    }

    fn drop_ended(&mut self) {
        while self.entries.front().is_some_and(Option::is_none) {
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// When the next task becomes late.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.entries.front()?.as_ref().map(|outstanding| outstanding.by)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
