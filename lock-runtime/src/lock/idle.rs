//! Rule L7: what lies free in the process is taken by a task that is polled, or goes back to the store.
//!
//! A wake is a hint. The keeper looks at each of its ticks while a task is needed, and wakes twice as many tasks as the tick before: a
//! blocked thread may have hundreds of tasks here. What no task takes is released: after 50 ms when another process waits, and after
//! 0.9 s otherwise. The 50 ms double with each lease that nobody took, up to 0.8 s: so two slow processes do not pass a lock to each
//! other for ever.
//!
//! A task that has sent a command may not read the answer. When that is overdue, the task does not act any more, and counts as asleep.
//! The keeper repeats its ask.

use std::sync::Arc;
use std::time::Duration;

use super::look::{Action, Round};
use super::{Effects, Env, Lane, Lock, PendingAsk, Standing};
use crate::clock::Moment;
use crate::protocol::Ask;
use crate::timing::{ASK_INTERVAL, FREE_PATIENCE, UNUSED_LEASE_KEPT_FOR};

/// The longest time for which what lies free is kept from another process that waits.
const LONGEST_PATIENCE: Duration = Duration::from_millis(800);

impl Lane {
    /// Whether another process is known to wait.
    fn has_contention(&self, now: Moment) -> bool {
        match &self.standing {
            Standing::Asking(pending) => pending.is_contended(),
            Standing::Leased(lease) => lease.is_contended(now),
        }
    }

    /// The ask by which the keeper finds out whether another process waits.
    fn probe(&mut self, env: &dyn Env, round: &Round) -> Ask {
        let give_up = round.deadline;
        match &mut self.standing {
            Standing::Asking(pending) => pending.repetition(env, give_up),
            Standing::Leased(lease) => {
                let (token, claim) = lease.expose();
                let (key, share) = (Arc::clone(env.key()), lease.share);
                Ask { key, token, share, claim, wait: true, replaces: None, fences: 0, give_up }
            }
        }
    }

    /// The repetition of an ask whose answer should have been read by now.
    fn overdue_ask(&mut self, env: &dyn Env, now: Moment, round: &Round) -> Option<Action> {
        mutant!(UnreadNotRepeated => return None);
        let pending = self.pending_mut()?;
        let is_overdue = |sent| now.since(sent) > FREE_PATIENCE + round.usual_answer;
        if !pending.unanswered_since().is_some_and(is_overdue)
            || pending.repeated_at().is_some_and(|at| now.since(at) < ASK_INTERVAL)
        {
            return None;
        }
        // What is sent nowhere tells nothing, and would have to be withdrawn anyway.
        Some(if is_cut_off(env) { Action::Connect } else { Action::Ask(pending.repetition(env, round.deadline)) })
    }
}

impl Lock {
    /// The keeper looks at the lane `at`, which no task holds. Returns whether it looks again at the next tick.
    pub(super) fn look_at_idle(
        &mut self,
        at: usize,
        env: &dyn Env,
        now: Moment,
        round: &Round,
        actions: &mut Vec<Action>,
        out: &mut Effects,
    ) -> bool {
        let patience = (FREE_PATIENCE * 2_u32.pow(self.untaken.min(9))).min(LONGEST_PATIENCE);
        let Some(lane) = self.lanes.get_mut(at) else { return false };
        if let Some(acting) = lane.acting {
            // Nobody comes before a request that replaces the holder (rule 25).
            let is_newest = lane.pending().is_some_and(|pending| pending.replaces.is_some());
            let patience = if is_newest { UNUSED_LEASE_KEPT_FOR } else { FREE_PATIENCE };
            if now.since(acting.since) <= patience + round.usual_answer {
                if is_newest {
                    actions.extend(lane.overdue_ask(env, now, round));
                }
                return true;
            }
            mutant!(OverdueTaskActs => return true);
            lane.acting = None;
            out.is_overtaken = true;
            if !acting.releases {
                self.waiters.note_asleep(acting.id);
            }
            if self.waiters.first_awake().is_none() {
                // Nobody else here could have taken it meanwhile either.
                lane.free_since = Some(acting.since);
            }
        }
        let Some(lane) = self.lanes.get_mut(at) else { return false };
        if let Some(action) = lane.overdue_ask(env, now, round) {
            actions.push(action);
            return true;
        }
        if !lane.is_free() {
            return lane.pending().is_some_and(PendingAsk::is_unanswered);
        }
        let Some(since) = lane.free_since else { return true };
        let free_for = now.since(since);
        mutant!(FreeLeaseKept => return true);
        if free_for >= UNUSED_LEASE_KEPT_FOR || (free_for >= patience && lane.has_contention(now)) {
            self.untaken += 1;
            let release = self.remove(at).into_release(env);
            out.is_overtaken = true;
            // A task may have read no answer because the server has not executed its command. So this goes behind that command, too.
            out.withdrawals.extend(release);
            return true;
        }
        if free_for >= FREE_PATIENCE
            && lane.probed.is_none_or(|probed| now.since(probed) >= FREE_PATIENCE)
            && env.kind().queues
            && !is_cut_off(env)
        {
            lane.probed = Some(now);
            actions.push(Action::Ask(lane.probe(env, round)));
        }
        true
    }

    /// A tick of the keeper has passed in which a task was needed: more tasks are woken. Returns whether one is still needed.
    pub(super) fn wake_more(&mut self, env: &dyn Env, out: &mut Effects) -> bool {
        if !self.needs_task(env) {
            self.wakes = 1;
            return false;
        }
        mutant!(WokenOneByOne => self.wakes = 1);
        let count = usize::try_from(self.wakes).unwrap_or(usize::MAX);
        self.waiters.wake_next(count, &mut out.woken);
        self.wakes = self.wakes.saturating_mul(2);
        self.waiters.first_awake().is_some() || self.lanes.iter().any(Lane::is_free)
    }
}

/// Whether what the keeper sends has to wait for a connection.
fn is_cut_off(env: &dyn Env) -> bool {
    mutant!(RepeatedCutOff => return false);
    env.keepers_connection().is_cut_off
}
