//! When all is given back nothing is left: no task, no thread, no memory, no connection, and in Redis only records
//! that end by themselves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use lock_runtime::LockManager;
use tests::patience::eventually;
use tests::server::Server;
use tests::stores::World;
use tokio::runtime::Handle;
use tokio::time::sleep;

const LONG: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(3);

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Bytes of this process in memory.
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Every kind of use there is: uncontended, contended, timed out, dropped, expired, re-entered, fenced.
async fn use_it_all(manager: &LockManager) {
    let mut users = Vec::new();
    for number in 0..60 {
        let manager = manager.clone();
        users.push(tokio::spawn(async move {
            let request = || manager.lock("p", &(number % 7)).timeout(LONG);
            match number % 6 {
                0 => request().fenced(true).acquire().await.unwrap().release().await.unwrap(),
                1 => drop(request().acquire().await.unwrap()),
                2 => drop(manager.lock("p", &0).timeout(Duration::from_millis(1)).acquire().await),
                3 => {
                    let guard = request().expire(Duration::from_millis(30)).acquire().await.unwrap();
                    guard.lost().await;
                }
                4 => request().run(request().run(sleep(Duration::from_millis(1)))).await.unwrap().unwrap(),
                _ => {
                    let _ = tokio::time::timeout(Duration::from_millis(2), request().acquire()).await;
                }
            }
        }));
    }
    for user in users {
        user.await.unwrap();
    }
}

async fn leaves_no_task(world: World) {
    let before = tasks();
    let manager = world.manager().await;
    use_it_all(&manager).await;
    // Connections and keeper may live on; their number must not grow with use.
    sleep(Duration::from_millis(300)).await;
    let after_once = tasks();
    for _ in 0..5 {
        use_it_all(&manager).await;
    }
    eventually("the tasks of the uses end", SOON, || tasks() <= after_once).await;
    assert!(after_once <= before + 6, "{after_once} tasks for one manager");
    drop(manager);
    eventually("the manager's tasks end with it", SOON, || tasks() <= before).await;
}

#[tokio::test]
async fn a_manager_over_redis_leaves_no_task() {
    leaves_no_task(World::redis()).await;
}

#[tokio::test]
async fn a_manager_in_memory_leaves_no_task() {
    leaves_no_task(World::memory()).await;
}

#[tokio::test]
async fn a_shut_down_manager_leaves_no_task_and_no_connection() {
    let server = Server::start();
    let before = tasks();
    let manager = LockManager::connect(&server.url()).await.unwrap();
    use_it_all(&manager).await;
    manager.shutdown().await;
    drop(manager);
    eventually("the manager's tasks end with it", SOON, || tasks() <= before).await;
    eventually("its connections end with it", SOON, || connections(&server) == 0).await;
}

/// Connections to the server, without the one that asks.
fn connections(server: &Server) -> usize {
    server.ask::<String>("CLIENT LIST").lines().count() - 1
}

#[tokio::test]
async fn managers_that_are_gone_leave_no_thread_and_no_connection() {
    let server = Server::start();
    let first = LockManager::connect(&server.url()).await.unwrap();
    use_it_all(&first).await;
    sleep(Duration::from_millis(300)).await;
    let (threads_before, connections_before) = (threads(), connections(&server));
    assert!(connections_before <= 2, "{connections_before} connections for one manager");
    for _ in 0..10 {
        let manager = LockManager::connect(&server.url()).await.unwrap();
        manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    }
    eventually("their threads end", SOON, || threads() <= threads_before).await;
    eventually("their connections end", SOON, || connections(&server) <= connections_before).await;
    drop(first);
    eventually("the last connections end", SOON, || connections(&server) == 0).await;
}

#[tokio::test]
async fn all_that_stays_in_redis_ends_by_itself() {
    let server = Server::start();
    let north = LockManager::connect(&server.url()).await.unwrap();
    let south = LockManager::connect(&server.url()).await.unwrap();
    tokio::join!(use_it_all(&north), use_it_all(&south));
    eventually("the locks are gone", Duration::from_secs(4), || server.keys().keys().all(|key| key.starts_with("{p:")))
        .await;
    let left = server.keys();
    for (key, milliseconds) in &left {
        let days = 1000 * 86_400 * 3;
        let bound = if key.ends_with(":queue") { 10_000 } else { days };
        assert!((0..=bound).contains(milliseconds), "{left:?}");
    }
    eventually("the queues are gone", Duration::from_secs(8), || {
        server.keys().keys().all(|key| key.ends_with(":fence"))
    })
    .await;
}

#[tokio::test]
async fn a_hundred_thousand_keys_leave_no_memory_behind() {
    let manager = LockManager::in_memory();
    let round = async |from: u32| {
        for key in from..from + 50_000 {
            let guard = manager.lock("a-prefix-of-some-length-to-make-it-show", &key).acquire().await.unwrap();
            if key % 2 == 0 {
                guard.release().await.unwrap();
            }
        }
        sleep(Duration::from_millis(100)).await;
    };
    round(0).await;
    let before = memory();
    round(50_000).await;
    round(100_000).await;
    let grown = memory().saturating_sub(before);
    // 100,000 entries of 100 bytes would be ten times this.
    assert!(grown < 3_000_000, "{grown} bytes more");
}
