//! [`Builder`]: every setting of a manager.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::address::{self, Address, Target};
use crate::clock::Deadline;
use crate::engine::Engine;
use crate::keeper::thread::KeeperThread;
use crate::settings::Settings;
use crate::store::memory::MemoryStore;
use crate::store::redis::RedisStore;
use crate::store::redis::cluster::{Cluster, topology::Topology};
use crate::store::redis::link::Link;
use crate::store::redis::replicas::Replicas;
use crate::store::redis::servers::Servers;
use crate::store::{AnyStore, Store};
use crate::token::Process;
use crate::{BackendError, LockError, LockManager};

mod quorum;

/// Settings of a [`LockManager`]; made by [`LockManager::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `connect` or `in_memory` is called"]
pub struct Builder {
    settings: Settings,
    server: Option<Server>,
}

#[derive(Clone)]
enum Server {
    Url(String),
    Client(Box<redis::Client>),
    Quorum(Vec<String>),
}

/// Without the URL, which may hold a password.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Url(_) => "Url(…)",
            Self::Client(_) => "Client(…)",
            Self::Quorum(_) => "Quorum(…)",
        })
    }
}

/// Ways to make one.
impl LockManager {
    /// Connects to the server at `url`: `redis://`, `rediss://`, `valkey://`, `unix://`, `redis-sentinel://`,
    /// `redis-cluster://`, `redlock://`, or `memory://`. [`Builder::url`] has the forms in full.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](LockError::InvalidSetting) for a URL that can't be read, [`Connect`](LockError::Connect)
    /// when the server refuses, is too old, or does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        Self::builder().url(url).connect().await
    }

    /// A manager whose locks live in this process: for tests, examples, and services with one replica.
    ///
    /// What renews its holds is a task on each runtime that acquires a lock, and lives in that runtime's time, which tests may
    /// pause. So a hold is renewed while the runtime that acquired it is driven, or any other one that the manager is used on.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().in_memory()
    }

    /// Connects with the settings of a client of the `redis` crate, such as its TLS certificates.
    ///
    /// # Errors
    ///
    /// [`Connect`](LockError::Connect) when the server refuses, is too old, or does not answer.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn from_client(client: redis::Client) -> Result<Self, LockError> {
        Self::builder().client(client).connect().await
    }

    /// Every setting a manager has.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Where the locks live: `redis://`, `rediss://`, `valkey://`, `unix://` as the `redis` crate reads them,
    /// `memory://`, or the master that sentinels name:
    /// `redis-sentinel://[user:password@]host[:26379],host[:26379],…/master-name[/db]`, `rediss-sentinel://` for TLS to
    /// all of them. The credentials are the servers'; a sentinel that wants some gets the same. Or the masters of a cluster,
    /// of which some nodes are named: `redis-cluster://[user:password@]host[:6379],…`, `rediss-cluster://` for TLS. Or a
    /// majority of independent servers: `redlock://[user:password@]host[:port],host[:port],host[:port][/db]` is what
    /// `Builder::quorum` does for servers of one user; `redlocks://` is the same over TLS. TLS needs the feature `tls`.
    ///
    /// Of `url`, `client` and `quorum` the one that is called last counts.
    pub fn url(mut self, url: &str) -> Self {
        self.server = Some(Server::Url(url.to_owned()));
        self
    }

    /// A client of the `redis` crate whose address, credentials and certificates are to be used. Of this and
    /// [`url`](Self::url) the one that is called last counts.
    pub fn client(mut self, client: redis::Client) -> Self {
        self.server = Some(Server::Client(Box::new(client)));
        self
    }

    /// Locks on a majority of independent servers, three or more (Redlock), each with a URL as [`url`](Self::url) takes it for
    /// one server. An odd number: one more that makes it even has to be up as well, and gains nothing. All managers have to
    /// name the same servers in the same order: who waits does so at the first one that answers.
    /// Of this, [`url`](Self::url) and [`client`](Self::client) the one that is called last counts.
    ///
    /// What it promises, and what it costs, is in `docs/topologies.md`.
    pub fn quorum<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.server = Some(Server::Quorum(urls.into_iter().map(Into::into).collect()));
        self
    }

    /// The longest lease that a request may ask for. On a quorum it is one hour by default, and has to be the same for all
    /// managers: for so long a server that restarted has no vote, since it may have forgotten a lock. Elsewhere there is none.
    pub fn max_lease(mut self, longest: Duration) -> Self {
        self.settings.max_lease = Some(longest);
        self
    }

    /// The first part of every lock's name, `namespace:prefix:key`: keeps services apart that share a Redis.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.settings.namespace = Some(namespace.to_owned());
        self
    }

    /// How this manager is named to those that wait for its locks, in at most 255 bytes. By default `host:process id`.
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.settings.label);
        self
    }

    /// How long a request waits that does not say so itself. By default 2 s.
    pub fn default_timeout(mut self, timeout: Duration) -> Self {
        self.settings.default_timeout = timeout;
        self
    }

    /// The lease of a request that does not set its own. By default 30 s.
    pub fn default_expire(mut self, expire: Duration) -> Self {
        self.settings.default_expire = expire;
        self
    }

    /// How long one command may take before its connection is doubted, and so how long a single try waits for its answer. By
    /// default 500 ms; for a server that is farther away than 400 ms it has to be more than one and a half round trips.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.settings.command_timeout = timeout;
        self
    }

    /// How long [`connect`](Self::connect) may take: three round trips to the server, four with TLS, six with sentinels. By
    /// default 2 s. A connection that breaks later is made anew in the background, and given up only after four times as long.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// How many replicas must have a grant, or a lengthened lease, before it counts (`WAIT`): for a server that may fail over
    /// to one of them. When they do not confirm within `timeout`, acquiring fails with
    /// [`TooFewReplicas`](LockError::TooFewReplicas), and a lease that is not confirmed again ends at its deadline. By
    /// default none; then nothing is sent.
    ///
    /// It costs a round trip for each grant, to the server and on to its replicas, in which all other commands of this
    /// manager wait: so `timeout` should be short, 100 ms say, and may be at most half of the
    /// [`command_timeout`](Self::command_timeout). A request that has less time left gives them only that; one that tries
    /// once has the command timeout. What is still not promised is in `docs/topologies.md`. Not supported for a cluster.
    pub fn min_replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.settings.min_replicas = (count > 0).then_some((count, timeout));
        self
    }

    /// For how much longer than its holder believes the server keeps a lease: time for the last effects of a holder
    /// that is late. It delays others only after a crash. By default zero.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How much faster the server's clock may run than this machine's, in parts per million: each deadline is earlier than
    /// the end of its lease by so much, and by 2 ms. By default 10,000, which is 1 %; 1,000 to 500,000 are possible.
    ///
    /// It has to cover the fastest slewing of both clocks: with chrony's `maxslewrate 5000` on both, one may run 5,000 too
    /// fast and the other 5,000 too slow. chrony's own default is 83,333, for which 166,667 would be needed here. A server
    /// whose clock is found to run faster is told once, by an event of level `WARN`. All managers of a lock should have the
    /// same. For locks in this process it has no effect: there is one clock.
    pub fn max_clock_drift_ppm(mut self, ppm: u32) -> Self {
        self.settings.max_clock_drift_ppm = ppm;
        self
    }

    /// How long [`LockManager::shutdown`] lets running holds end by themselves. By default 5 s.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.settings.drain = drain;
        self
    }

    /// How many tasks of this manager may wait at the same time, for whatever keys. One more is refused at once, with
    /// [`TooManyWaiters`](LockError::TooManyWaiters). By default 1,000,000; each costs about 1 KiB, and its task.
    pub fn max_waiters(mut self, limit: usize) -> Self {
        self.settings.max_waiters = limit;
        self
    }

    /// How many tasks of this manager may wait for one key at the same time. By default 250,000.
    pub fn max_waiters_per_key(mut self, limit: usize) -> Self {
        self.settings.max_waiters_per_key = limit;
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As [`LockManager::connect`], and [`InvalidSetting`](LockError::InvalidSetting) for any setting out of bounds.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn connect(self) -> Result<LockManager, LockError> {
        self.settings.check()?;
        let address = match self.server {
            Some(Server::Client(client)) => Address::Redis(address::of_client(&client)?),
            Some(Server::Url(url)) => address::of_url(&url)?,
            Some(Server::Quorum(urls)) => Address::Quorum(address::quorum::of_urls(&urls)?),
            None => {
                let reason = format!("none was given; {}", address::FORMS);
                return Err(LockError::InvalidSetting { setting: "URL", reason });
            }
        };
        let target = match address {
            Address::Memory => {
                self.settings.check_in_memory()?;
                return Ok(on_memory(self.settings, in_this_process()));
            }
            Address::Quorum(endpoints) => return quorum::connect(self.settings, &endpoints).await,
            Address::Redis(target) => target,
        };
        if target.is_cluster() && self.settings.min_replicas.is_some() {
            let reason = "it is not supported for a cluster; leave it out".to_owned();
            return Err(LockError::InvalidSetting { setting: "min_replicas", reason });
        }
        connect(self.settings, target).await
    }

    /// A manager whose locks live in this process.
    ///
    /// A setting that [`connect`](Self::connect) would refuse is reported by each request instead.
    #[must_use]
    pub fn in_memory(self) -> LockManager {
        on_memory(self.settings, in_this_process())
    }

    /// A manager in this process that shares its locks with `other`, as two replicas share a Redis: for tests.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](LockError::InvalidSetting) when the locks of `other` do not live in this process.
    pub fn in_memory_with(self, other: &LockManager) -> Result<LockManager, LockError> {
        let store = other.core().store();
        if !store.is_immediate() {
            let reason = "its locks live on a server; connect to that server instead".to_owned();
            return Err(LockError::InvalidSetting { setting: "manager to share with", reason });
        }
        Ok(on_memory(self.settings, Arc::clone(store)))
    }
}

fn in_this_process() -> Arc<AnyStore> {
    Arc::new(AnyStore::Memory(MemoryStore::default()))
}

fn on_memory(mut settings: Settings, store: Arc<AnyStore>) -> LockManager {
    settings.problem = settings.check_in_memory().err();
    let process = Process::new(&settings.label);
    LockManager::new(Engine::new(settings, process, Arc::clone(&store), store, None))
}

/// The store over the connections of the callers of `process`, and over those of its keeper.
fn stores(
    target: Target,
    process: &Process,
    settings: &Settings,
    thread: &Arc<KeeperThread>,
) -> (RedisStore, RedisStore) {
    let (command_timeout, connect_timeout) = (settings.command_timeout, settings.connect_timeout);
    match target {
        Target::Server(endpoint) => {
            let link = |process| {
                let replicas = settings.min_replicas.map(|(count, within)| Replicas::new(count, within));
                Link::new(
                    endpoint.clone(),
                    process,
                    replicas,
                    None,
                    settings.drift(),
                    (command_timeout, connect_timeout),
                )
            };
            (RedisStore::new(link(Some(process.id()))), RedisStore::new(link(None)))
        }
        Target::Cluster(seeds) => {
            let topology = Topology::new(*seeds, settings.drift(), command_timeout, connect_timeout);
            let masters = |process| Cluster::new(&topology, process);
            let (front, back, thread) = (masters(Some(process.id())), masters(None), Arc::clone(thread));
            front.mirror_connections(&back, move |work| thread.spawn(work));
            (RedisStore::new(Servers::Cluster(front)), RedisStore::new(Servers::Cluster(back)))
        }
    }
}

async fn connect(settings: Settings, target: Target) -> Result<LockManager, LockError> {
    let server = target.address();
    let refused = |problem| LockError::Connect { server: server.clone(), problem };
    let is_tls = target.is_tls();
    if is_tls {
        choose_cryptography();
    }
    let thread = KeeperThread::shared()
        .map_err(|error| refused(BackendError::caused_by("the keeper's thread could not be started", error)))?;
    let process = Process::new(&settings.label);
    let (front, back) = stores(target, &process, &settings, &thread);
    match tokio::time::timeout(settings.connect_timeout, front.connect()).await {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => return Err(refused(problem)),
        Err(_) => {
            let hint = if is_tls { ": does the server speak TLS on this port?" } else { "" };
            let text = format!("no answer within {:?}{hint}", settings.connect_timeout);
            return Err(refused(BackendError::new(text)));
        }
    }
    let (look, deadline) = (back.clone(), Deadline::after(settings.connect_timeout));
    thread.spawn(async move { look.warn_of_eviction(deadline).await });
    let store = |store| Arc::new(AnyStore::Redis(store));
    Ok(LockManager::new(Engine::new(settings, process, store(front), store(back), Some(thread))))
}

/// Chooses for the TLS library, unless the application has: that library panics when no implementation of its
/// cryptography is compiled in, or two are and none was chosen.
#[cfg(feature = "tls")]
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may choose at the same moment, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// Another crate has compiled TLS into the client: the choice is the application's.
#[cfg(not(feature = "tls"))]
fn choose_cryptography() {}
