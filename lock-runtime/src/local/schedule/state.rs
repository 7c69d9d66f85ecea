//! [`State`]: the content of a schedule, under its mutex.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::IDLE_TICKS;
use super::backlog::{Backlog, Batch};
use super::outstanding::{OutstandingRelease, OutstandingReleases};
use crate::local::slot::{ScheduleKeys, Slot, TimerKey};
use crate::share::Share;
use crate::timing::{ASK_INTERVAL, LONGEST_SLEEP, TICK};

#[derive(Debug, Default)]
pub(super) struct State {
    /// Slots that the keeper looks at on each tick.
    pub(super) tracked: BTreeMap<NonZeroU64, Arc<Slot>>,
    /// How many slots were added to these since the last tick.
    tracked_since_tick: u32,
    /// Slots to look at later.
    pub(super) due: BTreeMap<TimerKey, Arc<Slot>>,
    entries: u64,
    /// Slots with a lease that no task uses.
    pub(super) dropped: Vec<Arc<Slot>>,
    pub(super) outstanding: OutstandingReleases,
    pub(super) backlog: Backlog,
    /// Whether something was taken out and has not been sent yet.
    pub(super) is_dispatching: bool,
    /// Slots whose ask is in the store's queue. The references are weak, because the keeper of a runtime that is gone never removes them.
    watched: BTreeMap<(Arc<str>, Option<Share>), Weak<Slot>>,
    next_ask: Option<Instant>,
    /// Slots whose lease the store may have forgotten.
    pub(super) verify: Vec<Arc<Slot>>,
    /// Whether a connection broke, or was made again.
    pub(super) is_interrupted: bool,
    sleeps: Option<Sleep>,
    pub(super) is_closed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) verify: Vec<Arc<Slot>>,
    /// Slots that the keeper looks at on each tick.
    pub(crate) tracked: Vec<Arc<Slot>>,
    /// Slots whose timer has fired.
    pub(crate) due: Vec<Arc<Slot>>,
    pub(crate) dropped: Vec<Arc<Slot>>,
    /// Slots whose ask is in the store's queue, when it is time to repeat it.
    pub(crate) watched: Vec<Arc<Slot>>,
    /// Releases whose tasks did not read the answer in time.
    pub(crate) overdue: Vec<OutstandingRelease>,
}

/// The work that is left after a manager is gone.
#[derive(Debug)]
pub(crate) struct LastWork {
    pub(crate) releases: Vec<Batch>,
    /// Whether this is all the work that is left.
    pub(crate) is_all: bool,
}

impl State {
    pub(super) fn take_due(&mut self, now: Instant) -> Found {
        self.is_dispatching = true;
        // The keeper is awake. It sees every change before it sleeps again.
        self.sleeps = None;
        let mut due = Vec::new();
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            due.push(entry.remove());
        }
        let mut watched = Vec::new();
        if self.next_ask.take_if(|at| *at <= now).is_some() {
            watched.extend(std::mem::take(&mut self.watched).into_values().filter_map(|slot| slot.upgrade()));
        }
        Found {
            verify: std::mem::take(&mut self.verify),
            tracked: self.tracked.values().cloned().collect(),
            due,
            dropped: std::mem::take(&mut self.dropped),
            watched,
            overdue: self.outstanding.take_overdue(now),
        }
    }

    pub(super) fn last_work(&mut self) -> LastWork {
        let releases = self.backlog.take_due(Instant::now());
        // No hold is left to look after, and earlier events are no longer a reason to look again at once.
        *self = Self { backlog: std::mem::take(&mut self.backlog), ..Self::default() };
        let is_all = releases.is_empty() && self.backlog.is_empty() && self.is_quiet();
        LastWork { releases, is_all }
    }

    pub(super) fn set_timer(&mut self, at: Instant, slot: &Arc<Slot>) -> TimerKey {
        self.entries += 1;
        let key = (at, self.entries);
        self.due.insert(key, Arc::clone(slot));
        key
    }

    pub(super) fn watch(&mut self, slot: &Arc<Slot>) {
        self.watched.insert((Arc::clone(slot.key()), slot.share), Arc::downgrade(slot));
        self.next_ask.get_or_insert_with(|| Instant::now() + ASK_INTERVAL);
    }

    pub(super) fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    pub(super) fn watched(&self) -> Vec<Arc<Slot>> {
        self.watched.values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn track(&mut self, slot: &Arc<Slot>) -> NonZeroU64 {
        let entry = NonZeroU64::MIN.saturating_add(self.entries);
        self.entries += 1;
        self.tracked.insert(entry, Arc::clone(slot));
        self.tracked_since_tick = self.tracked_since_tick.saturating_add(1);
        entry
    }

    pub(super) fn cancel(&mut self, entries: ScheduleKeys) {
        if let Some(entry) = entries.tracked {
            self.tracked.remove(&entry);
        }
        if let Some(due) = entries.due {
            self.due.remove(&due);
        }
    }

    /// Whether there are young holds, or were any since the last call.
    pub(super) fn had_tracked(&mut self) -> bool {
        std::mem::take(&mut self.tracked_since_tick) > 0 || !self.tracked.is_empty()
    }

    /// Whether a shutdown has nothing left to wait for. It does not wait for releases that the server refuses for good.
    pub(super) fn is_quiet(&self) -> bool {
        self.outstanding.is_empty() && self.backlog.is_quiet() && self.dropped.is_empty() && !self.is_dispatching
    }

    pub(super) fn is_done(&self) -> bool {
        mutant!(GoneKeeperLooksOn => return true);
        self.backlog.is_empty()
    }

    pub(super) fn on_interruption(&mut self, slots: Vec<Arc<Slot>>) {
        mutant!(NoVerification => return);
        self.verify.extend(slots);
        self.is_interrupted = true;
    }

    /// How long to sleep. `None` means until the keeper is woken.
    pub(super) fn pause(&mut self, idle_ticks: u32) -> Option<Duration> {
        let now = Instant::now();
        let tick = (!self.tracked.is_empty() || idle_ticks < IDLE_TICKS).then(|| now + TICK);
        self.sleeps = Some(Sleep { until: tick.into_iter().chain(self.next_work(now)).min(), ticks: tick.is_some() });
        self.sleeps.and_then(|sleep| sleep.until).map(|at| at.saturating_duration_since(now))
    }

    /// When there is something to do, apart from young holds.
    fn next_work(&self, now: Instant) -> Option<Instant> {
        if !self.dropped.is_empty() || !self.verify.is_empty() || self.is_interrupted || self.is_closed {
            return Some(now);
        }
        let first_due = self.due.first_key_value().map(|((at, _), _)| (*at).min(now + LONGEST_SLEEP));
        [first_due, self.outstanding.next_look(), self.backlog.next_try(), self.next_ask].into_iter().flatten().min()
    }

    /// Whether a change brought work before the end of the sleep. Called after every change; returns `true` once per sleep.
    pub(super) fn has_to_wake(&mut self) -> bool {
        self.sleeps.is_some() && self.next_work(Instant::now()).is_some_and(|at| self.has_to_wake_at(at))
    }

    /// The same after a change that brought nothing but work for this time.
    pub(super) fn has_to_wake_at(&mut self, at: Instant) -> bool {
        self.sleeps.take_if(|sleep| sleep.until.is_none_or(|until| at < until)).is_some()
    }

    /// Whether to wake the keeper after a hold began. Holds begin too often to check everything each time.
    pub(super) fn has_to_tick(&mut self) -> bool {
        self.sleeps.take_if(|sleep| !sleep.ticks).is_some()
    }
}

/// The keeper's sleep: its end, and whether it ends with the next tick anyway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sleep {
    until: Option<Instant>,
    ticks: bool,
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::super::Schedule;
    use super::super::backlog::Fate;
    use super::*;
    use crate::mutants::{Mutant, Seeded};
    use crate::store::memory::MemoryStore;
    use crate::store::{AnyStore, Ownership, Release};
    use crate::timing::CLAIM;
    use crate::token::Token;
    use crate::{LockGuard, LockManager};

    async fn slot(locks: &LockManager, key: &str) -> (LockGuard, Arc<Slot>) {
        let guard = locks.lock("p", key).acquire().await.unwrap();
        let slot = locks.core().table().get(guard.key()).unwrap();
        (guard, slot)
    }

    fn release() -> Release {
        Release::withdrawal(&"p:k".into(), &Token::foreign("t"), CLAIM)
    }

    #[test]
    fn the_keeper_of_a_dropped_manager_sleeps_while_it_waits_for_an_answer() {
        let now = Some(Instant::now());
        let mut state = State { next_ask: now, is_closed: true, ..State::default() };
        state.backlog.add(0, release());
        assert_eq!(state.last_work().releases.len(), 1);
        assert!(!state.last_work().is_all);
        assert_eq!(state.pause(IDLE_TICKS), None);
    }

    /// Whether a keeper that has just checked is woken again when its manager is gone and the server denies a remaining release.
    fn looks_again(bug: Option<Mutant>) -> bool {
        let _seeded = Seeded::begin(bug);
        let schedule = Schedule::new(Arc::new(AnyStore::Memory(MemoryStore::default())));
        schedule.release(release());
        for batch in schedule.take_releases() {
            schedule.on_released(batch, &[Fate::Denied]);
        }
        let woken = schedule.woken();
        schedule.tell_if_quiet(true);
        woken.now_or_never().is_some()
    }

    #[test]
    fn the_keeper_of_a_dropped_manager_does_not_spin() {
        assert!(!looks_again(None));
        assert!(looks_again(Some(Mutant::GoneKeeperLooksOn)), "the bug shows");
    }

    #[tokio::test(start_paused = true)]
    async fn due_work_is_done_without_a_pause_and_wakes_once() {
        let locks = LockManager::in_memory();
        let (_guard, slot) = slot(&locks, "k").await;
        assert_eq!(State::default().pause(IDLE_TICKS), None);
        let changes: [&dyn Fn(&mut State); 4] = [
            &|state| state.dropped.push(Arc::clone(&slot)),
            &|state| state.verify.push(Arc::clone(&slot)),
            &|state| state.backlog.add(0, release()),
            &|state| state.is_closed = true,
        ];
        for change in changes {
            let mut state = State::default();
            state.pause(IDLE_TICKS);
            assert!(!state.has_to_wake());
            change(&mut state);
            assert!(state.has_to_wake() && !state.has_to_wake());
            assert_eq!(state.pause(IDLE_TICKS), Some(Duration::ZERO));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_wakes_a_keeper_that_would_sleep_beyond_its_end() {
        let locks = LockManager::in_memory();
        let (_guard, slot) = slot(&locks, "k").await;
        let schedule = Schedule::new(Arc::new(AnyStore::Memory(MemoryStore::default())));
        let second = Duration::from_secs(1);
        for (by, sleeps_for, wakes) in [(second, None, true), (second * 2, Some(second), false)] {
            assert_eq!(schedule.pause(IDLE_TICKS), sleeps_for);
            let woken = schedule.woken();
            schedule.begin_release(&slot, release(), Instant::now() + by, ScheduleKeys::default());
            assert_eq!(woken.now_or_never().is_some(), wakes, "{by:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_taken_off_the_state_and_not_sent_is_not_released() {
        let locks = LockManager::in_memory();
        let (_guard, slot) = slot(&locks, "k").await;
        let mut state = State::default();
        assert!(state.is_quiet());
        state.dropped.push(slot);
        state.take_due(Instant::now());
        assert!(!state.is_quiet());
        state.is_dispatching = false;
        assert!(state.is_quiet());
    }

    #[tokio::test(start_paused = true)]
    async fn two_holds_that_are_due_at_one_instant_are_both_checked_and_ended_ones_are_not() {
        let locks = LockManager::in_memory();
        let ((_one, one), (_other, other)) = (slot(&locks, "one").await, slot(&locks, "other").await);
        let (mut state, at) = (State::default(), Instant::now());
        let entries = [&one, &other, &one].map(|slot| state.set_timer(at, slot));
        let tracked = [&one, &other].map(|slot| state.track(slot));
        state.cancel(ScheduleKeys { tracked: Some(tracked[0]), due: Some(entries[0]) });
        let found = state.take_due(at);
        assert_eq!((found.tracked.len(), found.due.len()), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_commands_are_repeated_also_for_a_dropped_manager() {
        let mut state = State::default();
        state.backlog.add(0, release());
        let answer = |state: &mut State, fate| {
            let mut work = state.last_work();
            state.backlog.on_answers(work.releases.pop().unwrap(), &[fate], Instant::now());
        };
        answer(&mut state, Fate::Unanswered);
        let work = state.last_work();
        assert!(work.releases.is_empty() && !work.is_all);
        let again = Duration::from_millis(100);
        assert_eq!(state.pause(IDLE_TICKS), Some(again));
        tokio::time::advance(again).await;
        answer(&mut state, Fate::Done(Ownership::Owned));
        assert!(state.last_work().is_all);
    }
}
