//! Locked fns that are not async, on threads without a runtime.

use std::thread;
use std::time::Duration;

use lock_runtime::{FencingToken, LockError, LockGuard, LockManager, cache_lock};

use crate::behaviour::{Result, alone};

struct Catalog {
    locks: LockManager,
    entries: Vec<u64>,
}

impl Catalog {
    #[cache_lock(prefix = "catalog", key = id, manager = self.locks, guard = guard, fenced = token)]
    fn rebuild(&mut self, id: u64) -> Result<(String, FencingToken)> {
        self.entries.push(id);
        Ok((guard.key().to_owned(), token))
    }

    #[cache_lock(prefix = "catalog", keys = [from, to], manager = &self.locks, timeout_ms = 0, guard = guard)]
    fn swap(&self, from: u64, to: u64) -> Result<usize> {
        Ok(guard.keys().len())
    }

    /// Calls itself under its own lock.
    #[cache_lock(prefix = "catalog", key = "depth", manager = self.locks, timeout_ms = 100)]
    fn depth(&self, left: u32) -> Result<u32> {
        if left == 0 {
            return Ok(0);
        }
        Ok(self.depth(left - 1)? + 1)
    }

    #[cache_lock(prefix = "catalog", key = "slow", manager = self.locks, expire_ms = 100)]
    fn slow(&self, time: Duration) -> Result<&[u64]> {
        thread::sleep(time);
        Ok(&self.entries)
    }

    #[cache_lock(prefix = "catalog", key = "slow", manager = self.locks, expire_ms = 100, renew = false, on_lost = "continue")]
    fn overtaken(&self) -> Result<()> {
        thread::sleep(Duration::from_millis(200));
        Ok(())
    }

    #[cache_lock(prefix = "catalog", key = "one", manager = self.locks, timeout_ms = 0, on_fail = |_| false)]
    fn only_one(&self, _guard: &LockGuard) -> bool {
        true
    }
}

fn generic<T: AsRef<str>>(text: T) -> Result<usize> {
    #[cache_lock(prefix = "generic", key = text.as_ref())]
    fn length<T: AsRef<str>>(text: T) -> Result<usize> {
        Ok(text.as_ref().len())
    }
    length(text)
}

fn catalog() -> Catalog {
    Catalog { locks: LockManager::in_memory(), entries: Vec::new() }
}

#[test]
fn a_fn_that_is_not_async_needs_no_runtime() {
    let mut catalog = catalog();
    let (key, first) = catalog.rebuild(7).unwrap();
    let (_, second) = catalog.rebuild(7).unwrap();
    assert_eq!((key.as_str(), catalog.entries.len()), ("catalog:7", 2));
    assert!(second > first);
    assert_eq!(catalog.swap(2, 1).unwrap(), 2);
    let held = catalog.locks.lock("catalog", &2).acquire_blocking().unwrap();
    assert_eq!(catalog.swap(1, 2).unwrap_err().key(), Some("catalog:2"));
    drop(held);
    let held = catalog.locks.lock("catalog", "one").acquire_blocking().unwrap();
    assert!(!catalog.only_one(&held));
}

#[test]
fn it_is_renewed_and_entered_again_without_a_runtime() {
    let catalog = catalog();
    assert_eq!(catalog.depth(5).unwrap(), 5);
    assert!(catalog.slow(Duration::from_millis(300)).unwrap().is_empty());
    let error = catalog.overtaken().unwrap_err();
    assert!(matches!(error, LockError::Lost { completed: true, .. }), "{error:?}");
}

#[test]
fn threads_take_turns() {
    let catalog = std::sync::Arc::new(catalog());
    let mut total = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (catalog, total) = (catalog.clone(), total.clone());
            thread::spawn(move || {
                for _ in 0..20 {
                    let step = || {
                        let seen = total.load(std::sync::atomic::Ordering::SeqCst);
                        thread::yield_now();
                        total.store(seen + 1, std::sync::atomic::Ordering::SeqCst);
                    };
                    catalog.locks.lock("catalog", "sum").run_blocking(step).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*std::sync::Arc::get_mut(&mut total).unwrap().get_mut(), 80);
}

#[tokio::test]
async fn in_an_async_task_it_says_what_to_write_instead() {
    let catalog = catalog();
    let error = catalog.depth(0).unwrap_err();
    assert!(matches!(error, LockError::InAsyncTask { .. }), "{error:?}");
    assert!(error.to_string().contains("spawn_blocking"));
    let depth = tokio::task::spawn_blocking(move || catalog.depth(2)).await.unwrap();
    assert_eq!(depth.unwrap(), 2);
    // The manager of the task's scope.
    alone(async { assert!(matches!(generic("text"), Err(LockError::InAsyncTask { .. }))) }).await;
}

#[test]
fn without_a_manager_it_says_so() {
    assert!(matches!(generic("text"), Err(LockError::NotInstalled)));
}
