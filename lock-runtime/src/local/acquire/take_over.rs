//! A hold on a lease that is there already: it was handed over, it lingered, or readers share it.

use std::sync::Arc;

use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::local::Core;
use crate::local::hold::Hold;
use crate::local::turn::Turn;
use crate::lock::ResolvedRequest;
use crate::protocol::Retry;
use crate::timing::ASK_BACKOFF;

/// Starts the hold on a good lease that was handed over. It needs neither the store nor the memory for the store's
/// commands.
pub(super) fn take_over(core: &Core, turn: Turn, request: &ResolvedRequest, now: Moment) -> Result<Hold, Turn> {
    if core.refuses(request.is_inside) {
        return Err(turn);
    }
    if request.joins_readers() {
        let slot = Arc::clone(turn.slot());
        if let Some(joined) = slot.step(|lock, _| lock.join_called(turn.id(), request, now)) {
            turn.defuse();
            return Ok(Hold::joined(&slot, joined, request.body));
        }
    }
    Hold::start(turn, request, now)
}

/// Draws a fencing token for a reader that has joined the hold of others. A hold that starts has its token already. `None` when the
/// hold was lost meanwhile, or the reader did not come for so long that its part was taken back (rule L7).
pub(super) async fn draw_fence(hold: Hold, request: &ResolvedRequest, by: Deadline) -> Result<Option<Hold>, LockError> {
    // Whoever gathers several keys is called for all of them, and has them all later.
    let early = hold.handle().early().filter(|_| !request.is_part()).map(Arc::clone);
    let drawing = repeat_draw(hold, by);
    let Some(early) = early else { return drawing.await };
    let drawn = early.attendance().attend(drawing).await.transpose()?.flatten();
    Ok(drawn.filter(|_| early.end()))
}

/// A draw that fails is repeated while there is time.
async fn repeat_draw(hold: Hold, by: Deadline) -> Result<Option<Hold>, LockError> {
    mutant!(FailedDrawNotRepeated => return hold.handle().borrow(true, by).await.map(|_| Some(hold)));
    let mut failures = 0;
    while hold.handle().is_valid() {
        match hold.handle().draw(by.counted_from(Moment::now())).await {
            Ok(true) => return Ok(Some(hold)),
            Ok(false) => return Ok(None),
            // Who reads of it this late may have missed an answer.
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
