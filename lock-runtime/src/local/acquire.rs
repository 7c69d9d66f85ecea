//! [`acquire`]: from a request to a hold.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::asking::{Outlook, SILENCE};
use super::call::Rejoined;
use super::crowd::Waiting;
use super::hold::Hold;
use super::slot::{Entered, Slot};
use super::terms::Terms;
use super::turn::{Attempt, Step, Turn};
use crate::LockError;
use crate::clock::Moment;
use crate::engine::Engine;
use crate::store::{Reach, Retry, Store, one};

/// A server that has answered before is not called unreachable for leaving the last command unanswered so briefly, or for
/// two round trips.
const CUT_SHORT: Duration = Duration::from_millis(100);
/// Nor is any server.
const TOO_SHORT: Duration = Duration::from_millis(20);

/// Waits for the turn among the tasks of this process, then for the lease among processes.
///
/// Cancel safe at every await: a place in the queue leaves it when dropped, and the turn gives back on drop whatever
/// was granted or is still asked for.
pub(crate) async fn acquire(engine: &Arc<Engine>, terms: &Terms) -> Result<Hold, LockError> {
    if engine.is_closed() {
        return Err(shut_down(terms));
    }
    let mut attempt = Attempt::new(terms.timeout, engine.settings().command_timeout);
    if engine.is_inherited_at(attempt.started) {
        return Err(forked(terms));
    }
    // Whether the clocks were read a moment ago.
    let mut is_first = true;
    loop {
        let (slot, entered) = engine.table().enter(engine, &terms.key, terms.fenced, !terms.timeout.is_zero());
        match entered {
            Entered::Turn(id) => {
                // Boxed: every waiter's future would have room for the store's commands, which most never send.
                let now = is_first.then_some(attempt.started);
                return Box::pin(drive(engine, Turn::new(&slot, id), terms, &mut attempt, now, None)).await;
            }
            Entered::Waiting(id, receiver, waiting) => {
                let turn = wait(engine, &slot, terms, &mut attempt, Place { slot: &slot, id, receiver }).await?;
                let now = Moment::now();
                if attempt.is_over(now) {
                    return Err(given_up(engine, &slot, terms, &attempt));
                }
                return match take_over(engine, turn, terms, now) {
                    Ok(hold) => Ok(hold),
                    Err(turn) => Box::pin(drive(engine, turn, terms, &mut attempt, Some(now), Some(waiting))).await,
                };
            }
            // Somebody here is just asking: whether the lock is taken, or the store unreachable, is about to be known.
            Entered::Taken if slot.outlook(SILENCE).is_open() && !attempt.by().has_passed() => {
                is_first = false;
                attempt.counts_from(engine.answers(), slot.holds());
                let changed = slot.changed.notified();
                if slot.outlook(SILENCE).is_open() {
                    let _ = tokio::time::timeout(attempt.by().remaining(), changed).await;
                }
                // The task that asked may have failed and be gone, and from the table the slot that knows of it.
                let is_silent = match slot.outlook(SILENCE) {
                    Outlook::Unreachable(_) => true,
                    Outlook::Silent(_) => attempt.by().has_passed(),
                    _ => false,
                };
                if is_silent {
                    return Err(given_up(engine, &slot, terms, &attempt));
                }
            }
            Entered::Taken => return Err(given_up(engine, &slot, terms, &attempt)),
            Entered::Full(limit) => return Err(too_many(terms, limit)),
        }
    }
}

/// Waits in the queue of the process.
async fn wait(
    engine: &Engine,
    slot: &Slot,
    terms: &Terms,
    attempt: &mut Attempt,
    mut place: Place<'_>,
) -> Result<Turn, LockError> {
    // `close` may have emptied the queue just before this task joined it.
    if engine.is_closed() {
        return Err(shut_down(terms));
    }
    attempt.waited = true;
    match tokio::time::timeout(attempt.give_up().remaining(), &mut place.receiver).await {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(_)) => Err(shut_down(terms)),
        Err(_) => Err(given_up(engine, slot, terms, attempt)),
    }
}

/// Starts the hold on a lease that was handed over good: neither the store nor its room in memory is needed.
fn take_over(engine: &Engine, turn: Turn, terms: &Terms, now: Moment) -> Result<Hold, Turn> {
    let view = if engine.is_closed() { None } else { Hold::start(&turn, terms, now) };
    match view {
        Some(view) => Ok(Hold::new(turn, view, terms.body)),
        None => Err(turn),
    }
}

/// A place in the queue of a slot.
struct Place<'a> {
    slot: &'a Slot,
    id: u64,
    receiver: oneshot::Receiver<Turn>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // A turn that was sent and not received is dropped with the receiver, and passes on.
        self.slot.leave(self.id);
    }
}

/// Does one step after another until the hold starts. The clock need not be read again for the first when it is `now`.
/// The task is counted as `waiting` from its first step that waits, if it was not before.
async fn drive(
    engine: &Engine,
    mut turn: Turn,
    terms: &Terms,
    attempt: &mut Attempt,
    mut now: Option<Moment>,
    mut waiting: Option<Waiting<'_>>,
) -> Result<Hold, LockError> {
    let store = engine.store();
    let slot = Arc::clone(turn.slot());
    loop {
        let now = now.take().unwrap_or_else(Moment::now);
        if engine.is_closed() {
            return Err(shut_down(terms));
        }
        let changed = slot.changed.notified();
        let by = attempt.by().counted_from(now);
        let step = turn.step(terms, attempt, now);
        if step.waits() && waiting.is_none() {
            waiting = Some(engine.crowd().enter(0).map_err(|limit| too_many(terms, limit))?);
        }
        let outcome = match step {
            // A token is made once: that is worth a system call beside the round trip.
            Step::Claim(_) | Step::Ask(_) if engine.is_inherited() => return Err(forked(terms)),
            Step::Hold => match Hold::start(&turn, terms, now) {
                Some(view) => return Ok(Hold::new(turn, view, terms.body)),
                None => continue,
            },
            Step::Claim(ask) => {
                attempt.tried = true;
                let claimed = store.claim(&ask, by).await.map(|answer| turn.claimed(&ask, answer));
                claimed.inspect_err(|error| slot.on_failed_ask(&ask, error))
            }
            Step::Ask(ask) => {
                attempt.tried = true;
                let asked = one(store.ask(std::slice::from_ref(&ask), by).await).map(|answer| {
                    turn.answered(&ask, answer);
                    engine.keeper().watch_queue(turn.slot());
                });
                asked.inspect_err(|error| slot.on_failed_ask(&ask, error))
            }
            Step::Confirm(renewal) => {
                attempt.tried = true;
                if attempt.note_outlived(slot.outlived_lease(now)) {
                    return Err(given_up(engine, &slot, terms, attempt));
                }
                one(store.renew(std::slice::from_ref(&renewal), by).await).map(|outcome| turn.confirmed(outcome))
            }
            Step::Draw(token, count) => {
                attempt.tried = true;
                store.draw(&terms.key, &token, count, by).await.map(|first| turn.drawn(first, count))
            }
            Step::TakeBack(withdrawal) => {
                engine.withdraw(withdrawal);
                continue;
            }
            Step::Wait(pause) => {
                // Whether a wake-up or the time ended the wait does not matter: the next step looks again.
                let _ = tokio::time::timeout(pause, changed).await;
                continue;
            }
            Step::Rejoin => {
                turn = match slot.rejoin(turn, terms.fenced) {
                    Rejoined::Turn(turn) => turn,
                    Rejoined::Waiting(id, receiver) => {
                        let place = Place { slot: &slot, id, receiver };
                        if waiting.is_none() {
                            waiting = Some(engine.crowd().enter(0).map_err(|limit| too_many(terms, limit))?);
                        }
                        wait(engine, &slot, terms, attempt, place).await?
                    }
                };
                continue;
            }
            Step::GiveUp => {
                return Err(given_up(engine, &slot, terms, attempt));
            }
        };
        match outcome {
            Ok(()) => {
                engine.note_answer();
                if attempt.has_failed() {
                    slot.asked(None);
                }
                attempt.succeeded();
                if terms.timeout.is_zero() && slot.is_behind_itself() {
                    attempt.begin_anew();
                }
            }
            Err(_) if engine.is_inherited() => return Err(forked(terms)),
            Err(error) if error.retry == Retry::Never => {
                return Err(error.of_lock(&terms.key));
            }
            Err(error) => {
                let brief = if slot.was_answered() { CUT_SHORT } else { TOO_SHORT }.max(far_answer(engine));
                // Without a connection nothing was asked, however little time there was.
                let is_unsent = error.reach == Reach::Unsent;
                // A command that the timeout cut short says nothing about the server.
                if !error.out_of_time || is_unsent || now.elapsed() >= brief || !attempt.give_up().has_passed() {
                    slot.asked(Some(error));
                }
                attempt.failed();
            }
        }
    }
}

/// How long the answer of a far server may take. No command waits for longer than the command timeout, so one that had all
/// of it was not cut short, however far away the server is.
fn far_answer(engine: &Engine) -> Duration {
    (engine.store().round_trip() * 2).min(engine.settings().command_timeout)
}

fn too_many(terms: &Terms, limit: usize) -> LockError {
    LockError::TooManyWaiters { key: terms.key.to_string(), limit }
}

fn shut_down(terms: &Terms) -> LockError {
    LockError::ShutDown { key: terms.key.to_string() }
}

fn forked(terms: &Terms) -> LockError {
    LockError::Forked { key: terms.key.to_string() }
}

/// The error of a task whose time is up: busy and unreachable never look alike.
fn given_up(engine: &Engine, slot: &Slot, terms: &Terms, attempt: &Attempt) -> LockError {
    let key = terms.key.to_string();
    if let Some(error) = slot.too_short(terms.expire, attempt.outlived.map(|(took, _)| took)) {
        return error.of_lock(&key);
    }
    // Who waits for less than the usual silence has heard nothing in all its time.
    let usual = SILENCE.max(far_answer(engine));
    let silence = match terms.timeout {
        // Its own command had all the time that there was: it did not wait for that of a sibling first.
        _ if attempt.has_failed() && !attempt.has_counted() && !attempt.waited => TOO_SHORT,
        // It had what was left after it waited for a sibling: from a far server that may be too little.
        timeout if attempt.has_failed() && !attempt.has_counted() => far_answer(engine).min(timeout).max(TOO_SHORT),
        Duration::ZERO => usual,
        timeout => timeout.clamp(TOO_SHORT, usual),
    };
    let holder = match slot.outlook(silence) {
        Outlook::Unreachable(error) => return error.of_lock(&key),
        Outlook::Silent(since) => return engine.store().unanswered(since).of_lock(&key),
        // It left too little time for an answer.
        Outlook::Unknown if attempt.has_counted_hold(slot.holds()) => Some(engine.label().to_owned()),
        // The one command of a single try was not answered: that the lock is taken is not known.
        Outlook::Unknown if terms.timeout.is_zero() && attempt.has_failed() => {
            return engine.store().unanswered(attempt.started.elapsed()).of_lock(&key);
        }
        // Its siblings asked one after another, and each was gone before there was an answer.
        Outlook::Unknown if attempt.has_counted_none(engine.answers()) => {
            return engine.store().unanswered(attempt.started.elapsed()).of_lock(&key);
        }
        Outlook::HeldHere => Some(engine.label().to_owned()),
        Outlook::HeldElsewhere | Outlook::Unknown => slot.holder_elsewhere(),
    };
    let waited = if terms.timeout.is_zero() { Duration::ZERO } else { attempt.started.elapsed() };
    LockError::Timeout { key, waited, holder }
}
