//! The tests of the chapter "Testing", as a reader has them in a file, and three more.

use std::time::Duration;

use lock_runtime::testing::{TestLocks, assert_locked, errors};
use lock_runtime::{ErrorKind, LockError, LockManager, cache_lock};

#[cache_lock(prefix = "import", key = shop, timeout_s = 5)]
async fn import(shop: u64) -> Result<(), LockError> {
    tokio::time::sleep(Duration::from_secs(600)).await;
    write_rows(shop);
    Ok(())
}

fn write_rows(shop: u64) {
    #[cfg(test)]
    assert_locked("import", &shop);
    println!("the rows of shop {shop}");
}

fn status(error: &LockError) -> u16 {
    match error.kind() {
        ErrorKind::Busy => 409,
        ErrorKind::Lost | ErrorKind::Misuse => 500,
        _ => 503,
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_import_waits_and_gives_up() {
    let test = TestLocks::new();
    let _other = test.hold_elsewhere("import", &1).await;
    let error = test.manager().scope(import(1)).await.unwrap_err();
    assert_eq!(status(&error), 409);
}

#[tokio::test(start_paused = true)]
async fn a_second_import_begins_when_the_first_ends() {
    let test = TestLocks::new();
    let other = test.hold_elsewhere("import", &1).await;
    let release = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        other.release().await.unwrap();
    };
    let (outcome, ()) = tokio::join!(test.manager().scope(import(1)), release);
    outcome.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_import_that_loses_its_lock_is_stopped() {
    let test = TestLocks::new();
    test.lose_at_renewal(3);
    let error = test.manager().scope(import(1)).await.unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: false, .. }));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_as_one() {
    let test = TestLocks::new();
    test.go_down();
    let error = test.manager().scope(import(1)).await.unwrap_err();
    assert_eq!(status(&error), 503);
    test.come_up();
    test.manager().scope(import(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_import_outlasts_a_short_outage() {
    let test = TestLocks::new();
    let outage = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        test.go_down();
        tokio::time::sleep(Duration::from_secs(15)).await;
        test.come_up();
    };
    let (outcome, ()) = tokio::join!(test.manager().scope(import(1)), outage);
    outcome.unwrap();
}

#[test]
fn what_callers_are_told() {
    assert_eq!(status(&errors::timeout("import:1", Duration::from_secs(5), Some("web-3"))), 409);
    assert_eq!(status(&errors::lost("import:1", false)), 500);
    assert_eq!(status(&errors::backend("import:1", "connection refused")), 503);
}

#[tokio::test]
async fn each_test_has_locks_of_its_own() -> Result<(), LockError> {
    let one = LockManager::in_memory();
    let _guard = one.lock("import", &1).acquire().await?;
    let other = LockManager::in_memory();
    assert!(other.lock("import", &1).try_acquire().await?.is_some());

    // Two managers as in two processes: they share their locks.
    let neighbour = LockManager::builder().in_memory_with(&one)?;
    assert!(neighbour.lock("import", &1).try_acquire().await?.is_none());
    Ok(())
}
