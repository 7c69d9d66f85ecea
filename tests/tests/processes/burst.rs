//! Bursts: a process sends more commands at once than the connection allows in flight.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_runtime::LockManager;
use tests::server::Server;
use tokio::runtime::{Builder, Runtime};

/// Long enough for a busy machine.
const PATIENT: Duration = Duration::from_secs(50);

/// Starts this many tasks at once, each of which locks its own key. Returns the number of failures by error text.
async fn failures(tasks: u32) -> BTreeMap<String, u32> {
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let tasks: Vec<_> = (0..tasks)
        .map(|key| {
            let locks = locks.clone();
            tokio::spawn(async move { locks.lock("p", &key).timeout(PATIENT).run(async {}).await })
        })
        .collect();
    let mut failures = BTreeMap::new();
    for task in tasks {
        if let Err(error) = task.await.unwrap() {
            let text = error.to_string().replace(|letter: char| letter.is_ascii_digit(), "");
            *failures.entry(text).or_default() += 1;
        }
    }
    locks.shutdown().await;
    assert!(server.keys().is_empty(), "keys are left");
    failures
}

fn none_fails(runtime: &Runtime, tasks: u32) {
    let failures = runtime.block_on(failures(tasks));
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn thirty_thousand_tasks_can_lock_different_keys_at_once() {
    none_fails(&Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(), 30_000);
}

#[test]
fn ten_thousand_tasks_on_one_thread_can_lock_different_keys_at_once() {
    none_fails(&Builder::new_current_thread().enable_all().build().unwrap(), 10_000);
}
