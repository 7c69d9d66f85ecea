//! [`Endpoint`]: where a link connects to.

use std::time::Duration;

use redis::{AsyncConnectionConfig, ConnectionInfo, Pipeline, RedisResult};

use super::failure::CallError;
#[cfg(test)]
use super::greeting::greet_over;
use super::greeting::{Greeted, OnFailover, greet, is_tls, with_settings};
use super::sentinel::Sentinels;

/// A server, and how to reach it.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    Server(Box<redis::Client>),
    /// The server that the sentinels name as the master.
    Master(Box<Sentinels>),
    /// A node of a cluster.
    Node(Box<redis::Client>),
    #[cfg(test)]
    Simulated(crate::simulation::Host),
}

impl Endpoint {
    /// The client's address and credentials, with the settings that the protocol needs.
    pub(crate) fn of_client(client: &redis::Client) -> RedisResult<Self> {
        Self::of_connection(client.get_connection_info().clone())
    }

    /// A server at this address, with the settings that the protocol needs.
    pub(crate) fn of_connection(info: ConnectionInfo) -> RedisResult<Self> {
        Ok(Self::Server(Box::new(redis::Client::open(with_settings(info))?)))
    }

    /// The address as people write it, without credentials.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Server(client) => client.get_connection_info().addr().to_string(),
            Self::Master(sentinels) => sentinels.to_string(),
            Self::Node(client) => client.get_connection_info().addr().to_string(),
            #[cfg(test)]
            Self::Simulated(host) => host.to_string(),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        match self {
            Self::Server(client) => is_tls(client.get_connection_info()),
            Self::Master(sentinels) => sentinels.is_tls(),
            Self::Node(client) => is_tls(client.get_connection_info()),
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

    /// Connects. The caller's runtime drives the connection. The `commands` go along with the greeting. Each step has the
    /// `limit` for itself.
    pub(super) async fn connect(
        &self,
        config: AsyncConnectionConfig,
        commands: &Pipeline,
        limit: Duration,
        on_failover: &OnFailover,
    ) -> Result<Greeted, CallError> {
        match self {
            Self::Server(client) => {
                let mut greeted = greet(client, &config, commands).await?;
                greeted.check_alone().await?;
                Ok(greeted)
            }
            Self::Node(client) => greet(client, &config, commands).await,
            Self::Master(sentinels) => sentinels.connect(config, commands, limit, on_failover).await,
            #[cfg(test)]
            Self::Simulated(host) => greet_over(host.connect(config).await, false, commands).await,
        }
    }
}
