//! What a [`Link`] knows about its server: its distance, whether it is silent, and for how long it has been away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::connect::Outlook;
use super::{Link, Silence};
use crate::clock::{Deadline, Moment};
use crate::failure::CallError;

/// Below this round trip, the server's distance does not matter.
const FAR: Duration = Duration::from_millis(10);
/// The outcome of an attempt to connect counts for this long. While no caller needs the server there are no attempts, so an older failure
/// says nothing.
const FRESH: Duration = Duration::from_secs(1);

impl Link {
    /// Whether the connection was made after `moment`.
    pub fn was_made_after(&self, moment: Moment) -> bool {
        let made = self.state.lock().live.as_ref().map(|live| live.made.at);
        made.is_some_and(|made| !made.since(moment).is_zero())
    }

    /// Whether there has ever been a connection.
    pub fn was_used(&self) -> bool {
        self.state.lock().was_connected
    }

    /// Whether an attempt failed, and there has never been a connection.
    pub fn was_refused(&self) -> bool {
        let state = self.state.lock();
        !state.was_connected && state.failed.is_some()
    }

    /// How long the server takes to answer, as far as is known.
    #[inline]
    pub fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip.load(Ordering::Relaxed))
    }

    /// Notes how quickly a command that was sent at `sent` was answered. A server that stalled while the connection was made looked far
    /// away. Only an answer in less than half of that time corrects it, because no single answer is exact.
    #[inline]
    pub(super) fn note_nearer(&self, sent: Moment) {
        mutant!(SlowIsFar => return);
        // No clock is read for a near server.
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

    /// Whether all keys of a script must be in one slot.
    #[inline]
    pub fn has_slots(&self) -> bool {
        self.has_slots.load(Ordering::Relaxed)
    }

    /// Whether the server has this mark: one bit, chosen by the user of the client. A new connection has the marks from
    /// [`Purpose::read`](crate::Purpose::read).
    #[inline]
    pub fn has_mark(&self, mark: u32) -> bool {
        self.marks.load(Ordering::Relaxed) & mark != 0
    }

    /// Sets this mark for the server.
    pub fn set_mark(&self, mark: u32) {
        self.marks.fetch_or(mark, Ordering::Relaxed);
    }

    /// Clears these marks for the server.
    pub fn clear_marks(&self, marks: u32) {
        self.marks.fetch_and(!marks, Ordering::Relaxed);
    }

    /// Why the server is unreachable now, and how long it has been. `None` when it may be reachable.
    pub fn outage(&self) -> Option<(Duration, CallError)> {
        let state = self.state.lock();
        let now = Moment::now();
        if state.live.is_some() {
            let silent = now.since(state.silence?.since);
            // After that the next command decides whether the connection is still good.
            return (silent < FRESH + self.common.command_timeout * 2).then_some((silent, CallError::Silent(silent)));
        }
        let away = now.since(state.down_since?);
        if let Some((at, error)) = &state.failed
            && now.since(*at) < FRESH
        {
            return Some((away, error.clone()));
        }
        if state.given_up.is_some_and(|at| now.since(at) < FRESH) {
            return Some((away, CallError::Silent(away)));
        }
        let oldest = state.attempts.first().map(|attempt| attempt.age(now))?;
        (oldest >= self.common.command_timeout).then_some((away, CallError::NoConnection(oldest)))
    }

    /// Starts to find out whether the server is back, without waiting: reconnects if there is no connection, and probes a silent
    /// connection. Must be called inside a runtime.
    pub fn begin_to_connect(&self) {
        if self.origin.is_inherited() {
            return;
        }
        // A caller that needs the connection looks at the outcome.
        if let Outlook::Live(_) = self.live_or_attempt()
            && self.is_silent.load(Ordering::Relaxed)
        {
            mutant!(SilenceNotAsked => return);
            self.probe();
        }
    }

    /// An answer arrived, so the server is not silent.
    #[inline]
    pub(super) fn on_reply(&self) {
        if self.is_silent.load(Ordering::Relaxed) {
            self.is_silent.store(false, Ordering::Relaxed);
            if self.state.lock().silence.take().is_some() {
                self.common.events.on_answer_again(self);
            }
        }
    }

    /// A command went unanswered, and nothing arrived since it was sent. After twice the command timeout without any answer the connection
    /// is given up. So a dead connection is replaced soon, and a slow server, whose answers arrive when no task waits for them any more, is
    /// not flooded with new connections.
    pub(super) fn on_silence(&self, generation: u64, sent: Moment, limit: Duration) {
        let mut state = self.state.lock();
        let Some(live) = state.live.as_ref().filter(|live| live.made.generation == generation) else { return };
        let (heard, is_full) = (live.wire.heard(), live.wire.is_full());
        let is_news = state.silence.is_none();
        let before = state.silence.filter(|silence| silence.heard == heard || mutant!(OthersUnheard));
        let Silence { since, .. } = *state.silence.insert(before.unwrap_or(Silence { since: sent, heard }));
        self.is_silent.store(true, Ordering::Relaxed);
        drop(state);
        if is_news {
            self.common.events.on_silence(self, limit);
        }
        if since.elapsed() < self.common.command_timeout * 2 {
            if is_full {
                // Other tasks wait for room, so no other command would find out.
                self.probe();
            }
            return;
        }
        mutant!(ConnectionNeverGivenUp => return);
        self.drop_connection(generation);
    }

    /// Probes the server, with the full time of a command. If this goes unanswered too, the connection is dead.
    pub(super) fn probe(&self) {
        let Some(link) = self.this.upgrade() else { return };
        if self.is_probing.swap(true, Ordering::Relaxed) {
            return;
        }
        let probing = Probing(link);
        tokio::spawn(async move { probing.0.heartbeat(Deadline::after(probing.0.common.command_timeout)).await });
    }
}

/// A probe of the server in progress. Its task may end with its runtime.
struct Probing(Arc<Link>);

impl Drop for Probing {
    fn drop(&mut self) {
        mutant!(ProbeEndsWithRuntime => return);
        self.0.is_probing.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo as _;
    use tokio::runtime::Builder;

    use super::*;
    use crate::clock::Drift;
    use crate::endpoint::Endpoint;
    use crate::link::Common;
    use crate::mutants::{Mutant, Seeded};
    use crate::wire::Trust;

    #[test]
    fn a_server_is_asked_again_when_the_runtime_has_ended_that_asked() {
        for (bug, is_over) in [(None, true), (Some(Mutant::ProbeEndsWithRuntime), false)] {
            let _seeded = Seeded::begin(bug);
            let nowhere = "redis://127.0.0.1:1".into_connection_info().unwrap();
            let endpoint = Endpoint::of_connection(nowhere, &Trust::default()).unwrap();
            let second = Duration::from_secs(1);
            let common = Common {
                drift: Drift::DEFAULT,
                command_timeout: second,
                connect_timeout: second,
                spawn: Arc::new(|_| ()),
                events: Arc::new(()),
            };
            let link = Link::new(endpoint, None, Arc::new(()), common);
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { link.probe() });
            drop(runtime);
            assert_eq!(!link.is_probing.load(Ordering::Relaxed), is_over, "{bug:?}");
        }
    }
}
