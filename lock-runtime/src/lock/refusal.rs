//! [`Refusal`]: what the store said about the owner of a lock when it refused an ask.

use std::time::Duration;

use super::Env;
use crate::clock::{Deadline, Moment};
use crate::protocol::{Anchor, Busy};
use crate::token::Token;

/// An owner of whom at least this much was left when this process first saw it would have been seen to renew: an ask that
/// waits is repeated each second, and a holder renews after a third of its lease.
const SURELY_RENEWS: Duration = Duration::from_millis(1500);
/// The end of an owner's lease is known up to this: two clocks run apart, and a waiter asks once in some seconds at least.
const NEAR_END: Duration = Duration::from_millis(10);

/// The last answer, when it was a refusal.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) at: Moment,
    pub(crate) busy: Busy,
    /// When the owner's lease ends if the owner does not renew it.
    pub(crate) frees: Option<Deadline>,
    /// Whether the owner was seen to renew. Then the end of its lease is no reason to ask.
    pub(crate) owner_renews: bool,
    /// When the store first named this owner.
    pub(crate) since: Moment,
    /// The most that the store said was left of the owner's lease.
    longest: Duration,
}

impl Refusal {
    /// The refusal `busy`, which came after the refusal `before`.
    pub(crate) fn after(before: Option<Self>, busy: Busy, at: Moment) -> Self {
        let frees = busy.frees_in.map(|frees_in| Deadline::new(at, frees_in));
        let told = busy.frees_in.unwrap_or_default();
        let Some(before) = before.filter(|before| before.busy.owner == busy.owner) else {
            return Self { at, busy, frees, owner_renews: false, since: at, longest: told };
        };
        // An ask may come a little before the end that it is meant for. An owner of whom so little is left has not renewed.
        let is_longer = busy.frees_in.is_none_or(|left| left > NEAR_END);
        let owner_renews =
            before.owner_renews || (is_longer && before.frees.is_some_and(|frees| frees.remaining_at(at).is_zero()));
        Self { at, busy, frees, owner_renews, since: before.since, longest: before.longest.max(told) }
    }

    /// Whether `busy` is an older answer, which was read only now: its task was not polled, and the keeper's ask was answered meanwhile.
    /// The store's clock alone does not say so, for it may be set back.
    pub(crate) fn is_later_than(&self, busy: &Busy) -> bool {
        mutant!(OlderRefusalCounts => return false);
        let was_before = |(known, told): (Anchor, Anchor)| {
            !known.sent.since(told.sent).is_zero() && told.store_micros < known.store_micros
        };
        self.busy.anchor.zip(busy.anchor).is_some_and(was_before)
    }

    /// Whether the ask need not be repeated yet: others are in front, who repeat theirs (rule 5). A pause ends with the owner's lease:
    /// those in front may have been granted a claim that nobody reads. An owner that renews is left to those who repeat their asks.
    pub(crate) fn pauses(&self, now: Moment) -> bool {
        let pauses = now.since(self.at) < self.busy.pause;
        mutant!(PausesPastOwner => return pauses);
        pauses && (self.owner_renews || self.frees.is_none_or(|frees| !frees.remaining_at(now).is_zero()))
    }

    /// What stays known of the holder when the ask starts again under another token.
    pub(crate) fn into_history(self) -> Self {
        Self { busy: Busy { pause: Duration::ZERO, ..self.busy }, frees: None, owner_renews: false, ..self }
    }

    /// The owner, when its lease ended by itself: it was seen to its end, and it was not renewed. A rest ends so.
    pub(crate) fn dead_owner(&self, env: &dyn Env) -> Option<Token> {
        let is_over = self.frees.is_some_and(|frees| frees.remaining_at(env.now()) <= NEAR_END);
        (is_over && self.longest >= SURELY_RENEWS && !self.busy.owner.rests()).then(|| self.busy.owner.clone())
    }
}
