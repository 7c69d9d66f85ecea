//! How a [`Builder`] makes a manager: the stores and the keeper of each place.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt as _;
use lock_wire::{Channel, Credentials, Endpoint, Follower, Provider};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Builder, Server};
use crate::address::{self, Address, Target};
use crate::clock::Deadline;
use crate::engine::Engine;
use crate::keeper::thread::KeeperThread;
use crate::settings::Settings;
use crate::store::memory::MemoryStore;
use crate::store::quorum::{Grants, Quorum};
use crate::store::redis::RedisStore;
use crate::store::redis::connections::{Connections, of_callers, of_keeper};
use crate::store::redis::failure::problem;
use crate::store::voter::MARKER;
use crate::store::{AnyStore, Store};
use crate::timing::KEEPER_CONNECTS;
use crate::token::Process;
use crate::{BackendError, LockError, LockManager, observe, surroundings};

/// A server of a quorum that restarts has no vote for this long, unless the user sets `max_lease`.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(3600);
/// A quorum does not wait for a server that takes more than the command timeout divided by this, if another will do.
pub(crate) const PATIENCE: u32 = 5;

/// A lingering lease must yield to a waiter. On a quorum a waiter sends its message only to the first server, which the owner may have
/// lost.
const NO_LINGER: &str =
    "on a quorum no lock is kept without a hold: its owner could not be told that another process waits";

/// The ways to make a manager.
impl LockManager {
    /// Connects to the servers at `url`, with the defaults for every setting. [`Builder::url`] lists the forms of a
    /// URL.
    ///
    /// ```no_run
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::connect("rediss://app:secret@redis.internal:6380/2").await?;
    /// locks.install()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](LockError::InvalidSetting) for a URL that can't be read, [`Connect`](LockError::Connect) when
    /// the server refuses, lacks what locks need, or does not answer within 2 s (see [`Builder::connect_timeout`]).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: connecting takes no lock.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        Self::builder().url(url).connect().await
    }

    /// A manager whose locks live in this process: for tests, examples, and services with one replica.
    ///
    /// Each runtime that acquires a lock has a task that renews its holds, in that runtime's time, which a test may pause. A hold is
    /// renewed while its own runtime is driven, or any other runtime that uses the manager.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// let first = locks.lock("invoice", &17).acquire().await?;
    /// assert!(locks.lock("invoice", &17).try_acquire().await?.is_none());
    /// drop(first);
    /// assert!(locks.lock("invoice", &17).try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().in_memory()
    }

    /// Connects with the address and the credentials of a client of the `redis` crate. The client's certificates can't be read: see
    /// `Builder::tls` (feature `tls`).
    ///
    /// ```no_run
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1:6379")?;
    /// let locks = LockManager::from_client(client).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Connect`](LockError::Connect) when the server refuses, lacks what locks need, or does not answer within 2 s.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: connecting takes no lock.
    pub async fn from_client(client: redis::Client) -> Result<Self, LockError> {
        Self::builder().client(client).connect().await
    }

    /// A builder with the default for every setting.
    ///
    /// ```
    /// # use lock_runtime::LockManager;
    /// let locks = LockManager::builder().namespace("shop").label("worker-3").in_memory();
    /// assert_eq!(format!("{locks:?}"), r#"LockManager { label: "worker-3", .. }"#);
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// Making a manager from the settings.
impl Builder {
    /// Connects to the place that [`url`](Self::url), [`client`](Self::client) or [`quorum`](Self::quorum) names.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let refused = LockManager::builder().url("redis://127.0.0.1").max_waiters(0).connect().await;
    /// assert!(matches!(refused, Err(LockError::InvalidSetting { setting: "max_waiters", .. })));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](LockError::InvalidSetting) for a missing URL, a URL that can't be read, a setting out of bounds, or outside of a
    /// tokio runtime with timers. [`Connect`](LockError::Connect) when the server refuses, lacks what locks need, or does not answer within
    /// the [`connect_timeout`](Self::connect_timeout).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: connecting takes no lock.
    pub fn connect(self) -> impl Future<Output = Result<LockManager, LockError>> + Send {
        async move {
            let parts = self.into_parts()?;
            if parts.keeper.is_some() {
                surroundings::check()?;
            }
            parts.connect().await
        }
        .boxed()
    }

    /// A manager that connects when it is first needed, so that a service can start without its server. Each request waits for the
    /// connection until its own timeout. [`LockManager::is_connected`] says whether the server was reached.
    ///
    /// It may be called outside of a runtime. On a quorum it can't check that no server is named twice.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// // Nothing answers there yet.
    /// let locks = LockManager::builder().url("redis://127.0.0.1:1").connect_lazy()?;
    /// locks.install()?;
    /// assert!(!locks.is_connected());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](LockError::InvalidSetting) as for [`connect`](Self::connect). [`Connect`](LockError::Connect) when the keeper's
    /// thread can't be started.
    pub fn connect_lazy(self) -> Result<LockManager, LockError> {
        Ok(self.into_parts()?.into_manager())
    }

    /// Checks all settings and makes the parts of the manager. Nothing is sent.
    fn into_parts(self) -> Result<Parts, LockError> {
        let Self { mut settings, server, mut trust, provider } = self;
        settings.check()?;
        let mut follower = None;
        if let Some(provider) = provider {
            let (credentials, following) = Credentials::new(settings.connect_timeout);
            trust = trust.with_credentials(credentials);
            follower = Some((following, provider));
        }
        let address = match server {
            Some(Server::Client(client)) => Address::Redis(address::of_client(&client, &trust)?),
            Some(Server::Url(url)) => address::of_url(&url, &trust)?,
            Some(Server::Quorum(urls)) => Address::Independent(address::of_urls(&urls, &trust)?),
            None => {
                let reason = format!("none was given; {}", address::FORMS);
                return Err(LockError::setting("URL", reason));
            }
        };
        if matches!(address, Address::Independent(_)) && settings.min_replicas.is_some() {
            let reason = "a quorum has no replicas to wait for: its servers are independent";
            return Err(LockError::setting("min_replicas", reason));
        }
        match address {
            Address::Memory => {
                settings.check_in_memory()?;
                Ok(Parts::in_process(settings, in_this_process()))
            }
            Address::Redis(target) => {
                Parts::on_servers(target.address(), target.is_tls(), settings, follower, |_, process, connections| {
                    let channels = [of_callers(process.id()), of_keeper(process.id())];
                    let [front, back] = match target {
                        Target::Server(endpoint) => {
                            channels.map(|channel| connections.to_server(endpoint.clone(), Some(channel), None))
                        }
                        Target::Cluster(seeds) => connections.to_cluster(*seeds, channels),
                    };
                    (AnyStore::Redis(front), AnyStore::Redis(back.clone()), vec![back])
                })
            }
            Address::Independent(endpoints) => {
                settings.max_lease.get_or_insert(MAX_LEASE);
                settings.reserved = Some(MARKER);
                settings.refuses_linger = Some(NO_LINGER);
                settings.check()?;
                let addresses = endpoints.iter().map(Endpoint::address).collect::<Vec<_>>().join(", ");
                let is_tls = endpoints.iter().any(Endpoint::is_tls);
                Parts::on_servers(addresses, is_tls, settings, follower, |settings, process, connections| {
                    let nodes = |channel: Option<Channel>| -> Vec<RedisStore> {
                        let node = |endpoint: &Endpoint| {
                            connections.to_server(endpoint.clone(), channel.clone(), settings.max_lease)
                        };
                        endpoints.iter().map(node).collect()
                    };
                    let (grants, patience) = (Grants::default(), settings.command_timeout / PATIENCE);
                    let quorum = |nodes| AnyStore::Quorum(Quorum::new(nodes, patience, grants.clone()));
                    let (front, back) = (nodes(Some(of_callers(process.id()))), nodes(None));
                    (quorum(front), quorum(back.clone()), back)
                })
            }
        }
    }

    /// A manager whose locks live in this process.
    ///
    /// A setting that [`connect`](Self::connect) would refuse is reported by each request instead.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let locks = LockManager::builder().default_expire(Duration::ZERO).in_memory();
    /// let refused = locks.lock("p", "k").acquire().await;
    /// assert!(matches!(refused, Err(LockError::InvalidSetting { setting: "default_expire", .. })));
    /// # }
    /// ```
    #[must_use]
    pub fn in_memory(self) -> LockManager {
        self.over(in_this_process())
    }

    /// A manager in this process that shares its locks with `other`, as two replicas of a service share a Redis: for
    /// tests.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let one = LockManager::in_memory();
    /// let other = LockManager::builder().label("other-replica").in_memory_with(&one)?;
    /// let _guard = one.lock("leader", "eu").acquire().await?;
    /// assert!(other.lock("leader", "eu").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](LockError::InvalidSetting) when the locks of `other` do not live in this process.
    pub fn in_memory_with(self, other: &LockManager) -> Result<LockManager, LockError> {
        let store = other.core().store();
        if !store.kind().is_immediate {
            let reason = "its locks live on a server; connect to that server instead";
            return Err(LockError::setting("manager to share with", reason));
        }
        Ok(self.over(Arc::clone(store)))
    }

    /// A manager over a store in this process. Each request reports a setting that is out of bounds.
    pub(crate) fn over(self, store: Arc<AnyStore>) -> LockManager {
        let mut settings = self.settings;
        settings.problem = settings.check_in_memory().err();
        Parts::in_process(settings, store).into_manager()
    }
}

fn in_this_process() -> Arc<AnyStore> {
    Arc::new(AnyStore::Memory(MemoryStore::default()))
}

/// All parts of a manager, before anything is sent.
struct Parts {
    settings: Settings,
    process: Process,
    /// Serves the callers, and receives the pushes.
    front: Arc<AnyStore>,
    /// The same store over the keeper's own connection.
    back: Arc<AnyStore>,
    /// `None` for locks in this process.
    keeper: Option<Arc<KeeperThread>>,
    server: String,
    is_tls: bool,
    /// The servers that the keeper checks for a setting that evicts locks.
    looks: Vec<RedisStore>,
}

impl Parts {
    fn in_process(settings: Settings, store: Arc<AnyStore>) -> Self {
        let (process, front, back) = (Process::new(&settings.label), Arc::clone(&store), store);
        Self { settings, process, front, back, keeper: None, server: String::new(), is_tls: false, looks: Vec::new() }
    }

    /// `stores` makes the callers' store, the keeper's store, and the servers of the keeper's store.
    fn on_servers(
        server: String,
        is_tls: bool,
        settings: Settings,
        follower: Option<(Follower, Provider)>,
        stores: impl FnOnce(&Settings, &Process, &Connections) -> (AnyStore, AnyStore, Vec<RedisStore>),
    ) -> Result<Self, LockError> {
        let no_thread = |error| LockError::Connect {
            server: server.clone(),
            problem: BackendError::caused_by("a thread of the manager could not be started", error),
        };
        let thread = KeeperThread::shared().map_err(no_thread)?;
        let process = Process::new(&settings.label);
        let background = Arc::clone(&thread);
        // No lock's body runs on that thread.
        let connections = Connections::new(&settings, move |work| background.spawn_boxed(work));
        if let Some((follower, provider)) = follower {
            // The provider is the user's code, and may block. On the keeper's thread it would delay all renewals.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
            let following = follower.run(provider, |server, error| match server {
                Some(server) => observe::login_refused(server, &problem(error)),
                None => observe::provider_failed(&problem(error)),
            });
            let thread = std::thread::Builder::new().name("lock-credentials".to_owned());
            thread.spawn(move || runtime.block_on(following)).map_err(no_thread)?;
        }
        let (front, back, looks) = stores(&settings, &process, &connections);
        let (front, back, keeper) = (Arc::new(front), Arc::new(back), Some(thread));
        Ok(Self { settings, process, front, back, keeper, server, is_tls, looks })
    }

    async fn connect(self) -> Result<LockManager, LockError> {
        let limit = self.settings.connect_timeout;
        let connected = match &*self.front {
            AnyStore::Redis(front) => timeout(limit, front.connect()).await.unwrap_or_else(|_| {
                let hint = if self.is_tls { ": does the server speak TLS on this port?" } else { "" };
                Err(BackendError::new(format!("no answer within {limit:?}{hint}")))
            }),
            AnyStore::Quorum(front) => front.connect(Deadline::after(limit)).await.map_err(|error| error.problem),
            AnyStore::Memory(_) => Ok(()),
            #[cfg(feature = "testing")]
            AnyStore::Faulty(_) => Ok(()),
        };
        connected.map_err(|problem| LockError::Connect { server: self.server.clone(), problem })?;
        // The keeper connects on its own thread. On a quorum nothing waits for that, since no lease lingers there.
        let (mut keeper_is_connected, keeper) = (None, self.keeper.clone());
        if let (AnyStore::Redis(back), Some(keeper)) = (&*self.back, keeper) {
            let (done, is_done) = oneshot::channel();
            let back = back.clone();
            keeper.spawn(async move {
                // On failure the keeper retries, and reports it.
                let _ = back.connect().await;
                let _ = done.send(());
            });
            keeper_is_connected = Some(is_done);
        }
        let manager = self.into_manager();
        if let Some(keeper_is_connected) = keeper_is_connected {
            // So that the first hold may linger (rule L9) if the server is near. Nothing else needs this connection yet.
            let _ = timeout(KEEPER_CONNECTS, keeper_is_connected).await;
        }
        Ok(manager)
    }

    fn into_manager(self) -> LockManager {
        let Self { settings, process, front, back, keeper, looks, .. } = self;
        for (look, thread) in looks.into_iter().zip(keeper.iter().cycle()) {
            let deadline = Deadline::after(settings.connect_timeout);
            thread.spawn(async move { look.warn_of_eviction(deadline).await });
        }
        LockManager { engine: Engine::new(settings, process, front, back, keeper) }
    }
}
