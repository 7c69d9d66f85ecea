//! [`Endpoint`]: where a link connects to.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, ConnectionAddr, ProtocolVersion, RedisResult};

/// A server, and how to reach it.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    Server(Box<redis::Client>),
    #[cfg(test)]
    Simulated(crate::simulation::Host),
}

impl Endpoint {
    /// The client's address and credentials, with the settings that the protocol needs.
    pub(crate) fn of_client(client: &redis::Client) -> RedisResult<Self> {
        let info = client.get_connection_info().clone();
        let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(
            socket2::TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(3)),
        );
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(Duration::from_secs(5));
        let client = redis::Client::open(info.set_redis_settings(redis).set_tcp_settings(tcp))?;
        Ok(Self::Server(Box::new(client)))
    }

    /// As people write it, without credentials.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Server(client) => client.get_connection_info().addr().to_string(),
            #[cfg(test)]
            Self::Simulated(host) => host.to_string(),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        match self {
            Self::Server(client) => matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. }),
            #[cfg(test)]
            Self::Simulated(_) => false,
        }
    }

    /// Connects; the connection is driven by the runtime of the caller.
    pub(super) async fn connect(&self, config: AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        match self {
            Self::Server(client) => client.get_multiplexed_async_connection_with_config(&config).await,
            #[cfg(test)]
            Self::Simulated(host) => host.connect(config).await,
        }
    }
}
