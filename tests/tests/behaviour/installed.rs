//! The process's default manager. It can be installed once, so this file is one test.

use lock_runtime::{LockError, LockManager};

#[tokio::test]
async fn a_manager_is_installed_once_and_found_by_every_task() {
    assert!(LockManager::current().is_none());
    let manager = LockManager::builder().label("installed").in_memory();
    manager.install().unwrap();
    let error = LockManager::in_memory().install().unwrap_err();
    assert!(matches!(error, LockError::AlreadyInstalled), "{error:?}");
    let found = tokio::spawn(async { format!("{:?}", LockManager::current()) });
    assert!(found.await.unwrap().contains("installed"));
    let scoped = LockManager::builder().label("scoped").in_memory();
    let inside = scoped.scope(async { format!("{:?}", LockManager::current()) });
    assert!(inside.await.contains("scoped"));
}
