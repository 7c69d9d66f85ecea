//! [`PendingAsk`]: the ask of this process to the store.

use std::sync::Arc;
use std::time::Duration;

use super::Env;
use super::refusal::Refusal;
use crate::clock::{Deadline, Moment};
use crate::protocol::{Anchor, Answer, Ask, Busy, Pushed, Release, Replacing, StoreError};
use crate::share::Share;
use crate::timing::ASK_INTERVAL;
use crate::token::Token;

mod grant;

use grant::Granted;

/// An ask to the store that is not given up: at most one per key and process.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the ask")]
pub(crate) struct PendingAsk {
    pub(crate) token: Token,
    pub(crate) share: Option<Share>,
    pub(crate) claim: Duration,
    /// How many fencing tokens the last command asked for.
    pub(crate) fences: u32,
    delivery: Delivery,
    /// Whether any command under this token was sent for a task that waits. A single try gets nothing of what such a task gets: the
    /// lock may have been held when the try began.
    waits: bool,
    /// The name of the request that asks in place of the owner (rule 25).
    pub(super) replaces: Option<Token>,
    /// Whether the store has said that a newer request replaces the holder.
    is_replaced: bool,
    /// When the keeper repeated the ask because its answer was not read.
    repeated: Option<Moment>,
    queue: InQueue,
    refusal: Option<Refusal>,
    /// Why the store would refuse the ask again, as the keeper has found out. The next task that is polled is told.
    denial: Option<Box<StoreError>>,
    /// The answered ask that dates a pushed grant.
    anchor: Option<Anchor>,
    grant: Granted,
    /// Whether the store has pushed a grant: another process passed the lock on.
    was_pushed: bool,
    /// Whether another process is known to wait.
    contended: bool,
    /// Since when, by the store's clock, the ask is one of the first in the queue. `None` when the store has not told so.
    near_since: Option<u64>,
}

/// Whether an answer is still to come.
#[derive(Debug)]
enum Delivery {
    /// Each command was answered, or was certainly not sent.
    Settled,
    /// A command is on its way, or was given up on its way.
    Unanswered {
        /// When the last command was sent.
        sent: Moment,
        /// When the first command was sent, when earlier ones were not answered either.
        before: Option<Moment>,
        /// Whether a connection broke meanwhile. Then the answer may be one that came just before that.
        is_interrupted: bool,
    },
}

/// Whether the store has the token in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InQueue {
    No,
    Yes,
    /// The store had the token in its queue. Something has happened since that may have ended this.
    Doubtful,
}

impl PendingAsk {
    pub(crate) fn new(token: Token, share: Option<Share>, claim: Duration) -> Self {
        Self {
            token,
            share,
            claim,
            fences: 0,
            delivery: Delivery::Settled,
            waits: false,
            replaces: None,
            is_replaced: false,
            repeated: None,
            queue: InQueue::No,
            refusal: None,
            denial: None,
            anchor: None,
            grant: Granted::No,
            was_pushed: false,
            contended: false,
            near_since: None,
        }
    }

    /// The ask that goes along with a release at `now`.
    pub(crate) fn sent_along(token: Token, share: Option<Share>, claim: Duration, now: Moment) -> Self {
        let delivery = Delivery::Unanswered { sent: now, before: None, is_interrupted: false };
        Self { delivery, waits: true, ..Self::new(token, share, claim) }
    }

    /// Notes that a command is about to be sent, for a task that `waits` or not.
    pub(crate) fn note_sent(&mut self, now: Moment, fences: u32, waits: bool) {
        self.fences = fences;
        self.waits |= waits;
        self.await_answer(now);
    }

    fn await_answer(&mut self, now: Moment) {
        mutant!(NotedAfterSending => return);
        let before = self.silent_since();
        self.delivery = Delivery::Unanswered { sent: now, before, is_interrupted: false };
    }

    /// Notes that the last command was certainly not sent. The answer to an earlier command may have come meanwhile.
    pub(crate) fn on_unsent(&mut self) {
        if let Delivery::Unanswered { before: None, .. } = self.delivery {
            self.delivery = Delivery::Settled;
        }
    }

    /// Takes in that the store would refuse the ask again.
    pub(super) fn on_denial(&mut self, error: StoreError) {
        if !self.is_granted() {
            self.denial = Some(Box::new(error));
        }
    }

    /// The store has granted or answered the ask since.
    fn forget_denial(&mut self) {
        mutant!(DenialOutlivesAnswer => return);
        self.denial = None;
    }

    pub(super) fn take_denial(&mut self) -> Option<StoreError> {
        self.denial.take().map(|denial| *denial)
    }

    /// Takes in the answer to `ask`.
    pub(crate) fn on_answer(&mut self, ask: &Ask, answer: Answer, env: &dyn Env) {
        self.fences = ask.fences;
        self.forget_denial();
        let delivery = std::mem::replace(&mut self.delivery, Delivery::Settled);
        match answer {
            Answer::Granted(grant) => self.grant = Granted::Whole(grant),
            Answer::Busy(busy) => self.on_refusal(busy, ask.wait && env.kind().queues, env),
            Answer::Replaced => {
                self.is_replaced = true;
                self.queue = InQueue::No;
                self.grant = Granted::No;
            }
            // `Lock::on_answer` keeps it away: it says nothing.
            Answer::Late => {}
        }
        if matches!(delivery, Delivery::Unanswered { is_interrupted: true, .. }) {
            self.on_interruption();
        }
    }

    fn on_refusal(&mut self, busy: Busy, is_queued: bool, env: &dyn Env) {
        if self.refusal.as_ref().is_some_and(|known| known.is_later_than(&busy)) {
            return;
        }
        if is_queued || self.is_queued() {
            self.queue = InQueue::Yes;
        }
        self.anchor = busy.anchor.or(self.anchor);
        // A refusal that the server decided on after the pushed grant means that the grant is over.
        let is_over = |pushed: &Pushed| busy.anchor.is_some_and(|anchor| anchor.store_micros > pushed.store_micros);
        if matches!(&self.grant, Granted::Pushed(pushed) if is_over(pushed)) {
            self.grant = Granted::No;
        }
        // The answer may be read after a message that came later.
        let is_far = busy.anchor.map(|anchor| anchor.store_micros) > self.near_since;
        self.refusal = Some(Refusal::after(self.refusal.take(), busy, env.now()));
        if !is_far {
            self.end_pause();
        }
    }

    /// Notes that what is granted is wanted by others, too.
    pub(crate) fn note_waiter_behind(&mut self) {
        self.contended = true;
    }

    /// Notes that another process waits, too. Returns whether to ask at once.
    pub(crate) fn note_contention(&mut self, env: &dyn Env) -> bool {
        // The store tells owners alone: the grant of this ask was sent, but is not read yet.
        self.note_waiter_behind();
        // An ask that pauses would find out late that the grant was lost.
        let is_lost = self.pauses(env) && !self.is_granted();
        if is_lost {
            self.doubt_queue();
            self.end_pause();
        }
        is_lost
    }

    /// Notes that few others are in front, by the store's clock since then: the ask pauses no longer.
    pub(crate) fn on_near(&mut self, store_micros: u64) {
        mutant!(NearForgotten => return);
        self.near_since = self.near_since.max(Some(store_micros));
        self.end_pause();
    }

    fn end_pause(&mut self) {
        if let Some(refusal) = &mut self.refusal {
            refusal.busy.pause = Duration::ZERO;
        }
    }

    /// Whether the ask need not be repeated yet: others are in front, who repeat theirs (rule 5).
    pub(crate) fn pauses(&self, env: &dyn Env) -> bool {
        self.refusal.as_ref().is_some_and(|refusal| refusal.pauses(env.now()))
    }

    /// Notes that pushes may have been missed.
    pub(crate) fn on_interruption(&mut self) {
        if let Delivery::Unanswered { is_interrupted, .. } = &mut self.delivery {
            *is_interrupted = true;
        }
        self.doubt_queue();
        self.end_pause();
        // The next push may come from another server. The clock of the server that answered can't date that push.
        self.anchor = None;
    }

    /// Takes in a message that the lock was taken away before the grant was read. The answer to the next ask says what is true.
    pub(crate) fn on_forced(&mut self) {
        self.doubt_queue();
        self.end_pause();
    }

    fn doubt_queue(&mut self) {
        if self.is_queued() {
            self.queue = InQueue::Doubtful;
        }
    }

    /// Whether an answer is on its way, or was given up on its way.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.delivery, Delivery::Unanswered { .. })
    }

    /// When the last unanswered command was sent.
    pub(crate) fn unanswered_since(&self) -> Option<Moment> {
        match self.delivery {
            Delivery::Unanswered { sent, .. } => Some(sent),
            Delivery::Settled => None,
        }
    }

    /// When the first of the unanswered commands was sent.
    pub(super) fn silent_since(&self) -> Option<Moment> {
        match self.delivery {
            Delivery::Unanswered { sent, before, .. } => Some(before.unwrap_or(sent)),
            Delivery::Settled => None,
        }
    }

    /// When the keeper repeated the ask.
    pub(crate) fn repeated_at(&self) -> Option<Moment> {
        self.repeated
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.queue != InQueue::No
    }

    /// Whether the ask only waits in the store's queue: there is nothing to ask and nothing to tell.
    pub(crate) fn only_waits(&self) -> bool {
        self.queue == InQueue::Yes
            && matches!(self.grant, Granted::No)
            && !self.is_unanswered()
            && self.denial.is_none()
            && !self.is_forced()
    }

    /// Whether the store was never asked under this token.
    pub(crate) fn is_new(&self) -> bool {
        self.refusal.is_none() && !self.is_unanswered() && !self.is_queued()
    }

    /// The age of the last answer, when it was a refusal.
    pub(crate) fn refused_for(&self, env: &dyn Env) -> Option<Duration> {
        self.refusal.as_ref().map(|refusal| env.now().since(refusal.at))
    }

    /// The last answer, when it was a refusal.
    pub(crate) fn busy(&self) -> Option<&Busy> {
        self.refusal.as_ref().map(|refusal| &refusal.busy)
    }

    /// When the store first named the owner that it named last.
    pub(crate) fn owner_seen_since(&self) -> Option<Moment> {
        self.refusal.as_ref().map(|refusal| refusal.since)
    }

    /// Whether another process passed the lock on.
    pub(crate) fn was_pushed(&self) -> bool {
        self.was_pushed
    }

    /// The owner that this ask waited for, when its lease ended by itself: it was seen to the end, and not renewed.
    pub(crate) fn dead_owner(&self, env: &dyn Env) -> Option<Token> {
        self.refusal.as_ref()?.dead_owner(env)
    }

    /// The rest of the owner's lease. `None` when it is not known, or should be over.
    pub(crate) fn frees_in(&self, now: Moment) -> Option<Duration> {
        let frees_in = self.refusal.as_ref()?.frees?.remaining_at(now);
        (!frees_in.is_zero()).then_some(frees_in)
    }

    /// How long to wait before the store is asked again. `None` for now.
    ///
    /// The time to ask is the end of the owner's lease. The repetitions by the keeper are the safety net. An owner that
    /// renews is left to that safety net, because otherwise each of its renewals would cause an ask.
    pub(crate) fn pause_before_ask(&self, now: Moment) -> Option<Duration> {
        let refusal = self.refusal.as_ref();
        let frees_in = refusal.and_then(|refusal| refusal.frees).map_or(Duration::MAX, |frees| frees.remaining_at(now));
        let quiet = match refusal {
            Some(refusal) if refusal.owner_renews => ASK_INTERVAL.saturating_sub(now.since(refusal.at)),
            _ => Duration::ZERO,
        };
        let pause = frees_in.max(quiet);
        (!pause.is_zero()).then_some(pause)
    }

    /// Whether the request that asked in place of the owner is not the newest any more (rule 25).
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// What the next command of a request that asks in place of the owner says of the request. `None` for any other ask.
    pub(super) fn replacing(&self, is_known: bool) -> Option<Replacing> {
        let name = self.replaces.clone()?;
        Some(Replacing { name, is_known: is_known || self.is_queued() })
    }

    /// Whether the ask has to be withdrawn and started again.
    pub(crate) fn must_restart(&self) -> bool {
        !self.is_unanswered() && self.is_forced()
    }

    /// Whether the lock was granted to this ask, and was taken away before the grant was read (rule 21).
    fn is_forced(&self) -> bool {
        mutant!(ForcedAskWaits => return false);
        !self.is_granted() && self.busy().is_some_and(|busy| busy.owner.is_forced_from(&self.token))
    }

    /// Starts again under another token, with nothing in the store. The holder that it waited for stays known.
    pub(crate) fn restart(&mut self, token: Token) {
        let refusal = self.refusal.take().map(Refusal::into_history);
        *self = Self { refusal, ..Self::new(token, self.share, self.claim) };
    }

    /// Asks under another token from now on. What is known of the holder stays.
    pub(crate) fn renew_token(&mut self, token: Token) {
        mutant!(RefusedTokenKept => return);
        *self = Self { refusal: self.refusal.take(), waits: self.waits, ..Self::new(token, self.share, self.claim) };
    }

    /// Whether the store may have anything for this token. After a plain claim that was refused it has nothing, but for the mark of the
    /// token itself.
    pub(crate) fn may_stand(&self) -> bool {
        self.is_unanswered() || self.is_granted() || self.may_be_asked_for_again() || self.is_forced()
    }

    /// Whether the safety net may still ask for the token, even after its grant and release.
    pub(crate) fn may_be_asked_for_again(&self) -> bool {
        self.is_queued() || self.repeated.is_some()
    }

    /// The same ask again, for the safety net. That of a single try does not wait either.
    pub(crate) fn again(&self, env: &dyn Env, give_up: Deadline) -> Ask {
        let (key, token) = (Arc::clone(env.key()), self.token.clone());
        Ask {
            key,
            token,
            share: self.share,
            claim: self.claim,
            wait: self.waits,
            replaces: self.replacing(false),
            fences: 0,
            give_up,
        }
    }

    /// The same ask again, by the keeper, for a task that does not read the answer.
    pub(crate) fn repetition(&mut self, env: &dyn Env, give_up: Deadline) -> Ask {
        // From now on the store may have something for the token, whatever the first answer says.
        self.repeated = Some(env.now());
        self.again(env, give_up)
    }

    pub(crate) fn withdrawal(&self, env: &dyn Env) -> Release {
        Release { share: self.share, ..Release::withdrawal_at(env.now(), env.key(), &self.token, self.claim) }
    }
}

#[cfg(test)]
mod tests;
