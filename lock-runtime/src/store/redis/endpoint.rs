//! [`Endpoint`]: where a link connects to.

use std::time::Duration;

use redis::{ConnectionInfo, Pipeline};

use super::failure::CallError;
#[cfg(test)]
use super::greeting::greet_over;
use super::greeting::{Greeted, OnFailover, greet};
use super::sentinel::Sentinels;
use super::wire::{Hear, Peer, Trust};

/// A server, and how to reach it.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    Server(Box<Peer>),
    /// The server that the sentinels name as the master.
    Master(Box<Sentinels>),
    /// A node of a cluster.
    Node(Box<Peer>),
    #[cfg(test)]
    Simulated(crate::simulation::Host),
}

impl Endpoint {
    /// A server at this address, with these credentials.
    pub(crate) fn of_connection(info: ConnectionInfo, trust: &Trust) -> Result<Self, CallError> {
        let peer = Peer::new(info, trust.clone());
        peer.check()?;
        Ok(Self::Server(Box::new(peer)))
    }

    /// The address as people write it, without credentials.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Server(peer) | Self::Node(peer) => peer.address(),
            Self::Master(sentinels) => sentinels.to_string(),
            #[cfg(test)]
            Self::Simulated(host) => host.to_string(),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        match self {
            Self::Server(peer) | Self::Node(peer) => peer.is_tls(),
            Self::Master(sentinels) => sentinels.is_tls(),
            #[cfg(test)]
            Self::Simulated(_) => false,
        }
    }

    /// Whether it is one of the nodes of a cluster.
    pub(super) fn is_node(&self) -> bool {
        match self {
            Self::Node(_) => true,
            #[cfg(test)]
            Self::Simulated(host) => host.is_node(),
            _ => false,
        }
    }

    /// Whether another server may take the place of the server that a connection leads to.
    pub(crate) fn moves(&self) -> bool {
        matches!(self, Self::Master(_))
    }

    /// Whether it is an address, behind which another server may stand by now: a proxy, a name that follows the master.
    pub(super) fn is_address(&self) -> bool {
        match self {
            Self::Server(_) => true,
            #[cfg(test)]
            Self::Simulated(host) => !host.is_node(),
            _ => false,
        }
    }

    /// Connects. The caller's runtime drives the connection, and `hear` takes in what is pushed on it. The `commands` go along with
    /// the greeting. Each step has the `limit` for itself.
    pub(super) async fn connect(
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
            #[cfg(test)]
            Self::Simulated(host) => greet_over(host.connect().await?, hear, None, commands).await,
        }
    }
}
