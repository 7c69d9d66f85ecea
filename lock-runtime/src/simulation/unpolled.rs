//! Requests that are polled a certain number of times, and then not again: one scene for each of their awaits. Whatever such a request has,
//! it keeps others out only briefly. When it is finally polled again, it gets a true answer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt as _;
use server_model::ModelServer;
use tokio::time::{Instant, sleep, timeout};

use super::network::{Conditions, Network};
use super::process::connect;
use super::time::Simulated;
use crate::mutants::{Mutant, Seeded};
use crate::{ErrorKind, LockError, LockGuard, LockManager, LockRequest};

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>>>>;

/// What an unpolled request may cost a new asker, with the asker's round trips.
const EVERYBODY: Duration = Duration::from_millis(1020);
/// What it may cost the tasks that already wait, with the keeper's ticks and their round trips.
const THOSE_WHO_WAIT: Duration = Duration::from_millis(75);
const PATIENT: Duration = Duration::from_secs(10);
/// What it may cost others while its acquire holds a part: one of several keys, or a reader's part without its token.
const PARTS: Duration = Duration::from_secs(3);
/// By then nothing is left of any request (promise 5).
const SETTLED: Duration = Duration::from_secs(8);
/// No request here takes this many polls.
const MOST_POLLS: usize = 60;

/// A request with its name.
type Kind = (&'static str, fn(&LockManager) -> LockRequest);

const ALONE: Kind = ("alone", |locks| locks.lock("k", &0));
const UNRENEWED: Kind = ("not renewed", |locks| locks.lock("k", &0).expire(Duration::from_secs(2)).renew(false));
const FENCED_READER: Kind = ("fenced reader", |locks| locks.lock("k", &0).read().fenced(true));
const SET: Kind = ("set", |locks| locks.lock_all("k", [0, 1]));

/// All want key 0.
static KINDS: [Kind; 12] = [
    ALONE,
    ("fenced", |locks| locks.lock("k", &0).fenced(true)),
    UNRENEWED,
    ("at least", |locks| locks.lock("k", &0).at_least(Duration::from_millis(100))),
    ("reader", |locks| locks.lock("k", &0).read()),
    FENCED_READER,
    ("permit", |locks| locks.lock("k", &0).permits(2).fenced(true)),
    SET,
    ("fenced set", |locks| locks.lock_all("k", [0, 1]).fenced(true)),
    ("set at least", |locks| locks.lock_all("k", [0, 1]).at_least(Duration::from_millis(100))),
    ("set of readers", |locks| locks.lock_all("k", [0, 1]).read().fenced(true)),
    ("set of permits", |locks| locks.lock_all("k", [0, 1]).permits(2)),
];

/// The other holders when the request starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    Nobody,
    /// A reader of the same process has key 0 until the request is no longer polled.
    Reader,
    /// Another process has key 1.
    Last,
    /// Another process has key 0 until the request waits for it.
    Holder,
}

static COMPANY: [Company; 4] = [Company::Nobody, Company::Reader, Company::Last, Company::Holder];

/// The task that asks for key 0 when the request is no longer polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Process,
    Sibling,
    /// It waits before that.
    Waiter,
}

impl Asker {
    /// The longest wait.
    fn bound(self, name: &str) -> Duration {
        match self {
            _ if name.contains("set") || name == FENCED_READER.0 => PARTS,
            Self::Process | Self::Sibling => EVERYBODY,
            Self::Waiter => THOSE_WHO_WAIT,
        }
    }
}

const ASKERS: [Asker; 3] = [Asker::Process, Asker::Sibling, Asker::Waiter];

/// Polls `acquiring` when it is woken, at most `polls` times. Returns the outcome if it is done.
async fn poll_some(acquiring: &mut Acquiring, polls: usize) -> Option<Result<LockGuard, LockError>> {
    let mut left = polls;
    let polled = std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match acquiring.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    timeout(Duration::from_millis(400), polled).await.ok().flatten()
}

struct Seen {
    /// How long the asker waited.
    waited: Duration,
    /// The request's error at the end.
    told: Option<LockError>,
    /// Whether its locks are still held at the end.
    is_left: bool,
    /// Whether the request was done in fewer polls.
    is_done: bool,
}

fn scene(
    kind: fn(&LockManager) -> LockRequest,
    company: Company,
    asker: Asker,
    polls: usize,
    bug: Option<Mutant>,
) -> Seen {
    let _seeded = Seeded::begin(bug);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let _time = Simulated::begin();
        let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
        network.set_conditions(Conditions { delay: Duration::from_millis(1), ..Conditions::default() });
        let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
        for locks in [&locks, &others] {
            locks.lock("warm", "up").fenced(true).acquire().await.unwrap().release().await.unwrap();
        }
        play(&network, kind, company, asker, polls, &locks, &others).await
    })
}

async fn play(
    network: &Arc<Network>,
    kind: fn(&LockManager) -> LockRequest,
    company: Company,
    asker: Asker,
    polls: usize,
    locks: &LockManager,
    others: &LockManager,
) -> Seen {
    let reader = match company {
        Company::Reader => Some(locks.lock("k", &0).read().acquire().await.unwrap()),
        Company::Nobody | Company::Last | Company::Holder => None,
    };
    let last = match company {
        Company::Last => Some(others.lock("k", &1).acquire().await.unwrap()),
        Company::Nobody | Company::Reader | Company::Holder => None,
    };
    let holder = match company {
        Company::Holder => Some(others.lock("k", &0).acquire().await.unwrap()),
        Company::Nobody | Company::Reader | Company::Last => None,
    };
    sleep(Duration::from_millis(20)).await;
    let request = kind(locks).timeout(Duration::from_secs(3));
    let mut acquiring: Acquiring = Box::pin(async move { request.acquire().await });
    let asking = if asker == Asker::Sibling { locks } else { others };
    let asked = asking.lock("k", &0).timeout(PATIENT);
    let mut asked: Acquiring = Box::pin(async move { asked.acquire().await });
    let mut outcome = poll_some(&mut acquiring, polls.min(2)).await;
    let mut granted = None;
    if asker == Asker::Waiter && outcome.is_none() {
        granted = poll_some(&mut asked, MOST_POLLS).await;
    }
    drop(holder);
    if outcome.is_none() && polls > 2 {
        outcome = poll_some(&mut acquiring, polls - 2).await;
    }
    drop(reader);
    if let Some(outcome) = outcome {
        drop((outcome, asked));
        return Seen { waited: Duration::ZERO, told: None, is_left: false, is_done: true };
    }
    let start = Instant::now();
    if granted.is_none() {
        granted = Some(asked.await);
    }
    let waited = start.elapsed();
    drop(granted);
    drop(last);
    // It is polled again after its time.
    sleep(Duration::from_secs(3)).await;
    let told = acquiring.await.err();
    let all = connect(network, "last").lock_all("k", [0, 1]).timeout(SETTLED).acquire().await;
    Seen { waited, told, is_left: all.is_err(), is_done: false }
}

/// The violations in the scenes of these requests in this company.
fn faults(
    kinds: &'static [Kind],
    company: &'static [Company],
    bug: Option<Mutant>,
    scenes: &Cell<usize>,
) -> impl Iterator<Item = String> {
    let pairs = kinds.iter().flat_map(move |kind| company.iter().map(move |company| (kind, *company)));
    let cases = pairs.flat_map(|(kind, company)| ASKERS.map(|asker| (kind, company, asker)));
    cases.flat_map(move |((name, kind), company, asker)| {
        let all = (1..MOST_POLLS).map(move |polls| (polls, scene(*kind, company, asker, polls, bug)));
        all.take_while(|(_, seen)| !seen.is_done).inspect(|_| scenes.set(scenes.get() + 1)).filter_map(
            move |(polls, Seen { waited, told, is_left, .. })| {
                let scene = format!("{name}, {company:?}, {asker:?}, {polls} polls");
                match told {
                    _ if waited > asker.bound(name) => Some(format!("{scene}: the others waited for {waited:?}")),
                    _ if is_left => Some(format!("{scene}: something is left")),
                    Some(told) if !told.is_timeout() && !told.to_string().contains("not polled in time") => {
                        Some(format!("{scene}: {told}"))
                    }
                    _ => None,
                }
            },
        )
    })
}

#[test]
fn a_request_that_is_not_polled_keeps_nobody_out_at_any_of_its_awaits() {
    let scenes = Cell::new(0);
    let seen: Vec<_> = faults(&KINDS, &COMPANY, None, &scenes).collect();
    println!("{} scenes", scenes.get());
    assert!(scenes.get() > 500, "{} scenes", scenes.get());
    assert!(seen.is_empty(), "{} of {}:\n{}", seen.len(), scenes.get(), seen.join("\n"));
}

#[test]
fn each_seeded_bug_shows_in_a_request_that_is_not_polled() {
    let bugs: [(_, &[Kind], &[Company]); 3] = [
        (Mutant::OverdueTaskActs, &[UNRENEWED], &[Company::Holder]),
        (Mutant::UnpolledPartsKept, &[SET], &[Company::Last]),
        (Mutant::UnpolledPartsKept, &[FENCED_READER], &[Company::Reader]),
    ];
    for (bug, kinds, company) in bugs {
        let seen = faults(kinds, company, Some(bug), &Cell::default()).next();
        println!("{bug:?}: {seen:?}");
        assert!(seen.is_some(), "{bug:?}");
    }
}

/// Another process has key 1, and this one gathers both keys. Returns how long an asker waits for key 0, counted from the last poll of the
/// request. Until then the request holds key 0, with or without waiters.
async fn delay_behind_a_set(asker: Asker, request: fn(LockRequest) -> LockRequest) -> Duration {
    let _time = Simulated::begin();
    let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
    let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
    let last = others.lock("k", &1).acquire().await.unwrap();
    let request = request(locks.lock_all("k", [0, 1])).timeout(PATIENT * 2);
    let mut gathering: Acquiring = Box::pin(async move { request.acquire().await });
    assert!(timeout(Duration::from_millis(300), &mut gathering).await.is_err());
    let asking = if asker == Asker::Sibling { &locks } else { &others };
    let mut asked: Acquiring = Box::pin(asking.lock("k", &0).timeout(PATIENT).acquire());
    let both = async {
        tokio::select! { biased; _ = &mut gathering => "set", _ = &mut asked => "key 0" }
    };
    assert!(timeout(PATIENT / 2, both).await.is_err(), "while it is polled it keeps what it has");
    let start = Instant::now();
    let granted = (&mut asked).await;
    let waited = start.elapsed();
    drop((granted, asked, last));
    // It is polled again, in time.
    gathering.await.unwrap().release().await.unwrap();
    waited
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_not_polled_delays_those_who_wait_for_one_of_its_keys_no_more_than_a_claim() {
    let requests: [fn(LockRequest) -> LockRequest; 3] =
        [|request| request, LockRequest::read, |request| request.permits(1).fenced(true)];
    for asker in [Asker::Process, Asker::Sibling] {
        for request in requests {
            let waited = delay_behind_a_set(asker, request).await;
            assert!(waited < PARTS, "{asker:?}: {waited:?}");
        }
    }
}

/// A task that does much in one poll has to yield before it has polled the releases of all keys.
#[tokio::test(start_paused = true)]
async fn a_release_of_many_keys_that_is_polled_once_leaves_none_of_them() {
    let _time = Simulated::begin();
    let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
    let guard = connect(&network, "p").lock_all("k", 0..500).acquire().await.unwrap();
    sleep(Duration::from_millis(50)).await;
    let mut releasing = Box::pin(guard.release());
    assert!(releasing.as_mut().now_or_never().is_none());
    sleep(EVERYBODY).await;
    let left = network.server(ModelServer::snapshot).iter().filter(|(key, _)| key.starts_with("k:")).count();
    assert_eq!(left, 0);
    releasing.await.unwrap();
}

/// The server is asked once, and grants. The task reads no answer before its time is over.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_polled_after_its_timeout_does_not_report_a_free_lock_as_busy() {
    let _time = Simulated::begin();
    let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
    let locks = connect(&network, "p");
    let alone = |key: u32| locks.lock("k", &key);
    for request in [alone(1), alone(2).read(), alone(3).permits(2), alone(4).fenced(true), locks.lock_all("k", [5, 6])]
    {
        let text = format!("{request:?}");
        let mut acquiring = Box::pin(request.timeout(Duration::from_secs(1)).acquire());
        assert!(acquiring.as_mut().now_or_never().is_none());
        sleep(Duration::from_millis(3200)).await;
        let error = acquiring.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{text}: {error}");
    }
}

/// Its task is polled every 150 ms, however often it is woken, and its first key always has another waiter.
#[tokio::test(start_paused = true)]
async fn a_set_whose_task_is_always_polled_late_is_acquired_in_the_end() {
    let _time = Simulated::begin();
    let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
    let (locks, others) = (connect(&network, "p"), connect(&network, "q"));
    let crowd = others.clone();
    let crowd = tokio::spawn(async move {
        loop {
            let guard = crowd.lock("k", &0).timeout(PATIENT).acquire().await.unwrap();
            sleep(Duration::from_millis(5)).await;
            guard.release().await.unwrap();
        }
    });
    let last = others.lock("k", &1).acquire().await.unwrap();
    let holder = tokio::spawn(async move {
        sleep(Duration::from_secs(2)).await;
        last.release().await.unwrap();
    });
    let mut gathering = Box::pin(locks.lock_all("k", [0, 1]).timeout(PATIENT).acquire());
    let guard = loop {
        if let Some(outcome) = gathering.as_mut().now_or_never() {
            break outcome.unwrap();
        }
        sleep(Duration::from_millis(150)).await;
    };
    crowd.abort();
    holder.await.unwrap();
    guard.release().await.unwrap();
}

/// How long an unpolled set keeps its first key with no waiter for it, after this many others have asked.
fn kept_for(others: u32, bug: Option<Mutant>) -> Duration {
    let _seeded = Seeded::begin(bug);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let _time = Simulated::begin();
        let network = Network::new(ModelServer::new(), 1.0, Rng::with_seed(0));
        let (locks, other) = (connect(&network, "p"), connect(&network, "q"));
        let last = other.lock("k", &1).acquire().await.unwrap();
        let mut kept: Acquiring = Box::pin(SET.1(&locks).timeout(PATIENT).acquire());
        for asker in 0..=others {
            assert!(poll_some(&mut kept, MOST_POLLS).await.is_none());
            assert!(other.is_locked("k", &0).await.unwrap(), "it has its first key");
            if asker < others {
                let asker = if asker == 0 { &other } else { &locks };
                asker.lock("k", &0).timeout(PATIENT).acquire().await.unwrap().release().await.unwrap();
            }
        }
        let start = Instant::now();
        while other.is_locked("k", &0).await.unwrap() {
            sleep(Duration::from_millis(1)).await;
        }
        let kept_for = start.elapsed();
        last.release().await.unwrap();
        kept.await.unwrap().release().await.unwrap();
        kept_for
    })
}

#[test]
fn a_set_that_is_not_polled_releases_what_it_has_although_nobody_asks() {
    for others in 0..3 {
        assert!(kept_for(others, None) < PARTS, "after {others} others");
    }
}
