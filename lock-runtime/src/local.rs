//! Inside the process: who is next for a key, and which lease of the store that rests on.
//!
//! Per key in use there is one [`Slot`](slot::Slot), and at any time at most one task has the [`Turn`](turn::Turn)
//! in it. The task with the turn drives the store; once the lease is its own it has a [`Hold`](hold::Hold), which
//! is the turn together with a deadline. Ending either passes the turn on, first come first served; a lease that is
//! still good passes on with it, without a round trip. This is lock cohorting (Dice, Marathe, Shavit, "Lock
//! Cohorting", PPoPP 2012) over a lease.
//!
//! The rules it rests on, referred to by number in the code:
//!
//! - L1: a hand-over needs a lease with time left, else the lease is confirmed first, else it ends.
//! - L2: every hold has a fencing token of its own, drawn while the store confirmed ownership.
//! - L3: a lease ends once, by one release; its token is never used again.
//! - L4: a streak of hand-overs is bounded from when another process is known to wait.
//! - L5: a waiter that is gone is skipped; when none is left the lease is given back.
//! - L6: a hold that outlives its deadline ends the whole lease; nothing passes on past a guard that is still alive.

mod acquire;
mod asking;
mod care;
mod hold;
mod lease;
mod slot;
mod table;
mod terms;
mod turn;
mod view;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use acquire::acquire;
pub(crate) use care::{Attention, Due, Entries, Look};
pub(crate) use hold::Hold;
pub(crate) use slot::Slot;
pub(crate) use table::Table;
pub(crate) use terms::{Terms, check_lease};
pub(crate) use turn::{ASK_INTERVAL, Turn};
pub(crate) use view::HoldView;
pub(crate) use watch::Protected;
