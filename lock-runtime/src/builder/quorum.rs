//! How a manager connects to a quorum of servers.

use std::sync::Arc;
use std::time::Duration;

use super::Settings;
use crate::clock::Deadline;
use crate::engine::Engine;
use crate::keeper::thread::KeeperThread;
use crate::store::AnyStore;
use crate::store::quorum::Quorum;
use crate::store::redis::RedisStore;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::link::{Channel, Link};
use crate::store::voter::MARKER;
use crate::token::Process;
use crate::{LockError, LockManager};

/// A server that restarts has no vote for this long, unless the user sets `max_lease`.
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(1);
/// A server that needs more than this part of the command timeout is not waited for when another server will do.
pub(crate) const PATIENCE: u32 = 5;

/// A lease that lingers must yield to whoever waits. On a quorum the one who waits tells the first server alone, and a process
/// that has lost that server would not hear of it.
const NO_LINGER: &str =
    "on a quorum no lock is kept without a hold: its owner could not be told that another process waits";

impl Settings {
    /// The settings as a quorum needs them; refuses settings that a quorum can't have.
    fn of_quorum(mut self) -> Result<Self, LockError> {
        if self.min_replicas.is_some() {
            let reason = "a quorum has no replicas to wait for: its servers are independent";
            return Err(LockError::setting("min_replicas", reason));
        }
        self.max_lease.get_or_insert(MAX_LEASE);
        self.reserved = Some(MARKER);
        self.refuses_linger = Some(NO_LINGER);
        self.check()?;
        Ok(self)
    }
}

/// All parts of a manager, before anything is sent.
pub(super) struct Wired {
    settings: Settings,
    process: Process,
    front: Quorum<RedisStore>,
    back: Vec<RedisStore>,
    thread: Arc<KeeperThread>,
}

pub(super) fn wire(settings: Settings, endpoints: &[Endpoint]) -> Result<Wired, LockError> {
    let settings = settings.of_quorum()?;
    if endpoints.iter().any(Endpoint::is_tls) {
        super::connect::choose_cryptography();
    }
    let thread = super::connect::keeper_thread(&addresses(endpoints))?;
    let process = Process::new(&settings.label);
    let nodes = |channel: Option<Channel>| -> Vec<RedisStore> {
        let node = |endpoint: &Endpoint| {
            let (command, connect) = (settings.command_timeout, settings.connect_timeout);
            RedisStore::new(Link::new(
                endpoint.clone(),
                channel.clone(),
                None,
                settings.max_lease,
                settings.drift(),
                (command, connect),
            ))
        };
        endpoints.iter().map(node).collect()
    };
    let (front, back) = (quorum(nodes(Some(Channel::of_callers(process.id()))), &settings), nodes(None));
    Ok(Wired { settings, process, front, back, thread })
}

fn quorum(nodes: Vec<RedisStore>, settings: &Settings) -> Quorum<RedisStore> {
    Quorum::new(nodes, settings.command_timeout / PATIENCE)
}

fn addresses(endpoints: &[Endpoint]) -> String {
    endpoints.iter().map(Endpoint::address).collect::<Vec<_>>().join(", ")
}

impl Wired {
    pub(super) fn into_manager(self) -> LockManager {
        let Self { settings, process, front, back, thread } = self;
        for look in back.clone() {
            let deadline = Deadline::after(settings.connect_timeout);
            thread.spawn(async move { look.warn_of_eviction(deadline).await });
        }
        let back = quorum(back, &settings);
        let store = |quorum| Arc::new(AnyStore::Quorum(quorum));
        LockManager::new(Engine::new(settings, process, store(front), store(back), Some(thread)))
    }
}

pub(super) async fn connect(settings: Settings, endpoints: &[Endpoint]) -> Result<LockManager, LockError> {
    let wired = wire(settings, endpoints)?;
    let connected = wired.front.connect(Deadline::after(wired.settings.connect_timeout)).await;
    connected.map_err(|error| LockError::Connect { server: addresses(endpoints), problem: error.problem })?;
    Ok(wired.into_manager())
}
