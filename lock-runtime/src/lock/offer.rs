//! [`Offers`]: whether a task takes up its turn, and what happens when it does not (rule L7: such a turn passes on).
//!
//! A turn is passed by waking a task. It may take long until that task is polled: its thread works, or its future is
//! kept behind another future. So the keeper checks whether the task came. When the task did not come, the turn goes to
//! the next task here, and the late task keeps its place. When all tasks are late, the lease is
//! kept for at most 0.9 s, while the keeper asks whether another process waits; then the lease is released.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::look::{Action, Round};
use super::pending_ask::PendingAsk;
use super::{Env, Lock, Standing};
use crate::attendance::patience_with;
use crate::clock::{Deadline, Moment};
use crate::protocol::Ask;
use crate::timing::{ASK_INTERVAL, TURN_PATIENCE, UNUSED_LEASE_KEPT_FOR};

mod awaited;
mod late;

use awaited::Awaited;
pub(crate) use late::Rejoined;

/// When this many tasks are late, all tasks behind them are called at once, and not one after another.
const MANY_LATE: usize = 3;

/// The state of the turn: its task is called, late, or has taken it up. The way of a task that does not come is `Made`, `Noticed`,
/// `Missed`.
#[derive(Debug, Default)]
pub(super) enum Offer {
    /// The task has taken the turn up, and waits for others.
    #[default]
    TakenUp,
    /// The task has taken the turn up, and takes its next step before this deadline.
    Acting(Deadline),
    /// The task waits for the answer to a command about its lease. Boxed: few leases need a command before their hold.
    Awaiting(Box<Awaited>),
    /// The task has something to do: the turn was passed to it, or a grant came.
    Made,
    /// The keeper has seen that, and the task must come before this deadline.
    Noticed(Deadline),
    /// The task did not come, and no other task here can take the turn. At this time the keeper asks the server whether
    /// another process waits.
    Missed(Deadline),
}

/// What a slot knows about the tasks that it has called.
#[derive(Debug)]
pub(super) struct Offers {
    pub(super) offer: Offer,
    /// How long the task with the turn may take to come, if it has more time than others. Boxed: only who came late has.
    patience: Option<Box<Duration>>,
    /// Until when the lease may stay unused. Boxed: it is known only after a task came late.
    idle: Option<Box<Deadline>>,
    /// The tasks that did not come when they were called, by their places in the queue.
    late: BTreeMap<u64, Late>,
    /// When the task with the turn sent the ask that it waits for.
    pub(super) awaits_since: Option<Moment>,
    /// Whether the task with the turn only waits for the answer to its release.
    pub(super) is_releasing: bool,
}

/// What is known of a late task.
#[derive(Clone, Copy, Debug)]
struct Late {
    since: Moment,
    /// Whether a task that came later has taken its turn.
    is_seized: bool,
}

impl Late {
    fn since(now: Moment) -> Self {
        Self { since: now, is_seized: false }
    }
}

impl Default for Offers {
    fn default() -> Self {
        Self {
            offer: Offer::TakenUp,
            patience: None,
            idle: None,
            late: BTreeMap::new(),
            awaits_since: None,
            is_releasing: false,
        }
    }
}

impl Offers {
    /// Notes that the task `id`, which has the turn, acts.
    pub(super) fn take_up(&mut self, id: u64, now: Moment) {
        self.awaits_since = None;
        if !matches!(self.offer, Offer::TakenUp) {
            self.offer = Offer::TakenUp;
            self.idle = None;
            if let Some(late) = self.late.remove(&id) {
                // Its next step takes as many polls, each of them late.
                let patience = self.patience() + patience_with(Some(late.since), now);
                self.patience = Some(Box::new(patience.min(UNUSED_LEASE_KEPT_FOR)));
            }
        }
    }

    /// Notes that the task with the turn acts, and takes its next step within `pause`, or when it has the answer of the store.
    pub(super) fn act(&mut self, now: Moment, pause: Option<Duration>) {
        self.offer = match pause {
            Some(pause) => Offer::Acting(Deadline::new(now, pause + TURN_PATIENCE)),
            None => Offer::Awaiting(Box::new(Awaited::new(now, self.patience()))),
        };
    }

    /// Notes that the task with the turn waits for the answer to its release, which carries an ask along.
    pub(super) fn await_release(&mut self, now: Moment) {
        self.awaits_since = Some(now);
        self.is_releasing = true;
    }

    /// Takes in that a renewal by the keeper, which was sent at `sent`, was answered.
    pub(super) fn on_renewed(&mut self, sent: Moment, now: Moment) {
        if let Offer::Awaiting(awaited) = &mut self.offer {
            awaited.on_renewed(sent, now);
        }
    }

    /// Notes that the task with the turn has something to do.
    pub(super) fn make(&mut self) {
        if self.is_taken_up() {
            self.offer = Offer::Made;
        }
    }

    /// Notes that the turn passes to a task that may take `patience` to come.
    pub(super) fn make_to_next(&mut self, patience: Option<Box<Duration>>) {
        self.offer = Offer::Made;
        self.patience = patience;
        self.awaits_since = None;
        self.is_releasing = false;
    }

    /// Forgets all about the last turn: no task has the turn, or a task that is just being polled has it.
    pub(super) fn reset(&mut self) {
        self.offer = Offer::TakenUp;
        self.patience = None;
        self.idle = None;
        self.awaits_since = None;
        self.is_releasing = false;
    }

    /// How long the task with the turn may take to come.
    fn patience(&self) -> Duration {
        self.patience.as_deref().copied().unwrap_or(TURN_PATIENCE)
    }

    pub(super) fn is_missed(&self) -> bool {
        matches!(self.offer, Offer::Missed(_))
    }

    pub(super) fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// The late task that is first in the queue.
    pub(super) fn first_late(&self) -> Option<u64> {
        self.late.first_key_value().map(|(id, _)| *id)
    }

    /// Notes that a task did not come when it was called.
    pub(super) fn note_late(&mut self, id: u64, now: Moment) {
        self.late.entry(id).or_insert(Late::since(now));
    }

    /// Notes that a task which came later has the turn of the task `id`, which comes back as one that was late.
    pub(super) fn note_seized(&mut self, id: u64, now: Moment) {
        self.late.entry(id).or_insert(Late::since(now)).is_seized = true;
    }

    /// Whether a task that came later has taken the turn of the task `id`, which has not come back since.
    pub(super) fn is_seized(&self, id: u64) -> bool {
        self.late.get(&id).is_some_and(|late| late.is_seized)
    }

    /// Forgets a task that is gone. Returns whether it was late.
    pub(super) fn forget(&mut self, id: u64) -> bool {
        !self.late.is_empty() && self.late.remove(&id).is_some()
    }

    pub(super) fn forget_all(&mut self) {
        self.late.clear();
    }

    fn is_taken_up(&self) -> bool {
        matches!(self.offer, Offer::TakenUp) || self.is_acting()
    }

    /// Whether the task with the turn is in the middle of a step.
    fn is_acting(&self) -> bool {
        matches!(self.offer, Offer::Acting(_) | Offer::Awaiting(_))
    }

    /// Whether all who wait are offered the turn at once: many tasks are late, or the turn `is_idle` for too long.
    fn is_for_all(&self, is_idle: bool) -> bool {
        mutant!(CalledOneByOne => return false);
        is_idle || self.late.len() >= MANY_LATE
    }

    fn is_idle(&self, now: Moment) -> bool {
        self.idle.as_deref().is_some_and(|idle| idle.remaining_at(now).is_zero())
    }
}

/// Whether the answer to `pending` should have been read by now, and the keeper has not repeated the ask lately.
fn is_unread(pending: &PendingAsk, now: Moment, round: &Round) -> bool {
    mutant!(UnreadNotRepeated => return false);
    let is_overdue = |sent| now.since(sent) > TURN_PATIENCE + round.usual_answer;
    pending.unanswered_since().is_some_and(is_overdue)
        && pending.repeated_at().is_none_or(|at| now.since(at) >= ASK_INTERVAL)
}

impl Lock {
    /// Whether there is a lease, or the grant of a lease.
    fn is_granted(&self) -> bool {
        match &self.standing {
            Standing::Nothing => false,
            Standing::Asking(pending) => pending.is_granted(),
            Standing::Leased(_) => true,
        }
    }

    /// Whether the task with the turn could tell the store nothing new.
    fn waits_for_store(&self) -> bool {
        self.pending().is_some_and(PendingAsk::only_waits)
    }

    /// Whether another process is known to wait.
    fn has_contention(&self, now: Moment) -> bool {
        match &self.standing {
            Standing::Nothing => false,
            Standing::Asking(pending) => pending.is_contended(),
            Standing::Leased(lease) => lease.is_contended(now),
        }
    }

    /// Whether the task `id` has the turn, and was not passed over after it began to act.
    pub(super) fn acts(&self, id: u64) -> bool {
        mutant!(StaleTurnActs => return true);
        self.has_turn(id) && self.offers.is_acting()
    }

    /// Notes that the task with the turn has something to do. The keeper checks whether the task comes.
    pub(super) fn offer(&mut self) {
        if self.turn.is_some() && !self.is_held() {
            self.offers.make();
            self.track();
        }
    }

    /// How long the task with the turn may still wait for the answer to its last ask. A grant that is pushed meanwhile does
    /// not end that wait, nor does the answer to a repetition by the keeper. From a far server the answer comes much later
    /// than the push, and the task is not late.
    fn answer_is_due(&self, now: Moment, round: &Round) -> Duration {
        mutant!(RepetitionEndsWait => if !self.pending().is_some_and(PendingAsk::is_unanswered) {
            return Duration::ZERO;
        });
        let sent = self.offers.awaits_since;
        sent.map_or(Duration::ZERO, |sent| (TURN_PATIENCE + round.usual_answer).saturating_sub(now.since(sent)))
    }

    /// Ends the turn of a single try that has not read its answer, and that the keeper has repeated: the repetition was refused. Those
    /// who wait here go on.
    pub(super) fn end_late_try(&mut self, env: &dyn Env) {
        mutant!(RefusedTryHasTurn => return);
        if self.turn.is_some() && !self.is_held() {
            self.miss(env, env.now());
            self.track();
        }
    }

    /// Notes that the task with the turn did not come. Whoever comes next takes the turn.
    fn miss(&mut self, env: &dyn Env, now: Moment) {
        self.offers.offer = Offer::Missed(Deadline::new(now, Duration::ZERO));
        if let Some(id) = self.turn {
            self.note_late(id, env, now);
        }
    }

    /// Checks whether the task with the turn does what it has to do.
    pub(super) fn check_offer(&mut self, env: &dyn Env, now: Moment, round: &Round) -> Action {
        if self.turn.is_none() {
            return Action::Done;
        }
        match self.offers.offer {
            Offer::Made | Offer::Noticed(_) if self.waits_for_store() => {
                self.offers.offer = Offer::TakenUp;
                Action::Done
            }
            Offer::Made => {
                let idle =
                    **self.offers.idle.get_or_insert_with(|| Box::new(Deadline::new(now, UNUSED_LEASE_KEPT_FOR)));
                // Several tasks that were late before have no more time together than one of them.
                let patience = self.offers.patience().min(idle.remaining_at(now)).max(self.answer_is_due(now, round));
                self.offers.offer = Offer::Noticed(Deadline::new(now, patience));
                Action::LookAgain
            }
            Offer::Awaiting(_) => self.check_awaited(env, now, round),
            Offer::Noticed(deadline) | Offer::Acting(deadline) if !deadline.remaining_at(now).is_zero() => {
                Action::LookAgain
            }
            Offer::Noticed(_) | Offer::Acting(_) => Action::PassOver,
            Offer::Missed(_) if !self.is_granted() || self.has_contention(now) || self.offers.is_idle(now) => {
                Action::PassOver
            }
            Offer::Missed(at) if at.remaining_at(now).is_zero() => {
                self.offers.offer = Offer::Missed(Deadline::new(now, TURN_PATIENCE));
                self.contention_probe(env, round.deadline).map_or(Action::LookAgain, Action::Ask)
            }
            Offer::Missed(_) => Action::LookAgain,
            Offer::TakenUp => self.check_answer(env, now, round),
        }
    }

    /// What was granted was not read: the runtime of its task is blocked. So the time of the task counts from the grant.
    pub(crate) fn count_from_grant(&mut self, env: &dyn Env) {
        let now = env.now();
        let granted_for = self.pending().and_then(|pending| pending.granted_for(now, env.settings().drift()));
        if let (Some(granted_for), Offer::Made) = (granted_for, &self.offers.offer) {
            self.offers.idle.get_or_insert_with(|| Box::new(Deadline::new(now, UNUSED_LEASE_KEPT_FOR)));
            let patience = self.offers.patience().saturating_sub(granted_for);
            self.offers.offer = Offer::Noticed(Deadline::new(now, patience));
        }
    }

    /// Repeats an ask if the task that sent it does not read the answer in time.
    fn check_answer(&mut self, env: &dyn Env, now: Moment, round: &Round) -> Action {
        let pending = match &mut self.standing {
            Standing::Asking(pending) if pending.is_unanswered() => pending,
            Standing::Leased(_) => return Action::LookAgain,
            Standing::Asking(_) | Standing::Nothing => return Action::Done,
        };
        if !is_unread(pending, now, round) {
            return Action::LookAgain;
        }
        // What is sent nowhere tells nothing, and would have to be withdrawn all the same.
        if is_cut_off(env) {
            return Action::Connect;
        }
        Action::Ask(pending.repetition(env, round.deadline))
    }

    /// The ask by which the keeper finds out whether another process waits, when no task here takes up what is granted.
    fn contention_probe(&mut self, env: &dyn Env, give_up: Deadline) -> Option<Ask> {
        match &mut self.standing {
            Standing::Nothing => None,
            Standing::Asking(pending) => Some(pending.repetition(env, give_up)),
            Standing::Leased(lease) => {
                let (token, claim) = lease.expose();
                let (key, share) = (Arc::clone(env.key()), lease.share);
                Some(Ask { key, token, share, claim, wait: true, replaces: None, fences: 0, give_up, repeats: true })
            }
        }
    }
}

/// Whether what the keeper sends has to wait for a connection.
fn is_cut_off(env: &dyn Env) -> bool {
    mutant!(RepeatedCutOff => return false);
    env.keepers_connection().is_cut_off
}
