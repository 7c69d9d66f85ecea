//! The checks. Each is a fn over a whole history that returns its violations, shortest stretch first.

mod exclusion;
mod fencing;
mod free_time;
mod lasting;
mod order;
mod orphans;
mod owners;
mod progress;
mod register;
mod resources;
mod truth;

pub use exclusion::claims_never_overlap;
pub use fencing::fences_increase;
pub use free_time::{a_free_lock_is_taken, a_released_lock_passes_on};
pub use lasting::holds_last;
pub use order::waiters_are_not_passed_over;
pub use orphans::{no_lock_is_left_behind, unused_locks_are_released};
pub use owners::{claims_are_backed_by_the_server, owners_change_by_the_rules};
pub use progress::{acquires_return_in_time, all_goes_on_after_the_faults, longest_wait};
pub use register::the_register_loses_nothing;
pub use resources::all_is_released;
pub use truth::{errors_are_true, losses_are_told};

use std::time::Duration;

use super::claims::{Attempt, History};
use super::event::span;

/// A check.
pub type Check = fn(&History, &Bounds) -> Vec<Violation>;

/// All checks with their names.
pub const ALL: [(&str, Check); 16] = [
    ("C1 claims never overlap", claims_never_overlap),
    ("C2 fences increase", fences_increase),
    ("C3 the register loses nothing", the_register_loses_nothing),
    ("C4 all goes on after the faults", all_goes_on_after_the_faults),
    ("C4 acquires return in time", acquires_return_in_time),
    ("C5 a free lock is taken", a_free_lock_is_taken),
    ("C5 a released lock passes on", a_released_lock_passes_on),
    ("C6 no lock is left behind", no_lock_is_left_behind),
    ("C6 unused locks are released", unused_locks_are_released),
    ("C7 owners change by the rules", owners_change_by_the_rules),
    ("C7 claims are backed by the server", claims_are_backed_by_the_server),
    ("C8 errors are true", errors_are_true),
    ("C8 losses are told", losses_are_told),
    ("C9 all is released", all_is_released),
    ("C10 holds last", holds_last),
    ("promise 6: waiters are not passed over", waiters_are_not_passed_over),
];

/// The settings of a run that decide what is correct.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent settings")]
pub struct Bounds {
    /// The longest lease of all requests.
    pub lease: Duration,
    /// What a busy machine may add to any time.
    pub noise: Duration,
    /// The round trip time to the server.
    pub round_trip: Duration,
    /// How long an acquire with a timeout of zero may wait for its one reply.
    pub answer: Duration,
    /// The server may lose its data: holds may overlap, but fencing tokens must grow.
    pub forgetful: bool,
    /// The lock reports losses, and distinguishes busy from unreachable.
    pub tells: bool,
    /// The lock has a queue of processes.
    pub queues: bool,
    /// The lock is on several servers. Two processes that ask at the same time may each get some of them, and then both see a
    /// busy lock.
    pub splits: bool,
    /// How long a process may keep a lock without a hold, while nobody else waits for it.
    pub linger: Duration,
}

impl Bounds {
    /// How many nanoseconds may pass before `promised` counts as broken. A connection takes three round trips, then an ask and a
    /// release take one each.
    fn allow(&self, promised: Duration) -> u64 {
        span(promised + self.noise + self.round_trip * 5)
    }

    /// [`allow`](Self::allow) without the round trips.
    fn allow_anywhere(&self, promised: Duration) -> u64 {
        span(promised + self.noise)
    }

    /// How long a crash or a lost release may delay others.
    fn crash(&self) -> Duration {
        self.lease + Duration::from_secs(1)
    }
}

/// A broken promise, and the stretch of history that shows it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The name of the check.
    pub check: &'static str,
    /// What is wrong.
    pub text: String,
    /// The lock.
    pub key: Option<String>,
    /// The first and the last relevant instant.
    pub range: (u64, u64),
}

impl Violation {
    fn of(attempt: &Attempt, range: (u64, u64), text: String) -> Self {
        Self { check: "", text, key: Some(attempt.key.clone()), range }
    }
}

/// Runs all checks; the shortest stretch of each check comes first.
#[must_use]
pub fn judge(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut all = Vec::new();
    for (name, check) in ALL {
        let mut found = check(history, bounds);
        found.sort_by_key(|violation| violation.range.1.saturating_sub(violation.range.0));
        all.extend(found.into_iter().map(|violation| Violation { check: name, ..violation }));
    }
    all
}

/// The process and task of an attempt, as text.
fn who(attempt: &Attempt) -> String {
    format!("{}/{}", attempt.process, attempt.task)
}

/// Nanoseconds as milliseconds, as text.
fn ms(nanos: u64) -> String {
    format!("{}.{:03} ms", nanos / 1_000_000, nanos / 1000 % 1000)
}
