//! [`acquire`]: one task's way from a request to a hold.

use std::pin::pin;
use std::sync::Arc;

mod drive;
mod failures;
mod place;
mod take_over;

use drive::{Driven, drive};
use failures::{error_at_timeout, forked_error, shut_down, taken, too_many};
use place::{QueuePlace, turn_of};
use take_over::{draw_fence, take_over};

use super::Core;
use super::hold::Hold;
use super::slot::{Entrance, Slot};
use super::turn::Turn;
use super::waiter_limit::CountedWaiter;
use crate::LockError;
use crate::clock::Moment;
use crate::lock::{Attempt, Entered, ResolvedRequest};
use crate::observe::metrics;

/// Waits for the turn among the tasks of this process, then for the lease among processes.
///
/// It is cancel safe at every await. A dropped place in the queue leaves the queue. A dropped turn releases what was
/// granted, and withdraws what is still asked for.
pub(crate) async fn acquire(core: &Arc<Core>, request: &ResolvedRequest) -> Result<Hold, LockError> {
    if core.refuses(request.is_inside) {
        return Err(shut_down(request));
    }
    let mut attempt = Attempt::new(request, core.settings().command_timeout, Moment::now);
    if core.is_inherited_at(attempt.started) {
        return Err(forked_error(request));
    }
    // A task that need not wait reads the clock once.
    let mut now = attempt.started;
    loop {
        let (mut slot, entered, lingering) = core.table().enter(core, request, now);
        if let Some(lingering) = lingering {
            core.note_others_wait(&lingering);
        }
        let completing = {
            let begun = match entered {
                Entrance::Found(Entered::Turn { id, has_lease }) => {
                    let turn = Turn::new(&slot, id);
                    // No command is sent that would find out about a fork. The process has the lease, and its child does not.
                    if has_lease && core.is_inherited() {
                        return Err(forked_error(request));
                    }
                    let begun = if has_lease { take_over(core, turn, request, now) } else { Err(turn) };
                    begun.map_err(|turn| (turn, None))
                }
                Entrance::Found(Entered::Joined(joined)) => Ok(Hold::joined(&slot, joined, request.body)),
                Entrance::Waits(id, waiting) => {
                    let waiting = waiting.of(request.prefix());
                    let place = QueuePlace::new(&slot, id, request);
                    let turn = turn_of(pin!(place.wait(&mut attempt, now)).await, &slot, request, &attempt)?;
                    now = Moment::now();
                    if attempt.is_over(now) {
                        return Err(error_at_timeout(core, &slot, request, &attempt));
                    }
                    take_over(core, turn, request, now).map_err(|turn| (turn, Some(waiting)))
                }
                Entrance::Found(Entered::InTheWay) => {
                    let turn = core.seize_by_force(&request.key);
                    slot = Arc::clone(turn.slot());
                    Err((turn, None))
                }
                Entrance::Found(Entered::Taken) => return Err(taken(core, &slot, request, &attempt, true)),
                Entrance::Full(limit) => return Err(too_many(request, limit)),
            };
            match begun {
                Ok(hold) if !hold.lacks_fence(request) => {
                    metrics::waited(request.prefix(), now.since(attempt.started));
                    return Ok(hold);
                }
                // Boxed: most waiters send no command. In a block: what is moved into the box takes no room in the future.
                begun => Box::pin(complete(core, &slot, begun, request, &mut attempt, now)),
            }
        };
        if let Some(hold) = completing.await? {
            return Ok(hold);
        }
        now = Moment::now();
    }
}

/// A hold, or the turn by which the task gets one, and its count as one who waits.
type Begun<'a> = Result<Hold, (Turn, Option<CountedWaiter<'a>>)>;

/// Makes a complete hold of what the task has: with the turn it asks the store, and who joined other readers draws its fencing token.
/// `None` when the task has to begin anew: the hold of the readers was lost, this reader came late, or nobody knows of the task any more.
async fn complete<'a>(
    core: &'a Arc<Core>,
    slot: &Slot,
    begun: Begun<'a>,
    request: &ResolvedRequest,
    attempt: &mut Attempt,
    mut now: Moment,
) -> Result<Option<Hold>, LockError> {
    let mut hold = match begun {
        Ok(hold) => hold,
        Err((mut turn, mut waiting)) => loop {
            match drive(core, turn, request, attempt, &mut now, waiting).await? {
                Driven::Hold(hold) => break hold,
                Driven::Moved(other, still) => (turn, waiting) = (other, still),
                Driven::Anew => return Ok(None),
            }
        },
    };
    if hold.lacks_fence(request) {
        let drawn = Box::pin(draw_fence(hold, request, attempt.by())).await?;
        now = Moment::now();
        // The body relies on this reading of the clock.
        hold = match drawn.filter(|hold| is_held_at(hold, now)) {
            Some(hold) => hold,
            None if attempt.is_over(now) => return Err(error_at_timeout(core, slot, request, attempt)),
            None => return Ok(None),
        };
    }
    metrics::waited(request.prefix(), now.since(attempt.started));
    Ok(Some(hold))
}

/// Whether the hold of a reader has lasted while its token was drawn.
fn is_held_at(hold: &Hold, now: Moment) -> bool {
    mutant!(LostWhileDrawn => return true);
    !hold.handle().remaining_at(now).is_zero()
}
