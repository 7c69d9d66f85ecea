//! Bursts: a process asks for more at one moment than is on its way to the server at once.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_runtime::LockManager;
use tests::server::Server;
use tokio::runtime::{Builder, Runtime};

/// Enough for a machine that has much else to do.
const PATIENT: Duration = Duration::from_secs(50);

/// Has so many tasks lock keys of their own at one moment. Returns how many failed, by what their errors say.
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
    assert!(server.keys().is_empty(), "nothing is left");
    failures
}

fn none_fails(runtime: &Runtime, tasks: u32) {
    let failures = runtime.block_on(failures(tasks));
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn of_thirty_thousand_tasks_that_lock_keys_of_their_own_at_one_moment_none_fails() {
    none_fails(&Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(), 30_000);
}

#[test]
fn of_ten_thousand_tasks_on_one_thread_that_lock_keys_of_their_own_at_one_moment_none_fails() {
    none_fails(&Builder::new_current_thread().enable_all().build().unwrap(), 10_000);
}
