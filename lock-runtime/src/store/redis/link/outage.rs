//! How long the server of a [`Link`] has been away, for callers that do not want to wait for it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::failure::CallError;
use super::Link;
use super::connect::Outlook;
use crate::clock::Moment;

/// What attempts to connect have shown counts for this long. Nobody tries while nobody needs the server, so an older failure
/// says nothing.
const FRESH: Duration = Duration::from_secs(1);

impl Link {
    /// Why the server can't be reached now, and for how long nobody has reached it. `None` when it may be there.
    pub(in super::super) fn outage(&self) -> Option<(Duration, CallError)> {
        let state = self.state.lock();
        let now = Moment::now();
        if state.live.is_some() {
            let silent = now.since(state.silence?.since);
            // After that time the next command decides whether the connection is still good.
            return (silent < FRESH + self.command_timeout * 2).then_some((silent, CallError::Silent(silent)));
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
        (oldest >= self.command_timeout).then_some((away, CallError::NoConnection(oldest)))
    }

    /// For how long nothing at all has come on the connection, though commands are on their way, or since before it was given up for
    /// that. From a server that is far away, or slow, answers come when nobody waits for them any more.
    pub(in super::super) fn silent_for(&self) -> Option<Duration> {
        let state = self.state.lock();
        let Some(live) = &state.live else {
            mutant!(GivenUpIsNotSilent => return None);
            return state.given_up.and(state.down_since).map(Moment::elapsed);
        };
        let silence = state.silence.filter(|silence| silence.heard == live.wire.heard())?;
        Some(silence.since.elapsed())
    }

    /// Begins to find out whether the server is back, and waits for nothing: connects again when there is no connection, and
    /// asks for any answer when the connection is silent. It must be called inside a runtime.
    pub(in super::super) fn begin_to_connect(&self) {
        if self.origin.is_inherited() {
            return;
        }
        // Whoever needs the connection looks at the outcome.
        if let Outlook::Live(_) = self.live_or_attempt()
            && self.is_silent.load(Ordering::Relaxed)
        {
            mutant!(SilenceNotAsked => return);
            self.probe();
        }
    }
}
