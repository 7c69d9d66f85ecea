//! A hold whose lock is given away: it ends without a release, and the lock waits for its adopter (rule 24).

use std::sync::Arc;
use std::time::Duration;

use super::handle::HoldHandle;
use super::hold::Hold;
use super::slot::ScheduleKeys;
use super::slot::Slot;
use super::stand_in::StandIn;
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::lock::{EndedHold, Ending, ReleaseDone};
use crate::protocol::{Feature, Giving, Ownership, Release};
use crate::store::Store as _;
use crate::timing::CLAIM;
use crate::token::Token;

impl Hold {
    /// Puts a ticket in the place of the hold's token, and keeps the lock for so long. The hold ends at once: a task that waits here asks
    /// the store. Returns the ticket.
    pub(crate) async fn give_away(mut self, kept_for: Duration) -> Result<Token, LockError> {
        let (handle, now) = (self.handle().clone(), Moment::now());
        let Some(user) = self.take_user(true) else { return Err(handle.lost_error(false)) };
        let slot = Arc::clone(handle.slot());
        let (ended, release) = slot.step(|lock, _| lock.end_given(user, slot.env(), now));
        let hold = ended.hold;
        handle.end_counting();
        let Some(release) = release else {
            let lost = handle.lost_error(false);
            if let Ending::Lost(left) = ended.ending {
                self.release_lost(left, hold);
            }
            return Err(lost);
        };
        let deadline = StandIn::answered_by(&slot, now);
        let mut pending = PendingGift::begin(&slot, &release, kept_for, now);
        let given = handle.core().store().give(&pending.giving, deadline).await;
        match given.map_err(|error| error.of_lock(handle.key()))? {
            // The keeper has given the ticket back, because this task did not come.
            Ownership::Owned if !pending.stand_in.end() => Err(handle.lost_error(false)),
            Ownership::Owned => Ok(pending.on_given()),
            ownership => Err(pending.on_lost(&handle, ownership, hold)),
        }
    }
}

impl HoldHandle {
    /// Refuses to give the hold away where that has no meaning.
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

/// A lock that is on its way to its ticket. Dropping it leaves neither of the two: whether the store has put the ticket is not known.
#[derive(Debug)]
struct PendingGift {
    slot: Arc<Slot>,
    giving: Giving,
    release: Release,
    stand_in: StandIn,
    is_answered: bool,
}

/// What to release while nobody knows which of the two stands (rule 24): first the token, and then the ticket. A command that comes
/// after the first of these releases finds no token.
fn in_order(giving: &Giving) -> (Token, Token) {
    mutant!(TicketReleasedFirst => return (giving.ticket.clone(), giving.token.clone()));
    (giving.token.clone(), giving.ticket.clone())
}

impl PendingGift {
    fn begin(slot: &Arc<Slot>, release: &Release, kept_for: Duration, now: Moment) -> Self {
        let Release { key, token, share, .. } = release.clone();
        let ticket = slot.core.new_ticket(share);
        let giving = Giving { key, token, share, ticket, kept_for };
        let ticket_until = Deadline::new(now, kept_for).later_by(CLAIM);
        let repeat_until = release.repeat_until.max_at(ticket_until, now);
        let (token, then) = in_order(&giving);
        let or_ticket = Some(Box::new(then));
        let of_both = Release { token, or_ticket, repeat_until, contended: true, ..release.clone() };
        let stand_in = StandIn::begin(slot, &of_both, ScheduleKeys::default(), now);
        Self { slot: Arc::clone(slot), giving, release: of_both, stand_in, is_answered: false }
    }

    fn on_given(mut self) -> Token {
        self.is_answered = true;
        self.end_use();
        self.giving.ticket.clone()
    }

    fn on_lost(mut self, handle: &HoldHandle, ownership: Ownership, hold: Option<EndedHold>) -> LockError {
        self.is_answered = true;
        let (lost, reason) = handle.on_found_lost(ownership, false);
        self.end_use();
        if ownership == Ownership::Forced {
            self.slot.core.release_later(self.release.clone());
        }
        if let Some(hold) = hold {
            self.slot.core.note_loss(&self.slot.key, EndedHold { reason, ..hold });
        }
        lost
    }

    /// Nothing uses the token any more. What the store may have granted under it meanwhile is withdrawn.
    fn end_use(&self) {
        let Self { slot, release, .. } = self;
        if matches!(slot.note_release_done(&release.token), ReleaseDone::Done { may_be_granted_again: true, .. }) {
            slot.core.withdraw(Release::withdrawal(&release.key, &release.token, release.claim));
        }
    }
}

impl Drop for PendingGift {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        mutant!(GiftLeft => return);
        self.end_use();
        self.stand_in.release(&self.release);
    }
}
