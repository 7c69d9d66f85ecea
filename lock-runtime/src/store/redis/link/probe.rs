//! What a [`Link`] makes of a command that had too little time for an answer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Link;
use crate::clock::Deadline;

impl Link {
    /// Whether a command that went unanswered for `limit` had less time than an answer may take: two round trips, but no more
    /// than the command timeout. The answer may have come when nobody waited for it any more, so this tells nothing of the
    /// connection.
    pub(super) fn was_cut_short(&self, limit: Duration) -> bool {
        limit < (self.round_trip() * 2).min(self.command_timeout) && !mutant!(CutShortIsSilence)
    }

    /// Asks the server for any answer, with all the time that a command may have: silence then tells of the connection.
    pub(super) fn probe(&self) {
        let Some(link) = self.this.upgrade() else { return };
        if self.is_probing.swap(true, Ordering::Relaxed) {
            return;
        }
        tokio::spawn(async move {
            link.heartbeat(Deadline::after(link.command_timeout)).await;
            link.is_probing.store(false, Ordering::Relaxed);
        });
    }
}
