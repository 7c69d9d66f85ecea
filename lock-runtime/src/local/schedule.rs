//! [`Schedule`]: what the keeper has to look at and to send, and when. Tasks write it, the keeper reads it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::slot::Slot;
use super::upkeep::ScheduleKeys;
use crate::store::{AnyStore, Release, Store};

mod backlog;
mod state;

pub(crate) use backlog::{Batch, Fate};
use state::State;
pub(crate) use state::{Found, LastWork};

/// So many ticks without work before the keeper sleeps: waking it costs more than a few ticks.
const IDLE_TICKS: u32 = 10;

/// What one manager's keeper has to do. It outlives the manager until the last release is answered.
///
/// No store is called under its lock, and no other lock is taken.
#[derive(Debug)]
pub(crate) struct Schedule {
    state: Mutex<State>,
    wake: Notify,
    /// Nothing is left to give back.
    quiet: Notify,
    /// The store over the keeper's own connection, which knows the server of each key.
    store: Arc<AnyStore>,
}

impl Schedule {
    pub(crate) fn new(store: Arc<AnyStore>) -> Self {
        Self { state: Mutex::default(), wake: Notify::new(), quiet: Notify::new(), store }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has every keeper look at the schedule: each of them may be on a runtime that is not polled.
    fn wake_up(&self) {
        self.wake.notify_waiters();
    }

    /// Changes the schedule, and wakes the keeper when that brings work before it would wake by itself.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.locked();
        let result = change(&mut state);
        let wake = state.has_to_wake();
        drop(state);
        if wake {
            self.wake_up();
        }
        result
    }

    /// Has a new hold looked after.
    pub(crate) fn track(&self, slot: &Arc<Slot>) -> u64 {
        let mut state = self.locked();
        let entry = state.track(slot);
        let wake = state.has_to_tick();
        drop(state);
        if wake {
            self.wake_up();
        }
        entry
    }

    /// Takes off the schedule what was there for a hold that ended.
    pub(crate) fn cancel(&self, entries: ScheduleKeys) {
        if entries.tracked.is_some() || entries.due.is_some() {
            self.locked().cancel(entries);
        }
    }

    /// Has `slot` looked at after `pause`, and not before.
    pub(crate) fn set_timer(&self, slot: &Arc<Slot>, pause: Duration) {
        let due = self.change(|state| state.set_timer(Instant::now() + pause, slot));
        let replaced = slot.note_timer(due);
        self.cancel(ScheduleKeys { due: replaced, tracked: None });
    }

    /// Has the ask of `slot` repeated while it waits in the store's queue.
    pub(crate) fn watch_queue(&self, slot: &Arc<Slot>) {
        if slot.is_queued() {
            self.change(|state| state.watch(slot));
        }
    }

    /// Has the lease of `slot` given back, unless a task takes it over first.
    pub(crate) fn release_unused(&self, slot: &Arc<Slot>) {
        self.change(|state| state.dropped.push(Arc::clone(slot)));
    }

    /// Has `release` sent until it is answered, or nothing is left to give back.
    pub(crate) fn release(&self, release: Release) {
        let server = self.store.server_of(&release.key);
        self.change(|state| state.backlog.add(server, release));
    }

    /// How many releases wait to be sent, and how many batches of them were sent so far.
    #[cfg(test)]
    pub(crate) fn releases(&self) -> (usize, u64) {
        let state = self.locked();
        (state.backlog.len(), state.backlog.sent())
    }

    /// A connection broke, or was made anew: has the leases of these slots verified, since the store may have forgotten some,
    /// and sends again at once what is not answered yet.
    pub(crate) fn on_interruption(&self, slots: Vec<Arc<Slot>>) {
        self.change(|state| {
            state.backlog.reopen();
            state.verify(slots);
        });
    }

    /// Has the keeper end when its work is done.
    pub(super) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Resolves when nothing is left to give back.
    pub(crate) async fn wait_until_quiet(&self) {
        loop {
            let quiet = self.quiet.notified();
            if self.locked().is_quiet() {
                break;
            }
            quiet.await;
        }
        self.store.wait_for_releases().await;
    }
}

/// What the keeper reads.
impl Schedule {
    /// Resolves when the schedule has changed so that the keeper is needed sooner than it sleeps.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Takes what is due at `now`. Until [`dispatched`](Self::dispatched) is called, nothing counts as given back.
    pub(crate) fn take_due(&self, now: Instant) -> Found {
        self.locked().take_due(now)
    }

    /// Takes the releases that are due.
    pub(crate) fn take_releases(&self) -> Vec<Batch> {
        self.locked().backlog.take_due(Instant::now())
    }

    /// What is left to do for a manager that is gone.
    pub(crate) fn last_work(&self) -> LastWork {
        self.locked().last_work()
    }

    /// Whether a connection broke, or was made anew, since this was last asked.
    pub(crate) fn take_interruption(&self) -> bool {
        std::mem::take(&mut self.locked().is_interrupted)
    }

    /// Takes a slot off the list of those to look at soon.
    pub(crate) fn untrack(&self, entry: u64) {
        self.locked().tracked.remove(&entry);
    }

    /// What was taken is on its way. Returns whether there were young holds since this was last called.
    pub(crate) fn dispatched(&self) -> bool {
        let mut state = self.locked();
        state.is_dispatching = false;
        state.had_tracked()
    }

    /// How long the keeper may sleep; `None` until woken.
    pub(crate) fn pause(&self, idle_ticks: u32) -> Option<Duration> {
        self.locked().pause(idle_ticks)
    }

    /// Takes in what became of a batch of releases.
    pub(crate) fn on_released(&self, batch: Batch, fates: &[Fate]) {
        self.change(|state| state.backlog.on_answers(batch, fates, Instant::now()));
    }

    /// Tells those who wait for it when nothing is left to give back, and the keeper itself when its manager `is_gone`.
    pub(crate) fn tell_if_quiet(&self, is_gone: bool) {
        let (is_quiet, is_done) = {
            let state = self.locked();
            (state.is_quiet(), state.is_done())
        };
        if !is_quiet {
            return;
        }
        self.quiet.notify_waiters();
        // What the server refuses for good is still repeated from time to time: that is no reason to look again at once, and
        // again, while all other keepers on this thread stand still.
        if is_done && is_gone {
            // That was the last of its work; nothing else would wake it.
            self.wake_up();
        }
    }
}
