//! [`drive`]: the steps of the task with the turn, and what each of them sends.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::{Either, select};
use tokio::sync::futures::Notified;

use super::failures::{error_at_timeout, fail_fast, forked_error, replaced, shut_down, too_many};
use super::place::{QueuePlace, turn_of};
use super::take_over::take_over;
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::local::Core;
use crate::local::hold::Hold;
use crate::local::slot::permits::OldPlace;
use crate::local::slot::{Entrance, Slot};
use crate::local::turn::Turn;
use crate::local::waiter_limit::CountedWaiter;
use crate::lock::{Attempt, Entered, Joined, Rejoined, ResolvedRequest, Step, Told, Waiter};
use crate::protocol::{Retry, StoreError};
use crate::share::Share;
use crate::store::{Store, exactly_one};

/// The end of a drive.
pub(super) enum Driven<'a> {
    Hold(Hold),
    /// The task has the turn of another permit.
    Moved(Turn, Option<CountedWaiter<'a>>),
    /// Nothing is known of the task any more: its slot was forgotten, or the manager shuts down.
    Anew,
}

impl<'a> Driven<'a> {
    fn of(taken: Result<Hold, Turn>, waiting: Option<CountedWaiter<'a>>) -> Self {
        match taken {
            Ok(hold) => Self::Hold(hold),
            Err(turn) => Self::Moved(turn, waiting),
        }
    }
}

/// Does one step after another until the hold starts, or the task joins a hold. The first step is taken at `now`, and reads no
/// clock. The last one is then `now`.
/// A task that is not counted in `waiting` is counted before its first step that waits.
pub(super) async fn drive<'a>(
    core: &'a Arc<Core>,
    mut turn: Turn,
    request: &ResolvedRequest,
    attempt: &mut Attempt,
    now: &mut Moment,
    mut waiting: Option<CountedWaiter<'a>>,
) -> Result<Driven<'a>, LockError> {
    let slot = Arc::clone(turn.slot());
    // Dropped before the turn: who passes the turn on leaves the other queue first.
    let mut asking: Option<QueuePlace<'_>> = None;
    loop {
        let changed = register(core, &slot, request)?;
        let takings = slot.takings();
        let step = turn.step(request, attempt, *now);
        if let Some(error) = step.needs_store().then(|| fail_fast(core, request)).flatten() {
            return Err(error);
        }
        if step.waits_for_others() && waiting.is_none() {
            waiting = Some(admit(core, request)?);
        }
        let mut wait = None;
        match step {
            Step::Hold(started) => return Ok(Driven::Hold(Hold::new(turn, started, request))),
            Step::Withdraw(withdrawal) => core.withdraw(withdrawal),
            Step::Wait(pause) => {
                if asking.is_none() && !request.is_try() {
                    asking = QueuePlace::of_asker(&slot, turn.id(), request);
                }
                wait = Some((pause, Wait::ForOthers));
            }
            Step::Rejoin if core.is_closed() => return Ok(Driven::Anew),
            Step::Rejoin => {
                asking = None;
                attempt.is_seized |= !request.is_single_try() || slot.peek(|lock| lock.is_seized(turn.id()));
                turn = match rejoin(&slot, turn, request) {
                    Back::Turn(turn) => turn,
                    Back::Joined(joined) => return Ok(Driven::Hold(Hold::joined(&slot, joined, request.body))),
                    Back::Waits(place) => {
                        if waiting.is_none() {
                            waiting = Some(admit(core, request)?);
                        }
                        turn_of(pin!(place.wait(attempt, *now)).await, &slot, request, attempt)?
                    }
                    Back::Anew => return Ok(Driven::Anew),
                    Back::WaitsForAny(share, place) => {
                        drop(waiting);
                        return Box::pin(wait_for_any_permit(core, share, place, request, attempt, now)).await;
                    }
                };
            }
            Step::Fail(error) => return Err(error.of_lock(&request.key)),
            Step::Replaced => return Err(replaced(request)),
            Step::GiveUp => {
                mutant!(OutlivedAtLastUntold => return Err(error_at_timeout(core, &slot, request, attempt)));
                note_outlived(&turn, attempt, *now);
                attempt.is_seized |= !request.is_single_try() && !slot.peek(|lock| lock.has_turn(turn.id()));
                return Err(error_at_timeout(core, &slot, request, attempt));
            }
            // A token is made once per ask, so a system call beside the round trip is acceptable.
            Step::Claim(_) | Step::Ask(_) if core.is_inherited() => return Err(forked_error(request)),
            Step::Confirm(_) if note_outlived(&turn, attempt, *now) => {
                attempt.count_as_sent();
                return Err(error_at_timeout(core, &slot, request, attempt));
            }
            Step::Claim(_) | Step::Ask(_) | Step::Confirm(_) | Step::Draw(..) => {
                let deadline = answer_deadline(core, attempt, *now);
                match send(core, &turn, request, &step, takings, deadline).await {
                    // For the task it is as if it had not tried. Its time goes on.
                    Some(Err(error)) if error.no_room => {
                        mutant!(NoRoomIsFailure => return Err(error.of_lock(&request.key)));
                        attempt.note_no_room(error);
                        wait = Some((attempt.by().remaining(), Wait::ForRoom));
                    }
                    outcome => {
                        attempt.note_sent(matches!(step, Step::Claim(_) | Step::Ask(_)));
                        if let Step::Ask(ask) = &step {
                            attempt.note_replacing(ask);
                        }
                        if let Some(outcome) = outcome {
                            on_outcome(core, &slot, request, attempt, deadline, outcome)?;
                        }
                    }
                }
            }
        }
        if let Some((pause, what)) = wait {
            // It does not matter whether a wake-up or the timer ended the wait: the next step looks again.
            let change = change_or_call(changed, asking.as_mut());
            let waited = match what {
                Wait::ForOthers => tokio::time::timeout(pause, change).await,
                // Boxed, because it is rare.
                Wait::ForRoom => Box::pin(tokio::time::timeout(pause, room_or(change, core, request))).await,
            };
            if let Ok(Some(called)) = waited {
                // The next one has the ask from now on.
                drop(turn);
                *now = Moment::now();
                if attempt.is_over(*now) {
                    return Err(error_at_timeout(core, &slot, request, attempt));
                }
                return Ok(Driven::of(take_over(core, called, request, *now), waiting));
            }
        }
        *now = Moment::now();
    }
}

/// What a task waits for that does its next step later.
#[derive(Clone, Copy)]
enum Wait {
    ForOthers,
    /// Too much of this process is on its way to the server.
    ForRoom,
}

/// Resolves when there is room for an ask, or as `change` does.
async fn room_or(change: impl Future<Output = Option<Turn>>, core: &Core, request: &ResolvedRequest) -> Option<Turn> {
    match select(pin!(core.store().room(&request.key)), pin!(change)).await {
        Either::Left(_) => None,
        Either::Right((called, _)) => called,
    }
}

/// Notes a lease that was over before its grant came. Returns whether the task must report that now.
fn note_outlived(turn: &Turn, attempt: &mut Attempt, now: Moment) -> bool {
    let slot = turn.slot();
    let took = slot.peek(|lock| lock.outlived_lease(now, &**slot).filter(|_| lock.has_turn(turn.id())));
    attempt.note_outlived(took)
}

/// Resolves when something changes in the slot, or when the task is called to another permit: with that turn.
async fn change_or_call(changed: Notified<'_>, mut asking: Option<&mut QueuePlace<'_>>) -> Option<Turn> {
    let mut changed = pin!(changed);
    poll_fn(|context| match asking.as_mut().map(|place| Pin::new(place).poll(context)) {
        Some(Poll::Ready(called)) => Poll::Ready(called),
        Some(Poll::Pending) | None => changed.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Registers for what changes in the slot, and only then looks whether the manager is shut down: the shutdown wakes a task once.
fn register<'a>(core: &Core, slot: &'a Slot, request: &ResolvedRequest) -> Result<Notified<'a>, LockError> {
    mutant!(LooksBeforeRegistering => {
        let is_closed = core.refuses(request.is_inside);
        crate::simulation::orders::before_lock(false);
        return if is_closed { Err(shut_down(request)) } else { Ok(slot.changed.notified()) };
    });
    let changed = slot.changed.notified();
    if core.refuses(request.is_inside) { Err(shut_down(request)) } else { Ok(changed) }
}

/// How a late task comes back that is polled at last.
enum Back<'a> {
    Turn(Turn),
    /// It has the hold of other readers together with them.
    Joined(Joined),
    /// It waits at its old place.
    Waits(QueuePlace<'a>),
    /// It may have any permit of this share, and keeps its place among those who wait.
    WaitsForAny(Share, OldPlace),
    /// Its lock was forgotten.
    Anew,
}

/// Takes in a late task that is polled at last.
fn rejoin<'a>(slot: &'a Arc<Slot>, turn: Turn, request: &ResolvedRequest) -> Back<'a> {
    let id = turn.id();
    turn.defuse();
    slot.step(|lock, out| match lock.rejoin(id, request, &**slot, out) {
        Rejoined::Turn => Back::Turn(Turn::new(slot, id)),
        Rejoined::Joined(joined) => Back::Joined(joined),
        Rejoined::Anew => Back::Anew,
        Rejoined::Waits { patience, is_too_late } => {
            if let Some(share) = slot.share.filter(|_| slot.is_one_of_permits() && !is_too_late) {
                return Back::WaitsForAny(share, OldPlace { id, patience });
            }
            lock.add_waiter(id, Waiter::new(request).with_patience(patience));
            Back::Waits(QueuePlace::in_queue_of(slot, id, request))
        }
    })
}

/// A task that came late to a permit waits for any permit again: at its old place, and with what is left of its time.
async fn wait_for_any_permit<'a>(
    core: &'a Arc<Core>,
    share: Share,
    place: OldPlace,
    request: &ResolvedRequest,
    attempt: &mut Attempt,
    now: &mut Moment,
) -> Result<Driven<'a>, LockError> {
    *now = Moment::now();
    let (slot, entered) = core.table().enter_again(core, request, share, place);
    let (turn, waiting) = match entered {
        Entrance::Found(Entered::Turn { id, .. }) => (Turn::new(&slot, id), None),
        Entrance::Waits(id, waiting) => {
            let place = QueuePlace::new(&slot, id, request);
            let waited = pin!(place.wait(attempt, *now)).await;
            (turn_of(waited, &slot, request, attempt)?, Some(waiting.of(request.prefix())))
        }
        Entrance::Full(limit) => return Err(too_many(request, limit)),
        // A single try that came too late. No permit is joined.
        Entrance::Found(Entered::Taken | Entered::Joined(_) | Entered::InTheWay) => {
            return Err(error_at_timeout(core, &slot, request, attempt));
        }
    };
    *now = Moment::now();
    Ok(Driven::of(take_over(core, turn, request, *now), waiting))
}

/// Until when a command has to be answered. With `fail_fast` this time also limits the connecting, and the search for another
/// master.
fn answer_deadline(core: &Core, attempt: &Attempt, now: Moment) -> Deadline {
    let by = attempt.by().counted_from(now);
    let settings = core.settings();
    match settings.fail_fast {
        Some(after) => by.min_at(Deadline::new(now, after.max(settings.command_timeout)), now),
        None => by,
    }
}

/// Sends the command of a step, and gives its answer to the turn. Returns what the answer said; `None` when the ask was withdrawn
/// meanwhile.
///
/// Only a claim has its room here, since most locks need nothing else. The store boxes the other commands.
async fn send(
    core: &Core,
    turn: &Turn,
    request: &ResolvedRequest,
    step: &Step,
    takings: u32,
    deadline: Deadline,
) -> Option<Result<Told, StoreError>> {
    let (store, slot) = (core.store(), turn.slot());
    Some(match step {
        Step::Claim(ask) => {
            let command = pin!(store.claim(ask, deadline));
            let claimed = slot.while_wanted(takings, ask, command).await?;
            claimed.map(|answer| turn.on_claim_answer(ask, answer)).inspect_err(|error| slot.on_failed_ask(ask, error))
        }
        Step::Ask(ask) => {
            let command = pin!(store.ask(std::slice::from_ref(ask), deadline));
            let answers = slot.while_wanted(takings, ask, command).await?;
            let told = exactly_one(answers).map(|answer| {
                let told = turn.on_answer(ask, answer);
                core.schedule().watch_queue(slot);
                told
            });
            told.inspect_err(|error| slot.on_failed_ask(ask, error))
        }
        Step::Confirm(renewal) => {
            let answers = store.renew(std::slice::from_ref(renewal), deadline).await;
            exactly_one(answers)
                .map(|outcome| turn.on_confirm_answer(outcome))
                .inspect_err(|_| turn.on_failed_confirmation())
        }
        Step::Draw(token, count) => {
            let drawn = store.draw(&request.key, token, request.share, *count, deadline).await;
            drawn.map(|first| turn.on_draw_answer(first, *count))
        }
        Step::Hold(_)
        | Step::Withdraw(_)
        | Step::Wait(_)
        | Step::Rejoin
        | Step::Fail(_)
        | Step::Replaced
        | Step::GiveUp => Ok(Told::Nothing),
    })
}

/// Takes in the outcome of a command that had to be answered by `deadline`, which counts from when it was sent. Returns the error that
/// ends the attempt.
fn on_outcome(
    core: &Core,
    slot: &Slot,
    request: &ResolvedRequest,
    attempt: &mut Attempt,
    deadline: Deadline,
    outcome: Result<Told, StoreError>,
) -> Result<(), LockError> {
    match outcome {
        Ok(told) => {
            if attempt.has_failed() {
                slot.forget_failure();
            }
            attempt.record_success(told);
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

/// Counts one more task that waits.
fn admit<'a>(core: &'a Core, request: &ResolvedRequest) -> Result<CountedWaiter<'a>, LockError> {
    let waiting = core.waiter_limit.admit(0).map_err(|limit| too_many(request, limit))?;
    Ok(waiting.of(request.prefix()))
}
