//! [`Crowd`]: two processes with two tasks each contend for one lock while something fails. Each call is recorded, and the
//! history is checked at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use history::checks::{Check, acquires_return_in_time, claims_never_overlap, fences_increase};
use history::{Bounds, Diary, History, Lock, Place, Recorder, Share, Wanted, What};
use tests::patience::eventually;
use tests::server::Server;
use tests::soak::Ours;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const KEY: &str = "p:crowd";

const WANTED: Wanted =
    Wanted { timeout: 5000, expire: 1000, renew: false, fenced: true, share: Share::Alone, together: false };

const BOUNDS: Bounds = Bounds {
    lease: Duration::from_millis(WANTED.expire),
    noise: Duration::from_millis(500),
    round_trip: Duration::ZERO,
    answer: Duration::from_millis(500),
    forgetful: false,
    tells: true,
    queues: true,
    splits: false,
    linger: Duration::ZERO,
};

/// C1 and C2 of the history checker, and the check that acquires return within their timeout.
const CHECKS: [Check; 3] = [claims_never_overlap, fences_increase, acquires_return_in_time];

#[derive(Debug)]
pub(crate) struct Crowd {
    folder: tempfile::TempDir,
    count: Arc<Count>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Count {
    is_over: AtomicBool,
    grants: AtomicUsize,
    refusals: AtomicUsize,
}

/// The results of a crowd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Got {
    pub(crate) grants: usize,
    /// Acquires that ended without the lock.
    pub(crate) refusals: usize,
}

impl Crowd {
    pub(crate) async fn on(url: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let count = Arc::<Count>::default();
        let mut tasks = Vec::new();
        for process in ["north", "south"] {
            let place = Place { url: url.to_owned(), label: process.to_owned(), password: None };
            let lock = Arc::new(Ours::connect(&place).await.unwrap());
            for task in 0..2 {
                let diary = Diary::new(Recorder::new(folder.path(), process, task));
                tasks.push(tokio::spawn(want_it(Arc::clone(&lock), diary, Arc::clone(&count))));
            }
        }
        Self { folder, count, tasks }
    }

    fn grants(&self) -> usize {
        self.count.grants.load(Ordering::SeqCst)
    }

    /// When faults are over: checks that the crowd makes progress, that its tasks end, and that its history is correct.
    pub(crate) async fn ends_well(self, server: &Server) -> Got {
        let before = self.grants();
        // The lease of a hold whose release was lost, plus a margin.
        let bound = BOUNDS.lease + Duration::from_secs(3);
        eventually("the crowd makes progress", bound, || self.grants() > before + 10).await;
        let got = Got { grants: self.grants(), refusals: self.count.refusals.load(Ordering::SeqCst) };
        self.count.is_over.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        let history = History::read(self.folder.path());
        for check in CHECKS {
            let found = check(&history, &BOUNDS);
            assert!(found.is_empty(), "{found:#?}");
        }
        eventually("the crowd's lock is free", Duration::from_secs(3), || server.owner(KEY).is_none()).await;
        got
    }
}

async fn want_it(lock: Arc<Ours>, mut diary: Diary, count: Arc<Count>) {
    for round in 0.. {
        if count.is_over.load(Ordering::SeqCst) {
            break;
        }
        let Some(kept) = diary.acquire(&*lock, KEY, WANTED, None).await else {
            count.refusals.fetch_add(1, Ordering::SeqCst);
            // Don't retry at once after an immediate refusal.
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        count.grants.fetch_add(1, Ordering::SeqCst);
        sleep(Duration::from_millis(1)).await;
        diary.look(&kept);
        if round % 2 == 0 {
            diary.release(kept).await;
        } else {
            diary.drop(kept);
        }
    }
    diary.recorder().note(What::Ended);
}
