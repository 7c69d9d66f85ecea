//! A lock that is released by force, in many worlds: when the next task gets it, and what the holder's error says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt as _;
use server_model::ModelServer;
use tokio::time::{Instant, sleep};

use super::network::{Conditions, Network};
use super::process::connect;
use super::seeded::Bug;
use super::servers::model_server;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::timing::CLAIM;
use crate::{LockError, LockManager};

/// A bug has to show in this many worlds.
const WORLDS: u64 = 300;
/// More than all messages of a force take, both ways, including the body's end.
const SOON: Duration = Duration::from_millis(400);
const WAIT: Duration = Duration::from_secs(20);
/// How late the body's task is polled.
const BUSY: Duration = Duration::from_millis(20);
/// One way to the server.
const DELAY: Duration = Duration::from_millis(4);
/// A holder renews after a third of it.
const LEASE: Duration = Duration::from_secs(12);

/// Records that the body is dropped.
struct Body(Arc<AtomicBool>);

impl Drop for Body {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    overlap: bool,
    /// How long after the force the next task got the lock.
    next_after: Duration,
    /// Whether the holder's error says what happened.
    told: bool,
}

fn holder(locks: LockManager, is_running: Arc<AtomicBool>) -> tokio::task::JoinHandle<LockError> {
    tokio::spawn(async move {
        let body = async move {
            is_running.store(true, Ordering::SeqCst);
            let _body = Body(is_running);
            std::future::pending::<()>().await;
        };
        let mut held = std::pin::pin!(locks.lock("k", &0).expire(LEASE).run(body));
        // The body's task is busy with other work: it is polled late at each step.
        loop {
            if let Some(outcome) = held.as_mut().now_or_never() {
                return outcome.unwrap_err();
            }
            sleep(BUSY).await;
        }
    })
}

/// A body holds the lock, another process waits for it, and an operator releases it by force at a random time. With `parted` the holder
/// is cut off before that, for longer than a claim.
async fn play(seed: u64, bug: Option<Bug>, parted: bool) -> Shown {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    let mut random = Rng::with_seed(seed);
    let (_time, network) = (Simulated::begin(), Network::new(model_server(bug, None), 1.0, random.fork()));
    let delay = Duration::from_micros(random.u64(50..4000));
    network.set_conditions(Conditions { delay, ..Conditions::default() });
    let (one, other, operator) = (connect(&network, "p"), connect(&network, "q"), connect(&network, "o"));
    operator.inspect("k", &0).await.unwrap();
    let is_running = Arc::new(AtomicBool::new(false));
    let held = holder(one, Arc::clone(&is_running));
    while !is_running.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(1)).await;
    }
    let waits = random.bool();
    let forced_at = Cell::new(Instant::now());
    let next = async {
        if waits {
            sleep(Duration::from_millis(random.u64(0..30))).await;
        } else {
            sleep(Duration::from_millis(70)).await;
        }
        let guard = other.lock("k", &0).timeout(WAIT).acquire().await.unwrap();
        let overlap = is_running.load(Ordering::SeqCst);
        let next_after = forced_at.get().elapsed();
        guard.release().await.unwrap();
        (overlap, next_after)
    };
    let force = async {
        // Often just when the keeper confirms the hold: the refusal may arrive before the message.
        let mut random = Rng::with_seed(seed);
        let most = if random.bool() { 10_000 } else { 60_000 };
        sleep(Duration::from_micros(random.u64(0..most))).await;
        if parted {
            network.part("p", CLAIM * 2);
        }
        forced_at.set(Instant::now());
        assert!(operator.force_release("k", &0).await.unwrap());
    };
    let ((overlap, next_after), ()) = tokio::join!(next, force);
    let error = held.await.unwrap();
    assert!(error.is_lost(), "{error:?}");
    assert!(network.server(ModelServer::snapshot).iter().all(|(key, _)| key != "k:0"), "something is left");
    Shown { overlap, next_after, told: matches!(error, LockError::Lost { forced: true, .. }) }
}

fn shown(seed: u64, bug: Option<Bug>, parted: bool) -> Shown {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play(seed, bug, parted))
}

#[test]
fn the_next_owner_gets_the_lock_soon_and_only_after_the_body_is_dropped() {
    let mut told = 0;
    for seed in 0..WORLDS {
        let shown = shown(seed, None, false);
        assert!(!shown.overlap && shown.next_after < SOON, "SEED={seed}: {shown:?}");
        told += u64::from(shown.told);
    }
    assert_eq!(told, WORLDS, "not all holders learned the reason");
}

#[test]
fn a_holder_that_is_cut_off_keeps_the_lock_for_a_claim() {
    for seed in 0..WORLDS {
        let shown = shown(seed, None, true);
        let second = Duration::from_secs(1);
        assert!(shown.next_after > CLAIM * 9 / 10 && shown.next_after < CLAIM + second, "SEED={seed}: {shown:?}");
    }
}

/// The message of the force arrives before the task has read its grant. The hold is short, so no renewal reports the loss.
#[test]
fn a_grant_that_is_read_after_the_force_does_not_keep_others_out() {
    for bug in [None, Some(MARK_LEFT)] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (_time, network) = (Simulated::begin(), Network::new(model_server(bug, None), 1.0, Rng::with_seed(0)));
            let (one, other) = (connect(&network, "p"), connect(&network, "q"));
            one.lock("k", &0).run(async {}).await.unwrap();
            let mut acquiring = std::pin::pin!(one.lock("k", &0).acquire());
            assert!(acquiring.as_mut().now_or_never().is_none());
            sleep(BUSY).await;
            let start = Instant::now();
            let force = tokio::spawn(async move { other.force_release("k", &0).await });
            sleep(BUSY).await;
            let error = acquiring.await.unwrap().release().await.unwrap_err();
            assert!(matches!(error, LockError::Lost { completed: true, forced: true, .. }), "{error:?}");
            assert!(force.await.unwrap().unwrap());
            assert_eq!(start.elapsed() < SOON, bug.is_none(), "{:?}", start.elapsed());
        });
    }
}

/// How a hold ends, and a bug with which its end does not report the force, or with which a rest keeps others out.
const ENDS: [(&str, Bug); 5] = [
    ("release", Bug::Scripts(&[("owner == token .. FORCED and 2 or", "")])),
    ("release", Bug::Code(Mutant::AwaitedReleaseRepeated)),
    ("rest", Bug::Scripts(&[("value == token .. FORCED and 2 or", "")])),
    ("ticket", Bug::Scripts(&[("value == token .. FORCED and 2 or", "")])),
    ("release of a permit", Bug::Scripts(&[("or (removed or was_taken) and 2 or 0", "or 0")])),
];

/// The hold ends while the message of the force is on its way. When it arrives, the process no longer uses the token.
#[test]
fn a_hold_that_ends_before_it_is_notified_of_the_force_reports_it_however_it_ends() {
    for (end, bug) in ENDS.into_iter().flat_map(|(end, bug)| [(end, None), (end, Some(bug))]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
            let (_time, network) = (Simulated::begin(), Network::new(model_server(bug, None), 1.0, Rng::with_seed(0)));
            let (one, other) = (connect(&network, "p"), connect(&network, "q"));
            for manager in [&one, &other] {
                manager.inspect("k", &0).await.unwrap();
            }
            let request = one.lock("k", &0);
            let request = match end {
                "rest" => request.at_least(LEASE),
                "release of a permit" => request.permits(2),
                _ => request,
            };
            let guard = request.acquire().await.unwrap();
            network.move_away(DELAY * 2);
            let start = Instant::now();
            let force = tokio::spawn(async move { other.force_release("k", &0).await });
            // The server has executed the force, and its message is on its way.
            sleep(DELAY * 3 / 2).await;
            let ended = if end == "ticket" { guard.into_ticket(LEASE).await.map(drop) } else { guard.release().await };
            // A rest returns at once: its command goes to the store later.
            let is_told = match &ended {
                Ok(()) => end == "rest",
                Err(error) => matches!(error, LockError::Lost { forced: true, .. }),
            };
            assert!(force.await.unwrap().unwrap());
            let is_right = is_told && start.elapsed() < SOON;
            assert_eq!(is_right, bug.is_none(), "{end}, {bug:?}: {ended:?}, {:?}", start.elapsed());
        });
    }
}

/// The first waiter was granted the lock, and confirms it or draws its fencing token before its body begins.
#[test]
fn a_grant_that_was_taken_before_its_body_began_keeps_nobody_out() {
    for (is_fenced, bug) in [(false, None), (true, None), (false, UNUSED), (true, UNUSED)] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let _seeded = Seeded::begin(bug);
            let (_time, network) = (Simulated::begin(), Network::new(ModelServer::new(), 1.0, Rng::with_seed(0)));
            let [one, other, operator] = ["p", "q", "o"].map(|name| connect(&network, name));
            for manager in [&one, &other, &operator] {
                manager.inspect("k", &0).await.unwrap();
            }
            let held = other.lock("k", &0).acquire().await.unwrap();
            let next = one.lock("k", &0).timeout(WAIT).fenced(is_fenced).renew(false).expire(CLAIM).acquire();
            let next = tokio::spawn(next);
            sleep(BUSY).await;
            network.move_away(DELAY * 2);
            let start = Instant::now();
            let released = tokio::spawn(held.release());
            sleep(DELAY).await;
            assert!(operator.force_release("k", &0).await.unwrap());
            assert_eq!(start.elapsed() < SOON, bug.is_none(), "{is_fenced}, {bug:?}: {:?}", start.elapsed());
            released.await.unwrap().unwrap();
            next.await.unwrap().unwrap().release().await.unwrap();
        });
    }
}

const UNUSED: Option<Mutant> = Some(Mutant::UnusedMarkLeft);

/// The messages about the grant and the force are lost. The task asks again, and finds its own mark.
#[test]
fn a_grant_that_was_taken_before_its_process_learned_of_it_keeps_nobody_out() {
    let waits = Bug::Code(Mutant::ForcedAskWaits);
    let modes = [("claim", waits), ("alone", waits), ("read", OWN_MARK), ("permits", OWN_MARK)];
    for (mode, bug) in modes.into_iter().flat_map(|(mode, bug)| [(mode, None), (mode, Some(bug))]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
            let (_time, network) = (Simulated::begin(), Network::new(model_server(bug, None), 1.0, Rng::with_seed(0)));
            let [one, other, operator] = ["p", "q", "o"].map(|name| connect(&network, name));
            for manager in [&one, &other, &operator] {
                manager.inspect("k", &0).await.unwrap();
            }
            let held = if mode == "claim" { None } else { Some(other.lock("k", &0).acquire().await.unwrap()) };
            let request = one.lock("k", &0).timeout(WAIT);
            let request = match mode {
                "read" => request.read(),
                "permits" => request.permits(2),
                _ => request,
            };
            let next = tokio::spawn(request.acquire());
            // By then a claim is on its way, and any other ask is answered.
            sleep(if mode == "claim" { Duration::ZERO } else { BUSY }).await;
            network.move_away(DELAY * 2);
            let start = Instant::now();
            let released = tokio::spawn(async move { drop(held) });
            sleep(DELAY / 2).await;
            let force = tokio::spawn(async move { operator.force_release("k", &0).await });
            // The server has executed both.
            sleep(DELAY).await;
            network.cut(Some("p"));
            assert!(force.await.unwrap().unwrap());
            let is_soon = start.elapsed() < CLAIM / 2;
            assert_eq!(is_soon, bug.is_none(), "{mode}, {bug:?}: {:?}", start.elapsed());
            released.await.unwrap();
            next.await.unwrap().unwrap().release().await.unwrap();
        });
    }
}

const OWN_MARK: Bug = Bug::Scripts(&[("owner == SHARED .. FORCED and call_or", "false and call_or")]);

/// The reply to an adoption is lost, and the lock is taken from the adopter. The repeated adoption finds the adopter's mark.
#[test]
fn an_adopter_whose_lock_was_taken_before_it_had_its_reply_reports_it_and_keeps_nobody_out() {
    let unsaid = Bug::Scripts(&[("{ forced and 2 or 0 }", "{ 0 }")]);
    for (is_permit, bug) in [(false, None), (true, None), (false, Some(unsaid)), (true, Some(unsaid))] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (_time, network) = (Simulated::begin(), Network::new(model_server(bug, None), 1.0, Rng::with_seed(0)));
            let [giver, one, operator] = ["g", "p", "o"].map(|name| connect(&network, name));
            for manager in [&giver, &one, &operator] {
                manager.inspect("k", &0).await.unwrap();
            }
            let request = giver.lock("k", &0);
            let request = if is_permit { request.permits(2) } else { request };
            let ticket = request.acquire().await.unwrap().into_ticket(LEASE).await.unwrap();
            network.move_away(DELAY * 2);
            let start = Instant::now();
            let adopted = tokio::spawn(async move { one.adopt(ticket).await });
            sleep(DELAY / 2).await;
            let force = tokio::spawn(async move { operator.force_release("k", &0).await });
            // The server has executed both.
            sleep(DELAY).await;
            network.cut(Some("p"));
            let error = adopted.await.unwrap().unwrap_err();
            assert!(matches!(error, LockError::Lost { forced, .. } if forced == bug.is_none()), "{bug:?}: {error:?}");
            assert!(force.await.unwrap().unwrap());
            assert_eq!(start.elapsed() < CLAIM / 2, bug.is_none(), "{bug:?}: {:?}", start.elapsed());
        });
    }
}

/// A rest continues after its process is gone. There is no body, so nothing has to stop.
#[test]
fn a_rest_is_taken_at_once_also_when_its_process_is_gone() {
    let unknown = Bug::Scripts(&[("or ends_with(token, RESTS)", "")]);
    for (is_permit, bug) in [(false, None), (true, None), (false, Some(unknown)), (true, Some(unknown))] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (_time, network) = (Simulated::begin(), Network::new(model_server(bug, None), 1.0, Rng::with_seed(0)));
            let [gone, operator] = ["p", "o"].map(|name| connect(&network, name));
            let request = gone.lock("k", &0).at_least(LEASE);
            let request = if is_permit { request.permits(2) } else { request };
            request.acquire().await.unwrap().release().await.unwrap();
            sleep(BUSY).await;
            network.part("p", LEASE);
            let start = Instant::now();
            assert!(operator.force_release("k", &0).await.unwrap());
            assert_eq!(start.elapsed() < SOON, bug.is_none(), "{is_permit}, {bug:?}: {:?}", start.elapsed());
        });
    }
}

/// A bug, where it is, whether the holder is cut off, and what shows the bug.
type Case = (&'static str, Bug, bool, &'static str, fn(&Shown) -> bool);

const OVERLAP: &str = "the next body begins before the old body is dropped";
const LATE: &str = "the next one waits for longer than 0.4 s";

const MARK_LEFT: Bug = Bug::Scripts(&[("ownership > 0", "ownership == 1")]);

const CASES: [Case; 6] = [
    (
        "force.lua frees the lock at once",
        Bug::Scripts(&[("mark(lock, token, claim) --", "redis.call('DEL', lock) --")]),
        false,
        OVERLAP,
        |shown| shown.overlap,
    ),
    (
        "force.lua leaves a dead holder its lease",
        Bug::Scripts(&[("if redis.call('PEXPIRE', lock, claim, 'LT') == 1 then", "if false then")]),
        true,
        "the next one waits for longer than two claims",
        |shown| shown.next_after > CLAIM * 2,
    ),
    (
        "force.lua does not tell the holder",
        Bug::Scripts(&[("tell(token, 'forced '", "tostring(token .. 'forced '")]),
        false,
        LATE,
        |shown| shown.next_after > SOON,
    ),
    (
        "a forced lock is released before its body is dropped",
        Bug::Code(Mutant::ForcedBeforeBody),
        false,
        OVERLAP,
        |shown| shown.overlap,
    ),
    (
        "a force is forgotten when a refused renewal came first",
        Bug::Code(Mutant::ForcedAfterLoss),
        false,
        "the holder is not told that the lock was released by force",
        |shown| !shown.told,
    ),
    ("release.lua leaves the mark of a forced lock", MARK_LEFT, false, LATE, |shown| shown.next_after > SOON),
];

#[test]
fn each_bug_of_a_release_by_force_shows() {
    for (name, bug, parted, _, is_shown) in CASES {
        assert!((0..WORLDS).any(|seed| is_shown(&shown(seed, Some(bug), parted))), "{name}: not seen");
    }
}

#[test]
fn the_docs_list_each_bug_of_a_release_by_force() {
    let docs = include_str!("bugs.md");
    let (_, section) = docs.split_once("### Bugs of a release by force").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    assert_eq!(rows, CASES.map(|(name, _, _, shows, _)| format!("| {name} | {shows} |")));
}
