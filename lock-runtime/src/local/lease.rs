//! [`Lease`], what the process owns in the store, and [`Asked`], what it has asked the store for.

use std::sync::Arc;
use std::time::Duration;

use super::care::Entries;
use super::terms::Terms;
use crate::clock::{Deadline, Drift, Moment};
use crate::store::{Anchor, Answer, Ask, Busy, CLAIM, Cause, Grant, Pushed, Release};
use crate::token::Token;

/// A lease is handed over when it is good for at least this long, or half of what the next hold asks for (rule L1).
const GOOD_FOR: Duration = Duration::from_secs(1);
/// A streak ends after so many hand-overs, or after so long, from when another process is known to wait (rule L4).
const STREAK_HAND_OVERS: u32 = 64;
const STREAK_TIME: Duration = Duration::from_millis(10);

/// A lease that the store granted.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) token: Token,
    pub(super) claim: Duration,
    /// Until when the store has confirmed it.
    pub(super) until: Deadline,
    /// Whether the task with the turn got it, or its confirmation, from the store itself.
    pub(super) fresh: bool,
    pub(super) tenure: Option<Tenure>,
    pub(super) fences: Fences,
    pub(super) rival: Option<Rival>,
    /// Its ask waited in the store's queue, or was repeated by the keeper.
    queued: bool,
    pub(super) care: Care,
}

/// What the keeper is doing about a lease.
#[derive(Debug, Default)]
pub(super) struct Care {
    pub(super) entries: Entries,
    /// A renewal is on its way.
    pub(super) renewing: bool,
    /// The store may have forgotten the lease since that was sent.
    pub(super) doubtful: bool,
    pub(super) failures: u32,
    /// Until when the store was asked to keep the lease, answered or not.
    pub(super) sought: Option<Deadline>,
}

/// The hold that a lease carries now.
#[derive(Debug)]
pub(super) struct Tenure {
    pub(super) id: u64,
    pub(super) since: Moment,
    pub(super) expire: Duration,
    pub(super) renew: bool,
    pub(super) body: bool,
    /// The hold's own end, whatever the store has confirmed beyond it.
    pub(super) own: Deadline,
    /// When the store last confirmed the full lease for this hold.
    pub(super) confirmed: Option<Moment>,
}

/// Fencing tokens reserved and not yet used: `next..end`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fences {
    next: u64,
    end: u64,
}

impl Fences {
    pub(super) fn new(first: u64, count: u32) -> Self {
        Self { next: first, end: first + u64::from(count) }
    }

    pub(super) fn take(&mut self) -> Option<u64> {
        let token = self.next;
        (token < self.end).then(|| {
            self.next += mutant!(SameFence => 0, 1);
            token
        })
    }

    pub(super) fn is_empty(self) -> bool {
        self.next >= self.end
    }

    /// The last number reserved and the last one used, when they differ.
    fn unused(self) -> Option<(u64, u64)> {
        (!self.is_empty()).then(|| (self.end - 1, self.next - 1))
    }
}

/// Another process waits.
#[derive(Debug)]
pub(super) struct Rival {
    since: Moment,
    hand_overs: u32,
}

impl Lease {
    pub(super) fn new(asked: &Asked, grant: &Grant, fences: u32) -> Self {
        Self {
            token: asked.token.clone(),
            claim: asked.claim,
            until: grant.until,
            fresh: true,
            tenure: None,
            fences: grant.fence.map(|first| Fences::new(first, fences)).unwrap_or_default(),
            rival: (grant.contended || asked.contended).then(Rival::now),
            queued: asked.queued || asked.repeated.is_some(),
            care: Care::default(),
        }
    }

    /// Whether a hold may start on it (rule L1).
    pub(super) fn is_good_for(&self, terms: &Terms, now: Moment) -> bool {
        let enough = if self.fresh { Duration::from_nanos(1) } else { (terms.expire / 2).min(GOOD_FOR) };
        self.until.remaining_at(now) >= enough || mutant!(NoLeaseCheck)
    }

    /// How long its grant took, when it was over by then for whoever allows for so much `drift`.
    pub(super) fn outlived(&self, now: Moment, drift: Drift) -> Option<Duration> {
        let took = now.since(self.until.start());
        (self.fresh && self.tenure.is_none() && took >= drift.trusted(self.claim)).then_some(took)
    }

    /// The end of the hold that it carries: what the store confirmed, but not beyond the hold's own end.
    pub(super) fn ends(&self, now: Moment) -> Option<Deadline> {
        self.tenure.as_ref().map(|tenure| self.until.min_at(tenure.own, now))
    }

    /// Lengthens it; `false` when the hold that it carries has ended before (rule 13).
    #[must_use]
    pub(super) fn confirm(&mut self, until: Deadline) -> bool {
        let now = Moment::now();
        if self.ends(now).is_some_and(|ends| ends.remaining_at(now).is_zero()) {
            return false;
        }
        if self.until.remaining_at(now).is_zero() {
            // Rule 19.
            self.fences = Fences::default();
        }
        self.until = self.until.max_at(until, now);
        true
    }

    pub(super) fn noticed_rival(&mut self) {
        self.rival.get_or_insert_with(Rival::now);
    }

    /// Counts a hand-over; `false` when it is another process's turn (rule L4).
    pub(super) fn may_hand_over(&mut self) -> bool {
        let Some(rival) = &mut self.rival else {
            return true;
        };
        rival.hand_overs += 1;
        rival.hand_overs <= STREAK_HAND_OVERS && rival.since.elapsed() < STREAK_TIME || mutant!(StreakWithoutBound)
    }

    /// What an ask of the keeper's needs: from now on the store may be asked for the token also after its release.
    pub(super) fn expose(&mut self) -> (Token, Duration) {
        self.queued = true;
        (self.token.clone(), self.claim)
    }

    pub(super) fn release(&self, key: &Arc<str>) -> Release {
        Release {
            key: Arc::clone(key),
            token: self.token.clone(),
            claim: self.claim,
            unused_fences: self.fences.unused(),
            again: None,
            contended: self.rival.is_some(),
            queued: self.queued,
            moot: self.in_store_until().later_by(CLAIM),
        }
    }
}

impl Rival {
    fn now() -> Self {
        Self { since: Moment::now(), hand_overs: 0 }
    }
}

/// What was asked of the store and not given up: at most one ask per key and process.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and all combinations occur")]
pub(super) struct Asked {
    pub(super) token: Token,
    pub(super) claim: Duration,
    /// A command is on its way, or was given up on its way.
    pub(super) unanswered: bool,
    /// As it was before the last command was noted.
    pub(super) was_unanswered: bool,
    /// When it was last sent.
    pub(super) sent: Option<Moment>,
    /// When the keeper repeated it because its answer was not read.
    pub(super) repeated: Option<Moment>,
    /// The store has the token in its queue.
    pub(super) queued: bool,
    /// Something happened that makes the queue doubtful.
    pub(super) doubtful: bool,
    /// Part of a grant was pushed since it was last sent.
    pub(super) granted_in_part: bool,
    /// When the store last answered.
    pub(super) answered: Option<Moment>,
    pub(super) anchor: Option<Anchor>,
    /// The last answer, when it was a refusal.
    pub(super) busy: Option<Busy>,
    /// When the owner's lease ends, if it is not renewed.
    pub(super) frees: Option<Deadline>,
    /// The owner was seen to renew: the end of its lease is no reason to ask.
    pub(super) owner_renews: bool,
    granted: Option<Grant>,
    /// A grant that was pushed, to be dated by an answered ask: that answer may be read after the push.
    pushed: Option<Pushed>,
    /// Another process was heard to wait already.
    pub(super) contended: bool,
    pub(super) fences: u32,
}

impl Asked {
    pub(super) fn new(token: Token, claim: Duration) -> Self {
        Self {
            token,
            claim,
            unanswered: false,
            was_unanswered: false,
            sent: None,
            repeated: None,
            queued: false,
            doubtful: false,
            granted_in_part: false,
            answered: None,
            anchor: None,
            busy: None,
            frees: None,
            owner_renews: false,
            granted: None,
            pushed: None,
            contended: false,
            fences: 0,
        }
    }

    pub(super) fn answer(&mut self, answer: Answer, queued: bool) {
        self.unanswered = false;
        match answer {
            Answer::Granted(grant) => self.granted = Some(grant),
            Answer::Busy(busy) => {
                self.queued |= queued;
                self.doubtful = false;
                self.answered = Some(Moment::now());
                self.anchor = busy.anchor.or(self.anchor);
                // A grant that the server has not had in mind since is over.
                self.pushed = self
                    .pushed
                    .take()
                    .filter(|pushed| busy.anchor.is_none_or(|anchor| anchor.store_micros <= pushed.store_micros));
                let same_owner = self.busy.as_ref().is_some_and(|before| before.owner == busy.owner);
                self.owner_renews = same_owner && (self.owner_renews || self.frees.is_some_and(Deadline::has_passed));
                self.frees = busy.frees_in.map(Deadline::after);
                self.busy = Some(busy);
            }
            Answer::Late => self.doubtful = true,
        }
    }

    pub(super) fn push(&mut self, pushed: &Pushed) {
        if pushed.partial {
            self.granted_in_part = true;
        } else {
            self.pushed = Some(pushed.clone());
        }
    }

    /// Whether the store wants all of it back, and asked for anew.
    pub(super) fn yields(&self) -> bool {
        !self.unanswered && self.busy.as_ref().is_some_and(|busy| busy.yields)
    }

    /// Goes on under another token, with nothing in the store; whom it was waiting for stays known.
    pub(super) fn begin_anew(&mut self, token: Token) {
        let (answered, busy) = (self.answered, self.busy.take().map(|busy| Busy { yields: false, ..busy }));
        *self = Self { answered, busy, ..Self::new(token, self.claim) };
    }

    /// Whether anything may have come of it in the store: not of a plain claim that was refused.
    pub(super) fn may_stand(&self) -> bool {
        self.unanswered || self.queued || self.is_granted() || self.repeated.is_some()
    }

    pub(super) fn is_granted(&self) -> bool {
        self.granted.is_some() || self.pushed.is_some()
    }

    /// The grant, if there is one. A pushed grant that no answered ask can date is not certain for any time, and so is
    /// confirmed before use.
    pub(super) fn take_grant(&mut self) -> Option<Grant> {
        let pushed = self.pushed.take();
        let dated = pushed.map(|pushed| Grant {
            until: self.anchor.map_or_else(|| Deadline::after(Duration::ZERO), |anchor| pushed.until(anchor)),
            contended: pushed.contended,
            fence: None,
        });
        self.granted.take().or(dated)
    }

    /// Whether it is granted, and another process is known to wait behind.
    pub(super) fn is_contended(&self) -> bool {
        let granted = self.granted.as_ref().map(|grant| grant.contended);
        let pushed = self.pushed.as_ref().map(|pushed| pushed.contended);
        granted.or(pushed).is_some_and(|contended| contended || self.contended)
    }

    /// The same ask once more, by the keeper.
    pub(super) fn repetition(&mut self, key: &Arc<str>, give_up: Deadline) -> Ask {
        // From now on something may come of it in the store, whatever the answer to the first says.
        self.repeated = Some(Moment::now());
        let (key, token) = (Arc::clone(key), self.token.clone());
        Ask { key, token, claim: self.claim, wait: true, fences: 0, give_up, cause: Cause::Silence }
    }

    pub(super) fn withdrawal(&self, key: &Arc<str>) -> Release {
        Release::withdrawal(key, &self.token, self.claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_back_is_the_last_fencing_token_used() {
        let mut fences = Fences::new(10, 3);
        assert_eq!(fences.unused(), Some((12, 9)));
        assert_eq!((fences.take(), fences.unused()), (Some(10), Some((12, 10))));
        assert_eq!((fences.take(), fences.unused()), (Some(11), Some((12, 11))));
        assert_eq!((fences.take(), fences.unused()), (Some(12), None));
        assert_eq!((fences.take(), fences.unused()), (None, None));
        assert_eq!(Fences::default().unused(), None);
    }

    fn asked() -> Asked {
        Asked::new(Token::foreign("t"), CLAIM)
    }

    fn busy(owner: &str, store_micros: u64, frees_in: u64) -> Busy {
        let anchor = Some(Anchor { sent: Moment::now(), store_micros, drift: Drift::DEFAULT });
        let (owner, frees_in) = (Token::foreign(owner), Some(Duration::from_millis(frees_in)));
        Busy { owner, frees_in, endless: false, anchor, yields: false }
    }

    #[test]
    fn a_pushed_grant_is_over_when_the_server_says_later_that_another_has_the_lock() {
        for (asked_at, is_granted) in [(99, true), (100, true), (101, false)] {
            let mut asked = asked();
            let (token, claim) = (asked.token.clone(), CLAIM);
            asked.push(&Pushed {
                token,
                claim,
                store_micros: 100,
                contended: false,
                unconfirmed: false,
                partial: false,
            });
            asked.answer(Answer::Busy(busy("x", asked_at, 9)), true);
            assert_eq!(asked.is_granted(), is_granted, "{asked_at}");
        }
    }

    #[test]
    fn an_owner_that_was_to_be_gone_and_is_not_renews() {
        let mut asked = asked();
        for (owner, frees_in, renews) in
            [("x", 9000, false), ("x", 0, false), ("x", 0, true), ("x", 9000, true), ("y", 0, false), ("y", 9, true)]
        {
            asked.answer(Answer::Busy(busy(owner, 1, frees_in)), true);
            assert_eq!(asked.owner_renews, renews, "{owner} {frees_in}");
        }
    }

    #[test]
    fn what_is_to_be_taken_back_is_begun_anew_under_another_token_and_once() {
        let mut asked = asked();
        asked.answer(Answer::Busy(busy("x", 1, 9)), true);
        assert!(!asked.yields());
        asked.answer(Answer::Busy(Busy { yields: true, ..busy("x", 1, 9) }), true);
        assert!(asked.yields() && asked.may_stand());
        asked.unanswered = true;
        assert!(!asked.yields(), "an answer is on its way");
        asked.unanswered = false;
        asked.begin_anew(Token::foreign("u"));
        assert!(!asked.yields() && !asked.may_stand() && asked.token == Token::foreign("u"));
        assert!(asked.busy.is_some_and(|busy| busy.owner == Token::foreign("x")) && asked.answered.is_some());
    }
}
