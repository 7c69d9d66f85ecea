//! [`Keeper`]: the background work of one manager. It confirms claims, renews leases, notices loss, repeats asks and releases, and releases
//! the leases of dropped guards.
//!
//! For a store on the network the keeper has a thread and a connection of its own. So a user's runtime that is blocked, dropped or missing
//! can neither lose a live hold nor leave a lock behind. For the store in memory the keeper is a task on each runtime that calls the
//! manager. So it lives in that runtime's time, which a test may pause.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::time::Instant;

use crate::clock::lent::{owner, with_clock_of};
use crate::clock::{Deadline, Moment};
use crate::local::{BATCH, Batch, Core, OutstandingRelease, RepeatLimit, Schedule, Slot};
use crate::lock::{Action, Round, Trigger};
use crate::mutex::Mutex;
use crate::observe::metrics;
use crate::protocol::{Ask, Renewal};
use crate::store::{AnyStore, Store};
use crate::timing::{FRESH_ANSWER, LONGEST_LAG, LONGEST_USUAL_ANSWER, MISSED_BY_TIMERS};

mod releases;
mod sending;
pub(crate) mod thread;
mod unread;

use sending::{Room, connect_again, repeat_asks, send_renewals};
use thread::KeeperThread;

/// The state that the keeper tasks of one manager share. The tasks end when the manager and all its holds are gone, and the last release is
/// answered.
#[derive(Debug)]
pub(crate) struct Keeper {
    schedule: Arc<Schedule>,
    store: Arc<AnyStore>,
    command_timeout: Duration,
    took: AtomicU64,
    is_connecting: AtomicBool,
    /// The servers at which the last command failed: one bit per server. Changes are reported.
    failing: AtomicU64,
    repeat_limit: RepeatLimit,
    renewals: Room,
    asks: Room,
    thread: Option<Arc<KeeperThread>>,
    is_on_thread: AtomicBool,
    /// The runtimes that a keeper without a thread runs on.
    runtimes: Mutex<Vec<runtime::Id>>,
}

impl Keeper {
    pub(crate) fn new(
        store: Arc<AnyStore>,
        schedule: Arc<Schedule>,
        command_timeout: Duration,
        thread: Option<Arc<KeeperThread>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            schedule,
            store,
            command_timeout,
            took: AtomicU64::new(0),
            is_connecting: AtomicBool::new(false),
            failing: AtomicU64::new(0),
            repeat_limit: RepeatLimit::default(),
            renewals: Room::default(),
            asks: Room::default(),
            thread,
            is_on_thread: AtomicBool::new(false),
            runtimes: Mutex::default(),
        })
    }

    /// Starts the work for `core`, or makes sure that it goes on: a task on a user's runtime ends with that runtime.
    ///
    /// Each runtime that uses the manager has a keeper task, because another runtime may be alive and not polled. All these tasks work from
    /// one schedule, and whichever task is polled does what is due.
    pub(crate) fn start(self: &Arc<Self>, core: &Arc<Core>) {
        if let Some(thread) = &self.thread {
            // Each acquire checks this. As long as nothing is written, threads do not contend for it.
            if !self.is_on_thread.load(Ordering::Relaxed) && !self.is_on_thread.swap(true, Ordering::Relaxed) {
                thread.spawn(run(Arc::clone(self), Arc::downgrade(core), Running(Arc::clone(self), None)));
            }
            return;
        }
        // Outside of a runtime there is no hold to look after yet. The next acquire starts the keeper.
        let Ok(runtime) = Handle::try_current() else { return };
        let id = runtime.id();
        let mut runtimes = self.runtimes.lock();
        if !runtimes.contains(&id) {
            runtimes.push(id);
            drop(runtimes);
            let work = run(Arc::clone(self), Arc::downgrade(core), Running(Arc::clone(self), Some(id)));
            runtime.spawn(with_clock_of(owner(), work));
        }
    }

    pub(crate) fn has_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// How long an answer usually takes: judged by the last command, the distance of the server, and the backlog of answers on their way to
    /// tasks. A task that waits in a crowd is not late.
    fn usual_answer(&self, core: &Core) -> Duration {
        mutant!(DistanceForgotten => return Duration::ZERO);
        let last = Duration::from_nanos(self.took.load(Ordering::Relaxed));
        let far = self.store.round_trip() * 2;
        let crowded = (core.store().lag() * 2).min(LONGEST_LAG);
        (last * 2).min(LONGEST_USUAL_ANSWER).max(far.min(self.command_timeout)).max(crowded)
    }

    fn note_answer(&self, sent: Moment) {
        let took = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX / 2);
        self.took.store(took, Ordering::Relaxed);
    }

    fn by(&self) -> Deadline {
        Deadline::after(self.command_timeout)
    }
}

/// Marks the keeper as not running on this runtime, or on its thread, when its task there ends for any reason.
struct Running(Arc<Keeper>, Option<runtime::Id>);

impl Drop for Running {
    fn drop(&mut self) {
        let Self(keeper, runtime) = self;
        match runtime {
            None => keeper.is_on_thread.store(false, Ordering::Relaxed),
            Some(id) => keeper.runtimes.lock().retain(|other| other != id),
        }
    }
}

/// The work that one tick found.
#[derive(Default)]
struct Work {
    renewals: Vec<(Arc<Slot>, Renewal)>,
    asks: Vec<(Arc<Slot>, Ask)>,
    releases: Vec<Batch>,
    heartbeat: bool,
}

async fn run(keeper: Arc<Keeper>, core: Weak<Core>, _running: Running) {
    let schedule = &keeper.schedule;
    if keeper.thread.is_some() {
        tokio::spawn(unread::watch(Arc::clone(&keeper), Weak::clone(&core)));
    }
    // Connect now, so that the first confirmation does not have to.
    keeper.store.heartbeat(keeper.by()).await;
    let mut idle_ticks = 0;
    let mut last = Moment::now();
    loop {
        let woken = schedule.woken();
        let now = Moment::now();
        // The machine was suspended, or its wall clock stepped: deadlines have passed without their timers firing.
        let missed = now.missed_by_timers(last) > MISSED_BY_TIMERS;
        last = now;
        let work = if let Some(core) = core.upgrade() {
            find_work(&keeper, &core, missed)
        } else {
            let last = schedule.last_work();
            if last.is_all {
                metrics::tell_last();
                return keeper.store.wait_for_releases().await;
            }
            Work { releases: last.releases, ..Work::default() }
        };
        dispatch(&keeper, &core, work);
        idle_ticks = if schedule.on_dispatch() { 0 } else { idle_ticks + 1 };
        schedule.tell_if_quiet(core.strong_count() == 0);
        match schedule.pause(idle_ticks).into_iter().chain(metrics::tell_oldest()).min() {
            Some(pause) => drop(tokio::time::timeout(pause, woken).await),
            None => woken.await,
        }
    }
}

/// Looks at everything that is due, and at every lease if timers `missed` time.
fn find_work(keeper: &Arc<Keeper>, core: &Arc<Core>, missed: bool) -> Work {
    let schedule = &keeper.schedule;
    if schedule.take_interruption() {
        connect_again(keeper);
    }
    let round = Round { deadline: keeper.by(), usual_answer: keeper.usual_answer(core) };
    let mut visit = Visit { keeper, core, round, work: Work::default() };
    let found = schedule.take_due(Instant::now());
    for OutstandingRelease { slot, release, .. } in found.overdue {
        slot.release_for_late_task(release);
    }
    for slot in found.dropped {
        slot.release_unused();
    }
    for slot in if missed { core.table().all() } else { found.verify } {
        visit.look(&slot, Trigger::Verify);
    }
    for slot in found.tracked {
        visit.look(&slot, Trigger::Tick);
    }
    for slot in found.due {
        visit.look(&slot, Trigger::Timer);
    }
    for slot in found.watched {
        visit.repeat_ask(&slot);
    }
    visit.work.releases = schedule.take_releases();
    visit.work
}

/// One pass over what is due, and the work that it finds.
struct Visit<'a> {
    keeper: &'a Arc<Keeper>,
    core: &'a Arc<Core>,
    round: Round,
    work: Work,
}

impl Visit<'_> {
    fn look(&mut self, slot: &Arc<Slot>, trigger: Trigger) {
        let mut actions = Vec::new();
        slot.look(trigger, &self.round, &mut actions);
        for action in actions {
            follow(self.keeper, self.core, Arc::clone(slot), action, Some(&mut self.work));
        }
    }

    fn repeat_ask(&mut self, slot: &Arc<Slot>) {
        if slot.is_queued() {
            self.keeper.schedule.watch_queue(slot);
            self.work.heartbeat |= !slot.pauses();
        }
        // Asks that their tasks have just repeated are left out.
        let asks = slot.repeatable_asks(FRESH_ANSWER, self.round.deadline);
        self.work.asks.extend(asks.into_iter().map(|ask| (Arc::clone(slot), ask)));
    }
}

/// Does what a lease needs. A renewal goes into `work`, or is sent at once without it.
fn follow(keeper: &Arc<Keeper>, core: &Arc<Core>, slot: Arc<Slot>, action: Action, work: Option<&mut Work>) {
    match action {
        Action::Renew(renewal) => match work {
            Some(work) => work.renewals.push((slot, renewal)),
            None => send_renewals(keeper, &Arc::downgrade(core), vec![(slot, renewal)]),
        },
        Action::Ask(ask) => {
            if let Some(work) = work {
                work.asks.push((slot, ask));
            }
        }
        Action::Connect => connect_again(keeper),
        Action::Lost(token, reason) => core.revoke(&slot, Some(&token), reason),
    }
}

/// Sends the work that was found. Each batch is for one server and has its own task, so a command that hangs delays no other
/// server, and no other batch until [`BATCHES`](crate::local::BATCHES) of them hang.
fn dispatch(keeper: &Arc<Keeper>, core: &Weak<Core>, work: Work) {
    let Work { renewals, asks, releases, heartbeat } = work;
    // Renewals that arm alarms go separately: an alarm that no one needs costs the server a message.
    let (arming, plain): (Vec<_>, Vec<_>) = renewals.into_iter().partition(|(_, renewal)| renewal.arms);
    for renewals in [plain, arming] {
        for batch in batches(keeper, renewals, |(slot, _)| slot.key()) {
            send_renewals(keeper, core, batch);
        }
    }
    for batch in batches_of_asks(keeper, asks) {
        let (keeper, core) = (Arc::clone(keeper), Weak::clone(core));
        spawn(async move { repeat_asks(&keeper, &core, batch).await });
    }
    if heartbeat && let Some(core) = core.upgrade() {
        let deadline = keeper.by();
        spawn(async move { core.store().heartbeat(deadline).await });
    }
    for batch in releases {
        let (keeper, core) = (Arc::clone(keeper), Weak::clone(core));
        spawn(async move { releases::send(&keeper, &core, batch).await });
    }
}

/// Groups the asks to repeat. The script that replaces an owner takes one ask only.
fn batches_of_asks(keeper: &Keeper, asks: Vec<(Arc<Slot>, Ask)>) -> impl Iterator<Item = Vec<(Arc<Slot>, Ask)>> {
    let (replacing, waiting): (Vec<_>, _) = asks.into_iter().partition(|(_, ask)| ask.replaces.is_some());
    let waiting = batches(keeper, waiting, |(slot, _)| slot.key());
    waiting.into_iter().chain(replacing.into_iter().map(|ask| vec![ask]))
}

/// Spawns a task with the keeper's clock.
fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(with_clock_of(owner(), work));
}

/// Batches of at most [`BATCH`] items, each for one server.
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
