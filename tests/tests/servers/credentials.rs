//! Credentials that change: holds and waiters during rotations at each place, and providers that fail.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::{Stream, stream};
use lock_runtime::redis::{BasicAuth, ErrorKind, RedisError, RedisResult, StreamingCredentialsProvider};
use lock_runtime::{Builder, LockError, LockManager};
use tests::cluster::Cluster;
use tests::events::Events;
use tests::patience::{NOISE, eventually};
use tests::quorum::Servers;
use tests::sentinel::{Sentinel, Sentinels};
use tests::server::Server;
use tokio::sync::watch;
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(1);
/// Shorter than the holds of the tests, so that they must be renewed.
const EXPIRE: Duration = Duration::from_secs(3);

/// A provider that gives the user and password that the test set last, or fails with a text.
#[derive(Clone)]
struct Vault(watch::Sender<Option<Result<(&'static str, &'static str), &'static str>>>);

impl Vault {
    /// A provider without credentials.
    fn empty() -> Self {
        Self(watch::Sender::new(None))
    }

    fn with(password: &'static str) -> Self {
        let vault = Self::empty();
        vault.give("locks", password);
        vault
    }

    fn give(&self, user: &'static str, password: &'static str) {
        self.0.send_replace(Some(Ok((user, password))));
    }

    fn fail(&self, text: &'static str) {
        self.0.send_replace(Some(Err(text)));
    }

    fn builder(&self, url: &str) -> Builder {
        LockManager::builder().url(url).connect_timeout(CONNECT).credentials_provider(self.clone())
    }

    async fn manager(&self, url: &str) -> LockManager {
        self.builder(url).connect().await.unwrap()
    }
}

impl StreamingCredentialsProvider for Vault {
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send + 'static>> {
        let mut told = self.0.subscribe();
        told.mark_changed();
        Box::pin(stream::unfold(told, |mut told| async move {
            loop {
                told.changed().await.ok()?;
                let now = *told.borrow_and_update();
                let given = match now {
                    None => continue,
                    Some(Ok((user, password))) => Ok(BasicAuth::new(user.to_owned(), password.to_owned())),
                    Some(Err(text)) => Err(RedisError::from((ErrorKind::Client, "no token", text.to_owned()))),
                };
                return Some((given, told));
            }
        }))
    }
}

/// Makes this the user's only password. The user's connections remain.
fn allow(servers: &[&Server], user: &str, password: &str) {
    for server in servers {
        server.tell(&format!("ACL SETUSER {user} on resetpass >{password} ~* &* +@all"));
    }
}

/// Closes all connections of a user, as a server does when a token has expired.
fn cut(servers: &[&Server], user: &str) {
    for server in servers {
        server.tell(&format!("CLIENT KILL USER {user}"));
    }
}

/// The connections of a user, as server and client id.
fn connections(servers: &[&Server], user: &str) -> HashSet<String> {
    let all = servers.iter().flat_map(|server| {
        let list = server.ask::<String>("CLIENT LIST");
        let of_user = list.lines().filter(|line| line.contains(&format!(" user={user} ")));
        let numbers = of_user.filter_map(|line| line.split(' ').next());
        numbers.map(|number| format!("{} {number}", server.address())).collect::<Vec<_>>()
    });
    all.collect()
}

/// Plays all kinds of rotations while two processes have holds and waiters; none may be lost.
async fn lives_through_rotations(url: &str, servers: &[&Server]) {
    const KEYS: u8 = 6;
    let vault = Vault::with("one");
    allow(servers, "locks", "one");
    let (north, south) = (vault.manager(url).await, vault.manager(url).await);
    let mut guards = Vec::new();
    for key in 0..KEYS {
        guards.push(north.lock("p", &key).expire(EXPIRE).acquire().await.unwrap());
    }
    let begun = Instant::now();
    let inside = Arc::new(AtomicUsize::new(0));
    let waiters = [&north, &north, &south, &south].into_iter().flat_map(|locks| (0..KEYS).map(move |key| (locks, key)));
    let waiters = waiters.map(|(locks, key)| {
        let (locks, inside) = (locks.clone(), Arc::clone(&inside));
        tokio::spawn(async move {
            let guard = locks.lock("p", &key).timeout(LONG * 2).expire(EXPIRE).acquire().await?;
            assert!(inside.fetch_add(1, Ordering::Relaxed) < usize::from(KEYS));
            sleep(Duration::from_millis(5)).await;
            inside.fetch_sub(1, Ordering::Relaxed);
            guard.release().await
        })
    });
    let waiters: Vec<_> = waiters.collect();
    sleep(Duration::from_millis(200)).await;
    // The server changes first, the provider a moment later. Then the server closes the old connections.
    allow(servers, "locks", "two");
    sleep(Duration::from_millis(50)).await;
    vault.give("locks", "two");
    sleep(Duration::from_millis(50)).await;
    cut(servers, "locks");
    let latest = north.lock("p", "latest").timeout(LONG).acquire().await.unwrap();
    // The server closes the connections during the rotation, so that nobody can connect for a while.
    allow(servers, "locks", "three");
    cut(servers, "locks");
    let late = tokio::spawn({
        let south = south.clone();
        async move { south.lock("p", "late").timeout(LONG).acquire().await }
    });
    sleep(Duration::from_millis(700)).await;
    assert!(!late.is_finished() && latest.is_valid());
    vault.give("locks", "three");
    late.await.unwrap().unwrap().release().await.unwrap();
    // The provider changes first: the servers refuse the password until they know it.
    vault.give("locks", "four");
    sleep(Duration::from_millis(50)).await;
    allow(servers, "locks", "four");
    cut(servers, "locks");
    // A new user, like Vault makes for each rotation. Deleting the old user cuts its connections, so all must have switched before.
    north.lock("p", "latest").timeout(Duration::ZERO).acquire().await.unwrap_err();
    sleep(Duration::from_millis(300)).await;
    allow(servers, "heirs", "five");
    vault.give("heirs", "five");
    eventually("all connections have the new user", LONG, || connections(servers, "locks").is_empty()).await;
    let before = connections(servers, "heirs");
    assert!(before.len() >= 4, "{before:?}");
    for server in servers {
        server.tell("ACL DELUSER locks");
    }
    latest.release().await.unwrap();
    north.lock("p", "latest").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    assert!(before.is_subset(&connections(servers, "heirs")), "{before:?}");
    sleep((EXPIRE * 3 / 2).saturating_sub(begun.elapsed())).await;
    for guard in guards {
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    for locks in [north, south] {
        locks.shutdown().await;
        assert_eq!(locks.stats().lost, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_waiters_on_one_server_live_through_rotations() {
    let server = Server::start();
    lives_through_rotations(&server.url(), &[&server]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_waiters_in_a_cluster_live_through_rotations() {
    let cluster = Cluster::start();
    lives_through_rotations(&cluster.url(), &cluster.nodes().collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_waiters_on_a_quorum_live_through_rotations() {
    let quorum = Servers::start(3);
    lives_through_rotations(&quorum.url(), &quorum.servers().collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_waiters_under_sentinels_live_through_rotations() {
    let sentinels = Sentinels::start(1);
    lives_through_rotations(&sentinels.url(), &sentinels.servers().collect::<Vec<_>>()).await;
}

/// Sends an administrator's command to a sentinel that admits nobody else.
fn at(sentinel: &Sentinel, command: &str) -> String {
    let client = redis::Client::open(format!("redis://admin:root@{}", sentinel.address())).unwrap();
    let mut words = command.split(' ');
    let mut asked = redis::cmd(words.next().unwrap());
    let reply: redis::Value =
        asked.arg(words.collect::<Vec<_>>()).query(&mut client.get_connection().unwrap()).unwrap();
    format!("{reply:?}")
}

#[tokio::test]
async fn a_sentinel_that_asks_for_credentials_gets_the_newest() {
    let sentinels = Sentinels::start(1);
    let all: Vec<_> = (0..3).map(|index| sentinels.sentinel(index)).collect();
    let servers: Vec<_> = sentinels.servers().collect();
    allow(&servers, "locks", "one");
    let users = [("locks", "on >one &* +@all"), ("admin", "on >root &* +@all")];
    let users = users.map(|(user, rights)| (user.to_owned(), rights.to_owned()));
    let url = sentinels.url();
    for sentinel in &all {
        sentinel.admit_only(&users);
    }
    let vault = Vault::with("one");
    let locks = vault.manager(&url).await;
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    for sentinel in &all {
        at(sentinel, "ACL SETUSER heirs on >two &* +@all");
    }
    allow(&servers, "heirs", "two");
    vault.give("heirs", "two");
    let of = |user: &str| -> usize {
        all.iter().map(|sentinel| at(sentinel, "CLIENT LIST").matches(&format!(" user={user} ")).count()).sum()
    };
    eventually("all connections have the new user", LONG, || of("locks") == 0 && of("heirs") == 6).await;
    for sentinel in &all {
        at(sentinel, "ACL DELUSER locks");
        at(sentinel, "CLIENT KILL USER heirs");
    }
    cut(&servers, "heirs");
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    locks.lock("p", "k").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    eventually("all sentinels have subscribers again", LONG, || of("heirs") == 6).await;
}

#[tokio::test]
async fn tokens_of_a_second_that_the_server_ends_cost_no_hold() {
    let server = Server::start();
    let vault = Vault::with("t0");
    allow(&[&server], "locks", "t0");
    let (north, south) = (vault.manager(&server.url()).await, vault.manager(&server.url()).await);
    let guard = north.lock("p", "held").expire(EXPIRE).acquire().await.unwrap();
    let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let busy = [north.clone(), south.clone()].into_iter().cycle().take(8).map(|locks| {
        let (inside, done) = (Arc::clone(&inside), Arc::clone(&done));
        tokio::spawn(async move {
            loop {
                let work = async {
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::Relaxed);
                };
                locks.lock("p", "busy").timeout(LONG).run(work).await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let busy: Vec<_> = busy.collect();
    for password in ["t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10"] {
        sleep(Duration::from_millis(400)).await;
        allow(&[&server], "locks", password);
        vault.give("locks", password);
        cut(&[&server], "locks");
    }
    let before = done.load(Ordering::Relaxed);
    eventually("the work continues", LONG, || done.load(Ordering::Relaxed) > before + 100).await;
    assert!(guard.is_valid());
    for task in busy {
        assert!(!task.is_finished());
        task.abort();
    }
    guard.release().await.unwrap();
    assert_eq!(north.stats().lost + south.stats().lost, 0);
}

#[tokio::test]
async fn two_passwords_of_a_user_need_no_provider() {
    let server = Server::start();
    allow(&[&server], "locks", "one");
    let url = |password: &str| server.url().replace("://", &format!("://locks:{password}@"));
    let old = LockManager::connect(&url("one")).await.unwrap();
    let guard = old.lock("p", "k").acquire().await.unwrap();
    server.tell("ACL SETUSER locks >two");
    cut(&[&server], "locks");
    old.lock("p", "other").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    let new = LockManager::connect(&url("two")).await.unwrap();
    guard.release().await.unwrap();
    server.tell("ACL SETUSER locks <one");
    new.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    cut(&[&server], "locks");
    new.lock("p", "k").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    let error = old.lock("p", "k").timeout(LONG).acquire().await.unwrap_err().to_string();
    assert!(error.contains("WRONGPASS") && !error.contains("newest"), "{error}");
}

/// Fails to connect, and returns the error and how long it took.
async fn refused(vault: &Vault, url: &str) -> (String, Duration) {
    let start = Instant::now();
    let error = vault.builder(url).connect().await.unwrap_err();
    assert!(matches!(error, LockError::Connect { .. }), "{error:?}");
    (error.to_string(), start.elapsed())
}

#[tokio::test]
async fn a_provider_that_fails_or_hangs_is_reported_in_time_and_all_is_well_when_it_recovers() {
    let server = Server::start();
    allow(&[&server], "locks", "one");
    let cluster = Cluster::one_node(tests::server::Kind::Redis);
    for url in [server.url(), cluster.url()] {
        let vault = Vault::empty();
        let (text, took) = refused(&vault, &url).await;
        assert!(text.contains("credentials provider has given none yet") && took < CONNECT + NOISE, "{text} {took:?}");
        vault.fail("the vault is sealed");
        let (text, took) = refused(&vault, &url).await;
        assert!(text.contains("the vault is sealed") && took < NOISE * 2, "{text} {took:?}");
    }
    let vault = Vault::empty();
    vault.fail("the vault is sealed");
    let locks = vault.builder(&server.url()).connect_lazy().unwrap();
    let start = Instant::now();
    let error = locks.lock("p", "k").timeout(Duration::from_millis(300)).acquire().await.unwrap_err();
    assert!(
        matches!(error, LockError::Backend { .. }) && error.to_string().contains("the vault is sealed"),
        "{error:?}"
    );
    assert!(start.elapsed() < Duration::from_millis(400) + NOISE);
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("p", "k").timeout(LONG).acquire().await }
    });
    sleep(Duration::from_millis(300)).await;
    assert!(!waiter.is_finished());
    vault.give("locks", "one");
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_last_credentials_stay_in_use_while_the_provider_fails_and_both_errors_are_reported() {
    let (server, events) = (Server::start(), Events::of_this_process());
    let vault = Vault::with("one");
    allow(&[&server], "locks", "one");
    let locks = vault.manager(&server.url()).await;
    vault.fail("the vault is sealed for good");
    let told = || events.with(&["WARN", "no new credentials", "the vault is sealed for good"]);
    eventually("the failure is logged", LONG, || !told().is_empty()).await;
    cut(&[&server], "locks");
    let guard = locks.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    // The provider is asked again, and still fails. The server no longer accepts the last credentials.
    allow(&[&server], "locks", "two");
    cut(&[&server], "locks");
    let error = locks.lock("p", "other").timeout(Duration::from_millis(500)).acquire().await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(text.contains("WRONGPASS") && text.contains("the vault is sealed for good"), "{text}");
    assert_eq!(told().len(), 1);
    // Giving the old credentials again does not help.
    vault.give("locks", "one");
    let error = locks.lock("p", "other").timeout(Duration::from_millis(500)).acquire().await.unwrap_err();
    assert!(error.to_string().contains("WRONGPASS"), "{error}");
    assert!(guard.is_valid());
    vault.give("locks", "two");
    locks.lock("p", "other").timeout(LONG).acquire().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn new_credentials_that_a_server_refuses_are_reported_and_its_connections_stay() {
    let (server, events) = (Server::start(), Events::of_this_process());
    let vault = Vault::with("one");
    allow(&[&server], "locks", "one");
    let locks = vault.manager(&server.url()).await;
    vault.give("locks", "not yet");
    let told = || events.with(&["WARN", "refused new credentials", &server.address(), "WRONGPASS"]);
    eventually("the refusal is logged", LONG, || told().len() == 2).await;
    locks.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(locks.stats().reconnects, 0);
}

#[tokio::test]
async fn an_address_that_says_who_connects_as_well_is_refused() {
    let vault = Vault::with("one");
    let refusal = |builder: Builder| {
        let error = builder.credentials_provider(vault.clone()).connect_lazy().unwrap_err();
        assert!(matches!(error, LockError::InvalidSetting { setting: "credentials_provider", .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("leave one of the two out") && !text.contains("canary"), "{text}");
    };
    for url in [
        "redis://locks:canary@127.0.0.1:1",
        "rediss://:canary@127.0.0.1:1",
        "unix:///nowhere?pass=canary",
        "redis-sentinel://locks:canary@127.0.0.1:1/till",
        "redis-cluster://:canary@127.0.0.1:1,127.0.0.1:2",
        "redlock://locks:canary@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    ] {
        refusal(LockManager::builder().url(url));
    }
    refusal(LockManager::builder().client(redis::Client::open("redis://:canary@127.0.0.1:1").unwrap()));
    let urls = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://:canary@127.0.0.1:3"];
    refusal(LockManager::builder().quorum(urls));
    // In memory a provider is allowed, and is never asked.
    let locks = vault.manager("memory://").await;
    locks.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_client_without_credentials_and_a_quorum_of_urls_take_a_provider() {
    let servers = [0; 3].map(|_| Server::start());
    allow(&servers.each_ref(), "locks", "one");
    let vault = Vault::with("one");
    for server in &servers {
        server.tell("ACL SETUSER default resetpass >nobodys");
        server.tell("AUTH default nobodys");
    }
    let client = redis::Client::open(servers[0].url()).unwrap();
    let urls = servers.each_ref().map(Server::url);
    for builder in [LockManager::builder().client(client), LockManager::builder().quorum(urls)] {
        let locks = builder.credentials_provider(vault.clone()).connect().await.unwrap();
        locks.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn the_provider_is_left_with_the_manager() {
    let server = Server::start();
    let vault = Vault::with("one");
    allow(&[&server], "locks", "one");
    let (locks, other) = (vault.manager(&server.url()).await, vault.manager(&server.url()).await);
    assert_eq!(vault.0.receiver_count(), 2);
    locks.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    drop(locks);
    eventually("the stream is dropped", LONG, || vault.0.receiver_count() == 1).await;
    other.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    other.shutdown().await;
}

/// The destructor of a user's error may run any code, so the client must hold none of its mutexes when it drops one.
#[tokio::test(flavor = "multi_thread")]
async fn a_providers_errors_may_use_the_manager_when_they_are_dropped() {
    static LOCKS: OnceLock<LockManager> = OnceLock::new();
    #[derive(Debug)]
    struct Uses;
    impl std::fmt::Display for Uses {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("no token")
        }
    }
    impl std::error::Error for Uses {}
    impl Drop for Uses {
        fn drop(&mut self) {
            let Some(locks) = LOCKS.get() else { return };
            let _ = (locks.stats(), locks.is_connected());
        }
    }
    struct Fails;
    impl StreamingCredentialsProvider for Fails {
        fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send + 'static>> {
            Box::pin(stream::unfold((), |()| async {
                sleep(Duration::from_millis(20)).await;
                Some((Err(std::io::Error::other(Uses).into()), ()))
            }))
        }
    }
    let server = Server::start();
    let locks = LockManager::builder().url(&server.url()).credentials_provider(Fails).connect_lazy().unwrap();
    LOCKS.set(locks.clone()).unwrap();
    let trying = async {
        // Until the provider has failed once, an error can't name its reason.
        let mut with_reason = 0;
        while with_reason < 5 {
            let error = locks.lock("p", "k").timeout(Duration::from_millis(200)).acquire().await.unwrap_err();
            with_reason += usize::from(error.to_string().contains("no token"));
            assert!(with_reason > 0 || error.to_string().contains("no connection"), "{error}");
        }
    };
    tokio::time::timeout(LONG, trying).await.expect("a destructor waits for a mutex that is held");
}

/// A provider may block, although a future must not.
#[tokio::test]
async fn a_provider_that_blocks_its_thread_holds_up_nobody() {
    struct Blocks(watch::Sender<bool>);
    impl StreamingCredentialsProvider for Blocks {
        fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send + 'static>> {
            let ends = self.0.clone();
            let mut is_first = true;
            Box::pin(stream::poll_fn(move |_| {
                while !std::mem::take(&mut is_first) && !*ends.borrow() {
                    std::thread::sleep(Duration::from_millis(10));
                }
                std::task::Poll::Ready(Some(Ok(BasicAuth::new("locks".to_owned(), "one".to_owned()))))
            }))
        }
    }
    let server = Server::start();
    allow(&[&server], "locks", "one");
    let ends = watch::Sender::new(false);
    let builder = LockManager::builder().url(&server.url()).credentials_provider(Blocks(ends.clone()));
    let locks = builder.connect().await.unwrap();
    let guard = locks.lock("p", "k").expire(EXPIRE).acquire().await.unwrap();
    cut(&[&server], "locks");
    sleep(EXPIRE * 3 / 2).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    ends.send_replace(true);
}
