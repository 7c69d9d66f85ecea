//! [`Sentinels`]: who knows which server is the master.
//!
//! Not the `redis` crate's `Sentinel`: it asks for the role of a master on one connection and uses another, waits for the
//! first sentinel of its list before it looks at what the second one said, with time limits of its own, and keeps
//! connections that end with the runtime that made them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, Value,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::endpoint::{Alarm, Greeted, greet, is_tls, with_settings};
use super::failure::CallError;

/// Where a sentinel listens when the URL does not say it.
const PORT: u16 = 26_379;
/// Asking a sentinel and connecting to a master have this part of the time each: one that is stopped, and one that a
/// sentinel wrongly names, must not use up the time of the others.
const STEPS: u32 = 4;

/// The sentinels of one master.
#[derive(Clone, Debug)]
pub(crate) struct Sentinels {
    /// Each with the credentials for the master.
    sentinels: Vec<ConnectionInfo>,
    /// What the sentinels call the master.
    name: Arc<str>,
}

impl Sentinels {
    /// Reads `[user:password@]host[:port],host[:port],…/name[/db]`, what follows `redis-sentinel://`. `scheme` is that of the
    /// servers.
    pub(crate) fn read(scheme: &str, rest: &str) -> Option<Self> {
        let (place, path) = rest.split_once('/')?;
        let (name, db) = path.split_once('/').unwrap_or((path, "0"));
        // What a sentinel's configuration allows.
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
        if name.is_empty() || !is_name(name) || db.parse::<u32>().is_err() {
            return None;
        }
        let (credentials, hosts) =
            place.rsplit_once('@').map_or(("", place), |(_, hosts)| place.split_at(place.len() - hosts.len()));
        let sentinel = |host: &str| {
            let has_port = host.rsplit(']').next()?.contains(':');
            let host = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
            format!("{scheme}://{credentials}{host}/{db}").into_connection_info().ok().map(with_settings)
        };
        let sentinels = hosts.split(',').map(sentinel).collect::<Option<_>>()?;
        Some(Self { sentinels, name: name.into() })
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.sentinels.iter().any(is_tls)
    }

    /// Connects to the master: to the first server named by any sentinel that is one by its own account.
    ///
    /// All are asked at the same time. A sentinel that was cut off, or has not heard of a failover yet, names a server
    /// that is gone, or is a replica now. Or the server still takes itself for the master, for some ten seconds after a
    /// failover: so the sentinel that named it is listened to, and raises the `alarm` when it names another.
    pub(super) async fn connect(
        &self,
        config: AsyncConnectionConfig,
        limit: Duration,
        alarm: &Alarm,
    ) -> Result<Greeted, CallError> {
        let limit = limit / STEPS;
        // Tasks, so that they go on while a server is tried that does not answer. They end with this value.
        let mut asked = JoinSet::new();
        for sentinel in &self.sentinels {
            asked.spawn(ask(sentinel.clone(), Arc::clone(&self.name), limit, Arc::clone(alarm)));
        }
        let mut tried = Vec::new();
        // What is said if there is no master: of the server that was named, rather than of a sentinel that is down.
        let (mut of_master, mut of_sentinels) = (None, None);
        while let Some(answer) = asked.join_next().await {
            let (master, listening) = match answer {
                Ok(Ok(named)) => named,
                Ok(Err(error)) => {
                    of_sentinels = Some(error);
                    continue;
                }
                // The runtime ends.
                Err(_) => continue,
            };
            if tried.contains(master.addr()) {
                continue;
            }
            tried.push(master.addr().clone());
            match connect_to(master, &config, limit).await {
                Ok(greeted) => return Ok(Greeted { listening: Some(Arc::new(listening)), ..greeted }),
                Err(error) => of_master = Some(error),
            }
        }
        let nobody = || CallError::Unsuitable("no sentinel could be asked".to_owned());
        Err(of_master.or(of_sentinels).unwrap_or_else(nobody))
    }
}

/// The server that a sentinel names, and the connection on which the sentinel tells of another.
async fn ask(
    sentinel: ConnectionInfo,
    name: Arc<str>,
    limit: Duration,
    alarm: Alarm,
) -> Result<(ConnectionInfo, MultiplexedConnection), CallError> {
    let server = sentinel.redis_settings();
    // A sentinel has no databases, and most often no password either: then it refuses one.
    let plain = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    let asking = async {
        let mut connection = listen(&sentinel, plain.clone(), &name, &alarm).await;
        if let (Err(CallError::Failed(error)), Some(password)) = (&connection, server.password())
            && error.code() == Some("NOAUTH")
        {
            let user = server.username().unwrap_or("default");
            let credentials = plain.set_username(user).set_password(password);
            connection = listen(&sentinel, credentials, &name, &alarm).await;
        }
        let mut connection = connection?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&*name);
        let address: Option<(String, u16)> = command.query_async(&mut connection).await?;
        let unknown = || CallError::Unsuitable(format!("it knows no master called `{name}`"));
        Ok((address.ok_or_else(unknown)?, connection))
    };
    let asked = timeout(limit, asking).await.unwrap_or(Err(CallError::NoConnection(limit)));
    let ((host, port), listening) = asked.map_err(|error| error.of(&format!("the sentinel {}", sentinel.addr())))?;
    let addr = match sentinel.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    Ok((sentinel.set_addr(addr), listening))
}

/// A connection to a sentinel that raises the alarm when the master is replaced, and when it breaks: then a connection to
/// another sentinel is needed.
async fn listen(
    sentinel: &ConnectionInfo,
    credentials: RedisConnectionInfo,
    name: &Arc<str>,
    alarm: &Alarm,
) -> Result<MultiplexedConnection, CallError> {
    let (alarm, master) = (Arc::clone(alarm), Arc::clone(name));
    let hear = move |info: PushInfo| -> Result<(), SendError> {
        let of_master =
            |value: &Value| super::text(value.clone()).is_some_and(|text| text.split(' ').any(|word| word == &*master));
        if info.kind == PushKind::Disconnection || info.kind == PushKind::Message && info.data.iter().any(of_master) {
            alarm();
        }
        Ok(())
    };
    let of_setup = |error| CallError::of_setup(error, is_tls(sentinel));
    let client = redis::Client::open(sentinel.clone().set_redis_settings(credentials))?;
    // The caller's limit is the only one.
    let config =
        AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None).set_push_sender(hear);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(of_setup)?;
    // The one is told by the sentinel that leads a failover as soon as there is a new master, the other by the rest.
    match connection.subscribe(&["+promoted-slave", "+switch-master"]).await {
        Err(error) if error.code() == Some("NOPERM") => {
            let text = "its user lacks +subscribe, or the channels &+promoted-slave and &+switch-master";
            Err(CallError::Unsuitable(text.to_owned()))
        }
        outcome => Ok(outcome.map(|()| connection)?),
    }
}

/// Connects to a server that has to be a master: a connection to a replica would be refused every lock.
async fn connect_to(
    master: ConnectionInfo,
    config: &AsyncConnectionConfig,
    limit: Duration,
) -> Result<Greeted, CallError> {
    let place = format!("the master {}", master.addr());
    let connecting = async {
        let greeted = greet(&redis::Client::open(master)?, config).await?;
        match greeted.says("role") {
            Some(role) if role != "master" => {
                Err(CallError::Unsuitable(format!("it is a {role} now: a failover may be under way")))
            }
            _ => Ok(greeted),
        }
    };
    let outcome = timeout(limit, connecting).await.unwrap_or(Err(CallError::NoConnection(limit)));
    outcome.map_err(|error| error.of(&place))
}

/// As people write it, without credentials.
impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.sentinels.iter().map(|sentinel| sentinel.addr().to_string()).collect();
        write!(f, "`{}` by the sentinels {}", self.name, addresses.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Option<Sentinels> {
        let (scheme, rest) = url.split_once("-sentinel://").unwrap();
        Sentinels::read(scheme, rest)
    }

    #[test]
    fn a_url_has_hosts_and_a_name_and_perhaps_credentials_and_a_database() {
        let plain = read("redis-sentinel://one,two:5,[::1],[::1]:7/the.till-1_a").unwrap();
        assert_eq!(plain.to_string(), "`the.till-1_a` by the sentinels one:26379, two:5, ::1:26379, ::1:7");
        let all = read("redis-sentinel://ada:s%40c@one,two/till/3").unwrap();
        for sentinel in &all.sentinels {
            let redis = sentinel.redis_settings();
            assert_eq!((redis.username(), redis.password(), redis.db()), (Some("ada"), Some("s@c"), 3));
        }
        assert_eq!(
            read("redis-sentinel://:secret@one/till").unwrap().sentinels[0].redis_settings().password(),
            Some("secret")
        );
    }

    #[test]
    fn what_names_no_host_or_no_master_is_refused() {
        for url in [
            "one",
            "one/",
            "one//",
            "/till",
            ",/till",
            "one,/till",
            "one,,two/till",
            "one/till/x",
            "one/till/",
            "one/till/0/1",
            "one/a b",
            "one:port/till",
            "one/till?db=3",
            "a@b,c@d@/till",
        ] {
            assert!(read(&format!("redis-sentinel://{url}")).is_none(), "{url}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let sentinels = read("redis-sentinel://ada:canary@one/till").unwrap();
        assert!(!sentinels.to_string().contains("canary") && !format!("{sentinels:?}").contains("canary"));
    }
}
