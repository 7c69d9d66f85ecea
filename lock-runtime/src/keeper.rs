//! The keeper: confirms claims, renews leases, notices loss, repeats asks, and gives back what was dropped.
//!
//! For a store on the network it runs on a thread of its own with a connection of its own, so that a blocked, dropped
//! or missing user runtime can neither lose a live hold nor strand a lock. For the embedded store it is a task on each of the
//! callers' runtimes, so that it lives in that runtime's (perhaps paused) time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::{Deadline, Moment};
use crate::engine::Engine;
use crate::local::{Attention, Entries, Look, Slot};
use crate::store::{AnyStore, Ask, Events, Release, Renewal, Store};

mod backlog;
mod board;
mod releases;
mod sending;
pub(crate) mod thread;

#[cfg(test)]
mod tests;

use backlog::Batch;
use board::Board;
use sending::{repeat_asks, send_renewals};
use thread::KeeperThread;

/// The beat while there are young holds: a hold that lives longer than this is confirmed.
const TICK: Duration = Duration::from_millis(5);
/// So many beats without work before the keeper sleeps: waking it costs more than a few beats.
const IDLE_TICKS: u32 = 10;
/// The longest sleep while something is held: timers stand still while the machine is suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// When timers missed so much time, the schedule is no longer what counts. Clocks that are slewed miss far less.
const MISSED: Duration = Duration::from_millis(100);
/// One answer that took longer says little about the next, unless the server is known to be as far away.
const LONGEST_USUAL: Duration = Duration::from_millis(250);
/// Items per command.
const BATCH: usize = 128;
/// How old an answer to an ask is at least when the ask is repeated: a lost wake-up costs that on top of the interval.
const JUST_NOW: Duration = Duration::from_millis(50);
/// The keeper of one manager, as others see it.
#[derive(Debug)]
pub(crate) struct Keeper {
    board: Mutex<Board>,
    wake: Notify,
    /// Nothing is left to give back.
    quiet: Notify,
    /// The store over the keeper's own connection.
    store: Arc<AnyStore>,
    command_timeout: Duration,
    /// How long the last command took, in nanoseconds.
    took: AtomicU64,
    thread: Option<Arc<KeeperThread>>,
}

impl Keeper {
    pub(crate) fn new(store: Arc<AnyStore>, command_timeout: Duration, thread: Option<Arc<KeeperThread>>) -> Arc<Self> {
        Arc::new(Self {
            board: Mutex::default(),
            wake: Notify::new(),
            quiet: Notify::new(),
            store,
            command_timeout,
            took: AtomicU64::new(0),
            thread,
        })
    }

    /// The keeper's own connection tells `events` when it breaks, too.
    pub(crate) fn attach(&self, process: &str, events: Weak<dyn Events>) {
        self.store.attach(process, events);
    }

    fn locked(&self) -> MutexGuard<'_, Board> {
        // Nothing that can panic runs under this lock.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the work for `engine`, or makes sure that it goes on: a task on a user's runtime ends with it.
    ///
    /// There is a task for each runtime that the manager is used on: another one may live and not be polled. All of them
    /// work from one board, and whoever is polled does what is due.
    pub(crate) fn start(self: &Arc<Self>, engine: &Weak<Engine>) {
        let runtime = match self.thread {
            Some(_) => None,
            None => match Handle::try_current() {
                Ok(runtime) => Some(runtime),
                // Outside a runtime there is nobody to look after yet: the next acquire starts it.
                Err(_) => return,
            },
        };
        let place = runtime.as_ref().map(Handle::id);
        let mut board = self.locked();
        if board.running.contains(&place) {
            return;
        }
        board.running.push(place);
        drop(board);
        let work = run(Arc::clone(self), Weak::clone(engine), Running(Arc::clone(self), place));
        match (&self.thread, runtime) {
            (Some(thread), _) => thread.spawn(work),
            (None, Some(runtime)) => drop(runtime.spawn(work)),
            (None, None) => drop(work),
        }
    }

    /// Has every keeper look at the board: each of them may be on a runtime that is not polled.
    fn wake_up(&self) {
        self.wake.notify_waiters();
    }

    /// Changes the board, and wakes the keeper when that brings work before it would wake by itself.
    fn change<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        let mut board = self.locked();
        let result = change(&mut board);
        let wake = board.has_to_wake();
        drop(board);
        if wake {
            self.wake_up();
        }
        result
    }

    /// Has a new hold looked after.
    pub(crate) fn enlist(&self, slot: &Arc<Slot>) -> u64 {
        let mut board = self.locked();
        let entry = board.enlist(slot);
        let wake = board.has_to_beat();
        drop(board);
        if wake {
            self.wake_up();
        }
        entry
    }

    /// Takes off the board what was there for a hold that ended.
    pub(crate) fn strike(&self, entries: Entries) {
        if entries.young.is_some() || entries.due.is_some() {
            self.locked().strike(entries);
        }
    }

    /// Has the ask of `slot` repeated while it waits in the store's queue.
    pub(crate) fn watch_queue(&self, slot: &Arc<Slot>) {
        if slot.is_queued() {
            self.change(|board| board.watch(slot));
        }
    }

    /// Has the lease of `slot` given back, unless a task takes it over first.
    pub(crate) fn release_unused(&self, slot: &Arc<Slot>) {
        self.change(|board| board.dropped.push(Arc::clone(slot)));
    }

    /// Has `release` sent until it is answered, or nothing is left to give back.
    pub(crate) fn release(&self, release: Release) {
        let server = self.store.server_of(&release.key);
        self.change(|board| board.backlog.add(server, release));
    }

    /// How many releases wait to be sent, and how many batches of them were sent so far.
    #[cfg(test)]
    pub(crate) fn releases(&self) -> (usize, u64) {
        let board = self.locked();
        (board.backlog.len(), board.backlog.sent())
    }

    /// A connection broke, or was made anew: has the leases of these slots verified, since the store may have forgotten some.
    pub(crate) fn on_interruption(&self, slots: Vec<Arc<Slot>>) {
        self.change(|board| {
            board.verify.extend(slots);
            board.is_interrupted = true;
        });
    }

    /// Has what is not answered yet sent again at once: there is news of a connection.
    pub(crate) fn retry(&self) {
        self.change(|board| board.backlog.reopen());
    }

    /// Has the keeper end when its work is done.
    pub(crate) fn close(&self) {
        self.change(|board| board.is_closed = true);
    }

    /// Resolves when nothing is left to give back.
    pub(crate) async fn quiet(&self) {
        loop {
            let quiet = self.quiet.notified();
            if self.locked().is_quiet() {
                break;
            }
            quiet.await;
        }
        self.store.settled().await;
    }

    fn tell_if_quiet(&self, engine: &Weak<Engine>) {
        let (is_quiet, is_done) = {
            let board = self.locked();
            (board.is_quiet(), board.backlog.is_empty())
        };
        if !is_quiet {
            return;
        }
        self.quiet.notify_waiters();
        // What the server refuses for good is still repeated from time to time: that is no reason to look again at once, and
        // again, while all other keepers on this thread stand still.
        if (is_done || mutant!(GoneKeeperLooksOn)) && engine.strong_count() == 0 {
            // That was the last of its work; nothing else would wake it.
            self.wake_up();
        }
    }

    /// An answer that takes longer is not usual: neither for what the last command took, nor for how far away the server is.
    pub(crate) fn usual_answer(&self) -> Duration {
        let last = Duration::from_nanos(self.took.load(Ordering::Relaxed));
        let far = mutant!(DistanceForgotten => Duration::ZERO, self.store.round_trip() * 2);
        (last * 2).min(LONGEST_USUAL).max(far.min(self.command_timeout))
    }

    fn note_answer(&self, sent: Moment) {
        let took = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX / 2);
        self.took.store(took, Ordering::Relaxed);
    }

    pub(crate) fn by(&self) -> Deadline {
        Deadline::after(self.command_timeout)
    }
}

/// Marks the keeper as not running at a place when its task ends there, in whatever way.
struct Running(Arc<Keeper>, Option<runtime::Id>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.locked().running.retain(|place| *place != self.1);
    }
}

/// What one beat found to do.
#[derive(Default)]
struct Work {
    renewals: Vec<(Arc<Slot>, Renewal)>,
    asks: Vec<(Arc<Slot>, Ask)>,
    releases: Vec<Batch>,
    heartbeat: bool,
}

async fn run(keeper: Arc<Keeper>, engine: Weak<Engine>, _running: Running) {
    // Connects now, so that the first confirmation does not have to.
    keeper.store.heartbeat(keeper.by()).await;
    let mut idle_ticks = 0;
    let mut last = Moment::now();
    loop {
        let woken = keeper.wake.notified();
        let now = Moment::now();
        // The machine was suspended, or its wall clock stepped: deadlines have passed that no timer tells of.
        let missed = now.missed_by_timers(last) > MISSED;
        last = now;
        let (work, is_done) = match engine.upgrade() {
            Some(engine) => (look(&keeper, &engine, missed), false),
            None => keeper.locked().last_work(),
        };
        if is_done {
            return keeper.store.settled().await;
        }
        idle_ticks = if keeper.locked().had_young() { 0 } else { idle_ticks + 1 };
        dispatch(&keeper, &engine, work);
        keeper.locked().is_in_hand = false;
        keeper.tell_if_quiet(&engine);
        let pause = keeper.locked().pause(idle_ticks);
        match pause {
            Some(pause) => drop(tokio::time::timeout(pause, woken).await),
            None => woken.await,
        }
    }
}

/// Looks at everything that is due; at every lease when time was `missed`.
fn look(keeper: &Arc<Keeper>, engine: &Arc<Engine>, missed: bool) -> Work {
    let mut work = Work::default();
    let now = Instant::now();
    if std::mem::take(&mut keeper.locked().is_interrupted) {
        let (store, by) = (Arc::clone(&keeper.store), keeper.by());
        // The server may be far away: the next hold should not have to wait for a connection to be confirmed.
        tokio::spawn(async move { store.connect_again(by).await });
    }
    let (verify, young, due, dropped, watched) = keeper.locked().take_due(now);
    for slot in dropped {
        if let Some(release) = slot.take_unused() {
            let server = keeper.store.server_of(&release.key);
            keeper.locked().backlog.add(server, release);
        }
        engine.forget_if_unused(&slot);
    }
    for slot in if missed { engine.table().all() } else { verify } {
        attend(keeper, engine, slot, Look::Verify, &mut work);
    }
    for (entry, slot) in young {
        if !attend(keeper, engine, slot, Look::Young, &mut work) {
            keeper.locked().young.remove(&entry);
        }
    }
    for slot in due {
        attend(keeper, engine, slot, Look::Due, &mut work);
    }
    if let Some(watched) = watched {
        let give_up = keeper.by();
        for slot in watched {
            // An ask that its task repeated just now is not repeated here.
            if let Some(ask) = slot.repeatable_ask(JUST_NOW, give_up) {
                work.asks.push((Arc::clone(&slot), ask));
            }
            if slot.is_queued() {
                keeper.locked().watch(&slot);
                work.heartbeat = true;
            }
        }
    }
    work.releases = keeper.locked().backlog.take_due(Instant::now());
    work
}

/// Returns whether the slot is to be looked at soon again.
fn attend(keeper: &Arc<Keeper>, engine: &Arc<Engine>, slot: Arc<Slot>, look: Look, work: &mut Work) -> bool {
    let attention = slot.attend(look, engine.settings().grace);
    let is_soon = attention.is_soon();
    follow(keeper, engine, slot, attention, Some(work));
    is_soon
}

/// Does what a lease needs; a renewal goes into `work`, or is left to the next beat.
fn follow(keeper: &Arc<Keeper>, engine: &Arc<Engine>, slot: Arc<Slot>, attention: Attention, work: Option<&mut Work>) {
    match attention {
        Attention::Done | Attention::Young => {}
        Attention::In(pause) => schedule(keeper, &slot, pause),
        Attention::Renew(renewal, left) => {
            if let Some(left) = left {
                schedule(keeper, &slot, left);
            }
            match work {
                Some(work) => work.renewals.push((slot, renewal)),
                None => send_renewals(keeper, &Arc::downgrade(engine), vec![(slot, renewal)]),
            }
        }
        Attention::Ask(ask) => {
            if let Some(work) = work {
                work.asks.push((slot, ask));
            }
        }
        Attention::Missed => engine.pass_over(&slot),
        Attention::Lost(token, loss) => engine.revoke(&slot, Some(&token), loss),
    }
}

/// Has `slot` looked at after `pause`, and not before.
fn schedule(keeper: &Keeper, slot: &Arc<Slot>, pause: Duration) {
    let due = keeper.change(|board| board.schedule(Instant::now() + pause, slot));
    let replaced = slot.scheduled(due);
    keeper.strike(Entries { due: replaced, young: None });
}

/// Sends what was found, each batch in a task of its own, for one server: a command that hangs holds up no other.
fn dispatch(keeper: &Arc<Keeper>, engine: &Weak<Engine>, work: Work) {
    let Work { renewals, asks, releases, heartbeat } = work;
    for batch in batches(keeper, renewals, |(slot, _)| slot.key()) {
        send_renewals(keeper, engine, batch);
    }
    for batch in batches(keeper, asks, |(slot, _)| slot.key()) {
        let (keeper, engine) = (Arc::clone(keeper), Weak::clone(engine));
        tokio::spawn(async move { repeat_asks(&keeper, &engine, batch).await });
    }
    if heartbeat && let Some(engine) = engine.upgrade() {
        let by = keeper.by();
        tokio::spawn(async move { engine.store().heartbeat(by).await });
    }
    for batch in releases {
        let (keeper, engine) = (Arc::clone(keeper), Weak::clone(engine));
        tokio::spawn(async move { releases::send(&keeper, &engine, batch).await });
    }
}

fn batches<T>(keeper: &Keeper, items: Vec<T>, key: impl Fn(&T) -> &Arc<str>) -> Vec<Vec<T>> {
    let mut by_server: BTreeMap<usize, Vec<Vec<T>>> = BTreeMap::new();
    for item in items {
        let of_server = by_server.entry(keeper.store.server_of(key(&item))).or_default();
        match of_server.last_mut().filter(|batch| batch.len() < BATCH) {
            Some(batch) => batch.push(item),
            None => of_server.push(vec![item]),
        }
    }
    by_server.into_values().flatten().collect()
}
