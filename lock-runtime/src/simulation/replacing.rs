//! A lock that the newest takes from its holder, in many worlds: who has it next, and when.

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

/// In how many worlds a bug has to show.
const WORLDS: u64 = 300;
/// More than all messages take, to and fro.
const SOON: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(30);

/// What a world showed.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    overlap: bool,
    /// Whether a task that only waited had the lock before the newest.
    overtaken: bool,
    /// How long the newest waited.
    after: Duration,
    /// Whether those whose lock was taken are told that, and nobody else failed.
    told: bool,
}

/// Says that a body runs, and that it is dropped.
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

/// Does not poll `task` while its thread is busy. From then on it is polled when another task is, and soon in any case: often a grant
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

/// A body holds the lock and never ends. Tasks wait for the lock, one of them in the process of the newest, and then the newest comes.
async fn play(seed: u64, bug: Option<Bug>) -> Shown {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    let mut random = Rng::with_seed(seed);
    let server = model_server(bug, choose_delete(&random));
    let (_time, network) = (Simulated::begin(), Network::new(server, 1.0, random.fork()));
    let (one, other, newest) = (connect(&network, "p"), connect(&network, "q"), connect(&network, "r"));
    for manager in [&one, &other, &newest] {
        manager.inspect("k", &1).await.unwrap();
    }
    // In some worlds an answer takes so long that the keeper repeats what was asked.
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
    // In some worlds the thread of the task beside the newest is busy when the newest takes the turn from that task.
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
    // The release of a holder beside the newest may reach the server first. Then the lock passes to who waits, and is taken again.
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

/// What is shown by a world that does not end: the holder is never told.
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

const CASES: [Case; 4] = [
    (
        "replace.lua puts the newest behind the others",
        Bug::Scripts(&[("number(first and first - 1 or now())", "number(now())")]),
        FIRST,
        |shown| shown.overtaken,
    ),
    (
        "replace.lua does not take the lock",
        Bug::Scripts(&[(
            "elseif not waits and not may_be_data(lock, owner) then\n      take(lock, queue, owner, stop, token)",
            "end\n    if false then",
        )]),
        LATE,
        |shown| shown.after > SOON,
    ),
    ("a late task takes the turn back from the newest", Bug::Code(Mutant::SeizedTurnIsTakenBack), FIRST, |shown| {
        shown.overtaken
    }),
    ("the newest is repeated as one that waits", Bug::Code(Mutant::ReplacementRepeatedInQueue), LATE, |shown| {
        shown.after > SOON
    }),
];

#[test]
fn each_bug_of_a_replacement_shows() {
    for (name, bug, _, is_shown) in CASES {
        assert!((0..WORLDS).any(|seed| is_shown(&shown(seed, Some(bug)))), "{name}: not seen");
    }
}

#[test]
fn the_docs_list_each_bug_of_a_replacement() {
    let docs = include_str!("../../../docs/faults.md");
    let (_, section) = docs.split_once("### Bugs of a replacement").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap_or((section, ""));
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    assert_eq!(rows, CASES.map(|(name, _, shows, _)| format!("| {name} | {shows} |")));
}

/// Two calls come to one process, and the second takes the turn before the first has asked for the lock in place of its holder. The
/// newest comes to another process.
#[tokio::test(start_paused = true)]
async fn an_older_call_whose_turn_was_taken_does_not_replace_the_newest() {
    for bug in [None, Some(Mutant::OldestReplacesNewest)] {
        let _seeded = Seeded::begin(bug);
        let network = Network::new(model_server(None, None), 1.0, Rng::with_seed(0));
        let (_time, locks, others) = (Simulated::begin(), connect(&network, "p"), connect(&network, "q"));
        for manager in [&locks, &others] {
            manager.inspect("k", &1).await.unwrap();
        }
        network.set_conditions(Conditions { delay: Duration::from_millis(4), ..Conditions::default() });
        let replace = |manager: &LockManager| {
            let request = manager.lock("k", &0).timeout(WAIT).on_busy(OnBusy::Replace);
            tokio::spawn(request.run(sleep(Duration::from_secs(1))))
        };
        let (first, second) = (replace(&locks), replace(&locks));
        sleep(Duration::from_millis(200)).await;
        let newest = replace(&others).await.unwrap();
        assert_eq!(newest.is_ok(), bug.is_none(), "{bug:?}: {newest:?}");
        assert!(matches!(second.await.unwrap(), Err(LockError::Lost { forced: true, .. })));
        assert!(first.await.unwrap().is_ok(), "it waited as others do");
    }
}
