//! Without a tokio runtime that drives timers and sockets each call returns an error that says so, and none panics.

use std::time::Duration;

use futures_util::FutureExt as _;
use lock_runtime::{LockError, LockManager, cache_lock};
use tests::server::Server;
use tokio::runtime::{Builder, Runtime};

const LONG: Duration = Duration::from_secs(10);

/// A runtime with a worker thread, so that it makes progress while no thread blocks on it.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[cache_lock(prefix = "p", key = key, manager = locks)]
async fn locked(locks: &LockManager, key: u8) -> Result<(), LockError> {
    Ok(())
}

/// The errors of all async calls in their first poll. Calls that need a hold or a ticket get one from a good runtime.
fn refusals(locks: &LockManager, good: &Runtime) -> Vec<(&'static str, LockError)> {
    let hold = || good.block_on(locks.lock("p", "held").timeout(LONG).acquire()).unwrap();
    let ticket = || good.block_on(hold().into_ticket(Duration::from_millis(100))).unwrap();
    let extended = {
        let guard = hold();
        guard.extend(LONG).now_or_never().unwrap()
    };
    let keys = [1, 2];
    let refused = [
        ("acquire", locks.lock("p", "k").acquire().now_or_never().unwrap().map(drop)),
        ("try_acquire", locks.lock("p", "k").try_acquire().now_or_never().unwrap().map(drop)),
        ("run", locks.lock("p", "k").run(async {}).now_or_never().unwrap()),
        ("several keys", locks.lock_all("p", keys).acquire().now_or_never().unwrap().map(drop)),
        ("run of several keys", locks.lock_all("p", keys).run(async {}).now_or_never().unwrap()),
        ("the attribute", locked(locks, 7).now_or_never().unwrap()),
        ("inspect", locks.inspect("p", "k").now_or_never().unwrap().map(drop)),
        ("is_locked", locks.is_locked("p", "k").now_or_never().unwrap().map(drop)),
        ("force_release", locks.force_release("p", "k").now_or_never().unwrap().map(drop)),
        ("extend", extended),
        ("release", hold().release().now_or_never().unwrap()),
        ("into_ticket", hold().into_ticket(LONG).now_or_never().unwrap().map(drop)),
        ("adopt", locks.adopt(ticket()).now_or_never().unwrap().map(drop)),
        ("release_ticket", locks.release_ticket(ticket()).now_or_never().unwrap()),
    ];
    refused.into_iter().map(|(call, outcome)| (call, outcome.expect_err(call))).collect()
}

/// Checks that each error names the runtime and what to do, and that the refused calls keep nobody out.
fn all_say(word: &str, refusals: Vec<(&'static str, LockError)>, locks: &LockManager, good: &Runtime) {
    for (call, error) in refusals {
        assert!(matches!(error, LockError::InvalidSetting { setting: "runtime", .. }), "{call}: {error:?}");
        assert!(error.to_string().contains(word), "{call}: {error}");
    }
    for key in ["k", "held", "1", "7"] {
        drop(good.block_on(locks.lock("p", key).timeout(LONG).acquire()).unwrap());
    }
}

#[test]
fn outside_of_tokio_each_call_says_so() {
    let (server, good) = (Server::start(), runtime());
    let error = LockManager::connect(&server.url()).now_or_never().unwrap().unwrap_err();
    assert!(error.to_string().contains("there is none"), "{error}");
    for locks in [LockManager::in_memory(), good.block_on(LockManager::connect(&server.url())).unwrap()] {
        all_say("tokio runtime", refusals(&locks, &good), &locks, &good);
    }
}

#[test]
fn on_a_runtime_without_timers_each_call_says_so() {
    let (server, good) = (Server::start(), runtime());
    let bad = Builder::new_current_thread().enable_io().build().unwrap();
    let error = bad.block_on(LockManager::connect(&server.url())).unwrap_err();
    assert!(error.to_string().contains("enable_time"), "{error}");
    for locks in [LockManager::in_memory(), good.block_on(LockManager::connect(&server.url())).unwrap()] {
        // Enter the runtime without blocking on it, so that this thread may block on the good one.
        let entered = bad.enter();
        let refused = refusals(&locks, &good);
        drop(entered);
        all_say("enable_time", refused, &locks, &good);
    }
}

/// With a connection that exists already, callers need no sockets.
#[test]
fn on_a_runtime_without_sockets_connecting_says_so_and_all_else_works() {
    let (server, good) = (Server::start(), runtime());
    let bad = Builder::new_current_thread().enable_time().build().unwrap();
    let places = [server.url(), server.url().replace("redis://", "redis-cluster://")];
    for url in places {
        let error = bad.block_on(LockManager::connect(&url)).unwrap_err();
        assert!(matches!(error, LockError::Connect { .. }) && error.to_string().contains("enable_io"), "{error}");
    }
    let lazy = LockManager::builder().url(&server.url()).connect_lazy().unwrap();
    let error = bad.block_on(lazy.lock("p", "k").acquire()).unwrap_err();
    assert!(matches!(error, LockError::Backend { .. }) && error.to_string().contains("enable_io"), "{error}");
    bad.block_on(locked(&LockManager::in_memory(), 7)).unwrap();
    let locks = good.block_on(LockManager::connect(&server.url())).unwrap();
    bad.block_on(locked(&locks, 7)).unwrap();
}

/// A shutdown may be the last call of a program, perhaps after its runtime is gone. It releases the locks and waits for bodies.
#[test]
fn a_shutdown_needs_nothing_around_it() {
    let (server, good) = (Server::start(), runtime());
    let bad = Builder::new_current_thread().build().unwrap();
    let builder = || LockManager::builder().drain(Duration::from_millis(50));
    let connected = || good.block_on(builder().url(&server.url()).connect()).unwrap();
    for (entered, locks) in [(None, connected()), (Some(&bad), connected()), (None, builder().in_memory())] {
        let guard = good.block_on(locks.lock("p", "k").acquire()).unwrap();
        let entered = entered.map(Runtime::enter);
        futures_executor::block_on(locks.shutdown());
        drop(entered);
        assert!(!guard.is_valid(), "{locks:?}");
        let error = good.block_on(locks.lock("p", "k").acquire()).unwrap_err();
        assert!(matches!(error, LockError::ShutDown { .. }), "{error}");
    }
    let other = good.block_on(LockManager::connect(&server.url())).unwrap();
    drop(good.block_on(other.lock("p", "k").try_acquire()).expect("the shutdown released it"));
}

#[test]
fn threads_that_wait_need_nothing_around_them() {
    let server = Server::start();
    let bad = [Builder::new_current_thread().build(), Builder::new_multi_thread().worker_threads(1).build()];
    for bad in bad.map(Result::unwrap) {
        let locks = LockManager::builder().url(&server.url()).connect_lazy().unwrap();
        let call = move || locks.lock("p", "k").timeout(LONG).run_blocking(|| 7).unwrap();
        assert_eq!(bad.block_on(async { tokio::task::spawn_blocking(call.clone()).await.unwrap() }), 7);
        assert_eq!(std::thread::spawn(call).join().unwrap(), 7);
    }
}
