//! [`NoHold`]: why a task whose time is up has no hold. A busy lock and an unreachable store never look alike (promise 7), and that a
//! task read no answer in time says nothing of the store when the task was not polled.

use std::time::Duration;

use super::attempt::{Attempt, Told};
use super::request::ResolvedRequest;
use super::status::{Failure, LockStatus};
use super::{Env, Lock};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::protocol::{Reach, StoreError};
use crate::timing::{SILENCE, SILENCE_OF_ANY_SERVER, SILENCE_OF_KNOWN_SERVER, TURN_PATIENCE};

/// Why a task whose time is up has no hold.
#[derive(Debug)]
pub(crate) enum NoHold {
    /// Somebody has the lock: a task here, or another process.
    Busy { here: bool },
    /// The store has not answered for this long.
    Silent(Duration),
    /// It is not known who has the lock, for another reason.
    Unknown(StoreError),
}

impl Lock {
    /// Why the task of `attempt` has no hold at `now`, when its time is up.
    pub(crate) fn why_no_hold(
        &self,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
        now: Moment,
    ) -> NoHold {
        if let Some(error) = self.too_short(request.expire, attempt.time_of_outlived_grant(), env) {
            return NoHold::Unknown(error);
        }
        let silence = silence_of(request, attempt, env);
        match self.status(silence, env) {
            LockStatus::HeldHere => NoHold::Busy { here: true },
            LockStatus::HeldElsewhere => NoHold::Busy { here: false },
            LockStatus::Unreachable(error) => NoHold::Unknown(error),
            LockStatus::Silent(since) => NoHold::Silent(since),
            // This process had the lock meanwhile, and left too little time for an answer.
            LockStatus::Unknown if attempt.was_held_here() => NoHold::Busy { here: true },
            // Another task here has taken the turn: it replaces the holder, or adopts the lock.
            LockStatus::Unknown if is_seized(attempt) => NoHold::Busy { here: true },
            LockStatus::Unknown => unread_answer(request, attempt, env, now)
                .or_else(|| silent_server(attempt, silence, env))
                .unwrap_or(NoHold::Busy { here: false }),
        }
    }

    /// Takes in that the command of the task of `attempt` failed, which had to be answered by `deadline`: counted from when it was sent.
    pub(crate) fn on_failed_command(
        &mut self,
        attempt: &mut Attempt,
        error: StoreError,
        deadline: Deadline,
        env: &dyn Env,
        now: Moment,
    ) {
        if !error.out_of_time || !self.is_excused(attempt, &error, deadline, env, now) {
            let is_brief = error.out_of_time && deadline.span() < env.settings().command_timeout;
            self.failure = Some(Box::new(Failure { error, is_brief }));
        }
        attempt.record_failure(now);
    }

    /// Whether it says nothing of the store that the answer to a command did not come in time.
    fn is_excused(
        &self,
        attempt: &Attempt,
        error: &StoreError,
        deadline: Deadline,
        env: &dyn Env,
        now: Moment,
    ) -> bool {
        // Perhaps only the last command of the verb was cut short.
        let known = if self.was_answered() { SILENCE_OF_KNOWN_SERVER } else { SILENCE_OF_ANY_SERVER };
        let brief = known.max(far_answer(env));
        // Without a connection nothing was asked, so a short time does not excuse the failure.
        let is_unsent = error.reach == Reach::Unsent;
        // A task that came late to a connection says as little of the store as one that read its answer late.
        let is_late = comes_late(deadline, now) && (!is_unsent || !env.is_away());
        // A command that the timeout cut short says nothing about the server.
        let is_cut_short = now.since(deadline.start()) < brief && attempt.give_up().has_passed_at(now);
        is_late || is_cut_short && !is_unsent
    }
}

/// Whether a task was not polled when its command had to be answered, by `deadline`. Then it says nothing of the store that the task
/// read no answer.
pub(crate) fn comes_late(deadline: Deadline, now: Moment) -> bool {
    mutant!(UnreadIsSilence => return false);
    now.since(deadline.start()) > deadline.span().saturating_add(TURN_PATIENCE)
}

/// The error of a task that was not polled for so long that its turn, or its time, was over.
pub(crate) fn polled_late(waited: Duration) -> StoreError {
    StoreError::later(BackendError::new(format!(
        "the task was polled again only {waited:?} after its call: it is not known whether the lock is free; something \
         blocks the runtime's threads"
    )))
}

/// How long the answer of a far store may take. No command waits longer than the command timeout. So a command that had the whole
/// command timeout was not cut short, however far away the server is.
fn far_answer(env: &dyn Env) -> Duration {
    (env.distance() * 2).min(env.settings().command_timeout)
}

/// For how long a store that does not answer is silent, for the task of `attempt`.
fn silence_of(request: &ResolvedRequest, attempt: &Attempt, env: &dyn Env) -> Duration {
    // A task whose timeout is shorter than the usual silence heard nothing in all its time.
    let usual = SILENCE.max(far_answer(env));
    let is_begun = request.whole().is_some_and(|whole| whole.is_begun);
    // What is left for one of several keys is no measure: the server had the time of the whole request.
    let timeout = request.whole().map_or(request.timeout, |whole| whole.give_up.span());
    if attempt.has_failed() && !attempt.has_counted() {
        // Its own command had all the time that there was, unless the task waited for a sibling's command or for another key first.
        // Then the command had what was left: from a far server that may be too little.
        let had_all = !attempt.waited && !is_begun;
        if had_all { SILENCE_OF_ANY_SERVER } else { far_answer(env).min(timeout).max(SILENCE_OF_ANY_SERVER) }
    } else if request.is_try() {
        usual
    } else {
        timeout.clamp(SILENCE_OF_ANY_SERVER, usual)
    }
}

/// Why a single try can't say whether the lock is taken, or why siblings can't: they read no answer in time. A try that says
/// "busy" means that somebody has the lock. A longer wait that ends says only that its time is over, when anything was asked in it.
fn unread_answer(request: &ResolvedRequest, attempt: &Attempt, env: &dyn Env, now: Moment) -> Option<NoHold> {
    mutant!(UnreadIsBusy => return None);
    let waited = now.since(attempt.started);
    let late = || Some(NoHold::Unknown(polled_late(waited)));
    let silent = || Some(NoHold::Silent(waited));
    // Of several keys, a try is the beginning of a longer wait.
    let waits = request.whole().is_some_and(|whole| !whole.is_try());
    if attempt.is_try() && attempt.has_sent() && !waits {
        return match attempt.told() {
            // The lock may have been granted meanwhile, and passed on because this task did not come (rule L7).
            _ if comes_late(attempt.by(), now) => late(),
            Told::No => None,
            Told::Yes | Told::Missed => late(),
            // Its own command came behind a sibling's, and had what was left of the time.
            Told::Nothing if is_behind_sibling(attempt, env) => None,
            Told::Nothing | Told::Lost => silent(),
        };
    }
    if is_never_sent(attempt, now) {
        return late();
    }
    // Siblings may have asked one after another, each of them gone before the store answered.
    if attempt.has_counted_none(env.answers()) { silent() } else { None }
}

/// Whether another task here took the turn of a single try.
fn is_seized(attempt: &Attempt) -> bool {
    mutant!(SeizedTryIsLate => return false);
    attempt.is_try() && attempt.has_replaced
}

/// Whether a single try has waited for a sibling that was answered: the sibling was there before it.
fn is_behind_sibling(attempt: &Attempt, env: &dyn Env) -> bool {
    mutant!(SiblingBeforeForgotten => return false);
    attempt.has_counted() && !attempt.has_counted_none(env.answers())
}

/// The server's silence for at least as long as counts for this task, which waited for siblings. They may have asked one after another,
/// and the last of them has only begun.
fn silent_server(attempt: &Attempt, silence: Duration, env: &dyn Env) -> Option<NoHold> {
    mutant!(EarlierSilenceForgotten => return None);
    let silent_for = if attempt.waited { env.silent_for()? } else { return None };
    (silent_for >= silence).then_some(NoHold::Silent(silent_for))
}

/// Whether a task could not send its own command, and came so late to that failure that it says nothing of the store.
fn is_never_sent(attempt: &Attempt, now: Moment) -> bool {
    mutant!(UnsentIsBusy => return false);
    attempt.has_failed() && !attempt.waited && comes_late(attempt.by(), now)
}
