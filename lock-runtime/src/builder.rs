//! [`Builder`]: every setting of a manager, and the ways to make a manager from them.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "credentials")]
use futures_util::TryStreamExt as _;
use lock_wire::{Provider, Trust};

use crate::settings::Settings;

pub(crate) mod connect;

/// The settings of a [`LockManager`](crate::LockManager), made by [`LockManager::builder`](crate::LockManager::builder).
///
/// ```no_run
/// # use std::time::Duration;
/// # use lock_runtime::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::builder()
///     .url("redis://127.0.0.1:6379")
///     .namespace("shop")
///     .default_timeout(Duration::from_secs(1))
///     .default_expire(Duration::from_secs(15))
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `connect` or `in_memory` is called"]
pub struct Builder {
    settings: Settings,
    server: Option<Server>,
    trust: Trust,
    provider: Option<Provider>,
}

#[derive(Clone)]
enum Server {
    Url(String),
    Client(Box<redis::Client>),
    Quorum(Vec<String>),
}

/// Hides the URL, which may hold a password.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Url(_) => "Url(…)",
            Self::Client(_) => "Client(…)",
            Self::Quorum(_) => "Quorum(…)",
        })
    }
}
impl Builder {
    /// Where the locks live:
    ///
    /// - `redis://[user:password@]host[:port][/db]`, `valkey://…`, `unix:///path/to/socket`: one server. The `redis` crate
    ///   reads the URL.
    /// - `redis-sentinel://[user:password@]host[:26379],host[:26379],…/master-name[/db]`: the master that the sentinels
    ///   name. The credentials are for the servers; a sentinel that asks for credentials gets the same.
    /// - `redis-cluster://[user:password@]host[:6379],…`: the masters of a cluster. The URL names some nodes of the
    ///   cluster.
    /// - `redlock://[user:password@]host[:port],host[:port],host[:port][/db]`: a majority of independent servers with the same user, as
    ///   with [`quorum`](Self::quorum).
    /// - `memory://`: this process, as with [`in_memory`](Self::in_memory).
    ///
    /// `rediss://`, `valkeys://`, `rediss-sentinel://`, `rediss-cluster://` and `redlocks://` are the same over TLS, to
    /// all servers and sentinels. They need the feature `tls`.
    ///
    /// The last call of `url`, `client` and `quorum` counts.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// // In production the variable names a server; a developer's machine needs none.
    /// let url = std::env::var("LOCKS_URL").unwrap_or_else(|_| "memory://".to_owned());
    /// let locks = LockManager::builder().url(&url).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn url(mut self, url: &str) -> Self {
        self.server = Some(Server::Url(url.to_owned()));
        self
    }

    /// A client of the `redis` crate. The manager uses its address and credentials, and opens its own connections. It can't read the
    /// client's certificates: [`connect`](Self::connect) refuses a client that has any, unless `tls` sets them again (a method of the
    /// feature of that name).
    ///
    /// The last call of `url`, `client` and `quorum` counts.
    ///
    /// ```no_run
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("unix:///run/redis.sock")?;
    /// let locks = LockManager::builder().client(client).label("nightly-import").connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn client(mut self, client: redis::Client) -> Self {
        self.server = Some(Server::Client(Box::new(client)));
        self
    }

    /// The TLS settings for all servers and sentinels: which certificates to trust, and which to present. By default the manager trusts the
    /// certificates of the operating system, or those in the files that `SSL_CERT_FILE` and `SSL_CERT_DIR` name. It reads these again when
    /// it does not trust a server; the settings given here stay. They have no effect where the URL does not ask for TLS.
    ///
    /// ```no_run
    /// # use lock_runtime::LockManager;
    /// # use lock_runtime::rustls::{ClientConfig, RootCertStore, pki_types::{CertificateDer, pem::PemObject}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut roots = RootCertStore::empty();
    /// for certificate in CertificateDer::pem_file_iter("/etc/redis/authority.pem")? {
    ///     roots.add(certificate?)?;
    /// }
    /// let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    /// let locks = LockManager::builder().url("rediss://redis.internal").tls(config).connect().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn tls(mut self, config: impl Into<std::sync::Arc<crate::rustls::ClientConfig>>) -> Self {
        self.trust = Trust::in_config(config.into());
        self
    }

    /// A source of the user name and the password, for credentials that change while the manager runs: IAM or Entra ID tokens, secrets that
    /// Vault rotates. The trait is the `redis` crate's, so existing providers work.
    ///
    /// Each new connection to a server uses the newest credentials. When newer ones arrive, the manager sends `AUTH` on all connections.
    /// Holds and waiters go on. A sentinel gets the credentials if it asks for them. An empty user name means `default`.
    ///
    /// The provider runs on its own thread, with tokio's I/O and timers. The manager subscribes once, and again:
    ///
    /// - when it fails, panics, or its stream ends without credentials: after a pause of 100 ms to 5 s,
    /// - when a server refuses the newest credentials.
    ///
    /// The last credentials stay in use until then. The first must arrive within three quarters of the
    /// [`connect_timeout`](Self::connect_timeout); requests wait for them.
    ///
    /// The URL or the client must have no user name and no password: [`connect`](Self::connect) refuses them with
    /// [`InvalidSetting`](crate::LockError::InvalidSetting). When a connection needs credentials and there are none, or the server refuses
    /// them, `connect` fails with [`Connect`](crate::LockError::Connect), and a request fails with [`Backend`](crate::LockError::Backend)
    /// at its timeout. Both errors have the provider's or the server's text. The provider has no effect on locks in this process.
    ///
    /// ```no_run
    /// # use std::{pin::Pin, time::Duration};
    /// use futures_util::{Stream, stream};
    /// use lock_runtime::redis::{BasicAuth, RedisResult, StreamingCredentialsProvider};
    /// # use lock_runtime::{LockError, LockManager};
    ///
    /// /// An agent writes the password of the user `locks` to this file, again and again.
    /// struct PasswordFile(&'static str);
    ///
    /// impl StreamingCredentialsProvider for PasswordFile {
    ///     fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send + 'static>> {
    ///         let file = self.0;
    ///         Box::pin(stream::unfold(Duration::ZERO, move |pause| async move {
    ///             tokio::time::sleep(pause).await;
    ///             let read = std::fs::read_to_string(file);
    ///             let login = read.map(|password| BasicAuth::new("locks".to_owned(), password.trim().to_owned()));
    ///             Some((login.map_err(Into::into), Duration::from_secs(10)))
    ///         }))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let provider = PasswordFile("/run/secrets/redis");
    /// let locks = LockManager::builder().url("redis://10.0.1.1").credentials_provider(provider).connect().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "credentials")]
    #[cfg_attr(docsrs, doc(cfg(feature = "credentials")))]
    pub fn credentials_provider(mut self, provider: impl redis::StreamingCredentialsProvider + 'static) -> Self {
        let login = |given: redis::BasicAuth| lock_wire::Login::new(given.username(), given.password());
        self.provider = Some(Provider::new(move || Box::pin(provider.subscribe().map_ok(login))));
        self
    }

    /// Takes each lock on a majority of three or more independent servers (Redlock). Each URL names one server, as
    /// [`url`](Self::url) takes it. What this promises, and what it costs, is in `docs/topologies.md`.
    ///
    /// Use an odd number: a fourth server tolerates no more failures than three do. All managers must name the same
    /// servers.
    ///
    /// The last call of `url`, `client` and `quorum` counts.
    ///
    /// ```no_run
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let servers = ["redis://10.0.1.1", "redis://10.0.2.1", "redis://10.0.3.1"];
    /// let locks = LockManager::builder().quorum(servers).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn quorum<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.server = Some(Server::Quorum(urls.into_iter().map(Into::into).collect()));
        self
    }

    /// The longest lease that a request may ask for, the [`grace`](Self::grace) included. A longer lease is refused
    /// with [`InvalidSetting`](crate::LockError::InvalidSetting).
    ///
    /// On a quorum the default is one hour, and all managers must set the same value: a server that restarted may have
    /// forgotten a lock, so it has no vote for this long. Everywhere else there is no limit by default. From 10 ms to one
    /// year.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let locks = LockManager::builder().max_lease(Duration::from_secs(60)).in_memory();
    /// assert!(locks.lock("job", &1).expire(Duration::from_secs(61)).acquire().await.is_err());
    /// # }
    /// ```
    pub fn max_lease(mut self, longest: Duration) -> Self {
        self.settings.max_lease = Some(longest);
        self
    }

    /// The first part of every lock's name, `namespace:prefix:key`. It separates services that share a Redis. By default names have no
    /// namespace.
    ///
    /// A namespace that is empty, or contains a blank, a control character or a brace, is refused with
    /// [`InvalidSetting`](crate::LockError::InvalidSetting).
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().namespace("shop").in_memory();
    /// assert_eq!(locks.lock("order", &7).acquire().await?.key(), "shop:order:7");
    /// # Ok(()) }
    /// ```
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.settings.namespace = Some(namespace.to_owned());
        self
    }

    /// The name of this manager, which the errors of waiters show as the holder. At most 255 bytes. By default `host:process id`.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().label("worker-3").in_memory();
    /// let _guard = locks.lock("report", "daily").acquire().await?;
    /// let busy = locks.lock("report", "daily").timeout(std::time::Duration::from_millis(5)).acquire().await;
    /// assert!(busy.unwrap_err().to_string().ends_with("(held by worker-3)"));
    /// # Ok(()) }
    /// ```
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.settings.label);
        self
    }

    /// How long a request waits for a lock when it sets no [`timeout`](crate::LockRequest::timeout). By default 2 s.
    /// Zero tries once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// // A web handler rather answers "busy" than lets its user wait.
    /// let builder = LockManager::builder().default_timeout(Duration::from_millis(300));
    /// ```
    pub fn default_timeout(mut self, timeout: Duration) -> Self {
        self.settings.default_timeout = timeout;
        self
    }

    /// The lease of a request that sets no [`expire`](crate::LockRequest::expire): how long a crashed holder keeps
    /// others out. By default 30 s. From 10 ms to one year.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// // After a crash the next worker starts within ten seconds.
    /// let builder = LockManager::builder().default_expire(Duration::from_secs(10));
    /// ```
    pub fn default_expire(mut self, expire: Duration) -> Self {
        self.settings.default_expire = expire;
        self
    }

    /// The longest hold of a request that sets no [`max_hold`](crate::LockRequest::max_hold); then its body is stopped. By default there is
    /// no limit. From 10 ms to one year.
    ///
    /// The manager renews a lease for as long as its body runs, even if the body hangs. This setting bounds how long such a body blocks
    /// others. A request whose work takes longer sets its own `max_hold`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let locks = LockManager::builder().default_max_hold(Duration::from_secs(60)).in_memory();
    /// let stuck = locks.lock("import", &7).run(std::future::pending::<()>()).await;
    /// assert!(matches!(stuck, Err(LockError::Lost { max_hold: Some(_), .. })));
    /// # }
    /// ```
    pub fn default_max_hold(mut self, max_hold: Duration) -> Self {
        self.settings.default_max_hold = Some(max_hold);
        self
    }

    /// How long one command may take before the manager doubts its connection. A single try waits for its answer this
    /// long. By default 500 ms. From 1 ms to one hour.
    ///
    /// For a server with a round trip beyond 400 ms it must be longer than one and a half round trips.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// // The server is on another continent, with a round trip of 600 ms on a bad day.
    /// let builder = LockManager::builder().command_timeout(Duration::from_secs(1));
    /// ```
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.settings.command_timeout = timeout;
        self
    }

    /// How long [`connect`](Self::connect) may take: two round trips to the server, three with TLS, four with
    /// sentinels. By default 2 s. From 1 ms to one hour.
    ///
    /// When a connection breaks later, the manager reconnects in the background. It gives up an attempt after four times this long.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// let builder = LockManager::builder().url("redis://127.0.0.1").connect_timeout(Duration::from_secs(5));
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// How long the server must be unreachable before an acquire fails at once, whatever its timeout. By default never: each request waits
    /// for the server until its own timeout.
    ///
    /// Once the server has been unreachable for `after`, requests that need it fail with [`Backend`](crate::LockError::Backend) at once,
    /// and so do those that already wait. Each of them makes the manager reconnect in the background, so locks are available as soon as the
    /// server is back. A task that waits for a hold in its own process goes on waiting: the lock may be handed over without a server. Holds
    /// are not affected.
    ///
    /// A server that was idle for a while is tried first. A server that accepts connections and does not answer counts as unreachable from
    /// the first command that it leaves unanswered. Zero fails each request that finds no connection and can't make one. The setting has no
    /// effect on locks in this process.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// // In an outage, pages are answered without the lock's feature instead of after two seconds.
    /// let builder = LockManager::builder().url("redis://127.0.0.1").fail_fast(Duration::from_secs(1));
    /// ```
    pub fn fail_fast(mut self, after: Duration) -> Self {
        self.settings.fail_fast = Some(after);
        self
    }

    /// How many replicas must confirm a grant, or a longer lease, before it counts (`WAIT`). It is for a server that may fail over to one
    /// of these replicas. By default none, and no `WAIT` is sent.
    ///
    /// When too few replicas confirm within `timeout`, acquiring fails with
    /// [`TooFewReplicas`](crate::LockError::TooFewReplicas). A held lease that is not confirmed again ends at its deadline.
    ///
    /// Each grant costs one more round trip, to the server and on to its replicas. All other commands of this manager
    /// wait meanwhile. So `timeout` should be short, 100 ms for example; more than half of the
    /// [`command_timeout`](Self::command_timeout) is refused. A request with less time left waits for the replicas only
    /// for that time; a single try has the command timeout.
    ///
    /// In a cluster each master has its own replicas. A quorum has none, and refuses this setting. `docs/topologies.md` says what is still
    /// not promised.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// // Both replicas have each lock before its holder starts.
    /// let builder = LockManager::builder().url("redis-sentinel://a,b,c/main").min_replicas(2, Duration::from_millis(100));
    /// ```
    pub fn min_replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.settings.min_replicas = (count > 0).then_some((count, timeout));
        self
    }

    /// How much longer the server keeps a lease than its holder assumes: time for the last effects of a late holder. It delays others only
    /// after a crash. By default zero, at most one hour.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// // A write to the file store may still take effect 3 s after it was sent.
    /// let builder = LockManager::builder().grace(Duration::from_secs(3));
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How much faster the server's clock may run than this machine's clock, in parts per million. Each deadline is
    /// earlier than the end of its lease by this part of the lease, and by 2 ms. By default 10,000, which is 1 %. From
    /// 1,000 to 500,000.
    ///
    /// The value must cover the fastest slewing of both clocks. With chrony's `maxslewrate 5000` on both machines, one
    /// clock may run 5,000 too fast and the other 5,000 too slow: 10,000 is enough. chrony's own default is 83,333,
    /// which needs 166,667 here. When the manager finds that a server's clock runs faster, it logs one event of level
    /// `WARN`.
    ///
    /// All managers of a lock should set the same value. For locks in this process the value has no effect: there is
    /// only one clock.
    ///
    /// ```
    /// # use lock_runtime::LockManager;
    /// // Both machines run chrony with its default `maxslewrate`.
    /// let builder = LockManager::builder().url("redis://10.0.1.1").max_clock_drift_ppm(166_667);
    /// ```
    pub fn max_clock_drift_ppm(mut self, ppm: u32) -> Self {
        self.settings.max_clock_drift_ppm = ppm;
        self
    }

    /// How long [`LockManager::shutdown`](crate::LockManager::shutdown) waits for running holds to end by themselves. By default 5 s.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// // Kubernetes kills the process 30 s after SIGTERM. The shutdown may take 6 s more than this.
    /// let builder = LockManager::builder().drain(Duration::from_secs(20));
    /// ```
    pub fn drain(mut self, drain: Duration) -> Self {
        self.settings.drain = drain;
        self
    }

    /// How long a hold lasts before the manager logs one event of level `WARN`. By default 60 s. `Duration::MAX` turns it off.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// // Nightly reports take up to ten minutes under their lock.
    /// let builder = LockManager::builder().warn_held_for(Duration::from_secs(900));
    /// ```
    pub fn warn_held_for(mut self, long: Duration) -> Self {
        self.settings.warn_held_for = long;
        self
    }

    /// How long this process keeps a lock after a hold, for its next hold, when the request sets no `linger`. By default zero: each lock is
    /// released at once. At most 2 s. A quorum refuses it. It has no effect on permits, nor on readers with `renew(false)`, `max_hold` or
    /// `at_least`. See [`LockRequest::linger`](crate::LockRequest::linger).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// // One replica works on a customer for a while, and then another one does.
    /// let builder = LockManager::builder().linger(Duration::from_millis(500));
    /// ```
    pub fn linger(mut self, linger: Duration) -> Self {
        self.settings.default_linger = linger;
        self
    }

    /// How long a lock rests after a body that was dropped before its end, when the request sets no `lock_delay`. By default zero: the lock
    /// is released at once. It has no effect on guards and on readers. At most one year. See
    /// [`LockRequest::lock_delay`](crate::LockRequest::lock_delay).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// // A write of this service arrives within 5 s, or not at all.
    /// let builder = LockManager::builder().default_lock_delay(Duration::from_secs(5));
    /// ```
    pub fn default_lock_delay(mut self, delay: Duration) -> Self {
        self.settings.default_lock_delay = delay;
        self
    }

    /// How many locks this manager keeps without a hold. By default 10,000. Beyond that it releases the one that was unused for the longest
    /// time. Zero keeps none.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::LockManager;
    /// let builder = LockManager::builder().linger(Duration::from_secs(1)).max_lingering(500);
    /// ```
    pub fn max_lingering(mut self, limit: usize) -> Self {
        self.settings.max_lingering = limit;
        self
    }

    /// How many tasks of this manager may wait at the same time, for all keys together. The next task is refused at once, with
    /// [`TooManyWaiters`](crate::LockError::TooManyWaiters). By default 1,000,000. Each waiting task costs about 1 KiB on top of the task
    /// itself. Zero is refused.
    ///
    /// ```
    /// # use lock_runtime::LockManager;
    /// // Rather refuse requests than let a slow holder collect 50 MiB of them.
    /// let builder = LockManager::builder().max_waiters(50_000);
    /// ```
    pub fn max_waiters(mut self, limit: usize) -> Self {
        self.settings.max_waiters = limit;
        self
    }

    /// How many tasks of this manager may wait for one key at the same time. The next task is refused with
    /// [`TooManyWaiters`](crate::LockError::TooManyWaiters). By default 250,000. Zero is refused.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().max_waiters_per_key(1).in_memory();
    /// let _guard = locks.lock("p", "hot").acquire().await?;
    /// let (first, second) = tokio::join!(
    ///     locks.lock("p", "hot").timeout(std::time::Duration::from_millis(5)).acquire(),
    ///     locks.lock("p", "hot").acquire(),
    /// );
    /// assert!(matches!(first, Err(LockError::Timeout { .. })));
    /// assert!(matches!(second, Err(LockError::TooManyWaiters { limit: 1, .. })));
    /// # Ok(()) }
    /// ```
    pub fn max_waiters_per_key(mut self, limit: usize) -> Self {
        self.settings.max_waiters_per_key = limit;
        self
    }
}
