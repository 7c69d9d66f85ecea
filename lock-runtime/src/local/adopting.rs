//! How a task adopts a lock that waits for its adopter (rule 24).
//!
//! The adopter has the lock as soon as the store has put its token in the place of the ticket. Only then it enters the slot of the
//! lock. So a ticket that is over costs the tasks that wait here nothing.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::hold::Hold;
use super::slot::ScheduleKeys;
use super::slot::Slot;
use super::stand_in::StandIn;
use crate::LockError;
use crate::clock::{Deadline, Moment};
use crate::error::LossReason;
use crate::lock::{Adopted, Attempt, ResolvedRequest, Started};
use crate::observe::metrics;
use crate::protocol::{Adoption, Ask, Grant, Reach, Release, Retry, StoreError, TicketAnswer};
use crate::store::Store as _;
use crate::timing::{ASK_BACKOFF, CLAIM};
use crate::token::Token;

/// Adopts the lock of `ticket`. It waits for nobody: [`LockError::Lost`] when the ticket is over, or was adopted.
pub(crate) async fn adopt(core: &Arc<Core>, request: &ResolvedRequest, ticket: &Token) -> Result<Hold, LockError> {
    let attempt = Attempt::new(request, core.settings().command_timeout, Moment::now);
    if core.is_inherited() {
        return Err(LockError::Forked { key: request.key.to_string() });
    }
    let mut adopter = Adopter::new(core, request);
    let mut failures = 0;
    loop {
        if core.refuses(request.is_inside) {
            return Err(LockError::ShutDown { key: request.key.to_string() });
        }
        let sent = Moment::now();
        let by = attempt.by().min_at(StandIn::answered_by(&adopter.slot, sent), sent);
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

/// What a task is told whose token the keeper has withdrawn meanwhile. What was granted to that token was given back. An ask that failed
/// is not repeated under it (rule L3), and most likely the ticket still stands.
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
    /// Whether the store may have granted the lock to the token.
    may_stand: bool,
    /// Whether a task has the lock by now.
    is_done: bool,
}

impl Adopter {
    fn new(core: &Arc<Core>, request: &ResolvedRequest) -> Self {
        let token = core.next_token(request.may_linger(), request.share);
        // Others may have to be kept out from the start.
        let claim = if request.at_least().is_zero() { request.lease().min(CLAIM) } else { request.lease() };
        let slot = core.table().slot_for_adopter(core, request, &token);
        Self { slot, token, claim, may_stand: false, is_done: false }
    }

    /// Asks the store once. The token is the same each time: an adoption whose answer was lost is found to be done.
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
        let mut stand_in = StandIn::begin(&self.slot, &ask.withdrawal(), ScheduleKeys::default(), by.start());
        let core = &self.slot.core;
        let answer = core.store().adopt(&Adoption { ask, ticket: ticket.clone() }, by).await;
        if !stand_in.end() {
            return withdrawn(answer);
        }
        match &answer {
            Ok(TicketAnswer::Over) => self.may_stand = false,
            // Of a ticket that was taken by force the mark stands, and ends with the token.
            Ok(TicketAnswer::Granted(_) | TicketAnswer::Forced) => {}
            Err(error) => self.may_stand = before || error.reach != Reach::Unsent,
        }
        answer
    }

    fn next_token(&mut self) -> Token {
        mutant!(AdoptedUnderNewToken => if self.may_stand {
            self.token = self.slot.core.next_token(false, self.slot.share);
        });
        self.token.clone()
    }

    /// Starts the hold on what the store has granted to an ask of that time.
    fn start(mut self, request: &ResolvedRequest, grant: &Grant, sent: Moment) -> Result<Hold, LockError> {
        let Some(started) = self.take(request, grant, sent) else {
            return Err(lost(request, self.slot.peek(|lock| lock.was_forced(&self.token))));
        };
        self.is_done = true;
        metrics::waited(request.prefix(), sent.elapsed());
        Ok(Hold::new(&self.slot, started, request))
    }

    /// Takes what the store has granted. `None` when the lease is over by now, or another lease is younger.
    fn take(&self, request: &ResolvedRequest, grant: &Grant, sent: Moment) -> Option<Started> {
        let Self { slot, token, claim, .. } = self;
        loop {
            match slot.step(|lock, out| lock.adopt(token, *claim, request, grant, sent, slot.env(), out)) {
                Adopted::Started(started) => return Some(*started),
                Adopted::Over => return None,
                // The store gave the lock to this adopter after that lease: it has ended there.
                Adopted::Beside(other) => slot.core.revoke(slot, Some(&other), LossReason::NotKnown),
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
        let _ = slot.note_release_done(token);
        mutant!(AdoptedLeft => return);
        if self.may_stand {
            slot.core.withdraw(Release::withdrawal(&slot.key, token, *claim));
        }
    }
}

impl Core {
    /// A release that goes on in the background when its task does not read the answer.
    pub(crate) fn repeat_if_unread(self: &Arc<Self>, release: Release) -> RepeatedRelease {
        // The lock is none of this process's: no task here waits for it in this slot.
        let slot = Arc::new(Slot::new(self, &release.key));
        let stand_in = StandIn::begin(&slot, &release, ScheduleKeys::default(), Moment::now());
        RepeatedRelease { stand_in, release, is_answered: false }
    }
}

/// A release that is not that of a hold here. Dropping it has the release repeated in the background.
#[derive(Debug)]
pub(crate) struct RepeatedRelease {
    stand_in: StandIn,
    release: Release,
    is_answered: bool,
}

impl RepeatedRelease {
    pub(crate) fn release(&self) -> &Release {
        &self.release
    }

    /// Returns whether the answer tells the outcome: the keeper has not sent the release meanwhile.
    pub(crate) fn on_answer(mut self) -> bool {
        self.is_answered = true;
        self.stand_in.end()
    }
}

impl Drop for RepeatedRelease {
    fn drop(&mut self) {
        if !self.is_answered {
            self.stand_in.release(&self.release);
        }
    }
}
