//! Rule L7: what lies free in the process is taken by a task that is polled, or goes back to the store.
//!
//! A wake is a hint. While a task is needed, the keeper looks at each tick, and wakes twice as many tasks as at the tick before: a blocked
//! thread may have hundreds of tasks here. What no task takes is released: after 50 ms when another process waits, and after 0.9 s
//! otherwise. The 50 ms double with each lease that no task took, up to 0.8 s, so that two slow processes don't pass a lock back and forth
//! forever.
//!
//! A task that has sent a command may not read the answer. When that is overdue, the task stops acting, and counts as asleep. The keeper
//! repeats its ask.

use std::sync::Arc;
use std::time::Duration;

use super::pending_ask::Granted;
use super::upkeep::{Action, Round};
use super::{Effects, Env, Lane, Lock, PendingAsk, Standing};
use crate::clock::Moment;
use crate::protocol::{Ask, Grant, Pushed};
use crate::timing::{ASK_INTERVAL, FREE_PATIENCE, UNUSED_LEASE_KEPT_FOR};

/// The longest time for which a free lease is kept from another process that waits.
const LONGEST_PATIENCE: Duration = Duration::from_millis(800);

impl Lane {
    /// Repeats an ask whose answer should have been read by now.
    fn overdue_ask(&mut self, env: &dyn Env, now: Moment, round: &Round) -> Option<Action> {
        mutant!(UnreadNotRepeated => return None);
        let pending = self.pending_mut()?;
        let sent = pending.unanswered.as_ref()?.sent;
        if now.since(sent) <= FREE_PATIENCE + round.usual_answer
            || pending.repeated.is_some_and(|at| now.since(at) < ASK_INTERVAL)
        {
            return None;
        }
        // An ask that can't be sent learns nothing, and would have to be withdrawn anyway.
        Some(if is_cut_off(env) { Action::Connect } else { Action::Ask(pending.repetition(env, round.deadline)) })
    }
}

impl Lock {
    /// Looks at the lane `at`, which has no hold. Returns whether the keeper looks again at the next tick.
    pub(super) fn look_at_idle(
        &mut self,
        at: usize,
        env: &dyn Env,
        now: Moment,
        round: &Round,
        actions: &mut Vec<Action>,
        out: &mut Effects,
    ) -> bool {
        let lane_patience = (FREE_PATIENCE * 2_u32.pow(self.untaken.min(9))).min(LONGEST_PATIENCE);
        let Some(lane) = self.lanes.get_mut(at) else { return false };
        if let Some(acting) = lane.acting {
            // No other task may go before a request that replaces the holder (rule 25).
            let is_newest = lane.pending().is_some_and(|pending| pending.replaces.is_some());
            let answer_patience = if is_newest { UNUSED_LEASE_KEPT_FOR } else { FREE_PATIENCE };
            if now.since(acting.since) <= answer_patience + round.usual_answer {
                if is_newest {
                    actions.extend(lane.overdue_ask(env, now, round));
                }
                return true;
            }
            mutant!(OverdueTaskActs => return true);
            lane.acting = None;
            out.is_overtaken = true;
            self.waiters.note_asleep(acting.id);
            if self.waiters.first_awake().is_none() {
                // No other task here could have taken it meanwhile either.
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
        let is_contended = match &lane.standing {
            Standing::Asking(pending) => {
                pending.contended
                    || matches!(&pending.grant, Granted::Whole(Grant { contended: true, .. }))
                    || matches!(&pending.grant, Granted::Pushed(Pushed { contended: true, .. }))
            }
            Standing::Leased(lease) => lease.is_contended(now),
        };
        if free_for >= UNUSED_LEASE_KEPT_FOR || (free_for >= lane_patience && is_contended) {
            self.untaken += 1;
            let release = self.release_lane(at, env);
            out.is_overtaken = true;
            // Perhaps no answer was read because the server has not executed the command. So the withdrawal follows that command.
            out.withdrawals.extend(release);
            return true;
        }
        if free_for >= FREE_PATIENCE
            && lane.probed.is_none_or(|probed| now.since(probed) >= FREE_PATIENCE)
            && env.kind().queues
            && !is_cut_off(env)
        {
            lane.probed = Some(now);
            // This ask tells the keeper whether another process waits.
            let give_up = round.deadline;
            actions.push(Action::Ask(match &mut lane.standing {
                Standing::Asking(pending) => pending.repetition(env, give_up),
                Standing::Leased(lease) => {
                    lease.queued = true;
                    let (key, token, share, claim) =
                        (Arc::clone(env.key()), lease.token.clone(), lease.share, lease.claim);
                    Ask { key, token, share, claim, wait: true, replaces: None, fences: 0, give_up }
                }
            }));
        }
        true
    }

    /// At each tick at which a task is needed, wakes more tasks. Returns whether one is still needed.
    pub(super) fn wake_more(&mut self, env: &dyn Env, out: &mut Effects) -> bool {
        if !self.needs_task(env) {
            self.needy_ticks = 0;
            return false;
        }
        mutant!(WokenOneByOne => self.needy_ticks = 0);
        let count = 1_usize.checked_shl(self.needy_ticks).unwrap_or(usize::MAX);
        self.waiters.wake_next(count, &mut out.woken);
        self.needy_ticks = self.needy_ticks.saturating_add(1);
        self.waiters.first_awake().is_some() || self.lanes.iter().any(Lane::is_free)
    }
}

/// Whether what the keeper sends would have to wait for a connection.
fn is_cut_off(env: &dyn Env) -> bool {
    mutant!(RepeatedCutOff => return false);
    env.keepers_connection().is_cut_off
}
