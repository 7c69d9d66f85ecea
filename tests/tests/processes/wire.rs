//! How many commands a lock costs, counted between client and server.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use lock_runtime::{LockError, LockManager};
use tests::cluster::Cluster;
use tests::patience::{NOISE, at_rest, eventually};
use tests::proxy::Proxy;
use tests::quorum::Servers;
use tests::server::Server;
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(3);

async fn behind_a_proxy(server: &Server) -> (LockManager, Proxy) {
    let proxy = Proxy::before(server);
    let manager = LockManager::connect(&proxy.url()).await.unwrap();
    // Wait until every connection is made and the server knows the scripts.
    let guard = manager.lock("warm", "up").acquire().await.unwrap();
    eventually("the lease is confirmed", Duration::from_secs(2), || guard.remaining() > LONG).await;
    guard.release().await.unwrap();
    at_rest("the commands of the start", SOON, || proxy.count()).await;
    (manager, proxy)
}

/// The commands after the first `earlier` ones, once no more are sent.
async fn all_work_since(earlier: usize, proxy: &Proxy) -> Vec<Vec<String>> {
    at_rest("the commands", SOON, || proxy.work_since(earlier)).await
}

fn named<'a>(commands: &'a [Vec<String>], name: &str) -> Vec<&'a Vec<String>> {
    commands.iter().filter(|words| words[0] == name).collect()
}

#[tokio::test]
async fn a_free_lock_costs_one_command_and_its_release_another() {
    let server = Server::start();
    let (manager, proxy) = behind_a_proxy(&server).await;
    let earlier = proxy.count();
    let calls = server.commandstats();
    for _ in 0..50 {
        let guard = manager.lock("p", "k").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let work = proxy.work_since(earlier);
    let sets = named(&work, "SET");
    assert_eq!(sets.len(), 50, "{work:?}");
    // A release names the lock and its queue. A confirmation names only the lock; a hold gets one if a busy machine
    // delays its release by some milliseconds.
    let releases = work.iter().filter(|words| words[0] == "EVALSHA" && words[2] == "2").count();
    assert_eq!(releases, 50, "{work:?}");
    assert!(work.len() < 110, "{work:?}");
    // The server's own counts agree.
    let calls = server.commandstats().since(&calls);
    assert_eq!(calls.of("set"), 50, "{calls:?}");
    assert!((50..60).contains(&calls.of("evalsha")), "{calls:?}");
    // The text of the confirmation script is sent once.
    let texts = named(&work, "EVAL");
    assert!(texts.iter().all(|words| words[2] == "1"), "{texts:?}");
    assert_eq!((calls.of("script|load"), calls.of("publish")), (0, 0), "{calls:?}");
}

/// Acquires and releases fifty times. The counts of claims and scripts at each server must satisfy `is_enough`: on a busy
/// machine there are more scripts, because holds are confirmed, too.
async fn costs<'a>(url: &str, servers: impl Fn() -> Vec<&'a Server>, is_enough: impl Fn(&[(u64, u64)]) -> bool) {
    let manager = LockManager::connect(url).await.unwrap();
    let once = async || manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    let counts = || -> Vec<_> {
        let calls = servers().into_iter().map(Server::commandstats);
        calls.map(|calls| (calls.of("set"), calls.of("evalsha"))).collect()
    };
    // Fill the script cache.
    once().await;
    // A majority executes a claim and its release before `release` returns; the others execute them soon.
    let before = at_rest("each server has had its commands", Duration::from_secs(5), counts).await;
    for _ in 0..50 {
        once().await;
    }
    let after = at_rest("each server has had its commands", Duration::from_secs(5), counts).await;
    let counts: Vec<_> =
        before.iter().zip(&after).map(|(before, after)| (after.0 - before.0, after.1 - before.1)).collect();
    assert!(is_enough(&counts), "{counts:?}");
}

#[tokio::test]
async fn on_a_quorum_a_free_lock_costs_a_command_to_each_server_and_its_release_another() {
    let all = Servers::start(3);
    let is_enough =
        |counts: &[(u64, u64)]| counts.iter().all(|(sets, scripts)| *sets == 50 && (50..90).contains(scripts));
    costs(&all.url(), || all.servers().collect(), is_enough).await;
}

#[tokio::test]
async fn in_a_cluster_a_free_lock_costs_one_command_and_its_release_another() {
    let cluster = Cluster::start();
    let sum = |counts: &[(u64, u64)]| counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    let is_enough = |counts: &[(u64, u64)]| sum(counts).0 == 50 && (50..90).contains(&sum(counts).1);
    costs(&cluster.url(), || cluster.nodes().collect(), is_enough).await;
}

#[tokio::test]
async fn several_free_locks_cost_a_command_each_and_their_release_one_for_all() {
    let server = Server::start();
    let (manager, proxy) = behind_a_proxy(&server).await;
    let earlier = proxy.count();
    for _ in 0..20 {
        let guard = manager.lock_all("p", ["a", "b", "c"]).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let work = proxy.work_since(earlier);
    assert_eq!(named(&work, "SET").len(), 60, "{work:?}");
    // Each release names three locks and three queues. Confirmations name only the locks.
    let releases = work.iter().filter(|words| words[0].starts_with("EVAL") && words[2] == "6").count();
    assert_eq!(releases, 20, "{work:?}");
}

#[tokio::test]
async fn a_dropped_guard_costs_one_release() {
    let server = Server::start();
    let (manager, proxy) = behind_a_proxy(&server).await;
    let earlier = proxy.count();
    drop(manager.lock("p", "k").acquire().await.unwrap());
    eventually("the key is gone", Duration::from_secs(1), || server.owner("p:k").is_none()).await;
    let work = all_work_since(earlier, &proxy).await;
    assert_eq!(named(&work, "SET").len(), 1, "{work:?}");
    assert!(work.len() <= 3, "a claim, a release, at most one confirmation: {work:?}");
}

#[tokio::test]
async fn a_lock_passed_on_inside_the_process_costs_nothing() {
    let server = Server::start();
    let (manager, proxy) = behind_a_proxy(&server).await;
    let earlier = proxy.count();
    let tasks: Vec<_> = (0..500)
        .map(|_| {
            let manager = manager.clone();
            tokio::spawn(async move { manager.lock("p", "k").timeout(LONG).run(tokio::task::yield_now()).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let work = proxy.work_since(earlier);
    assert!(work.len() < 25, "{} commands for 500 holds: {work:?}", work.len());
}

#[tokio::test]
async fn a_busy_lock_tried_once_costs_one_round_trip_and_names_its_holder() {
    let server = Server::start();
    let holder = LockManager::builder().url(&server.url()).label("north").connect().await.unwrap();
    let (manager, proxy) = behind_a_proxy(&server).await;
    let _guard = holder.lock("p", "k").acquire().await.unwrap();
    let earlier = proxy.count();
    let error = manager.lock("p", "k").timeout(Duration::ZERO).acquire().await.unwrap_err();
    let LockError::Timeout { holder, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(holder.as_deref(), Some("north"));
    let work = all_work_since(earlier, &proxy).await;
    // The claim and a look at the owner, in one write. A refused claim needs no withdrawal.
    assert_eq!(work.len(), 2, "{work:?}");
}

#[tokio::test]
async fn a_timeout_costs_a_try_an_ask_and_a_withdrawal() {
    let server = Server::start();
    let holder = LockManager::builder().url(&server.url()).label("north").connect().await.unwrap();
    let (manager, proxy) = behind_a_proxy(&server).await;
    let _guard = holder.lock("p", "k").acquire().await.unwrap();
    // At first the server does not know the scripts of the ask and the withdrawal.
    for most in [6, 4] {
        let earlier = proxy.count();
        let timeout = Duration::from_millis(200);
        let error = manager.lock("p", "k").timeout(timeout).acquire().await.unwrap_err();
        assert!(error.to_string().contains("north"), "{error}");
        let work = all_work_since(earlier, &proxy).await;
        // The withdrawal is sent twice: right after the ask, and again until there is a reply.
        assert!(work.len() <= most, "{work:?}");
        assert_eq!(named(&work, "GET").len(), 0);
    }
}

async fn commands_of_waiters(count: usize) -> Vec<Vec<String>> {
    let server = Server::start();
    let holder = LockManager::connect(&server.url()).await.unwrap();
    let (manager, proxy) = behind_a_proxy(&server).await;
    let guard = holder.lock("p", "k").acquire().await.unwrap();
    let earlier = proxy.count();
    let waiters: Vec<_> = (0..count)
        .map(|_| {
            let manager = manager.clone();
            tokio::spawn(async move { manager.lock("p", "k").timeout(LONG).run(async {}).await })
        })
        .collect();
    sleep(Duration::from_millis(3500)).await;
    let work = proxy.work_since(earlier);
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
    work
}

#[tokio::test]
async fn a_waiter_asks_once_a_second() {
    let work = commands_of_waiters(1).await;
    // A try, an ask (twice if the server did not know the script), and one repetition per second.
    assert!(work.len() <= 7, "{work:?}");
    assert!(work.len() >= 4, "the safety net is missing: {work:?}");
}

#[tokio::test]
async fn a_hundred_waiters_ask_no_more_than_one() {
    let work = commands_of_waiters(100).await;
    assert!(work.len() <= 7, "{work:?}");
}

#[tokio::test]
async fn waiters_of_many_keys_ask_in_one_command() {
    let server = Server::start();
    let holder = LockManager::connect(&server.url()).await.unwrap();
    let (manager, proxy) = behind_a_proxy(&server).await;
    let mut guards = Vec::new();
    for key in 0..50 {
        guards.push(holder.lock("p", &key).acquire().await.unwrap());
    }
    let waiters: Vec<_> = (0..50)
        .map(|key| {
            let manager = manager.clone();
            tokio::spawn(async move { manager.lock("p", &key).timeout(LONG).acquire().await.map(drop) })
        })
        .collect();
    sleep(Duration::from_millis(800)).await;
    let earlier = proxy.count();
    sleep(Duration::from_secs(3)).await;
    let work = proxy.work_since(earlier);
    assert!(work.len() <= 20, "{} commands in 3 s for 50 keys", work.len());
    drop(guards);
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_renewed_hold_costs_a_command_per_third_of_its_lease() {
    let server = Server::start();
    let (manager, proxy) = behind_a_proxy(&server).await;
    let request = manager.lock("p", "k").expire(Duration::from_millis(900)).renew(true);
    let guard = request.acquire().await.unwrap();
    let earlier = proxy.count();
    sleep(Duration::from_secs(3)).await;
    let work = proxy.work_since(earlier);
    assert!((8..=13).contains(&work.len()), "{} renewals in 3 s: {work:?}", work.len());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_alarm_costs_a_hold_of_a_second_one_renewal_and_a_shorter_hold_nothing() {
    let server = Server::start();
    let (manager, proxy) = behind_a_proxy(&server).await;
    for (held_for, alarms) in [(500, 0), (2500, 1)] {
        let (earlier, calls) = (proxy.count(), server.commandstats());
        let guard = manager.lock("p", "k").acquire().await.unwrap();
        sleep(Duration::from_millis(held_for)).await;
        guard.release().await.unwrap();
        let work = all_work_since(earlier, &proxy).await;
        // One renewal, in addition to claim, confirmation and release. `CLIENT CACHING YES` precedes the renewal.
        assert_eq!(work.len(), 3 + alarms, "{work:?}");
        assert_eq!(
            work.iter().filter(|words| words.last().is_some_and(|word| word == "arm")).count(),
            alarms,
            "{work:?}"
        );
        assert_eq!(server.commandstats().since(&calls).of("client|caching"), alarms as u64);
    }
}

#[tokio::test]
async fn holds_of_many_keys_are_renewed_in_one_command() {
    let server = Server::start();
    let (manager, proxy) = behind_a_proxy(&server).await;
    // Acquire them at the same time, so that they are renewed at the same time.
    let hold = |key: i32| manager.lock("p", &key).expire(Duration::from_millis(1500)).renew(true).acquire();
    let guards = try_join_all((0..100).map(hold)).await.unwrap();
    let earlier = proxy.count();
    sleep(Duration::from_millis(2500)).await;
    let work = proxy.work_since(earlier);
    assert!(work.len() <= 60, "{} commands for 100 holds in 2.5 s", work.len());
    assert!(guards.iter().all(lock_runtime::LockGuard::is_valid));
}

#[tokio::test]
async fn an_idle_manager_is_silent() {
    let server = Server::start();
    let (manager, proxy) = behind_a_proxy(&server).await;
    manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    let earlier = at_rest("the commands of the use", SOON, || proxy.count()).await;
    sleep(Duration::from_secs(4)).await;
    let said = proxy.seen().split_off(earlier);
    assert!(said.len() <= 1, "{said:?}");
    assert!(server.commandstats().of("keys") == 0, "something scans the server");
}

#[tokio::test]
async fn a_hand_off_wakes_one_waiter_and_not_the_herd() {
    let server = Server::start();
    let holder = LockManager::connect(&server.url()).await.unwrap();
    let mut crowd = Vec::new();
    for _ in 0..5 {
        crowd.push(behind_a_proxy(&server).await);
    }
    let guard = holder.lock("p", "k").acquire().await.unwrap();
    let waiters: Vec<_> = crowd
        .iter()
        .map(|(manager, _)| {
            let manager = manager.clone();
            tokio::spawn(async move { manager.lock("p", "k").timeout(LONG).acquire().await.unwrap() })
        })
        .collect();
    let counts = || crowd.iter().map(|(_, proxy)| proxy.count()).collect::<Vec<_>>();
    let earlier = at_rest("the asks of the waiters", SOON, counts).await;
    guard.release().await.unwrap();
    // While the first waiter holds it, the others send nothing.
    sleep(Duration::from_millis(200) + NOISE).await;
    let said = crowd.iter().zip(&earlier).filter(|((_, proxy), earlier)| !proxy.work_since(**earlier).is_empty());
    assert!(said.count() <= 1, "more than one waiter was woken");
    for waiter in waiters {
        waiter.abort();
    }
}

/// A lease lingers only while the keeper's connection is up, over which it learns of waiters. `connect` waits up to 20 ms for that
/// connection, so after a faster `connect` it must be up.
#[tokio::test]
async fn the_first_hold_after_connect_lingers() {
    let server = Server::start();
    let mut judged = 0;
    for round in 0..50 {
        let start = Instant::now();
        let manager = LockManager::connect(&server.url()).await.unwrap();
        let is_told = start.elapsed() < Duration::from_millis(20);
        let request = manager.lock("p", &round).linger(Duration::from_secs(2));
        request.acquire().await.unwrap().release().await.unwrap();
        if is_told {
            assert_eq!(manager.stats().lingering, 1, "{round}");
            judged += 1;
        }
        manager.shutdown().await;
    }
    assert!(judged > 0, "no call was quick");
}

#[tokio::test]
async fn the_source_of_an_error_is_that_of_the_client_library() {
    let server = Server::start();
    let url = server.url();
    drop(server);
    let error = LockManager::connect(&url).await.unwrap_err();
    let source =
        std::error::Error::source(&error).and_then(|source| source.downcast_ref::<lock_runtime::redis::RedisError>());
    assert!(source.is_some_and(lock_runtime::redis::RedisError::is_connection_refusal), "{error:?}");
}
