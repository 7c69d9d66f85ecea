//! [`PendingAsk`]: this process's ask to the store, and what is known of its [`Refusal`] and its grant.

use std::sync::Arc;
use std::time::Duration;

use super::Env;
use crate::clock::{Deadline, Moment};
use crate::protocol::{Anchor, Answer, Ask, Busy, Grant, Pushed, Release, Replacing, StoreError};
use crate::share::Share;
use crate::timing::ASK_INTERVAL;
use crate::token::Token;

/// An owner with at least this much left when this process first saw it would have been seen to renew: an ask that waits is repeated each
/// second, and a holder renews after a third of its lease.
const SURELY_RENEWS: Duration = Duration::from_millis(1500);
/// How exactly the end of an owner's lease is known: two clocks drift apart, and a waiter asks at least once every few seconds.
const NEAR_END: Duration = Duration::from_millis(10);

/// An ask to the store that has not been given up.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the ask")]
pub(crate) struct PendingAsk {
    pub(crate) token: Token,
    pub(crate) share: Option<Share>,
    pub(crate) claim: Duration,
    pub(crate) fences: u32,
    /// A command that is in flight, or was given up in flight. `None` when each command was answered, or was certainly not sent.
    pub(super) unanswered: Option<Unanswered>,
    /// Whether a command under this token was sent for a task that waits. A single try gets nothing that such a task is granted: the lock
    /// may have been held when the try began.
    waits: bool,
    /// The name of the request that asks in place of the owner (rule 25).
    pub(super) replaces: Option<Token>,
    /// Whether the store has said that a newer request replaces the holder (rule 25).
    pub(super) is_replaced: bool,
    /// When the keeper repeated the ask because its answer was not read.
    pub(super) repeated: Option<Moment>,
    queue: InQueue,
    /// The last answer, when it was a refusal. Boxed: most asks are granted.
    pub(super) refusal: Option<Box<Refusal>>,
    /// Why the store would refuse the ask again, as the keeper found out. The next task that is polled gets this error.
    pub(super) denial: Option<Box<StoreError>>,
    /// The ask whose answer dates a pushed grant.
    anchor: Option<Anchor>,
    pub(super) grant: Granted,
    /// Whether the store pushed a grant: another process handed the lock off.
    pub(super) was_pushed: bool,
    pub(super) contended: bool,
    /// Since when, by the store's clock, the ask has been near the front of the queue. `None` when the store has not said so.
    pub(super) near_since: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) sent: Moment,
    /// When the first command was sent, if earlier ones are unanswered too.
    pub(super) before: Option<Moment>,
    /// Whether a connection broke meanwhile. Then the answer may date from just before that.
    is_interrupted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InQueue {
    No,
    Yes,
    /// The token was in the store's queue, but something has happened since that may have removed it.
    Doubtful,
}

/// How much of a grant is known.
#[derive(Debug)]
pub(super) enum Granted {
    No,
    /// A grant was pushed. It takes an answered ask to date it, and that answer may be read only after the push.
    Pushed(Pushed),
    Whole(Grant),
}

/// What the store said about the owner of the lock when it refused an ask.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) at: Moment,
    busy: Busy,
    /// When the owner's lease ends if the owner does not renew it.
    pub(super) frees: Option<Deadline>,
    /// Whether the owner was seen to renew. Then the end of its lease is no reason to ask.
    owner_renews: bool,
    /// When the store first named this owner.
    pub(super) since: Moment,
    /// The longest remaining lease that the store has reported for this owner.
    longest: Duration,
}

impl PendingAsk {
    pub(crate) fn new(token: Token, share: Option<Share>, claim: Duration) -> Self {
        Self {
            token,
            share,
            claim,
            fences: 0,
            unanswered: None,
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

    pub(crate) fn note_sent(&mut self, now: Moment, fences: u32, waits: bool) {
        self.fences = fences;
        self.waits |= waits;
        mutant!(NotedAfterSending => return);
        self.unanswered = Some(Unanswered { sent: now, before: self.silent_since(), is_interrupted: false });
    }

    pub(crate) fn on_answer(&mut self, ask: &Ask, answer: Answer, env: &dyn Env) {
        self.fences = ask.fences;
        self.denial = mutant!(DenialOutlivesAnswer => self.denial.take(), else None);
        let unanswered = self.unanswered.take();
        match answer {
            Answer::Granted(grant) => self.grant = Granted::Whole(grant),
            Answer::Busy(busy) => self.on_refusal(busy, ask.wait && env.kind().queues, env),
            Answer::Replaced => {
                self.is_replaced = true;
                self.queue = InQueue::No;
                self.grant = Granted::No;
            }
            // `Lock::on_answer` filters it out: it says nothing.
            Answer::Late => {}
        }
        if unanswered.is_some_and(|unanswered| unanswered.is_interrupted) {
            self.on_interruption();
        }
    }

    fn on_refusal(&mut self, busy: Busy, is_queued: bool, env: &dyn Env) {
        // This may be an older answer that is read late: its task was not polled, and the keeper's ask was answered meanwhile. The store's
        // clock alone does not prove it, because it may be set back.
        let known = self.busy().and_then(|known| known.anchor).zip(busy.anchor);
        let is_older = known.is_some_and(|(known, told)| {
            !known.sent.since(told.sent).is_zero() && told.store_micros < known.store_micros
        });
        if mutant!(OlderRefusalCounts => false, else is_older) {
            return;
        }
        if is_queued || self.is_queued() {
            self.queue = InQueue::Yes;
        }
        self.anchor = busy.anchor.or(self.anchor);
        // If the server decided on this refusal after the pushed grant, the grant is over.
        let is_over = |pushed: &Pushed| busy.anchor.is_some_and(|anchor| anchor.store_micros > pushed.store_micros);
        if matches!(&self.grant, Granted::Pushed(pushed) if is_over(pushed)) {
            self.grant = Granted::No;
        }
        // The answer may be read after a push that was sent later.
        let is_far = busy.anchor.map(|anchor| anchor.store_micros) > self.near_since;
        let at = env.now();
        let frees = busy.frees_in.map(|frees_in| Deadline::new(at, frees_in));
        let told = busy.frees_in.unwrap_or_default();
        let known = self.refusal.take().filter(|known| known.busy.owner == busy.owner);
        let (owner_renews, since, longest) = known.map_or((false, at, told), |known| {
            // An ask for the end of the owner's lease may arrive a little early. An owner with so little left has not renewed.
            let is_longer = busy.frees_in.is_none_or(|left| left > NEAR_END);
            let was_over = known.frees.is_some_and(|frees| frees.remaining_at(at).is_zero());
            (known.owner_renews || (is_longer && was_over), known.since, known.longest.max(told))
        });
        self.refusal = Some(Box::new(Refusal { at, busy, frees, owner_renews, since, longest }));
        if !is_far {
            self.end_pause();
        }
    }

    pub(super) fn end_pause(&mut self) {
        if let Some(refusal) = &mut self.refusal {
            refusal.busy.pause = Duration::ZERO;
        }
    }

    /// Whether the ask need not be repeated yet: others are in front, and they repeat theirs (rule 5). A pause ends with the owner's lease:
    /// those in front may have been granted a claim whose grant is not read. If the owner renews, those who repeat their asks watch it.
    pub(crate) fn pauses(&self, env: &dyn Env) -> bool {
        let Some(refusal) = &self.refusal else { return false };
        let now = env.now();
        let pauses = now.since(refusal.at) < refusal.busy.pause;
        mutant!(PausesPastOwner => return pauses);
        pauses && (refusal.owner_renews || refusal.frees.is_none_or(|frees| !frees.remaining_at(now).is_zero()))
    }

    /// Pushes may have been missed.
    pub(crate) fn on_interruption(&mut self) {
        if let Some(unanswered) = &mut self.unanswered {
            unanswered.is_interrupted = true;
        }
        self.doubt_queue();
        // The next push may come from another server, and this server's clock can't date it.
        self.anchor = None;
    }

    /// The store may have dropped the token from its queue. The next ask, which does not pause, finds out.
    pub(super) fn doubt_queue(&mut self) {
        if self.is_queued() {
            self.queue = InQueue::Doubtful;
        }
        self.end_pause();
    }

    /// Whether an answer is on its way, or was given up on its way.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered.is_some()
    }

    pub(super) fn silent_since(&self) -> Option<Moment> {
        self.unanswered.as_ref().map(|unanswered| unanswered.before.unwrap_or(unanswered.sent))
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.queue != InQueue::No
    }

    /// Whether the ask only waits in the store's queue: there is nothing to ask, and nothing to report.
    pub(crate) fn only_waits(&self) -> bool {
        self.queue == InQueue::Yes
            && !self.is_granted()
            && !self.is_unanswered()
            && self.denial.is_none()
            && !self.is_forced()
    }

    pub(crate) fn is_new(&self) -> bool {
        self.refusal.is_none() && !self.is_unanswered() && !self.is_queued()
    }

    pub(crate) fn busy(&self) -> Option<&Busy> {
        self.refusal.as_ref().map(|refusal| &refusal.busy)
    }

    /// The owner that this ask waited for, if its lease simply ran out: it was seen until its end, and not renewed. A rest ends like this
    /// too.
    pub(super) fn dead_owner(&self, env: &dyn Env) -> Option<Token> {
        let Refusal { busy, frees, longest, .. } = self.refusal.as_deref()?;
        let is_over = frees.is_some_and(|frees| frees.remaining_at(env.now()) <= NEAR_END);
        (is_over && *longest >= SURELY_RENEWS && !busy.owner.rests()).then(|| busy.owner.clone())
    }

    /// How long to wait before asking the store again. `None` for now.
    ///
    /// The time to ask is the end of the owner's lease. The keeper's repetitions are the safety net. An owner that renews is left to that
    /// safety net; otherwise each of its renewals would cause an ask.
    pub(crate) fn pause_before_ask(&self, now: Moment) -> Option<Duration> {
        let refusal = self.refusal.as_deref();
        let frees_in = refusal.and_then(|refusal| refusal.frees).map_or(Duration::MAX, |frees| frees.remaining_at(now));
        let quiet = match refusal {
            Some(refusal) if refusal.owner_renews => ASK_INTERVAL.saturating_sub(now.since(refusal.at)),
            _ => Duration::ZERO,
        };
        let pause = frees_in.max(quiet);
        (!pause.is_zero()).then_some(pause)
    }

    /// What the next command says of a request that asks in place of the owner. `None` for any other ask.
    pub(super) fn replacing(&self, is_known: bool) -> Option<Replacing> {
        let name = self.replaces.clone()?;
        Some(Replacing { name, is_known: is_known || self.is_queued() })
    }

    /// Whether the lock was granted to this ask, and taken away before the grant was read (rule 21).
    pub(super) fn is_forced(&self) -> bool {
        mutant!(ForcedAskWaits => return false);
        !self.is_granted() && self.busy().is_some_and(|busy| busy.owner.is_forced_from(&self.token))
    }

    /// Starts over under another token, with nothing in the store. What is known of the holder stays.
    pub(crate) fn restart(&mut self, token: Token) {
        *self = Self { refusal: self.refusal.take(), ..Self::new(token, self.share, self.claim) };
    }

    /// Whether the store may have anything for this token. After a refused plain claim it has nothing, except the token's own mark.
    pub(crate) fn may_stand(&self) -> bool {
        self.is_unanswered() || self.is_granted() || self.may_be_asked_for_again() || self.is_forced()
    }

    /// Whether the safety net may still ask for the token, even after its grant and release.
    pub(crate) fn may_be_asked_for_again(&self) -> bool {
        self.is_queued() || self.repeated.is_some()
    }

    /// Repeats the ask, for the safety net. A single try's repetition does not wait either.
    pub(crate) fn again(&self, env: &dyn Env, give_up: Deadline) -> Ask {
        let (key, token, share, claim) = (Arc::clone(env.key()), self.token.clone(), self.share, self.claim);
        Ask { key, token, share, claim, wait: self.waits, replaces: self.replacing(false), fences: 0, give_up }
    }

    /// Repeats the ask for a task that does not read its answer.
    pub(crate) fn repetition(&mut self, env: &dyn Env, give_up: Deadline) -> Ask {
        // From now on the store may have something for the token, whatever the first answer says.
        self.repeated = Some(env.now());
        self.again(env, give_up)
    }

    pub(crate) fn withdrawal(&self, env: &dyn Env) -> Release {
        Release { share: self.share, ..Release::withdrawal_at(env.now(), env.key(), &self.token, self.claim) }
    }

    /// Handles a pushed grant. Rule 16: it never lasts longer than was asked for, whatever it says.
    pub(crate) fn on_push(&mut self, pushed: &Pushed) {
        self.was_pushed = true;
        self.denial = mutant!(DenialOutlivesAnswer => self.denial.take(), else None);
        if !matches!(self.grant, Granted::Whole(_)) {
            let claim = mutant!(PushedClaimBelieved => pushed.claim, else pushed.claim.min(self.claim));
            self.grant = Granted::Pushed(Pushed { claim, ..pushed.clone() });
        }
    }

    pub(crate) fn is_granted(&self) -> bool {
        !matches!(self.grant, Granted::No)
    }

    /// Takes the grant, if there is one. A pushed grant that no answered ask can date counts as over at once, so it is confirmed before use
    /// (rule 16).
    pub(crate) fn take_grant(&mut self, env: &dyn Env) -> Option<Grant> {
        match std::mem::replace(&mut self.grant, Granted::No) {
            Granted::Whole(grant) => Some(grant),
            Granted::Pushed(pushed) => {
                let undated = || Deadline::new(env.now(), Duration::ZERO);
                let until = self.anchor.map_or_else(undated, |anchor| pushed.until(anchor, env.now()));
                Some(Grant { until, contended: pushed.contended, fence: None })
            }
            Granted::No => None,
        }
    }
}

#[cfg(test)]
mod tests;
