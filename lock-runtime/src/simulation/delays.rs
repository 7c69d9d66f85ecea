//! Rule 23, after a body that was dropped before its end: its commands may still arrive, and until then the lock can't be acquired. Each
//! test also shows what happens with a bug.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};

use super::network::{Conditions, Network};
use super::process::connect;
use super::seeded::Bug;
use super::servers::model_server;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::mutex::Mutex;
use crate::{LockManager, LockRequest, OnBusy};

/// Longer than the lease, and longer than a shutdown lets a body run.
const DELAY: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_millis(300);
/// The body is dropped after this time.
const HELD: Duration = Duration::from_secs(1);
/// From the middle of the delay, plus a few messages, to just before its end.
const BEFORE_THE_END: Duration = Duration::from_millis(350);
/// What a few messages take.
const MESSAGES: Duration = Duration::from_millis(100);
/// How late a waiting process may be without a message: it asks every second.
const BEAT: Duration = Duration::from_millis(1100);

/// Why a body is dropped early.
#[derive(Clone, Copy, Debug)]
enum End {
    CallerGone,
    /// The caller goes away, and then the process dies.
    Dies,
    MaxHold,
    Forced,
    Replaced,
    /// The request that replaced it is replaced while the lock rests.
    ReplacedTwice,
    /// Another task of its own process waits.
    BesideItself,
    ShutDown,
}

fn request(locks: &LockManager) -> LockRequest {
    locks.lock("k", &0).timeout(DELAY * 100)
}

/// Records when it is dropped.
struct Dropped(Arc<Mutex<Option<Instant>>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        *self.0.lock() = Some(Instant::now());
    }
}

/// How long after the body is dropped the next waiter gets the lock.
async fn passed_on(end: End, bug: Option<Bug>) -> Duration {
    let (_time, network) = (Simulated::begin(), Network::new(model_server(bug, None), 1.0, Rng::with_seed(0)));
    network.set_conditions(Conditions { delay: Duration::from_millis(4), ..Conditions::default() });
    let [held, other, third] = ["p", "q", "r"].map(|name| connect(&network, name));
    let dropped = Arc::new(Mutex::new(None));
    let first = request(&held).expire(LEASE).lock_delay(DELAY);
    let first = if matches!(end, End::MaxHold) { first.max_hold(HELD) } else { first };
    let tells = Dropped(Arc::clone(&dropped));
    let body = tokio::spawn(first.run(async move {
        let _tells = tells;
        std::future::pending::<()>().await;
    }));
    sleep(HELD / 2).await;
    let replacing = |locks: &LockManager| tokio::spawn(request(locks).on_busy(OnBusy::Replace).acquire());
    let next = match end {
        End::Replaced => replacing(&other),
        End::ReplacedTwice => {
            let older = replacing(&other);
            sleep(MESSAGES * 2).await;
            let newest = replacing(&third);
            if older.await.unwrap().is_ok() {
                // It had the lock before the newer request arrived.
                return Duration::ZERO;
            }
            newest
        }
        End::BesideItself => tokio::spawn(request(&held).acquire()),
        _ => tokio::spawn(request(&other).acquire()),
    };
    sleep(MESSAGES).await;
    match end {
        End::CallerGone | End::BesideItself => body.abort(),
        End::Dies => {
            body.abort();
            sleep(MESSAGES).await;
            network.part("p", DELAY * 100);
        }
        End::Forced => assert!(third.force_release("k", &0).await.unwrap()),
        End::ShutDown => held.shutdown().await,
        End::MaxHold => {
            sleep(BEFORE_THE_END).await;
            // The commands at the end of the hold take longer than its last renewal did.
            network.set_conditions(Conditions { delay: MESSAGES / 2, ..Conditions::default() });
        }
        End::Replaced | End::ReplacedTwice => {}
    }
    let guard = next.await.unwrap().unwrap();
    let dropped = dropped.lock().expect("the body is dropped first");
    let after = dropped.elapsed();
    guard.release().await.unwrap();
    after
}

fn after(end: End, bug: Option<Bug>) -> Duration {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(passed_on(end, bug))
}

const NOT_FORCED: Bug = Bug::Scripts(&[("or (is_delay and value == token .. FORCED)", "")]);
const NOT_LENGTHENED: Bug = Bug::Scripts(&[("    if is_delay then\n", "    if false then\n")]);
const ENDED_BY_THE_NEWEST: Bug = Bug::Scripts(&[(" and not is_delayed(owner)", "")]);

#[test]
fn a_lock_rests_after_a_body_that_was_dropped_before_its_end() {
    let nothing = Bug::Code(Mutant::NotDelayed);
    let cases = [
        (End::CallerGone, MESSAGES, &[nothing, NOT_LENGTHENED][..]),
        (End::Dies, BEAT, &[nothing, NOT_LENGTHENED]),
        (End::MaxHold, MESSAGES * 2, &[nothing, NOT_LENGTHENED, Bug::Code(Mutant::NoTimeToRest)]),
        (End::Forced, MESSAGES, &[nothing, NOT_FORCED, NOT_LENGTHENED]),
        (End::Replaced, MESSAGES, &[nothing, NOT_FORCED, NOT_LENGTHENED]),
        (End::ReplacedTwice, MESSAGES, &[nothing, NOT_FORCED, ENDED_BY_THE_NEWEST]),
        (End::BesideItself, MESSAGES, &[nothing]),
        (End::ShutDown, BEAT, &[nothing]),
    ];
    for (end, late, bugs) in cases {
        let passed_on = after(end, None);
        assert!(passed_on >= DELAY && passed_on <= DELAY + late, "{end:?}: {passed_on:?}");
        for bug in bugs {
            let passed_on = after(end, Some(*bug));
            assert!(passed_on < DELAY, "{end:?} {bug:?}: {passed_on:?}");
        }
    }
}
