//! Why a task gets no hold: the error for each way to fail.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::rounded;
use crate::local::Core;
use crate::local::slot::Slot;
use crate::lock::{Attempt, Blocker, NoHold, ResolvedRequest};
use crate::protocol::StoreError;
use crate::store::Store;
use crate::token::Token;
use crate::{BackendError, LockError};

/// A task that is polled later than this after its time says so. By promise 7 it should have its error within this time.
const LATE: Duration = Duration::from_millis(100);

/// The error if the store has been away for as long as the user allows.
pub(super) fn fail_fast(core: &Core, request: &ResolvedRequest) -> Option<LockError> {
    let after = core.settings().fail_fast?;
    let (away, error) = core.store().outage(&request.key)?;
    if away < after {
        return None;
    }
    core.store().begin_to_connect();
    let text = format!("unreachable for {away:?}: {}", error.problem);
    Some(LockError::Backend { key: request.key.to_string(), problem: BackendError::caused_by(text, error.problem) })
}

pub(super) fn too_many(request: &ResolvedRequest, limit: usize) -> LockError {
    LockError::TooManyWaiters { key: request.key.to_string(), limit }
}

pub(super) fn shut_down(request: &ResolvedRequest) -> LockError {
    LockError::ShutDown { key: request.key.to_string() }
}

/// The error of a task that replaces the holder, and waits when a newer one arrives (rule 25).
pub(super) fn replaced(request: &ResolvedRequest) -> LockError {
    LockError::Lost { key: request.key.to_string(), completed: false, forced: true, max_hold: None, ticket: false }
}

pub(super) fn forked_error(request: &ResolvedRequest) -> LockError {
    LockError::Forked { key: request.key.to_string() }
}

pub(super) fn error_at_timeout(slot: &Slot, request: &ResolvedRequest, attempt: &Attempt, now: Moment) -> LockError {
    let key = &*request.key;
    match slot.peek(|lock| lock.why_no_hold(request, attempt, slot.env(), now)) {
        NoHold::Busy { here } => taken(slot, request, attempt, here, now),
        NoHold::Silent(since) => silent(&slot.core, key, since, since.saturating_sub(attempt.by().span())).of_lock(key),
        NoHold::Failed(error) => error.of_lock(key),
    }
}

/// The error of a task that has no answer after `since`, and was polled this `late`: perhaps the server answered in time.
fn silent(core: &Core, key: &str, since: Duration, late: Duration) -> StoreError {
    let error = core.store().unanswered(key, since);
    if late <= LATE {
        return error;
    }
    let text = format!("{}: this task was polled {:?} late, and may have missed it", error.problem, rounded(late));
    StoreError { problem: BackendError::new(text), ..error }
}

/// The error of a task that did not get the lock because another task or process had it.
pub(super) fn taken(
    slot: &Slot,
    request: &ResolvedRequest,
    attempt: &Attempt,
    was_here: bool,
    now: Moment,
) -> LockError {
    let (core, key) = (&slot.core, String::from(&*request.key));
    let blocker = slot.peek(|lock| lock.blocker(now));
    // A task here may hold the lock in another mode.
    let is_held_here = was_here || core.is_held_here(&key);
    // A hold of this process, in another mode, that has ended since. Who has the lock now is not known.
    let is_over = blocker.owner.as_ref().is_some_and(|owner| core.has_ended(&key, owner));
    let seen_for = blocker.seen_for;
    let blocker = if is_held_here || is_over { Blocker::default() } else { blocker };
    let (holder, note) = blocker.holder_and_note();
    let Blocker { owner, frees_in, .. } = blocker;
    let held_here = is_held_here || owner.as_ref().is_some_and(|owner| core.is_own_token(owner));
    let holder = if held_here { Some(core.label().to_owned()) } else { holder };
    let note = if owner.is_some() { note } else { core.note_here(&key) };
    let waited = if request.is_try() { Duration::ZERO } else { now.since(attempt.started) };
    let rests = owner.as_ref().is_some_and(Token::rests);
    let error = LockError::Timeout { key, waited, holder, note, held_here, frees_in, rests };
    core.note_timeout(request, waited, &error, seen_for);
    error
}
