//! [`World`]: one run, from its seed to its history.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use history::event::What;
use history::{Bounds, History, Violation};
use server_model::{ModelServer, Stored};
use tokio::time::{Instant, sleep};

use super::faults;
use super::network::Network;
use super::process::Process;
use super::time::Simulated;

/// How many tasks and faults, and of which kinds; all by the seed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) processes: usize,
    pub(super) tasks: u32,
    pub(super) keys: u64,
    /// The longest lease, in milliseconds.
    pub(super) lease: u64,
    /// How long there are faults.
    pub(super) faults: Duration,
    /// The mean time between two faults; `None` for a calm world.
    pub(super) pause: Option<Duration>,
    /// How fast the server's clock is.
    pub(super) rate: f64,
}

impl Plan {
    fn of(random: &mut Rng) -> Self {
        let pauses = [None, Some(1500), Some(500), Some(150)];
        Self {
            processes: random.usize(2..=4),
            tasks: random.u32(1..=4),
            keys: random.u64(1..=3),
            lease: random.u64(100..=4000),
            faults: Duration::from_millis(random.u64(3000..=9000)),
            pause: random.choice(pauses).flatten().map(Duration::from_millis),
            rate: 0.992 + 0.016 * random.f64(),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            lease: Duration::from_millis(self.lease),
            noise: Duration::from_millis(100),
            forgetful: false,
            tells: true,
            queues: true,
        }
    }
}

/// What became of a world.
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

/// Runs the world of a seed.
pub(super) fn run(seed: u64, seeded: impl Fn(&mut ModelServer)) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let mut random = Rng::with_seed(seed);
    let plan = Plan::of(&mut random);
    let mut server = ModelServer::new();
    seeded(&mut server);
    let (history, mut violations) = runtime.block_on(live(&plan, server, &mut random));
    violations.extend(history::checks::judge(&history, &plan.bounds()));
    Outcome { plan, history, violations }
}

async fn live(plan: &Plan, server: ModelServer, random: &mut Rng) -> (History, Vec<Violation>) {
    let _time = Simulated::begin();
    let network = Network::new(server, plan.rate, random.fork());
    let end = Instant::now() + plan.faults;
    let mut processes: Vec<_> =
        (0..plan.processes).map(|at| Process::start(&network, &format!("p{at}"), plan, end, random)).collect();
    faults::befall(&network, plan, &mut processes, end, random).await;
    network.note(history::claims::HARNESS, 0, What::Healed);
    for process in &mut processes {
        process.finish().await;
    }
    // Longer than a queue that nobody asks for, and than any lease.
    sleep(Duration::from_secs(6)).await;
    let left = left_behind(&network);
    (History::of(network.take_events()), left)
}

/// Locks and queues that are still in the server.
fn left_behind(network: &Arc<Network>) -> Vec<Violation> {
    let keys = network.server(ModelServer::snapshot);
    let left =
        keys.into_iter().filter(|(key, entry)| !matches!(entry.value, Stored::String(_)) || !key.ends_with(":fence"));
    left.map(|(key, _)| Violation {
        check: "C9 all is given back",
        text: format!("{key} is left"),
        key: Some(key),
        range: (0, 0),
    })
    .collect()
}

pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
