//! [`acquire`]: from a request to a hold.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::hold::Hold;
use super::slot::{Entered, Slot};
use super::terms::Terms;
use super::turn::{Attempt, Step, Turn};
use crate::LockError;
use crate::clock::Moment;
use crate::engine::Engine;
use crate::store::{Retry, StoreError};

/// A server that has answered before is not called unreachable for leaving the last command unanswered so briefly.
const CUT_SHORT: Duration = Duration::from_millis(100);

/// Waits for the turn among the tasks of this process, then for the lease among processes.
///
/// Cancel safe at every await: a place in the queue leaves it when dropped, and the turn gives back on drop whatever
/// was granted or is still asked for.
pub(crate) async fn acquire(engine: &Arc<Engine>, terms: &Terms) -> Result<Hold, LockError> {
    if engine.is_closed() {
        return Err(shut_down(terms));
    }
    let mut attempt = Attempt::new(terms.timeout);
    let (slot, entered) = engine.table().enter(&terms.key, terms.fenced, !terms.timeout.is_zero());
    let turn = match entered {
        Entered::Turn(id) => {
            let now = Some(attempt.started);
            return drive(Turn::new(engine, &slot, id), terms, &mut attempt, now).await;
        }
        Entered::Taken => return Err(timed_out(engine, &slot, terms, &attempt)),
        Entered::Waiting(id, receiver) => {
            let mut place = Place { slot: &slot, id, receiver };
            // `close` may have emptied the queue just before this task joined it.
            if engine.is_closed() {
                return Err(shut_down(terms));
            }
            match tokio::time::timeout(attempt.give_up.remaining(), &mut place.receiver).await {
                Ok(Ok(turn)) => turn,
                Ok(Err(_)) => return Err(shut_down(terms)),
                Err(_) => return Err(timed_out(engine, &slot, terms, &attempt)),
            }
        }
    };
    drive(turn, terms, &mut attempt, None).await
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
async fn drive(turn: Turn, terms: &Terms, attempt: &mut Attempt, mut now: Option<Moment>) -> Result<Hold, LockError> {
    let engine = Arc::clone(turn.engine());
    let store = engine.store();
    let slot = Arc::clone(turn.slot());
    let mut failure: Option<StoreError> = None;
    loop {
        let now = now.take().unwrap_or_else(Moment::now);
        if engine.is_closed() {
            return Err(shut_down(terms));
        }
        let changed = slot.changed.notified();
        let outcome = match turn.step(terms, attempt, now) {
            Step::Hold => match Hold::start(&turn, terms, now) {
                Some(view) => return Ok(Hold::new(turn, view, terms.body)),
                None => continue,
            },
            Step::Claim(ask) => {
                attempt.tried = true;
                store.claim(&ask, attempt.by).await.map(|answer| turn.claimed(&ask, answer))
            }
            Step::Ask(ask) => {
                attempt.tried = true;
                one(store.ask(std::slice::from_ref(&ask), attempt.by).await).map(|answer| {
                    turn.slot().answered(&ask, answer);
                    engine.keeper().watch_queue(turn.slot());
                })
            }
            Step::Confirm(renewal) => {
                attempt.tried = true;
                one(store.renew(std::slice::from_ref(&renewal), attempt.by).await)
                    .map(|outcome| turn.confirmed(outcome))
            }
            Step::Draw(token, count) => {
                attempt.tried = true;
                store.draw(&terms.key, &token, count, attempt.by).await.map(|first| turn.drawn(first, count))
            }
            Step::Wait(pause) => {
                // Whether a wake-up or the time ended the wait does not matter: the next step looks again.
                let _ = tokio::time::timeout(pause, changed).await;
                continue;
            }
            Step::GiveUp => {
                return Err(match failure {
                    Some(failure) => LockError::Backend { key: terms.key.to_string(), problem: failure.problem },
                    None => timed_out(&engine, turn.slot(), terms, attempt),
                });
            }
        };
        match outcome {
            Ok(()) => {
                failure = None;
                attempt.succeeded();
            }
            Err(error) if error.retry == Retry::Never => {
                return Err(LockError::Backend { key: terms.key.to_string(), problem: error.problem });
            }
            Err(error) => {
                // A command that the timeout cut short says nothing about the server.
                if !(turn.slot().was_answered() && now.elapsed() < CUT_SHORT && attempt.give_up.has_passed()) {
                    failure = Some(error);
                }
                attempt.failed();
            }
        }
    }
}

/// The answer to a verb with one item.
pub(super) fn one<T>(answers: Result<Vec<Result<T, StoreError>>, StoreError>) -> Result<T, StoreError> {
    answers?.pop().unwrap_or_else(|| Err(StoreError::no_answer()))
}

fn shut_down(terms: &Terms) -> LockError {
    LockError::ShutDown { key: terms.key.to_string() }
}

fn timed_out(engine: &Engine, slot: &Slot, terms: &Terms, attempt: &Attempt) -> LockError {
    let holder = if slot.is_held_here() { Some(engine.label().to_owned()) } else { slot.holder_elsewhere() };
    let waited = if terms.timeout.is_zero() { Duration::ZERO } else { attempt.started.elapsed() };
    LockError::Timeout { key: terms.key.to_string(), waited, holder }
}
