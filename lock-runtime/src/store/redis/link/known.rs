//! What a [`Link`] knows about its server besides the connection: how far away it is, and which scripts it has.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::scripts::Script;
use super::super::wire::Delete;
use super::Link;
use crate::clock::Moment;

/// How far away a server that is nearer than this is does not matter.
const FAR: Duration = Duration::from_millis(10);

impl Link {
    /// Whether the connection was made after `moment`.
    pub(in super::super) fn was_made_after(&self, moment: Moment) -> bool {
        let made = self.state.lock().live.as_ref().map(|live| live.made.at);
        made.is_some_and(|made| !made.since(moment).is_zero())
    }

    /// Whether there has ever been a connection.
    pub(in super::super) fn was_used(&self) -> bool {
        self.state.lock().was_connected
    }

    /// Whether there has never been a connection because an attempt failed.
    pub(in super::super) fn was_refused(&self) -> bool {
        let state = self.state.lock();
        !state.was_connected && state.failed.is_some()
    }

    /// How long the server takes to answer, as far as it is known.
    pub(in super::super) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip.load(Ordering::Relaxed))
    }

    /// Takes in how soon a command was answered that was sent at `sent`. A server that stood still when the connection was made
    /// looked far away. The distance is given up when an answer took less than half of it: no single answer says it exactly.
    pub(super) fn note_nearer(&self, sent: Moment) {
        mutant!(SlowIsFar => return);
        // Of a near server no clock is read here.
        if self.round_trip() < FAR {
            return;
        }
        let took = sent.elapsed();
        if took < self.round_trip() / 2 {
            self.set_round_trip(took);
        }
    }

    pub(super) fn set_round_trip(&self, round_trip: Duration) {
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.store(nanos, Ordering::Relaxed);
    }

    /// Whether a script may use the keys of one lock only.
    pub(in super::super) fn has_slots(&self) -> bool {
        self.has_slots.load(Ordering::Relaxed)
    }

    pub(super) fn set_slots(&self, has_slots: bool) {
        self.has_slots.store(has_slots, Ordering::Relaxed);
    }

    /// The command by which the server deletes a lock that holds a certain token; `None` where there is none, or the user may not use it.
    pub(in super::super) fn delete(&self) -> Option<Delete> {
        match self.delete.load(Ordering::Relaxed) {
            1 => Some(Delete::IfEq),
            2 => Some(Delete::Ex),
            _ => None,
        }
    }

    /// Notes it.
    pub(in super::super) fn set_delete(&self, delete: Option<Delete>) {
        let number = match delete {
            None => 0,
            Some(Delete::IfEq) => 1,
            Some(Delete::Ex) => 2,
        };
        self.delete.store(number, Ordering::Relaxed);
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
