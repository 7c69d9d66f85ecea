//! [`Host`]: one process's way to a server.

use std::fmt;
use std::sync::Arc;

use tokio::time::sleep;

use super::network::Network;
use crate::store::redis::failure::CallError;
use crate::store::redis::wire::Socket;

/// One process's way to the server.
#[derive(Clone)]
pub(crate) struct Host {
    network: Arc<Network>,
    process: Arc<str>,
    /// The node of a cluster that it leads to.
    node: Option<usize>,
}

impl Host {
    pub(super) fn new(network: Arc<Network>, process: &str) -> Self {
        Self { network, process: process.into(), node: None }
    }

    /// The process's way to a node of a cluster.
    pub(crate) fn to_node(&self, node: usize) -> Self {
        Self { node: Some(node), ..self.clone() }
    }

    /// Whether it is one of the nodes of a cluster.
    pub(crate) fn is_node(&self) -> bool {
        self.node.is_some()
    }

    pub(crate) async fn connect(&self) -> Result<Socket, CallError> {
        self.network.passable(&self.process).await;
        // The handshake of TCP. What follows on the connection takes its time by itself.
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
