//! A task whose turn comes and that is not polled: its thread works, or its future is kept behind another one. It delays
//! nobody else for long, and is told the truth when it is polled at last.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::mpsc::{self, Sender};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use lock_runtime::{LockError, LockGuard, LockManager};
use tests::patience::{NOISE, eventually};
use tests::proxy::Proxy;
use tests::server::Server;
use tokio::runtime::{Builder, Runtime};

const LONG: Duration = Duration::from_secs(20);
/// Longer than a lock may lie free.
const BLOCKED: Duration = Duration::from_millis(2500);
/// What a lock that no task takes may cost those who wait, and a release.
const PASSED_ON: Duration = Duration::from_millis(100);
/// What it may cost everybody.
const EVERYBODY: Duration = Duration::from_secs(1);
/// What an acquire may cost others that has something already and is not polled.
const A_CLAIM: Duration = Duration::from_secs(3);

type Acquired = Result<LockGuard, LockError>;

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn manager(server: &Server, label: &str) -> LockManager {
    let locks = LockManager::builder().url(&server.url()).label(label).connect().await.unwrap();
    locks.lock("warm", label).acquire().await.unwrap().release().await.unwrap();
    locks
}

/// Asks for `p:k` with a lease that no test outlasts.
fn ask(locks: &LockManager, timeout: Duration) -> Pin<Box<dyn Future<Output = Acquired> + Send>> {
    let request = locks.lock("p", "k").timeout(timeout).expire(Duration::from_secs(1000)).renew(true);
    Box::pin(request.acquire())
}

/// Waits for the lock, and tells when it has begun to.
async fn wait(locks: LockManager, timeout: Duration, begun: Sender<()>) -> Acquired {
    let mut acquiring = ask(&locks, timeout);
    poll_fn(|context| {
        let polled = acquiring.as_mut().poll(context);
        // Nobody listens any more when it is polled again.
        let _ = begun.send(());
        polled
    })
    .await
}

/// A thread whose task waits for the lock and is not polled while its thread blocks. It blocks when this returns: before, it
/// might still be polled, and take the lock.
fn waits_and_blocks(locks: &LockManager, timeout: Duration) -> thread::JoinHandle<Acquired> {
    let locks = locks.clone();
    let (begun, has_begun) = mpsc::channel();
    let (blocks, is_blocked) = mpsc::channel();
    let blocked = thread::spawn(move || {
        current_thread().block_on(async {
            let waiter = tokio::spawn(wait(locks, timeout, begun));
            while has_begun.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
            blocks.send(()).unwrap();
            thread::sleep(BLOCKED);
            waiter.await.unwrap()
        })
    });
    is_blocked.recv().unwrap();
    blocked
}

/// How long a process that comes now waits for the lock.
async fn waited(locks: &LockManager) -> Duration {
    let begin = Instant::now();
    ask(locks, LONG).await.unwrap().release().await.unwrap();
    begin.elapsed()
}

#[test]
fn a_worker_that_blocks_after_its_release_delays_no_other_process() {
    let server = Server::start();
    let busy = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let locks = busy.block_on(manager(&server, "north"));
    let (begun, has_begun) = mpsc::channel();
    let (released, is_released) = mpsc::channel();
    let waiter = busy.spawn(async move {
        let guard = ask(&locks, LONG).await.unwrap();
        let waiter = tokio::spawn(wait(locks, EVERYBODY, begun));
        while has_begun.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        drop(guard);
        released.send(()).unwrap();
        // The task that is woken waits for this worker, although three are idle.
        thread::sleep(BLOCKED);
        waiter.await.unwrap()
    });
    let delay = current_thread().block_on(async {
        let other = manager(&server, "south").await;
        is_released.recv().unwrap();
        waited(&other).await
    });
    assert!(delay < PASSED_ON + NOISE, "{delay:?}");
    // Its time was over when it was polled, if the worker that blocked was the one to poll it.
    let late = busy.block_on(waiter).unwrap();
    assert!(late.as_ref().is_err_and(LockError::is_timeout), "{late:?}");
}

#[test]
fn a_thread_that_blocks_delays_neither_a_task_of_another_thread_nor_another_process() {
    let server = Server::start();
    let locks = current_thread().block_on(manager(&server, "north"));
    let here = current_thread();
    let guard = here.block_on(ask(&locks, LONG)).unwrap();
    let blocked = waits_and_blocks(&locks, EVERYBODY);
    let (sibling, process) = here.block_on(async {
        let other = manager(&server, "south").await;
        let mut sibling = ask(&locks, LONG);
        assert!(sibling.as_mut().now_or_never().is_none());
        let begin = Instant::now();
        guard.release().await.unwrap();
        let guard = sibling.await.unwrap();
        let delay = begin.elapsed();
        guard.release().await.unwrap();
        (delay, waited(&other).await)
    });
    assert!(sibling < PASSED_ON + NOISE, "{sibling:?}");
    assert!(process < PASSED_ON + NOISE, "{process:?}");
    let late = blocked.join().unwrap();
    assert!(late.as_ref().is_err_and(LockError::is_timeout), "{late:?}");
}

#[test]
fn the_only_waiter_of_a_blocked_thread_is_passed_over_after_a_second_also_by_who_only_tries() {
    let server = Server::start();
    let locks = current_thread().block_on(manager(&server, "north"));
    let here = current_thread();
    let guard = here.block_on(ask(&locks, LONG)).unwrap();
    let blocked = waits_and_blocks(&locks, LONG);
    here.block_on(async {
        guard.release().await.unwrap();
        let key = || server.keys().contains_key("p:k");
        eventually("the lock is free", EVERYBODY + NOISE, || !key()).await;
    });
    // Its time is not over.
    assert!(blocked.join().unwrap().is_ok());
}

/// A process waits in the server's queue, and the only thread of its runtime blocks, which reads its grants. Another waits behind it.
/// Returns how long that one waits after the lock was released. The thread has blocked for this long by then.
fn waited_behind_a_blocked_process(blocked_for: Duration) -> Duration {
    let server = Server::start();
    let here = current_thread();
    let (holder, behind) = here.block_on(async { (manager(&server, "north").await, manager(&server, "south").await) });
    let guard = here.block_on(ask(&holder, LONG)).unwrap();
    let (blocks, is_blocked) = mpsc::channel();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            current_thread().block_on(async {
                let locks = manager(&server, "west").await;
                let waiter = tokio::spawn(ask(&locks, LONG));
                let waits = || server.keys().contains_key("{p:k}:queue");
                eventually("it waits in the queue", LONG, waits).await;
                // The answer to this comes behind the answer to the ask, and its task has read that one.
                locks.inspect("p", "k").await.unwrap();
                tokio::task::yield_now().await;
                blocks.send(()).unwrap();
                thread::sleep(BLOCKED);
                waiter.await.unwrap()
            })
        });
        is_blocked.recv().unwrap();
        thread::sleep(blocked_for);
        let delay = here.block_on(async {
            let waiting = tokio::spawn(ask(&behind, LONG));
            while server.ask::<u32>("ZCARD {p:k}:queue") < 2 {
                tokio::task::yield_now().await;
            }
            let begin = Instant::now();
            guard.release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
            begin.elapsed()
        });
        drop(blocked.join().unwrap().unwrap());
        delay
    })
}

#[test]
fn a_grant_that_a_blocked_process_does_not_read_delays_no_other_process() {
    for blocked_for in [Duration::ZERO, Duration::from_millis(30), Duration::from_millis(500)] {
        let delay = waited_behind_a_blocked_process(blocked_for);
        assert!(delay < PASSED_ON + NOISE, "blocked for {blocked_for:?}: {delay:?}");
    }
}

#[tokio::test]
async fn a_kept_future_that_waits_here_delays_nobody() {
    let server = Server::start();
    let (locks, other) = (manager(&server, "north").await, manager(&server, "south").await);
    let guard = ask(&locks, LONG).await.unwrap();
    let mut kept = ask(&locks, EVERYBODY);
    assert!(kept.as_mut().now_or_never().is_none());
    guard.release().await.unwrap();
    let process = waited(&other).await;
    assert!(process < PASSED_ON + NOISE, "{process:?}");
    let sibling = waited(&locks).await;
    assert!(sibling < PASSED_ON + NOISE, "{sibling:?}");
    tokio::time::sleep(EVERYBODY).await;
    let late = kept.await;
    assert!(late.as_ref().is_err_and(LockError::is_timeout), "{late:?}");
}

#[tokio::test]
async fn a_kept_future_that_has_just_asked_delays_nobody_for_more_than_a_second() {
    let server = Server::start();
    let (locks, other) = (manager(&server, "north").await, manager(&server, "south").await);
    let mut kept = ask(&locks, EVERYBODY);
    // It sends its command, and never reads the answer.
    assert!(kept.as_mut().now_or_never().is_none());
    eventually("the lock is granted", LONG, || server.keys().contains_key("p:k")).await;
    let process = waited(&other).await;
    assert!(process < EVERYBODY + NOISE, "{process:?}");
    tokio::time::sleep(EVERYBODY).await;
    let late = kept.await;
    assert!(late.as_ref().is_err_and(LockError::is_timeout), "{late:?}");
    assert!(waited(&locks).await < PASSED_ON + NOISE, "nothing is left");
}

#[tokio::test]
async fn a_kept_future_that_waits_in_the_servers_queue_delays_nobody_when_it_is_granted() {
    let server = Server::start();
    let (locks, other) = (manager(&server, "north").await, manager(&server, "south").await);
    let guard = ask(&other, LONG).await.unwrap();
    let mut kept = ask(&locks, EVERYBODY);
    let is_queued = poll_fn(|context| {
        assert!(kept.as_mut().poll(context).is_pending());
        if server.keys().contains_key("{p:k}:queue") {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    });
    is_queued.await;
    guard.release().await.unwrap();
    let sibling = waited(&locks).await;
    assert!(sibling < PASSED_ON + NOISE, "{sibling:?}");
    let process = waited(&other).await;
    assert!(process < PASSED_ON + NOISE, "{process:?}");
    drop(kept);
}

#[tokio::test]
async fn a_kept_release_whose_connection_was_cut_delays_nobody_for_more_than_a_second() {
    let server = Server::start();
    let proxy = Proxy::before(&server);
    let locks = LockManager::builder().url(&proxy.url()).connect().await.unwrap();
    let other = manager(&server, "south").await;
    let guard = ask(&locks, LONG).await.unwrap();
    eventually("the lease is confirmed", LONG, || guard.remaining() > LONG).await;
    let waiting = tokio::spawn(async move { waited(&other).await });
    eventually("the other process waits", LONG, || server.keys().contains_key("{p:k}:queue")).await;
    proxy.cut();
    let mut kept = Box::pin(guard.release());
    assert!(kept.as_mut().now_or_never().is_none());
    let cut = Instant::now();
    waiting.await.unwrap();
    assert!(cut.elapsed() < EVERYBODY + NOISE, "{:?}", cut.elapsed());
    let late = kept.await;
    assert!(!late.as_ref().is_err_and(LockError::is_lost), "{late:?}");
}

/// Polls `acquiring` for a while, and no more.
async fn poll_for_a_while(acquiring: &mut Pin<Box<dyn Future<Output = Acquired> + Send>>) {
    assert!(tokio::time::timeout(Duration::from_millis(300), acquiring).await.is_err());
}

#[tokio::test]
async fn a_kept_future_that_has_some_of_its_keys_delays_nobody_for_longer_than_a_claim() {
    let server = Server::start();
    let (locks, other) = (manager(&server, "north").await, manager(&server, "south").await);
    let last = other.lock("p", "l").acquire().await.unwrap();
    let request = locks.lock_all("p", ["k", "l"]).timeout(LONG);
    let mut kept: Pin<Box<dyn Future<Output = Acquired> + Send>> = Box::pin(request.acquire());
    poll_for_a_while(&mut kept).await;
    assert!(server.keys().contains_key("p:k"));
    let process = waited(&other).await;
    assert!(process < A_CLAIM + NOISE, "{process:?}");
    poll_for_a_while(&mut kept).await;
    assert!(server.keys().contains_key("p:k"), "it has taken its first key again");
    let sibling = waited(&locks).await;
    assert!(sibling < A_CLAIM + NOISE, "{sibling:?}");
    poll_for_a_while(&mut kept).await;
    eventually("the key is free although nobody asks", A_CLAIM + NOISE, || !server.keys().contains_key("p:k")).await;
    last.release().await.unwrap();
    kept.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_kept_reader_that_has_no_fencing_token_yet_delays_a_writer_for_a_claim_at_most() {
    let server = Server::start();
    let (locks, other) = (manager(&server, "north").await, manager(&server, "south").await);
    let first = locks.lock("p", "k").read().acquire().await.unwrap();
    let mut kept = Box::pin(locks.lock("p", "k").read().fenced(true).timeout(EVERYBODY).acquire());
    // It has joined the first reader, and draws its token.
    assert!(kept.as_mut().now_or_never().is_none());
    first.release().await.unwrap();
    let writer = waited(&other).await;
    assert!(writer < A_CLAIM + NOISE, "{writer:?}");
    tokio::time::sleep(EVERYBODY).await;
    let late = kept.await;
    assert!(late.as_ref().is_err_and(LockError::is_timeout), "{late:?}");
}
