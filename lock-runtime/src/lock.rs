//! [`Lock`]: what one process knows of one lock in one mode, and what it decides about it.
//!
//! A plain value: it sends nothing, wakes no task, and has no clock. Each call tells it what happened; it asks its [`Env`] for what it
//! needs to know, and returns what is to be done, or leaves it in [`Effects`]. The slot's mutex serializes the calls. They are these, in
//! about the order of one acquire:
//!
//! - A task [enters](Lock::enter), and [polls](Lock::poll) until it has its hold, has to send a command, or fails.
//! - The store answers or pushes: [`Lock::on_answer`], [`Lock::on_grant`], [`Lock::on_confirmed`], [`Lock::on_drawn`],
//!   [`Lock::on_renewal`].
//! - A hold [ends](Lock::end), or is [lost](Lock::revoke). A task that gives up [leaves](Lock::leave).
//! - The keeper [looks](Lock::look) when [`Lock::is_tracked`] or [`Lock::next_looks`] asks for it.
//! - After each of these calls, [`Lock::settle`] releases what no task needs, and wakes the next task.
//!
//! **A lease that no hold uses lies free in the process, and a task takes it when it is polled.** Nothing is given to a task that does not
//! run: a wake is a hint. [`WaitQueue`] decides which task may take it: first come, first served, but a task that was woken and is not
//! polled within a tick is passed over. What no task takes goes back to the store (`idle.rs`). A lease that passes from one task here to
//! the next needs no round trip: this is lock cohorting (Dice, Marathe, Shavit, "Lock Cohorting", PPoPP 2012) over a lease.
//!
//! What the process has in the store, or has asked for, is a [`Lane`]. The exclusive lock has one lane, all readers of a process share one,
//! and each permit has its own.
//!
//! It rests on the rules L1 to L9 in `docs/protocol.md` (L3, L5, L6 and L8 are not in use). The code refers to them by number.

mod attempt;
mod ending;
mod hold;
mod idle;
mod lease;
mod pending_ask;
mod queue;
mod readers;
mod request;
mod step;
#[cfg(test)]
mod tests;
mod tokens;
mod upkeep;
mod wait_queue;

pub(crate) use attempt::{Attempt, Blocker, LastAnswer, NoHold, answer_time};
pub(crate) use ending::{Ending, User};
pub(crate) use hold::EndedHold;
#[cfg(test)]
pub(crate) use lease::Fences;
pub(crate) use lease::Lease;
pub(crate) use pending_ask::PendingAsk;
pub(crate) use queue::Entered;
pub(crate) use request::{HoldOptions, IfBusy, ResolvedRequest, Terms, Whole};
pub(crate) use step::{Started, Step};
pub(crate) use tokens::EndingToken;
pub(crate) use upkeep::{Action, Round, Trigger};
pub(crate) use wait_queue::{WaitQueue, Waiter};

use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use thin_vec::ThinVec;

use crate::clock::{Deadline, Moment};
use crate::observe::Path;
use crate::protocol::{Connection, Release, StoreError, StoreKind};
use crate::settings::Settings;
use crate::share::{Share, SharedLeases};
use crate::token::Token;
use hold::ActiveHold;
use tokens::ForcedHold;

#[derive(Debug, Default)]
pub(crate) struct Lock {
    waiters: WaitQueue,
    /// Tasks that have entered and have not been polled.
    entrants: u32,
    lanes: SmallVec<[Lane; 1]>,
    /// The id of the latest request that replaces the holder (rule 25). No id is zero.
    newest: u64,
    counts: Counts,
    /// Whether the keeper looks at the lock at each of its ticks.
    is_tracked: bool,
    /// Whether [`Lock::next_looks`] has changed since the last [`Lock::take_new_look`].
    has_new_look: bool,
    /// For how many ticks in a row a task was needed. Each wakes twice as many tasks as the one before.
    needy_ticks: u32,
    /// How often in a row no task took a lease that lay free.
    untaken: u32,
    /// Why the last command to the store failed. Boxed, like everything that most locks never have.
    failure: Option<Box<StoreError>>,
    /// No task asks the store before this time: the first task backs off, or a store without a queue is polled later.
    pauses: Option<Box<Deadline>>,
    /// Tokens whose release is not finished: see [`EndingToken`].
    ending: ThinVec<EndingToken>,
    /// The tokens whose lock was released by force, according to a message. Each stays here until the users of its hold are gone, or until
    /// the store says that the message was wrong.
    forced: ThinVec<ForcedHold>,
}

/// What the process has in the store, or has asked for.
#[derive(Debug)]
pub(crate) struct Lane {
    standing: Standing,
    /// The task that waits for the answer to a command about this lane.
    acting: Option<Acting>,
    /// Since when it has been free for a task to take.
    free_since: Option<Moment>,
    /// When the keeper last asked whether another process waits for this free lane.
    probed: Option<Moment>,
}

#[derive(Debug)]
enum Standing {
    Asking(PendingAsk),
    Leased(Lease),
}

/// A task has sent a command, and waits for the answer.
#[derive(Clone, Copy, Debug)]
struct Acting {
    id: u64,
    since: Moment,
}

/// Counts of the plain path. They live under mutexes that are taken anyway: the slot's, and the table's once the slot is forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) holds: u64,
    pub(crate) hand_overs: u64,
    pub(crate) hand_offs: u64,
}

/// What surrounds a lock: its name, the clock, the store as it is now. No call here blocks, and none changes the lock.
pub(crate) trait Env {
    /// Reads the clock at each call.
    fn now(&self) -> Moment;
    fn settings(&self) -> &Settings;
    fn key(&self) -> &Arc<str>;
    /// `None` for the exclusive lock.
    fn share(&self) -> Option<Share>;
    /// Counts the leases of this process that share the lock. `None` for the exclusive lock.
    fn leases(&self) -> Option<&SharedLeases>;
    /// A token that was never used.
    fn next_token(&self, now: Moment, may_linger: bool, note: Option<&str>) -> Token;
    fn is_own_token(&self, token: &Token) -> bool;
    /// The keeper's connection to the lock's server. Tasks have one of their own.
    fn keepers_connection(&self) -> Connection;
    /// Whether one more lease may linger. A lease that lingered and `was_used` has proved useful.
    fn admits_lingering(&self, was_used: bool) -> bool;
    fn kind(&self) -> &'static StoreKind;
}

/// What is to be done after a step, once the mutex is released, in addition to what the step returns.
#[expect(clippy::struct_excessive_bools, reason = "each asks for something of its own")]
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Tasks that watch a hold look again.
    pub(crate) wakes: bool,
    pub(crate) lingers: bool,
    /// A task was overtaken; its command may still be sent.
    pub(crate) is_overtaken: bool,
    /// A lease lies free, and no task here waits for it: the keeper releases it unless a task takes it first.
    pub(crate) leaves: bool,
    /// A permit was refused, to a task that waits or not: tasks of this process that use the lock in another mode are in its way.
    pub(crate) refused_permit: Option<bool>,
    pub(crate) woken: Wakes,
    /// Wakers that are no longer needed. They are dropped without a mutex.
    pub(crate) old_wakers: ThinVec<Waker>,
    pub(crate) releases: ThinVec<Release>,
    pub(crate) withdrawals: ThinVec<Release>,
}

impl Effects {
    /// Whether there is anything to do apart from waking the watchers.
    pub(crate) fn has_more(&self) -> bool {
        self.lingers
            || self.leaves
            || self.refused_permit.is_some()
            || !self.woken.is_empty()
            || !self.old_wakers.is_empty()
            || !self.releases.is_empty()
            || !self.withdrawals.is_empty()
    }
}

/// The wakers of the tasks to wake. Usually there is one at most, which needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    first: Option<Waker>,
    more: ThinVec<Waker>,
}

impl Wakes {
    fn push(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.more.push(waker);
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn wake(self) {
        self.first.into_iter().chain(self.more).for_each(Waker::wake);
    }
}

impl Lane {
    fn new(standing: Standing) -> Self {
        Self { standing, acting: None, free_since: None, probed: None }
    }

    fn lease(&self) -> Option<&Lease> {
        if let Standing::Leased(lease) = &self.standing { Some(lease) } else { None }
    }

    fn lease_mut(&mut self) -> Option<&mut Lease> {
        if let Standing::Leased(lease) = &mut self.standing { Some(lease) } else { None }
    }

    fn pending(&self) -> Option<&PendingAsk> {
        if let Standing::Asking(pending) = &self.standing { Some(pending) } else { None }
    }

    fn pending_mut(&mut self) -> Option<&mut PendingAsk> {
        if let Standing::Asking(pending) = &mut self.standing { Some(pending) } else { None }
    }

    fn token(&self) -> &Token {
        match &self.standing {
            Standing::Asking(pending) => &pending.token,
            Standing::Leased(lease) => &lease.token,
        }
    }

    fn is_acting(&self, id: u64) -> bool {
        self.acting.is_some_and(|acting| acting.id == id)
    }

    /// Whether the first task may take it: no task uses what is granted.
    fn is_free(&self) -> bool {
        self.acting.is_none()
            && match &self.standing {
                Standing::Asking(pending) => pending.is_granted(),
                Standing::Leased(lease) => lease.hold.is_none(),
            }
    }

    /// Whether it is an ask that no task acts for: it waits in the store, or a task has to repeat it.
    fn is_idle_ask(&self) -> bool {
        self.acting.is_none() && self.pending().is_some_and(|pending| !pending.is_granted())
    }

    /// The release, or the withdrawal, of what may be in the store.
    fn release(&self, env: &dyn Env) -> Option<Release> {
        match &self.standing {
            Standing::Leased(lease) => Some(lease.release(env)),
            Standing::Asking(pending) => pending.may_stand().then(|| pending.withdrawal(env)),
        }
    }
}

impl Lock {
    fn place_of(&self, token: &Token) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.token() == token)
    }

    /// Removes the first lane with a lease that meets the `condition`.
    fn take_lease(&mut self, condition: impl Fn(&Lease) -> bool) -> Option<Lease> {
        let at = self.lanes.iter().position(|lane| lane.lease().is_some_and(&condition))?;
        match self.remove(at)?.standing {
            Standing::Leased(lease) => Some(lease),
            Standing::Asking(_) => None,
        }
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.lanes.iter().filter_map(Lane::lease)
    }

    fn leases_mut(&mut self) -> impl Iterator<Item = &mut Lease> {
        self.lanes.iter_mut().filter_map(Lane::lease_mut)
    }

    fn pendings(&self) -> impl Iterator<Item = &PendingAsk> {
        self.lanes.iter().filter_map(Lane::pending)
    }

    pub(crate) fn lease_under(&mut self, token: &Token) -> Option<&mut Lease> {
        self.leases_mut().find(|lease| lease.token == *token)
    }

    pub(crate) fn lease_of(&self, id: u64) -> Option<&Lease> {
        self.leases().find(|lease| lease.carries(id))
    }

    pub(crate) fn lease_of_mut(&mut self, id: u64) -> Option<&mut Lease> {
        self.leases_mut().find(|lease| lease.carries(id))
    }

    fn holds(&self) -> impl Iterator<Item = &ActiveHold> {
        self.leases().filter_map(|lease| lease.hold.as_ref())
    }

    pub(crate) fn lingers(&self) -> bool {
        self.leases().any(Lease::lingers)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holds().next().is_some()
    }

    /// Whether a task here holds the lock, asks for it, or waits for it.
    pub(crate) fn is_in_use(&self) -> bool {
        self.entrants > 0
            || !self.waiters.is_empty()
            || self.lanes.iter().any(|lane| !lane.lease().is_some_and(Lease::lingers))
    }

    /// Whether a task here asks for the lock, or is about to.
    pub(crate) fn waits_for_lease(&self) -> bool {
        self.leases().next().is_none() && (self.entrants > 0 || !self.waiters.is_empty() || !self.lanes.is_empty())
    }

    /// The counts, if no task uses the lock: then it may be forgotten.
    pub(crate) fn counts_if_unused(&self) -> Option<Counts> {
        let is_unused =
            self.lanes.is_empty() && self.entrants == 0 && self.waiters.is_empty() && self.ending.is_empty();
        is_unused.then_some(self.counts)
    }

    /// The counts, how many tasks hold the lock, and whether its lease lingers.
    pub(crate) fn counts(&self) -> (Counts, u32, bool) {
        (self.counts, self.holds().map(ActiveHold::users).sum(), self.lingers())
    }

    pub(crate) fn is_tracked(&self) -> bool {
        self.is_tracked
    }

    /// The times at which the keeper has to look at the lock, whatever happens.
    pub(crate) fn next_looks(&self) -> impl Iterator<Item = &Deadline> {
        let looks = self.leases().filter_map(|lease| lease.upkeep.look_at.as_deref());
        let pauses = self.pauses.as_deref().filter(|_| !self.waiters.is_empty());
        looks.chain(pauses)
    }

    /// Whether [`Lock::next_looks`] has changed since the last [`Lock::take_new_look`].
    pub(crate) fn has_new_look(&self) -> bool {
        self.has_new_look
    }

    /// Whether [`Lock::next_looks`] has changed since the last call.
    pub(crate) fn take_new_look(&mut self) -> bool {
        std::mem::take(&mut self.has_new_look)
    }
}

#[cfg(test)]
impl Lock {
    pub(crate) fn any_lease(&mut self) -> &mut Lease {
        self.leases_mut().next().expect("a lease")
    }

    pub(crate) fn take_any_lease(&mut self) -> Lease {
        self.take_lease(|_| true).expect("a lease")
    }

    pub(crate) fn track(&mut self) {
        self.is_tracked ^= true;
    }
}

impl Counts {
    /// Counts a hold that starts.
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
