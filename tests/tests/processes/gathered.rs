//! Concurrent releases of many tasks, which go to the server as one command.

use std::time::Duration;

use futures_util::future::join_all;
use lock_runtime::{LockError, LockGuard, LockManager};
use tests::patience::eventually;
use tests::proxy::{Fault, Proxy};
use tests::server::Server;

const COUNT: usize = 200;
const SOON: Duration = Duration::from_secs(4);

async fn guards(manager: &LockManager) -> Vec<LockGuard> {
    let acquired = join_all((0..COUNT).map(|key| manager.lock("p", &key).acquire())).await;
    acquired.into_iter().map(Result::unwrap).collect()
}

async fn released(guards: Vec<LockGuard>) -> Vec<Result<(), LockError>> {
    join_all(guards.into_iter().map(LockGuard::release)).await
}

fn are_free(server: &Server) -> bool {
    !server.keys().keys().any(|key| key.starts_with("p:"))
}

/// Connects, and fills the server's script cache.
async fn warmed_up(url: &str) -> LockManager {
    let manager = LockManager::connect(url).await.unwrap();
    released(guards(&manager).await).await.into_iter().for_each(Result::unwrap);
    manager
}

#[tokio::test]
async fn a_crowd_of_releases_is_a_few_commands() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let manager = warmed_up(&proxy.url()).await;
    let guards = guards(&manager).await;
    let earlier = proxy.count();
    for outcome in released(guards).await {
        outcome.unwrap();
    }
    // Tell releases from confirmations: a release has two keys and one argument per lock, a confirmation one key and two arguments.
    let work = proxy.work_since(earlier);
    let releases =
        work.iter().filter(|words| words[2].parse::<usize>().is_ok_and(|keys| words.len() == 3 + keys * 3 / 2));
    assert!(releases.clone().count() <= 8, "{work:?}");
    assert_eq!(releases.map(|words| (words.len() - 3) / 3).sum::<usize>(), COUNT, "{work:?}");
    assert!(are_free(&server));
}

#[tokio::test]
async fn one_lost_lock_among_them_is_reported_to_its_holder_only() {
    let server = Server::start();
    let manager = warmed_up(&server.url()).await;
    let guards = guards(&manager).await;
    server.tell("SET p:77 stranger PX 60000");
    server.tell("DEL p:78");
    server.tell("EVAL redis.call('DEL',KEYS[1])redis.call('RPUSH',KEYS[1],'of-another-type') 1 p:79");
    for (key, outcome) in released(guards).await.into_iter().enumerate() {
        match key {
            77..=79 => assert!(outcome.unwrap_err().is_lost(), "{key}"),
            _ => outcome.unwrap(),
        }
    }
    assert_eq!(server.owner("p:77").as_deref(), Some("stranger"));
    assert_eq!(server.ask::<u32>("LLEN p:79"), 1);
}

#[tokio::test]
async fn a_lock_with_a_waiter_is_handed_off() {
    let server = Server::start();
    let (north, south) = (warmed_up(&server.url()).await, LockManager::connect(&server.url()).await.unwrap());
    let guards = guards(&north).await;
    let dead = "2500|0123456789abcdef0123456789abcdef.1@dead";
    server.tell(&format!("ZADD {{p:77}}:queue 1 {dead}"));
    // North does not know of this waiter, so the release goes with the others.
    server.tell(&format!("ZADD {{p:78}}:queue 1 {dead}"));
    let waiter = tokio::spawn(async move { south.lock("p", &77).timeout(SOON).acquire().await });
    eventually("south waits", SOON, || server.ask::<u32>("ZCARD {p:77}:queue") == 2).await;
    for outcome in released(guards).await {
        outcome.unwrap();
    }
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(are_free(&server));
    assert_eq!(server.ask::<u32>("EXISTS {p:77}:queue {p:78}:queue"), 0);
}

#[tokio::test]
async fn every_release_gets_its_result_when_the_connection_is_cut() {
    for fault in [Fault::CutAfterForward, Fault::CutBeforeForward] {
        let server = Server::start();
        let proxy = Proxy::before(&server);
        let manager = warmed_up(&proxy.url()).await;
        let guards = guards(&manager).await;
        proxy.plan("EVALSHA", fault);
        for outcome in released(guards).await {
            outcome.unwrap();
        }
        assert!(are_free(&server));
    }
}

#[tokio::test]
async fn releases_that_nobody_answers_are_repeated_until_the_locks_are_free() {
    let server = Server::start();
    let manager = warmed_up(&server.url()).await;
    let guards = guards(&manager).await;
    server.freeze();
    for outcome in released(guards).await {
        assert!(matches!(outcome, Err(LockError::Backend { .. })), "{outcome:?}");
    }
    server.thaw();
    eventually("all are free", SOON, || are_free(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_ends_before_they_are_sent_leaves_no_lock() {
    let server = Server::start();
    let manager = warmed_up(&server.url()).await;
    for yields in 0..6 {
        let guards = guards(&manager).await;
        tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                for guard in guards {
                    tokio::spawn(guard.release());
                }
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
            });
        })
        .await
        .unwrap();
        eventually("all are free", SOON, || are_free(&server)).await;
        // Later releases must work.
        for outcome in released(self::guards(&manager).await).await {
            outcome.unwrap();
        }
    }
}

#[tokio::test]
async fn a_stalled_runtime_delays_only_its_own_tasks() {
    let server = Server::start();
    let manager = warmed_up(&server.url()).await;
    let first = manager.lock("first", "k").acquire().await.unwrap();
    // Keep the connection busy, so that the release joins a batch whose runtime is never polled again.
    server.freeze();
    let busy: Vec<_> = (0..3)
        .map(|key| {
            let request = manager.lock("busy", &key).timeout(SOON);
            tokio::spawn(async move { request.acquire().await })
        })
        .collect();
    tokio::task::yield_now().await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (parked, release) = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut release = Box::pin(first.release());
        runtime.block_on(async { assert!(futures_util::poll!(&mut release).is_pending()) });
        (runtime, release)
    })
    .await
    .unwrap();
    server.thaw();
    for acquired in busy {
        acquired.await.unwrap().unwrap().release().await.unwrap();
    }
    for outcome in released(guards(&manager).await).await {
        outcome.unwrap();
    }
    assert!(are_free(&server));
    drop(release);
    parked.shutdown_background();
}

#[tokio::test]
async fn a_name_without_rights_does_not_block_other_releases() {
    let server = Server::start();
    server.tell("ACL SETUSER locks on >secret &cache_lock:* +@all");
    for are_dropped in [false, true] {
        server.tell("ACL SETUSER locks allkeys");
        let manager = warmed_up(&server.url().replace("redis://", "redis://locks:secret@")).await;
        let mut guards = guards(&manager).await;
        // More often than once per command, so that each command has one of them.
        for place in (0..COUNT).step_by(20) {
            guards.insert(place, manager.lock("refused", &place).acquire().await.unwrap());
        }
        // An unconfirmed claim would soon expire by itself.
        eventually("all are confirmed", SOON, || server.keys().values().all(|left| *left > 10_000)).await;
        server.tell("ACL SETUSER locks resetkeys ~p:* ~{p:*");
        if are_dropped {
            drop(guards);
        } else {
            let names: Vec<String> = guards.iter().map(|guard| guard.key().to_owned()).collect();
            for (name, outcome) in names.iter().zip(released(guards).await) {
                assert_eq!(outcome.is_ok(), name.starts_with("p:"), "{name}: {outcome:?}");
            }
        }
        eventually("all are free", SOON, || are_free(&server)).await;
        server.tell("FLUSHALL");
    }
}
