//! [`Greeted`]: a new connection, and what the server says about itself.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, Pipeline, ProtocolVersion, RedisResult, Value};
use tokio::task::JoinSet;

use super::failure::{CallError, OLDEST};
use crate::clock::Moment;

/// Called when a connection leads to the wrong server from now on.
pub(super) type OnFailover = Arc<dyn Fn() + Send + Sync>;

/// A connection, and what the server says about itself.
pub(super) struct Greeted {
    pub(super) connection: MultiplexedConnection,
    /// The tasks that call [`OnFailover`], where there are any. They end with this value.
    pub(super) listening: Option<Arc<JoinSet<()>>>,
    pub(super) hello: Value,
    /// The answers to the commands that were sent along with the greeting.
    pub(super) replies: Vec<Value>,
    /// The instant before everything was sent.
    pub(super) asked: Moment,
    /// How long the answer took.
    pub(super) round_trip: Duration,
}

impl Greeted {
    /// A field of the reply to `HELLO`.
    pub(super) fn hello_field(&self, name: &str) -> Option<String> {
        hello_field(&self.hello, name)
    }

    pub(super) fn check(&self) -> Result<(), CallError> {
        check(&self.hello)
    }

    /// Refuses a server that shares its hash slots with others: it would refuse most locks.
    pub(super) async fn check_alone(&mut self) -> Result<(), CallError> {
        if hello_field(&self.hello, "mode").as_deref() != Some("cluster") {
            return Ok(());
        }
        let mut command = redis::cmd("CLUSTER");
        let ranges = self.connection.send_packed_command(command.arg("SLOTS")).await.and_then(Value::extract_error)?;
        let is_all = |range: &Value| matches!(range, Value::Array(range) if range.starts_with(&[Value::Int(0), Value::Int(16_383)]));
        let serves_all = matches!(&ranges, Value::Array(ranges) if ranges.first().is_some_and(is_all));
        if serves_all && hello_field(&self.hello, "role").as_deref() == Some("master") {
            return Ok(());
        }
        let text = "it is one of several servers of a cluster: write redis-cluster://host:port,host:port";
        Err(CallError::Unsuitable(text.to_owned()))
    }
}

/// A field of a reply that is a map.
pub(super) fn hello_field(hello: &Value, name: &str) -> Option<String> {
    hello.as_map_iter()?.find_map(|(key, value)| {
        let is_it = super::text(key.clone())? == name;
        is_it.then(|| super::text(value.clone())).flatten()
    })
}

/// Refuses a server that can't hold locks, or is too old.
fn check(hello: &Value) -> Result<(), CallError> {
    if hello_field(hello, "mode").as_deref() == Some("sentinel") {
        let text = "a sentinel answers there: write redis-sentinel://host:port/master-name";
        return Err(CallError::Unsuitable(text.to_owned()));
    }
    let (server, version) =
        (hello_field(hello, "server").unwrap_or_default(), hello_field(hello, "version").unwrap_or_default());
    let mut numbers = version.split('.').map_while(|number| number.parse::<u64>().ok());
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found >= OLDEST {
        return Ok(());
    }
    Err(CallError::TooOld(format!("{} {version}", if server.is_empty() { "server" } else { &server })))
}

/// Connects to the client's server. The greeting and the `commands` take one round trip together.
pub(super) async fn greet(
    client: &redis::Client,
    config: &AsyncConnectionConfig,
    commands: &Pipeline,
) -> Result<Greeted, CallError> {
    let connection = client.get_multiplexed_async_connection_with_config(config).await;
    greet_over(connection, is_tls(client.get_connection_info()), commands).await
}

pub(super) async fn greet_over(
    connection: RedisResult<MultiplexedConnection>,
    is_tls: bool,
    commands: &Pipeline,
) -> Result<Greeted, CallError> {
    let of_setup = |error| CallError::of_setup(error, is_tls);
    let mut connection = connection.map_err(of_setup)?;
    let mut all = redis::pipe();
    all.cmd("HELLO");
    for command in commands.cmd_iter() {
        all.add_command(command.clone());
    }
    let asked = Moment::now();
    let mut replies = connection.send_packed_commands(&all, 0, all.len()).await.map_err(of_setup)?;
    let round_trip = asked.elapsed();
    let hello = if replies.is_empty() { Value::Nil } else { replies.remove(0) };
    let hello = hello.extract_error().map_err(of_setup)?;
    Ok(Greeted { connection, listening: None, hello, replies, asked, round_trip })
}

/// The settings that the protocol needs, and the settings that find a dead connection.
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
