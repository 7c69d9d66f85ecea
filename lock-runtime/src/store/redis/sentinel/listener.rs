//! [`Listener`]: listens to one sentinel for as long as the connection to its master is used.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use redis::aio::{MultiplexedConnection, SendError};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo, RedisConnectionInfo, Value,
};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::super::failure::CallError;
use super::super::greeting::{hello_field, is_tls};

/// A sentinel reports changes on its own. It is asked once in this time all the same, to find a dead connection.
const ASK_PAUSE: Duration = Duration::from_secs(2);
/// The pause before a connection is tried again that broke, or could not be made.
const CONNECT_PAUSE: Duration = Duration::from_secs(2);

const RIGHTS: &str = "its user needs +sentinel|get-master-addr-by-name +sentinel|master +subscribe &+switch-master \
                      &+promoted-slave";

/// Asks one sentinel for the master, again and again, and also at once when the sentinel reports a change.
pub(super) struct Listener {
    /// Which of the sentinels.
    pub(super) number: usize,
    /// With the credentials for the master.
    pub(super) sentinel: ConnectionInfo,
    /// What the sentinel calls the master.
    pub(super) name: Arc<str>,
    /// How long a step may take.
    pub(super) limit: Duration,
    pub(super) said: UnboundedSender<Said>,
}

/// What a sentinel says, or why it says nothing.
pub(super) struct Said {
    /// Which of the sentinels said it.
    pub(super) number: usize,
    pub(super) choice: Result<Choice, CallError>,
}

/// Which server the sentinels chose.
#[derive(Clone)]
pub(super) struct Choice {
    pub(super) master: ConnectionInfo,
    /// The number of the failover that made this server the master. The greatest number is right.
    pub(super) epoch: u64,
}

impl Choice {
    /// Whether this choice came after `other`, and chose another server.
    pub(super) fn replaces(&self, other: &Self) -> bool {
        self.epoch > other.epoch && self.master.addr() != other.master.addr()
    }
}

impl Listener {
    /// Runs until nobody listens any more.
    pub(super) async fn run(self) {
        let place = format!("the sentinel {}", self.sentinel.addr());
        while !self.said.is_closed() {
            let Err(error) = self.listen().await;
            self.say(Err(error.of(&place)));
            sleep(jittered(CONNECT_PAUSE)).await;
        }
    }

    fn say(&self, choice: Result<Choice, CallError>) {
        // Perhaps nobody listens any more.
        let _ = self.said.send(Said { number: self.number, choice });
    }

    /// Listens until the connection breaks, or is silent.
    async fn listen(&self) -> Result<Infallible, CallError> {
        let news = Arc::new(Notify::new());
        let (mut connection, mut choice) = self.limited(self.connect(&news)).await?;
        loop {
            self.say(Ok(choice));
            // The content of the news does not matter: the sentinel is asked.
            let _ = timeout(jittered(ASK_PAUSE), news.notified()).await;
            choice = self.limited(self.ask(&mut connection)).await?;
        }
    }

    async fn limited<T>(&self, step: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        timeout(self.limit, step).await.unwrap_or(Err(CallError::NoConnection(self.limit)))
    }

    async fn connect(&self, news: &Arc<Notify>) -> Result<(MultiplexedConnection, Choice), CallError> {
        let server = self.sentinel.redis_settings();
        // A sentinel has no databases. Most often it has no password either, and then it refuses a password.
        let plain = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        match (self.connect_as(plain.clone(), news).await, server.password()) {
            (Err(CallError::Failed(error)), Some(password)) if error.code() == Some("NOAUTH") => {
                let user = server.username().unwrap_or("default");
                self.connect_as(plain.set_username(user).set_password(password), news).await
            }
            (outcome, _) => outcome,
        }
    }

    async fn connect_as(
        &self,
        credentials: RedisConnectionInfo,
        news: &Arc<Notify>,
    ) -> Result<(MultiplexedConnection, Choice), CallError> {
        let news = Arc::clone(news);
        let hear = move |_: PushInfo| -> Result<(), SendError> {
            news.notify_one();
            Ok(())
        };
        let client = redis::Client::open(self.sentinel.clone().set_redis_settings(credentials))?;
        // Each step has its own limit.
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None).set_push_sender(hear);
        let of_setup = |error| CallError::of_setup(error, is_tls(&self.sentinel));
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(of_setup)?;
        // The sentinel that leads a failover sends the first message as soon as there is a new master. The other sentinels
        // send the second message.
        let mut asking = connection.clone();
        // In one piece, and the subscription first: no news is missed in between.
        let subscribing = connection.subscribe(&["+promoted-slave", "+switch-master"]);
        let (subscribed, choice) = join(subscribing, self.ask(&mut asking)).await;
        subscribed.map_err(refused)?;
        Ok((connection, choice?))
    }

    /// The master, and the failover that made it the master. The sentinel that leads a failover reports the master before
    /// the failover is over.
    async fn ask(&self, connection: &mut MultiplexedConnection) -> Result<Choice, CallError> {
        let mut asking = redis::pipe();
        asking.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&*self.name);
        asking.cmd("SENTINEL").arg("MASTER").arg(&*self.name);
        let replies = connection.send_packed_commands(&asking, 0, 2).await?;
        let [address, master] = <[Value; 2]>::try_from(replies).map_err(|_| unreadable())?;
        let address = address.extract_error().map_err(refused)?;
        let unknown = || CallError::Unsuitable(format!("it knows no master called `{}`", self.name));
        let (host, port) =
            redis::from_redis_value::<Option<_>>(address).map_err(|_| unreadable())?.ok_or_else(unknown)?;
        let epoch = hello_field(&master.extract_error().map_err(refused)?, "config-epoch");
        let epoch = epoch.and_then(|epoch| epoch.parse().ok()).ok_or_else(unreadable)?;
        let addr = match self.sentinel.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Ok(Choice { master: self.sentinel.clone().set_addr(addr), epoch })
    }
}

fn refused(error: redis::RedisError) -> CallError {
    match error.code() {
        Some("NOPERM") => CallError::Unsuitable(RIGHTS.to_owned()),
        _ => error.into(),
    }
}

fn unreadable() -> CallError {
    CallError::Unsuitable("its answer can't be read".to_owned())
}

/// The pause, made longer by up to a half, so that clients that lost the same sentinel do not come back together.
fn jittered(pause: Duration) -> Duration {
    let (random, ..) = Uuid::new_v4().as_fields();
    pause.mul_f64(1.0 + f64::from(random) / f64::from(u32::MAX) / 2.0)
}
