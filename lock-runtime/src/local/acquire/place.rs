//! [`QueuePlace`]: how a task waits for the turn among the tasks of its process.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Timeout;
use tokio::time::error::Elapsed;

use super::failures::{error_at_timeout, shut_down};
use crate::LockError;
use crate::clock::Moment;
use crate::local::slot::Slot;
use crate::local::slot::permits::PermitQueue;
use crate::local::turn::Turn;
use crate::lock::{Attempt, ResolvedRequest, Waiter};

/// A place in the queue of a slot, or in the queue of all permits of a name. As a future it waits for the turn, and yields `None`
/// when nobody will pass on the turn any more.
pub(super) struct QueuePlace<'a> {
    slot: &'a Arc<Slot>,
    /// The slot with another permit of the name, which has taken the task from the queue of all permits.
    taken_by: Option<Arc<Slot>>,
    /// `None` once the task was called: it has the turn. No id is zero.
    id: Option<NonZeroU64>,
    /// Whether the task waits inside of a body.
    is_inside: bool,
}

impl<'a> QueuePlace<'a> {
    /// The place `id`, which `slot` gave.
    pub(super) fn new(slot: &'a Arc<Slot>, id: u64, request: &ResolvedRequest) -> Self {
        Self { slot, taken_by: None, id: NonZeroU64::new(id), is_inside: request.is_inside }
    }

    /// The place `id` in the slot's own queue, whoever has given the id.
    pub(super) fn in_queue_of(slot: &'a Arc<Slot>, id: u64, request: &ResolvedRequest) -> Self {
        Self { slot, taken_by: Some(Arc::clone(slot)), id: NonZeroU64::new(id), is_inside: request.is_inside }
    }

    /// The place of a task that has the turn `turn` and waits for a permit in the store: a permit of this process may come free first.
    /// `None` when the lock has no other permits.
    pub(super) fn of_asker(slot: &'a Arc<Slot>, turn: u64, request: &ResolvedRequest) -> Option<Self> {
        mutant!(AskersWaitElsewhere => return None);
        let permits = slot.permits.as_deref().filter(|_| PermitQueue::has_made(turn))?;
        permits.add_asker(turn, Waiter::new(request));
        Some(Self::new(slot, turn, request))
    }

    /// Waits for the turn until the attempt is given up. [`turn_of`] takes in the end of the wait.
    pub(super) fn wait(self, attempt: &mut Attempt, now: Moment) -> Timeout<Self> {
        attempt.waited = true;
        tokio::time::timeout_at(attempt.give_up().counted_from(now).on_timer(), self)
    }

    /// The queue of all permits, if the task waits there.
    fn permits(&self, id: u64) -> Option<&PermitQueue> {
        let permits = self.slot.permits.as_deref().filter(|_| PermitQueue::has_made(id));
        permits.filter(|_| self.taken_by.is_none())
    }

    /// The slot in whose own queue the task waits, or has waited.
    fn slot(&self) -> &Arc<Slot> {
        self.taken_by.as_ref().unwrap_or(self.slot)
    }
}

impl Future for QueuePlace<'_> {
    type Output = Option<Turn>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Turn>> {
        // `close` may have emptied the queue just before this task joined it.
        let Some(id) = self.id.map(NonZeroU64::get).filter(|_| !self.slot.core.refuses(self.is_inside)) else {
            return Poll::Ready(None);
        };
        if let Some(permits) = self.permits(id) {
            let Some(slot) = permits.poll(id, context.waker()) else {
                // Of those whom `close` has taken out, nobody has the turn.
                return if is_emptied(self.slot, self.is_inside) { Poll::Ready(None) } else { Poll::Pending };
            };
            self.taken_by = Some(slot);
        }
        if !self.slot().poll_turn(id, context.waker()) {
            return Poll::Pending;
        }
        self.id = None;
        Poll::Ready(Some(Turn::new(self.slot(), id)))
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        mutant!(DeadTurnNotPassed => return);
        let Some(id) = self.id.map(NonZeroU64::get) else { return };
        if let Some(permits) = self.permits(id) {
            let Some(slot) = permits.leave(id) else { return };
            self.taken_by = Some(slot);
        }
        if self.slot().leave(id) {
            // Rule L5: a waiter that is gone is skipped.
            drop(Turn::new(self.slot(), id));
        }
    }
}

fn is_emptied(slot: &Slot, is_inside: bool) -> bool {
    mutant!(EmptiedQueueAwaited => return false);
    slot.core.refuses(is_inside)
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
