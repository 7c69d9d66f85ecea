//! What the keeper does about a slot's lease: when it looks, and what it finds to do.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::lease::Lease;
use super::slot::{Loss, Slot};
use crate::clock::{Deadline, Moment};
use crate::store::{Ask, Renewal, Renewed};
use crate::token::Token;

/// A hold younger than this is not confirmed yet: most end sooner, and never pay for it.
const YOUNG: Duration = Duration::from_millis(5);
/// A renewal is due after this part of the lease, so that two can fail before it ends.
const RENEWALS_PER_LEASE: u32 = 3;

/// An entry of the keeper's schedule: when, and a number to tell it from others of that time.
pub(crate) type Due = (Instant, u64);

/// What the keeper has on its board for a lease.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entries {
    /// In the list of young holds.
    pub(crate) young: Option<u64>,
    /// In the schedule.
    pub(crate) due: Option<Due>,
}

/// What a lease needs from the keeper.
#[derive(Debug)]
pub(crate) enum Attention {
    /// Nothing any more.
    Done,
    /// Another look soon: the hold is young.
    Young,
    /// Another look after this time.
    In(Duration),
    /// A renewal now, and another look when the hold ends: the answer may not have come by then.
    Renew(Renewal, Option<Duration>),
    /// The hold on the lease of this token has ended.
    Lost(Token, Loss),
    /// An ask, to be sent now, and another look soon.
    Ask(Ask),
    /// The keeper's connection, for an ask that is to be sent, and another look soon.
    Connect,
    /// The turn is to be passed over, and another look soon.
    Missed,
}

impl Attention {
    /// Whether the slot stays in the list of those to look at soon.
    pub(crate) fn is_soon(&self) -> bool {
        matches!(self, Self::Young | Self::Ask(_) | Self::Connect | Self::Missed)
    }
}

/// Why the keeper looks at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Its hold began a moment ago.
    Young,
    /// It is time.
    Due,
    /// The store may have forgotten it.
    Verify,
}

impl Lease {
    /// Notes that `renewal` is about to be sent. It may take effect, and its answer be lost.
    pub(super) fn seek(&mut self, renewal: &Renewal, now: Moment) {
        let asked = Deadline::new(now, renewal.lease + renewal.grace);
        self.care.sought = Some(self.in_store_until().max_at(asked, now));
    }

    /// Until when the store may keep it, which is later than what it has confirmed.
    pub(super) fn in_store_until(&self) -> Deadline {
        self.care.sought.filter(|_| !mutant!(UnansweredRenewalForgotten)).unwrap_or(self.until)
    }
}

impl Slot {
    /// Looks after the lease: what does it need now?
    pub(crate) fn attend(&self, look: Look, grace: Duration) -> Attention {
        let now = Moment::now();
        let state = &mut *self.locked();
        let attention = if look == Look::Young && !state.is_held() {
            self.look_at_call(state, now)
        } else if let Some(lease) = &mut state.lease {
            lease.care.doubtful |= look == Look::Verify && lease.care.renewing;
            self.attention(lease, look, now, grace)
        } else {
            Attention::Done
        };
        if look == Look::Young && !attention.is_soon() {
            state.young = None;
        }
        attention
    }

    fn attention(&self, lease: &mut Lease, look: Look, now: Moment, grace: Duration) -> Attention {
        let attention = self.need(lease, look, now, grace);
        if let Attention::Renew(renewal, _) = &attention {
            lease.care.renewing = true;
            lease.seek(renewal, now);
        }
        attention
    }

    fn need(&self, lease: &Lease, look: Look, now: Moment, grace: Duration) -> Attention {
        let renew = |wanted, left| {
            let token = lease.token.clone();
            Attention::Renew(Renewal { key: Arc::clone(&self.key), token, lease: wanted, grace }, left)
        };
        let Some((tenure, ends)) = lease.tenure.as_ref().zip(lease.ends(now)) else {
            // Between two holds there is nothing to lengthen, but a lease that is gone must not be handed over.
            return if look == Look::Verify { renew(lease.claim, None) } else { Attention::Done };
        };
        let left = ends.remaining_at(now);
        if left.is_zero() {
            return mutant!(LateHandOver => Attention::Done, Attention::Lost(lease.token.clone(), Loss::Whole));
        }
        let is_young = now.since(tenure.since) < YOUNG || mutant!(YoungNeverConfirmed);
        if look == Look::Young && tenure.confirmed.is_none() && is_young {
            return Attention::Young;
        }
        if lease.care.renewing {
            // A renewal that was sent for the hold before this one does not confirm this one.
            let is_young = look == Look::Young && tenure.confirmed.is_none();
            return if is_young { Attention::Young } else { Attention::In(left) };
        }
        let pause = match tenure.confirmed {
            // A renewal or verification that failed is owed.
            _ if look == Look::Verify || lease.care.failures > 0 => Duration::ZERO,
            None => Duration::ZERO,
            Some(at) if tenure.renew && !mutant!(KeeperNeverRenews) => {
                (tenure.expire / RENEWALS_PER_LEASE).saturating_sub(now.since(at))
            }
            Some(_) => left,
        };
        if !pause.is_zero() {
            return Attention::In(pause.min(left));
        }
        renew(if tenure.renew { tenure.expire } else { tenure.own.remaining_at(now) }, Some(left))
    }

    /// Takes in the answer to a renewal that was sent at `sent`; `None` is no answer.
    pub(crate) fn renewed(&self, renewal: &Renewal, sent: Moment, outcome: Option<Renewed>) -> Attention {
        let now = Moment::now();
        let mut state = self.locked();
        let Some(lease) = state.lease.as_mut().filter(|lease| lease.token == renewal.token) else {
            return Attention::Done;
        };
        lease.care.renewing = false;
        let look = if std::mem::take(&mut lease.care.doubtful) { Look::Verify } else { Look::Due };
        match outcome {
            Some(Renewed::Until(until)) => {
                lease.care.failures = 0;
                if !lease.confirm(until) {
                    return Attention::Lost(lease.token.clone(), Loss::Whole);
                }
                let Some(tenure) = &mut lease.tenure else {
                    return self.attention(lease, look, now, renewal.grace);
                };
                // A renewal that was decided on for the hold before this one confirms the lease, not this hold's full time. It
                // may have been sent after this hold began: then it tells by being for less.
                let wanted = if tenure.renew { tenure.expire } else { tenure.own.remaining_at(sent) };
                if tenure.since.since(sent).is_zero() && renewal.lease >= wanted {
                    tenure.confirmed = Some(sent);
                    if tenure.renew {
                        tenure.own = tenure.own.max_at(Deadline::new(sent, tenure.expire), now);
                    }
                } else if tenure.confirmed.is_none() && look == Look::Due {
                    return Attention::Done; // it is in the list of young holds
                }
                self.attention(lease, look, now, renewal.grace)
            }
            Some(Renewed::NotOwned) => Attention::Lost(lease.token.clone(), Loss::Whole),
            Some(Renewed::Partial) => Attention::Lost(lease.token.clone(), Loss::Partial),
            None => {
                // Unknown is not lost: the deadline decides. Until then again, ever more slowly.
                lease.care.failures = (lease.care.failures + 1).min(5);
                let pause = Duration::from_millis(25) * 2_u32.pow(lease.care.failures);
                let left = lease.ends(now).map_or(Duration::ZERO, |ends| ends.remaining_at(now));
                match &lease.tenure {
                    None => Attention::Done,
                    Some(_) if left.is_zero() => Attention::Lost(lease.token.clone(), Loss::Whole),
                    Some(_) => Attention::In(pause.min(left)),
                }
            }
        }
    }

    /// Notes the entry of the keeper's schedule that is to look after the hold; returns the one that is not needed.
    pub(crate) fn scheduled(&self, due: Due) -> Option<Due> {
        match self.locked().lease.as_mut().filter(|lease| lease.tenure.is_some()) {
            Some(lease) => lease.care.entries.due.replace(due),
            None => Some(due),
        }
    }
}
