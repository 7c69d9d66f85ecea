//! [`Part`]: the work of one process in a cell.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use history::{Diary, Hold as _, Lock, Place, Recorder, Wanted, What};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tests::soak::worker::watch;
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::fault::{Fault, LEASE};
use crate::hall::Plate;
use crate::store::Store;

/// The orders of a process, from the one that starts it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) plate: String,
    pub(crate) fault: Fault,
    /// Whether the fault hits this process.
    pub(crate) is_victim: bool,
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) folder: PathBuf,
    /// The locks that it uses, each in its own task.
    pub(crate) keys: Vec<String>,
    pub(crate) seed: u64,
    /// By how many milliseconds its clock is ahead.
    pub(crate) ahead: i64,
}

/// A moment of the cell: a file in its folder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cue {
    /// The other processes may begin.
    Enter,
    /// The faults are over.
    Over,
}

impl Cue {
    pub(crate) fn give(self, folder: &Path) {
        std::fs::write(self.file(folder), "").expect("a file in an own folder");
    }

    fn is_given(self, folder: &Path) -> bool {
        self.file(folder).exists()
    }

    fn file(self, folder: &Path) -> PathBuf {
        folder.join(format!("{self:?}"))
    }
}

/// Plays the part, in a process that was started for it.
///
/// # Panics
///
/// When it is no part.
pub fn serve(part: &str) {
    let part: Part = serde_json::from_str(part).expect("a part");
    let plate = Plate::named(&part.plate).expect("an exhibit");
    (plate.act)(&part);
}

pub(crate) fn act<L: Lock>(part: &Part) {
    // Whatever happens to the parent, nothing keeps running.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal to be had");
    let mut stalls = Recorder::new(&part.folder, &part.name, 1001);
    std::thread::spawn(move || watch(&mut stalls, |_| false));
    clock::set_ahead(part.ahead);
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(play::<L>(part));
}

async fn play<L: Lock>(part: &Part) {
    let mut recorder = Recorder::new(&part.folder, &part.name, 1000);
    let alive = || Handle::current().metrics().num_alive_tasks() as u64;
    let before = alive();
    let place = Place { url: part.url.clone(), label: part.name.clone(), password: None };
    let lock = Arc::new(L::connect(&place).await.expect("a server that is well"));
    let tasks = (0..).zip(&part.keys).map(|(number, key)| {
        let mut task = Task {
            part: part.clone(),
            lock: Arc::clone(&lock),
            key: key.clone(),
            diary: Diary::new(Recorder::new(&part.folder, &part.name, number)),
            random: Rng::with_seed(part.seed.wrapping_add(u64::from(number))),
        };
        tokio::spawn(async move { task.play().await })
    });
    let tasks: Vec<_> = tasks.collect();
    for task in tasks {
        task.await.expect("a task that ends");
    }
    lock.close().await;
    drop(lock);
    // Background work gets time to end.
    let end = Instant::now() + Duration::from_secs(1);
    while alive() > before && Instant::now() < end {
        sleep(Duration::from_millis(20)).await;
    }
    recorder.note(What::Left { thing: "tasks".to_owned(), before, after: alive() });
    recorder.note(What::Ended);
}

/// One task's use of one lock.
struct Task<L> {
    part: Part,
    lock: Arc<L>,
    key: String,
    diary: Diary,
    random: Rng,
}

/// How long an ordinary acquire waits, in milliseconds.
const TIMEOUT: u64 = 1000;
/// How many milliseconds a victim's write is on its way: until its lease has ended, and the next holder has written.
const LATE: u64 = LEASE + 40;
/// The interval between checks of the deadline.
const STEP: Duration = Duration::from_millis(20);

impl<L: Lock> Task<L> {
    async fn play(&mut self) {
        let (fault, is_victim) = (self.part.fault, self.part.is_victim);
        let comes_second = if fault.hits_a_holder() { !is_victim } else { is_victim };
        while comes_second && !Cue::Enter.is_given(&self.part.folder) {
            sleep(Duration::from_millis(3)).await;
        }
        while !Cue::Over.is_given(&self.part.folder) {
            let body = if is_victim { fault.body(&mut self.random) } else { fault.body_of_others(&mut self.random) };
            self.once(TIMEOUT, body).await;
            if is_victim && fault.is_about_one_hold() {
                return;
            }
            sleep(Duration::from_millis(self.random.u64(..5))).await;
        }
        // Whether the lock can still be acquired.
        let patience = u64::try_from(fault.patience().as_millis()).unwrap_or(u64::MAX);
        self.once(patience, Duration::from_millis(1)).await;
    }

    async fn once(&mut self, timeout: u64, body: Duration) {
        let expire = u64::try_from(self.part.fault.lease().as_millis()).unwrap_or(u64::MAX);
        // The victim acquires in the plainest way if the fault waits for its commands.
        let (fault, is_victim) = (self.part.fault, self.part.is_victim);
        let wanted = Wanted { timeout, expire, fenced: !is_victim || fault.delays_a_write(), ..Wanted::default() };
        let Some(kept) = self.diary.acquire(&*self.lock, &self.key, wanted, None).await else { return };
        let writing = fault.delays_a_write().then(|| {
            let write = Write { folder: self.part.folder.clone(), key: self.key.clone(), fence: kept.hold.fence() };
            if !is_victim {
                self.diary.recorder().note(write.deliver());
                return None;
            }
            // A write on its way does not depend on what its sender does meanwhile.
            let mut recorder = Recorder::new(&self.part.folder, &self.part.name, 1002);
            Some(tokio::spawn(async move {
                sleep(Duration::from_millis(LATE)).await;
                recorder.note(write.deliver());
            }))
        });
        // The body, which a lock with a deadline ends.
        let end = Instant::now() + body;
        while Instant::now() < end && kept.hold.remaining() != Some(Duration::ZERO) {
            sleep(STEP.min(end - Instant::now())).await;
        }
        self.diary.look(&kept);
        self.diary.release(kept).await;
        if let Some(writing) = writing.flatten() {
            writing.await.expect("a write that ends");
        }
    }
}

/// A write to the store that the lock protects.
struct Write {
    folder: PathBuf,
    key: String,
    fence: Option<u64>,
}

impl Write {
    fn deliver(&self) -> What {
        let accepted = Store::open(&self.folder, &self.key).write(self.fence);
        What::Delivered { key: self.key.clone(), fence: self.fence, accepted }
    }
}
