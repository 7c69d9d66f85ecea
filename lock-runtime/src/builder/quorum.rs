//! How a manager connects to a quorum of servers.

use std::time::Duration;

use lock_wire::{Channel, Endpoint};

use super::Settings;
use super::wired::Wired;
use crate::LockError;
use crate::store::AnyStore;
use crate::store::quorum::{Grants, Quorum};
use crate::store::redis::RedisStore;
use crate::store::redis::connections::of_callers;
use crate::store::voter::MARKER;

/// A server that restarts has no vote for this long, unless the user sets `max_lease`.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(3600);
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

pub(super) fn wire(settings: Settings, endpoints: &[Endpoint]) -> Result<Wired, LockError> {
    let addresses = endpoints.iter().map(Endpoint::address).collect::<Vec<_>>().join(", ");
    let is_tls = endpoints.iter().any(Endpoint::is_tls);
    Wired::new(addresses, is_tls, settings.of_quorum()?, |settings, process, connections| {
        let nodes = |channel: Option<Channel>| -> Vec<RedisStore> {
            let node =
                |endpoint: &Endpoint| connections.to_server(endpoint.clone(), channel.clone(), settings.max_lease);
            endpoints.iter().map(node).collect()
        };
        let grants = Grants::default();
        let quorum = |nodes| AnyStore::Quorum(Quorum::new(nodes, settings.command_timeout / PATIENCE, grants.clone()));
        let (front, back) = (nodes(Some(of_callers(process.id()))), nodes(None));
        (quorum(front), quorum(back.clone()), back)
    })
}
