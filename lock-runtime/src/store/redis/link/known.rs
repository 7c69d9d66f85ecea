//! What a [`Link`] knows about its server besides the connection: how far away it is, and which scripts it has.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::scripts::Script;
use super::Link;
use crate::clock::Moment;

impl Link {
    /// Whether the connection was made after `moment`.
    pub(in super::super) fn was_made_after(&self, moment: Moment) -> bool {
        let made = self.locked().live.as_ref().map(|live| live.made.at);
        made.is_some_and(|made| !made.since(moment).is_zero())
    }

    /// Whether there has ever been a connection.
    pub(in super::super) fn was_used(&self) -> bool {
        self.locked().was_connected
    }

    /// How long the server takes to answer, as far as it is known.
    pub(in super::super) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip.load(Ordering::Relaxed))
    }

    /// Whether the server most likely knows a script: its text was sent on this connection before.
    pub(in super::super) fn has_sent(&self, script: &Script) -> bool {
        self.scripts.load(Ordering::Relaxed) & script.bit() != 0
    }

    /// Notes that the server has answered a script that was sent by its text.
    pub(in super::super) fn note_sent(&self, script: &Script) {
        self.scripts.fetch_or(script.bit(), Ordering::Relaxed);
    }
}
