//! A client is killed, stopped, terminated, or blocks its own thread.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockGuard, LockManager, OnBusy};
use tests::child::{self, Child};
use tests::patience::{NOISE, eventually};
use tests::proxy::{Fault, Proxy};
use tests::server::Server;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::{LONG, manager, wait_until_confirmed, wait_until_queued, warm_up};

const SECOND: Duration = Duration::from_secs(1);
/// The longest `linger`.
const LINGER: Duration = Duration::from_secs(2);
/// The short first lease of a grant. A short hold does not extend it.
const CLAIM: Duration = Duration::from_millis(2500);

/// A child process that does `what` on the server at `url` with locks of this lease.
fn child(what: &str, lease: Duration, url: &str) -> Child {
    Child::of("client::child_process", &format!("{what} {} {url}", lease.as_millis()))
}

/// No test: the child processes of this file run it.
#[tokio::test]
async fn child_process() {
    let Some(role) = child::role() else { return };
    let words: Vec<_> = role.split(' ').collect();
    let (what, lease, url) = (words[0], Duration::from_millis(words[1].parse().unwrap()), words[2]);
    let locks = LockManager::builder().url(url).drain(SECOND / 2).connect().await.unwrap();
    let request = || locks.lock("p", "k").timeout(LONG * 6).expire(lease).renew(false);
    match what {
        "hold" => {
            let guard = request().renew(true).acquire().await.unwrap();
            wait_until_confirmed(&guard, lease * 9 / 10).await;
            child::say("held");
            until_told_to_end().await;
            locks.shutdown().await;
        }
        "exit" => {
            let guard = request().acquire().await.unwrap();
            wait_until_confirmed(&guard, lease * 9 / 10).await;
            child::say("held");
            sleep(lease / 4).await;
            std::process::exit(0);
        }
        "work" => {
            let outcome = request().renew(true).run(work_unless_stopped()).await;
            assert!(matches!(outcome, Err(LockError::Lost { completed: false, .. })), "{outcome:?}");
            child::say("lost");
        }
        "wait" => {
            let _guard = request().acquire().await.unwrap();
        }
        "linger" | "linger-reading" => {
            let request = || if what == "linger" { request() } else { request().renew(true).read() };
            // Nothing lingers before the keeper is connected.
            while locks.stats().lingering == 0 {
                request().linger(LINGER).acquire().await.unwrap().release().await.unwrap();
                sleep(Duration::from_millis(2)).await;
            }
            child::say("lingers");
            // Block the only thread.
            std::thread::sleep(LONG);
        }
        "release" => loop {
            request().acquire().await.unwrap().release().await.unwrap();
            child::say("released");
        },
        other => panic!("what is {other}?"),
    }
}

async fn until_told_to_end() {
    let mut told = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    told.recv().await;
}

/// A body that exits the process if it makes a step after it was stopped for more than two seconds.
async fn work_unless_stopped() {
    let mut last = Instant::now();
    child::say("held");
    loop {
        sleep(Duration::from_millis(5)).await;
        if last.elapsed() > SECOND * 2 {
            std::process::exit(3);
        }
        last = Instant::now();
    }
}

/// Starts to wait for the lock `p:k` in a new task.
fn wait(manager: &LockManager) -> JoinHandle<(LockGuard, Instant)> {
    let acquire = manager.lock("p", "k").timeout(LONG).acquire();
    tokio::spawn(async move { (acquire.await.unwrap(), Instant::now()) })
}

#[tokio::test]
async fn row_37_a_client_that_is_stopped_for_less_than_its_lease_keeps_its_lock() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let mut holder = child("hold", SECOND * 3, &server.url());
    holder.wait_for("held");
    let token = server.owner("p:k");
    holder.freeze();
    sleep(SECOND).await;
    let asked = north.lock("p", "k").timeout(SECOND / 2).acquire().await;
    assert!(asked.is_err_and(|error| error.is_timeout()));
    holder.thaw();
    sleep(SECOND * 3).await;
    assert_eq!(server.owner("p:k"), token);
}

#[tokio::test]
async fn row_37_a_client_that_is_stopped_for_more_than_its_lease_makes_no_further_step() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let mut holder = child("work", SECOND, &server.url());
    holder.wait_for("held");
    // Wait until its lease was confirmed and renewed.
    sleep(SECOND).await;
    holder.freeze();
    let frozen = Instant::now();
    let guard = north.lock("p", "k").timeout(LONG).acquire().await.unwrap();
    assert!(frozen.elapsed() < SECOND * 2 + NOISE, "{:?}", frozen.elapsed());
    sleep((SECOND * 5 / 2).saturating_sub(frozen.elapsed())).await;
    holder.thaw();
    // The child reports the loss. It does not exit as the body would.
    holder.wait_for("lost");
    holder.wait_for_end(SECOND * 2);
    assert!(guard.is_valid());
    assert!(server.owner("p:k").is_some());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn row_38_a_killed_holder_delays_others_by_its_lease_and_a_second() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let mut holder = child("hold", SECOND, &server.url());
    holder.wait_for("held");
    // Wait until its lease was renewed at least once.
    sleep(SECOND * 3 / 2).await;
    assert!(north.lock("p", "k").try_acquire().await.unwrap().is_none());
    let waiter = wait(&north);
    wait_until_queued(&server).await;
    let killed = Instant::now();
    holder.kill();
    let (_guard, granted) = waiter.await.unwrap();
    assert!(granted - killed < SECOND * 2 + NOISE, "{:?}", granted - killed);
}

async fn behind_a_waiting_child(end: impl FnOnce(&mut Child)) {
    let server = Server::start();
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let guard = north.lock("p", "k").acquire().await.unwrap();
    let mut child = child("wait", SECOND, &server.url());
    wait_until_queued(&server).await;
    let waiter = wait(&south);
    eventually("both wait", LONG, || server.ask::<usize>("ZCARD {p:k}:queue") == 2).await;
    end(&mut child);
    let released = Instant::now();
    guard.release().await.unwrap();
    let (_guard, granted) = waiter.await.unwrap();
    assert!(granted - released < SECOND * 3 + NOISE, "{:?}", granted - released);
}

/// Checks how long another process waits for a lock that lingers in a process which `end` stops. Plays an exclusive lock and a read
/// lock.
async fn behind_a_lock_that_lingers(end: impl Fn(&mut Child, &Proxy), bounds: Range<Duration>) {
    for job in ["linger", "linger-reading"] {
        let server = Server::start();
        let (proxy, north) = (Proxy::before(&server), manager(&server.url()).await);
        warm_up(&[&north]).await;
        let mut owner = child(job, CLAIM, &proxy.url());
        owner.wait_for("lingers");
        end(&mut owner, &proxy);
        let start = Instant::now();
        let guard = north.lock("p", "k").timeout(LONG).acquire().await.unwrap();
        let waited = start.elapsed();
        guard.release().await.unwrap();
        assert!(bounds.contains(&waited), "{job}: {waited:?}");
    }
}

/// The process can't yield the lease, so others wait until it expires.
const AS_A_CRASH: Range<Duration> = CLAIM.checked_div(2).unwrap()..CLAIM.saturating_add(NOISE);

#[tokio::test]
async fn row_65_a_process_whose_only_thread_is_blocked_yields_what_lingers() {
    behind_a_lock_that_lingers(|_, _| (), Duration::ZERO..NOISE).await;
}

#[tokio::test]
async fn row_65_a_process_that_is_stopped_while_a_lock_lingers_delays_others_by_its_claim() {
    behind_a_lock_that_lingers(|owner, _| owner.freeze(), AS_A_CRASH).await;
}

#[tokio::test]
async fn row_65_a_process_that_is_killed_while_a_lock_lingers_delays_others_by_its_claim() {
    behind_a_lock_that_lingers(|owner, _| owner.kill(), AS_A_CRASH).await;
}

#[tokio::test]
async fn row_65_a_process_that_is_cut_off_while_a_lock_lingers_delays_others_by_its_claim() {
    behind_a_lock_that_lingers(|_, proxy| proxy.cut_off(), AS_A_CRASH).await;
}

#[tokio::test]
async fn row_38_a_killed_waiter_is_skipped() {
    behind_a_waiting_child(Child::kill).await;
}

#[tokio::test]
async fn row_37_a_stopped_waiter_delays_others_by_three_seconds_at_most() {
    behind_a_waiting_child(|child| child.freeze()).await;
}

/// With `arrives` the server executes the release long after the client's death; otherwise it never sees the release.
async fn behind_a_killed_releaser(arrives: bool) {
    let server = Server::start();
    let mut proxy = Some(Proxy::before(&server));
    let north = manager(&server.url()).await;
    warm_up(&[&north]).await;
    let mut child = child("release", SECOND, &proxy.as_ref().unwrap().url());
    child.wait_for("released");
    let wire = proxy.as_ref().unwrap();
    wire.plan(server.release_command().unwrap_or("EVALSHA"), if arrives { Fault::Hold } else { Fault::Delay(LONG) });
    eventually("a release is under way", LONG, || wire.is_through()).await;
    child.kill();
    let killed = Instant::now();
    if arrives {
        wire.let_go();
    } else {
        proxy = None;
    }
    let (_guard, granted) = wait(&north).await.unwrap();
    assert!(granted - killed < SECOND * 2 + NOISE, "{:?}", granted - killed);
    drop(proxy);
}

#[tokio::test]
async fn row_38_a_client_killed_while_it_releases_delays_others_by_its_lease_and_a_second() {
    behind_a_killed_releaser(false).await;
    behind_a_killed_releaser(true).await;
}

#[tokio::test]
async fn row_41_a_process_that_exits_delays_others_by_its_lease_and_a_second() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let mut holder = child("exit", SECOND * 2, &server.url());
    holder.wait_for("held");
    let waiter = wait(&north);
    holder.wait_for_end(LONG);
    let ended = Instant::now();
    let (_guard, granted) = waiter.await.unwrap();
    assert!(granted - ended < SECOND * 3 + NOISE, "{:?}", granted - ended);
}

#[tokio::test]
async fn row_77_a_terminated_process_releases_its_locks() {
    let server = Server::start();
    let north = manager(&server.url()).await;
    let mut holder = child("hold", LONG, &server.url());
    holder.wait_for("held");
    let waiter = wait(&north);
    wait_until_queued(&server).await;
    let told = Instant::now();
    holder.terminate();
    let (guard, granted) = waiter.await.unwrap();
    // The shutdown waits for holds for as long as the child has set, then ends them.
    assert!(granted - told < SECOND / 2 + SECOND, "{:?}", granted - told);
    holder.wait_for_end(LONG);
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn row_42_a_body_that_blocks_its_thread_is_renewed_anyway() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let request = manager.lock("p", "k").expire(Duration::from_millis(600)).renew(true);
    let body = async {
        std::thread::sleep(Duration::from_millis(1500));
        7
    };
    assert_eq!(request.run(body).await.unwrap(), 7);
}

#[tokio::test]
async fn row_42_a_body_that_blocks_its_thread_past_its_lease_ends_as_lost() {
    let server = Server::start();
    let manager = manager(&server.url()).await;
    let request = || manager.lock("p", "k").expire(Duration::from_millis(400)).renew(false);
    let outcome: Result<(), _> = request().run(async { std::thread::sleep(SECOND) }).await;
    assert!(matches!(outcome, Err(LockError::Lost { completed: true, .. })), "{outcome:?}");
    let mut steps = 0;
    let body = async {
        std::thread::sleep(SECOND);
        steps += 1;
        sleep(Duration::from_millis(1)).await;
        steps += 1;
    };
    let outcome = request().run(body).await;
    assert!(matches!(outcome, Err(LockError::Lost { completed: false, .. })), "{outcome:?}");
    assert_eq!(steps, 1);
}

/// Why a body that has sent a write is dropped.
#[derive(Clone, Copy, Debug)]
enum Dropped {
    CallerGone,
    MaxHold,
    Replaced,
}

/// What the next holder reads if the write of a dropped body takes 300 ms.
async fn found_by_the_next(server: &Server, end: Dropped, delay: Duration) -> Option<String> {
    let (manager, other) = (manager(&server.url()).await, manager(&server.url()).await);
    server.tell("DEL row");
    let address = server.address();
    let begun = Arc::new(Notify::new());
    let begins = Arc::clone(&begun);
    let body = async move {
        begins.notify_one();
        // The dropped body can't cancel this write.
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            let client = redis::Client::open(format!("redis://{address}")).unwrap();
            redis::cmd("SET").arg("row").arg("old").exec(&mut client.get_connection().unwrap()).unwrap();
        });
        std::future::pending::<()>().await;
    };
    let request = manager.lock("p", "k").timeout(LONG).lock_delay(delay);
    let request = if let Dropped::MaxHold = end { request.max_hold(Duration::from_millis(100)) } else { request };
    let first = tokio::spawn(request.run(body));
    begun.notified().await;
    let mut next = other.lock("p", "k").timeout(LONG);
    match end {
        Dropped::CallerGone => first.abort(),
        Dropped::MaxHold => {}
        Dropped::Replaced => next = next.on_busy(OnBusy::Replace),
    }
    next.run(async { server.ask::<Option<String>>("GET row") }).await.unwrap()
}

#[tokio::test]
async fn row_79_a_write_that_a_dropped_body_has_sent_arrives_before_the_next_holder_begins() {
    let server = Server::start();
    for end in [Dropped::CallerGone, Dropped::MaxHold, Dropped::Replaced] {
        let found = found_by_the_next(&server, end, Duration::ZERO).await;
        assert_eq!(found, None, "{end:?}: without a delay the write must arrive during the next hold");
        eventually("the write arrives", LONG, || server.ask::<Option<String>>("GET row").is_some()).await;
        let found = found_by_the_next(&server, end, Duration::from_millis(600)).await;
        assert_eq!(found.as_deref(), Some("old"), "{end:?}");
    }
}
