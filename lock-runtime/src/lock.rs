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

mod attempt;
mod early;
mod ending;
mod env;
mod hold;
mod lease;
mod lingering;
mod look;
mod no_hold;
mod offer;
mod pending_ask;
#[cfg(test)]
mod plain;
mod polling;
mod queue;
mod readers;
mod refusal;
mod request;
mod seizing;
mod status;
mod step;
mod terms;
#[cfg(test)]
mod tests;
mod tokens;
mod upkeep;
mod wait_queue;

pub(crate) use attempt::{Attempt, Told, answer_time};
pub(crate) use ending::{Ended, Ending, Revoked};
pub(crate) use env::{Effects, Env};
pub(crate) use hold::{ActiveHold, EndedHold};
#[cfg(test)]
pub(crate) use lease::Fences;
pub(crate) use lease::Lease;
pub(crate) use look::{Action, Round, Trigger};
pub(crate) use no_hold::NoHold;
pub(crate) use offer::Rejoined;
pub(crate) use pending_ask::PendingAsk;
pub(crate) use queue::{Entered, Passed, PassedBy};
pub(crate) use readers::Joined;
pub(crate) use request::{IfBusy, ResolvedRequest};
pub(crate) use seizing::{Adopted, Seized};
pub(crate) use step::{Started, Step};
pub(crate) use terms::{Terms, Whole};
pub(crate) use tokens::{ForcedToken, ReleaseDone};
pub(crate) use wait_queue::{WaitQueue, Waiter};

use thin_vec::ThinVec;

use crate::clock::Deadline;
use crate::observe::Path;
use crate::protocol::StoreError;
use offer::Offers;
use queue::FIRST;
use tokens::{EndingToken, ForcedHold};

/// One lock, as one process knows it.
#[derive(Debug)]
pub(crate) struct Lock {
    /// The tasks that wait for the turn.
    waiters: WaitQueue,
    /// The id of the task that has the turn.
    turn: Option<u64>,
    offers: Offers,
    /// The id of the task that came last of those that replace the holder (rule 25). No id is zero.
    newest: u64,
    counts: Counts,
    /// Whether the keeper looks at the lock at each of its ticks.
    is_tracked: bool,
    /// Whether the table has forgotten it. From then on no task uses it: who comes back to it begins anew.
    is_forgotten: bool,
    standing: Standing,
    /// Why the last command to the store failed. Boxed, like all that most locks never have.
    failure: Option<Box<StoreError>>,
    /// When a store without a queue is to be asked again. Boxed, like all that most locks never have.
    polls_at: Option<Box<Deadline>>,
    /// Tokens that are being released.
    ending: ThinVec<EndingToken>,
    /// The tokens whose lock was released by force, as a message says. Each stays here until the users of its hold are gone, or
    /// until the store says that the message was wrong.
    forced: ThinVec<ForcedHold>,
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

/// Counts of the plain path. They are kept where a lock is taken anyhow: that of the slot, and that of the table once the slot is
/// forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// How many holds there have been.
    pub(crate) holds: u64,
    pub(crate) hand_overs: u64,
    pub(crate) hand_offs: u64,
}

impl Default for Lock {
    fn default() -> Self {
        Self {
            waiters: WaitQueue::around(FIRST),
            turn: None,
            offers: Offers::default(),
            newest: 0,
            counts: Counts::default(),
            is_tracked: false,
            is_forgotten: false,
            standing: Standing::Nothing,
            failure: None,
            polls_at: None,
            ending: ThinVec::new(),
            forced: ThinVec::new(),
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
impl Lock {
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
    pub(crate) fn waits_for_lease(&self) -> bool {
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

    fn is_unused(&self) -> bool {
        self.turn.is_none()
            && self.has_nobody_behind()
            && matches!(self.standing, Standing::Nothing)
            && self.ending.is_empty()
    }

    /// Forgets the lock when no task uses it: no task may use it from now on. Returns what was counted.
    pub(crate) fn forget_if_unused(&mut self) -> Option<Counts> {
        self.is_forgotten |= self.is_unused();
        self.is_forgotten.then_some(self.counts)
    }

    fn is_forgotten(&self) -> bool {
        mutant!(CalledForgotten => return false);
        self.is_forgotten
    }

    /// Whether the table knows the lock if a task uses it.
    pub(crate) fn is_in_order(&self) -> bool {
        !self.is_forgotten() || self.is_unused()
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
        self.lease().is_some_and(|lease| lease.upkeep.has_look)
    }

    /// Has the keeper look at the lock soon.
    pub(crate) fn track(&mut self) {
        self.is_tracked = true;
    }
}

/// What tests set up.
#[cfg(test)]
impl Lock {
    pub(crate) fn turn(&self) -> Option<u64> {
        self.turn
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
