//! [`Host`]: the way from one process to a server.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use lock_wire::{CallError, Endpoint, Socket};
use redis::{ConnectionInfo, IntoConnectionInfo};
use tokio::time::sleep;

use super::network::Network;

#[derive(Clone)]
pub(crate) struct Host {
    network: Arc<Network>,
    process: Arc<str>,
    /// The cluster node that it leads to.
    node: Option<usize>,
}

impl Host {
    pub(super) fn new(network: Arc<Network>, process: &str) -> Self {
        Self { network, process: process.into(), node: None }
    }

    /// The server that it leads to, for connections that do not announce the library.
    pub(super) fn endpoint(self) -> Endpoint {
        Endpoint::simulated(nameless("redis://server"), Arc::new(self))
    }

    async fn open(&self) -> Result<Socket, CallError> {
        self.network.passable(&self.process).await;
        // The TCP handshake. Messages on the connection take their own time.
        sleep(self.network.round_trip()).await;
        if self.network.rolls(|conditions| conditions.refused) {
            let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            return Err(CallError::of_setup(refused.into(), false));
        }
        let (near, far) = tokio::io::duplex(1 << 16);
        self.network.accept(&self.process, self.node.unwrap_or_default(), far);
        Ok(Socket::of(near))
    }
}

/// Parses a URL, for a connection that does not announce the library.
pub(super) fn nameless(url: &str) -> ConnectionInfo {
    let info = url.into_connection_info().unwrap();
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    info.set_redis_settings(settings)
}

impl lock_wire::simulation::Host for Host {
    fn connect(&self) -> BoxFuture<'_, Result<Socket, CallError>> {
        Box::pin(self.open())
    }

    fn to_node(&self, node: usize) -> Arc<dyn lock_wire::simulation::Host> {
        Arc::new(Self { node: Some(node), ..self.clone() })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {} of {}", self.network.number(), self.process)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
