//! A manager's keeper: it goes on on another runtime, and ends with the manager.

use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::sleep;

use crate::LockManager;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

#[test]
fn holds_are_looked_after_on_whichever_runtime_the_manager_is_used() {
    let locks = LockManager::in_memory();
    for _ in 0..2 {
        runtime().block_on(async {
            let guard = locks.lock("p", "k").expire(Duration::from_secs(4)).renew(true).acquire().await.unwrap();
            sleep(Duration::from_mins(1)).await;
            guard.release().await.unwrap();
        });
    }
}

#[test]
fn with_its_manager_the_keeper_ends() {
    runtime().block_on(async {
        let locks = LockManager::in_memory();
        locks.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 1);
        drop(locks);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    });
}
