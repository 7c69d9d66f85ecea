//! [`Others`]: the locks of a guard behind its first.

use futures_util::future::{Either, join_all, ready};
use tokio::sync::OwnedMutexGuard;

use crate::LockError;
use crate::clock::Moment;
use crate::local::{Hold, HoldHandle, Releasing};

/// The locks of a guard behind its first.
pub(super) struct Others {
    /// In the order of the names. A hold is `None` when it is borrowed from an outer body.
    pub(super) members: Vec<(HoldHandle, Option<Hold>)>,
    /// For each key as it was given: its place among all locks of the guard.
    pub(super) given: Box<[usize]>,
    /// The turns in the outer bodies whose holds are borrowed.
    pub(super) turns: Vec<OwnedMutexGuard<()>>,
}

impl Others {
    /// Its holds, and whether each is borrowed from an outer body.
    pub(super) fn holds(&self) -> impl Iterator<Item = (&HoldHandle, bool)> {
        self.members.iter().map(|(handle, hold)| (handle, hold.is_none()))
    }

    pub(super) fn are_borrowed(&self) -> bool {
        self.members.iter().all(|(_, hold)| hold.is_none())
    }

    /// Releases all locks at the same time, the first of the guard as well. A loss is told before any other error.
    pub(super) async fn release(self, first: HoldHandle, hold: Option<Hold>) -> Result<(), LockError> {
        let Self { members, turns, .. } = self;
        let all = [(first, hold)].into_iter().chain(members);
        let now = Moment::now();
        let outcomes = join_all(all.map(|(handle, hold)| release(&handle, hold, now))).await;
        drop(turns);
        let mut errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        let told = errors.iter().position(LockError::is_lost).unwrap_or_default();
        if errors.is_empty() { Ok(()) } else { Err(errors.swap_remove(told)) }
    }
}

/// Ends the hold at once: what is not polled again keeps no lock. The future waits for the answers of the store.
fn release(handle: &HoldHandle, hold: Option<Hold>, now: Moment) -> Releasing {
    match hold {
        Some(hold) => hold.release_beside_others(now),
        None if handle.is_valid() => Either::Left(ready(Ok(()))),
        None => Either::Left(ready(Err(handle.lost_error(true)))),
    }
}
