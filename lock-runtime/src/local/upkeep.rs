//! The keeper's upkeep of a slot's lease: when it looks, and what it decides.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::active_hold::ActiveHold;
use super::early::Present;
use super::lease::Lease;
use super::lingering::Lingered;
use super::readers::Calls;
use super::slot::Slot;
use crate::clock::{Deadline, Moment};
use crate::loss_reason::LossReason;
use crate::observe::Path;
use crate::store::{AnyStore, Ask, Renewal, Renewed, Store};
use crate::timing::{ALARM_AFTER, RENEWAL_BACKOFF, RENEWALS_PER_LEASE, UNCONFIRMED_FOR};
use crate::token::Token;

/// An entry of the keeper's schedule: its time, and a number that distinguishes the entries of one time.
pub(crate) type TimerKey = (Instant, u64);

/// The entries that the keeper's schedule has for a lease.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScheduleKeys {
    /// The entry in the list of young holds.
    pub(crate) tracked: Option<u64>,
    /// The timer.
    pub(crate) due: Option<TimerKey>,
}

/// What a lease needs from the keeper.
#[derive(Debug)]
pub(crate) enum Action {
    /// Nothing any more.
    Done,
    /// Another look soon, because the hold is young.
    LookAgain,
    /// A renewal now.
    Renew(Renewal),
    /// A renewal of a lease whose task may be late, and another look soon.
    RenewUnused(Renewal),
    /// The hold has no user any more: none of the called readers came, or its task did not come while it was early.
    EndUnused,
    /// The hold on the lease of this token has ended.
    Lost(Token, LossReason),
    /// An ask to send now, and another look soon.
    Ask(Ask),
    /// A connection for the keeper, so that it can send an ask, and another look soon.
    Connect,
    /// The release of a lease that has lingered.
    ReleaseLingered(Lingered),
    /// The turn must be passed over, and another look is needed soon.
    PassOver,
}

impl Action {
    /// Whether the slot stays in the list of slots to look at soon.
    pub(crate) fn is_soon(&self) -> bool {
        matches!(self, Self::LookAgain | Self::RenewUnused(_) | Self::Ask(_) | Self::Connect | Self::PassOver)
    }
}

/// What the keeper needs to know for one pass over the slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round<'a> {
    /// The store over the keeper's own connection.
    pub(crate) store: &'a AnyStore,
    /// When a command that is sent now must be answered.
    pub(crate) deadline: Deadline,
    /// How long an answer usually takes at most.
    pub(crate) usual_answer: Duration,
}

/// Why the keeper looks at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Its hold began a moment ago.
    Tick,
    /// Its timer has ended.
    Timer,
    /// The store may have forgotten its lease.
    Verify,
}

/// Whether most holds of this age end soon, and need no confirmation.
fn is_young(hold: &ActiveHold, now: Moment) -> bool {
    mutant!(YoungNeverConfirmed => return true);
    now.since(hold.since) < UNCONFIRMED_FOR
}

impl Lease {
    /// Whether its hold needs no confirmation yet. Rule 22: holds that follow each other on a lease of which a push alone tells have
    /// no more time together than one of them.
    fn is_young(&self, hold: &ActiveHold, now: Moment) -> bool {
        mutant!(HintStaysYoung => return is_young(hold, now));
        is_young(hold, now) && self.hinted.is_none_or(|since| now.since(since) < UNCONFIRMED_FOR)
    }
}

/// When the next renewal is due for a hold that was confirmed `at` that time; `None` for a hold that is not renewed.
fn renews_in(hold: &ActiveHold, at: Moment, now: Moment) -> Option<Duration> {
    mutant!(KeeperNeverRenews => return None);
    (hold.renew || hold.is_inherited).then(|| (hold.expire / RENEWALS_PER_LEASE).saturating_sub(now.since(at)))
}

impl Round<'_> {
    /// Whether what the keeper sends about `key` has to wait for a connection.
    pub(super) fn is_cut_off(&self, key: &str) -> bool {
        mutant!(RepeatedCutOff => return false);
        self.store.is_cut_off(key)
    }
}

impl Lease {
    /// Notes that `renewal` is about to be sent. It may take effect although its answer is lost.
    pub(super) fn note_renewal_sent(&mut self, renewal: &Renewal, now: Moment) {
        let asked = Deadline::new(now, renewal.lease + renewal.grace);
        self.upkeep.requested = Some(Box::new(self.in_store_until().max_at(asked, now)));
    }

    /// Until when the store may keep the lease. That may be later than the store has confirmed.
    pub(super) fn in_store_until(&self) -> Deadline {
        mutant!(UnansweredRenewalForgotten => return self.until);
        self.upkeep.requested.as_deref().copied().unwrap_or(self.until)
    }

    /// Makes the keeper look at the lease after `pause`, in place of an earlier timer.
    ///
    /// A timer is set under the slot's lock, in the step that decides on it. So what was decided first never replaces what was
    /// decided later.
    pub(super) fn look_in(&mut self, slot: &Arc<Slot>, pause: Duration) {
        mutant!(TimerSetLater => return super::tests::timers::postpone(slot, pause));
        slot.core.schedule().set_timer(slot, pause, &mut self.upkeep.entries.due);
    }
}

impl Slot {
    /// The command that lengthens the lease of `token` to `lease`, and arms no alarm.
    pub(super) fn renewal(&self, token: Token, lease: Duration) -> Renewal {
        let (key, grace) = (Arc::clone(&self.key), self.core.settings().grace);
        Renewal { key, token, share: self.share, lease, grace, arms: false }
    }

    /// Decides what the lease needs from the keeper now.
    pub(crate) fn next_action(self: &Arc<Self>, trigger: Trigger, round: &Round<'_>) -> Action {
        let now = Moment::now();
        let mut locked = self.state.lock();
        let state = &mut *locked;
        let long = self.core.settings().warn_held_for;
        let hold = state.lease.as_mut().and_then(|lease| lease.hold.as_mut());
        let held_long = hold.and_then(|hold| hold.note_long(long, now));
        let calls = if self.share.is_some() { state.check_calls(now) } else { Calls::Answered };
        let mut called = Vec::new();
        let present = state.check_early(self, now, &mut called);
        if trigger == Trigger::Timer
            && let Some(lease) = &mut state.lease
        {
            // The timer that has ended is removed here. Else no new timer would be set.
            lease.upkeep.entries.due.take_if(|(at, _)| *at <= Instant::now());
        }
        let action = if calls == Calls::Abandoned || present == Present::Nobody {
            Action::EndUnused
        } else if let Some(lingered) = state.take_lingering_if_over(&self.key, trigger, now) {
            Action::ReleaseLingered(lingered)
        } else if trigger == Trigger::Tick && !state.is_held() {
            self.check_offer(state, now, round)
        } else if let Some(lease) = &mut state.lease {
            lease.upkeep.doubtful |= trigger == Trigger::Verify && lease.upkeep.renewing;
            self.action(lease, trigger, now)
        } else {
            Action::Done
        };
        if trigger == Trigger::Tick && !action.is_soon() {
            state.tracked = None;
            if calls == Calls::Open {
                state.track(self);
            }
        }
        if present == Present::Wanted {
            state.track(self);
        }
        drop(locked);
        called.into_iter().for_each(Waker::wake);
        if let Some(held_for) = held_long {
            self.core.note_long_hold(self, held_for);
        }
        action
    }

    fn action(self: &Arc<Self>, lease: &mut Lease, trigger: Trigger, now: Moment) -> Action {
        let (action, look_in) = self.need(lease, trigger, now);
        if let Some(pause) = look_in {
            lease.look_in(self, pause);
        }
        if let Action::Renew(renewal) = &action {
            lease.upkeep.renewing = true;
            // The alarm may come before the answer.
            lease.upkeep.is_armed = renewal.arms;
            lease.note_renewal_sent(renewal, now);
        }
        action
    }

    /// What the lease needs now, and in how long another look. What is renewed needs a look when its hold ends: the answer may
    /// not have come by then.
    fn need(&self, lease: &Lease, trigger: Trigger, now: Moment) -> (Action, Option<Duration>) {
        let renew = |wanted, left| {
            let renewal = self.renewal(lease.token.clone(), wanted);
            (Action::Renew(Renewal { arms: self.arms(lease, trigger), ..renewal }), left)
        };
        let look_in = |pause| (Action::Done, Some(pause));
        let Some((hold, ends)) = lease.hold.as_ref().zip(lease.ends(now)) else {
            if lease.lingers() {
                let left = lease.lingers_for(now);
                return match lease.lengthen_due_in(now) {
                    Some(Duration::ZERO) => renew(lease.claim, Some(left)),
                    pause => look_in(pause.unwrap_or(left).min(left)),
                };
            }
            // Between two holds there is nothing to lengthen. But a lease that the store has forgotten must not be
            // handed over.
            return if trigger == Trigger::Verify { renew(lease.claim, None) } else { (Action::Done, None) };
        };
        let left = ends.remaining_at(now);
        if left.is_zero() {
            mutant!(LateHandOver => return (Action::Done, None));
            return (Action::Lost(lease.token.clone(), LossReason::Deadline), None);
        }
        let left = hold.attendance_due_in(now).map_or(left, |due_in| due_in.min(left));
        if trigger == Trigger::Tick && hold.confirmed.is_none() && lease.is_young(hold, now) {
            return (Action::LookAgain, None);
        }
        if trigger == Trigger::Timer && hold.path == Path::Linger && hold.confirmed.is_none() && is_young(hold, now) {
            // The timer is of the time when the lease lingered. The next ticks look after the hold.
            return match lease.lengthen_due_in(now) {
                Some(Duration::ZERO) => renew(lease.claim, Some(left)),
                pause => look_in(pause.unwrap_or(left).min(left)),
            };
        }
        if lease.upkeep.renewing {
            // A renewal that was sent for the previous hold does not confirm this hold.
            let is_tracked = trigger == Trigger::Tick && hold.confirmed.is_none();
            return if is_tracked { (Action::LookAgain, None) } else { look_in(left) };
        }
        let pause = match hold.confirmed {
            // A renewal or verification that failed is still due.
            _ if trigger == Trigger::Verify || lease.upkeep.failures > 0 => Duration::ZERO,
            None => Duration::ZERO,
            // No lease is lengthened beyond what the hold is allowed. With `at_least` the lease is that long from the start. Then
            // its renewals only move the end of the hold.
            Some(_) if hold.is_covered_by(lease.until) && hold.is_covered_by(hold.own) => left,
            Some(at) => renews_in(hold, at, now).unwrap_or(left),
        };
        let pause = self.arms_in(lease, now).map_or(pause, |arms_in| arms_in.min(pause));
        if !pause.is_zero() {
            let long_hold_due_in = hold.long_hold_due_in(self.core.settings().warn_held_for, now);
            return look_in(pause.min(left).min(long_hold_due_in.unwrap_or(left)));
        }
        if hold.confirmed.is_none() && is_young(hold, now) {
            // The lease is in doubt, and its hold may end at once: a crash shall cost others no more than a claim (rule 11).
            return renew(lease.claim, Some(left));
        }
        renew(hold.wanted(now, self.core.settings().drift()), Some(left))
    }

    /// Whether a renewal that is sent now arms the alarm of the lease. A verification does not: if it did, a key that somebody
    /// changes all the time would be verified all the time.
    fn arms(&self, lease: &Lease, trigger: Trigger) -> bool {
        mutant!(VerificationArms => return self.can_arm(lease));
        trigger == Trigger::Timer && self.can_arm(lease)
    }

    /// Whether the lease can have an alarm. A hold that is not confirmed may end soon, and a short lease is renewed soon. The lock
    /// of a shared lease is changed by all who share it.
    fn can_arm(&self, lease: &Lease) -> bool {
        // To arm an alarm is to ask for the lease.
        mutant!(NoVerification => return false);
        let Some(hold) = &lease.hold else { return false };
        let is_long = hold.confirmed.is_some() && hold.expire > ALARM_AFTER * RENEWALS_PER_LEASE;
        is_long && self.share.is_none() && self.core.schedule().has_alarms(&self.key)
    }

    /// In how long the alarm of the lease is to be armed; `None` when it is armed, or can't be.
    fn arms_in(&self, lease: &Lease, now: Moment) -> Option<Duration> {
        let confirmed = lease.hold.as_ref()?.confirmed?;
        let is_due = !lease.upkeep.is_armed && self.can_arm(lease);
        is_due.then(|| ALARM_AFTER.saturating_sub(now.since(confirmed)))
    }

    /// Takes in an alarm. Returns whether it was armed, and the lease is to be verified. One alarm causes one verification.
    pub(crate) fn on_alarm(&self) -> bool {
        let mut state = self.state.lock();
        state.lease.as_mut().is_some_and(|lease| std::mem::take(&mut lease.upkeep.is_armed))
    }

    /// Takes in the answer to a renewal that was sent at `sent`. `None` means an error, or no answer.
    pub(crate) fn on_renewal(self: &Arc<Self>, renewal: &Renewal, sent: Moment, outcome: Option<Renewed>) -> Action {
        let action = self.judge_renewal(renewal, sent, outcome);
        if self.share.is_some() {
            self.call_waiting_readers();
        }
        action
    }

    fn judge_renewal(self: &Arc<Self>, renewal: &Renewal, sent: Moment, outcome: Option<Renewed>) -> Action {
        let now = Moment::now();
        let mut locked = self.state.lock();
        let state = &mut *locked;
        let Some(lease) = state.lease.as_mut().filter(|lease| lease.token == renewal.token) else {
            return Action::Done;
        };
        lease.upkeep.renewing = false;
        if outcome.is_some() {
            state.offers.on_renewed(now);
        }
        let trigger = if std::mem::take(&mut lease.upkeep.doubtful) { Trigger::Verify } else { Trigger::Timer };
        if matches!(outcome, Some(Renewed::Until(_))) && trigger == Trigger::Timer {
            // Rule 22: the store still has the lease, and it was asked after the message came.
            state.forced.retain(|token| *token != lease.token);
        }
        let is_forced = state.forced.contains(&lease.token);
        match outcome {
            Some(Renewed::Until(until)) => {
                lease.upkeep.failures = 0;
                lease.linger.on_lengthened();
                if !lease.confirm(until) {
                    return Action::Lost(lease.token.clone(), LossReason::Deadline);
                }
                let Some(hold) = &mut lease.hold else {
                    return self.action(lease, trigger, now);
                };
                // A renewal that was decided on for the previous hold confirms the lease, but not the full time of this
                // hold. Such a renewal may have been sent after this hold began. Then only its shorter lease shows
                // that.
                let wanted = hold.wanted(sent, self.core.settings().drift());
                if hold.since.since(sent).is_zero() && renewal.lease >= wanted {
                    hold.confirmed = Some(sent);
                    hold.is_inherited = false;
                    if hold.renew {
                        hold.move_end(Deadline::new(sent, hold.expire), now);
                    }
                } else if hold.confirmed.is_none() && trigger == Trigger::Timer {
                    // The hold is young.
                    state.track(self);
                    return Action::Done;
                }
                self.action(lease, trigger, now)
            }
            // The command that confirmed the lease was sent later, and perhaps executed later: it may have granted the token once more.
            Some(Renewed::NotOwned | Renewed::Partial) if lease.is_confirmed_after(sent) => {
                self.action(lease, Trigger::Verify, now)
            }
            Some(Renewed::NotOwned) if is_forced => Action::Lost(lease.token.clone(), LossReason::Forced),
            Some(Renewed::NotOwned) => Action::Lost(lease.token.clone(), LossReason::NotKnown),
            Some(Renewed::Partial) => Action::Lost(lease.token.clone(), LossReason::TooFewServers),
            None => {
                // Unknown is not lost: the deadline decides. Until then again, ever more slowly.
                lease.upkeep.failures = lease.upkeep.failures.saturating_add(1);
                let pause = RENEWAL_BACKOFF.pause(lease.upkeep.failures);
                let left = lease.ends(now).map_or(Duration::ZERO, |ends| ends.remaining_at(now));
                let look_in = match &lease.hold {
                    None if lease.lingers() => lease.lingers_for(now),
                    None => return Action::Done,
                    Some(_) if left.is_zero() => return Action::Lost(lease.token.clone(), LossReason::Deadline),
                    Some(_) => left,
                };
                lease.look_in(self, pause.min(look_in));
                Action::Done
            }
        }
    }
}
