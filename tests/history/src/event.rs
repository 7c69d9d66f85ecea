//! [`Event`]: one line of a history.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant that is after every other: a lock that has no deadline holds until then.
pub const NEVER: u64 = u64::MAX;

/// A fault: the process that is its target did not get the message that it has a lock.
pub const LOSE_GRANT: &str = "LoseGrant";
/// A fault: the process that is its target did not get the message that its ask is now one of the first (rule 5).
pub const LOSE_NEAR: &str = "LoseNear";
/// A fault: the process that is its target did not get some other message.
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

/// By how much [`wall`] is ahead of [`now`]: of some looks at both the one that was interrupted least.
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

/// A duration as histories count it.
#[must_use]
pub fn span(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// What happened, when, and to whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub t: u64,
    /// Which process: a worker's name with its generation, such as `w2.1`.
    pub process: String,
    /// Which task of it.
    pub task: u32,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// Who may have a lock beside a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// Nobody.
    #[default]
    Alone,
    /// All others that read.
    Read,
    /// Fewer than this many others.
    Permit(u32),
}

/// What a task asks of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// How long it waits, in milliseconds.
    pub timeout: u64,
    /// The lease, in milliseconds.
    pub expire: u64,
    /// Whether the lease is renewed while it is held.
    pub renew: bool,
    /// Whether a fencing token is drawn.
    pub fenced: bool,
    /// Who may have the lock at the same time.
    pub share: Share,
    /// Whether the task asks for several locks together. It may have this lock while it waits for another one, and the other
    /// way round.
    pub together: bool,
}

impl Wanted {
    /// How long it waits.
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

/// How a call ended that did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It did.
    Done,
    /// Somebody else holds the lock.
    Busy,
    /// The server could not be asked.
    Unreachable,
    /// The hold had ended before.
    Lost,
    /// The caller dropped the call.
    Cancelled,
    /// Anything else.
    Failed,
}

/// What can happen. An `attempt` is one acquire and all that follows from it, numbered within its task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants say it; their fields are the same few words")]
pub enum What {
    /// Before an acquire is called.
    Acquire { attempt: u32, key: String, wanted: Wanted },
    /// After it returned a hold that is good until the instant `until`.
    Granted { attempt: u32, until: u64, fence: Option<u64> },
    /// After it returned anything else.
    Refused { attempt: u32, how: How, text: String },
    /// The hold's deadline was looked at again; 0: it holds no more.
    Seen { attempt: u32, until: u64 },
    /// After an extension was answered.
    Extended { attempt: u32, lease: u64, how: How },
    /// Before a release is called, or the hold is dropped.
    Release { attempt: u32, dropped: bool },
    /// After it.
    Released { attempt: u32, how: How, text: String },
    /// The holder entered the fenced register; `accepted` is `None` when no answer came.
    Opened { key: String, fence: u64, accepted: Option<bool> },
    /// The holder wrote to it.
    Wrote { key: String, fence: u64, value: u64, accepted: Option<bool> },
    /// A write that was sent during a hold came to a store, which knows the greatest number that it has seen. `None`: the lock gives no
    /// numbers, and the store takes every write.
    Delivered { key: String, fence: Option<u64>, accepted: bool },
    /// What the register held in the end.
    Final { key: String, value: u64 },
    /// A process could not run from `from` until now.
    Stalled { from: u64 },
    /// The task could run from `from` until now, and was not polled.
    Late { from: u64 },
    /// A fault was in force from `from` until now. `target` is a process, `server` or `wire`.
    Fault { kind: String, target: String, from: u64 },
    /// A process was killed, at this instant or a little later.
    Killed,
    /// No fault from here on.
    Healed,
    /// The server's data was thrown away on purpose.
    Forgot,
    /// A lock's key changed in the server, between `since` and `t`.
    Changed { since: u64, key: String, to: Change },
    /// A count that has to be back to where it was, such as threads of a process.
    Left { thing: String, before: u64, after: u64 },
    /// A process ended as it was told to.
    Ended,
}

/// What a lock's key became.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants say what their few fields are")]
pub enum Change {
    /// It holds `token` until the instant `until`. `next`: the token was taken from the queue in the same step.
    Owned { token: String, until: u64, next: bool },
    /// Its end was set anew.
    Ends { until: u64 },
    /// It was deleted.
    Gone,
}
