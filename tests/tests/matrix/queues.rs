//! Crowds at one lock: thousands of waiters that give up at once, and processes that all wait for one release.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tests::patience::eventually;
use tests::proxy::Proxy;
use tests::server::Server;
use tokio::time::sleep;

use crate::{LONG, manager, wait_until_queued, warm_up};

const CROWD: usize = 10_000;

/// The resident memory of this process, in bytes.
fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn row_46_ten_thousand_waiters_ask_as_one_and_give_up_without_a_trace() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let (north, south) = (manager(&server.url()).await, manager(&proxy.url()).await);
    warm_up(&[&north, &south]).await;
    let guard = north.lock("p", "k").acquire().await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (tasks_before, memory_before, count_before) = (tasks(), memory(), proxy.count());
    let waiters: Vec<_> = (0..CROWD).map(|_| tokio::spawn(south.lock("p", "k").timeout(LONG * 6).acquire())).collect();
    wait_until_queued(&server).await;
    sleep(Duration::from_secs(2)).await;
    let asked = proxy.work_since(count_before);
    // A try, an ask, and its repetition once a second. An ask by digest may be repeated with the script's text.
    assert!(asked.len() <= 8, "{asked:?}");
    let grown = memory().saturating_sub(memory_before) / CROWD;
    assert!(grown < 20_000, "{grown} bytes for a waiter");
    for waiter in &waiters {
        waiter.abort();
    }
    drop(join_all(waiters).await);
    eventually("their tasks have ended", LONG, || tasks() <= tasks_before).await;
    eventually("the queue is empty", Duration::from_secs(3), || !server.keys().contains_key("{p:k}:queue")).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert_eq!(server.owner("p:k"), None);
    south.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn row_47_eight_processes_of_fifty_tasks_are_all_served_without_a_pause() {
    let server = Server::start();
    let managers = join_all((0..8).map(|_| async { manager(&server.url()).await })).await;
    let guard = manager(&server.url()).await.lock("p", "k").acquire().await.unwrap();
    let holds = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..400)
        .map(|number| {
            let acquire = managers[number % 8].lock("p", "k").timeout(LONG * 2).acquire();
            let holds = Arc::clone(&holds);
            tokio::spawn(async move {
                let guard = acquire.await.unwrap();
                let granted = Instant::now();
                tokio::task::yield_now().await;
                holds.lock().unwrap().push((granted, Instant::now()));
                guard.release().await.unwrap();
            })
        })
        .collect();
    let waiting = || server.ask::<usize>("ZCARD {p:k}:queue");
    eventually("all processes wait", LONG, || waiting() == 8).await;
    guard.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let mut holds = Arc::into_inner(holds).unwrap().into_inner().unwrap();
    holds.sort_unstable();
    let mut pauses: Vec<_> = holds.windows(2).map(|pair| pair[1].0.checked_duration_since(pair[0].1)).collect();
    assert!(pauses.iter().all(Option::is_some), "two hold the lock");
    pauses.sort_unstable();
    // A process that polls for the lock would need up to a second.
    assert!(pauses[pauses.len() * 99 / 100] < Some(Duration::from_millis(500)), "{:?}", pauses.last());
}
