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
use crate::store::redis::link::Link;
use crate::store::voter::MARKER;
use crate::token::Process;
use crate::{BackendError, LockError, LockManager};

/// A server that restarts has no vote for this long, unless the user sets `max_lease`.
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(1);
/// A server that needs more than this part of the command timeout is not waited for when another server will do.
pub(crate) const PATIENCE: u32 = 5;

impl Settings {
    /// The settings as a quorum needs them; refuses settings that a quorum can't have.
    fn of_quorum(mut self) -> Result<Self, LockError> {
        if self.min_replicas.is_some() {
            let reason = "a quorum has no replicas to wait for: its servers are independent".to_owned();
            return Err(LockError::InvalidSetting { setting: "min_replicas", reason });
        }
        self.max_lease.get_or_insert(MAX_LEASE);
        self.reserved = Some(MARKER);
        self.check()?;
        Ok(self)
    }
}

pub(super) async fn connect(settings: Settings, endpoints: &[Endpoint]) -> Result<LockManager, LockError> {
    let settings = settings.of_quorum()?;
    let servers: Vec<_> = endpoints.iter().map(Endpoint::address).collect();
    let refused = |problem| LockError::Connect { server: servers.join(", "), problem };
    if endpoints.iter().any(Endpoint::is_tls) {
        super::connect::choose_cryptography();
    }
    let process = Process::new(&settings.label);
    let nodes = |process: Option<&str>| -> Vec<RedisStore> {
        let node = |endpoint: &Endpoint| {
            let (command, connect) = (settings.command_timeout, settings.connect_timeout);
            RedisStore::new(Link::new(
                endpoint.clone(),
                process,
                None,
                settings.max_lease,
                settings.drift(),
                (command, connect),
            ))
        };
        endpoints.iter().map(node).collect()
    };
    let quorum = |nodes| Quorum::new(nodes, settings.command_timeout / PATIENCE);
    let (front, back) = (quorum(nodes(Some(process.id()))), nodes(None));
    front.connect(Deadline::after(settings.connect_timeout)).await.map_err(|error| refused(error.problem))?;
    let thread = KeeperThread::shared()
        .map_err(|error| refused(BackendError::caused_by("the keeper's thread could not be started", error)))?;
    for look in back.clone() {
        let deadline = Deadline::after(settings.connect_timeout);
        thread.spawn(async move { look.warn_of_eviction(deadline).await });
    }
    let store = |quorum| Arc::new(AnyStore::Quorum(quorum));
    let (front, back) = (store(front), store(quorum(back)));
    Ok(LockManager::new(Engine::new(settings, process, front, back, Some(thread))))
}
