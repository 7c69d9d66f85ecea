//! [`play`]: plays and records, on real servers, a failover that loses a lock while its holder's write is on the way.

use std::path::Path;
use std::time::Duration;

use history::claims::HARNESS;
use history::diary::Kept;
use history::event::now;
use history::{Diary, History, Hold, Lock, Place, Recorder, Wanted, What};
use lock_runtime::LockManager;

use crate::patience::eventually;
use crate::proxy::{ANY, Fault, Proxy};
use crate::sentinel::Sentinels;
use crate::server::Server;
use crate::soak::register::Register;
use crate::soak::{Held, Ours};

/// The key of the lock and of the resource.
pub const KEY: &str = "stock:7";
/// The fault during which a write is on its way.
pub const ON_ITS_WAY: &str = "OnItsWay";
/// The fault by which the lock is lost.
pub const KILLED: &str = "KillMaster";
/// Longer than a failover takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// Longer than an unconfirmed hold lasts.
const CONFIRMED: Duration = Duration::from_secs(5);

/// One of the two clients that want the lock.
struct Clerk {
    lock: Ours,
    diary: Diary,
    register: Register,
    /// Whether each write carries a fencing token.
    fenced: bool,
}

/// Plays the failover, and records it in the folder.
///
/// The first clerk reads the resource and sends a slow write. The master dies, and the promoted replica does not have the lock. So the
/// second clerk gets it, reads and writes. Then the first clerk's write arrives.
#[must_use]
pub fn play(fenced: bool, folder: &Path) -> History {
    // Left by an interrupted run.
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).expect("a folder for the history");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime").block_on(scene(fenced, folder));
    History::read(folder)
}

/// The history of a complete play in this folder.
#[must_use]
pub fn kept(folder: &Path) -> Option<History> {
    let history = folder.exists().then(|| History::read(folder))?;
    history.events.iter().any(|event| matches!(event.what, What::Final { .. })).then_some(history)
}

async fn scene(fenced: bool, folder: &Path) {
    let (mut sentinels, resource) = (Sentinels::start(1), Server::start());
    let slow = Proxy::unrecorded(&resource);
    let mut harness = Recorder::new(folder, HARNESS, 0);
    let mut first = Clerk::start("first", &sentinels.url(), &slow.url(), fenced, folder).await;
    let mut second = Clerk::start("second", &sentinels.url(), &resource.url(), fenced, folder).await;

    sentinels.cut_replication();
    let kept = first.acquire().await;
    eventually("the hold is confirmed", PATIENCE, || kept.hold.remaining() > Some(CONFIRMED)).await;
    let (fence, value) = first.open(&kept).await;
    let _ = slow.plan(ANY, Fault::Hold);
    let (mut writes, register) = (Recorder::new(folder, "first", 1), first.register.clone());
    let late = tokio::spawn(async move { write(&register, &mut writes, fence, value + 1).await });
    eventually("the write is on its way", PATIENCE, || slow.holding() == 1).await;
    let sent = now();

    let holds = tokio::spawn(async move {
        while first.diary.look(&kept) {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        first.diary.release(kept).await;
        first.lock.close().await;
    });
    let waits = tokio::spawn(async move {
        let kept = second.acquire().await;
        (second, kept)
    });
    let killed = now();
    sentinels.server_mut(0).kill();
    let _ = sentinels.await_another(0);
    harness.note(What::Fault { kind: KILLED.to_owned(), target: "server 0".to_owned(), from: killed });

    let (mut second, kept) = waits.await.expect("the second clerk");
    let (fence, value) = second.open(&kept).await;
    write(&second.register, second.diary.recorder(), fence, value + 1).await;
    second.diary.release(kept).await;
    second.lock.close().await;
    slow.let_go();
    write_arrives(late, &mut harness, sent).await;
    holds.await.expect("the first clerk's hold");
    let value: Option<u64> = resource.ask(&format!("HGET {KEY} value"));
    harness.note(What::Final { key: KEY.to_owned(), value: value.unwrap_or_default() });
}

async fn write_arrives(write: tokio::task::JoinHandle<()>, harness: &mut Recorder, sent: u64) {
    write.await.expect("the first clerk's write");
    harness.note(What::Fault { kind: ON_ITS_WAY.to_owned(), target: "wire".to_owned(), from: sent });
}

async fn write(register: &Register, recorder: &mut Recorder, fence: u64, value: u64) {
    let accepted = register.write(KEY, fence, value).await;
    recorder.note(What::Wrote { key: KEY.to_owned(), fence, value, accepted });
}

impl Clerk {
    async fn start(name: &str, locks: &str, resource: &str, fenced: bool, folder: &Path) -> Self {
        let place = Place { url: locks.to_owned(), label: name.to_owned(), password: None };
        let manager = LockManager::builder().url(&place.url).label(&place.label).connect().await;
        let lock = Ours::from(manager.expect("servers that are well"));
        let diary = Diary::new(Recorder::new(folder, name, 0));
        let register = Register::patient(resource, PATIENCE).await;
        Self { lock, diary, register, fenced }
    }

    async fn acquire(&mut self) -> Kept<Held> {
        let wanted = Wanted { timeout: 60_000, expire: 30_000, renew: true, fenced: self.fenced, ..Wanted::default() };
        self.diary.acquire(&self.lock, KEY, wanted, None).await.expect("the lock is granted")
    }

    /// Reads the resource: with the token, or with 0, after which no write is refused.
    async fn open(&mut self, kept: &Kept<Held>) -> (u64, u64) {
        let fence = kept.hold.fence().unwrap_or_default();
        let value = self.register.open(KEY, fence).await.flatten();
        let accepted = Some(value.is_some());
        self.diary.recorder().note(What::Opened { key: KEY.to_owned(), fence, accepted, value });
        (fence, value.expect("no other token is greater"))
    }
}
