//! The tasks that want the lock in a run.

use std::time::Duration;

use fastrand::Rng;
use server_model::ModelServer;
use tokio::time::{Instant, sleep, timeout};

use super::super::network::Network;
use super::super::process::connect;
use super::super::seeded::Bug;
use super::super::servers::model_server;
use super::super::time::Simulated;
use super::judge::{Judge, Mode, allowed};
use super::{Deviation, RUN, Searched};
use crate::timing::CLAIM;
use crate::{ErrorKind, LockError, LockManager, LockRequest};

/// One task: its process, when it starts, what it asks for, and what it does with the lock.
struct Part {
    process: &'static str,
    comes: Duration,
    does: Deed,
    mode: Mode,
    is_fenced: bool,
    asks: fn(LockRequest) -> LockRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// Holds the lock for a moment, and releases it.
    Works,
    /// Does so twice.
    WorksTwice,
    /// Drops the guard, and acquires again, several times.
    DropsOften,
    /// Holds the lock for longer than a lease.
    Stays,
    /// A body inside its hold wants a fencing token.
    Nests,
    /// Gives up after a moment.
    Hurries,
    /// Takes the lock from another holder by force.
    Forces,
    /// Shuts its process down.
    ShutsDown,
}

pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// The name of the server's own command for a release.
    delete: Option<&'static str>,
    /// The speed of the server's clock.
    rate: f64,
    /// How long each task holds the lock while others wait.
    stays: Duration,
    /// Whether a hold is lost without any fault: it is taken by force, outlives a shutdown, or lasts longer than its lease.
    loses: bool,
    parts: &'static [Part],
}

/// The limits on what a task may see.
#[derive(Clone, Copy)]
struct Bounds {
    /// The longest wait.
    wait: Duration,
    /// Whether its hold may be lost.
    may_lose: bool,
}

const LEASE: Duration = Duration::from_secs(3);
const PATIENT: Duration = Duration::from_secs(30);
/// How long a task in a hurry waits.
const HURRY: Duration = Duration::from_millis(300);
/// How long a task holds the lock.
const WORK: Duration = Duration::from_millis(3);
/// How long a task holds a lock whose lease has to be renewed.
const STAY: Duration = Duration::from_secs(9);
/// The last fencing token drawn: more than the server's clock shows, as if that had been set back.
const LAST_FENCE: &str = "5000000000000000";
/// The process of forced releases.
const OPERATOR: &str = "o";
const USUAL: Duration = Duration::from_millis(100);

const fn part(process: &'static str, comes: u64, mode: Mode, asks: fn(LockRequest) -> LockRequest) -> Part {
    Part { process, comes: Duration::from_millis(comes), does: Deed::Works, mode, is_fenced: false, asks }
}

impl Part {
    const fn does(self, does: Deed) -> Self {
        Self { does, ..self }
    }

    /// Whether it exists only to disturb others, and never deviates itself.
    fn is_operator(&self) -> bool {
        matches!(self.does, Deed::Forces | Deed::ShutsDown)
    }
}

impl Scenario {
    const fn of(name: &'static str, parts: &'static [Part]) -> Self {
        Self { name, delete: None, rate: 1.0, stays: Duration::ZERO, loses: false, parts }
    }

    const fn stays(self, stays: Duration) -> Self {
        Self { stays, ..self }
    }

    const fn loses(self) -> Self {
        Self { loses: true, ..self }
    }
}

const fn alone(process: &'static str, comes: u64) -> Part {
    Part { is_fenced: true, ..part(process, comes, Mode::Alone, |request| request.fenced(true)) }
}

const fn plain(process: &'static str, comes: u64) -> Part {
    part(process, comes, Mode::Alone, |request| request)
}

/// Without renewals.
const fn short(process: &'static str, comes: u64) -> Part {
    part(process, comes, Mode::Alone, |request| request.renew(false))
}

const fn read(process: &'static str, comes: u64) -> Part {
    part(process, comes, Mode::Read, LockRequest::read)
}

const fn permit(process: &'static str, comes: u64) -> Part {
    part(process, comes, Mode::Permit(2), |request| request.permits(2))
}

const fn lingers(process: &'static str, comes: u64) -> Part {
    part(process, comes, Mode::Alone, |request| request.linger(Duration::from_millis(200)))
}

pub(super) static ALL: [Scenario; 17] = [
    Scenario::of("one process", &[alone("p", 0), alone("p", 1), plain("p", 2), alone("p", 3)]),
    Scenario::of("two processes", &[alone("p", 0), alone("p", 1), alone("q", 0)]),
    Scenario::of("three processes", &[alone("p", 0), alone("q", 1), alone("r", 2)]),
    Scenario {
        delete: Some("DELIFEQ"),
        ..Scenario::of("three processes and DELIFEQ", &[alone("p", 0), alone("q", 1), alone("r", 2)])
    },
    Scenario::of("again and again", &[alone("p", 0).does(Deed::WorksTwice), plain("q", 1).does(Deed::WorksTwice)]),
    Scenario::of("dropped again and again", &[plain("p", 0).does(Deed::DropsOften), plain("q", 1)]),
    Scenario::of("readers and a writer", &[read("p", 0), read("p", 1), alone("q", 1), read("q", 3)]),
    Scenario::of("readers behind a writer", &[alone("p", 0), read("q", 1), read("r", 2)]),
    Scenario::of("permits", &[permit("p", 0), permit("q", 0), permit("q", 1)]),
    Scenario::of("a permit that goes on", &[permit("p", 0).does(Deed::Stays), permit("q", 2), permit("r", 4)]),
    Scenario::of("lingering", &[lingers("p", 0), lingers("p", 20), alone("q", 40)]),
    Scenario::of("a long hold", &[alone("p", 0).does(Deed::Stays), alone("q", 1)]).stays(STAY),
    Scenario::of(
        "in a hurry",
        &[plain("p", 0), alone("q", 1).does(Deed::Hurries), alone("q", 2).does(Deed::Hurries), plain("r", 3)],
    ),
    Scenario::of("a nested body", &[plain("q", 0), alone("p", 2), plain("p", 3).does(Deed::Nests), alone("p", 4)]),
    Scenario::of(
        "released by force",
        &[alone("p", 0).does(Deed::Stays), alone("q", 1), alone(OPERATOR, 20).does(Deed::Forces)],
    )
    .loses(),
    Scenario::of("shut down", &[alone("p", 0).does(Deed::Stays), alone("q", 1), alone("p", 10).does(Deed::ShutsDown)])
        .stays(STAY)
        .loses(),
    Scenario {
        rate: 1.0095,
        ..Scenario::of("a fast clock", &[short("p", 0).does(Deed::Stays), alone("q", 1)]).stays(LEASE).loses()
    },
];

pub(super) async fn play(scenario: &Scenario, plan: &[Deviation], bug: Option<Bug>) -> Vec<String> {
    let server = model_server(bug, scenario.delete);
    let (_time, network) = (Simulated::begin(), Network::new(server, scenario.rate, Rng::with_seed(0)));
    network.move_away(Duration::from_millis(2));
    let mut managers: Vec<(&'static str, LockManager)> = Vec::new();
    for part in scenario.parts {
        if !managers.iter().any(|(name, _)| *name == part.process) {
            managers.push((part.process, connect(&network, part.process)));
        }
    }
    // Connecting, and loading the scripts into the server, are not choices of the run.
    let plan_of_run = RUN.take();
    for (_, manager) in &managers {
        for request in [manager.lock("warm", &0).fenced(true), manager.lock("warm", &0).read()] {
            request.acquire().await.unwrap().release().await.unwrap();
        }
    }
    network.execute(&["SET", "{k:0}:fence", LAST_FENCE]);
    sleep(Duration::from_millis(100)).await;
    RUN.set(plan_of_run);

    let judge = Judge::default();
    let wait = scenario.stays + USUAL + allowed(plan, LEASE);
    let bounds = Bounds { wait, may_lose: scenario.loses || !plan.is_empty() };
    let tasks = scenario.parts.iter().enumerate().map(|(number, part)| {
        let manager = managers.iter().find(|(name, _)| *name == part.process).map(|(_, manager)| manager.clone());
        Searched::new(part.process, part.is_operator(), live(&judge, number, part, manager.unwrap(), bounds))
    });
    let all = futures_util::future::join_all(tasks);
    if timeout(PATIENT * 2, all).await.is_err() {
        judge.note("the tasks do not end".to_owned());
    }
    // From here on nothing more goes wrong.
    let run = RUN.take();
    let crashed = run.as_ref().is_some_and(|run| !run.crashed.is_empty());
    let done = Instant::now();
    let is_taken = || network.server(ModelServer::snapshot).iter().any(|(key, _)| key == "k:0");
    while is_taken() && done.elapsed() < PATIENT {
        sleep(Duration::from_millis(20)).await;
    }
    let bound = if crashed { LEASE + CLAIM + USUAL } else { wait };
    if done.elapsed() > bound {
        judge.note(format!("the lock is free only after {:?}", done.elapsed()));
    }
    RUN.set(run);
    judge.broken()
}

async fn live(judge: &Judge, number: usize, part: &Part, manager: LockManager, bounds: Bounds) {
    sleep(part.comes).await;
    let rounds = match part.does {
        Deed::Forces => return force(judge, &manager).await,
        Deed::ShutsDown => return manager.shutdown().await,
        Deed::WorksTwice => 2,
        Deed::DropsOften => 6,
        Deed::Works | Deed::Stays | Deed::Nests | Deed::Hurries => 1,
    };
    for _ in 0..rounds {
        hold(judge, number, part, &manager, bounds).await;
    }
}

/// Releases the lock by force once the first task has it, if it ever does.
async fn force(judge: &Judge, manager: &LockManager) {
    let begin = Instant::now();
    while !judge.has(0) && begin.elapsed() < STAY {
        sleep(WORK).await;
    }
    judge.force();
    while !matches!(manager.force_release("k", &0).await, Ok(true)) && judge.has(0) {
        sleep(WORK).await;
    }
}

async fn hold(judge: &Judge, number: usize, part: &Part, manager: &LockManager, bounds: Bounds) {
    let asked = Instant::now();
    let patience = if part.does == Deed::Hurries { HURRY } else { PATIENT };
    let request = (part.asks)(manager.lock("k", &0).timeout(patience).expire(LEASE));
    let note_wait = || {
        // Without the operator the holder stays.
        let most = if super::has_crashed(OPERATOR) { bounds.wait + STAY } else { bounds.wait };
        if asked.elapsed() > most {
            judge.note(format!("task {number} waits for {:?}", asked.elapsed()));
        }
    };
    let note_error = |error: LockError| {
        let is_usual = match error.kind() {
            ErrorKind::Lost => bounds.may_lose,
            ErrorKind::Busy | ErrorKind::Unavailable => part.does == Deed::Hurries,
            kind => kind == ErrorKind::ShutDown,
        };
        if !is_usual {
            judge.note(format!("task {number}: {error}"));
        }
    };
    if part.does == Deed::DropsOften {
        match request.acquire().await {
            Ok(guard) => {
                note_wait();
                let _holding = Holding::begin(judge, number, part);
                sleep(WORK).await;
                drop(guard);
            }
            Err(error) => note_error(error),
        }
        return;
    }
    let held = match request.options.enter(Some(manager.engine.clone())).await {
        Ok(held) => held,
        Err(error) => return note_error(error),
    };
    let body = async {
        note_wait();
        let holding = Holding::begin(judge, number, part);
        if part.is_fenced {
            judge.see(number, held.fencing_token());
        }
        if part.does == Deed::Nests {
            let request = manager.lock("k", &0).fenced(true);
            if let Ok(inner) = request.options.enter(Some(manager.engine.clone())).await {
                judge.see(number, inner.fencing_token());
            }
        }
        judge.step(number);
        sleep(if part.does == Deed::Stays { STAY } else { WORK }).await;
        judge.step(number);
        drop(holding);
    };
    let outcome = held.protect(body).await;
    if let Err(error) = held.finish(outcome).await {
        note_error(error);
    }
}

/// A task that has the lock.
struct Holding<'a>(&'a Judge, usize);

impl<'a> Holding<'a> {
    fn begin(judge: &'a Judge, number: usize, part: &Part) -> Self {
        // Minus the margin of its deadline, and minus the time of the grant.
        judge.begin(part.process, number, part.mode, Instant::now() + LEASE * 9 / 10);
        Self(judge, number)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}
