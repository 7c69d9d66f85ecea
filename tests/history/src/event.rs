//! [`Event`]: one line of a history.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant after all others: the deadline of a hold that has none.
pub const NEVER: u64 = u64::MAX;

/// A fault: the target process did not get the message that it has a lock.
pub const LOSE_GRANT: &str = "LoseGrant";
/// A fault: the target process did not get the message that its ask is now one of the first (rule 5).
pub const LOSE_NEAR: &str = "LoseNear";
/// A fault: the target process did not get some other message.
pub const LOSE_PUSH: &str = "LosePush";

/// Nanoseconds of `CLOCK_MONOTONIC`: the same clock in all processes of one host.
#[must_use]
pub fn now() -> u64 {
    nanos(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

/// Nanoseconds since 1970, by which Redis ends a lease.
#[must_use]
pub fn wall() -> u64 {
    nanos(rustix::time::clock_gettime(rustix::time::ClockId::Realtime))
}

/// By how much [`wall`] is ahead of [`now`]. Reads both clocks a few times, and takes the reading with the least interruption.
#[must_use]
pub fn wall_is_ahead() -> u64 {
    let look = || {
        let (before, wall, after) = (now(), wall(), now());
        (after - before, wall.saturating_sub(before))
    };
    (0..5).map(|_| look()).min().map_or(0, |(_, ahead)| ahead)
}

fn nanos(time: rustix::time::Timespec) -> u64 {
    span(Duration::try_from(time).expect("a clock after its epoch"))
}

/// A duration in nanoseconds.
#[must_use]
pub fn span(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// What happened, when, and to whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub t: u64,
    /// The process: a worker's name with its generation, such as `w2.1`.
    pub process: String,
    /// The task in the process.
    pub task: u32,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// Who else may have the lock at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// Nobody else.
    #[default]
    Alone,
    /// All other readers.
    Read,
    /// Fewer than this many others.
    Permit(u32),
}

/// A request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The timeout, in milliseconds.
    pub timeout: u64,
    /// The lease, in milliseconds.
    pub expire: u64,
    /// Whether the lease is renewed while it is held.
    pub renew: bool,
    /// Whether to draw a fencing token.
    pub fenced: bool,
    /// Who may have the lock at the same time.
    pub share: Share,
    /// Whether the task asks for several locks together. Then it may have this lock while it waits for another one, and the
    /// other way round.
    pub together: bool,
}

impl Wanted {
    /// The timeout.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout)
    }

    /// The lease.
    #[must_use]
    pub fn expire(&self) -> Duration {
        Duration::from_millis(self.expire)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It did what was asked.
    Done,
    /// Somebody else holds the lock.
    Busy,
    /// The server could not be reached.
    Unreachable,
    /// The hold had ended before.
    Lost,
    /// The caller dropped the call.
    Cancelled,
    /// Anything else.
    Failed,
}

/// What happened. An `attempt` is an acquire and everything that follows from it, numbered within its task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants' docs explain the fields")]
pub enum What {
    /// Before an acquire is called.
    Acquire { attempt: u32, key: String, wanted: Wanted },
    /// After an acquire returned a hold with the deadline `until`.
    Granted { attempt: u32, until: u64, fence: Option<u64> },
    /// After an acquire returned anything else.
    Refused { attempt: u32, how: How, text: String },
    /// The task has looked at the hold's deadline; 0: the hold is over.
    Seen { attempt: u32, until: u64 },
    /// After an extension returned.
    Extended { attempt: u32, lease: u64, how: How },
    /// Before a release is called, or the hold is dropped.
    Release { attempt: u32, dropped: bool },
    /// After it.
    Released { attempt: u32, how: How, text: String },
    /// Before the holder enters the fenced register, or writes this value to it.
    Sent { key: String, fence: u64, value: Option<u64> },
    /// The holder entered the fenced register, and read this value; `accepted` is `None` when no answer came.
    Opened { key: String, fence: u64, accepted: Option<bool>, value: Option<u64> },
    /// The holder wrote to it.
    Wrote { key: String, fence: u64, value: u64, accepted: Option<bool> },
    /// A write that was sent during a hold arrived at a store, which remembers the greatest token that it has seen. `None`: the lock has no
    /// tokens, and the store accepts every write.
    Delivered { key: String, fence: Option<u64>, accepted: bool },
    /// The register's value at the end.
    Final { key: String, value: u64 },
    /// A process could not run from `from` until now.
    Stalled { from: u64 },
    /// The task could run from `from` until now, and was not polled.
    Late { from: u64 },
    /// A fault lasted from `from` until now. `target` is a process, `server` or `wire`.
    Fault { kind: String, target: String, from: u64 },
    /// A process was killed, at this instant or a little later.
    Killed,
    /// There are no faults from here on.
    Healed,
    /// The server's data was deleted on purpose.
    Forgot,
    /// A lock's key changed in the server, between `since` and `t`.
    Changed { since: u64, key: String, to: Change },
    /// A count that must return to its earlier value, such as the threads of a process.
    Left { thing: String, before: u64, after: u64 },
    /// A process ended normally.
    Ended,
}

/// How a lock's key changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants say what their few fields are")]
pub enum Change {
    /// It has `token` until `until`. `next`: the token was taken from the queue in the same step.
    Owned { token: String, until: u64, next: bool },
    /// Its expiry was changed.
    Ends { until: u64 },
    /// It was deleted.
    Gone,
}
