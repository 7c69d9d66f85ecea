//! The counts of `LockManager::stats`.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::patience::eventually;
use tests::server::Server;

const BOUND: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn holds_hand_overs_and_hand_offs_are_counted_while_the_key_is_in_use_and_after() {
    let north = LockManager::in_memory();
    let south = LockManager::builder().in_memory_with(&north).unwrap();
    let guard = north.lock("p", "k").acquire().await.unwrap();
    let next = tokio::spawn(north.lock("p", "k").acquire());
    tokio::task::yield_now().await;
    let stats = north.stats();
    assert_eq!((stats.held, stats.waiting, stats.acquired, stats.keys), (1, 1, 1, 1), "{stats:?}");
    guard.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    let waiting = tokio::spawn(south.lock("p", "k").acquire());
    tokio::task::yield_now().await;
    assert_eq!(south.stats().waiting, 1);
    next.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    north.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    let (north, south) = (north.stats(), south.stats());
    assert_eq!((north.acquired, north.hand_overs, north.hand_offs), (3, 1, 0), "{north:?}");
    assert_eq!((south.acquired, south.hand_overs, south.hand_offs), (1, 0, 1), "{south:?}");
    for stats in [north, south] {
        assert_eq!(
            (stats.held, stats.waiting, stats.keys, stats.lingering, stats.commands),
            (0, 0, 0, 0, 0),
            "{stats:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_enters_the_lock_it_holds_is_not_counted_and_its_timeout_is() {
    let locks = LockManager::in_memory();
    let inner = || locks.lock("p", "k").timeout(Duration::from_secs(1));
    let outer = async {
        inner().run(async {}).await.unwrap();
        let (first, second) = tokio::join!(inner().run(std::future::pending::<()>()), async {
            let outcome = inner().run(async {}).await;
            outcome.unwrap_err()
        });
        let _ = (first, second);
    };
    let outer = locks.lock("p", "k").run(tokio::time::timeout(Duration::from_secs(5), outer));
    outer.await.unwrap().unwrap_err();
    let stats = locks.stats();
    assert_eq!((stats.acquired, stats.timeouts), (1, 1), "{stats:?}");
}

#[tokio::test]
async fn commands_and_renewals_are_counted() {
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let before = locks.stats().commands;
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    eventually("it is confirmed", BOUND, || locks.stats().renewals == 1).await;
    guard.release().await.unwrap();
    let stats = locks.stats();
    // The claim, the confirmation, the release, and a ping on the keeper's connection.
    assert!((3..=5).contains(&(stats.commands - before)), "{stats:?}");
    assert_eq!((stats.reconnects, stats.unreleased), (0, 0), "{stats:?}");
}
