//! Why a task gets no hold: the error of each way to fail.

use std::time::Duration;

use crate::clock::Moment;
use crate::local::Core;
use crate::local::slot::Slot;
use crate::lock::{Attempt, Lock, NoHold, ResolvedRequest};
use crate::store::Store;
use crate::token::Token;
use crate::{BackendError, LockError};

/// The error of a task that does not wait for a store that was away for as long as the user set.
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

/// The error of a task that replaces the holder, and waits while a newer one comes (rule 25).
pub(super) fn replaced(request: &ResolvedRequest) -> LockError {
    LockError::Lost { key: request.key.to_string(), completed: false, forced: true, max_hold: None, ticket: false }
}

pub(super) fn forked_error(request: &ResolvedRequest) -> LockError {
    LockError::Forked { key: request.key.to_string() }
}

/// The error of a task whose time is up.
pub(super) fn error_at_timeout(core: &Core, slot: &Slot, request: &ResolvedRequest, attempt: &Attempt) -> LockError {
    let key = &*request.key;
    match slot.peek(|lock| lock.why_no_hold(request, attempt, slot.env(), Moment::now())) {
        NoHold::Busy { here } => taken(core, slot, request, attempt, here),
        NoHold::Silent(since) => core.store().unanswered(key, since).of_lock(key),
        NoHold::Failed(error) => error.of_lock(key),
    }
}

/// The error of a task that did not get the lock because somebody else had it.
pub(super) fn taken(
    core: &Core,
    slot: &Slot,
    request: &ResolvedRequest,
    attempt: &Attempt,
    was_here: bool,
) -> LockError {
    let key = request.key.to_string();
    // A task here may hold the lock in another mode.
    let is_held_here = was_here || core.is_held_here(&request.key);
    let owner = slot.peek(|lock| lock.owner_seen().cloned()).filter(|_| !is_held_here);
    let rests = owner.as_ref().is_some_and(Token::rests);
    let held_here = is_held_here || owner.is_some_and(|owner| core.is_own_token(&owner));
    let holder = if held_here { Some(core.label().to_owned()) } else { slot.peek(Lock::holder_elsewhere) };
    let waited = if request.is_try() { Duration::ZERO } else { attempt.started.elapsed() };
    let frees_in = if is_held_here { None } else { slot.peek(|lock| lock.frees_in(Moment::now())) };
    let error = LockError::Timeout { key, waited, holder, held_here, frees_in, rests };
    core.note_timeout(request, waited, &error, slot.peek(|lock| lock.holder_seen_for(slot.env())));
    error
}
