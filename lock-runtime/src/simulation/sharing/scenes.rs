//! Late readers: late to the hold that they were woken for, or to the reply that they wait for.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt as _;
use server_model::ModelServer;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{LEASE, PATIENT};
use crate::error::LossReason;
use crate::mutants::{Mutant, Seeded};
use crate::simulation::network::{Conditions, Network};
use crate::simulation::process::connect;
use crate::simulation::seeded::Bug;
use crate::simulation::servers::model_server;
use crate::simulation::time::Simulated;
use crate::{LockError, LockManager};

/// Readers that were woken and are never polled: only then does it matter that the keeper expels them.
#[test]
fn a_reader_that_was_woken_and_is_not_polled_does_not_keep_a_writer_out() {
    let wait = |bug: Option<Mutant>| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(writers_wait(bug))
    };
    assert!(wait(None) < Duration::from_millis(200), "{:?}", wait(None));
}

async fn writers_wait(bug: Option<Mutant>) -> Duration {
    let _seeded = Seeded::begin(bug);
    let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
    let (one, other) = (connect(&network, "p"), connect(&network, "q"));
    let request = |locks: &LockManager| locks.lock("k", &0).timeout(PATIENT);
    let writer = request(&other).acquire().await.unwrap();
    let mut first = Box::pin(request(&one).read().acquire());
    let mut stuck = Box::pin(request(&one).read().acquire());
    assert!(timeout(Duration::from_millis(20), first.as_mut()).await.is_err());
    assert!(stuck.as_mut().now_or_never().is_none());
    let next = request(&other).acquire();
    let next = tokio::spawn(next);
    sleep(Duration::from_millis(20)).await;
    writer.release().await.unwrap();
    let reader = first.await.unwrap();
    let start = Instant::now();
    reader.release().await.unwrap();
    let granted = timeout(Duration::from_secs(5), next).await;
    let waited = start.elapsed();
    drop(granted);
    drop(stuck);
    waited
}

/// A reader that was passed over keeps its place. When it is woken there, it joins the hold, although no other reader may join that hold
/// any longer.
#[test]
fn a_reader_that_was_late_before_joins_the_hold_for_which_it_is_woken() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
        let [readers, one, other] = ["p", "q", "r"].map(|name| connect(&network, name));
        let acquire = |locks: &LockManager| locks.lock("k", &0).timeout(PATIENT).acquire();
        let writer = acquire(&one).await.unwrap();
        let mut reads = [(); 2].map(|()| Box::pin(readers.lock("k", &0).timeout(PATIENT).read().acquire()));
        for read in &mut reads {
            assert!(timeout(Duration::from_millis(20), read).await.is_err());
        }
        let next = tokio::spawn(acquire(&other));
        sleep(Duration::from_millis(20)).await;
        writer.release().await.unwrap();
        // No reader is polled, so the next writer gets the lock. Then the readers ask again, and the first writer behind them.
        let writer = next.await.unwrap().unwrap();
        for read in &mut reads {
            assert!(timeout(Duration::from_millis(20), read).await.is_err());
        }
        let last = tokio::spawn(acquire(&one));
        sleep(Duration::from_millis(20)).await;
        writer.release().await.unwrap();
        let [first, second] = reads;
        let first = first.await.unwrap();
        let second = timeout(Duration::from_millis(20), second).await.expect("it joins the first").unwrap();
        drop((first, second));
        last.await.unwrap().unwrap().release().await.unwrap();
        sleep(LEASE).await;
        assert_eq!(readers.stats().keys, 0);
    });
}

/// A reader that joins another reader's hold asks only for a fencing token. The reply arrives in time, but the task reads it late.
#[tokio::test(start_paused = true)]
async fn a_reader_that_is_polled_too_late_is_not_granted_its_fencing_token() {
    for bug in [None, Some(Mutant::LateDrawGranted)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
        let locks = connect(&network, "p");
        let first = locks.lock("k", &0).read().acquire().await.unwrap();
        let request = locks.lock("k", &0).read().fenced(true).timeout(Duration::from_millis(500));
        let mut late = Box::pin(request.acquire());
        assert!(late.as_mut().now_or_never().is_none());
        sleep(Duration::from_millis(700)).await;
        let told = late.await;
        assert_eq!(told.is_ok(), bug.is_some(), "{told:?}");
        assert!(bug.is_some() || told.as_ref().is_err_and(LockError::is_timeout), "its time is over: {told:?}");
        drop(told);
        first.release().await.unwrap();
        sleep(LEASE).await;
        assert_eq!(locks.stats().keys, 0);
    }
}

/// The list of shared leases outlives the lock's own key, which an operator deleted.
#[test]
fn what_is_left_of_earlier_shared_leases_does_not_come_back() {
    for bug in [None, Some(Bug::Scripts(&[("    redis.call('DEL', shares.of(lock))\n", "")]))] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (_time, network) = (Simulated::begin(), Network::new(model_server(bug, None), 1.0, Rng::with_seed(0)));
            let [gone, reader, writer] = ["p", "q", "r"].map(|name| connect(&network, name));
            let request = |locks: &LockManager| locks.lock("k", &0).timeout(PATIENT).expire(LEASE);
            let _lost = request(&gone).read().acquire().await.unwrap();
            sleep(Duration::from_millis(50)).await;
            network.part("p", PATIENT);
            network.execute(&["DEL", "k:0"]);
            request(&reader).read().acquire().await.unwrap().release().await.unwrap();
            let start = Instant::now();
            drop(request(&writer).acquire().await.unwrap());
            assert_eq!(start.elapsed() < Duration::from_millis(200), bug.is_none(), "{:?}, {bug:?}", start.elapsed());
        });
    }
}

/// A reader that joins others draws its fencing token, and its hold is lost before the token arrives.
#[tokio::test(start_paused = true)]
async fn a_reader_whose_hold_is_lost_while_its_token_is_drawn_starts_again() {
    for bug in [None, Some(Mutant::LostWhileDrawn)] {
        let _seeded = Seeded::begin(bug);
        let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
        network.move_away(Duration::from_millis(200));
        let locks = connect(&network, "p");
        let request = || locks.lock("k", &0).timeout(PATIENT).read();
        let _reader = request().acquire().await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let loss = async {
            sleep(Duration::from_millis(150)).await;
            locks.core().table().all().iter().for_each(|slot| locks.core().revoke(slot, None, LossReason::NotKnown));
        };
        let (joined, ()) = tokio::join!(biased; request().fenced(true).acquire(), loss);
        assert_eq!(joined.unwrap().is_valid(), bug.is_none(), "{bug:?}");
    }
}

/// What kept new readers of a process out, and is now gone.
#[derive(Clone, Copy, Debug)]
enum Gone {
    Writer,
    Process,
    WaiterForPermit,
}

/// The process gets no message when those are gone for whom its readers wait.
#[tokio::test(start_paused = true)]
async fn readers_join_again_when_the_waiters_they_wait_for_are_gone() {
    for gone in [Gone::Writer, Gone::Process, Gone::WaiterForPermit] {
        for bug in [None, Some(Mutant::WaiterNeverGone)] {
            let _seeded = Seeded::begin(bug);
            let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
            let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
            let read = || locks.lock("k", &0).read().linger(Duration::from_millis(100));
            read().acquire().await.unwrap().release().await.unwrap();
            sleep(LEASE).await;
            let stays = read().acquire().await.unwrap();
            sleep(LEASE).await;
            let brief = Duration::from_millis(20);
            let mut write = Box::pin(others.lock("k", &0).timeout(PATIENT).acquire());
            match gone {
                Gone::Writer => assert!(others.lock("k", &0).timeout(brief).acquire().await.is_err()),
                Gone::Process => {
                    assert!(timeout(brief, &mut write).await.is_err());
                    network.part("q", PATIENT);
                }
                Gone::WaiterForPermit => {
                    assert!(locks.lock("k", &0).permits(1).timeout(brief).acquire().await.is_err());
                }
            }
            assert!(read().try_acquire().await.unwrap().is_none(), "{gone:?}");
            let start = Instant::now();
            let joined = read().timeout(Duration::from_secs(9)).acquire().await;
            assert_eq!(joined.is_ok(), bug.is_none(), "{gone:?} {bug:?}: {joined:?}");
            assert!(bug.is_some() || start.elapsed() < Duration::from_secs(3), "{gone:?}: {:?}", start.elapsed());
            drop((joined, stays));
        }
    }
}

/// Rule 13: a lost lease is released after its readers' bodies. A reader that was taken back has none.
#[tokio::test(start_paused = true)]
async fn a_lost_lock_does_not_wait_for_the_body_of_a_reader_that_left_its_hold() {
    for is_of_set in [false, true] {
        for bug in [None::<Mutant>] {
            let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
            let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
            let second = others.lock("k", &1).acquire().await.unwrap();
            let reader = tokio::spawn(locks.lock("k", &0).read().run(std::future::pending::<()>()));
            sleep(Duration::from_millis(50)).await;
            network.set_conditions(Conditions { delay: Duration::from_millis(1), ..Conditions::default() });
            let fenced = locks.lock("k", &0).read().fenced(true).run(async {});
            let set = locks.lock_all("k", [0, 1]).read().timeout(PATIENT).run(async {});
            let (mut fenced, mut set) = (Box::pin(fenced), Box::pin(set));
            if is_of_set {
                assert!(timeout(Duration::from_millis(100), &mut set).await.is_err());
            } else {
                assert!((&mut fenced).now_or_never().is_none());
            }
            assert_eq!(locks.stats().held, 2, "it has joined");
            sleep(Duration::from_secs(3)).await;
            assert_eq!(locks.stats().held, 1, "it no longer has a part");
            drop((fenced, set, second));
            let start = Instant::now();
            assert!(others.force_release("k", &0).await.unwrap());
            assert!(reader.await.unwrap().is_err());
            let forced_in = start.elapsed();
            assert_eq!(forced_in < Duration::from_millis(100), bug.is_none(), "{forced_in:?} {bug:?} {is_of_set}");
            sleep(LEASE).await;
            assert_eq!(locks.stats().keys == 0, bug.is_none(), "{bug:?} {is_of_set}");
        }
    }
}

/// A writer's lease expires, and a reader has waited for that. Another reader arrives, and the server passes the free lock on, first to the
/// waiting reader.
#[tokio::test(start_paused = true)]
async fn a_reader_that_arrives_when_the_lock_has_expired_shares_it_with_the_waiting_reader() {
    let ends = Duration::from_secs(1);
    for bug in [
        None,
        Some(Bug::Scripts(&[("  end\n  if owner == SHARED and not redis", "  elseif owner == SHARED and not redis")])),
    ] {
        let mut at_once = Vec::new();
        for offset in 0..12 {
            let (_time, network) = (Simulated::begin(), Network::new(model_server(bug, None), 1.0, Rng::with_seed(0)));
            let [writer, waits, comes] = ["p", "q", "r"].map(|name| connect(&network, name));
            for locks in [&waits, &comes] {
                locks.inspect("k", &0).await.unwrap();
            }
            let start = Instant::now();
            let _ticket = writer.lock("k", &0).acquire().await.unwrap().into_ticket(ends).await.unwrap();
            let waiting = tokio::spawn(waits.lock("k", &0).read().timeout(PATIENT).acquire());
            sleep_until(start + ends + Duration::from_micros(250) * offset).await;
            let start = Instant::now();
            drop(comes.lock("k", &0).read().timeout(PATIENT).acquire().await.unwrap());
            at_once.push(start.elapsed() < Duration::from_millis(50));
            assert!(waiting.await.unwrap().is_ok());
        }
        assert_eq!(at_once.iter().all(|at_once| *at_once), bug.is_none(), "{at_once:?}");
    }
    let writer = LockManager::in_memory();
    let [waits, comes] = [(); 2].map(|()| LockManager::builder().in_memory_with(&writer).unwrap());
    let _ticket = writer.lock("k", &0).acquire().await.unwrap().into_ticket(ends).await.unwrap();
    let _waiting = tokio::spawn(waits.lock("k", &0).read().timeout(PATIENT).acquire());
    sleep(ends).await;
    assert!(comes.lock("k", &0).read().try_acquire().await.unwrap().is_some());
}
