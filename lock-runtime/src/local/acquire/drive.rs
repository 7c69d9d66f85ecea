//! [`drive`]: the steps of a task that asks the store, and what each of them sends.

use std::pin::pin;
use std::sync::Arc;

use super::Task;
use super::failures::{error_at_timeout, fail_fast, forked_error, replaced, too_many};
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::local::hold::Hold;
use crate::local::slot::Slot;
use crate::local::waiter_limit::CountedWaiter;
use crate::local::{Core, keep_alive};
use crate::lock::{Attempt, LastAnswer, ResolvedRequest, Step};
use crate::protocol::{Answer, Ask, Renewed, Retry, StoreError};
use crate::store::{Store, exactly_one};
use crate::timing::ASK_BACKOFF;

/// Takes one step after another until the hold starts, or the task joins a hold. Each step is taken at `now`.
///
/// A task that is not yet counted in `waiting` is counted before its first step that waits.
#[expect(clippy::manual_async_fn, reason = "an `async fn` would hold its arguments twice")]
pub(super) fn drive<'a>(
    core: &'a Arc<Core>,
    mut task: Task,
    mut step: Step,
    request: &ResolvedRequest,
    attempt: &mut Attempt,
    now: &mut Moment,
    mut waiting: Option<CountedWaiter<'a>>,
) -> impl Future<Output = Result<Hold, LockError>> {
    async move {
        let slot = Arc::clone(task.slot());
        loop {
            // All of these need the store.
            if matches!(step, Step::Claim(_) | Step::Ask(_) | Step::Confirm(_) | Step::Draw(..))
                && let Some(error) = fail_fast(core, request)
            {
                return Err(error);
            }
            // A single command does not count as waiting.
            if waiting.is_none() && matches!(step, Step::Ask(Ask { wait: true, .. }) | Step::Wait(_)) {
                let admitted = core.waiter_limit.admit(0).map_err(|limit| too_many(request, limit))?;
                waiting = Some(admitted.of(request.prefix()));
            }
            match step {
                Step::Hold(started) => return Ok(Hold::new(&task.into_slot(), started, request)),
                Step::Wait(_) => {
                    step = task.wait(request, attempt, now).await?;
                    continue;
                }
                Step::Fail(error) => return Err(error.of_lock(&request.key)),
                Step::Replaced => return Err(replaced(request)),
                Step::GiveUp => {
                    mutant!(OutlivedAtLastUntold => return Err(error_at_timeout(&slot, request, attempt, *now)));
                    note_outlived(&task, request, attempt, *now);
                    return Err(error_at_timeout(&slot, request, attempt, *now));
                }
                // A token is made once per ask, so a system call next to the round trip is acceptable.
                Step::Claim(_) | Step::Ask(_) if core.is_inherited() => return Err(forked_error(request)),
                Step::Confirm(_) if note_outlived(&task, request, attempt, *now) => {
                    attempt.count_as_sent();
                    return Err(error_at_timeout(&slot, request, attempt, *now));
                }
                Step::Withdraw(withdrawal) => core.withdraw(withdrawal),
                Step::Claim(_) | Step::Ask(_) | Step::Confirm(_) | Step::Draw(..) => {
                    let deadline = answer_deadline(core, attempt, *now);
                    match send(core, &task, request, &step, deadline).await {
                        // The task goes on as if it had not tried. Its time runs on.
                        Some(Err(error)) if error.no_room => {
                            mutant!(NoRoomIsFailure => return Err(error.of_lock(&request.key)));
                            attempt.no_room = Some(Box::new(error));
                            // Boxed, because it is rare.
                            Box::pin(task.wait_for_room(core, request, attempt)).await;
                            attempt.on_room(request, Moment::now());
                        }
                        outcome => {
                            attempt.note_sent(matches!(step, Step::Claim(_) | Step::Ask(_)));
                            // From now on the request is known by the token of its first ask in place of the owner.
                            if let (None, Step::Ask(Ask { replaces: Some(replaces), .. })) = (&attempt.replacing, &step)
                            {
                                attempt.replacing = Some(Box::new(replaces.clone()));
                            }
                            if let Some(outcome) = outcome {
                                on_outcome(core, &slot, request, attempt, deadline, outcome)?;
                            }
                        }
                    }
                }
            }
            *now = Moment::now();
            if core.refuses(request.is_inside) {
                return Err(super::shut_down(request));
            }
            step = task.poll(request, attempt, *now, None);
        }
    }
}

/// Notes a lease that was over before its grant arrived. Returns whether the task must report that now.
fn note_outlived(task: &Task, request: &ResolvedRequest, attempt: &mut Attempt, now: Moment) -> bool {
    let slot = task.slot();
    attempt.note_outlived(slot.peek(|lock| lock.outlived_lease(task.id(), request, now, slot.env())))
}

/// Until when a command must be answered. With `fail_fast` this also limits connecting, and the search for another master.
fn answer_deadline(core: &Core, attempt: &Attempt, now: Moment) -> Deadline {
    let by = attempt.by().counted_from(now);
    let settings = core.settings();
    match settings.fail_fast {
        Some(after) => by.min_at(Deadline::new(now, after.max(settings.command_timeout)), now),
        None => by,
    }
}

/// Sends the command of a step, and passes its answer to the lock. Returns what the answer said; `None` if the ask was withdrawn meanwhile.
///
/// Only a claim is stored in this future, since most locks need nothing else. The store boxes the other commands.
async fn send(
    core: &Core,
    task: &Task,
    request: &ResolvedRequest,
    step: &Step,
    deadline: Deadline,
) -> Option<Result<LastAnswer, StoreError>> {
    let (store, slot, overtakes, sent) = (core.store(), task.slot(), task.overtakes, deadline.start());
    Some(match step {
        Step::Claim(ask) => {
            let command = pin!(store.claim(ask, deadline));
            let claimed = slot.while_wanted(overtakes, ask, command).await?;
            let ask = || Ask { wait: false, ..ask.clone() };
            claimed
                .map(|answer| on_answer(core, slot, &ask(), answer))
                .inspect_err(|error| slot.on_failed_ask(&ask(), error))
        }
        Step::Ask(ask) => {
            let command = pin!(store.ask(std::slice::from_ref(ask), deadline));
            let answers = slot.while_wanted(overtakes, ask, command).await?;
            let said = exactly_one(answers).map(|answer| {
                let said = on_answer(core, slot, ask, answer);
                core.schedule().watch_queue(slot);
                said
            });
            said.inspect_err(|error| slot.on_failed_ask(ask, error))
        }
        Step::Confirm(renewal) => {
            let outcome = exactly_one(store.renew(std::slice::from_ref(renewal), deadline).await);
            let token = &renewal.token;
            outcome.map(|outcome| {
                slot.step(|lock, out| lock.on_confirmed(token, sent, outcome, slot.env(), out));
                if matches!(outcome, Renewed::Until(_)) { LastAnswer::Owned } else { LastAnswer::Lost }
            })
        }
        Step::Draw(token, count) => {
            let drawn = store.draw(&request.key, token, request.share, *count, deadline).await;
            drawn.map(|first| {
                let drawn = (task.id(), token, sent);
                slot.step(|lock, out| lock.on_drawn(drawn, (first, *count), slot.env(), out));
                if first.is_some() { LastAnswer::Owned } else { LastAnswer::Lost }
            })
        }
        _ => Ok(LastAnswer::None),
    })
}

/// Passes the answer to an ask to the lock.
fn on_answer(core: &Core, slot: &Arc<Slot>, ask: &Ask, answer: Answer) -> LastAnswer {
    let said = match &answer {
        Answer::Granted(_) => LastAnswer::Owned,
        Answer::Busy(_) | Answer::Replaced => LastAnswer::Busy,
        Answer::Late => LastAnswer::None,
    };
    if !slot.on_answer(ask, answer) {
        // The ask was withdrawn meanwhile, perhaps before the server executed it.
        core.withdraw(ask.withdrawal());
    }
    said
}

/// Handles the outcome of a command, whose `deadline` counts from when it was sent. Returns the error that ends the attempt.
fn on_outcome(
    core: &Core,
    slot: &Arc<Slot>,
    request: &ResolvedRequest,
    attempt: &mut Attempt,
    deadline: Deadline,
    outcome: Result<LastAnswer, StoreError>,
) -> Result<(), LockError> {
    match outcome {
        Ok(answer) => {
            attempt.record_success(answer);
            if request.is_try() && slot.is_blocked_by_own_release() {
                attempt.restart(Moment::now());
            }
        }
        Err(_) if core.is_inherited() => return Err(forked_error(request)),
        Err(error) if error.retry == Retry::Never => return Err(error.of_lock(&request.key)),
        Err(error) => slot.on_failed_command(attempt, error, deadline),
    }
    Ok(())
}

/// Draws a fencing token for a reader that has joined the hold of others. A hold that starts has its token already. `None` if the hold was
/// lost meanwhile, or the reader was not polled for too long.
pub(super) async fn draw_fence(hold: Hold, request: &ResolvedRequest, by: Deadline) -> Result<Option<Hold>, LockError> {
    // One of several keys is complete when all of them are held.
    let Some(alive) = hold.handle().alive().filter(|_| !request.is_part()).map(Arc::clone) else {
        return repeat_draw(hold, by).await;
    };
    let drawn = keep_alive(&alive, repeat_draw(hold, by)).await.transpose()?.flatten();
    Ok(drawn.filter(|hold| hold.handle().begin(request, Moment::now())))
}

/// Repeats a draw that fails, while there is time.
async fn repeat_draw(hold: Hold, by: Deadline) -> Result<Option<Hold>, LockError> {
    mutant!(FailedDrawNotRepeated => return hold.handle().borrow(true, by).await.map(|_| Some(hold)));
    let mut failures = 0;
    while hold.handle().is_valid() {
        match hold.handle().draw(by.counted_from(Moment::now())).await {
            Ok(true) => return Ok(Some(hold)),
            Ok(false) => return Ok(None),
            // A task that reads the error this late may have missed an answer.
            Err(_) if by.has_passed() => return Ok(None),
            Err(error) => {
                failures += 1;
                let pause = ASK_BACKOFF.pause(failures);
                if error.retry == Retry::Never || by.remaining() <= pause {
                    return Err(error.of_lock(hold.handle().key()));
                }
                tokio::time::sleep(pause).await;
            }
        }
    }
    Ok(None)
}
