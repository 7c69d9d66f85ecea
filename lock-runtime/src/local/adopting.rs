//! How a task adopts a lock that waits for its adopter (rule 24).
//!
//! The adopter has the lock as soon as the store has replaced the ticket by its token. Only then does it enter the slot of the lock. So a
//! ticket that has ended costs the tasks that wait here nothing.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::hold::Hold;
use super::pending_release::PendingRelease;
use super::slot::{ScheduleKeys, Slot};
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::error::LossReason;
use crate::lock::{Attempt, ResolvedRequest, Started};
use crate::protocol::{Adoption, Ask, Grant, Reach, Release, Retry, StoreError, TicketAnswer};
use crate::store::Store as _;
use crate::timing::{ASK_BACKOFF, CLAIM};
use crate::token::Token;

/// Adopts the lock of `ticket`, without waiting for it: [`LockError::Lost`] if the ticket has ended, or was adopted.
pub(crate) async fn adopt(core: &Arc<Core>, request: &ResolvedRequest, ticket: &Token) -> Result<Hold, LockError> {
    let attempt = Attempt::new(request, core.settings().command_timeout, Moment::now);
    if core.is_inherited() {
        return Err(LockError::Forked { key: request.key.to_string() });
    }
    let mut adopter = Adopter::new(core, request, attempt.started);
    let mut failures = 0;
    loop {
        if core.refuses(request.is_inside) {
            return Err(LockError::ShutDown { key: request.key.to_string() });
        }
        let sent = Moment::now();
        let by = attempt.by().min_at(PendingRelease::answered_by(&adopter.slot, sent), sent);
        match adopter.ask(request, ticket, by.counted_from(sent)).await {
            Ok(TicketAnswer::Granted(grant)) => return adopter.start(request, &grant, sent),
            Ok(TicketAnswer::Over) => return Err(lost(request, false)),
            Ok(TicketAnswer::Forced) => return Err(lost(request, true)),
            Err(error) => {
                failures += 1;
                let pause = ASK_BACKOFF.pause(failures);
                if error.retry == Retry::Never || attempt.by().remaining() <= pause {
                    return Err(error.of_lock(&request.key));
                }
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// The answer for a task whose token the keeper has withdrawn meanwhile. What was granted to that token was given back. An ask that failed
/// is not repeated under it (rule 10), and most likely the ticket still stands.
fn withdrawn(answer: Result<TicketAnswer, StoreError>) -> Result<TicketAnswer, StoreError> {
    mutant!(LateAdoptionIsLost => return Ok(TicketAnswer::Over));
    match answer {
        Ok(TicketAnswer::Granted(_)) => Ok(TicketAnswer::Over),
        Ok(answer) => Ok(answer),
        Err(error) => Err(StoreError { retry: Retry::Never, ..error }),
    }
}

fn lost(request: &ResolvedRequest, forced: bool) -> LockError {
    LockError::Lost { key: request.key.to_string(), completed: false, forced, max_hold: None, ticket: true }
}

/// The token of a task that adopts a lock. Dropping it withdraws what the store may have granted to the token.
#[derive(Debug)]
struct Adopter {
    slot: Arc<Slot>,
    token: Token,
    claim: Duration,
    may_stand: bool,
    /// Whether a task has the lock by now.
    is_done: bool,
}

impl Adopter {
    fn new(core: &Arc<Core>, request: &ResolvedRequest, now: Moment) -> Self {
        let token = core.next_token(now, request.may_linger(), request.share, request.note());
        // Others may have to be kept out from the start.
        let claim = if request.at_least().is_zero() { request.lease().min(CLAIM) } else { request.lease() };
        let slot = core.table().slot_for_adopter(core, request, &token);
        Self { slot, token, claim, may_stand: false, is_done: false }
    }

    /// Asks the store once. The token is the same each time, so that a retry finds an adoption whose answer was lost.
    async fn ask(
        &mut self,
        request: &ResolvedRequest,
        ticket: &Token,
        by: Deadline,
    ) -> Result<TicketAnswer, StoreError> {
        let ask = Ask {
            key: Arc::clone(&request.key),
            token: self.next_token(),
            share: request.share,
            claim: self.claim,
            wait: false,
            replaces: None,
            fences: u32::from(request.fenced),
            give_up: by,
        };
        let before = std::mem::replace(&mut self.may_stand, true);
        let pending =
            PendingRelease::begin(&self.slot, ask.withdrawal(), ScheduleKeys::default(), by.start()).by_task();
        let core = &self.slot.core;
        let answer = core.store().adopt(&Adoption { ask, ticket: ticket.clone() }, by).await;
        if !pending.on_answer() {
            return withdrawn(answer);
        }
        match &answer {
            Ok(TicketAnswer::Over) => self.may_stand = false,
            // If the ticket was taken by force, the mark stands, and ends with the token.
            Ok(TicketAnswer::Granted(_) | TicketAnswer::Forced) => {}
            Err(error) => self.may_stand = before || error.reach != Reach::Unsent,
        }
        answer
    }

    fn next_token(&mut self) -> Token {
        mutant!(AdoptedUnderNewToken => if self.may_stand {
            self.token = self.slot.core.next_token(Moment::now(), false, self.slot.share, None);
        });
        self.token.clone()
    }

    /// Starts the hold on what the store granted to the ask that was sent at `sent`.
    fn start(mut self, request: &ResolvedRequest, grant: &Grant, sent: Moment) -> Result<Hold, LockError> {
        let Some(started) = self.take(request, grant, sent) else {
            return Err(lost(request, self.slot.peek(|lock| lock.was_forced(&self.token))));
        };
        self.is_done = true;
        Ok(Hold::new(&self.slot, started, request))
    }

    /// Takes what the store granted. `None` if the lease is over by now, or another lease is younger.
    fn take(&self, request: &ResolvedRequest, grant: &Grant, sent: Moment) -> Option<Started> {
        let Self { slot, token, claim, .. } = self;
        loop {
            match slot.step(|lock, out| lock.adopt(token, *claim, request, grant, sent, slot.env(), out)) {
                Ok(started) => return Some(started),
                Err(None) => return None,
                // The store gave the lock to this adopter after that lease, so that lease has ended there.
                Err(Some(other)) => slot.core.revoke(slot, Some(&other), LossReason::NotKnown),
            }
        }
    }
}

impl Drop for Adopter {
    fn drop(&mut self) {
        let Self { slot, token, claim, .. } = self;
        if self.is_done {
            return;
        }
        slot.end_use(token);
        mutant!(AdoptedLeft => return);
        if self.may_stand {
            slot.core.withdraw(Release::withdrawal(&slot.key, token, *claim));
        }
    }
}

impl Core {
    /// Begins a release that goes on in the background if its task does not read the answer.
    pub(crate) fn repeat_if_unread(self: &Arc<Self>, release: Release) -> PendingRelease {
        // This process has no use for the lock: no task here waits for it in this slot.
        let slot = Arc::new(Slot::new(self, &release.key));
        PendingRelease::begin(&slot, release, ScheduleKeys::default(), Moment::now())
    }
}
