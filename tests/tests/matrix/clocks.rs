//! Steps of wall clocks: the server's, which decides when leases end, and a client's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_runtime::LockManager;
use tests::child::{self, Child};
use tests::clock::Clock;
use tests::events::Events;
use tests::patience::{NOISE, eventually};
use tests::server::Server;
use tokio::time::sleep;

use crate::crowd::Crowd;
use crate::{LATE, LONG, assert_granted_soon, manager, wait_until_confirmed, wait_until_lost, wait_until_queued};

const STEP: i64 = 40_000;

/// The one case in which two processes hold a lock at the same time, for which there are fencing tokens.
#[tokio::test]
async fn row_35_a_server_clock_that_steps_forward_ends_the_lease_and_the_next_fencing_token_is_greater() {
    let Some(server) = Server::with_clock() else { return };
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let lease = Duration::from_secs(3);
    let guard = north.lock("p", "k").expire(lease).renew(true).fenced(true).acquire().await.unwrap();
    wait_until_confirmed(&guard, Duration::from_millis(2700)).await;
    server.step_to(STEP);
    let stepped = Instant::now();
    let next = south.lock("p", "k").fenced(true).timeout(LONG).acquire().await.unwrap();
    assert!(stepped.elapsed() < Duration::from_secs(1) + NOISE, "{:?}", stepped.elapsed());
    assert!(next.fencing_token() > guard.fencing_token());
    wait_until_lost(&guard).await;
    assert!(stepped.elapsed() < lease / 3 + LATE + NOISE, "{:?}", stepped.elapsed());
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(next.is_valid());
    // Waiters and hand-offs still work: each ask tells the process the server's time.
    let waiter = tokio::spawn(north.lock("p", "k").timeout(LONG).acquire());
    wait_until_queued(&server).await;
    next.release().await.unwrap();
    let released = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(1) + LATE + NOISE, "{:?}", released.elapsed());
}

#[tokio::test]
async fn row_35_a_server_clock_that_steps_back_only_keeps_a_crashed_holders_lock_for_longer() {
    let Some(server) = Server::with_clock() else { return };
    let crowd = Crowd::on(&server.url()).await;
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let lease = Duration::from_millis(900);
    let guard = north.lock("p", "k").expire(lease).renew(false).fenced(true).acquire().await.unwrap();
    let fence = guard.fencing_token();
    let waiter = tokio::spawn(south.lock("p", "k").timeout(LONG).fenced(true).acquire());
    wait_until_queued(&server).await;
    server.step_to(-STEP);
    // The holder uses its own clock, and releases the lock when its hold is over.
    wait_until_lost(&guard).await;
    drop(guard);
    let lost = Instant::now();
    let next = waiter.await.unwrap().unwrap();
    assert!(lost.elapsed() < Duration::from_secs(1) + LATE + NOISE, "{:?}", lost.elapsed());
    assert!(next.fencing_token() > fence);
    next.release().await.unwrap();
    for step in 1..10 {
        server.step_to(-STEP - step * 1000);
        sleep(Duration::from_millis(100)).await;
    }
    assert_granted_soon(&north).await.release().await.unwrap();
    crowd.ends_well(&server).await;
}

/// No test: a child process whose clock the parent steps.
#[tokio::test]
async fn child_process() {
    let Some(url) = child::role() else { return };
    let locks = manager(&url).await;
    let guard = locks.lock("p", "k").acquire().await.unwrap();
    wait_until_confirmed(&guard, LONG).await;
    child::say("held");
    wait_until_lost(&guard).await;
    child::say("lost");
    guard.release().await.unwrap_err();
    locks.shutdown().await;
}

#[tokio::test]
async fn row_36_a_client_whose_wall_clock_steps_forward_gives_its_hold_up_early() {
    let Some(clock) = Clock::new() else { return };
    let server = Server::start();
    let mut command = child::command(Some("clocks::child_process"), &server.url());
    clock.give(&mut command);
    let mut child = Child::by(&mut command);
    child.wait_for("held");
    // A step back changes nothing, because the process also uses other clocks.
    clock.step_to(-STEP);
    sleep(Duration::from_secs(2)).await;
    assert!(server.owner("p:k").is_some());
    clock.step_to(STEP);
    let stepped = Instant::now();
    child.wait_for("lost");
    assert!(stepped.elapsed() < Duration::from_secs(1) + LATE + NOISE, "{:?}", stepped.elapsed());
    eventually("it is released", Duration::from_secs(2), || server.owner("p:k").is_none()).await;
    child.wait_for_end(LONG);
}

/// chrony by default slews the server's clock by up to a twelfth, which is more than leases allow for by default.
#[tokio::test]
async fn row_53_a_server_clock_that_is_slewed_too_fast_is_reported_and_can_be_allowed_for() {
    const LEASE: Duration = Duration::from_secs(4);
    let Some(server) = Server::with_clock() else { return };
    let (server, events) = (Arc::new(server), Events::of_this_process());
    let clock = Arc::clone(&server);
    let start = Instant::now();
    let slewing = tokio::spawn(async move {
        loop {
            clock.step_to(i64::try_from(start.elapsed().as_millis()).unwrap() / 12);
            sleep(Duration::from_millis(6)).await;
        }
    });
    // How many milliseconds longer the server keeps the lock than its holder believes, after two seconds with this clock.
    let margin = async |key, ppm| {
        let locks = LockManager::builder().url(&server.url()).max_clock_drift_ppm(ppm).connect().await.unwrap();
        let guard = locks.lock("p", key).expire(LEASE).renew(false).acquire().await.unwrap();
        wait_until_confirmed(&guard, Duration::from_millis(2600)).await;
        sleep(Duration::from_secs(2)).await;
        loop {
            let asked = Instant::now();
            let believed = i64::try_from(guard.remaining().as_millis()).unwrap();
            let kept = server.ask::<i64>(&format!("PTTL p:{key}"));
            // If the machine paused in between, the two values are from different instants.
            if asked.elapsed() < Duration::from_millis(20) {
                return kept - believed;
            }
            sleep(Duration::from_millis(6)).await;
        }
    };
    let (usual, wide) = tokio::join!(margin("usual", 10_000), margin("wide", 166_667));
    assert!(usual < 0, "this clock is not too fast for the usual allowance: {usual} ms");
    assert!(wide > 0, "{wide} ms");
    let (north, south) = (manager(&server.url()).await, manager(&server.url()).await);
    let _guard = north.lock("p", "k").acquire().await.unwrap();
    let told = || events.with(&["WARN", "max_clock_drift_ppm", "allowed_ppm=10000", "measured_ppm=8"]).len();
    let asked = Instant::now();
    while told() == 0 {
        assert!(asked.elapsed() < LONG + LONG, "{:?}", events.with(&["WARN"]));
        let _ = south.lock("p", "k").timeout(Duration::from_millis(300)).acquire().await;
    }
    // The warning is not repeated.
    for _ in 0..25 {
        let _ = south.lock("p", "k").timeout(Duration::from_millis(300)).acquire().await;
    }
    assert_eq!(told(), 1);
    slewing.abort();
}
