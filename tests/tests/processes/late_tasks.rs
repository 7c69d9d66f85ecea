//! A task that is woken and not polled, because its thread is blocked or its future is set aside. It must not delay others
//! for long, and must get the right result when it is polled at last.

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
/// Longer than a lock may remain reserved for a task that is not polled.
const BLOCKED: Duration = Duration::from_millis(2500);
/// How long such a task may delay waiters, and a release.
const PASSED_ON: Duration = Duration::from_millis(100);
/// How long it may delay everybody else.
const EVERYBODY: Duration = Duration::from_secs(1);
/// How long an unpolled acquire that already holds something may delay others.
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

/// Asks for `p:k` with a lease longer than any test.
fn ask(locks: &LockManager, timeout: Duration) -> Pin<Box<dyn Future<Output = Acquired> + Send>> {
    let request = locks.lock("p", "k").timeout(timeout).expire(Duration::from_secs(1000)).renew(true);
    Box::pin(request.acquire())
}

/// Waits for the lock, and sends a message when it was polled first.
async fn wait(locks: LockManager, timeout: Duration, begun: Sender<()>) -> Acquired {
    let mut acquiring = ask(&locks, timeout);
    poll_fn(|context| {
        let polled = acquiring.as_mut().poll(context);
        // When it is polled again, the receiver is gone.
        let _ = begun.send(());
        polled
    })
    .await
}

/// Starts a thread whose task waits for the lock, then blocks the thread, so that the task is not polled. Returns when the thread
/// blocks, because until then the task could still be polled and get the lock.
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

/// How long a new request has to wait for the lock.
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
        // The woken task is in this worker's slot, although three other workers are idle.
        thread::sleep(BLOCKED);
        waiter.await.unwrap()
    });
    let delay = current_thread().block_on(async {
        let other = manager(&server, "south").await;
        is_released.recv().unwrap();
        waited(&other).await
    });
    assert!(delay < PASSED_ON + NOISE, "{delay:?}");
    // The blocked worker polls it, and by then its timeout is over.
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
fn the_only_waiter_of_a_blocked_thread_is_passed_over_after_a_second() {
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
    // Its timeout is not over.
    assert!(blocked.join().unwrap().is_ok());
}

/// The server answered at once. Nothing of this process read the answer in time.
#[test]
fn the_error_of_a_task_that_was_polled_late_says_so() {
    let server = Server::start();
    for timeout in [Duration::ZERO, EVERYBODY] {
        let asked = current_thread().block_on(async {
            let locks = manager(&server, "north").await;
            let asking = tokio::spawn(ask(&locks, timeout));
            // The ask is sent.
            tokio::task::yield_now().await;
            thread::sleep(BLOCKED);
            asking.await.unwrap()
        });
        let error = asked.unwrap_err().to_string();
        assert!(error.contains("this task was "), "{error}");
    }
}

/// A process waits in the server's queue while the only thread of its runtime, which reads its grants, blocks. Another process waits
/// behind it. Returns how long the other one waits after the release, which happens when the thread has blocked for `blocked_for`.
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
                // This reply comes after the reply to the ask, so the waiting task has read that one.
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
async fn an_unpolled_local_waiter_delays_nobody() {
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
async fn an_unpolled_acquire_whose_command_is_under_way_delays_others_for_at_most_a_second() {
    let server = Server::start();
    let (locks, other) = (manager(&server, "north").await, manager(&server, "south").await);
    let mut kept = ask(&locks, EVERYBODY);
    // It sends its command, and never reads the reply.
    assert!(kept.as_mut().now_or_never().is_none());
    eventually("the lock is granted", LONG, || server.keys().contains_key("p:k")).await;
    let process = waited(&other).await;
    assert!(process < EVERYBODY + NOISE, "{process:?}");
    tokio::time::sleep(EVERYBODY).await;
    let late = kept.await;
    // Its last reply was a grant.
    assert!(late.as_ref().is_err_and(|late| late.to_string().contains("not polled in time")), "{late:?}");
    assert!(waited(&locks).await < PASSED_ON + NOISE, "something is left over");
}

#[tokio::test]
async fn an_unpolled_waiter_in_the_servers_queue_delays_nobody_when_it_is_granted() {
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
async fn an_unpolled_release_whose_connection_was_cut_delays_others_for_at_most_a_second() {
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

/// Polls `acquiring` for a while, then stops polling it.
async fn poll_for_a_while(acquiring: &mut Pin<Box<dyn Future<Output = Acquired> + Send>>) {
    assert!(tokio::time::timeout(Duration::from_millis(300), acquiring).await.is_err());
}

#[tokio::test]
async fn an_unpolled_request_that_has_some_of_its_keys_delays_others_for_at_most_a_claim() {
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
    assert!(server.keys().contains_key("p:k"), "it has not acquired its first key again");
    let sibling = waited(&locks).await;
    assert!(sibling < A_CLAIM + NOISE, "{sibling:?}");
    poll_for_a_while(&mut kept).await;
    eventually("the key is free without another request", A_CLAIM + NOISE, || !server.keys().contains_key("p:k")).await;
    last.release().await.unwrap();
    kept.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_unpolled_reader_without_a_fencing_token_delays_a_writer_for_at_most_a_claim() {
    let server = Server::start();
    let (locks, other) = (manager(&server, "north").await, manager(&server, "south").await);
    let first = locks.lock("p", "k").read().acquire().await.unwrap();
    let mut kept = Box::pin(locks.lock("p", "k").read().fenced(true).timeout(EVERYBODY).acquire());
    // It has joined the first reader, and is drawing its token.
    assert!(kept.as_mut().now_or_never().is_none());
    first.release().await.unwrap();
    let writer = waited(&other).await;
    assert!(writer < A_CLAIM + NOISE, "{writer:?}");
    tokio::time::sleep(EVERYBODY).await;
    let late = kept.await;
    assert!(late.as_ref().is_err_and(LockError::is_timeout), "{late:?}");
}

#[tokio::test]
async fn a_waiter_for_which_the_keeper_queued_is_counted_when_it_is_polled() {
    let server = Server::start();
    let (locks, other) = (manager(&server, "north").await, manager(&server, "south").await);
    let _guard = ask(&other, LONG).await.unwrap();
    let mut kept = ask(&locks, LONG);
    assert!(kept.as_mut().now_or_never().is_none());
    // Its claim was refused. The keeper asks in its place.
    eventually("the process queues", LONG, || server.keys().contains_key("{p:k}:queue")).await;
    poll_for_a_while(&mut kept).await;
    assert_eq!(locks.stats().waiting, 1);
}
