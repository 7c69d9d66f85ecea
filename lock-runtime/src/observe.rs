//! Every event for a user's `tracing` subscriber, each as one fn, and the two spans: [`WaitSpan`] around the wait for a lock, and
//! [`HoldSpan`] around its hold. The metrics have a file of their own.
//!
//! Events name keys and labels, never tokens or credentials. Their target is `lock_runtime`. `docs/telemetry.md` lists them: users rely on
//! their names, texts and fields.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tracing::instrument::Instrumented;
use tracing::span::Entered;
use tracing::{Instrument, Span, field};

use crate::error::{ErrorKind, LockError, LossReason};

#[cfg(feature = "metrics")]
pub(crate) mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "observe/no_metrics.rs"]
pub(crate) mod metrics;

/// How a task got its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// The store granted the lock.
    Store,
    /// Another process passed the lock on, and the store sent a push.
    HandOff,
    /// The previous task in this process passed the lock on.
    HandOver,
    /// The process has kept the lock since its last hold.
    Linger,
    /// The task holds the lock already.
    ReEntry,
}

impl Path {
    fn name(self) -> &'static str {
        match self {
            Self::Store | Self::HandOff => "store",
            Self::HandOver => "hand-over",
            Self::Linger => "linger",
            Self::ReEntry => "re-entry",
        }
    }
}

/// How a wait for a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted,
    Failed(ErrorKind),
}

impl Outcome {
    pub(crate) fn of<T>(outcome: Result<T, &LockError>) -> Self {
        outcome.map_or_else(|error| Self::Failed(error.kind()), |_| Self::Granted)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Failed(ErrorKind::Busy) => "busy",
            Self::Failed(ErrorKind::Overloaded) => "overloaded",
            Self::Failed(ErrorKind::Lost) => "lost",
            Self::Failed(ErrorKind::Unavailable) => "unavailable",
            Self::Failed(ErrorKind::Misuse) => "misuse",
            Self::Failed(ErrorKind::ShutDown) => "shut_down",
        }
    }
}

/// A request that ended because the lock was taken for the whole wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedOut<'a> {
    pub(crate) key: &'a str,
    pub(crate) waited: Duration,
    pub(crate) holder: Option<&'a str>,
    /// For how long this process has known that holder.
    pub(crate) seen: Option<Duration>,
    /// How many equal events were left out since the last one.
    pub(crate) left_out: u64,
}

/// Another holder had the lock.
pub(crate) fn timed_out(TimedOut { key, waited, holder, seen, left_out }: TimedOut<'_>) {
    tracing::warn!(
        target: "lock_runtime", key, waited_ms = millis(waited), holder, seen_ms = seen.map(millis), left_out,
        "timed out: another holder had the lock for the whole wait"
    );
}

/// This process had the lock.
pub(crate) fn timed_out_here(TimedOut { key, waited, holder, seen, left_out }: TimedOut<'_>) {
    tracing::warn!(
        target: "lock_runtime", key, waited_ms = millis(waited), holder, seen_ms = seen.map(millis), left_out,
        "timed out: this process had the lock for the whole wait"
    );
}

/// A usual timeout: all permits are in use, a lock rests, or the caller has a fallback.
pub(crate) fn timed_out_as_usual(why: &str, TimedOut { key, waited, holder, seen, left_out }: TimedOut<'_>) {
    tracing::info!(
        target: "lock_runtime", key, why, waited_ms = millis(waited), holder, seen_ms = seen.map(millis), left_out,
        "timed out, as is usual: the lock was busy for the whole wait"
    );
}

/// A hold ended at its deadline, or because the store no longer knew its lease.
pub(crate) fn lost(key: &str, reason: LossReason, held: Duration, left_out: u64) {
    let reason = match reason {
        LossReason::Deadline => "deadline",
        LossReason::NotKnown => "not_known",
        LossReason::ShutDown => "shut_down",
        LossReason::Forced => "forced",
        LossReason::MaxHold => "max_hold",
    };
    tracing::warn!(target: "lock_runtime", key, reason, held_ms = millis(held), left_out, "lock lost");
}

/// A newer call has the lock, as both calls asked for.
pub(crate) fn replaced(key: &str, held: Duration, left_out: u64) {
    tracing::info!(
        target: "lock_runtime", key, held_ms = millis(held), left_out,
        "replaced, as is usual: a newer call has the lock, or it was released by force"
    );
}

/// A hold lasts longer than the user considers usual.
pub(crate) fn held_long(key: &str, held: Duration, left_out: u64) {
    tracing::warn!(
        target: "lock_runtime", key, held_ms = millis(held), left_out,
        "held for long: this process still has the lock"
    );
}

/// The lock was granted after the lease of its last holder, another process, ended without a release.
pub(crate) fn took_over(key: &str, holder: Option<&str>) {
    tracing::info!(target: "lock_runtime", key, holder, "took over from a dead holder: its lease ended without a release");
}

/// A background command failed and will be repeated. Further failures at this server are not reported until a command works.
pub(crate) fn keeper_failed(server: &str, command: &str, problem: &dyn Display) {
    tracing::debug!(target: "lock_runtime", server, command, error = %problem, "background command failed");
}

pub(crate) fn keeper_works(server: &str, command: &str) {
    tracing::debug!(target: "lock_runtime", server, command, "background commands work again");
}

/// The release after a body failed. The body's caller gets no error for it. The release is repeated in the background.
pub(crate) fn unreleased(error: &LockError) {
    tracing::warn!(target: "lock_runtime", error = %error, "release failed after a body");
}

/// A body called the shutdown of the manager whose lock it holds.
pub(crate) fn shut_down_inside(key: &str) {
    tracing::warn!(
        target: "lock_runtime", key,
        "`shutdown` was called inside a body that holds this lock: it does not wait for that body, which gives the lock \
         back when it ends"
    );
}

pub(crate) fn connected(server: &str) {
    tracing::debug!(target: "lock_runtime", server, "connected");
}

/// No connection could be made. Further failures are not reported until there is a connection.
pub(crate) fn unreachable(server: &str, problem: &dyn Display) {
    tracing::debug!(target: "lock_runtime", server, command = "connect", error = %problem, "can't connect; trying on");
}

/// A broken connection was replaced after the time `away`.
pub(crate) fn connected_again(server: &str, label: &str, of_callers: bool, away: Duration) {
    let connection = connection(of_callers);
    tracing::info!(target: "lock_runtime", server, label, connection, away_ms = millis(away), "connected again");
}

/// Which of a manager's two connections to a server it is.
fn connection(of_callers: bool) -> &'static str {
    if of_callers { "callers" } else { "keeper" }
}

/// A command went unanswered on a connection that had answered before.
pub(crate) fn silent(server: &str, waited: Duration) {
    tracing::debug!(target: "lock_runtime", server, waited_ms = millis(waited), "the server is silent");
}

/// A server that was silent answers again.
pub(crate) fn answers_again(server: &str) {
    tracing::debug!(target: "lock_runtime", server, "the server answers again");
}

/// The server's clock runs faster than leases allow for: a lease may end while its holder still trusts it.
pub(crate) fn drifts(server: &str, allowed_ppm: u32, measured_ppm: u128, within: Duration) {
    tracing::warn!(
        target: "lock_runtime", server, allowed_ppm, measured_ppm, ?within,
        "the server's clock runs faster than this process's, by more than leases allow for: slow down how clocks are \
         slewed (chrony's `maxslewrate`), or raise `max_clock_drift_ppm`"
    );
}

/// The server refused a command in a way that suggests that another server has the locks now.
pub(crate) fn looks_for_master(server: &str, code: &str) {
    tracing::debug!(target: "lock_runtime", server, code, "looking for the master: a command was refused");
}

pub(crate) fn disconnected(server: &str, of_callers: bool) {
    let connection = connection(of_callers);
    tracing::warn!(target: "lock_runtime", server, connection, "connection lost; connecting anew");
}

/// The credentials provider failed. Further failures are not reported until it sends credentials.
pub(crate) fn provider_failed(problem: &dyn Display) {
    tracing::warn!(
        target: "lock_runtime", error = %problem,
        "no new credentials: their provider failed; the last ones stay in use, and it is asked again"
    );
}

/// A server refused new credentials on a connection.
pub(crate) fn login_refused(server: &str, problem: &dyn Display) {
    tracing::warn!(
        target: "lock_runtime", server, error = %problem,
        "the server refused new credentials; the connection goes on with the old ones"
    );
}

/// A grant arrived for an ask that was given up. The lock is released.
pub(crate) fn stray_grant(key: &str) {
    tracing::debug!(target: "lock_runtime", key, "grant for an ask that was given up");
}

/// A background command was refused, and a repetition would be refused again.
pub(crate) fn keeper_refused(key: &str, problem: &dyn Display, left_out: u64) {
    tracing::warn!(target: "lock_runtime", key, error = %problem, left_out, "the server refused a background command");
}

/// A lock was released but could not be passed on: the key of its queue holds something other than a queue.
pub(crate) fn queue_unusable(key: &str, problem: &dyn Display) {
    tracing::warn!(
        target: "lock_runtime", key, error = %problem,
        "the lock is free, but its queue can't be used: nobody can wait for the lock until the queue's key is deleted"
    );
}

/// A server of a quorum fails, or has no vote. The other servers must be enough.
pub(crate) fn member_failed(server: &str, problem: &dyn Display) {
    tracing::warn!(target: "lock_runtime", server, error = %problem, "a server of the quorum does not take part");
}

/// The server may drop locks to make room for other keys.
pub(crate) fn evicts(server: &str, policy: &str, maxmemory: u64) {
    tracing::warn!(
        target: "lock_runtime", server, policy, maxmemory,
        "the server may evict locks when its memory is full: set `maxmemory-policy noeviction`"
    );
}

/// Whether the server may drop locks is unknown. The check needs the right `+info`.
pub(crate) fn eviction_unknown(server: &str) {
    tracing::debug!(target: "lock_runtime", server, "can't tell whether the server evicts locks; that needs +info");
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

// --- Spans ---
//
// Without a subscriber, or when the level leaves it out, a span costs one load. A hold has a span only if the wait before it had one.

/// The span of a task that waits for a lock.
#[derive(Debug)]
pub(crate) struct WaitSpan {
    span: Span,
    key: Box<str>,
    since: Instant,
}

impl WaitSpan {
    /// `None` without a subscriber for it.
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

    /// Polls the future inside this span.
    pub(crate) fn around<F: Future>(&self, waiting: F) -> Instrumented<F> {
        waiting.instrument(self.span.clone())
    }

    /// Ends the span. The path is that of the hold.
    pub(crate) fn end(self, outcome: Result<Option<Path>, &LockError>) {
        self.span.record("lock.waited_ms", millis(self.since.elapsed()));
        self.span.record("lock.outcome", Outcome::of(outcome).name());
        match outcome {
            Ok(path) => {
                if let Some(path) = path {
                    self.span.record("lock.path", path.name());
                }
            }
            Err(error) => {
                // With several keys it may not be the key of the span.
                if let Some(key) = error.key().filter(|key| **key != *self.key) {
                    self.span.record("lock.key", key);
                }
                if let LockError::Timeout { holder: Some(holder), .. } = error {
                    self.span.record("lock.holder", holder.as_str());
                }
            }
        }
    }
}

/// The span of a hold; `None` without a subscriber. Boxed, because most holds have none.
#[derive(Debug, Default)]
pub(crate) struct HoldSpan(Option<Box<Span>>);

impl HoldSpan {
    pub(crate) fn begin(key: &str, prefix: &str, note: Option<&str>, path: Option<Path>) -> Self {
        let span = tracing::debug_span!(
            target: "lock_runtime",
            "cache_lock.hold",
            lock.key = key,
            lock.prefix = prefix,
            lock.path = path.map(Path::name),
            lock.note = note,
            lock.outcome = field::Empty,
        );
        Self((!span.is_disabled()).then(|| Box::new(span)))
    }

    /// Whether it has begun, and has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Enters the span for one poll.
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        self.0.as_ref().map(|span| span.enter())
    }

    /// Ends the span after the release of the lock, which may have failed, or after its loss.
    pub(crate) fn end(&mut self, error: Option<&LockError>) {
        if let Some(span) = self.0.take() {
            let outcome = match error {
                None => "released",
                Some(error) if error.is_lost() => "lost",
                // The release is repeated in the background.
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
