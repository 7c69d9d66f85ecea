//! [`NoHold`]: why a task whose time is up has no hold. The last answer decides (promise 7): busy when that was busy, else what failed, or
//! that no answer came.

use std::time::Duration;

use super::attempt::{Attempt, Told};
use super::queue::has_room;
use super::request::ResolvedRequest;
use super::{Env, Lock, PendingAsk};
use crate::BackendError;
use crate::clock::{Deadline, Moment};
use crate::protocol::{Reach, StoreError};

/// In less time nobody can tell a server that is stopped from one that is about to answer.
const USUAL_ANSWER: Duration = Duration::from_millis(20);

/// Why a task whose time is up has no hold.
#[derive(Debug)]
pub(crate) enum NoHold {
    /// Somebody has the lock: a task here, or another process.
    Busy { here: bool },
    /// The store has not answered for this long.
    Silent(Duration),
    /// The last command failed.
    Failed(StoreError),
}

impl Lock {
    /// Why the task of `attempt` has no hold at `now`, when its time is up.
    pub(crate) fn why_no_hold(
        &self,
        request: &ResolvedRequest,
        attempt: &Attempt,
        env: &dyn Env,
        now: Moment,
    ) -> NoHold {
        mutant!(SilenceIsBusy => return NoHold::Busy { here: false });
        if let Some(error) = self.too_short(request.expire, attempt.time_of_outlived_grant(), env) {
            NoHold::Failed(error)
        } else if self.is_held() && !has_room(env, self.holds().count()) {
            NoHold::Busy { here: true }
        } else if let Some(error) = &self.failure {
            NoHold::Failed(StoreError::clone(error))
        } else if self.was_answered() || attempt.told() == Told::No {
            NoHold::Busy { here: false }
        } else if let Some(error) = attempt.lacks_room() {
            NoHold::Failed(error.clone())
        } else if attempt.was_held_here() {
            NoHold::Busy { here: true }
        } else if is_unanswered(request, attempt) || self.has_waited_for_one_ask(attempt, env, now) {
            NoHold::Silent(now.since(attempt.started))
        } else {
            // It spent its time behind tasks here.
            NoHold::Busy { here: true }
        }
    }

    /// Whether a task here asked before the task of `attempt` came, and has no answer though there was time for one.
    fn has_waited_for_one_ask(&self, attempt: &Attempt, env: &dyn Env, now: Moment) -> bool {
        let asked = self.pendings().find_map(PendingAsk::silent_since);
        let usual = USUAL_ANSWER.max(env.distance() * 2);
        asked.is_some_and(|asked| asked.since(attempt.started).is_zero() && now.since(asked) >= usual)
    }

    /// Takes in that the command of the task of `attempt` failed, which had to be answered by `deadline`: counted from when it was sent.
    pub(crate) fn on_failed_command(
        &mut self,
        attempt: &mut Attempt,
        error: StoreError,
        deadline: Deadline,
        env: &dyn Env,
        now: Moment,
    ) {
        // The task's own time was over before that of a command: the answer may be on its way, and the last one before it counts.
        let is_cut_short = error.out_of_time
            && error.reach != Reach::Unsent
            && deadline.span() < env.settings().command_timeout
            && attempt.give_up().has_passed_at(now);
        if !is_cut_short {
            self.failure = Some(Box::new(error));
        }
        attempt.record_failure(now);
    }

    /// Takes in that the store has answered since its last failure.
    pub(crate) fn forget_failure(&mut self) {
        self.failure = None;
    }

    /// The error of a task whose lease was over before its grant came, after `took`. `None` when another process has the lock.
    fn too_short(&self, expire: Duration, took: Option<Duration>, env: &dyn Env) -> Option<StoreError> {
        let is_behind_another = || self.owner_seen().is_some_and(|owner| !env.is_own_token(owner));
        let took = took.filter(|_| !is_behind_another())?;
        let text =
            format!("the lease of {expire:?} was over when its grant came, after {took:?}: ask for a longer one");
        Some(StoreError::later(BackendError::new(text)))
    }
}

/// Whether the task of `attempt` has asked, and never had an answer. Who waited here before has most of its time behind tasks here. A single
/// try was answered only when it was told that the lock is busy.
fn is_unanswered(request: &ResolvedRequest, attempt: &Attempt) -> bool {
    let had_none = request.is_single_try() || (attempt.told() == Told::Nothing && !attempt.waited);
    attempt.has_sent() && had_none
}
