//! A search through what may happen to a few tasks: every run in which at most a given number of things go wrong.
//!
//! A run plays the library's own code and scripts. Each command, message, push and wake-up is a choice. Usually nothing special happens.
//! Otherwise it is late, lost, cut off, not polled, dropped, or the process crashes. A search plays every run that deviates from the usual
//! way in at most `bound` choices, and judges each (Emmi, Qadeer and Rakamarić, "Delay-Bounded Scheduling", POPL 2011, bound delays like
//! this; here faults count as well). The worlds combine far more faults, but only a sample of them. A search omits none of its few.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::seeded::{self, Bug};
use super::tests::on_all_processors;
use crate::mutants::{Mutant, Seeded};

mod judge;
mod scenarios;

use scenarios::{Scenario, play};

/// A point where a run may deviate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// A message is on its way to the server, or back.
    Message,
    /// The server executes a command.
    Command,
    /// The server pushes a message.
    Push,
    /// A task was woken.
    Wake,
}

/// How a choice deviates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A message takes `LATE` longer: others overtake it.
    Late,
    /// A message takes `STUCK` longer.
    Stuck,
    /// The connection is cut before the command is executed.
    CutBefore,
    /// The connection is cut before the reply to the command.
    CutAfter,
    /// The process that sent the command crashes after its execution. Its host closes the connections.
    Crash,
    /// The process that sent the command is gone after its execution, and its connections stay open.
    Vanish,
    Lost,
    /// The task is polled only after `BUSY`.
    Unpolled,
    Dropped,
}

/// Longer than the wait for an answer before a repetition.
const LATE: Duration = Duration::from_millis(400);
/// Longer than a claim.
const STUCK: Duration = Duration::from_millis(3200);
/// Longer than a lease stays free.
const BUSY: Duration = Duration::from_millis(150);

impl Choice {
    fn ways(self) -> &'static [Way] {
        match self {
            Self::Message => &[Way::Late, Way::Stuck],
            Self::Command => &[Way::CutBefore, Way::CutAfter, Way::Crash, Way::Vanish],
            Self::Push => &[Way::Lost],
            Self::Wake => &[Way::Unpolled, Way::Dropped],
        }
    }
}

/// The number of a choice that deviates, and how.
type Deviation = (usize, Way);

thread_local! {
    static RUN: RefCell<Option<Run>> = const { RefCell::new(None) };
}

/// The run on this thread.
#[derive(Default)]
struct Run {
    plan: Vec<Deviation>,
    /// The choices so far.
    choices: Vec<Choice>,
    crashed: Vec<String>,
    wakers: Vec<Waker>,
}

fn in_run<T>(act: impl FnOnce(&mut Run) -> T) -> Option<T> {
    RUN.with_borrow_mut(|run| run.as_mut().map(act))
}

/// How this choice deviates. `None`: the usual way.
pub(super) fn choose(choice: Choice) -> Option<Way> {
    in_run(|run| {
        let place = run.choices.len();
        run.choices.push(choice);
        run.plan.iter().find(|(at, _)| *at == place).map(|(_, way)| *way)
    })
    .flatten()
}

/// How much longer a message takes than usual.
pub(super) fn delay() -> Duration {
    match choose(Choice::Message) {
        Some(Way::Late) => LATE,
        Some(Way::Stuck) => STUCK,
        _ => Duration::ZERO,
    }
}

/// Drops the tasks of a process.
pub(super) fn crash(process: &str) {
    let wakers = in_run(|run| {
        run.crashed.push(process.to_owned());
        std::mem::take(&mut run.wakers)
    });
    wakers.into_iter().flatten().for_each(Waker::wake);
}

fn has_crashed(process: &str) -> bool {
    in_run(|run| run.crashed.iter().any(|crashed| crashed == process)).unwrap_or_default()
}

/// A task of a run. Its output is `None` if it was dropped, or its process crashed.
struct Searched<F> {
    process: &'static str,
    /// Always polled at once, and to its end.
    is_steady: bool,
    task: Option<Pin<Box<F>>>,
    busy: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Searched<F> {
    fn new(process: &'static str, is_steady: bool, task: F) -> Self {
        Self { process, is_steady, task: Some(Box::pin(task)), busy: None }
    }
}

impl<F: Future> Future for Searched<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if has_crashed(this.process) {
            this.task = None;
        }
        let Some(task) = &mut this.task else { return Poll::Ready(None) };
        in_run(|run| run.wakers.push(context.waker().clone()));
        if let Some(busy) = &mut this.busy {
            if busy.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.busy = None;
        } else if !this.is_steady {
            match choose(Choice::Wake) {
                Some(Way::Unpolled) => {
                    let busy = this.busy.insert(Box::pin(sleep(BUSY)));
                    let _ = busy.as_mut().poll(context);
                    return Poll::Pending;
                }
                Some(Way::Dropped) => {
                    this.task = None;
                    return Poll::Ready(None);
                }
                _ => {}
            }
        }
        task.as_mut().poll(context).map(Some)
    }
}

/// A run that broke a promise.
struct Found {
    plan: Vec<Deviation>,
    choices: Vec<Choice>,
    what: Vec<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?} of {} choices", self.what, self.plan, self.choices.len())
    }
}

fn run(scenario: &Scenario, plan: &[Deviation], bug: Option<Bug>) -> (Vec<Choice>, Vec<String>) {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    RUN.set(Some(Run { plan: plan.to_vec(), ..Run::default() }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let broken = runtime.block_on(play(scenario, plan, bug));
    drop(runtime);
    (RUN.take().unwrap().choices, broken)
}

/// Plays all runs of `scenario` with at most `bound` deviations, or until one breaks a promise if `is_first_enough`. Returns how many
/// were played, and those that broke a promise.
fn search(scenario: &Scenario, bound: usize, bug: Option<Bug>, is_first_enough: bool) -> (usize, Vec<Found>) {
    let (plans, found) = (Mutex::new(vec![Vec::new()]), Mutex::new(Vec::new()));
    let (played, busy) = (Mutex::new(0), Mutex::new(0_u32));
    on_all_processors(|| {
        loop {
            let plan = {
                let (mut plans, mut busy) = (plans.lock().unwrap(), busy.lock().unwrap());
                match plans.pop() {
                    _ if is_first_enough && !found.lock().unwrap().is_empty() => return,
                    Some(plan) => {
                        *busy += 1;
                        Some(plan)
                    }
                    None if *busy == 0 => return,
                    None => None,
                }
            };
            let Some(plan): Option<Vec<Deviation>> = plan else {
                std::thread::yield_now();
                continue;
            };
            let (choices, what) = run(scenario, &plan, bug);
            *played.lock().unwrap() += 1;
            let after = plan.last().map_or(0, |(at, _)| at + 1);
            let mut next = Vec::new();
            if plan.len() < bound && what.is_empty() {
                for (at, choice) in choices.iter().enumerate().skip(after) {
                    next.extend(choice.ways().iter().map(|way| [&plan[..], &[(at, *way)]].concat()));
                }
            }
            if !what.is_empty() {
                found.lock().unwrap().push(Found { plan, choices, what });
            }
            plans.lock().unwrap().append(&mut next);
            *busy.lock().unwrap() -= 1;
        }
    });
    (played.into_inner().unwrap(), found.into_inner().unwrap())
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// `BOUND=2` searches more, `SCENARIO='part of its name'` plays only that one.
#[test]
fn every_promise_is_kept_in_every_run_of_a_search() {
    let bound = number("BOUND").unwrap_or(1);
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let mut broken = Vec::new();
    for scenario in scenarios::ALL.iter().filter(|scenario| scenario.name.contains(&only)) {
        let (played, found) = search(scenario, bound, None, false);
        println!("{}: {played} runs with at most {bound} deviations, {} broken", scenario.name, found.len());
        broken.extend(found.iter().take(5).map(|found| format!("{}: {found}", scenario.name)));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Bugs of the first list that a run with at most one deviation shows, with the scenario.
const SHOWN: [(&str, &str); 14] = [
    ("release.lua does not compare the token", "three processes"),
    ("a lock is granted without an end", "two processes"),
    ("a lock is passed on without an end", "two processes"),
    ("free.lua does not look for waiters", "three processes"),
    ("26: who deletes a lock does not look for waiters", "three processes and DELIFEQ"),
    ("a holder is not told that others wait", "lingering"),
    ("a dropped guard keeps its lease", "two processes"),
    ("L9: a lease lingers on though another process waits", "lingering"),
    ("asks are not repeated", "two processes"),
    ("what was asked is not withdrawn", "two processes"),
    ("what is asked is noted when it is answered", "two processes"),
    ("10: each hold of a lease releases it", "a nested body"),
    ("L2: the holds of a lease have one fencing token", "one process"),
    ("young holds are never confirmed", "a long hold"),
];

/// Bugs that are in no other list.
const OWN: [(&str, Bug, &str); 4] = [
    (
        "13: the lease of a lost body is released before the body is dropped",
        Bug::Code(Mutant::ReleasedBeforeBody),
        "released by force",
    ),
    (
        "8: reserved fencing tokens are kept when a body inside of the hold draws one",
        Bug::Code(Mutant::SmallerFencesKept),
        "a nested body",
    ),
    (
        "S1: a shared lease that has ended counts",
        Bug::Scripts(&[("call_or(nil, 'ZREMRANGEBYSCORE', shares.of(lock), '-inf', over) and", "over and")]),
        "a permit that goes on",
    ),
    (
        "S2: a shared ask does not wait for the exclusive lease",
        Bug::Scripts(&[(
            "  if not owner then\n    owner = redis.call('EXISTS', queue) == 1 and hand_off(lock, queue, token)\n    if not owner then\n      shares.start",
            "  if owner ~= SHARED then\n    owner = redis.call('EXISTS', queue) == 1 and hand_off(lock, queue, token)\n    if not owner then\n      shares.start",
        )]),
        "readers behind a writer",
    ),
];

/// All bugs of the search, each with its scenario.
fn bugs() -> impl Iterator<Item = (&'static str, Bug, &'static str)> {
    let bug_of = |name| seeded::ALL.iter().find(|seeded| seeded.name == name).unwrap().bug;
    SHOWN.into_iter().map(move |(name, scenario)| (name, bug_of(name), scenario)).chain(OWN)
}

#[test]
fn each_bug_of_a_search_shows() {
    for (name, bug, scenario) in bugs() {
        let scenario = scenarios::ALL.iter().find(|other| other.name == scenario).unwrap();
        let (played, found) = search(scenario, 1, Some(bug), true);
        assert!(!found.is_empty(), "{name}: not seen in {played} runs");
        println!("{name}: {}", found[0]);
    }
}

#[test]
fn the_docs_list_each_bug_of_a_search() {
    let docs = include_str!("bugs.md");
    let (_, section) = docs.split_once("### Bugs of a search").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap_or((section, ""));
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    assert_eq!(rows, bugs().map(|(name, _, scenario)| format!("| {name} | {scenario} |")).collect::<Vec<_>>());
}
