//! [`Credentials`]: a user name and a password that change while the client runs.
//!
//! One value stores the newest. Each handshake reads it there and registers its connection. When newer ones arrive, `AUTH` is sent on all
//! registered connections: the callers', the background's, those of cluster nodes, and those of sentinels that asked for credentials. Other
//! commands do not look here.
//!
//! The [`Follower`] runs the [`Provider`], which is the user's code. It may block, so it has its own thread.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use futures_util::stream::{BoxStream, pending};
use futures_util::{FutureExt as _, StreamExt as _};
use redis::{Cmd, ErrorKind, RedisError, Value};
use tokio::sync::{Notify, watch};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{NoReply, WeakWire, Wire};
use crate::failure::CallError;
use crate::mutex::Mutex;

/// The first and the longest pause before a provider is asked again.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Longer than any pause.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A user name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    user: String,
    pub(super) password: String,
}

impl Login {
    /// Without a name it is the user that every server has.
    pub fn new(user: &str, password: &str) -> Self {
        let user = if user.is_empty() { "default" } else { user };
        Self { user: user.to_owned(), password: password.to_owned() }
    }

    /// Adds `AUTH`, as a command or as a part of `HELLO`.
    pub(crate) fn write(&self, command: &mut Cmd) {
        command.arg("AUTH").arg(&self.user).arg(&self.password);
    }
}

/// Shows neither the user name nor the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

/// Where credentials come from.
#[derive(Clone)]
pub struct Provider(Arc<Subscribe>);

type Tell = dyn Fn(Option<&str>, CallError) + Send + Sync;
type Subscribe = dyn Fn() -> BoxStream<'static, Result<Login, RedisError>> + Send + Sync;

impl Provider {
    /// Each call of `subscribe` returns a stream of the credentials that are valid now, and of later ones.
    pub fn new(subscribe: impl Fn() -> BoxStream<'static, Result<Login, RedisError>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(subscribe))
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider(…)")
    }
}

/// The newest credentials, for every handshake.
#[derive(Clone)]
pub struct Credentials {
    known: watch::Receiver<Known>,
    shared: Arc<Shared>,
    /// When the first credentials are due: a handshake waits no longer.
    first_by: Instant,
}

#[derive(Default)]
struct Known {
    newest: Option<Arc<Login>>,
    /// How the provider has failed since it sent the newest credentials.
    failure: Option<Arc<RedisError>>,
}

#[derive(Default)]
struct Shared {
    /// The connections that were made with credentials, and to which server.
    connections: Mutex<Vec<(WeakWire, String)>>,
    /// Notified when a server refused the newest credentials.
    refused: Notify,
}

/// Follows a [`Provider`] on behalf of [`Credentials`].
#[must_use = "without it there are no credentials"]
pub struct Follower {
    known: watch::Sender<Known>,
    shared: Arc<Shared>,
    limit: Duration,
}

impl Credentials {
    /// No credentials yet. A connection is made within `limit`, so the first ones must arrive within three quarters of it.
    pub fn new(limit: Duration) -> (Self, Follower) {
        let (sender, known) = watch::channel(Known::default());
        let shared = Arc::<Shared>::default();
        let credentials = Self { known, shared: Arc::clone(&shared), first_by: Instant::now() + limit * 3 / 4 };
        (credentials, Follower { known: sender, shared, limit })
    }

    /// The newest credentials; waits for the first ones. The error says why there are none.
    pub(crate) async fn newest(&self) -> Result<Arc<Login>, CallError> {
        let mut known = self.known.clone();
        let has_heard = known.wait_for(|known| known.newest.is_some() || known.failure.is_some());
        // After a timeout, look anyway.
        let _ = timeout_at(self.first_by, has_heard).await;
        let Known { newest, failure } = &*self.known.borrow();
        match (newest, failure) {
            (Some(newest), _) => Ok(Arc::clone(newest)),
            (None, Some(failure)) => Err(provider_failed(failure)),
            (None, None) => Err(CallError::Credentials("the credentials provider has given none yet".to_owned(), None)),
        }
    }

    /// The error for a server that refused the `used` credentials.
    pub(crate) fn refusal(&self, used: &Arc<Login>, error: RedisError) -> CallError {
        let (is_newest, failure) = {
            let known = self.known.borrow();
            (known.newest.as_ref().is_some_and(|newest| Arc::ptr_eq(newest, used)), known.failure.clone())
        };
        if is_newest {
            self.shared.refused.notify_one();
        }
        let fails = failure.map(|failure| format!(", and their provider fails: {failure}")).unwrap_or_default();
        CallError::Credentials(
            format!("the server refused the newest credentials ({error}){fails}"),
            Some(Arc::new(error)),
        )
    }

    /// Registers the connection, so that it gets all later credentials. It was greeted with the `used` ones.
    pub(crate) async fn attach(&self, wire: &Wire, server: &str, mut used: Arc<Login>) -> Result<(), NoReply> {
        while let Some(newer) = self.register(wire, server, &used) {
            // A refused `AUTH` leaves the connection as it was.
            let _ = authenticate(wire, &newer).await?;
            used = newer;
        }
        Ok(())
    }

    /// Registers a connection, unless there are newer credentials than `used`: then it returns those.
    fn register(&self, wire: &Wire, server: &str, used: &Arc<Login>) -> Option<Arc<Login>> {
        // The follower publishes new ones before it takes this lock. So they are seen here, or the connection is seen there.
        let mut connections = self.shared.connections.lock();
        let newer = self.known.borrow().newest.clone().filter(|newest| !Arc::ptr_eq(newest, used));
        if newer.is_none() {
            connections.retain(|(wire, _)| wire.is_there());
            connections.push((wire.downgrade(), server.to_owned()));
        }
        newer
    }
}

/// Shows neither the user name nor the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

impl Follower {
    /// Runs until the last [`Credentials`] are gone. Calls `tell` when the provider fails, once until it sends credentials again; and with
    /// the address of a server that refused new credentials on a connection, which goes on with the old ones.
    pub async fn run(self, provider: Provider, tell: impl Fn(Option<&str>, CallError) + Send + Sync + 'static) {
        // Poll the end first: a stream that is always ready would starve whatever is polled after it.
        let (ended, following) = (pin!(self.known.closed()), pin!(self.follow(&provider, &tell)));
        select(ended, following).await;
    }

    async fn follow(&self, provider: &Provider, tell: &Tell) -> Infallible {
        let (mut pause, mut is_told) = (PAUSES.0, false);
        loop {
            let asking = self.ask(provider, tell, &mut pause, &mut is_told);
            if AssertUnwindSafe(asking).catch_unwind().await.is_err() {
                self.on_failure((ErrorKind::Client, "it panicked").into(), tell, &mut is_told);
                sleep(pause).await;
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Subscribes, and handles the stream. Returns when it is time to subscribe again: a `pause` after a failure, or after a server refused
    /// the newest credentials. When a stream ends after it sent some, those stay valid until then.
    async fn ask(&self, provider: &Provider, tell: &Tell, pause: &mut Duration, is_told: &mut bool) {
        let mut stream = (provider.0)();
        let (mut due, mut is_empty) = (None, true);
        loop {
            consume_budget().await;
            let refused = pin!(self.shared.refused.notified());
            let heard = timeout_at(due.unwrap_or_else(|| Instant::now() + NEVER), select(stream.next(), refused)).await;
            let failure = match heard {
                Err(_) => return,
                Ok(Either::Left((Some(Ok(login)), _))) => {
                    (due, is_empty, *is_told) = (None, false, false);
                    if self.on_login(login, tell).await {
                        *pause = PAUSES.0;
                    }
                    continue;
                }
                Ok(Either::Left((Some(Err(error)), _))) => Some(error),
                Ok(Either::Left((None, _))) => {
                    stream = pending().boxed();
                    if !is_empty || due.is_some() {
                        continue;
                    }
                    Some((ErrorKind::Client, "it ended without any").into())
                }
                Ok(Either::Right(_)) => None,
            };
            due.get_or_insert(Instant::now() + *pause);
            if let Some(failure) = failure {
                self.on_failure(failure, tell, is_told);
            }
        }
    }

    /// Returns whether these are new.
    async fn on_login(&self, login: Login, tell: &Tell) -> bool {
        let login = Arc::new(login);
        let is_known = self.known.borrow().newest.as_ref() == Some(&login);
        if is_known {
            return false;
        }
        self.known.send_modify(|known| {
            mutant!(FirstLoginStays => if known.newest.is_some() {
                return;
            });
            *known = Known { newest: Some(Arc::clone(&login)), failure: None };
        });
        mutant!(LiveLoginStays => return true);
        let connections: Vec<_> = {
            let connections = self.shared.connections.lock();
            connections.iter().filter_map(|(wire, server)| Some((wire.upgrade()?, server.clone()))).collect()
        };
        let all = connections.iter().map(|(wire, server)| async {
            if let Ok(Err(error)) = authenticate(wire, &login).await {
                tell(Some(server), error.into());
            }
        });
        // The next command finds out that a server is silent.
        let _ = timeout(self.limit, join_all(all)).await;
        true
    }

    /// Only the text of the provider's `error` is kept. The error itself is the user's: its destructor may run any code, and errors are
    /// dropped where locks are held.
    fn on_failure(&self, error: RedisError, tell: &Tell, is_told: &mut bool) {
        let text = error.to_string();
        drop(error);
        let error = Arc::new(RedisError::from(io::Error::other(text)));
        self.known.send_modify(|known| known.failure = Some(Arc::clone(&error)));
        if !std::mem::replace(is_told, true) {
            tell(None, provider_failed(&error));
        }
    }
}

fn provider_failed(error: &Arc<RedisError>) -> CallError {
    CallError::Credentials(format!("the credentials provider failed: {error}"), Some(Arc::clone(error)))
}

/// The server's answer to `AUTH`.
async fn authenticate(wire: &Wire, login: &Login) -> Result<Result<Value, RedisError>, NoReply> {
    let mut command = Cmd::new();
    login.write(&mut command);
    Ok(wire.until(None).send(&command).await?.extract_error())
}
