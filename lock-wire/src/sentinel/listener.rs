//! [`Listener`]: listens to one sentinel while the connection to its master is in use.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, PushKind, Value};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::failure::CallError;
use crate::greeting::{greet, hello_field};
use crate::wire::{Hear, Peer, Wire};

/// A sentinel reports changes on its own. It is asked this often anyway, to detect a dead connection.
const ASK_PAUSE: Duration = Duration::from_secs(2);
/// The pause before reconnecting after a connection broke or could not be made.
const CONNECT_PAUSE: Duration = Duration::from_secs(2);

const RIGHTS: &str = "its user needs +sentinel|get-master-addr-by-name +sentinel|master +subscribe &+switch-master \
                      &+promoted-slave";

/// Asks one sentinel for the master again and again, and at once when the sentinel reports a change.
pub(super) struct Listener {
    /// The sentinel's index.
    pub(super) number: usize,
    /// With the credentials for the master.
    pub(super) sentinel: Peer,
    /// The master's name in the sentinel's configuration.
    pub(super) name: Arc<str>,
    /// The time limit for a step.
    pub(super) limit: Duration,
    pub(super) said: UnboundedSender<Said>,
}

/// A sentinel's answer, or why there is none.
pub(super) struct Said {
    /// The sentinel's index.
    pub(super) number: usize,
    pub(super) choice: Result<Choice, CallError>,
}

/// The server that the sentinels chose.
#[derive(Clone)]
pub(super) struct Choice {
    pub(super) master: Peer,
    /// The number of the failover that made this server the master. The greatest number is right.
    pub(super) epoch: u64,
}

impl Choice {
    /// Whether this choice is later than `other`, and names another server.
    pub(super) fn replaces(&self, other: &Self) -> bool {
        self.epoch > other.epoch && self.master.addr() != other.master.addr()
    }
}

impl Listener {
    /// Runs until the receiver is gone.
    pub(super) async fn run(self) {
        let place = format!("the sentinel {}", self.sentinel.address());
        while !self.said.is_closed() {
            let Err(error) = self.listen().await;
            self.say(Err(error.of(&place)));
            sleep(jittered(CONNECT_PAUSE)).await;
        }
    }

    fn say(&self, choice: Result<Choice, CallError>) {
        // The receiver may be gone.
        let _ = self.said.send(Said { number: self.number, choice });
    }

    /// Listens until the connection breaks, or is silent.
    async fn listen(&self) -> Result<Infallible, CallError> {
        let news = Arc::new(Notify::new());
        let (wire, mut choice) = self.limited(self.connect(&news)).await?;
        loop {
            self.say(Ok(choice));
            // The content of the news does not matter: the sentinel is asked.
            let _ = timeout(jittered(ASK_PAUSE), news.notified()).await;
            choice = self.limited(self.ask(&wire)).await?;
        }
    }

    async fn limited<T>(&self, step: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        timeout(self.limit, step).await.unwrap_or(Err(CallError::NoConnection(self.limit)))
    }

    async fn connect(&self, news: &Arc<Notify>) -> Result<(Wire, Choice), CallError> {
        // A sentinel usually has no password, and then it refuses one.
        match self.connect_to(&self.sentinel.as_sentinel(false), news).await {
            Err(CallError::Failed(error)) if error.code() == Some("NOAUTH") && self.sentinel.has_login() => {
                self.connect_to(&self.sentinel.as_sentinel(true), news).await
            }
            outcome => outcome,
        }
    }

    async fn connect_to(&self, sentinel: &Peer, news: &Arc<Notify>) -> Result<(Wire, Choice), CallError> {
        // The sentinel that leads a failover sends the first message as soon as there is a new master; the others send the second.
        // Subscribe before asking, so that no news is missed.
        let mut commands = redis::pipe();
        commands.cmd("SUBSCRIBE").arg("+promoted-slave").cmd("SUBSCRIBE").arg("+switch-master");
        self.ask_in(&mut commands);
        let greeted = greet(sentinel, News(Arc::clone(news)), &commands).await?;
        let [first, second, address, master] = <[Value; 4]>::try_from(greeted.replies).map_err(|_| unreadable())?;
        for subscribed in [first, second] {
            subscribed.extract_error().map_err(refused)?;
        }
        Ok((greeted.wire, self.choice([address, master])?))
    }

    /// Asks for the master, and for the failover that made it the master. The sentinel that leads a failover names the master before the
    /// failover is over.
    fn ask_in(&self, commands: &mut Pipeline) {
        commands.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&*self.name);
        commands.cmd("SENTINEL").arg("MASTER").arg(&*self.name);
    }

    async fn ask(&self, wire: &Wire) -> Result<Choice, CallError> {
        let mut question = redis::pipe();
        self.ask_in(&mut question);
        let answers = wire.until(None).send_all(&question).await?;
        self.choice(<[Value; 2]>::try_from(answers).map_err(|_| unreadable())?)
    }

    /// Reads the answers to [`ask_in`](Self::ask_in).
    fn choice(&self, [address, master]: [Value; 2]) -> Result<Choice, CallError> {
        let address = address.extract_error().map_err(refused)?;
        let unknown = || CallError::Unsuitable(format!("it knows no master called `{}`", self.name));
        let (host, port) =
            redis::from_redis_value::<Option<_>>(address).map_err(|_| unreadable())?.ok_or_else(unknown)?;
        let epoch = hello_field(&master.extract_error().map_err(refused)?, "config-epoch");
        let epoch = epoch.and_then(|epoch| epoch.parse().ok()).ok_or_else(unreadable)?;
        Ok(Choice { master: self.sentinel.at(host, port), epoch })
    }
}

/// Treats any message as a reason to ask, whatever it says.
struct News(Arc<Notify>);

impl Hear for News {
    fn on_push(&self, _: &PushKind, _: &[Value]) {
        self.0.notify_one();
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

/// The pause plus up to a half of it, so that clients that lost the same sentinel do not reconnect at the same time.
fn jittered(pause: Duration) -> Duration {
    let (random, ..) = Uuid::new_v4().as_fields();
    pause.mul_f64(1.0 + f64::from(random) / f64::from(u32::MAX) / 2.0)
}
