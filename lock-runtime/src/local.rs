//! Inside the process: who is next for a key, and which lease of the store that rests on.
//!
//! Per key in use there is one [`Slot`](slot::Slot), and at any time at most one task has the [`Turn`](turn::Turn)
//! in it. The task with the turn drives the store; once the lease is its own it has a [`Hold`](hold::Hold), which
//! is the turn together with a deadline. Ending either passes the turn on, first come first served; a lease that is
//! still good passes on with it, without a round trip. This is lock cohorting (Dice, Marathe, Shavit, "Lock
//! Cohorting", PPoPP 2012) over a lease.
//!
//! The rules it rests on are L1 to L7 in `docs/protocol.md`, referred to by number in the code.

mod acquire;
mod asking;
mod attempt;
mod core;
mod given_up;
mod handle;
mod hold;
mod lease;
mod offer;
mod pending_ask;
mod resolved_request;
mod schedule;
mod slot;
mod table;
mod turn;
mod upkeep;
mod waiter_limit;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use acquire::acquire;
pub(crate) use attempt::answer_time;
pub(crate) use core::Core;
pub(crate) use handle::HoldHandle;
pub(crate) use hold::Hold;
pub(crate) use resolved_request::ResolvedRequest;
pub(crate) use schedule::{Batch, Fate, Schedule};
pub(crate) use slot::{Loss, Slot};
pub(crate) use upkeep::{Action, Round, Trigger};
pub(crate) use watch::Protected;
