//! [`Others`]: the locks of a guard behind its first.

use futures_util::future::{Either, join_all, ready};
use tokio::sync::OwnedMutexGuard;

use crate::LockError;
use crate::clock::Moment;
use crate::local::{Hold, HoldHandle, Releasing};

/// One lock of a guard.
pub(super) enum Locked {
    Held(Hold),
    /// Its hold is that of an outer body.
    Borrowed(HoldHandle),
}

impl Locked {
    pub(super) fn handle(&self) -> &HoldHandle {
        match self {
            Self::Held(hold) => hold.handle(),
            Self::Borrowed(handle) => handle,
        }
    }

    pub(super) fn is_borrowed(&self) -> bool {
        matches!(self, Self::Borrowed(_))
    }
}

/// The locks of a guard behind its first.
pub(super) struct Others {
    /// In the order of the names.
    pub(super) members: Vec<Locked>,
    /// For each key as it was given: its place among all locks of the guard.
    pub(super) given: Box<[usize]>,
    /// The turns in the outer bodies whose holds are borrowed.
    pub(super) turns: Vec<OwnedMutexGuard<()>>,
}

impl Others {
    /// Its holds, and whether each is borrowed from an outer body.
    pub(super) fn holds(&self) -> impl Iterator<Item = (&HoldHandle, bool)> {
        self.members.iter().map(|lock| (lock.handle(), lock.is_borrowed()))
    }

    pub(super) fn are_borrowed(&self) -> bool {
        self.members.iter().all(Locked::is_borrowed)
    }

    /// Releases all locks at the same time, the first of the guard as well. A loss is told before any other error.
    pub(super) async fn release(self, first: Locked) -> Result<(), LockError> {
        let Self { members, turns, .. } = self;
        let all = [first].into_iter().chain(members);
        let now = Moment::now();
        let outcomes = join_all(all.map(|lock| release(lock, now))).await;
        drop(turns);
        let mut errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        let told = errors.iter().position(LockError::is_lost).unwrap_or_default();
        if errors.is_empty() { Ok(()) } else { Err(errors.swap_remove(told)) }
    }
}

/// Ends the hold at once: what is not polled again keeps no lock. The future waits for the answers of the store.
fn release(lock: Locked, now: Moment) -> Releasing {
    match lock {
        Locked::Held(hold) => hold.release_beside_others(now),
        Locked::Borrowed(handle) if handle.is_valid() => Either::Left(ready(Ok(()))),
        Locked::Borrowed(handle) => Either::Left(ready(Err(handle.lost_error(true)))),
    }
}
