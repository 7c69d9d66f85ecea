//! A hold whose lock is given away: it ends without a release, and the lock waits for its adopter (rule 24).

use std::sync::Arc;
use std::time::Duration;

use super::handle::HoldHandle;
use super::hold::Hold;
use super::pending_release::PendingRelease;
use super::slot::ScheduleKeys;
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::lock::EndedHold;
use crate::protocol::{Feature, Giving, Ownership, Release};
use crate::store::Store as _;
use crate::timing::CLAIM;
use crate::token::Token;

impl Hold {
    /// Replaces the hold's token by a ticket, which keeps the lock for this long. The hold ends at once: a task that waits here asks the
    /// store. Returns the ticket.
    pub(crate) async fn give_away(mut self, kept_for: Duration) -> Result<Token, LockError> {
        let (handle, now) = (self.handle().clone(), Moment::now());
        let Some(user) = self.take_user(true) else { return Err(handle.lost_error(false)) };
        let slot = Arc::clone(handle.slot());
        let (given, hold) = slot.step(|lock, _| lock.take_for_ticket(user, slot.env(), now));
        handle.end_counting();
        let release = match given {
            Ok(release) => release,
            Err(left) => {
                let lost = handle.lost_error(false);
                self.release_lost(left, hold, false);
                return Err(lost);
            }
        };
        let Release { key, token, share, .. } = release.clone();
        let ticket = slot.core.new_ticket(now, share, hold.is_some_and(|hold| hold.is_replaceable));
        let giving = Giving { key, token, share, ticket, kept_for };
        let ticket_until = Deadline::new(now, kept_for).later_by(CLAIM);
        let repeat_until = release.repeat_until.max_at(ticket_until, now);
        let (token, then) = in_order(&giving);
        let or_ticket = Some(Box::new(then));
        let of_both = Release { token, or_ticket, repeat_until, contended: true, queued: true, ..release };
        // While it is not known which of the two the store has, a release of both is pending.
        let pending = PendingRelease::begin(&slot, of_both, ScheduleKeys::default(), now);
        let given = handle.core().store().give(&giving, PendingRelease::answered_by(&slot, now)).await;
        let ownership = given.map_err(|error| error.of_lock(handle.key()))?;
        if ownership == Ownership::Owned {
            // Otherwise the keeper has released the ticket, because this task was not polled in time.
            return if pending.on_answer() { Ok(giving.ticket) } else { Err(handle.lost_error(false)) };
        }
        let (lost, reason) = handle.on_found_lost(ownership, false);
        let of_both = pending.release().clone();
        let _ = pending.on_answer();
        if ownership == Ownership::Forced {
            slot.core.release_later(of_both);
        }
        if let Some(hold) = hold {
            slot.core.note_loss(&slot.key, EndedHold { reason, ..hold });
        }
        Err(lost)
    }
}

impl HoldHandle {
    /// Refuses to give the hold away where that is not possible.
    pub(crate) fn check_gift(&self, kept_for: Duration) -> Result<(), LockError> {
        if let Some(reason) = (self.core().store().kind().refuses)(Feature::Tickets) {
            return Err(LockError::setting("ticket", reason));
        }
        if self.is_of_reader() {
            return Err(LockError::setting(
                "ticket",
                "a reader can't be given away: the readers of a process have one lease",
            ));
        }
        self.core().settings().check_lease("ticket", kept_for)
    }
}

/// What to release while it is not known which of the two stands (rule 24): first the token, then the ticket. A command that arrives after
/// the first of these releases finds no token.
fn in_order(giving: &Giving) -> (Token, Token) {
    mutant!(TicketReleasedFirst => return (giving.ticket.clone(), giving.token.clone()));
    (giving.token.clone(), giving.ticket.clone())
}
