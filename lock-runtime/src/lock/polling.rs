//! How a lock is had from a store without a queue: it is polled.
//!
//! A refused ask is over. The next one goes out after a random pause, under another token where a part of the first may stand. Nobody
//! hears that others wait, and nobody has a place among them. A process whose tasks hand a lease over for long lets it go, and pauses
//! for longer than the others.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::attempt::Attempt;
use super::{Env, Lock};
use crate::clock::{Deadline, Moment};
use crate::timing::{POLL_PAUSE, POLL_PAUSE_AFTER_STREAK, POLL_PAUSE_OF_OWN_RELEASE};

impl Lock {
    /// Takes in that the store refused the lock.
    pub(super) fn pause_after_refusal(&mut self, env: &dyn Env) {
        mutant!(PolledWithoutPause => return);
        if !env.kind().queues {
            let is_releasing = self.own_owner(env).is_some_and(|owner| !self.uses(&owner));
            let bounds = if is_releasing { POLL_PAUSE_OF_OWN_RELEASE } else { POLL_PAUSE };
            self.pauses = Some(Box::new(Deadline::new(env.now(), pause_between(bounds))));
            self.has_new_look = true;
        }
    }

    /// Takes in that a streak of hand-overs is over, and another process may have the lock.
    pub(super) fn pause_after_streak(&mut self, now: Moment) {
        mutant!(PolledAfterStreak => return);
        self.pauses = Some(Box::new(Deadline::new(now, pause_between(POLL_PAUSE_AFTER_STREAK))));
        self.has_new_look = true;
    }

    /// How long the task of `attempt` waits before it asks the store again. A single try does not wait.
    pub(super) fn pause_between_polls(&self, attempt: &Attempt, now: Moment) -> Option<Duration> {
        let pause = self.pauses.as_ref()?.remaining_at(now).min(attempt.give_up().remaining_at(now));
        (!pause.is_zero()).then_some(pause)
    }
}

/// A time by chance between the two.
fn pause_between([shortest, longest]: [Duration; 2]) -> Duration {
    let part = f64::from(u32::try_from(chance() % 1024).unwrap_or_default()) / 1024.0;
    shortest + longest.saturating_sub(shortest).mul_f64(part)
}

fn chance() -> u64 {
    // In a simulated world the seed decides.
    #[cfg(test)]
    if let Some(chance) = crate::simulation::time::chance() {
        return chance;
    }
    RandomState::new().hash_one(())
}
