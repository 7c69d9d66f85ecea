//! The user that the locks connect as may not do everything.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::server::Server;
use tokio::time::sleep;

use crate::{LONG, is_confirmed, manager};

#[tokio::test]
async fn a_user_without_the_right_to_scripts_is_told_so() {
    let server = Server::start();
    server.tell("ACL SETUSER poor on >canary-7f3a ~* &* -@all +set +get +ping +hello +info +client +subscribe");
    let url = server.url().replace("redis://", "redis://poor:canary-7f3a@");
    let start = Instant::now();
    let error = match LockManager::connect(&url).await {
        Err(error) => error,
        Ok(poor) => {
            let guard = poor.lock("p", "k").acquire().await.unwrap();
            guard.release().await.unwrap_err()
        }
    };
    assert!(start.elapsed() < Duration::from_secs(3));
    assert!(matches!(error, LockError::Backend { .. } | LockError::Connect { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
}

#[tokio::test]
async fn the_least_rights_that_the_docs_name_are_enough() {
    let server = Server::start();
    server.tell(
        "ACL SETUSER least on >secret ~* &cache_lock:* -@all +set +get +del +pexpire +pttl +exists +lrem +rpush +lpop \
         +lpos +time +publish +subscribe +unsubscribe +eval +evalsha +ping +hello",
    );
    let url = server.url().replace("redis://", "redis://least:secret@");
    let north = manager(&url).await;
    let south = manager(&url).await;
    let guard = north.lock("p", "k").fenced(true).acquire().await.unwrap();
    is_confirmed(&guard, LONG).await;
    let waiter = tokio::spawn(async move { south.lock("p", "k").timeout(LONG).acquire().await });
    sleep(Duration::from_millis(100)).await;
    guard.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_millis(500), "{:?}", released.elapsed());
}
