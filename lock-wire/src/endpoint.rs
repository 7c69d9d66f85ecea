//! [`Endpoint`]: where a link connects to.

use std::time::Duration;

use redis::{ConnectionInfo, Pipeline};

use crate::failure::CallError;
use crate::greeting::{Greeted, OnFailover, greet};
use crate::sentinel::Sentinels;
use crate::wire::{Hear, Peer, Trust};

/// How to reach a server.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// The server at this address, whichever it is.
    Server(Box<Peer>),
    /// The server that the sentinels name as the master.
    Master(Box<Sentinels>),
    /// A node of a cluster.
    Node(Box<Peer>),
}

impl Endpoint {
    /// A server that a test simulates.
    #[cfg(feature = "simulation")]
    pub fn simulated(info: ConnectionInfo, host: std::sync::Arc<dyn crate::simulation::Host>) -> Self {
        Self::Server(Box::new(Peer::new(info, Trust::default()).simulated(host)))
    }

    /// The server at this address, with these credentials.
    pub fn of_connection(info: ConnectionInfo, trust: &Trust) -> Result<Self, CallError> {
        let peer = Peer::new(info, trust.clone());
        peer.check()?;
        Ok(Self::Server(Box::new(peer)))
    }

    /// The address for messages, without credentials.
    pub fn address(&self) -> String {
        match self {
            Self::Server(peer) | Self::Node(peer) => peer.address(),
            Self::Master(sentinels) => sentinels.to_string(),
        }
    }

    /// Whether it speaks TLS.
    pub fn is_tls(&self) -> bool {
        match self {
            Self::Server(peer) | Self::Node(peer) => peer.is_tls(),
            Self::Master(sentinels) => sentinels.is_tls(),
        }
    }

    /// Whether it is a node of a cluster.
    pub(crate) fn is_node(&self) -> bool {
        matches!(self, Self::Node(_))
    }

    /// Whether another server may take over from the one that a connection leads to.
    pub fn moves(&self) -> bool {
        matches!(self, Self::Master(_))
    }

    /// Whether it is a plain address, which may lead to another server by now: a proxy, or a name that follows the master.
    pub(crate) fn is_address(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// Connects. The caller's runtime drives the connection, and `hear` handles its pushes. The `commands` are sent along with the
    /// greeting. The `limit` applies to each step.
    pub(crate) async fn connect(
        &self,
        hear: impl Hear + Clone,
        commands: &Pipeline,
        limit: Duration,
        on_failover: &OnFailover,
    ) -> Result<Greeted, CallError> {
        match self {
            Self::Server(peer) => {
                let mut greeted = greet(peer, hear, commands).await?;
                greeted.check_alone().await?;
                Ok(greeted)
            }
            Self::Node(peer) => greet(peer, hear, commands).await,
            Self::Master(sentinels) => sentinels.connect(hear, commands, limit, on_failover).await,
        }
    }
}
