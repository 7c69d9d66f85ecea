//! The keeper's upkeep of a lease: [why it looks](Trigger), [what it knows](Round), and [what it has to do](Action).

use std::sync::Arc;
use std::time::Duration;

use super::hold::ActiveHold;
use super::lease::Lease;
use super::{Effects, Env, Lane, Lock};
use crate::clock::{Deadline, Moment};
use crate::error::LossReason;
use crate::observe::Path;
use crate::protocol::{Ask, Renewal, Renewed};
use crate::share::Share;
use crate::timing::{ALARM_AFTER, RENEWAL_BACKOFF, RENEWALS_PER_LEASE, UNCONFIRMED_FOR};
use crate::token::Token;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// There is a young hold, a lane that lies free, or a task whose answer is due.
    Tick,
    /// Its timer has fired.
    Timer,
    /// The store may have forgotten the lease: an alarm, a broken connection, timers that missed time.
    Verify,
}

/// What the keeper knows in one pass over the locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// When a command sent now must be answered.
    pub(crate) deadline: Deadline,
    pub(crate) usual_answer: Duration,
}

#[derive(Debug)]
pub(crate) enum Action {
    Renew(Renewal),
    Lost(Token, LossReason),
    Ask(Ask),
    /// Connect, so that the keeper can send an ask.
    Connect,
}

/// What a lease that has a hold, or lingers, needs from the keeper.
#[derive(Debug)]
enum Need {
    Nothing,
    /// A look at the next tick: the hold is young.
    Look,
    Action(Action),
}

/// Whether the hold is so young that it probably ends soon, and needs no confirmation.
fn is_young(hold: &ActiveHold, now: Moment) -> bool {
    mutant!(YoungNeverConfirmed => return true);
    now.since(hold.since) < UNCONFIRMED_FOR
}

impl Lease {
    /// Sets the keeper's next look at the lease, in place of an earlier time.
    pub(super) fn look_in(&mut self, pause: Duration, now: Moment) {
        self.upkeep.look_at = Some(Box::new(Deadline::new(now, pause)));
    }

    /// The command that lengthens the lease to `lease`, without arming the alarm.
    pub(crate) fn renewal(&self, lease: Duration, env: &dyn Env) -> Renewal {
        let (key, token, grace) = (Arc::clone(env.key()), self.token.clone(), env.settings().grace);
        Renewal { key, token, share: self.share, lease, grace, arms: false }
    }

    /// What the lease needs from the keeper now. Notes what is to be sent.
    fn upkeep(&mut self, trigger: Trigger, env: &dyn Env, now: Moment) -> Need {
        let (need, look_in) = self.need(trigger, env, now);
        if let Some(pause) = look_in {
            self.look_in(pause, now);
        }
        if let Need::Action(Action::Renew(renewal)) = &need {
            self.upkeep.renewing = true;
            // The alarm may arrive before the answer.
            self.upkeep.is_armed = renewal.arms;
            self.note_renewal_sent(renewal, now);
        }
        need
    }

    /// What the lease needs now, and in how long to look again. A lease that is being renewed needs a look when its hold ends: the answer
    /// may not have arrived by then.
    fn need(&self, trigger: Trigger, env: &dyn Env, now: Moment) -> (Need, Option<Duration>) {
        // A verification does not arm the alarm: otherwise a key that keeps being changed would be verified all the time.
        let arms = || (mutant!(VerificationArms => true, else trigger == Trigger::Timer)) && self.can_arm(env);
        let renew =
            |wanted, left| (Need::Action(Action::Renew(Renewal { arms: arms(), ..self.renewal(wanted, env) })), left);
        let look_in = |pause| (Need::Nothing, Some(pause));
        let lengthen = |left: Duration| match self.lengthen_due_in(now) {
            Some(Duration::ZERO) => renew(self.claim, Some(left)),
            pause => look_in(pause.unwrap_or(left).min(left)),
        };
        let Some((hold, left)) = self.hold.as_ref().zip(self.left(now)) else {
            if self.lingers() {
                return lengthen(self.lingers_for(now));
            }
            // Between two holds there is nothing to lengthen. But a lease that the store has forgotten must not be handed over.
            return if trigger == Trigger::Verify { renew(self.claim, None) } else { (Need::Nothing, None) };
        };
        if left.is_zero() {
            mutant!(LateHandOver => return (Need::Nothing, None));
            return (Need::Action(Action::Lost(self.token.clone(), LossReason::Deadline)), None);
        }
        let left = self.reader_ends_in(now).map_or(left, |ends_in| ends_in.min(left));
        let left = self.contention_ends_in(now).map_or(left, |ends_in| ends_in.min(left));
        // Rule 16: holds that follow each other on a lease known only from a push get no more time together than one of them.
        let hinted = self.hinted.as_ref().filter(|since| now.since(***since) >= UNCONFIRMED_FOR);
        let is_doubtful = mutant!(HintStaysYoung => false, else hinted.is_some());
        if trigger == Trigger::Tick && hold.confirmed.is_none() && is_young(hold, now) && !is_doubtful {
            return (Need::Look, None);
        }
        if trigger == Trigger::Timer && hold.path == Path::Linger && hold.confirmed.is_none() && is_young(hold, now) {
            // The timer dates from when the lease lingered. The next ticks look after the hold.
            return lengthen(left);
        }
        if self.upkeep.renewing {
            // A renewal that was sent for the previous hold does not confirm this one.
            let is_tracked = trigger == Trigger::Tick && hold.confirmed.is_none();
            return if is_tracked { (Need::Look, None) } else { look_in(left) };
        }
        let pause = match hold.confirmed {
            // A renewal or verification that failed is still due.
            _ if trigger == Trigger::Verify || self.upkeep.failures > 0 => Duration::ZERO,
            None => Duration::ZERO,
            // No lease is lengthened beyond what the hold is allowed. With `at_least` the lease is that long from the start, and its
            // renewals only move the end of the hold.
            Some(_) if hold.is_kept_by(self.until) && hold.is_covered_by(hold.own) => left,
            Some(at) if mutant!(KeeperNeverRenews => false, else hold.renew || hold.is_inherited) => {
                (hold.expire / RENEWALS_PER_LEASE).saturating_sub(now.since(at))
            }
            Some(_) => left,
        };
        // Arm the alarm, unless it is armed or can't be.
        let confirmed = hold.confirmed.filter(|_| !self.upkeep.is_armed && self.can_arm(env));
        let pause = confirmed.map_or(pause, |at| ALARM_AFTER.saturating_sub(now.since(at)).min(pause));
        if !pause.is_zero() {
            // A long hold is reported once.
            let told_in = env.settings().warn_held_for.saturating_sub(now.since(hold.since));
            return look_in(pause.min(left).min(if hold.is_long_reported { left } else { told_in }));
        }
        if hold.confirmed.is_none() && is_young(hold, now) {
            // The lease is in doubt, and its hold may end at once: a crash must cost others no more than a claim (rule 11).
            return renew(self.claim, Some(left));
        }
        renew(hold.wanted(now, env.settings().drift()), Some(left))
    }

    /// Whether the lease can have an alarm. A hold that is not confirmed may end soon, and a short lease is renewed soon. The key of a
    /// shared lease is changed by all processes that share it.
    fn can_arm(&self, env: &dyn Env) -> bool {
        // Arming the alarm sends a renewal, so it verifies the lease too.
        mutant!(NoVerification => return false);
        let Some(hold) = &self.hold else { return false };
        let is_long = hold.confirmed.is_some() && hold.expire > ALARM_AFTER * RENEWALS_PER_LEASE;
        is_long && self.share.is_none() && env.keepers_connection().has_alarms
    }
}

impl Lock {
    /// The keeper looks. Adds what it has to do to `actions`. Returns how long a hold has lasted, if that is to be reported.
    pub(crate) fn look(
        &mut self,
        trigger: Trigger,
        round: &Round,
        env: &dyn Env,
        actions: &mut Vec<Action>,
        out: &mut Effects,
    ) -> Option<Duration> {
        let now = env.now();
        let is_pause_over = self.pauses.take_if(|pauses| pauses.has_passed_at(now)).is_some();
        self.has_new_look |= is_pause_over || trigger == Trigger::Timer;
        let is_of_readers = env.share() == Some(Share::READ);
        if let Some(readers) = self.leases_mut().find_map(Lease::readers) {
            readers.forget_unpolled(now);
        }
        // None of its readers was polled while their acquires went on.
        let is_left = |lease: &Lease| lease.hold.as_ref().is_some_and(|hold| hold.users() == 0);
        out.releases.extend(self.take_lease(is_left).map(|lease| lease.release(env)));
        // The linger time is over, or the store may have forgotten the lease, and no body would notice the loss.
        let stops_lingering = |lease: &Lease| trigger == Trigger::Verify || lease.lingers_for(now).is_zero();
        if self.leases().find(|lease| lease.lingers()).is_some_and(stops_lingering) {
            self.release_lingering(env, out);
        }
        let (mut held_long, mut is_soon, mut at) = (None, false, 0);
        while at < self.lanes.len() {
            let lanes = self.lanes.len();
            // On a tick the keeper looks at what is held or lingers, and at what lies free.
            let needs_upkeep = |lease: &&mut Lease| lease.hold.is_some() || lease.lingers() || trigger != Trigger::Tick;
            let Some(lease) = self.lanes.get_mut(at).and_then(Lane::lease_mut).filter(needs_upkeep) else {
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
            if let Some(hold) = lease.hold.as_mut().filter(|hold| !hold.is_long_reported)
                && let held_for = now.since(hold.since)
                && held_for >= env.settings().warn_held_for
            {
                hold.is_long_reported = true;
                held_long = held_long.or(Some(held_for));
            }
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

    /// Handles an alarm. Returns whether it was armed, so that the lease is to be verified. One alarm causes one verification.
    pub(crate) fn on_alarm(&mut self) -> bool {
        self.leases_mut().any(|lease| std::mem::take(&mut lease.upkeep.is_armed))
    }

    /// Handles the answer to a renewal that was sent at `sent`. `None` means an error, or no answer.
    pub(crate) fn on_renewal(
        &mut self,
        renewal: &Renewal,
        sent: Moment,
        outcome: Option<Renewed>,
        env: &dyn Env,
        out: &mut Effects,
    ) -> Option<Action> {
        let now = env.now();
        let lost = |lease: &Lease, reason| Need::Action(Action::Lost(lease.token.clone(), reason));
        let Self { lanes, forced, .. } = self;
        let lease = lanes.iter_mut().filter_map(Lane::lease_mut).find(|lease| lease.token == renewal.token);
        let lease = lease?;
        lease.upkeep.renewing = false;
        let trigger = if std::mem::take(&mut lease.upkeep.doubtful) { Trigger::Verify } else { Trigger::Timer };
        if matches!(outcome, Some(Renewed::Until(_))) && trigger == Trigger::Timer {
            // Rule 16: the store still has the lease, and it was asked after the message arrived.
            forced.retain(|forced| forced.token != lease.token);
        }
        let is_forced = forced.iter().any(|forced| forced.token == lease.token);
        let need = match outcome {
            Some(Renewed::Until(until)) => {
                lease.upkeep.failures = 0;
                if let Some(linger) = &mut lease.linger {
                    linger.is_reused = false;
                }
                let is_confirmed = lease.confirm(until, now);
                if let Some(hold) = lease.hold.as_mut().filter(|_| is_confirmed) {
                    // A renewal for the previous hold confirms the lease, but not the full time of this hold. It may even have been sent
                    // after this hold began; then only its shorter lease shows that.
                    let wanted = hold.wanted(sent, env.settings().drift());
                    if hold.since.since(sent).is_zero() && renewal.lease >= wanted {
                        hold.confirmed = Some(sent);
                        hold.is_inherited = false;
                        if hold.renew {
                            hold.move_end(Deadline::new(sent, hold.expire), now);
                        }
                    }
                }
                let is_whole = lease.hold.as_ref().is_none_or(|hold| hold.confirmed.is_some());
                match trigger {
                    _ if !is_confirmed => lost(lease, LossReason::Deadline),
                    Trigger::Timer if !is_whole => Need::Look,
                    trigger => lease.upkeep(trigger, env, now),
                }
            }
            // The command that confirmed the lease was sent later, and perhaps executed later: it may have granted the token once more.
            Some(Renewed::NotOwned | Renewed::Forced) if lease.is_confirmed_after(sent) => {
                lease.upkeep(Trigger::Verify, env, now)
            }
            Some(Renewed::Forced) if mutant!(ForcedAfterLoss => false, else true) => lost(lease, LossReason::Forced),
            Some(Renewed::NotOwned) if is_forced => lost(lease, LossReason::Forced),
            Some(Renewed::NotOwned | Renewed::Forced) => lost(lease, LossReason::NotKnown),
            // Unknown is not lost: the deadline decides. Until then the renewal is sent again, with growing pauses.
            None => {
                lease.upkeep.failures = lease.upkeep.failures.saturating_add(1);
                let pause = RENEWAL_BACKOFF.pause(lease.upkeep.failures);
                let left = lease.left(now).unwrap_or_else(|| lease.lingers_for(now));
                if lease.hold.is_some() && left.is_zero() {
                    lost(lease, LossReason::Deadline)
                } else {
                    if lease.hold.is_some() || lease.lingers() {
                        lease.look_in(pause.min(left), now);
                    }
                    Need::Nothing
                }
            }
        };
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
}
