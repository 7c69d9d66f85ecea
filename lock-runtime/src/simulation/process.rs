//! [`Process`]: a manager with its tasks, which can be killed.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use history::event::What;
use lock_wire::Channel;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::cluster;
use super::late::{Diary, Late, PolledLate, Thread};
use super::network::Network;
use super::servers::Servers;
use super::tasks::{Task, lingers};
use super::world::Plan;
use crate::LockManager;
use crate::builder::connect::{MAX_LEASE, PATIENCE};
use crate::engine::Engine;
use crate::settings::Settings;
use crate::store::AnyStore;
use crate::store::quorum::{Grants, Quorum};
use crate::store::redis::RedisStore;
use crate::store::redis::connections::{Connections, of_callers, of_keeper};
use crate::token::Process as Caller;

pub(super) struct Process {
    servers: Servers,
    name: String,
    generation: u32,
    manager: LockManager,
    tasks: Vec<JoinHandle<()>>,
    /// Whether leases linger in this process.
    lingers: bool,
    round_trip: Duration,
}

impl Process {
    pub(super) fn start(servers: &Servers, host: &str, plan: &Plan, end: Instant, random: &mut Rng) -> Self {
        Self::begin_life(servers, host, 1, plan, end, random)
    }

    fn begin_life(servers: &Servers, host: &str, generation: u32, plan: &Plan, end: Instant, random: &mut Rng) -> Self {
        let name = format!("{host}.{generation}");
        let network = servers.first();
        let manager = if plan.nodes > 0 {
            connect_to_cluster(network, &name, plan.drift_ppm)
        } else {
            let settings = Settings { max_clock_drift_ppm: plan.drift_ppm, label: name.clone(), ..Settings::default() };
            connect_with(servers.all(), settings)
        };
        let thread = Thread::new(end);
        let tasks = (0..plan.tasks).map(|number| {
            let task = Task::new(network, &name, number, manager.clone(), plan, end, random.fork());
            // Two tasks have their own thread.
            let is_apart = matches!(plan.late, Late::Thread(_)) && number + 2 >= plan.tasks;
            if plan.late == Late::Never || is_apart {
                return tokio::spawn(task.live());
            }
            let diary = Diary { network: Arc::clone(network), process: name.clone(), task: number };
            tokio::spawn(PolledLate::on(&thread, task.live(), plan.late, random.fork(), diary))
        });
        let tasks = tasks.collect();
        let lingers = plan.linger > 0 && lingers(&name);
        Self { servers: servers.clone(), name, generation, manager, tasks, lingers, round_trip: plan.round_trip() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn manager(&self) -> &LockManager {
        &self.manager
    }

    /// The process disappears within an instant, and another takes its place. Its last messages may still arrive.
    pub(super) fn kill(&mut self, plan: &Plan, end: Instant, random: &mut Rng) {
        for task in &self.tasks {
            task.abort();
        }
        self.servers.part(&self.name, Duration::from_hours(24));
        if random.bool() {
            // Its host is alive, and closes its connections.
            self.servers.cut(Some(&self.name));
        }
        self.servers.note(&self.name, 0, What::Killed);
        let host = self.name.split('.').next().unwrap_or_default().to_owned();
        *self = Self::begin_life(&self.servers, &host, self.generation + 1, plan, end, random);
    }

    pub(super) async fn finish(&mut self) {
        for task in self.tasks.drain(..) {
            task.await.unwrap();
        }
        // Even without a shutdown nothing is left of an unused key (promise 9).
        let table = self.manager.core().table();
        for _ in 0..40 {
            if table.all().is_empty() {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.note_keys_in_use("keys in use when all tasks are done");
        if self.lingers {
            self.leave_lingering().await;
        }
        self.manager.shutdown().await;
        self.note_keys_in_use("keys in use after the shutdown");
        self.servers.note(&self.name, 0, What::Ended);
    }

    /// Shuts down while a lease lingers. The shutdown does not wait for the linger time.
    async fn leave_lingering(&self) {
        let linger = Duration::from_secs(2);
        if let Ok(guard) = self.manager.lock("k", &*self.name).linger(linger).acquire().await {
            drop(guard);
        }
        let _ = timeout(linger / 2 + self.round_trip, self.manager.shutdown()).await;
        self.note_keys_in_use("keys in use when the shutdown is to have released what lingers");
    }

    fn note_keys_in_use(&self, thing: &str) {
        let after = self.manager.core().table().all().len().try_into().unwrap_or(u64::MAX);
        self.servers.note(&self.name, 0, What::Left { thing: thing.to_owned(), before: 0, after });
    }
}

pub(super) fn connect(network: &Arc<Network>, name: &str) -> LockManager {
    connect_with(std::slice::from_ref(network), Settings { label: name.to_owned(), ..Settings::default() })
}

pub(super) fn connect_patiently(network: &Arc<Network>, name: &str, command_timeout: Duration) -> LockManager {
    let settings = Settings { command_timeout, label: name.to_owned(), ..Settings::default() };
    connect_with(std::slice::from_ref(network), settings)
}

pub(super) fn connect_to(servers: &Servers, name: &str) -> LockManager {
    connect_with(servers.all(), Settings { label: name.to_owned(), ..Settings::default() })
}

pub(super) fn connect_to_cluster(network: &Arc<Network>, name: &str, max_clock_drift_ppm: u32) -> LockManager {
    let settings = Settings { max_clock_drift_ppm, label: name.to_owned(), ..Settings::default() };
    let process = Caller::new(name);
    let stores = cluster::stores(network, name, &settings, process.id());
    let [front, back] = stores.map(|store| Arc::new(AnyStore::Redis(store)));
    LockManager { engine: Engine::new(settings, process, front, back, None) }
}

/// What all connections of a manager share. A world has one thread.
pub(super) fn of_links(settings: &Settings) -> Connections {
    Connections::new(settings, |work| drop(tokio::spawn(work)))
}

/// The label is the name of the process.
fn connect_with(servers: &[Arc<Network>], settings: Settings) -> LockManager {
    let name = &*settings.label.clone();
    let process = Caller::new(name);
    let of_quorum = (servers.len() > 1).then_some(MAX_LEASE);
    let nodes = |channel: Option<Channel>| -> Vec<RedisStore> {
        let node = |network: &Arc<Network>| {
            let endpoint = network.host(name).endpoint();
            of_links(&settings).to_server(endpoint, channel.clone(), of_quorum)
        };
        servers.iter().map(node).collect()
    };
    let grants = Grants::default();
    let store = |channel| {
        let mut nodes = nodes(channel);
        Arc::new(match nodes.pop() {
            Some(one) if nodes.is_empty() => AnyStore::Redis(one),
            last => {
                nodes.extend(last);
                AnyStore::Quorum(Quorum::new(nodes, settings.command_timeout / PATIENCE, grants.clone()))
            }
        })
    };
    let keeper = of_quorum.is_none().then(|| of_keeper(process.id()));
    let (front, back) = (store(Some(of_callers(process.id()))), store(keeper));
    LockManager { engine: Engine::new(settings, process, front, back, None) }
}
