//! A process forks while it has a manager: the child has a copy of its memory, and the same sockets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid_nohang};
use lock_runtime::{LockError, LockGuard, LockManager};
use tests::patience::eventually_blocking;
use tests::server::Server;
use tokio::runtime::{Builder, Runtime};

use crate::{LONG, manager, wait_until_confirmed};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Forks this process, runs `child` in the fork, and waits until the fork exits.
fn in_a_fork(child: impl FnOnce()) {
    match fork().unwrap() {
        Fork::Child => {
            // A child that hangs must not outlive the test.
            std::thread::spawn(|| {
                std::thread::sleep(LONG);
                std::process::exit(2);
            });
            // Run nothing else of the test here: a destructor would stop the parent's server.
            let outcome = catch_unwind(AssertUnwindSafe(child));
            std::process::exit(i32::from(outcome.is_err()));
        }
        Fork::Parent(child) => {
            let mut status = None;
            eventually_blocking("the child ends", LONG * 2, || {
                status = waitpid_nohang(child).unwrap();
                status.is_some()
            });
            assert_eq!(status, Some(0), "the child failed: its panic is above");
        }
    }
}

async fn assert_refused(inherited: &LockManager) {
    for timeout in [LONG, Duration::ZERO] {
        // The parent holds `p:held`; `p:k` is free.
        for key in ["held", "k"] {
            let start = Instant::now();
            let error = inherited.lock("p", key).timeout(timeout).acquire().await.unwrap_err();
            assert!(matches!(&error, LockError::Forked { .. }), "{error:?}");
            assert!(error.to_string().contains("make a new manager in the child"), "{error}");
            assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        }
    }
}

/// Runs in the child: the copies do nothing, and a new manager works.
async fn child(url: &str, inherited: LockManager, dropped: LockGuard, released: LockGuard) {
    // A thread caches for a millisecond in which process it runs.
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_refused(&inherited).await;
    drop(dropped);
    released.release().await.unwrap_err();
    assert_refused(&inherited).await;
    let start = Instant::now();
    inherited.shutdown().await;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    drop(inherited);
    let own = manager(url).await;
    own.install().unwrap();
    assert!(matches!(own.install(), Err(LockError::AlreadyInstalled)));
    LockManager::current().unwrap().lock("p", "k").run(async {}).await.unwrap();
    for key in ["held", "released"] {
        assert!(own.lock("p", key).try_acquire().await.unwrap().is_none(), "the parent's lock was released");
    }
    let guard = own.lock("p", "k").acquire().await.unwrap();
    wait_until_confirmed(&guard, Duration::from_secs(20)).await;
    drop(guard);
    // The keeper releases it. Without a keeper the key would stay for its whole lease.
    own.lock("p", "k").timeout(Duration::from_secs(1)).acquire().await.unwrap().release().await.unwrap();
    own.shutdown().await;
}

#[test]
fn row_61_a_child_after_a_fork_can_not_use_its_parents_manager_and_can_make_its_own() {
    let server = Server::start();
    let parent = runtime();
    let locks = parent.block_on(manager(&server.url()));
    locks.install().unwrap();
    let lock = |key: &'static str| parent.block_on(locks.lock("p", key).acquire()).unwrap();
    let (held, released) = (lock("held"), lock("released"));
    let owners = || ["p:held", "p:released"].map(|key| server.owner(key));
    let before = owners();
    let mut copies = Some((locks.clone(), held, released));
    in_a_fork(|| {
        let (locks, held, released) = copies.take().unwrap();
        runtime().block_on(child(&server.url(), locks, held, released));
    });
    // The child released nothing, and took none of the parent's replies.
    assert_eq!(owners(), before);
    let (_, held, released) = copies.take().unwrap();
    parent.block_on(async {
        assert!(held.is_valid() && released.is_valid());
        locks.lock("p", "k").acquire().await.unwrap().release().await.unwrap();
        held.release().await.unwrap();
        released.release().await.unwrap();
    });
}

/// Two processes that continue from one copy of a manager would make the same tokens.
#[test]
fn row_61_parent_and_child_never_hold_one_lock_under_one_token() {
    let server = Server::start();
    let parent = runtime();
    let locks = parent.block_on(manager(&server.url()));
    in_a_fork(|| {
        runtime().block_on(async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let _ = locks.lock("p", "k").acquire().await.unwrap_err();
        });
    });
    assert_eq!(server.owner("p:k"), None);
    parent.block_on(async {
        let guard = locks.lock("p", "k").acquire().await.unwrap();
        assert!(server.owner("p:k").is_some());
        guard.release().await.unwrap();
    });
}
