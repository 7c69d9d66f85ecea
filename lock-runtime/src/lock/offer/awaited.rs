//! [`Awaited`]: the task with the turn waits for the answer to a command about its lease.

use std::time::Duration;

use super::{Offer, is_cut_off};
use crate::clock::{Deadline, Moment};
use crate::lock::look::{Action, Round};
use crate::lock::{Env, Lock};
use crate::timing::{STEP_PATIENCE, TURN_PATIENCE};

/// A command about a lease, whose answer the task with the turn has to read.
///
/// When the task has not read it in time, the keeper renews the lease. When that is answered, the task's own answer has come, too. Then
/// the task is late for those who wait, and the keeper asks the server whether somebody does.
#[derive(Debug)]
pub(in crate::lock) struct Awaited {
    since: Moment,
    /// How long the task may take before the keeper sends a command.
    patience: Duration,
    /// When the keeper sends another command. `None` until it has sent one.
    next: Option<Deadline>,
    /// Whether the keeper's renewal was answered.
    is_answered: bool,
}

impl Awaited {
    pub(super) fn new(since: Moment, patience: Duration) -> Self {
        Self { since, patience: patience.min(STEP_PATIENCE), next: None, is_answered: false }
    }

    /// Takes in that a renewal by the keeper, which was sent at `sent`, was answered.
    pub(super) fn on_renewed(&mut self, sent: Moment, now: Moment) {
        if !self.is_answered && self.is_older_than(sent) {
            (self.is_answered, self.next) = (true, Some(Deadline::new(now, Duration::ZERO)));
        }
    }

    /// Whether the command was sent before the keeper's renewal, which was sent at `renewal`. A renewal that was on its way before, for
    /// the last hold of the lease, says nothing about the answer to the command.
    fn is_older_than(&self, renewal: Moment) -> bool {
        mutant!(EarlierRenewalCounts => return true);
        !renewal.since(self.since).is_zero()
    }

    /// When the keeper sends its next command, with a store at this `distance`.
    fn next(&self, distance: Duration) -> Deadline {
        self.next.unwrap_or_else(|| Deadline::new(self.since, self.patience + distance))
    }

    /// When the task is late in any case. The store may look nearer by now than when the command was sent: a server that stood still when
    /// the connection was made looked far away.
    fn latest(&self, distance: Duration) -> Deadline {
        Deadline::new(self.since, STEP_PATIENCE + distance)
    }
}

impl Lock {
    /// Looks after a task that has not read the answer about its lease yet.
    pub(super) fn check_awaited(&mut self, env: &dyn Env, now: Moment, round: &Round) -> Action {
        let is_wanted = self.has_contention(now) || !self.waiters.is_empty();
        let Offer::Awaiting(awaited) = &mut self.offers.offer else { return Action::Done };
        mutant!(StepLateAtLast => awaited.is_answered = false);
        let distance = distance(env);
        if awaited.latest(distance).remaining_at(now).is_zero() || (awaited.is_answered && is_wanted) {
            self.offers.offer = Offer::Noticed(Deadline::new(now, Duration::ZERO));
            return Action::PassOver;
        }
        if !awaited.next(distance).remaining_at(now).is_zero() || is_cut_off(env) {
            return Action::LookAgain;
        }
        awaited.next = Some(Deadline::new(now, TURN_PATIENCE));
        if awaited.is_answered {
            return self.contention_probe(env, round.deadline).map_or(Action::LookAgain, Action::Ask);
        }
        match self.lease_mut().filter(|lease| !lease.upkeep.renewing) {
            Some(lease) => {
                let renewal = lease.renewal(lease.claim, env);
                lease.upkeep.renewing = true;
                lease.note_renewal_sent(&renewal, now);
                Action::RenewUnused(renewal)
            }
            None => Action::LookAgain,
        }
    }
}

/// How long an answer is on its way.
fn distance(env: &dyn Env) -> Duration {
    mutant!(StepsFromAfarAreLate => return Duration::ZERO);
    env.distance()
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::super::Offers;
    use super::*;
    use crate::lock::plain::Plain;
    use crate::mutants::{Mutant, Seeded};

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_was_sent_before_a_step_says_nothing_about_the_answer_to_that_step() {
        for (bug, is_earlier, is_answered) in
            [(None, true, false), (None, false, true), (Some(Mutant::EarlierRenewalCounts), true, true)]
        {
            let _seeded = Seeded::begin(bug);
            let mut offers = Offers::default();
            let earlier = Moment::now();
            advance(TURN_PATIENCE).await;
            offers.act(Moment::now(), None);
            advance(TURN_PATIENCE).await;
            let later = Moment::now();
            offers.on_renewed(if is_earlier { earlier } else { later }, later);
            let Offer::Awaiting(awaited) = offers.offer else { unreachable!("the task acts") };
            assert_eq!(awaited.is_answered, is_answered, "{bug:?}");
        }
    }

    /// A server that stood still when the connection was made looked far away when the step began.
    #[tokio::test(start_paused = true)]
    async fn a_step_has_the_time_for_a_server_that_is_as_near_as_it_is_known_to_be_now() {
        let mut lock = Lock { turn: Some(1), ..Lock::default() };
        lock.offers.act(Moment::now(), None);
        advance(STEP_PATIENCE).await;
        let now = Moment::now();
        let round = Round { deadline: Deadline::new(now, STEP_PATIENCE), usual_answer: Duration::ZERO };
        for (distance, is_late) in [(STEP_PATIENCE, false), (Duration::ZERO, true)] {
            let action = lock.check_offer(&Plain::at(distance), now, &round);
            assert_eq!(matches!(action, Action::PassOver), is_late, "{action:?}");
        }
    }
}
