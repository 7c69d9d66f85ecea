//! How a [`Builder`] makes a manager: the stores and the keeper of each place.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};

use super::wired::Wired;
use super::{Builder, Server, quorum};
use crate::address::{self, Address, Target};
use crate::engine::Engine;
use crate::settings::Settings;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::redis::connections::{Connections, of_callers, of_keeper};
use crate::store::{AnyStore, Store};
use crate::token::Process;
use crate::{LockError, LockManager, surroundings};

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
    /// A task renews the holds of this manager. Each runtime that acquires a lock has such a task, which uses the time
    /// of that runtime. A test may pause that time. A hold is renewed while its own runtime is driven, or any other
    /// runtime that the manager is used on.
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

    /// Connects with the address and the credentials of a client of the `redis` crate. Certificates of its own can't be read from
    /// such a client: see `Builder::tls` (feature `tls`).
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

    /// Starts with the default of every setting.
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

/// The ways from the settings to a manager.
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
    /// [`InvalidSetting`](LockError::InvalidSetting) for a missing URL, a URL that can't be read, or any setting out of
    /// bounds, or outside of a tokio runtime with timers; [`Connect`](LockError::Connect) when the server refuses, lacks what locks need, or
    /// does not answer within the [`connect_timeout`](Self::connect_timeout).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: connecting takes no lock.
    pub async fn connect(self) -> Result<LockManager, LockError> {
        self.connecting().await
    }

    /// Boxed, and so compiled here once.
    fn connecting(self) -> BoxFuture<'static, Result<LockManager, LockError>> {
        async move {
            let place = self.place()?;
            if !matches!(place.1, Address::Memory) {
                surroundings::check()?;
            }
            match place {
                (settings, Address::Memory) => Ok(over(settings, in_this_process())),
                (settings, Address::Independent(endpoints)) => quorum::wire(settings, &endpoints)?.connect().await,
                (settings, Address::Redis(target)) => wire(settings, target)?.connect().await,
            }
        }
        .boxed()
    }

    /// A manager that connects when it is first needed, so that a service can start without its server. Each request waits
    /// for the connection, until its own timeout. [`LockManager::is_connected`] tells whether the server was there.
    ///
    /// It need not be called inside a runtime. A manager on a quorum can't check here that no server is named twice.
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
    /// [`InvalidSetting`](LockError::InvalidSetting) as [`connect`](Self::connect) has it. [`Connect`](LockError::Connect)
    /// when the keeper's thread can't be started.
    pub fn connect_lazy(self) -> Result<LockManager, LockError> {
        match self.place()? {
            (settings, Address::Memory) => Ok(over(settings, in_this_process())),
            (settings, Address::Independent(endpoints)) => Ok(quorum::wire(settings, &endpoints)?.into_manager()),
            (settings, Address::Redis(target)) => Ok(wire(settings, target)?.into_manager()),
        }
    }

    /// The settings and the place, both checked.
    fn place(mut self) -> Result<(Settings, Address), LockError> {
        self.settings.check()?;
        let address = match self.server.take() {
            Some(Server::Client(client)) => Address::Redis(address::of_client(&client, &self.trust)?),
            Some(Server::Url(url)) => address::of_url(&url, &self.trust)?,
            Some(Server::Quorum(urls)) => Address::Independent(address::of_urls(&urls, &self.trust)?),
            None => {
                let reason = format!("none was given; {}", address::FORMS);
                return Err(LockError::setting("URL", reason));
            }
        };
        match &address {
            Address::Memory => self.settings.check_in_memory()?,
            Address::Redis(target) if matches!(target, Target::Cluster(_)) && self.settings.min_replicas.is_some() => {
                let reason = "it is not supported for a cluster; leave it out";
                return Err(LockError::setting("min_replicas", reason));
            }
            Address::Independent(_) | Address::Redis(_) => {}
        }
        Ok((self.settings, address))
    }

    /// A manager whose locks live in this process.
    ///
    /// It does not report a setting that [`connect`](Self::connect) would refuse. Each request reports that setting
    /// instead.
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
        over(self.settings, in_this_process())
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
        Ok(over(self.settings, Arc::clone(store)))
    }
}

fn in_this_process() -> Arc<AnyStore> {
    Arc::new(AnyStore::Memory(MemoryStore::default()))
}

/// A manager with the settings of `builder`, over a store in this process.
#[cfg(feature = "testing")]
pub(crate) fn on_memory(builder: Builder, store: Arc<AnyStore>) -> LockManager {
    over(builder.settings, store)
}

/// A manager over a store in this process.
fn over(mut settings: Settings, store: Arc<AnyStore>) -> LockManager {
    settings.problem = settings.check_in_memory().err();
    let process = Process::new(&settings.label);
    LockManager::new(Engine::new(settings, process, Arc::clone(&store), store, None))
}

/// Two stores for the same place: the first over the connections of the callers of `process`, the second over those of
/// its keeper.
fn stores(target: Target, process: &Process, connections: &Connections) -> [RedisStore; 2] {
    let channels = [of_callers(process.id()), of_keeper(process.id())];
    match target {
        Target::Server(endpoint) => {
            channels.map(|channel| connections.to_server(endpoint.clone(), Some(channel), None))
        }
        Target::Cluster(seeds) => connections.to_cluster(*seeds, channels),
    }
}

fn wire(settings: Settings, target: Target) -> Result<Wired, LockError> {
    Wired::new(target.address(), target.is_tls(), settings, |_, process, connections| {
        let [front, back] = stores(target, process, connections);
        (AnyStore::Redis(front), AnyStore::Redis(back.clone()), vec![back])
    })
}
