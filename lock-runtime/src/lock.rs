//! [`Lock`]: what one process knows of one lock, and what it decides about it.
//!
//! It is a plain value. It sends nothing, wakes nobody, and reads no clock of its own. Each of its steps is told what happened, asks
//! its [`Env`] for what it has to know, and leaves in [`Effects`], or returns, what is to be done. So any two threads that come to a
//! lock are one step after the other.
//!
//! At any time at most one task has the turn. When the process has the lease, the task has a hold: the turn together with a deadline.
//! When a turn or a hold ends, the turn passes on, first come first served. A lease that is still good passes on with it, without a
//! round trip. This is lock cohorting (Dice, Marathe, Shavit, "Lock Cohorting", PPoPP 2012) over a lease.
//!
//! It rests on the rules L1 to L9 in `docs/protocol.md`. The code refers to them by number.

use std::collections::BTreeMap;

mod attempt;
mod early;
mod ending;
mod env;
mod hold;
mod lease;
mod lingering;
mod offer;
mod pending_ask;
#[cfg(test)]
mod plain;
mod readers;
mod refusal;
mod request;
mod seizing;
mod status;
mod step;
mod terms;
mod tokens;
mod upkeep;

pub(crate) use attempt::{Attempt, answer_time};
pub(crate) use ending::{Ended, Ending, Revoked};
pub(crate) use env::{Calls, Effects, Env};
pub(crate) use hold::{ActiveHold, EndedHold};
pub(crate) use lease::{Fences, Lease};
pub(crate) use offer::{Rejoined, Round};
pub(crate) use pending_ask::PendingAsk;
pub(crate) use readers::Joined;
pub(crate) use request::{IfBusy, PrefixPlace, ResolvedRequest};
pub(crate) use seizing::{Adopted, Seized};
pub(crate) use status::{LockStatus, TurnOutcome};
pub(crate) use step::{Started, Step};
pub(crate) use terms::{Terms, Whole};
pub(crate) use tokens::{ForcedToken, ReleaseDone};
pub(crate) use upkeep::{Action, Trigger};

use crate::clock::Moment;
use crate::observe::Path;
use crate::protocol::{Release, StoreError};
use crate::timing::TURN_PATIENCE;
use crate::token::Token;
use offer::Offers;
use tokens::EndingToken;

/// The id of the first task, less one. Tasks that come in front of all others get the ids below it.
const FIRST: u64 = 1 << 62;

/// One lock, as one process knows it. `W` calls a task that waits.
#[derive(Debug)]
pub(crate) struct Lock<W> {
    waiters: BTreeMap<u64, Waiter<W>>,
    fenced_waiters: u32,
    /// How many single tries wait for the outcome of the turn.
    waiting_tries: u32,
    last_id: u64,
    /// How many tasks have come in front of all others.
    in_front: u64,
    /// The id of the task that has the turn.
    turn: Option<u64>,
    offers: Offers,
    counts: Counts,
    /// Whether the keeper looks at the lock at each of its ticks.
    is_tracked: bool,
    standing: Standing,
    /// Why the last command to the store failed. Boxed, like all that most locks never have.
    failure: Option<Box<StoreError>>,
    /// Whether the last lease ended because another process waited.
    has_yielded: bool,
    /// Since when nothing is known of the store, if a try was given up because its task read no answer in time.
    unread_since: Option<Box<Moment>>,
    /// Tokens that are being released.
    ending: Vec<EndingToken>,
    /// The tokens whose lock was released by force, as a message says. Each stays here until the user of its hold is gone, or
    /// until the store says that the message was wrong.
    forced: Vec<Token>,
}

/// What the process has of the lock in the store.
#[expect(clippy::large_enum_variant, reason = "a lease is there on the plain way, which allocates nothing here")]
#[derive(Debug, Default)]
enum Standing {
    #[default]
    Nothing,
    /// Boxed: there is no ask while a lease is held.
    Asking(Box<PendingAsk>),
    Leased(Lease),
}

/// A task that waits for the turn.
#[derive(Debug)]
pub(crate) struct Waiter<W> {
    pub(crate) call: W,
    pub(crate) fenced: bool,
    /// How long the task may take to come when it is called.
    pub(crate) patience: std::time::Duration,
}

/// Counts of the plain path. They are kept where a lock is taken anyhow: that of the slot, and that of the table once the slot is
/// forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// How many holds there have been.
    pub(crate) holds: u64,
    pub(crate) hand_overs: u64,
    pub(crate) hand_offs: u64,
}

/// How a task finds the lock.
#[derive(Debug)]
pub(crate) enum Entered {
    /// The task has the turn at once, under this id, and perhaps a lease that lingered.
    Turn { id: u64, has_lease: bool },
    /// The task has the hold of other readers together with them.
    Joined(Joined),
    /// A task here holds the lock, and this task does not want to wait.
    Taken,
    /// The same, but the task with the turn does not hold the lock yet. A single try waits for the outcome of that turn. So many
    /// holds there were before.
    Asked { holds: u64 },
    /// Another task here has the turn, and this one replaces whoever has the lock.
    InTheWay,
}

/// Who passes a turn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedBy {
    /// The task that had the turn and is gone.
    Task,
    /// The keeper. The task keeps its place in the queue.
    Keeper,
}

/// The outcome of [`Lock::pass`].
#[derive(Debug)]
pub(crate) enum Passed<W> {
    /// To the next waiter, who is to be called.
    To(u64, W),
    /// To a late task, which comes by itself.
    ToLate,
    /// The turn was taken away before, from a late task or from a hold.
    Revoked { was_late: bool },
    /// The task was called to a hold of readers, and was the last of them.
    LeftNobody,
    /// No task waits.
    Nobody { withdrawal: Option<Release>, lease_left: bool },
}

impl<W> Default for Lock<W> {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            fenced_waiters: 0,
            waiting_tries: 0,
            last_id: 0,
            in_front: 0,
            turn: None,
            offers: Offers::default(),
            counts: Counts::default(),
            is_tracked: false,
            standing: Standing::Nothing,
            failure: None,
            has_yielded: false,
            unread_since: None,
            ending: Vec::new(),
            forced: Vec::new(),
        }
    }
}

impl Standing {
    fn lease(&self) -> Option<&Lease> {
        if let Self::Leased(lease) = self { Some(lease) } else { None }
    }

    fn lease_mut(&mut self) -> Option<&mut Lease> {
        if let Self::Leased(lease) = self { Some(lease) } else { None }
    }

    fn pending(&self) -> Option<&PendingAsk> {
        if let Self::Asking(pending) = self { Some(pending) } else { None }
    }

    fn pending_mut(&mut self) -> Option<&mut PendingAsk> {
        if let Self::Asking(pending) = self { Some(pending) } else { None }
    }

    fn take_lease_if(&mut self, condition: impl FnOnce(&mut Lease) -> bool) -> Option<Lease> {
        let is_taken = self.lease_mut().is_some_and(condition);
        match if is_taken { std::mem::take(self) } else { return None } {
            Self::Leased(lease) => Some(lease),
            Self::Nothing | Self::Asking(_) => None,
        }
    }

    fn take_pending_if(&mut self, condition: impl FnOnce(&mut PendingAsk) -> bool) -> Option<Box<PendingAsk>> {
        let is_taken = self.pending_mut().is_some_and(condition);
        match if is_taken { std::mem::take(self) } else { return None } {
            Self::Asking(pending) => Some(pending),
            Self::Nothing | Self::Leased(_) => None,
        }
    }
}

/// What others may know.
impl<W> Lock<W> {
    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.standing.lease()
    }

    pub(crate) fn lease_mut(&mut self) -> Option<&mut Lease> {
        self.standing.lease_mut()
    }

    pub(crate) fn pending(&self) -> Option<&PendingAsk> {
        self.standing.pending()
    }

    pub(crate) fn hold(&self) -> Option<&ActiveHold> {
        self.lease()?.hold.as_ref()
    }

    /// The lease that carries the hold `id`.
    pub(crate) fn lease_of(&self, id: u64) -> Option<&Lease> {
        self.lease().filter(|lease| lease.carries(id))
    }

    /// The same, to change it.
    pub(crate) fn lease_of_mut(&mut self, id: u64) -> Option<&mut Lease> {
        self.lease_mut().filter(|lease| lease.carries(id))
    }

    /// Whether a task here holds the lock.
    pub(crate) fn is_held(&self) -> bool {
        self.hold().is_some()
    }

    /// Whether a task here has the turn.
    pub(crate) fn is_taken(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether a task here has the turn, and no lease yet: it asks, or is about to.
    pub(crate) fn waits(&self) -> bool {
        self.turn.is_some() && self.lease().is_none()
    }

    /// Whether a task that comes now gets the turn.
    pub(crate) fn is_turn_free(&self) -> bool {
        self.turn.is_none() || self.offers.is_missed()
    }

    pub(crate) fn has_turn(&self, id: u64) -> bool {
        self.turn == Some(id)
    }

    /// Whether the task `id` may still decide something.
    fn may_act(&self, id: u64) -> bool {
        mutant!(StaleTurnActs => return true);
        self.has_turn(id)
    }

    /// Whether no task waits here, in whatever way: who is late waits, too.
    fn has_nobody_behind(&self) -> bool {
        self.waiters.is_empty() && !self.offers.has_late()
    }

    /// What was counted, when no task uses the lock.
    pub(crate) fn counts_if_unused(&self) -> Option<Counts> {
        let is_unused = self.turn.is_none()
            && self.has_nobody_behind()
            && matches!(self.standing, Standing::Nothing)
            && self.ending.is_empty();
        is_unused.then_some(self.counts)
    }

    /// What was counted, how many tasks hold the lock, and whether its lease lingers.
    pub(crate) fn counts(&self) -> (Counts, u32, bool) {
        (self.counts, self.hold().map_or(0, ActiveHold::users), self.lingers())
    }

    /// Whether the keeper looks at the lock at each of its ticks.
    pub(crate) fn is_tracked(&self) -> bool {
        self.is_tracked
    }

    /// Whether the keeper is to look at the lease later.
    pub(crate) fn has_look(&self) -> bool {
        self.lease().is_some_and(|lease| lease.upkeep.look_at.is_some())
    }

    /// Has the keeper look at the lock soon.
    pub(crate) fn track(&mut self) {
        self.is_tracked = true;
    }
}

/// What tests set up.
#[cfg(test)]
impl<W> Lock<W> {
    pub(crate) fn turn(&self) -> Option<u64> {
        self.turn
    }

    pub(crate) fn set_pending(&mut self, pending: Option<PendingAsk>) {
        self.standing = pending.map_or(Standing::Nothing, |pending| Standing::Asking(Box::new(pending)));
    }
}

/// Who is next.
impl<W> Lock<W> {
    /// A task comes. `None` when it has to wait.
    pub(crate) fn enter(&mut self, request: &ResolvedRequest, now: Moment) -> Option<Entered> {
        if request.joins_readers()
            && let Some(joined) = self.join(request, now)
        {
            return Some(Entered::Joined(joined));
        }
        // A turn that no task here has taken up goes to the first task that comes.
        if self.is_turn_free() {
            let id = self.take_turn();
            return Some(Entered::Turn { id, has_lease: self.reuse_lingering() });
        }
        if request.replaces() {
            return Some(Entered::InTheWay);
        }
        request.is_try().then(|| self.refuse_try())
    }

    /// How many tasks wait. The task with the turn waits, too, unless it holds the lock.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len() + usize::from(!self.is_held())
    }

    /// Adds a task that waits. Returns its id.
    pub(crate) fn wait(&mut self, waiter: Waiter<W>) -> u64 {
        let id = self.new_id();
        self.add_waiter(id, waiter);
        self.note_waiter_for_early();
        id
    }

    /// Removes a task that does not wait any more.
    pub(crate) fn leave(&mut self, id: u64) {
        self.remove_waiter(id);
    }

    /// Passes the turn `id` to the next waiter. When there is none, it returns what is left to release.
    ///
    /// A turn that was taken away passes nothing on.
    pub(crate) fn pass(&mut self, id: u64, passed_by: PassedBy, env: &dyn Env) -> Passed<W> {
        let was_late = passed_by == PassedBy::Task && self.offers.forget(id);
        if env.share().is_some() && self.forget_called(id) {
            return Passed::LeftNobody;
        }
        if self.turn != Some(id) {
            return Passed::Revoked { was_late };
        }
        if let Some(lease) = self.lease_mut() {
            lease.fresh = false;
        }
        if let Some((next, waiter)) = self.pop_waiter() {
            self.turn = Some(next);
            self.offers.make_to_next(waiter.patience);
            self.track();
            return Passed::To(next, waiter.call);
        }
        if self.offer_to_late(env) {
            return Passed::ToLate;
        }
        self.turn = None;
        self.offers.reset();
        self.is_tracked = false;
        let mut may_stand = false;
        let pending = self.standing.take_pending_if(|pending| {
            may_stand = pending.may_stand();
            true
        });
        let withdrawal = pending.filter(|_| may_stand).map(|pending| pending.withdrawal(env));
        Passed::Nobody { withdrawal, lease_left: self.lease().is_some() }
    }

    /// Whether the end of the turn `id` calls the first who waits for any permit: nobody waits for this one alone. A permit that was
    /// lost is another task's by now: its end calls nobody.
    pub(crate) fn calls_for_any_permit(&self, id: u64, env: &dyn Env) -> bool {
        mutant!(LostPermitBinds => return self.waiters.is_empty());
        self.has_turn(id) && self.waiters.is_empty() && !self.lease().is_some_and(|lease| lease.keeps_out(env))
    }

    /// Takes the turn when no task has it, or has taken it up. Returns the id.
    pub(crate) fn take_turn(&mut self) -> u64 {
        let id = self.new_id();
        self.turn = Some(id);
        self.offers.reset();
        id
    }

    /// Fails all waiters.
    pub(crate) fn close(&mut self) -> BTreeMap<u64, Waiter<W>> {
        self.offers.forget_all();
        self.take_waiters()
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        FIRST + self.last_id
    }

    /// An id for a task that comes in front of all others: the others leave the turn to it.
    fn id_in_front(&mut self) -> u64 {
        mutant!(SeizedTurnIsTakenBack => return self.new_id());
        self.in_front += 1;
        FIRST - self.in_front
    }

    pub(crate) fn add_waiter(&mut self, id: u64, waiter: Waiter<W>) {
        self.fenced_waiters += u32::from(waiter.fenced);
        self.waiters.insert(id, waiter);
    }

    fn remove_waiter(&mut self, id: u64) -> Option<Waiter<W>> {
        let waiter = self.waiters.remove(&id)?;
        self.fenced_waiters -= u32::from(waiter.fenced);
        Some(waiter)
    }

    fn pop_waiter(&mut self) -> Option<(u64, Waiter<W>)> {
        let (id, waiter) = self.waiters.pop_first()?;
        self.fenced_waiters -= u32::from(waiter.fenced);
        Some((id, waiter))
    }

    fn take_waiters(&mut self) -> BTreeMap<u64, Waiter<W>> {
        self.fenced_waiters = 0;
        std::mem::take(&mut self.waiters)
    }
}

impl<W> Waiter<W> {
    pub(crate) fn new(call: W, request: &ResolvedRequest) -> Self {
        Self { call, fenced: request.fenced, patience: TURN_PATIENCE }
    }
}

impl Counts {
    /// Counts a hold that begins.
    fn count(&mut self, path: Path) {
        self.holds += 1;
        self.hand_overs += u64::from(path == Path::HandOver);
        self.hand_offs += u64::from(path == Path::HandOff);
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.holds += other.holds;
        self.hand_overs += other.hand_overs;
        self.hand_offs += other.hand_offs;
    }
}
