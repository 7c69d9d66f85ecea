//! [`Lock`]: what one process knows of one lock in one mode, and what it decides about it.
//!
//! It is a plain value. It sends nothing, wakes nobody, and reads no clock of its own. Each call tells it what happened; it asks its
//! [`Env`] for what it needs to know, and leaves in [`Effects`], or returns, what is to be done. So any two threads that use a lock are
//! one step after the other. The kinds of calls are these, in about the order of one acquire:
//!
//! - A task [enters](Lock::enter), and [polls](Lock::poll) until it has its hold, has to send a command, or fails.
//! - The answers of the store: [`Lock::on_answer`], [`Lock::on_grant`], [`Lock::on_confirmed`], [`Lock::on_drawn`], [`Lock::on_renewal`].
//! - A hold [ends](Lock::end), or is [lost](Lock::revoke). A task that gives up [leaves](Lock::leave).
//! - The keeper [looks](Lock::look) when [`Lock::is_tracked`] or [`Lock::next_looks`] asks for it.
//! - After each of these calls, [`Lock::settle`]: what nobody needs is released, and the next task is woken.
//!
//! **A lease that no hold uses lies free in the process, and a task takes it when it is polled.** Nothing is given to a task that does
//! not run: a wake is a hint. Who may take it is decided by [`WaitQueue`]: first come, first served, but whoever was woken and is not
//! polled within a tick is passed over. What nobody takes goes back to the store (`idle.rs`). A lease that passes from one task here to
//! the next needs no round trip: this is lock cohorting (Dice, Marathe, Shavit, "Lock Cohorting", PPoPP 2012) over a lease.
//!
//! What the process has in the store, or has asked for, is a [`Lane`]. The exclusive lock has one lane, and so have the readers of a
//! process together; each permit has one.
//!
//! It rests on the rules L1 to L9 in `docs/protocol.md`. The code refers to them by number.

mod attempt;
mod ending;
mod env;
mod hold;
mod idle;
mod lease;
mod lingering;
mod look;
mod no_hold;
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
pub(crate) use ending::{Ended, Ending, User};
pub(crate) use env::{Effects, Env};
pub(crate) use hold::EndedHold;
#[cfg(test)]
pub(crate) use lease::Fences;
pub(crate) use lease::Lease;
pub(crate) use look::{Action, Round, Trigger};
pub(crate) use no_hold::NoHold;
pub(crate) use pending_ask::PendingAsk;
pub(crate) use queue::Entered;
pub(crate) use readers::Joined;
pub(crate) use request::{IfBusy, ResolvedRequest};
pub(crate) use seizing::{Adopted, Seized};
pub(crate) use step::{Started, Step};
pub(crate) use terms::{Terms, Whole};
pub(crate) use tokens::{ForcedToken, ReleaseDone};
pub(crate) use wait_queue::{WaitQueue, Waiter};

use smallvec::SmallVec;
use thin_vec::ThinVec;

use crate::clock::{Deadline, Moment};
use crate::observe::Path;
use crate::protocol::{Release, StoreError};
use crate::token::Token;
use hold::ActiveHold;
use tokens::{EndingToken, ForcedHold};

/// The id of the first task, less one.
const FIRST: u64 = 1 << 62;

/// One lock in one mode, as one process knows it.
#[derive(Debug)]
pub(crate) struct Lock {
    /// The tasks that wait.
    waiters: WaitQueue,
    /// How many tasks have entered, and have not been polled.
    entrants: u32,
    lanes: SmallVec<[Lane; 1]>,
    /// The id of the last request that replaces the holder (rule 25). No id is zero.
    newest: u64,
    counts: Counts,
    /// Whether the keeper looks at the lock at each of its ticks.
    is_tracked: bool,
    /// Whether [`Lock::next_looks`] has changed since it was last arranged.
    has_new_look: bool,
    /// How many tasks the next tick wakes: twice as many as the last one.
    wakes: u32,
    /// How often in a row a lease that lay free was taken by nobody.
    untaken: u32,
    /// Why the last command to the store failed. Boxed, like all that most locks never have.
    failure: Option<Box<StoreError>>,
    /// Before this time nobody asks the store: the first task backs off, or a store without a queue is polled later.
    pauses: Option<Box<Deadline>>,
    /// Tokens that are being released.
    ending: ThinVec<EndingToken>,
    /// The tokens whose lock was released by force, as a message says. Each stays here until the users of its hold are gone, or
    /// until the store says that the message was wrong.
    forced: ThinVec<ForcedHold>,
}

/// What the process has of the lock in the store, or has asked for.
#[derive(Debug)]
pub(crate) struct Lane {
    standing: Standing,
    /// The task that waits for the answer to a command about this lane.
    acting: Option<Acting>,
    /// Since when a task could have taken it.
    free_since: Option<Moment>,
    /// When the keeper last asked whether another process waits for what lies free.
    probed: Option<Moment>,
}

#[expect(clippy::large_enum_variant, reason = "a lease is there on the plain way, which allocates nothing here")]
#[derive(Debug)]
enum Standing {
    /// Boxed: there is no ask while a lease is held.
    Asking(Box<PendingAsk>),
    Leased(Lease),
}

/// A task has sent a command, and waits for the answer.
#[derive(Clone, Copy, Debug)]
struct Acting {
    id: u64,
    since: Moment,
    /// Whether it waits for its release, which carries an ask along: it does not want the lock.
    releases: bool,
}

/// Counts of the plain path. They are kept where a lock is taken anyway: that of the slot, and that of the table once the slot is
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
            entrants: 0,
            lanes: SmallVec::new(),
            newest: 0,
            counts: Counts::default(),
            is_tracked: false,
            has_new_look: false,
            wakes: 1,
            untaken: 0,
            failure: None,
            pauses: None,
            ending: ThinVec::new(),
            forced: ThinVec::new(),
        }
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

    fn hold(&self) -> Option<&ActiveHold> {
        self.lease()?.hold.as_ref()
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

    /// Whether the first task may take it: nobody uses what is granted.
    fn is_free(&self) -> bool {
        self.acting.is_none()
            && match &self.standing {
                Standing::Asking(pending) => pending.is_granted(),
                Standing::Leased(lease) => lease.hold.is_none(),
            }
    }

    /// Whether it is an ask that no task waits for: it waits in the store, or a task has to repeat it.
    fn is_idle_ask(&self) -> bool {
        self.acting.is_none() && self.pending().is_some_and(|pending| !pending.is_granted())
    }

    /// The release, or the withdrawal, of what the store may have.
    fn into_release(self, env: &dyn Env) -> Option<Release> {
        match self.standing {
            Standing::Leased(lease) => Some(lease.release(env)),
            Standing::Asking(pending) => pending.may_stand().then(|| pending.withdrawal(env)),
        }
    }
}

/// What others may know.
impl Lock {
    fn lane(&self, at: usize) -> Option<&Lane> {
        self.lanes.get(at)
    }

    fn place_of(&self, token: &Token) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.token() == token)
    }

    /// Takes the lane of the lease of `token`, if there is one that meets the `condition`.
    fn take_lease(&mut self, token: &Token, condition: impl Fn(&Lease) -> bool) -> Option<Lease> {
        self.take_lease_if(|lease| lease.token == *token && condition(lease))
    }

    /// Takes the first lane with a lease that meets the `condition`.
    fn take_lease_if(&mut self, condition: impl Fn(&Lease) -> bool) -> Option<Lease> {
        let at = self.lanes.iter().position(|lane| lane.lease().is_some_and(&condition))?;
        match self.remove(at).standing {
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

    /// The lease of a token.
    pub(crate) fn lease_under(&mut self, token: &Token) -> Option<&mut Lease> {
        self.leases_mut().find(|lease| lease.token == *token)
    }

    /// The lease that carries the hold `id`.
    pub(crate) fn lease_of(&self, id: u64) -> Option<&Lease> {
        self.leases().find(|lease| lease.carries(id))
    }

    /// The same, to change it.
    pub(crate) fn lease_of_mut(&mut self, id: u64) -> Option<&mut Lease> {
        self.leases_mut().find(|lease| lease.carries(id))
    }

    fn holds(&self) -> impl Iterator<Item = &ActiveHold> {
        self.lanes.iter().filter_map(Lane::hold)
    }

    /// Whether a task here holds the lock.
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

    fn is_unused(&self) -> bool {
        self.lanes.is_empty() && self.entrants == 0 && self.waiters.is_empty() && self.ending.is_empty()
    }

    /// What was counted, if no task uses the lock: then it may be forgotten.
    pub(crate) fn counts_if_unused(&self) -> Option<Counts> {
        self.is_unused().then_some(self.counts)
    }

    /// What was counted, how many tasks hold the lock, and whether its lease lingers.
    pub(crate) fn counts(&self) -> (Counts, u32, bool) {
        (self.counts, self.holds().map(ActiveHold::users).sum(), self.lingers())
    }

    /// Whether the keeper looks at the lock at each of its ticks.
    pub(crate) fn is_tracked(&self) -> bool {
        self.is_tracked
    }

    /// When the keeper has to look at the lock, whatever happens: at each of these times.
    pub(crate) fn next_looks(&self) -> impl Iterator<Item = &Deadline> {
        let looks = self.leases().filter_map(|lease| lease.upkeep.look_at.as_deref());
        let pauses = self.pauses.as_deref().filter(|_| !self.waiters.is_empty());
        looks.chain(pauses)
    }

    /// Whether [`Lock::next_looks`] has changed since it was last taken.
    pub(crate) fn has_new_look(&self) -> bool {
        self.has_new_look
    }

    /// The timer has ended that was set.
    pub(crate) fn on_timer(&mut self) {
        self.has_new_look = true;
    }

    /// Whether [`Lock::next_looks`] has changed since the last call.
    pub(crate) fn take_new_look(&mut self) -> bool {
        std::mem::take(&mut self.has_new_look)
    }
}

/// What tests set up.
#[cfg(test)]
impl Lock {
    pub(crate) fn any_lease(&mut self) -> &mut Lease {
        self.leases_mut().next().expect("a lease")
    }

    pub(crate) fn take_any_lease(&mut self) -> Lease {
        self.take_lease_if(|_| true).expect("a lease")
    }

    pub(crate) fn track(&mut self) {
        self.is_tracked ^= true;
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
