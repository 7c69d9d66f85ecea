//! The two spans: [`WaitSpan`] around the wait for a lock, [`HoldSpan`] around its hold. No other file knows their names.
//!
//! Without a subscriber, or with a level that leaves them out, a span costs one look at a number. The hold has a span only
//! when the wait before it had one.

use std::time::Instant;

use tracing::instrument::Instrumented;
use tracing::span::Entered;
use tracing::{Instrument, Span, field};

use super::Path;
use crate::{ErrorKind, LockError};

/// The span of a task that waits for a lock.
#[derive(Debug)]
pub(crate) struct WaitSpan {
    span: Span,
    key: Box<str>,
    since: Instant,
}

impl WaitSpan {
    /// `None` when nobody listens.
    pub(crate) fn begin(key: &str, prefix: &str) -> Option<Self> {
        let span = tracing::debug_span!(
            target: "lock_runtime",
            "cache_lock.wait",
            lock.key = key,
            lock.prefix = prefix,
            lock.outcome = field::Empty,
            lock.waited_ms = field::Empty,
            lock.path = field::Empty,
            lock.holder = field::Empty,
        );
        (!span.is_disabled()).then(|| Self { span, key: key.into(), since: Instant::now() })
    }

    /// A future that is polled inside of this span.
    pub(crate) fn around<F: Future>(&self, waiting: F) -> Instrumented<F> {
        waiting.instrument(self.span.clone())
    }

    /// Ends the span. The path is that of the hold.
    pub(crate) fn end(self, outcome: Result<Option<Path>, &LockError>) {
        let waited = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.span.record("lock.waited_ms", waited);
        match outcome {
            Ok(path) => {
                self.span.record("lock.outcome", "granted");
                if let Some(path) = path {
                    self.span.record("lock.path", path.name());
                }
            }
            Err(error) => {
                // Of several keys it may be another than that of the span.
                if let Some(key) = error.key().filter(|key| **key != *self.key) {
                    self.span.record("lock.key", key);
                }
                self.span.record("lock.outcome", outcome_of(error));
                if let LockError::Timeout { holder: Some(holder), .. } = error {
                    self.span.record("lock.holder", holder.as_str());
                }
            }
        }
    }
}

fn outcome_of(error: &LockError) -> &'static str {
    match error.kind() {
        ErrorKind::Busy => "busy",
        ErrorKind::Overloaded => "overloaded",
        ErrorKind::Lost => "lost",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Misuse => "misuse",
        ErrorKind::ShutDown => "shut_down",
    }
}

/// The span of a hold; nothing when nobody listens. Boxed, because most holds have none.
#[derive(Debug, Default)]
pub(crate) struct HoldSpan(Option<Box<Span>>);

impl HoldSpan {
    pub(crate) fn begin(key: &str, prefix: &str, path: Option<Path>) -> Self {
        let span = tracing::debug_span!(
            target: "lock_runtime",
            "cache_lock.hold",
            lock.key = key,
            lock.prefix = prefix,
            lock.path = path.map(Path::name),
            lock.outcome = field::Empty,
        );
        Self((!span.is_disabled()).then(|| Box::new(span)))
    }

    /// This span, or the other one if there is none.
    pub(crate) fn or(mut self, mut other: Self) -> Self {
        Self(self.0.take().or_else(|| other.0.take()))
    }

    /// Whether it has begun, and has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Enters the span for the time of one poll.
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        self.0.as_ref().map(|span| span.enter())
    }

    /// Ends the span after the release of the lock, which may have failed, or after its loss.
    pub(crate) fn end(&mut self, error: Option<&LockError>) {
        if let Some(span) = self.0.take() {
            let outcome = match error {
                None => "released",
                Some(error) if error.is_lost() => "lost",
                // It is repeated in the background.
                Some(_) => "unreleased",
            };
            span.record("lock.outcome", outcome);
        }
    }
}

impl Drop for HoldSpan {
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            span.record("lock.outcome", "dropped");
        }
    }
}
