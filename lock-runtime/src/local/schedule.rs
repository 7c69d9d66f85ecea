//! [`Schedule`]: what the keeper must look at and send, and when. Tasks write it, and the keeper reads it.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::slot::{ScheduleKeys, Slot, TimerKey};
use crate::mutex::Mutex;
use crate::protocol::{Connection, Release};
use crate::store::{AnyStore, Store};
use crate::token::Token;

mod backlog;
mod outstanding;
mod state;

pub(crate) use backlog::{BATCH, BATCHES, Batch, Fate};
pub(crate) use outstanding::OutstandingRelease;
use state::State;
pub(crate) use state::{Found, LastWork};

/// The keeper sleeps after this many ticks without work: waking it costs more than a few ticks.
const IDLE_TICKS: u32 = 10;

/// The work list of one manager's keeper. It outlives the manager until the last release is answered.
///
/// Under its mutex no store is called, and no other mutex is taken.
#[derive(Debug)]
pub(crate) struct Schedule {
    state: Mutex<State>,
    wake: Notify,
    /// Notified when a slot waits in the store's queue, and at the end.
    watching: Notify,
    /// Notified when nothing is left to release.
    quiet: Notify,
    /// Notified when releases were answered: a lock may rest now.
    answered: Notify,
    /// The store over the keeper's own connection. It knows the server of each key.
    store: Arc<AnyStore>,
}

impl Schedule {
    pub(crate) fn new(store: Arc<AnyStore>) -> Self {
        let [wake, watching, quiet, answered] = std::array::from_fn(|_| Notify::new());
        Self { state: Mutex::default(), wake, watching, quiet, answered, store }
    }

    /// Wakes every keeper task: some of them may be on a runtime that is not polled.
    fn wake_up(&self) {
        self.wake.notify_waiters();
    }

    /// Changes the schedule. Wakes the keeper if the change brings work earlier than it would wake.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.change_and_wake(change, State::has_to_wake)
    }

    /// Changes the schedule, and wakes the keeper if it then `has_to_wake`.
    fn change_and_wake<T>(
        &self,
        change: impl FnOnce(&mut State) -> T,
        has_to_wake: impl FnOnce(&mut State) -> bool,
    ) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let wake = has_to_wake(&mut state);
        drop(state);
        if wake {
            self.wake_up();
        }
        result
    }

    pub(crate) fn track(&self, slot: &Arc<Slot>) -> NonZeroU64 {
        self.change_and_wake(|state| state.track(slot), State::has_to_tick)
    }

    /// Removes the entries of a hold that ended.
    #[inline]
    pub(crate) fn cancel(&self, entries: ScheduleKeys) {
        if entries.tracked.is_some() || entries.due.is_some() {
            self.state.lock().cancel(entries);
        }
    }

    /// Makes the keeper look at `slot` at that time, in place of the slot's timer `due`.
    pub(super) fn set_timer(&self, slot: &Arc<Slot>, at: Instant, due: &mut Option<TimerKey>) {
        self.change(|state| {
            state.cancel(ScheduleKeys { due: due.take(), tracked: None });
            *due = Some(state.set_timer(at, slot));
        });
    }

    /// Makes the keeper repeat the ask of `slot` while it waits in the store's queue.
    pub(crate) fn watch_queue(&self, slot: &Arc<Slot>) {
        if slot.is_queued() {
            self.change(|state| state.watch(slot));
            self.watching.notify_one();
        }
    }

    /// Makes the keeper release the lease of `slot`, unless a task takes the lease over first.
    pub(crate) fn release_unless_taken_over(&self, slot: &Arc<Slot>) {
        self.change(|state| state.dropped.push(Arc::clone(slot)));
    }

    /// Makes the keeper send `release` until it is answered, or until 2.5 s after the store can have its lease.
    pub(crate) fn release(&self, release: Release) {
        let server = self.store.server_of(&release.key);
        self.change(|state| state.backlog.add(server, release));
    }

    /// Whether the lock of `token` is to rest, and the store has not confirmed it yet.
    pub(super) fn is_to_rest(&self, token: &Token) -> bool {
        self.state.lock().backlog.is_to_rest(token)
    }

    /// Resolves when the store has confirmed that the lock of `token` rests, or when the keeper gives that up.
    pub(super) async fn wait_until_it_rests(&self, token: &Token) {
        loop {
            let answered = self.answered.notified();
            if !self.is_to_rest(token) {
                return;
            }
            answered.await;
        }
    }

    /// Notes a release that a task waits for, and removes the entries of the hold that ended. If the task does not end the release before
    /// `by`, the keeper takes the release over.
    pub(super) fn begin_release(&self, slot: &Arc<Slot>, release: Release, by: Instant, entries: ScheduleKeys) -> u64 {
        let begin = |state: &mut State| {
            state.cancel(entries);
            state.outstanding.add(slot, release, by)
        };
        self.change_and_wake(begin, |state| state.has_to_wake_at(by))
    }

    pub(super) fn is_releasing(&self, token: &Token) -> bool {
        mutant!(AwaitedReleaseRepeated => return false);
        self.state.lock().outstanding.has(token)
    }

    /// Notes that a release was answered. Returns whether its task was in time: the keeper has not taken the release over.
    pub(super) fn end_release(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let ended = state.outstanding.remove(number);
        let is_quiet = state.is_quiet();
        drop(state);
        if is_quiet {
            self.quiet.notify_waiters();
        }
        ended.is_some()
    }

    /// Makes the keeper repeat a release that failed, or that its task no longer waits for.
    pub(super) fn repeat_release(&self, number: u64, key: &str) {
        let server = self.store.server_of(key);
        // The slot is dropped outside of the mutex.
        let _slot = self.change(|state| {
            let OutstandingRelease { slot, release, .. } = state.outstanding.remove(number)?;
            state.backlog.add(server, release);
            Some(slot)
        });
    }

    /// The keeper's connection to the server of `key`.
    pub(super) fn connection(&self, key: &str) -> Connection {
        self.store.connection(key)
    }

    /// Verifies the leases of these slots, after alarms: other clients may have changed their keys.
    pub(super) fn on_alarms(&self, slots: Vec<Arc<Slot>>) {
        mutant!(AlarmsUnheeded => return);
        self.verify(slots);
    }

    pub(super) fn verify(&self, slots: Vec<Arc<Slot>>) {
        self.change(|state| state.verify.extend(slots));
    }

    /// How many background releases have no answer yet.
    pub(super) fn unreleased(&self) -> usize {
        self.state.lock().backlog.unreleased()
    }

    /// How many releases wait, and how many batches were sent so far.
    #[cfg(test)]
    pub(crate) fn releases(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.backlog.len(), state.backlog.sent())
    }

    /// Notes that a connection broke, or was made again. The leases of these slots are verified, because the store may have forgotten some.
    /// Unanswered releases are sent again at once.
    pub(crate) fn on_interruption(&self, slots: Vec<Arc<Slot>>) {
        self.change(|state| {
            state.backlog.reopen();
            state.on_interruption(slots);
        });
    }

    pub(super) fn close(&self) {
        self.change(|state| state.is_closed = true);
        self.watching.notify_one();
    }

    pub(crate) async fn wait_until_quiet(&self) {
        loop {
            let quiet = self.quiet.notified();
            if self.state.lock().is_quiet() {
                break;
            }
            quiet.await;
        }
        self.store.wait_for_releases().await;
    }
}

/// The keeper's side.
impl Schedule {
    /// Resolves when a change brings work before the keeper's sleep would end.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Resolves when a slot waits in the store's queue, or when the manager is gone. Spurious wakes are possible.
    pub(crate) async fn watching(&self) {
        self.watching.notified().await;
    }

    /// Whether a slot waits in the store's queue, or did so recently.
    pub(crate) fn is_watching(&self) -> bool {
        self.state.lock().is_watching()
    }

    /// The slots that wait in the store's queue, or did so recently.
    pub(crate) fn watched(&self) -> Vec<Arc<Slot>> {
        self.state.lock().watched()
    }

    /// Takes what is due at `now`. None of it counts as released before [`on_dispatch`](Self::on_dispatch).
    pub(crate) fn take_due(&self, now: Instant) -> Found {
        self.state.lock().take_due(now)
    }

    pub(crate) fn take_releases(&self) -> Vec<Batch> {
        self.state.lock().backlog.take_due(Instant::now())
    }

    /// The work that is left after its manager is gone.
    pub(crate) fn last_work(&self) -> LastWork {
        self.state.lock().last_work()
    }

    /// Whether a connection broke, or was made again, since the last call.
    pub(crate) fn take_interruption(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_interrupted)
    }

    /// Notes that everything taken has been sent. Returns whether there were young holds since the last call.
    pub(crate) fn on_dispatch(&self) -> bool {
        let mut state = self.state.lock();
        state.is_dispatching = false;
        state.had_tracked()
    }

    /// How long the keeper may sleep. `None` means until it is woken.
    pub(crate) fn pause(&self, idle_ticks: u32) -> Option<Duration> {
        self.state.lock().pause(idle_ticks)
    }

    pub(crate) fn on_released(&self, batch: Batch, fates: &[Fate]) {
        self.change(|state| state.backlog.on_answers(batch, fates, Instant::now()));
        self.answered.notify_waiters();
    }

    /// Notifies the shutdown if nothing is left to release. Also wakes the keeper if its manager `is_gone`.
    pub(crate) fn tell_if_quiet(&self, is_gone: bool) {
        let (is_quiet, is_done) = {
            let state = self.state.lock();
            (state.is_quiet(), state.is_done())
        };
        if !is_quiet {
            return;
        }
        self.quiet.notify_waiters();
        // What the server refuses for good is still repeated from time to time: that is no reason to spin, while all other keepers on this
        // thread starve.
        if is_done && is_gone {
            // That was the last work of the keeper, and nothing else would wake it.
            self.wake_up();
        }
    }
}
