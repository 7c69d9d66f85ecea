//! The locks inside one process: which task is next for a key, and which lease in the store that rests on.
//!
//! Each key in use has one [`Slot`](slot::Slot). At any time at most one task has the [`Turn`](turn::Turn) in it. The
//! task with the turn drives the store. When the process has the lease, the task has a [`Hold`](hold::Hold): the turn
//! together with a deadline. When a turn or a hold ends, the turn passes on, first come first served. A lease that is
//! still good passes on with it, without a round trip. This is lock cohorting (Dice, Marathe, Shavit, "Lock Cohorting",
//! PPoPP 2012) over a lease.
//!
//! It rests on the rules L1 to L9 in `docs/protocol.md`. The code refers to them by number.

mod acquire;
mod active_hold;
mod asking;
mod attempt;
mod bias;
mod core;
mod counters;
mod early;
mod ending;
mod family;
mod forced;
mod handle;
mod hold;
mod lease;
mod lingering;
mod offer;
mod pending_ask;
mod permits;
mod readers;
mod refusal;
mod repeat_limit;
mod resolved_request;
mod schedule;
mod sibling;
mod slot;
mod table;
mod terms;
mod turn;
mod upkeep;
mod waiter_limit;
mod wanted;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use acquire::{acquire, polled_late};
pub(crate) use attempt::answer_time;
pub(crate) use core::Core;
pub(crate) use early::Attendance;
pub(crate) use handle::{HoldHandle, Reentry};
pub(crate) use hold::{Hold, Releasing};
pub(crate) use repeat_limit::{RepeatLimit, Warning};
pub(crate) use resolved_request::{IfBusy, PrefixPlace, ResolvedRequest};
pub(crate) use schedule::{Batch, Fate, OutstandingRelease, Schedule};
pub(crate) use slot::Slot;
pub(crate) use terms::{Terms, Whole};
pub(crate) use upkeep::{Action, Round, Trigger};
pub(crate) use watch::{Protected, Watch};
