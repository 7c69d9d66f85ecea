//! [`Fault`]: what happens to every lock alike.

use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// A column of the table.
///
/// A server that loses its data is not among them: then every lock here gives the lock to a second holder, this project's too, as
/// `docs/guarantees.md` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Nothing.
    Calm,
    /// The holder is killed: while it holds, or before it learns that it does.
    HolderKilled,
    /// The holder's body is longer than its lease.
    SlowHolder,
    /// The holder's connection is dead for longer than its lease, and so is its body.
    CutOff,
    /// The reply of the acquire never arrives.
    ReplyLost,
    /// The release arrives after the lease's end.
    LateRelease,
    /// Two processes have wall clocks that differ by two seconds.
    ClocksApart,
    /// A waiter is killed.
    WaiterKilled,
}

impl Fault {
    /// Every column, in order.
    pub const ALL: [Self; 8] = [
        Self::Calm,
        Self::HolderKilled,
        Self::SlowHolder,
        Self::CutOff,
        Self::ReplyLost,
        Self::LateRelease,
        Self::ClocksApart,
        Self::WaiterKilled,
    ];

    /// The head of its column, in two lines.
    #[must_use]
    pub fn title(self) -> [&'static str; 2] {
        match self {
            Self::Calm => ["no", "fault"],
            Self::HolderKilled => ["holder", "killed"],
            Self::SlowHolder => ["holder", "too slow"],
            Self::CutOff => ["holder", "cut off"],
            Self::ReplyLost => ["reply", "lost"],
            Self::LateRelease => ["release", "late"],
            Self::ClocksApart => ["clocks", "apart"],
            Self::WaiterKilled => ["waiter", "killed"],
        }
    }

    /// The fault, in a sentence.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Calm => "Nothing is done to anybody.",
            Self::HolderKilled => "The holder is killed: while it holds, or before it hears that it does.",
            Self::SlowHolder => {
                "The holder's body is longer than its lease, and a write that it sent is on its way for that long."
            }
            Self::CutOff => {
                "The holder's connection is dead for longer than its lease, and a write that it sent elsewhere is on its way for that long."
            }
            Self::ReplyLost => {
                "The reply to an acquire never arrives. The leases are longer here than under the other faults."
            }
            Self::LateRelease => "The release arrives after the end of its lease.",
            Self::ClocksApart => "The clocks of two processes are two seconds off.",
            Self::WaiterKilled => "A process that waits is killed.",
        }
    }

    /// The lease that every process asks for. If an acquire leaves something behind, the lease is longer than that may stay.
    pub(crate) fn lease(self) -> Duration {
        Duration::from_millis(if self == Self::ReplyLost { 4500 } else { LEASE })
    }

    /// How long everything continues after the victim has the lock.
    pub(crate) fn act(self) -> Duration {
        Duration::from_millis(match self {
            Self::ReplyLost => 4200,
            Self::LateRelease => 1300,
            _ => 1000,
        })
    }

    /// How long the last acquires wait: long enough for the checker to report a stuck lock. What a lost reply leaves behind is
    /// reported long before.
    pub(crate) fn patience(self) -> Duration {
        if self == Self::ReplyLost { Duration::from_secs(1) } else { self.lease() + Duration::from_millis(4600) }
    }

    /// Whether the victim has the lock before the others ask for it.
    pub(crate) fn hits_a_holder(self) -> bool {
        !matches!(self, Self::Calm | Self::ClocksApart | Self::WaiterKilled)
    }

    /// Whether the victim acquires once only.
    pub(crate) fn is_about_one_hold(self) -> bool {
        matches!(self, Self::SlowHolder | Self::CutOff | Self::ReplyLost | Self::LateRelease)
    }

    /// Whether one of the victim's writes is on its way for longer than its lease.
    pub(crate) fn delays_a_write(self) -> bool {
        matches!(self, Self::SlowHolder | Self::CutOff)
    }

    /// How long a body of the victim takes.
    pub(crate) fn body(self, random: &mut Rng) -> Duration {
        Duration::from_millis(match self {
            Self::Calm | Self::ReplyLost | Self::WaiterKilled => random.u64(2..15),
            Self::HolderKilled => LEASE * 9 / 10,
            Self::SlowHolder | Self::CutOff => LEASE * 5 / 2,
            Self::LateRelease => random.u64(80..120),
            Self::ClocksApart => random.u64(20..60),
        })
    }

    /// How long a body of the others takes.
    pub(crate) fn body_of_others(self, random: &mut Rng) -> Duration {
        Duration::from_millis(match self {
            // So that somebody holds the lock when the victim's release arrives.
            Self::SlowHolder | Self::LateRelease => random.u64(100..180),
            Self::ClocksApart => random.u64(20..60),
            Self::WaiterKilled => random.u64(30..80),
            _ => random.u64(5..20),
        })
    }

    /// By how many milliseconds this victim's clock is ahead.
    pub(crate) fn ahead(self, victim: usize) -> i64 {
        match self {
            Self::ClocksApart if victim.is_multiple_of(2) => 2000,
            Self::ClocksApart => -2000,
            _ => 0,
        }
    }
}

/// The usual lease, in milliseconds.
pub(crate) const LEASE: u64 = 300;
