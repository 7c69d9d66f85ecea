//! [`World`]: one run, from its seed to its history.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt as _;
use history::event::What;
use history::{Bounds, History, Violation};
use server_model::{ModelServer, ScriptTime};
use tokio::time::{Instant, sleep, timeout};

use super::cluster;
use super::faults;
use super::late::Late;
use super::network::Network;
use super::process::Process;
use super::quorum;
use super::seeded::Bug;
use super::servers::{Servers, choose_delete};
use super::time::{self, Simulated};
use crate::mutants::Seeded;
use crate::store::voter::MARKER;

/// The longest world, in its own time.
const LONGEST: Duration = Duration::from_mins(5);
/// The longest outage under load.
const OUTAGE: Duration = Duration::from_secs(10);

/// The distances of the table in docs/topologies.md; mostly the server is near.
pub(super) const ROUND_TRIPS: [u64; 10] = [0, 0, 0, 0, 0, 1, 30, 100, 200, 400];

/// The checks that hold even when anything is late.
const ALWAYS: [&str; 8] = [
    "C1 claims never overlap",
    "C2 fences increase",
    "C4 the world ends",
    "C6 grants reach somebody",
    "C7 owners change by the rules",
    "C7 claims are backed by the server",
    "C9 all is released",
    "rule 4: a free lock is the queue's",
];

/// How many tasks and faults there are, and of which kinds; the seed decides all of it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// One server, or those of a quorum.
    pub(super) servers: usize,
    /// How many nodes of a cluster have the data of the one server; 0 without a cluster.
    pub(super) nodes: usize,
    pub(super) processes: usize,
    pub(super) tasks: u32,
    pub(super) keys: u64,
    /// All tasks want the lock all the time, and only for a moment.
    pub(super) is_busy: bool,
    /// The longest lease, in milliseconds.
    pub(super) lease: u64,
    /// How long there are faults.
    pub(super) faults: Duration,
    /// The chance that a push is lost during the faults, whatever else happens.
    pub(super) push_lost: f64,
    /// How often the connection is cut between a command and its reply.
    pub(super) cut: f64,
    /// How often the server stalls before a command of a script.
    pub(super) stalls: f64,
    /// What scripts see of these stalls.
    pub(super) script_time: ScriptTime,
    /// The mean time between two faults; `None` for a calm world.
    pub(super) pause: Option<Duration>,
    /// The speed of the server's clock.
    pub(super) rate: f64,
    /// The drift that the managers are set to allow.
    pub(super) drift_ppm: u32,
    /// Whether the server may lose its data.
    pub(super) forgetful: bool,
    /// How many tasks of each process try all the time during an outage; 0 for no outage.
    pub(super) load: u32,
    /// The server's distance: a round trip in milliseconds.
    pub(super) round_trip: u64,
    /// How late tasks are polled.
    pub(super) late: Late,
    /// Whether another client has its own values at the helper keys of locks.
    pub(super) foreign: bool,
    /// The longest linger time in every other process, in milliseconds; 0 for none.
    pub(super) linger: u64,
    /// The name of the server's own command for a release.
    pub(super) delete: Option<&'static str>,
}

impl Plan {
    pub(super) fn of(random: &mut Rng) -> Self {
        let plan = Self::without_lingering(random);
        // A clone: all other worlds stay the same.
        let mut random = random.clone();
        // Data lost while a lock is not held would go unnoticed. And an outage under load counts commands.
        let lingers = !plan.forgetful && plan.load == 0 && random.u8(..3) == 0;
        let longest = random.choice([50, 300, 2000]).unwrap_or(2000);
        Self { linger: if lingers { longest } else { 0 }, ..plan }
    }

    fn without_lingering(random: &mut Rng) -> Self {
        let pauses = [None, Some(1500), Some(500), Some(150)];
        let is_busy = random.u8(..8) == 0;
        let forgetful = !is_busy && random.u8(..4) == 0;
        let (shortest, longest) = match random.u8(..4) {
            _ if is_busy => (1000, 4000),
            0 => (4000, 12_000),
            _ if forgetful => (4000, 12_000),
            _ => (100, 4000),
        };
        let faults = match () {
            () if is_busy => 500,
            () if forgetful => random.u64(8000..=12_000),
            () => random.u64(3000..=9000),
        };
        let mut plan = Self {
            servers: 1,
            nodes: 0,
            processes: random.usize(2..=4),
            tasks: if is_busy { random.choice([1, 6]).unwrap_or(1) } else { random.u32(1..=4) },
            keys: if is_busy { 1 } else { random.choice([1, 2, 3, 12, 12]).unwrap_or(1) },
            is_busy,
            lease: random.u64(shortest..=longest),
            faults: Duration::from_millis(faults),
            push_lost: if !is_busy && random.u8(..6) == 0 { 0.2 } else { 0.0 },
            cut: if !is_busy && random.u8(..6) == 0 { 0.02 } else { 0.0 },
            pause: random.choice(pauses).filter(|_| !is_busy).flatten().map(Duration::from_millis),
            rate: 0.992 + 0.016 * random.f64(),
            drift_ppm: 10_000,
            forgetful,
            load: 0,
            late: Late::Never,
            foreign: false,
            linger: 0,
            delete: None,
            stalls: 0.0,
            script_time: random.choice([ScriptTime::Passes, ScriptTime::StandsStill]).unwrap_or_default(),
            round_trip: if is_busy { 0 } else { random.choice(ROUND_TRIPS).unwrap_or_default() },
        };
        // A lost message, a long distance, and a late task cost a second each: not all of them at once.
        if plan.push_lost == 0.0 && plan.cut == 0.0 && plan.round_trip <= 1 {
            plan.late = Late::of(random);
        }
        // Instead of some calm worlds; all others stay the same.
        if plan.pause.is_none() && !is_busy && !forgetful && random.clone().bool() {
            plan.load = 8;
            plan.late = Late::Never;
            plan.faults += OUTAGE;
            return plan.with_leases_for_its_distance();
        }
        let plan = match random.u8(..8) {
            // Leases so short that the allowed drift is less than the noise of the checks.
            0 if !is_busy && !forgetful => {
                Self { rate: 1.0 + 0.03 * random.f64(), drift_ppm: 40_000, lease: plan.lease.min(3000), ..plan }
            }
            _ => plan,
        };
        if is_busy || forgetful || random.u8(..6) != 0 {
            return plan.with_leases_for_its_distance().with_company(&mut random.clone());
        }
        // A holder that relies on its lock for too long shows in worlds where locks change hands often and are used to their end.
        Self { stalls: 0.02, keys: random.u64(1..=2), lease: random.u64(300..=2500), late: Late::Never, ..plan }
            .with_leases_for_its_distance()
    }

    /// In worlds without other events: other users of the server, or of the thread. All other worlds stay the same.
    fn with_company(self, random: &mut Rng) -> Self {
        let is_lossless = self.push_lost == 0.0 && self.cut == 0.0 && self.round_trip <= 1;
        if self.pause.is_some() || self.is_busy || self.forgetful || self.late != Late::Never || !is_lossless {
            return self;
        }
        match random.u8(..5) {
            0 | 1 => Self { foreign: true, keys: random.u64(1..=3), ..self },
            2 | 3 => Self { late: Late::Thread(5000), processes: 1, tasks: 100, keys: 1, ..self },
            _ => self,
        }
    }

    fn with_leases_for_its_distance(self) -> Self {
        Self { lease: self.lease.max(self.shortest_lease()), ..self }
    }

    /// Long enough for a grant, a renewal and a failed renewal: a shorter lease can't be acquired at this distance, or can't be kept. The
    /// same holds for tasks that read their grants late.
    pub(super) fn shortest_lease(&self) -> u64 {
        // On a quorum a fencing token takes two more round trips.
        50 + (self.round_trip + self.late.of_each()) * if self.servers > 1 { 6 } else { 4 }
    }

    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_millis(self.round_trip)
    }

    /// Whether the check's property is promised. Late tasks together with a distant server, or with lost messages, cost more than each
    /// alone, and no promise says how much: such worlds are judged only by what always holds.
    fn is_promised(&self, check: &str) -> bool {
        // In a cluster each master has its own connection, made when it is needed. The check does not know that, and it matters over a long
        // distance.
        if self.nodes > 0 && self.round_trip > 0 && check == "C8 errors are true" {
            return false;
        }
        // Tasks poll a quorum: a task that is polled late asks late, and no promise says when it gets the lock.
        if self.servers > 1 && self.late != Late::Never && check == "C5 a free lock is taken" {
            return false;
        }
        let is_lossless = self.push_lost == 0.0 && self.cut == 0.0 && self.round_trip <= 1;
        is_lossless || self.late == Late::Never || ALWAYS.contains(&check)
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            lease: Duration::from_millis(self.lease),
            noise: Duration::from_millis(100),
            // On a quorum a fencing token takes two more round trips.
            round_trip: self.round_trip() * if self.servers > 1 { 2 } else { 1 },
            answer: Duration::from_millis(500),
            forgetful: self.forgetful,
            tells: true,
            queues: self.servers == 1,
            splits: self.servers > 1,
            linger: Duration::from_millis(self.linger),
        }
    }
}

/// The result of a world.
pub(super) struct Outcome {
    pub(super) plan: Plan,
    pub(super) history: History,
    pub(super) violations: Vec<Violation>,
}

impl Outcome {
    pub(super) fn grants(&self) -> usize {
        self.history.attempts.iter().filter(|attempt| attempt.claim.is_some()).count()
    }

    pub(super) fn faults(&self) -> usize {
        self.history.faults.len()
    }
}

/// Where the locks of a world are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    OneServer,
    Quorum,
    Cluster,
}

impl Place {
    pub(super) fn plan(self, random: &mut Rng) -> Plan {
        let plan = match self {
            Self::OneServer => Plan::of(random),
            Self::Quorum => quorum::plan(random),
            Self::Cluster => cluster::plan(random),
        };
        Plan { delete: choose_delete(random), ..plan }
    }
}

/// Runs the world of a seed, with or without a bug.
pub(super) fn run(place: Place, seed: u64, bug: Option<Bug>) -> Outcome {
    let _seeded = Seeded::begin(bug.and_then(Bug::mutant));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let mut random = Rng::with_seed(seed);
    let plan = place.plan(&mut random);
    let (history, mut violations) = runtime.block_on(live(&plan, bug, &mut random));
    violations.extend(history::checks::judge(&history, &plan.bounds()));
    violations.retain(|violation| plan.is_promised(violation.check));
    Outcome { plan, history, violations }
}

async fn live(plan: &Plan, bug: Option<Bug>, random: &mut Rng) -> (History, Vec<Violation>) {
    let _time = Simulated::begin();
    let servers = Servers::of(plan, bug, random);
    // A panic here is a task's, or comes from code that saw the clock stand still.
    let went = AssertUnwindSafe(timeout(LONGEST, detach(plan, &servers, random))).catch_unwind().await;
    let why = match went {
        Ok(Ok(())) => None,
        Ok(Err(_)) => Some(format!("it lasts longer than {LONGEST:?}")),
        Err(panic) => Some(said(&*panic)),
    };
    let mut violations: Vec<_> = servers.all().iter().flat_map(left_behind).collect();
    let why = why.or_else(|| time::stood_still().then(|| "time stands still for all others".to_owned()));
    violations.extend(servers.take_seen());
    violations.extend(why.map(|text| Violation { check: "C4 the world ends", text, key: None, range: (0, 0) }));
    (History::of(servers.take_events()), violations)
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

async fn detach(plan: &Plan, servers: &Servers, random: &mut Rng) {
    let end = Instant::now() + plan.faults;
    let mut processes: Vec<_> =
        (0..plan.processes).map(|at| Process::start(servers, &format!("p{at}"), plan, end, random)).collect();
    faults::befall(servers, plan, &mut processes, end, random).await;
    // Nobody can notice such a connection while its process does not use it, so the fault would go on.
    servers.cut_unused();
    servers.note(history::claims::HARNESS, 0, What::Healed);
    for process in &mut processes {
        process.finish().await;
    }
    // Longer than the server keeps a queue without asks, and longer than any lease.
    sleep(Duration::from_secs(16) + Duration::from_millis(plan.lease)).await;
}

/// Locks and queues that are still on the server.
fn left_behind(network: &Arc<Network>) -> Vec<Violation> {
    let keys = network.server(ModelServer::snapshot);
    let left = keys.into_iter().filter(|(key, _)| !key.ends_with(":fence") && key != MARKER);
    left.map(|(key, _)| Violation {
        check: "C9 all is released",
        text: format!("{key} is left"),
        key: Some(key),
        range: (0, 0),
    })
    .collect()
}

pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
