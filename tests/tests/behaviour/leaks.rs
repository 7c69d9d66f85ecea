//! When everything is released nothing is left: no task, no thread, no memory, no connection, and in Redis only keys
//! that expire.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::over_servers;
use tests::patience::{NOISE, at_rest, eventually};
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

/// The resident memory of this process, in bytes.
pub(crate) fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Every kind of use: uncontended, contended, timed out, dropped, expired, re-entered, fenced.
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
                    let guard = request().expire(Duration::from_millis(30)).renew(false).acquire().await.unwrap();
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

/// The connections to the servers, without this test's own.
fn connections(world: &World) -> usize {
    let clients = |server: &Server| server.ask::<String>("CLIENT LIST TYPE normal").lines().count() - 1;
    let subscribers = |server: &Server| server.ask::<String>("CLIENT LIST TYPE pubsub").lines().count();
    world.servers().into_iter().map(|server| clients(server) + subscribers(server)).sum()
}

/// Every key on every server with its remaining milliseconds.
fn keys(world: &World) -> BTreeMap<String, i64> {
    world.servers().into_iter().flat_map(Server::keys).collect()
}

fn no_lock_is_left(world: &World) -> bool {
    keys(world).keys().all(|key| key.starts_with("{p:"))
}

async fn a_manager_leaves_no_task(world: World) {
    let before = tasks();
    let manager = world.manager().await;
    use_it_all(&manager).await;
    // Connections and the keeper may stay, but their number must not grow with use.
    let after_once = at_rest("the tasks of the uses", SOON, tasks).await;
    for _ in 0..5 {
        use_it_all(&manager).await;
    }
    eventually("the tasks of the uses end", SOON, || tasks() <= after_once).await;
    let most = 6 * world.servers().len().max(1);
    assert!(after_once <= before + most, "{after_once} tasks for one manager");
    drop(manager);
    eventually("the manager's tasks end with it", SOON, || tasks() <= before).await;
}

async fn a_shut_down_manager_leaves_no_task_and_no_connection(world: World) {
    let before = (tasks(), connections(&world));
    let manager = world.manager().await;
    use_it_all(&manager).await;
    manager.shutdown().await;
    drop(manager);
    eventually("the manager's tasks end with it", SOON, || tasks() <= before.0).await;
    eventually("its connections end with it", SOON, || connections(&world) <= before.1).await;
}

async fn managers_that_are_gone_leave_no_thread_and_no_connection(world: World) {
    let none = connections(&world);
    let first = world.manager().await;
    use_it_all(&first).await;
    let both = || (threads(), connections(&world));
    let (threads_before, connections_before) = at_rest("threads and connections", SOON, both).await;
    let of_one = connections_before - none;
    assert!(of_one <= 2 * world.servers().len(), "{of_one} connections for one manager");
    for _ in 0..10 {
        let manager = world.manager().await;
        manager.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
    }
    eventually("their threads end", SOON, || threads() <= threads_before).await;
    eventually("their connections end", SOON, || connections(&world) <= connections_before).await;
    drop(first);
    eventually("the last connections end", SOON, || connections(&world) <= none).await;
}

/// The keeper only waits for the reply to this release.
async fn a_manager_that_is_gone_while_its_last_release_is_on_its_way_leaves_no_connection(world: World) {
    let none = connections(&world);
    let manager = world.manager().await;
    let guard = manager.lock("p", "k").acquire().await.unwrap();
    // The lease is confirmed, and the keeper sleeps.
    sleep(Duration::from_millis(300)).await;
    world.servers().into_iter().for_each(Server::freeze);
    drop(guard);
    sleep(Duration::from_millis(50)).await;
    drop(manager);
    sleep(Duration::from_millis(50)).await;
    world.servers().into_iter().for_each(Server::thaw);
    eventually("its connections end", SOON, || connections(&world) <= none).await;
    assert!(no_lock_is_left(&world));
}

async fn all_that_stays_in_redis_ends_by_itself(world: World) {
    let north = world.manager().await;
    let south = world.manager().await;
    tokio::join!(use_it_all(&north), use_it_all(&south));
    eventually("the locks are gone", Duration::from_secs(4), || no_lock_is_left(&world)).await;
    let left = keys(&world);
    for (key, milliseconds) in &left {
        let days = 1000 * 86_400 * 3;
        let bound = if key.ends_with(":queue") { 16_000 } else { days };
        assert!((0..=bound).contains(milliseconds), "{left:?}");
    }
    let only_fences = || keys(&world).keys().all(|key| key.ends_with(":fence"));
    eventually("the queues are gone", Duration::from_secs(8), only_fences).await;
}

/// Acquires that are dropped at any moment, of free locks and of a lock that another manager holds.
async fn thousands_of_cancellations_leave_nothing(world: World) {
    let (north, south) = (world.manager().await, world.manager().await);
    let held = south.lock("p", "held").acquire().await.unwrap();
    let cancel = async |count: u64| {
        let mut users = Vec::new();
        for user in 0..20 {
            let manager = north.clone();
            users.push(tokio::spawn(async move {
                for number in 0..count / 20 {
                    let key = if number % 2 == 0 { "held".to_owned() } else { (number % 7).to_string() };
                    let patience = Duration::from_micros((user * 37 + number * 101) % 3000);
                    let request = manager.lock("p", &key).timeout(LONG);
                    let _ = tokio::time::timeout(patience, request.acquire()).await;
                }
            }));
        }
        for user in users {
            user.await.unwrap();
        }
    };
    use_it_all(&north).await;
    cancel(400).await;
    let all = || (tasks(), threads(), connections(&world));
    let before = at_rest("tasks, threads and connections", SOON, all).await;
    cancel(4000).await;
    eventually("the tasks end", SOON, || tasks() <= before.0).await;
    eventually("the threads end", SOON, || threads() <= before.1).await;
    eventually("no connection is left", SOON, || connections(&world) <= before.2).await;
    held.release().await.unwrap();
    eventually("the locks are gone", Duration::from_secs(4), || no_lock_is_left(&world)).await;
    // No cancelled request keeps a lock busy.
    for key in ["held", "1", "3", "5"] {
        let start = Instant::now();
        south.lock("p", key).timeout(LONG).acquire().await.unwrap().release().await.unwrap();
        assert!(start.elapsed() < SOON + NOISE, "{key}: {:?}", start.elapsed());
    }
}

over_servers!(redis = server(Redis):
    a_manager_leaves_no_task,
    a_shut_down_manager_leaves_no_task_and_no_connection,
    managers_that_are_gone_leave_no_thread_and_no_connection,
    a_manager_that_is_gone_while_its_last_release_is_on_its_way_leaves_no_connection,
    all_that_stays_in_redis_ends_by_itself,
    thousands_of_cancellations_leave_nothing
);
over_servers!(cluster = cluster(Redis):
    a_manager_leaves_no_task,
    a_shut_down_manager_leaves_no_task_and_no_connection,
    managers_that_are_gone_leave_no_thread_and_no_connection,
    a_manager_that_is_gone_while_its_last_release_is_on_its_way_leaves_no_connection,
    all_that_stays_in_redis_ends_by_itself,
    thousands_of_cancellations_leave_nothing
);
over_servers!(quorum_of_three = quorum_of_three(Redis):
    a_manager_leaves_no_task,
    a_shut_down_manager_leaves_no_task_and_no_connection,
    managers_that_are_gone_leave_no_thread_and_no_connection,
    a_manager_that_is_gone_while_its_last_release_is_on_its_way_leaves_no_connection,
    all_that_stays_in_redis_ends_by_itself,
    thousands_of_cancellations_leave_nothing
);

#[tokio::test]
async fn a_manager_in_memory_leaves_no_task() {
    a_manager_leaves_no_task(World::memory()).await;
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
