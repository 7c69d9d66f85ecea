//! The locks inside one process: which task is next for a key, and which lease in the store that relies on.
//!
//! [`Core`] is the state that the tasks of one manager share. Each key in use has one [`Slot`](slot::Slot) for each mode, which drives the
//! [`Lock`](crate::lock::Lock) that decides. A [`Task`](acquire::Task) polls it, sends what it decides, and ends up with a
//! [`Hold`](hold::Hold).

mod acquire;
mod adopting;
mod counters;
mod events;
mod giving;
mod handle;
mod hold;
mod keeping;
mod linger_history;
mod pending_release;
mod repeat_limit;
mod schedule;
mod slot;
mod table;
mod waiter_limit;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use acquire::acquire;
pub(crate) use adopting::adopt;
use counters::Counters;
pub(crate) use handle::{HoldHandle, Reentry};
pub(crate) use hold::{Hold, Releasing};
pub(crate) use keeping::keep_alive;
pub(crate) use repeat_limit::{RepeatLimit, Warning};
pub(crate) use schedule::{BATCH, BATCHES, Batch, Fate, OutstandingRelease, Schedule};
pub(crate) use slot::Slot;
use slot::lingering::LingeringLeases;
use table::Table;
use waiter_limit::WaiterLimit;
pub(crate) use watch::{Protected, Watch};

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::task::TaskTracker;

use crate::clock::{Deadline, Moment};
use crate::error::LossReason;
use crate::fork::Origin;
use crate::lock::Lock;
use crate::observe::metrics;
use crate::settings::Settings;
use crate::share::Share;
use crate::store::{AnyStore, Events, Release, Store, Traffic, exactly_one};
use crate::token::{Process, Token};

/// Owns a manager's state. Slots, and so guards, keep it alive. The keeper has a [`Weak`] reference to it.
pub(crate) struct Core {
    settings: Settings,
    process: Process,
    table: Table,
    waiter_limit: WaiterLimit,
    lingering: Arc<LingeringLeases>,
    /// The store over the callers' connection.
    store: Arc<AnyStore>,
    schedule: Arc<Schedule>,
    counters: Counters,
    traffic: Arc<Traffic>,
    repeat_limit: RepeatLimit,
    bodies: TaskTracker,
    /// Whether new locks are refused, except those that a body takes.
    is_closed: AtomicBool,
    /// Whether those are refused too.
    is_drained: AtomicBool,
    /// The process that owns these locks. `None` for locks in memory: each copy of the process has its own.
    origin: Option<Origin>,
}

impl Core {
    /// Creates the state for the locks in `store`, which sends its pushes to the new core.
    pub(crate) fn new(
        settings: Settings,
        process: Process,
        store: Arc<AnyStore>,
        schedule: Arc<Schedule>,
        origin: Option<Origin>,
    ) -> Arc<Self> {
        let core = Arc::new(Self {
            waiter_limit: WaiterLimit::new(settings.max_waiters, settings.max_waiters_per_key),
            lingering: LingeringLeases::new(settings.max_lingering),
            settings,
            process,
            table: Table::default(),
            store,
            schedule,
            counters: Counters::default(),
            traffic: Arc::default(),
            repeat_limit: RepeatLimit::default(),
            bodies: TaskTracker::new(),
            is_closed: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
            origin,
        });
        metrics::describe();
        core.store.attach(core.process.id(), core.events());
        core
    }

    /// Tells the other queues of this process that `slot` was refused a permit: the store tells only other processes (rule S5). A single
    /// try does not wait, so for it only a lease that lingers is released.
    fn tell_queues_beside(&self, slot: &Slot, waits: bool) {
        mutant!(QueueBesideUntold => return);
        mutant!(LingersBesideOthers => return);
        for other in self.table.beside(slot) {
            if waits {
                other.on_contention(false);
            } else {
                other.yield_lingering();
            }
        }
    }

    /// Whether a task here has the exclusive lock of `key`, or asks for it.
    pub(crate) fn is_in_use(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|slot| slot.peek(Lock::is_in_use))
    }

    /// The receiver of the store's pushes and interruptions.
    pub(crate) fn events(self: &Arc<Self>) -> Weak<dyn Events> {
        Arc::<Self>::downgrade(self)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn label(&self) -> &str {
        &self.settings.label
    }

    /// The part of a token that tells this manager's tokens from all others.
    pub(crate) fn process_id(&self) -> &str {
        self.process.id()
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn store(&self) -> &Arc<AnyStore> {
        &self.store
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub(crate) fn bodies(&self) -> &TaskTracker {
        &self.bodies
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Whether a request is refused, which `is_inside` a body or not. A body that a shutdown waits for may take further locks: otherwise it
    /// could not end.
    pub(crate) fn refuses(&self, is_inside: bool) -> bool {
        self.is_closed() && (!is_inside || self.is_drained.load(Ordering::SeqCst))
    }

    /// Refuses new locks, and fails all waiters, except those inside bodies.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.fail_waiters();
        self.close_lingering();
    }

    /// Refuses and fails those inside bodies too.
    pub(crate) fn end_drain(&self) {
        self.is_drained.store(true, Ordering::SeqCst);
        self.fail_waiters();
    }

    fn fail_waiters(&self) {
        for slot in self.table.all() {
            slot.close();
        }
    }

    /// Whether this process is a fork of the one that made the manager.
    pub(crate) fn is_inherited(&self) -> bool {
        self.origin.is_some_and(Origin::is_inherited)
    }

    /// A cheap check for a fork, which notices it up to a millisecond late.
    fn is_inherited_at(&self, now: Moment) -> bool {
        self.origin.is_some_and(|origin| origin.is_inherited_at(now))
    }

    pub(crate) fn is_own_token(&self, token: &Token) -> bool {
        token.is_of(&self.process)
    }

    /// Whether a message about this token can be meant for this process.
    fn may_be_told_of(&self, token: &Token) -> bool {
        mutant!(ToldOfOthers => return true);
        mutant!(ToldOfTheFuture => return self.is_own_token(token));
        self.process.has_made(token)
    }

    pub(crate) fn next_token(&self, now: Moment, may_linger: bool, share: Option<Share>, note: Option<&str>) -> Token {
        self.process.next_token(now, may_linger, share, note)
    }

    fn new_ticket(&self, now: Moment, share: Option<Share>, is_replaceable: bool) -> Token {
        self.process.ticket(now, share, is_replaceable)
    }

    /// Rule 1: withdraws an ask, at once on the connection that carried it, and again until the store has answered.
    fn withdraw(&self, release: Release) {
        mutant!(NoWithdrawal => return);
        debug_assert!(!self.is_held_under(&release), "a task has the lock that is withdrawn");
        if self.schedule.is_to_rest(&release.token) {
            return;
        }
        self.store.withdraw_behind(&release);
        self.release_later(release);
    }

    /// Withdraws what no one uses, according to a message or a late answer: never what a task has.
    pub(crate) fn withdraw_stray(&self, release: Release) {
        debug_assert!(!self.is_held_under(&release), "a task has the lock that is withdrawn");
        self.release_later(release);
    }

    fn is_held_under(&self, release: &Release) -> bool {
        let is_held = |lock: &Lock| lock.is_held() && lock.wants(&release.token);
        self.is_in_any_mode(&release.key, is_held)
    }

    /// Releases a lease, or withdraws an ask, without waiting.
    pub(crate) fn release_later(&self, release: Release) {
        mutant!(RestNotSent => if release.kept_until.is_some() {
            return;
        });
        if self.store.kind().is_immediate {
            let released = self.store.release(std::slice::from_ref(&release), Deadline::after(Duration::ZERO));
            // An immediate store can't fail.
            let ownership = released.now_or_never().and_then(|released| exactly_one(released).ok());
            if let Some(left) = ownership.and_then(|ownership| release.once_done(ownership)) {
                self.schedule.release(left);
            }
        } else {
            self.schedule.release(release);
        }
    }

    /// Releases the lease of a slot that is not in use, unless a task takes the lease over first.
    fn release_unless_taken_over(&self, slot: &Arc<Slot>) {
        mutant!(DroppedGuardKept => return);
        if self.store.kind().is_immediate {
            slot.release_unused();
        } else {
            self.schedule.release_unless_taken_over(slot);
        }
    }

    /// Ends the lease under its hold, if the lease has `token` (rule L1: a hold that outlives its deadline ends the whole lease). A body
    /// under the hold is woken, and the lease is released once the body is dropped (rule 13).
    pub(crate) fn revoke(&self, slot: &Arc<Slot>, token: Option<&Token>, reason: LossReason) {
        for hold in slot.step(|lock, out| lock.revoke(token, reason, slot.env(), out)) {
            self.note_loss(slot.key(), hold);
        }
    }

    /// Enters a request that replaces the holder, in front of all others (rule 25). A hold here ends by force.
    fn enter_in_front(self: &Arc<Self>, key: &Arc<str>) -> acquire::Task {
        loop {
            match self.table().enter_in_front(self, key) {
                (slot, Ok(id)) => return acquire::Task::entrant(slot, id),
                (slot, Err(token)) => self.revoke(&slot, Some(&token), LossReason::Forced),
            }
        }
    }

    /// Whether a task of this process holds the lock, exclusive or shared.
    fn is_held_here(&self, key: &str) -> bool {
        self.is_in_any_mode(key, Lock::is_held)
    }

    /// The note of a hold here, in whatever mode.
    pub(crate) fn note_here(&self, key: &str) -> Option<String> {
        self.table.find_in(key, |lock| lock.note_here().map(str::to_owned))
    }

    /// For how long the lock has been held under `token`, and the note: as this process knows from its own hold, else as the token says.
    pub(crate) fn told_of(&self, key: &str, token: &Token) -> (Option<Duration>, Option<String>) {
        let now = Moment::now();
        if let Some((since, note)) = self.table.find_in(key, |lock| lock.hold_under(token)) {
            return (Some(now.since(since)), note);
        }
        let made_at = token.made_at().filter(|_| !token.is_unused());
        (made_at.map(|at| Duration::from_micros(now.unix_micros().saturating_sub(at))), token.note())
    }

    /// Whether this process uses `token`, in whatever mode.
    fn uses(&self, key: &str, token: &Token) -> bool {
        mutant!(OtherModeIsReleased => return self.is_held_here(key));
        self.is_in_any_mode(key, |lock| lock.uses(token))
    }

    /// Whether the `owner` was a hold of this process, and is none any more.
    fn has_ended(&self, key: &str, owner: &Token) -> bool {
        mutant!(EndedHoldNamed => return false);
        self.is_own_token(owner) && !owner.is_marked() && !self.uses(key, owner)
    }

    /// Whether this process keeps a lease of the lock, and no task here holds the lock.
    pub(crate) fn lingers(&self, key: &str) -> bool {
        self.is_in_any_mode(key, Lock::lingers) && !self.is_held_here(key)
    }

    /// Whether the lock meets the `condition` in one of its modes.
    fn is_in_any_mode(&self, key: &str, condition: impl Fn(&Lock) -> bool) -> bool {
        self.table.find_in(key, |lock| condition(lock).then_some(())).is_some()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.schedule.close();
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("label", &self.settings.label).field("store", &self.store).finish_non_exhaustive()
    }
}
