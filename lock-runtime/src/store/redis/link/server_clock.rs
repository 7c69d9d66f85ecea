//! What a [`Link`] knows about its server's clock.

use std::time::Duration;

use super::Link;
use crate::clock::Deadline;
use crate::observe;
use crate::store::Anchor;

impl Link {
    /// Remembers what the server's clock shows, and warns once when it runs faster than leases allow for.
    pub(in super::super) fn update_clock(&self, anchor: Anchor) {
        let mut state = self.state.lock();
        state.clock = Some(anchor);
        // Otherwise the keeper's connection, which leads to the same server, would warn a second time.
        if !self.is_of_callers() || state.is_drift_told {
            return;
        }
        let Some(gain) = state.drifting.on_answer(anchor, self.drift) else { return };
        state.is_drift_told = true;
        drop(state);
        observe::drifts(&self.server, self.drift.ppm(), gain.ppm(), gain.within);
    }

    /// What the server's clock will show at `deadline`. This is at most a round trip too late.
    pub(in super::super) fn store_micros_at(&self, deadline: Deadline) -> Option<u64> {
        let anchor = self.state.lock().clock?;
        let ahead = anchor.sent.elapsed() + deadline.remaining().min(Duration::from_secs(366 * 24 * 3600));
        anchor.store_micros.checked_add(u64::try_from(ahead.as_micros()).ok()?)
    }
}
