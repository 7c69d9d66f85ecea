//! The locks inside one process: which task is next for a key, and which lease in the store that rests on.
//!
//! Each key in use has one [`Slot`](slot::Slot), which drives the [`Lock`](crate::lock::Lock) that decides. The task with the
//! [`Turn`](turn::Turn) in it drives the store. When the process has the lease, the task has a [`Hold`](hold::Hold).

mod acquire;
mod adopting;
mod bias;
mod core;
mod counters;
mod env;
mod family;
mod giving;
mod handle;
mod hold;
mod lingering;
mod passing;
mod permits;
mod repeat_limit;
mod schedule;
mod seizing;
mod slot;
mod stand_in;
mod table;
mod turn;
mod waiter_limit;
mod wanted;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use acquire::{acquire, polled_late};
pub(crate) use adopting::adopt;
pub(crate) use core::Core;
pub(crate) use handle::{HoldHandle, Reentry};
pub(crate) use hold::{Hold, Releasing};
pub(crate) use repeat_limit::{RepeatLimit, Warning};
pub(crate) use schedule::{Batch, Fate, OutstandingRelease, Schedule};
pub(crate) use slot::Slot;
pub(crate) use watch::{Protected, Watch};
