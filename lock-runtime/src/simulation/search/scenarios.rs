//! Who wants the lock in a run.

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
use crate::{LockManager, LockRequest};

/// One task: its process, when it comes, what it asks for, and how it holds the lock.
struct Part {
    process: &'static str,
    comes: Duration,
    mode: Mode,
    asks: fn(LockRequest) -> LockRequest,
}

pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// What the server's own command for a release is called.
    delete: Option<&'static str>,
    parts: &'static [Part],
}

const LEASE: Duration = Duration::from_secs(3);
const PATIENT: Duration = Duration::from_secs(20);
/// How long a task has the lock.
const WORK: Duration = Duration::from_millis(3);
/// What all have to wait when nothing goes wrong.
const USUAL: Duration = Duration::from_millis(100);

const fn part(process: &'static str, comes: u64, mode: Mode, asks: fn(LockRequest) -> LockRequest) -> Part {
    Part { process, comes: Duration::from_millis(comes), mode, asks }
}

const fn alone(process: &'static str, comes: u64) -> Part {
    part(process, comes, Mode::Alone, |request| request.fenced(true))
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

pub(super) static ALL: [Scenario; 6] = [
    Scenario { name: "two processes", delete: None, parts: &[alone("p", 0), alone("p", 1), alone("q", 0)] },
    Scenario { name: "three processes", delete: None, parts: &[alone("p", 0), alone("q", 1), alone("r", 2)] },
    Scenario {
        name: "three processes and DELIFEQ",
        delete: Some("DELIFEQ"),
        parts: &[alone("p", 0), alone("q", 1), alone("r", 2)],
    },
    Scenario {
        name: "readers and a writer",
        delete: None,
        parts: &[read("p", 0), read("p", 1), alone("q", 1), read("q", 3)],
    },
    Scenario { name: "permits", delete: None, parts: &[permit("p", 0), permit("q", 0), permit("q", 1)] },
    Scenario { name: "lingering", delete: None, parts: &[lingers("p", 0), lingers("p", 20), alone("q", 40)] },
];

/// Plays the run that `plan` describes.
pub(super) async fn play(scenario: &Scenario, plan: &[Deviation], bug: Option<Bug>) -> Vec<String> {
    let server = model_server(bug, scenario.delete);
    let (_time, network) = (Simulated::begin(), Network::new(server, 1.0, Rng::with_seed(0)));
    network.move_away(Duration::from_millis(2));
    let mut managers: Vec<(&'static str, LockManager)> = Vec::new();
    for part in scenario.parts {
        if !managers.iter().any(|(name, _)| *name == part.process) {
            managers.push((part.process, connect(&network, part.process)));
        }
    }
    // What connects, and teaches the server its scripts, is no choice of the run.
    let plan_of_run = RUN.take();
    for (_, manager) in &managers {
        for request in [manager.lock("warm", &0).fenced(true), manager.lock("warm", &0).read()] {
            request.acquire().await.unwrap().release().await.unwrap();
        }
    }
    sleep(Duration::from_millis(100)).await;
    RUN.set(plan_of_run);

    let judge = Judge::default();
    let most = USUAL + allowed(plan, LEASE);
    let tasks = scenario.parts.iter().enumerate().map(|(number, part)| {
        let manager = managers.iter().find(|(name, _)| *name == part.process).map(|(_, manager)| manager.clone());
        Searched::new(part.process, live(&judge, number, part, manager.unwrap(), most))
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
    let bound = if crashed { LEASE + USUAL } else { most };
    if done.elapsed() > bound {
        judge.note(format!("the lock is free only after {:?}", done.elapsed()));
    }
    RUN.set(run);
    judge.broken()
}

async fn live(judge: &Judge, number: usize, part: &Part, manager: LockManager, most: Duration) {
    sleep(part.comes).await;
    let asked = Instant::now();
    let request = (part.asks)(manager.lock("k", &0).timeout(PATIENT).expire(LEASE));
    let guard = match request.acquire().await {
        Ok(guard) => guard,
        Err(error) => return judge.note(format!("task {number}: {error}")),
    };
    if asked.elapsed() > most {
        judge.note(format!("task {number} waits for {:?}", asked.elapsed()));
    }
    let holding = Holding::begin(judge, number, part, guard.fencing_token());
    tokio::select! {
        () = sleep(WORK) => {}
        () = guard.lost() => {}
    }
    drop(holding);
    let _ = guard.release().await;
}

/// A task that has the lock.
struct Holding<'a>(&'a Judge, usize);

impl<'a> Holding<'a> {
    fn begin(judge: &'a Judge, number: usize, part: &Part, token: Option<crate::FencingToken>) -> Self {
        judge.begin(part.process, number, part.mode, token);
        Self(judge, number)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}
