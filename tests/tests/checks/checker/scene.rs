//! [`Scene`]: three processes contend for one lock, and one command of the first is late.

use std::time::Duration;

use history::checks::claims_never_overlap;
use history::diary::Kept;
use history::{Diary, Failure, History, Lock, Place, Recorder, Violation, Wanted};
use tests::patience::eventually;
use tests::proxy::{Fault, Proxy};
use tests::server::Server;
use tests::soak::Plan;

const KEY: &str = "scene";

/// In milliseconds: the lease that is too short for the first process, a long lease, and how long a task waits for either.
const SHORT: u64 = 600;
const LONG: u64 = 20_000;
const SOON: u64 = 2_000;

/// How late the reply to a claim is: less than a command's timeout, and much more than a poll.
const LATE: Duration = Duration::from_millis(150);

pub(crate) struct Scene {
    server: Server,
    /// In front of the server, for the first process only.
    proxy: Proxy,
    folder: tempfile::TempDir,
}

struct Player<L> {
    lock: L,
    diary: Diary,
}

impl<L: Lock> Player<L> {
    async fn acquire(&mut self, expire: u64) -> Option<Kept<L::Hold>> {
        let wanted = Wanted { timeout: SOON, expire, ..Wanted::default() };
        self.diary.acquire(&self.lock, KEY, wanted, None).await
    }
}

impl Scene {
    pub(crate) fn start() -> Self {
        let server = Server::start();
        let proxy = Proxy::before(&server);
        Self { server, proxy, folder: tempfile::tempdir().expect("a temporary folder") }
    }

    async fn player<L: Lock>(&self, name: &str, url: String) -> Player<L> {
        let lock = L::connect(&Place { url, label: name.to_owned(), password: None }).await;
        let diary = Diary::new(Recorder::new(self.folder.path(), name, 0));
        Player { lock: lock.unwrap_or_else(|failure: Failure| panic!("{failure:?}")), diary }
    }

    /// What the checker finds in the history.
    fn found<L: Lock>(&self) -> Vec<Violation> {
        claims_never_overlap(&History::read(self.folder.path()), &Plan::short(0).bounds::<L>())
    }

    /// The first process releases in time, but its last command, `release`, arrives after its lease has expired, when the second has the
    /// lock. Then the third asks for the lock.
    pub(crate) async fn release_is_late<L: Lock>(self, release: &str) -> Vec<Violation> {
        let mut first = self.player::<L>("first", self.proxy.url()).await;
        let mut second = self.player::<L>("second", self.server.url()).await;
        let mut third = self.player::<L>("third", self.server.url()).await;
        let kept = first.acquire(SHORT).await.expect("it is free");
        self.proxy.plan(release, Fault::Hold);
        let releasing = tokio::spawn(async move { first.diary.release(kept).await });
        eventually("its release is on its way", Duration::from_millis(SOON), || self.proxy.holding() > 0).await;
        let kept = second.acquire(LONG).await.expect("the first lease ends");
        self.proxy.let_go();
        let taken = third.acquire(LONG).await;
        second.diary.look(&kept);
        second.diary.release(kept).await;
        if let Some(taken) = taken {
            third.diary.release(taken).await;
        }
        releasing.await.expect("a task that ends");
        self.found::<L>()
    }

    /// The first process gets the reply to its claim late, and keeps the lock for its whole lease. The second waits.
    pub(crate) async fn grant_is_late<L: Lock>(self) -> Vec<Violation> {
        let mut first = self.player::<L>("first", self.proxy.url()).await;
        let mut second = self.player::<L>("second", self.server.url()).await;
        self.proxy.plan("SET", Fault::DelayReply(LATE));
        let kept = first.acquire(SHORT).await.expect("it is free");
        let next = second.acquire(LONG).await.expect("the first lease ends");
        first.diary.look(&kept);
        second.diary.release(next).await;
        self.found::<L>()
    }
}
