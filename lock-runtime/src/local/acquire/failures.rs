//! Why a task gets no hold: the error of each way to fail.

use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::local::Core;
use crate::local::slot::Slot;
use crate::lock::{Attempt, Lock, LockStatus, ResolvedRequest, Told};
use crate::protocol::StoreError;
use crate::store::Store;
use crate::timing::{SILENCE, SILENCE_OF_ANY_SERVER, TURN_PATIENCE};
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

/// How long the answer of a far store may take. No command waits longer than the command timeout. So a command that had the whole
/// command timeout was not cut short, however far away the server is. A verb may take several commands, one after the other.
pub(super) fn far_answer(core: &Core) -> Duration {
    let of_a_command = (core.store().round_trip() * 2).min(core.settings().command_timeout);
    mutant!(VerbIsOneCommand => return of_a_command);
    of_a_command * core.store().kind().round_trips_of_a_verb
}

pub(super) fn too_many(request: &ResolvedRequest, limit: usize) -> LockError {
    LockError::TooManyWaiters { key: request.key.to_string(), limit }
}

pub(super) fn shut_down(request: &ResolvedRequest) -> LockError {
    LockError::ShutDown { key: request.key.to_string() }
}

pub(super) fn forked_error(request: &ResolvedRequest) -> LockError {
    LockError::Forked { key: request.key.to_string() }
}

/// Whether a task was not polled when its command had to be answered, by `deadline`. Then it says nothing of the store that the task
/// read no answer.
pub(super) fn comes_late(deadline: Deadline) -> bool {
    mutant!(UnreadIsSilence => return false);
    deadline.start().elapsed() > deadline.span().saturating_add(TURN_PATIENCE)
}

/// The error of a single try whose task was not polled for so long that its turn, or its time, was over.
pub(crate) fn polled_late(waited: Duration) -> StoreError {
    StoreError::later(BackendError::new(format!(
        "the task was polled again only {waited:?} after its call: it is not known whether the lock is free; something \
         blocks the runtime's threads"
    )))
}

/// Why a single try can't say whether the lock is taken, or why siblings can't: they read no answer in time. A try that says
/// "busy" means that somebody has the lock. A longer wait that ends says only that its time is over, when anything was asked in it.
fn unread_answer(core: &Core, request: &ResolvedRequest, attempt: &Attempt) -> Option<StoreError> {
    mutant!(UnreadIsBusy => return None);
    let waited = attempt.started.elapsed();
    // Of several keys, a try is the beginning of a longer wait.
    let waits = request.whole().is_some_and(|whole| !whole.is_try());
    let is_unread_try = attempt.is_try() && attempt.tried && !waits;
    if is_unread_try && comes_late(attempt.by()) {
        // The lock may have been granted meanwhile, and passed on because this task did not come (rule L7).
        return Some(polled_late(waited));
    }
    if is_unread_try {
        return match attempt.told() {
            Told::No => None,
            Told::Yes => Some(polled_late(waited)),
            // Its own command came behind a sibling's, and had what was left of the time.
            Told::Nothing if is_behind_sibling(core, attempt) => None,
            Told::Nothing | Told::Lost => Some(core.store().unanswered(&request.key, waited)),
        };
    }
    if is_never_sent(attempt) {
        return Some(polled_late(waited));
    }
    // Siblings may have asked one after another, each of them gone before the store answered.
    attempt.has_counted_none(core.answers()).then(|| core.store().unanswered(&request.key, waited))
}

/// Whether a single try has waited for a sibling that was answered: the sibling was there before it.
fn is_behind_sibling(core: &Core, attempt: &Attempt) -> bool {
    mutant!(SiblingBeforeForgotten => return false);
    attempt.has_counted() && !attempt.has_counted_none(core.answers())
}

/// The server's silence for at least as long as counts for this task, which waited for siblings. They may have asked one after another,
/// and the last of them has only begun.
fn silent_server(core: &Core, request: &ResolvedRequest, attempt: &Attempt, silence: Duration) -> Option<StoreError> {
    mutant!(EarlierSilenceForgotten => return None);
    let silent_for = core.store().silent_for(&request.key).filter(|_| attempt.waited)?;
    (silent_for >= silence).then(|| core.store().unanswered(&request.key, silent_for))
}

/// Whether a task could not send its own command, and came so late to that failure that it says nothing of the store.
fn is_never_sent(attempt: &Attempt) -> bool {
    mutant!(UnsentIsBusy => return false);
    attempt.has_failed() && !attempt.waited && comes_late(attempt.by())
}

/// The error of a task whose time is up. A busy lock and an unreachable store never look alike.
pub(super) fn error_at_timeout(core: &Core, slot: &Slot, request: &ResolvedRequest, attempt: &Attempt) -> LockError {
    let key = &*request.key;
    if let Some(error) = slot.ask(|lock| lock.too_short(request.expire, attempt.time_of_outlived_grant(), slot)) {
        return error.of_lock(key);
    }
    // A task whose timeout is shorter than the usual silence heard nothing in all its time.
    let usual = SILENCE.max(far_answer(core));
    let is_begun = request.whole().is_some_and(|whole| whole.is_begun);
    // What is left for one of several keys is no measure: the server had the time of the whole request.
    let timeout = request.whole().map_or(request.timeout, |whole| whole.give_up.span());
    let silence = if attempt.has_failed() && !attempt.has_counted() {
        // Its own command had all the time that there was, unless the task waited for a sibling's command or for another key first.
        // Then the command had what was left: from a far server that may be too little.
        let had_all = !attempt.waited && !is_begun;
        if had_all { SILENCE_OF_ANY_SERVER } else { far_answer(core).min(timeout).max(SILENCE_OF_ANY_SERVER) }
    } else if request.is_try() {
        usual
    } else {
        timeout.clamp(SILENCE_OF_ANY_SERVER, usual)
    };
    let was_here = match slot.ask(|lock| lock.status(silence, slot)) {
        LockStatus::Unreachable(error) => return error.of_lock(key),
        LockStatus::Silent(since) => return core.store().unanswered(key, since).of_lock(key),
        // This process had the lock meanwhile, and left too little time for an answer.
        LockStatus::Unknown if attempt.was_held_here() => true,
        LockStatus::Unknown => {
            match unread_answer(core, request, attempt).or_else(|| silent_server(core, request, attempt, silence)) {
                Some(error) => return error.of_lock(key),
                None => false,
            }
        }
        LockStatus::HeldHere => true,
        LockStatus::HeldElsewhere => false,
    };
    taken(core, slot, request, attempt, was_here)
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
    let owner = slot.ask(|lock| lock.owner_seen().cloned()).filter(|_| !is_held_here);
    let rests = owner.as_ref().is_some_and(Token::rests);
    let held_here = is_held_here || owner.is_some_and(|owner| core.is_own_token(&owner));
    let holder = if held_here { Some(core.label().to_owned()) } else { slot.ask(Lock::holder_elsewhere) };
    let waited = if request.is_try() { Duration::ZERO } else { attempt.started.elapsed() };
    let frees_in = if is_held_here { None } else { slot.ask(|lock| lock.frees_in(Moment::now())) };
    let error = LockError::Timeout { key, waited, holder, held_here, frees_in, rests };
    core.note_timeout(request, waited, &error, slot.ask(|lock| lock.holder_seen_for(slot)));
    error
}
