//! [`serve`]: a worker process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Handle};
use tokio::time::sleep;

use super::plan::{FLOOD, Plan};
use super::register::Register;
use super::workload::Task;
use history::claims::EVERY_TASK;
use history::diary::STALL;
use history::event::{now, span};
use history::{Diary, Lock, Place, Recorder, What};

/// What the parent process passes to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    /// The lock to use, for binaries that know several.
    pub lock: String,
    /// The round's settings.
    pub plan: Plan,
    /// The worker's name and generation.
    pub name: String,
    /// The URL of the locks' servers.
    pub url: String,
    /// See [`Place::password`].
    pub password: Option<PathBuf>,
    /// The URL of the register's server.
    pub register: String,
    /// The folder of the history.
    pub folder: PathBuf,
    /// When faults begin.
    pub faults: u64,
    /// When the worker ends its work.
    pub end: u64,
}

impl Role {
    /// Parses the role from the parent.
    ///
    /// # Panics
    ///
    /// If `text` is no role.
    #[must_use]
    pub fn read(text: &str) -> Self {
        serde_json::from_str(text).expect("a role")
    }
}

/// Runs a worker with locks of type `L`.
pub fn serve<L: Lock>(role: &Role) {
    // The worker dies with its parent.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("the kernel sends the signal");
    // Record when the process could not run, because of a signal or a busy machine: the lock is not to blame for that.
    let mut stalls = Recorder::new(&role.folder, &role.name, 1001);
    std::thread::spawn(move || watch(&mut stalls, |_| false));
    // Play both flavors of runtime.
    let several = role.plan.random(&role.name).bool();
    let mut builder = if several { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    // Idle threads are no leak, so let them end before the count.
    let runtime = builder.worker_threads(2).thread_keep_alive(Duration::from_millis(50)).enable_all().build();
    runtime.expect("a runtime").block_on(work::<L>(role));
}

async fn work<L: Lock>(role: &Role) {
    let register = Arc::new(Register::connect(&role.register).await);
    let mut recorder = Recorder::new(&role.folder, &role.name, 1000);
    let before = Counts::now();
    if let Some(lock) = connect::<L>(role).await {
        let lock = Arc::new(lock);
        let flood = role.plan.outage.map_or(0, |_| FLOOD);
        let tasks: Vec<_> = (0..role.plan.tasks + flood)
            .map(|number| {
                let (lock, register, role) = (Arc::clone(&lock), Arc::clone(&register), role.clone());
                tokio::spawn(async move {
                    let mut task = Task {
                        plan: &role.plan,
                        lock: &*lock,
                        register: &register,
                        diary: Diary::new(Recorder::new(&role.folder, &role.name, number)),
                        random: role.plan.random(&format!("{}/{number}", role.name)),
                    };
                    if let Some(outage) = role.plan.outage.filter(|_| number >= role.plan.tasks) {
                        let end = role.faults + span(outage) + span(AFTER);
                        return task.flood(&format!("{}-{number}", role.name), end).await;
                    }
                    task.rush(number, role.faults).await;
                    task.work(role.end).await;
                    task.probe(number as usize).await;
                })
            })
            .collect();
        let busy = role.plan.is_busy.then(|| tokio::spawn(work_on_something_else(role.clone())));
        for task in tasks.into_iter().chain(busy) {
            task.await.expect("a task that ends");
        }
        lock.close().await;
    }
    // Leave time for background work to end.
    let mut after = Counts::now();
    for _ in 0..200 {
        if after.0.iter().zip(&before.0).all(|(after, before)| after.1 <= before.1) {
            break;
        }
        sleep(Duration::from_millis(20)).await;
        after = Counts::now();
    }
    for ((thing, before), (_, after)) in before.0.into_iter().zip(after.0) {
        recorder.note(What::Left { thing: thing.to_owned(), before, after });
    }
    recorder.note(What::Ended);
}

/// Blocks a thread of the runtime now and then, like a task that computes without yielding.
async fn work_on_something_else(role: Role) {
    let mut recorder = Recorder::new(&role.folder, &role.name, EVERY_TASK);
    let mut random = role.plan.random(&format!("{}/busy", role.name));
    sleep(Duration::from_nanos(role.faults.saturating_sub(now()))).await;
    while now() < role.end {
        let longest = if random.u32(..8) == 0 { 5000 } else { 1000 };
        let end = now() + span(Duration::from_millis(random.u64(100..longest)));
        // Record it piece by piece, because this process may be killed before the end.
        while let Some(left) = end.checked_sub(now()).filter(|left| *left > 0) {
            let from = now();
            std::thread::sleep(Duration::from_nanos(left).min(PIECE));
            recorder.note(What::Late { from });
        }
        sleep(Duration::from_millis(random.u64(100..2000))).await;
    }
}

/// How often a blocked thread records that it is blocked.
const PIECE: Duration = Duration::from_millis(20);

/// How long the flood continues after an outage.
const AFTER: Duration = Duration::from_secs(1);

/// Retries for a while, because the server may be stopped just now.
async fn connect<L: Lock>(role: &Role) -> Option<L> {
    let place = Place { url: role.url.clone(), label: role.name.clone(), password: role.password.clone() };
    while now() < role.end {
        match L::connect(&place).await {
            Ok(lock) => return Some(lock),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
    None
}

/// The resources that must return to their earlier level.
struct Counts([(&'static str, u64); 3]);

impl Counts {
    fn now() -> Self {
        let entries = |folder: &str| std::fs::read_dir(folder).map_or(0, |entries| entries.count() as u64);
        let tasks = Handle::current().metrics().num_alive_tasks() as u64;
        Self([("tasks", tasks), ("threads", entries("/proc/self/task")), ("open files", entries("/proc/self/fd"))])
    }
}

const LOOK: Duration = Duration::from_millis(10);

/// Records when this process could not run, until `is_over`.
pub fn watch(recorder: &mut Recorder, is_over: impl Fn(u64) -> bool) {
    let mut last = now();
    while !is_over(last) {
        std::thread::sleep(LOOK);
        let woken = now();
        if woken - last > STALL {
            recorder.note(What::Stalled { from: last });
        }
        last = woken;
    }
}
