//! Hand-made histories for the tests of the checks.

use std::time::Duration;

use super::checks::{Bounds, Check};
use super::claims::History;
use super::event::{Change, Event, How, Share, Wanted, What};

/// The one lock of a sample.
pub(crate) const KEY: &str = "soak:k";

pub(crate) const BOUNDS: Bounds = Bounds {
    lease: Duration::from_millis(300),
    noise: Duration::from_millis(100),
    round_trip: Duration::ZERO,
    answer: Duration::ZERO,
    forgetful: false,
    tells: true,
    queues: true,
    splits: false,
    linger: Duration::ZERO,
};

/// All times are in milliseconds.
#[derive(Clone, Default)]
pub(crate) struct Sample {
    events: Vec<Event>,
    attempts: u32,
    /// The request of the next acquires.
    share: Share,
    together: bool,
}

impl Sample {
    pub(crate) fn and(mut self, at: u64, process: &str, what: What) -> Self {
        self.events.push(Event { t: at * 1_000_000, process: process.into(), task: 0, what });
        self
    }

    /// The next acquires are for this share.
    pub(crate) fn wants(self, share: Share) -> Self {
        Self { share, ..self }
    }

    /// The next acquires are each for one of several keys.
    pub(crate) fn together(self) -> Self {
        Self { together: true, ..self }
    }

    /// An acquire with a timeout of 1 s and a lease of 300 ms.
    pub(crate) fn asks(mut self, at: u64, process: &str) -> Self {
        self.attempts += 1;
        let wanted =
            Wanted { timeout: 1000, expire: 300, share: self.share, together: self.together, ..Wanted::default() };
        let attempt = self.attempts;
        self.and(at, process, What::Acquire { attempt, key: KEY.into(), wanted })
    }

    pub(crate) fn refused(self, at: u64, process: &str, how: How) -> Self {
        let attempt = self.attempts;
        self.and(at, process, What::Refused { attempt, how, text: String::new() })
    }

    /// Grants the last request.
    pub(crate) fn granted(self, at: u64, process: &str, until: u64, fence: Option<u64>) -> Self {
        let attempt = self.attempts;
        self.and(at, process, What::Granted { attempt, until: until * 1_000_000, fence })
    }

    pub(crate) fn released(self, at: u64, process: &str, how: How) -> Self {
        let attempt = self.attempts;
        self.and(at, process, What::Release { attempt, dropped: false }).and(
            at + 1,
            process,
            What::Released { attempt, how, text: String::new() },
        )
    }

    /// A hold from its acquire to its release.
    pub(crate) fn held(self, process: &str, from: u64, to: u64) -> Self {
        self.fenced(process, from, to, None)
    }

    pub(crate) fn fenced(self, process: &str, from: u64, to: u64, fence: Option<u64>) -> Self {
        self.asks(from - 1, process).granted(from, process, from + 290, fence).released(to, process, How::Done)
    }

    /// The server grants the lock to a token of `process` until `until`.
    pub(crate) fn owned(self, at: u64, process: &str, until: u64, next: bool) -> Self {
        let to = Change::Owned { token: format!("t@{process}"), until: until * 1_000_000, next };
        self.changed(at, to)
    }

    /// The lock is shared in the server until `until`.
    pub(crate) fn shared(self, at: u64, until: u64) -> Self {
        self.changed(at, Change::Owned { token: "cache_lock|shared".into(), until: until * 1_000_000, next: false })
    }

    pub(crate) fn gone(self, at: u64) -> Self {
        self.changed(at, Change::Gone)
    }

    fn changed(self, at: u64, to: Change) -> Self {
        let since = (at * 1_000_000).saturating_sub(500_000);
        self.and(at, "server", What::Changed { since, key: KEY.into(), to })
    }

    pub(crate) fn finds(&self, check: Check) -> usize {
        self.finds_with(check, &BOUNDS)
    }

    pub(crate) fn finds_with(&self, check: Check, bounds: &Bounds) -> usize {
        check(&History::of(self.events.clone()), bounds).len()
    }

    pub(crate) fn history(self) -> History {
        History::of(self.events)
    }
}
