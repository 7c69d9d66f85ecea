//! Threads without a runtime, with a server: the manager's own thread drives the connections.

use std::thread;
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockManager};
use tests::server::Server;

const LONG: Duration = Duration::from_secs(10);
const COMMAND: Duration = Duration::from_millis(300);

#[test]
fn a_program_without_a_runtime_locks_on_a_server() {
    let server = Server::start();
    let locks = || LockManager::builder().url(&server.url()).connect_lazy().unwrap();
    let managers = [locks(), locks()];
    let total = std::sync::atomic::AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..4 {
            let (locks, total) = (&managers[number % 2], &total);
            scope.spawn(move || {
                for _ in 0..25 {
                    let step = || {
                        let seen = total.load(std::sync::atomic::Ordering::SeqCst);
                        thread::yield_now();
                        total.store(seen + 1, std::sync::atomic::Ordering::SeqCst);
                    };
                    locks.lock("p", "k").timeout(LONG).run_blocking(step).unwrap();
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 100);
}

/// The connection was made on a runtime that no thread drives any more.
#[test]
fn a_runtime_that_is_not_driven_costs_a_thread_at_most_two_command_timeouts() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let locks = runtime.block_on(LockManager::connect(&server.url())).unwrap();
    let start = Instant::now();
    let taken = thread::spawn(move || {
        locks.lock("p", "k").timeout(LONG).run_blocking(|| ()).unwrap();
        let first = start.elapsed();
        let start = Instant::now();
        locks.lock("p", "k").timeout(LONG).run_blocking(|| ()).unwrap();
        (first, start.elapsed())
    });
    let (first, second) = taken.join().unwrap();
    println!("the first lock took {first:?}, the next {second:?}");
    assert!(first < Duration::from_secs(2), "{first:?}");
    assert!(second < Duration::from_millis(200), "{second:?}");
}

/// The timeout of a command must not depend on a timer of that runtime.
#[test]
fn a_command_on_a_runtime_that_is_not_driven_times_out() {
    let server = Server::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (still, driven) = (runtime(), runtime());
    let guard = still.block_on(async {
        let locks = LockManager::builder().url(&server.url()).command_timeout(COMMAND).connect().await.unwrap();
        locks.lock("p", "k").acquire().await.unwrap()
    });
    let start = Instant::now();
    let refused = driven.block_on(guard.extend(LONG));
    assert!(matches!(refused, Err(LockError::Backend { .. })), "{refused:?}");
    assert!(start.elapsed() < COMMAND + Duration::from_millis(100), "{:?}", start.elapsed());
}
