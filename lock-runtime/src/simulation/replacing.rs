//! A lock that the newest request takes from its holder, in many worlds: who holds it next, and when.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};

use super::network::{Conditions, Network};
use super::process::connect;
use super::seeded::Bug;
use super::servers::{choose_delete, model_server};
use super::tests::in_each_world;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::{LockError, LockManager, OnBusy};

/// A bug has to show in this many worlds.
const WORLDS: u64 = 300;
/// More than all messages take, both ways.
const SOON: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    overlap: bool,
    /// Whether a task that only waited got the lock before the newest.
    overtaken: bool,
    /// How long the newest waited.
    after: Duration,
    /// Whether the replaced requests say that they were replaced, and no other request failed.
    told: bool,
}

/// Records that a body runs, and that it is dropped.
struct Body<'a>(&'a AtomicBool);

impl<'a> Body<'a> {
    fn begin(is_running: &'a AtomicBool) -> (Self, bool) {
        let overlap = is_running.swap(true, Ordering::SeqCst);
        (Self(is_running), overlap)
    }
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Does not poll `task` while its thread is busy. Afterwards it is polled when another task is, and soon in any case. So a grant often
/// finds two tasks that are about to be polled, in either order.
async fn unless_busy<T>(busy_until: &Cell<Option<Instant>>, task: impl Future<Output = T>) -> T {
    let mut task = pin!(task);
    let mut timer = pin!(sleep(Duration::ZERO));
    poll_fn(|context| {
        if let Some(until) = busy_until.get().filter(|until| *until > Instant::now()) {
            timer.as_mut().reset(until + SOON);
            let _ = timer.as_mut().poll(context);
            return Poll::Pending;
        }
        task.as_mut().poll(context)
    })
    .await
}

/// A body holds the lock and never ends. Tasks wait for the lock, one of them in the process of the newest; then the newest arrives.
async fn play(seed: u64, bug: Option<Bug>) -> Shown {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    let mut random = Rng::with_seed(seed);
    let server = model_server(bug, choose_delete(&random));
    let (_time, network) = (Simulated::begin(), Network::new(server, 1.0, random.fork()));
    let (one, other, newest) = (connect(&network, "p"), connect(&network, "q"), connect(&network, "r"));
    for manager in [&one, &other, &newest] {
        manager.inspect("k", &1).await.unwrap();
    }
    // In some worlds a reply takes so long that the keeper repeats the ask.
    let most = if random.bool() { 4000 } else { 150_000 };
    let delay = Duration::from_micros(random.u64(50..most));
    network.set_conditions(Conditions { delay, ..Conditions::default() });
    let is_beside = random.u8(..4) == 0;
    let holder = if is_beside { &newest } else { &one };
    let is_running = AtomicBool::new(false);
    let order = Mutex::new(Vec::new());
    let overlaps = AtomicBool::new(false);
    let began = AtomicBool::new(false);
    let body = |name: &'static str, ends: bool| {
        let (is_running, overlaps, order, began) = (&is_running, &overlaps, &order, &began);
        async move {
            let (_body, overlap) = Body::begin(is_running);
            overlaps.fetch_or(overlap, Ordering::SeqCst);
            order.lock().unwrap().push(name);
            began.store(true, Ordering::SeqCst);
            if !ends {
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let request = |manager: &LockManager| manager.lock("k", &0).timeout(WAIT).expire(LEASE);
    let held = async { request(holder).run(body("holder", false)).await.unwrap_err() };
    let begun = async || {
        while !began.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let waits = async |manager: &LockManager, name| {
        begun().await;
        request(manager).run(body(name, true)).await
    };
    let pause = Duration::from_micros(random.u64(0..600_000));
    // In some worlds the thread of the newest's sibling is busy when the newest goes ahead of it.
    let busy = Duration::from_micros(if random.bool() { random.u64(0..3 * most) } else { 0 });
    let busy_until = Cell::new(None);
    let replaces = async {
        begun().await;
        sleep(pause).await;
        let start = Instant::now();
        busy_until.set(Some(start + busy));
        let outcome = request(&newest).on_busy(OnBusy::Replace).run(async {
            let after = start.elapsed();
            body("newest", true).await;
            after
        });
        outcome.await.unwrap_or(WAIT)
    };
    let beside = unless_busy(&busy_until, waits(&newest, "beside"));
    let (error, after, there, beside) = tokio::join!(held, replaces, waits(&other, "there"), beside);
    // The release of a holder in the newest's process may reach the server first. Then the lock goes to a waiter, and is taken again.
    let is_replaced = |error: &LockError| is_beside && matches!(error, LockError::Lost { forced: true, .. });
    let served = beside.is_ok() && (there.is_ok() || there.is_err_and(|error| is_replaced(&error)));
    let order = order.into_inner().unwrap();
    Shown {
        overlap: overlaps.load(Ordering::SeqCst),
        overtaken: !is_beside && order.get(1) != Some(&"newest"),
        after,
        told: matches!(error, LockError::Lost { completed: false, forced: true, .. }) && served,
    }
}

fn shown(seed: u64, bug: Option<Bug>) -> Shown {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LEASE * 3, play(seed, bug)).await.unwrap_or(NEVER) })
}

/// What a world shows if it does not end: the holder never learns of the replacement.
const NEVER: Shown = Shown { overlap: false, overtaken: false, after: LEASE, told: false };

#[test]
fn every_promise_is_kept_when_the_newest_replaces() {
    in_each_world(WORLDS, |seed| {
        let shown = shown(seed, None);
        let is_right = !shown.overlap && !shown.overtaken && shown.told && shown.after < SOON;
        if is_right { Vec::new() } else { vec![format!("{shown:?}")] }
    });
}

/// A bug, where it is, and what shows the bug.
type Case = (&'static str, Bug, &'static str, fn(&Shown) -> bool);

const FIRST: &str = "a task that waits has the lock before the newest";
const LATE: &str = "the newest waits for longer than 2 s";
const OLDER: &str = "a request begins although a newer one has come";

const CASES: [Case; 3] = [
    (
        "replace.lua puts the newest behind the others",
        Bug::Scripts(&[("local FIRST = -1", "local FIRST = now()")]),
        FIRST,
        |shown| shown.overtaken,
    ),
    (
        "replace.lua does not take the lock",
        Bug::Scripts(&[(
            "elseif is_new and not may_be_data(lock, owner) and not is_delayed(owner) then\n      take(lock, queue, owner, stop, token)",
            "end\n    if false then",
        )]),
        LATE,
        |shown| shown.after > SOON,
    ),
    ("the newest comes behind the others here", Bug::Code(Mutant::NewestComesLast), FIRST, |shown| shown.overtaken),
];

/// A bug's name, the bug, the check that finds it, and the storms in which it can show.
type SeededInStorm = (&'static str, Bug, &'static str, fn(&Storm) -> bool);

/// Bugs that show when several requests replace, one after another.
const OF_SEVERAL: [SeededInStorm; 3] = [
    (
        "replace.lua lets an older request wait",
        Bug::Scripts(&[("if not is_newest and not is_new then", "if false then")]),
        OLDER,
        |shown| shown.older_ran,
    ),
    ("an older request waits on in its process", Bug::Code(Mutant::OlderWaitsOn), OLDER, |shown| shown.older_ran),
    (
        "a request that was told that it came comes anew",
        Bug::Scripts(&[(
            "return newest, place == 1, not place and not (is_answered and newest ~= '')",
            "return newest, false, true",
        )]),
        OLDER,
        |shown| shown.older_ran,
    ),
];

#[test]
fn each_bug_of_a_replacement_shows() {
    for (name, bug, _, is_shown) in CASES {
        assert!((0..WORLDS).any(|seed| is_shown(&shown(seed, Some(bug)))), "{name}: not seen");
    }
    for (name, bug, _, is_shown) in OF_SEVERAL {
        let is_shown = |shown: Option<Storm>| shown.is_none_or(|shown| is_shown(&shown));
        assert!((0..WORLDS).any(|seed| is_shown(shown_by_storm(seed, Some(bug)))), "{name}: not seen");
    }
}

#[test]
fn the_docs_list_each_bug_of_a_replacement() {
    let docs = include_str!("bugs.md");
    let (_, section) = docs.split_once("### Bugs of a replacement").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap_or((section, ""));
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let of_one = CASES.iter().map(|(name, _, shows, _)| (name, shows));
    let all = of_one.chain(OF_SEVERAL.iter().map(|(name, _, shows, _)| (name, shows)));
    assert_eq!(rows, all.map(|(name, shows)| format!("| {name} | {shows} |")).collect::<Vec<_>>());
}

/// One process gets two calls, and the second one replaces the first. The first fails by itself, and hands over no lease.
#[tokio::test(start_paused = true)]
async fn an_older_call_does_not_wait_for_the_end_of_a_newer_one() {
    for bug in [None, Some(Mutant::OlderWaitsOn)] {
        let _seeded = Seeded::begin(bug);
        let network = Network::new(model_server(None, None), 1.0, Rng::with_seed(0));
        let (_time, locks) = (Simulated::begin(), connect(&network, "p"));
        locks.inspect("k", &1).await.unwrap();
        network.set_conditions(Conditions { delay: Duration::from_millis(4), ..Conditions::default() });
        let replace = || {
            let request = locks.lock("k", &0).timeout(WAIT).on_busy(OnBusy::Replace);
            tokio::spawn(request.run(sleep(Duration::from_secs(1))))
        };
        let (older, newer) = (replace(), replace());
        assert!(newer.await.unwrap().is_ok());
        assert_eq!(is_replaced(&older.await.unwrap()), bug.is_none(), "{bug:?}");
    }
}

fn is_replaced<T>(outcome: &Result<T, LockError>) -> bool {
    matches!(outcome, Err(LockError::Lost { completed: false, forced: true, .. }))
}

/// What a world shows in which several requests replace a holder that can't stop at once.
#[derive(Clone, Debug, Default)]
struct Storm {
    overlap: bool,
    /// Whether a request began after a newer one had arrived.
    older_ran: bool,
    /// How long a request that had not begun kept waiting after a newer one had arrived.
    late: Duration,
    /// Whether all but the newest learned that they were replaced.
    told: bool,
}

const STORM: usize = 4;

/// A body holds the lock, and its thread is busy: it can't be dropped. Requests that replace it arrive one after another, in any process.
async fn play_storm(seed: u64, bug: Option<Bug>) -> Storm {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    let mut random = Rng::with_seed(seed);
    let server = model_server(bug, choose_delete(&random));
    let (_time, network) = (Simulated::begin(), Network::new(server, 1.0, random.fork()));
    let managers = [connect(&network, "p"), connect(&network, "q"), connect(&network, "r")];
    for manager in &managers {
        manager.inspect("k", &1).await.unwrap();
    }
    let most = if random.bool() { 4000 } else { 150_000 };
    let delay = Duration::from_micros(random.u64(50..most));
    network.set_conditions(Conditions { delay, ..Conditions::default() });
    // Long enough for a request to reach the server before the next one is made.
    let on_its_way = delay * 3;
    let (is_running, overlaps, has_begun) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let busy_until = Cell::new(None);
    let body = async |work: Duration| {
        let (_body, overlap) = Body::begin(&is_running);
        overlaps.fetch_or(overlap, Ordering::SeqCst);
        has_begun.store(true, Ordering::SeqCst);
        sleep(work).await;
    };
    let request = |manager: &LockManager| manager.lock("k", &0).timeout(WAIT).expire(LEASE);
    let holder = unless_busy(&busy_until, request(&managers[0]).run(body(LEASE * 2)));
    let busy = Duration::from_millis(random.u64(..2000));
    let mut comes = Duration::ZERO;
    let requests: Vec<_> = (0..STORM)
        .map(|_| {
            comes += on_its_way + Duration::from_millis(random.u64(..400));
            (comes, random.usize(..managers.len()), Duration::from_millis(random.u64(..300)))
        })
        .collect();
    let begun = async || {
        while !has_begun.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let replace = async |(comes, manager, work): (Duration, usize, Duration)| {
        begun().await;
        let came = Instant::now() + comes;
        busy_until.set(Some(Instant::now() + busy));
        sleep(comes).await;
        let began = Cell::new(None);
        let inside = async {
            began.set(Some(Instant::now()));
            body(work).await;
        };
        let outcome = request(&managers[manager]).on_busy(OnBusy::Replace).run(inside).await;
        (came, began.get(), Instant::now(), outcome)
    };
    let storm = futures_util::future::join_all(requests.into_iter().map(replace));
    let (held, outcomes) = tokio::join!(holder, storm);
    // A stalled request may learn only that its lock is gone; one whose body has ended meanwhile may learn only that it ended too late.
    let is_lost = |outcome: &Result<(), LockError>| outcome.as_ref().is_err_and(LockError::is_lost);
    let mut shown = Storm { told: is_lost(&held), overlap: overlaps.load(Ordering::SeqCst), ..Storm::default() };
    for pair in outcomes.windows(2) {
        let [(_, began, ended, outcome), (next, ..)] = pair else { continue };
        let is_late = began.is_none_or(|began| began > *next + on_its_way);
        shown.older_ran |= is_late && began.is_some();
        shown.told &= if began.is_some() { outcome.is_ok() || is_lost(outcome) } else { is_replaced(outcome) };
        if is_late {
            shown.late = shown.late.max(*ended - *next);
        }
    }
    shown.told &= outcomes.last().is_some_and(|(.., outcome)| outcome.is_ok());
    shown
}

fn shown_by_storm(seed: u64, bug: Option<Bug>) -> Option<Storm> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LEASE * 3, play_storm(seed, bug)).await.ok() })
}

#[test]
fn of_several_replacements_only_the_newest_runs() {
    in_each_world(WORLDS, |seed| {
        let shown = shown_by_storm(seed, None);
        // A reply, and its way: an ask is repeated every 0.9 s.
        let soon = Duration::from_millis(1000 + 2 * 150);
        let is_right = |shown: &Storm| !shown.overlap && !shown.older_ran && shown.told && shown.late < soon;
        if shown.as_ref().is_some_and(is_right) { Vec::new() } else { vec![format!("{shown:?}")] }
    });
}
