//! [`Endpoint`]: where a link connects to.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, Pipeline, ProtocolVersion, RedisResult, Value};
use tokio::task::JoinSet;

use super::failure::CallError;
use super::sentinel::Sentinels;
use crate::clock::Moment;

/// The oldest server with everything that the protocol uses (`SET … NX GET`, `PEXPIRE … GT`).
pub(super) const OLDEST: (u64, u64) = (7, 0);

/// A server, and how to reach it.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    Server(Box<redis::Client>),
    /// Whatever server the sentinels name as the master.
    Master(Box<Sentinels>),
    /// A node of a cluster.
    Node(Box<redis::Client>),
    #[cfg(test)]
    Simulated(crate::simulation::Host),
}

impl Endpoint {
    /// The client's address and credentials, with the settings that the protocol needs.
    pub(crate) fn of_client(client: &redis::Client) -> RedisResult<Self> {
        let client = redis::Client::open(with_settings(client.get_connection_info().clone()))?;
        Ok(Self::Server(Box::new(client)))
    }

    /// As people write it, without credentials.
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

    /// Whether another server may take the place of the one that a connection leads to.
    pub(crate) fn moves(&self) -> bool {
        matches!(self, Self::Master(_))
    }

    /// Connects; the connection is driven by the runtime of the caller. The `wishes` go along with the greeting. Each step of
    /// several ends after the `limit`.
    pub(super) async fn connect(
        &self,
        config: AsyncConnectionConfig,
        wishes: &Pipeline,
        limit: Duration,
        alarm: &Alarm,
    ) -> Result<Greeted, CallError> {
        match self {
            Self::Server(client) => {
                let mut greeted = greet(client, &config, wishes).await?;
                greeted.check_alone().await?;
                Ok(greeted)
            }
            Self::Node(client) => greet(client, &config, wishes).await,
            Self::Master(sentinels) => sentinels.connect(config, wishes, limit, alarm).await,
            #[cfg(test)]
            Self::Simulated(host) => greeted(host.connect(config).await, false, wishes).await,
        }
    }
}

/// Raised when a connection leads to the wrong server from now on.
pub(super) type Alarm = Arc<dyn Fn() + Send + Sync>;

/// A connection, and what the server says of itself.
pub(super) struct Greeted {
    pub(super) connection: MultiplexedConnection,
    /// The tasks that raise the alarm, where there are some; they end with this value.
    pub(super) listening: Option<Arc<JoinSet<()>>>,
    pub(super) hello: Value,
    /// The answers to what was sent along with the greeting.
    pub(super) told: Vec<Value>,
    /// The instant before all that was sent.
    pub(super) asked: Moment,
    /// How long the answer took.
    pub(super) round_trip: Duration,
}

impl Greeted {
    /// A field of the reply to `HELLO`.
    pub(super) fn says(&self, name: &str) -> Option<String> {
        says(&self.hello, name)
    }

    pub(super) fn check(&self) -> Result<(), CallError> {
        check(&self.hello)
    }

    /// Refuses a server that shares its slots with others: it would refuse most locks.
    async fn check_alone(&mut self) -> Result<(), CallError> {
        if says(&self.hello, "mode").as_deref() != Some("cluster") {
            return Ok(());
        }
        let mut command = redis::cmd("CLUSTER");
        let ranges = self.connection.send_packed_command(command.arg("SLOTS")).await.and_then(Value::extract_error)?;
        let is_all = |range: &Value| matches!(range, Value::Array(range) if range.starts_with(&[Value::Int(0), Value::Int(16_383)]));
        let serves_all = matches!(&ranges, Value::Array(ranges) if ranges.first().is_some_and(is_all));
        if serves_all && says(&self.hello, "role").as_deref() == Some("master") {
            return Ok(());
        }
        let text = "it is one of several servers of a cluster: write redis-cluster://host:port,host:port";
        Err(CallError::Unsuitable(text.to_owned()))
    }
}

/// A field of a reply that is a map.
pub(super) fn says(hello: &Value, name: &str) -> Option<String> {
    hello.as_map_iter()?.find_map(|(key, value)| {
        let is_it = super::text(key.clone())? == name;
        is_it.then(|| super::text(value.clone())).flatten()
    })
}

/// Refuses what is no server to lock on, or too old a one.
fn check(hello: &Value) -> Result<(), CallError> {
    if says(hello, "mode").as_deref() == Some("sentinel") {
        let text = "a sentinel answers there: write redis-sentinel://host:port/master-name";
        return Err(CallError::Unsuitable(text.to_owned()));
    }
    let (server, version) = (says(hello, "server").unwrap_or_default(), says(hello, "version").unwrap_or_default());
    let mut numbers = version.split('.').map_while(|number| number.parse::<u64>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= OLDEST {
        return Ok(());
    }
    Err(CallError::TooOld(format!("{} {version}", if server.is_empty() { "server" } else { &server })))
}

/// Connects to the client's server. What it says of itself and the answers to the `wishes` take one round trip together.
pub(super) async fn greet(
    client: &redis::Client,
    config: &AsyncConnectionConfig,
    wishes: &Pipeline,
) -> Result<Greeted, CallError> {
    let connection = client.get_multiplexed_async_connection_with_config(config).await;
    greeted(connection, is_tls(client.get_connection_info()), wishes).await
}

async fn greeted(
    connection: RedisResult<MultiplexedConnection>,
    is_tls: bool,
    wishes: &Pipeline,
) -> Result<Greeted, CallError> {
    let of_setup = |error| CallError::of_setup(error, is_tls);
    let mut connection = connection.map_err(of_setup)?;
    let mut all = redis::pipe();
    all.cmd("HELLO");
    for wish in wishes.cmd_iter() {
        all.add_command(wish.clone());
    }
    let asked = Moment::now();
    let mut told = connection.send_packed_commands(&all, 0, all.len()).await.map_err(of_setup)?;
    let round_trip = asked.elapsed();
    let hello = if told.is_empty() { Value::Nil } else { told.remove(0) };
    let hello = hello.extract_error().map_err(of_setup)?;
    Ok(Greeted { connection, listening: None, hello, told, asked, round_trip })
}

/// What the protocol needs, and what finds out about a connection that is dead.
pub(super) fn with_settings(info: ConnectionInfo) -> ConnectionInfo {
    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(
        socket2::TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(3)),
    );
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(Duration::from_secs(5));
    info.set_redis_settings(redis).set_tcp_settings(tcp)
}

pub(super) fn is_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_greeting_makes_it_panic(version in "[0-9]{0,25}(\\.[0-9a-z]{0,25}){0,3}|.*", other in super::super::tests::value()) {
            let version = (Value::SimpleString("version".into()), Value::BulkString(version.into_bytes()));
            let _ = check(&Value::Map(vec![(other.clone(), other.clone()), version]));
            let _ = check(&other);
        }
    }
}
