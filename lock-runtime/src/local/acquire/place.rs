//! [`QueuePlace`]: how a task waits for the turn among the tasks of its process.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::time::Timeout;
use tokio::time::error::Elapsed;

use super::failures::{error_at_timeout, shut_down};
use crate::LockError;
use crate::clock::Moment;
use crate::local::slot::Slot;
use crate::local::turn::Turn;
use crate::lock::{Attempt, ResolvedRequest};

/// A place in the queue of a slot, or in the queue of all permits of a name. As a future it waits for the turn, and yields `None`
/// when nobody will pass on the turn any more.
pub(super) struct QueuePlace<'a> {
    pub(super) slot: &'a Slot,
    pub(super) id: u64,
    pub(super) receiver: oneshot::Receiver<Turn>,
}

impl QueuePlace<'_> {
    /// Waits for the turn until the attempt is given up. [`turn_of`] takes in the end of the wait.
    pub(super) fn wait(self, attempt: &mut Attempt, now: Moment) -> Timeout<Self> {
        attempt.waited = true;
        tokio::time::timeout_at(attempt.give_up().counted_from(now).on_timer(), self)
    }
}

impl Future for QueuePlace<'_> {
    type Output = Option<Turn>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Turn>> {
        // `close` may have emptied the queue just before this task joined it.
        if self.slot.core.is_closed() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.receiver).poll(context).map(Result::ok)
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        // A turn that was sent but not received is dropped with the receiver, and passes on.
        self.slot.leave(self.id);
    }
}

/// The turn that a task has waited for, or why the task gets none. It leaves its place only after this.
pub(super) fn turn_of(
    waited: Result<Option<Turn>, Elapsed>,
    slot: &Slot,
    request: &ResolvedRequest,
    attempt: &Attempt,
) -> Result<Turn, LockError> {
    let turn = waited.map_err(|_| error_at_timeout(&slot.core, slot, request, attempt))?;
    turn.ok_or_else(|| shut_down(request))
}
