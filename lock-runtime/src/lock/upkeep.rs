//! The keeper's upkeep of a lease: when it looks, and what it decides.

use std::sync::Arc;
use std::time::Duration;

use super::hold::ActiveHold;
use super::lease::Lease;
use super::look::{Action, Round, Trigger};
use super::{Effects, Env, Lane, Lock};
use crate::clock::{Deadline, Moment};
use crate::error::LossReason;
use crate::observe::Path;
use crate::protocol::{Renewal, Renewed};
use crate::share::Share;
use crate::timing::{ALARM_AFTER, RENEWAL_BACKOFF, RENEWALS_PER_LEASE, UNCONFIRMED_FOR};

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
        is_young(hold, now) && self.hinted.as_ref().is_none_or(|since| now.since(**since) < UNCONFIRMED_FOR)
    }
}

/// When the next renewal is due for a hold that was confirmed `at` that time; `None` for a hold that is not renewed.
fn renews_in(hold: &ActiveHold, at: Moment, now: Moment) -> Option<Duration> {
    mutant!(KeeperNeverRenews => return None);
    (hold.renew || hold.is_inherited).then(|| (hold.expire / RENEWALS_PER_LEASE).saturating_sub(now.since(at)))
}

impl Lease {
    /// Notes that `renewal` is about to be sent. It may take effect although its answer is lost.
    pub(crate) fn note_renewal_sent(&mut self, renewal: &Renewal, now: Moment) {
        let asked = Deadline::new(now, renewal.lease + renewal.grace);
        self.upkeep.asked_longer = self.upkeep.asked_longer.max(asked.later_than(self.until, now));
    }

    /// Until when the store may keep the lease. That may be later than the store has confirmed.
    pub(super) fn in_store_until(&self) -> Deadline {
        mutant!(UnansweredRenewalForgotten => return self.until);
        self.until.later_by(self.upkeep.asked_longer)
    }

    /// Has the keeper look at the lease after `pause`, in place of an earlier time.
    pub(super) fn look_in(&mut self, pause: Duration, now: Moment) {
        self.upkeep.look_at = Some(Box::new(Deadline::new(now, pause)));
    }

    /// The command that lengthens the lease to `lease`, and arms no alarm.
    pub(crate) fn renewal(&self, lease: Duration, env: &dyn Env) -> Renewal {
        let (key, token, grace) = (Arc::clone(env.key()), self.token.clone(), env.settings().grace);
        Renewal { key, token, share: self.share, lease, grace, arms: false }
    }

    /// What the lease needs from the keeper now. What is to be sent is noted.
    fn upkeep(&mut self, trigger: Trigger, env: &dyn Env, now: Moment) -> Need {
        let (need, look_in) = self.need(trigger, env, now);
        if let Some(pause) = look_in {
            self.look_in(pause, now);
        }
        if let Need::Action(Action::Renew(renewal)) = &need {
            self.upkeep.renewing = true;
            // The alarm may come before the answer.
            self.upkeep.is_armed = renewal.arms;
            self.note_renewal_sent(renewal, now);
        }
        need
    }

    /// What the lease needs now, and in how long another look. What is renewed needs a look when its hold ends: the answer may
    /// not have come by then.
    fn need(&self, trigger: Trigger, env: &dyn Env, now: Moment) -> (Need, Option<Duration>) {
        let renew = |wanted, left| {
            let renewal = self.renewal(wanted, env);
            (Need::Action(Action::Renew(Renewal { arms: self.arms(trigger, env), ..renewal })), left)
        };
        let look_in = |pause| (Need::Nothing, Some(pause));
        let Some((hold, ends)) = self.hold.as_ref().zip(self.ends(now)) else {
            if self.lingers() {
                let left = self.lingers_for(now);
                return match self.lengthen_due_in(now) {
                    Some(Duration::ZERO) => renew(self.claim, Some(left)),
                    pause => look_in(pause.unwrap_or(left).min(left)),
                };
            }
            // Between two holds there is nothing to lengthen. But a lease that the store has forgotten must not be
            // handed over.
            return if trigger == Trigger::Verify { renew(self.claim, None) } else { (Need::Nothing, None) };
        };
        let left = ends.remaining_at(now);
        if left.is_zero() {
            mutant!(LateHandOver => return (Need::Nothing, None));
            return (Need::Action(Action::Lost(self.token.clone(), LossReason::Deadline)), None);
        }
        let left = self.reader_ends_in(now).map_or(left, |ends_in| ends_in.min(left));
        let left = self.contention_ends_in(now).map_or(left, |ends_in| ends_in.min(left));
        if trigger == Trigger::Tick && hold.confirmed.is_none() && self.is_young(hold, now) {
            return (Need::Look, None);
        }
        if trigger == Trigger::Timer && hold.path == Path::Linger && hold.confirmed.is_none() && is_young(hold, now) {
            // The timer is of the time when the lease lingered. The next ticks look after the hold.
            return match self.lengthen_due_in(now) {
                Some(Duration::ZERO) => renew(self.claim, Some(left)),
                pause => look_in(pause.unwrap_or(left).min(left)),
            };
        }
        if self.upkeep.renewing {
            // A renewal that was sent for the previous hold does not confirm this hold.
            let is_tracked = trigger == Trigger::Tick && hold.confirmed.is_none();
            return if is_tracked { (Need::Look, None) } else { look_in(left) };
        }
        let pause = match hold.confirmed {
            // A renewal or verification that failed is still due.
            _ if trigger == Trigger::Verify || self.upkeep.failures > 0 => Duration::ZERO,
            None => Duration::ZERO,
            // No lease is lengthened beyond what the hold is allowed. With `at_least` the lease is that long from the start. Then
            // its renewals only move the end of the hold.
            Some(_) if hold.is_covered_by(self.until) && hold.is_covered_by(hold.own) => left,
            Some(at) => renews_in(hold, at, now).unwrap_or(left),
        };
        let pause = self.arms_in(env, now).map_or(pause, |arms_in| arms_in.min(pause));
        if !pause.is_zero() {
            let long_hold_due_in = hold.long_hold_due_in(env.settings().warn_held_for, now);
            return look_in(pause.min(left).min(long_hold_due_in.unwrap_or(left)));
        }
        if hold.confirmed.is_none() && is_young(hold, now) {
            // The lease is in doubt, and its hold may end at once: a crash shall cost others no more than a claim (rule 11).
            return renew(self.claim, Some(left));
        }
        renew(hold.wanted(now, env.settings().drift()), Some(left))
    }

    /// Whether a renewal that is sent now arms the alarm of the lease. A verification does not: if it did, a key that somebody
    /// changes all the time would be verified all the time.
    fn arms(&self, trigger: Trigger, env: &dyn Env) -> bool {
        mutant!(VerificationArms => return self.can_arm(env));
        trigger == Trigger::Timer && self.can_arm(env)
    }

    /// Whether the lease can have an alarm. A hold that is not confirmed may end soon, and a short lease is renewed soon. The lock
    /// of a shared lease is changed by all who share it.
    fn can_arm(&self, env: &dyn Env) -> bool {
        // To arm an alarm is to ask for the lease.
        mutant!(NoVerification => return false);
        let Some(hold) = &self.hold else { return false };
        let is_long = hold.confirmed.is_some() && hold.expire > ALARM_AFTER * RENEWALS_PER_LEASE;
        is_long && self.share.is_none() && env.keepers_connection().has_alarms
    }

    /// In how long the alarm of the lease is to be armed; `None` when it is armed, or can't be.
    fn arms_in(&self, env: &dyn Env, now: Moment) -> Option<Duration> {
        let confirmed = self.hold.as_ref()?.confirmed?;
        let is_due = !self.upkeep.is_armed && self.can_arm(env);
        is_due.then(|| ALARM_AFTER.saturating_sub(now.since(confirmed)))
    }

    /// A renewal was not answered. Unknown is not lost: the deadline decides. Until then it is sent again, ever more slowly.
    fn on_unanswered_renewal(&mut self, now: Moment) -> Need {
        self.upkeep.failures = self.upkeep.failures.saturating_add(1);
        let pause = RENEWAL_BACKOFF.pause(self.upkeep.failures);
        let left = self.ends(now).map_or(Duration::ZERO, |ends| ends.remaining_at(now));
        let look_in = match &self.hold {
            None if self.lingers() => self.lingers_for(now),
            None => return Need::Nothing,
            Some(_) if left.is_zero() => return Need::Action(Action::Lost(self.token.clone(), LossReason::Deadline)),
            Some(_) => left,
        };
        self.look_in(pause.min(look_in), now);
        Need::Nothing
    }
}

/// What a lease needs from the keeper.
#[derive(Debug)]
enum Need {
    Nothing,
    /// A look at the next tick: the hold is young.
    Look,
    Action(Action),
}

impl Lock {
    /// The keeper looks. What it has to do goes into `actions`. Returns how long a hold has lasted, when that is to be told.
    pub(crate) fn look(
        &mut self,
        trigger: Trigger,
        round: &Round,
        env: &dyn Env,
        actions: &mut Vec<Action>,
        out: &mut Effects,
    ) -> Option<Duration> {
        let now = env.now();
        if self.pauses.take_if(|pauses| pauses.has_passed_at(now)).is_some() {
            self.has_new_look = true;
        }
        let is_of_readers = env.share() == Some(Share::READ);
        if is_of_readers {
            self.end_unpolled(env, now, out);
        }
        actions.extend(self.take_lingering_if_over(trigger, env, now).map(Action::ReleaseLingered));
        let (mut held_long, mut is_soon, mut at) = (None, false, 0);
        while at < self.lanes.len() {
            let lanes = self.lanes.len();
            let lane = self.lanes.get_mut(at);
            let Some(lease) = lane.and_then(Lane::lease_mut).filter(|lease| lease.needs_look(trigger)) else {
                if trigger == Trigger::Tick {
                    is_soon |= self.look_at_idle(at, env, now, round, actions, out);
                }
                at += usize::from(self.lanes.len() == lanes);
                continue;
            };
            at += 1;
            let is_due = lease.upkeep.look_at.take_if(|at| at.has_passed_at(now)).is_some();
            self.has_new_look |= is_due;
            if trigger == Trigger::Timer && !is_due {
                continue;
            }
            let told = lease.hold.as_mut().and_then(|hold| hold.note_long(env.settings().warn_held_for, now));
            held_long = held_long.or(told);
            lease.upkeep.doubtful |= trigger == Trigger::Verify && lease.upkeep.renewing;
            match lease.upkeep(trigger, env, now) {
                Need::Nothing => {}
                Need::Look => is_soon = true,
                Need::Action(action) => actions.push(action),
            }
            self.has_new_look = true;
            // A reader may have ended by itself.
            out.wakes |= is_of_readers;
        }
        if trigger == Trigger::Tick {
            is_soon |= self.wake_more(env, out);
            self.is_tracked = is_soon;
        }
        if is_of_readers {
            self.wake_waiting_readers(now, out);
        }
        held_long
    }

    /// Takes in an alarm. Returns whether it was armed, and the lease is to be verified. One alarm causes one verification.
    pub(crate) fn on_alarm(&mut self) -> bool {
        self.leases_mut().any(|lease| std::mem::take(&mut lease.upkeep.is_armed))
    }

    /// Takes in the answer to a renewal that was sent at `sent`. `None` means an error, or no answer.
    pub(crate) fn on_renewal(
        &mut self,
        renewal: &Renewal,
        sent: Moment,
        outcome: Option<Renewed>,
        env: &dyn Env,
        out: &mut Effects,
    ) -> Option<Action> {
        let now = env.now();
        let need = self.judge_renewal(renewal, sent, outcome, env, now);
        self.has_new_look = true;
        if env.share() == Some(Share::READ) {
            self.wake_waiting_readers(now, out);
        }
        match need {
            Need::Nothing => None,
            Need::Look => {
                self.is_tracked = true;
                None
            }
            Need::Action(action) => Some(action),
        }
    }

    fn judge_renewal(
        &mut self,
        renewal: &Renewal,
        sent: Moment,
        outcome: Option<Renewed>,
        env: &dyn Env,
        now: Moment,
    ) -> Need {
        let lost = |lease: &Lease, reason| Need::Action(Action::Lost(lease.token.clone(), reason));
        let Self { lanes, forced, .. } = self;
        let lease = lanes.iter_mut().filter_map(Lane::lease_mut).find(|lease| lease.token == renewal.token);
        let Some(lease) = lease else { return Need::Nothing };
        lease.upkeep.renewing = false;
        let trigger = if std::mem::take(&mut lease.upkeep.doubtful) { Trigger::Verify } else { Trigger::Timer };
        if matches!(outcome, Some(Renewed::Until(_))) && trigger == Trigger::Timer {
            // Rule 22: the store still has the lease, and it was asked after the message came.
            forced.retain(|forced| forced.token != lease.token);
        }
        let is_forced = forced.iter().any(|forced| forced.token == lease.token);
        match outcome {
            Some(Renewed::Until(until)) => {
                lease.upkeep.failures = 0;
                lease.linger.on_lengthened();
                if !lease.confirm(until, now) {
                    return lost(lease, LossReason::Deadline);
                }
                let Some(hold) = &mut lease.hold else {
                    return lease.upkeep(trigger, env, now);
                };
                // A renewal that was decided on for the previous hold confirms the lease, but not the full time of this
                // hold. Such a renewal may have been sent after this hold began. Then only its shorter lease shows
                // that.
                let wanted = hold.wanted(sent, env.settings().drift());
                if hold.since.since(sent).is_zero() && renewal.lease >= wanted {
                    hold.confirmed = Some(sent);
                    hold.is_inherited = false;
                    if hold.renew {
                        hold.move_end(Deadline::new(sent, hold.expire), now);
                    }
                } else if hold.confirmed.is_none() && trigger == Trigger::Timer {
                    // The hold is young.
                    return Need::Look;
                }
                lease.upkeep(trigger, env, now)
            }
            // The command that confirmed the lease was sent later, and perhaps executed later: it may have granted the token once more.
            Some(Renewed::NotOwned | Renewed::Forced) if lease.is_confirmed_after(sent) => {
                lease.upkeep(Trigger::Verify, env, now)
            }
            Some(Renewed::Forced) => {
                mutant!(ForcedAfterLoss => return lost(lease, LossReason::NotKnown));
                lost(lease, LossReason::Forced)
            }
            Some(Renewed::NotOwned) if is_forced => lost(lease, LossReason::Forced),
            Some(Renewed::NotOwned) => lost(lease, LossReason::NotKnown),
            None => lease.on_unanswered_renewal(now),
        }
    }
}

impl Lease {
    /// Whether the keeper looks at the lease for this reason, and not at what lies free.
    fn needs_look(&self, trigger: Trigger) -> bool {
        self.hold.is_some() || self.lingers() || trigger != Trigger::Tick
    }
}
