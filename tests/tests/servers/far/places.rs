//! [`Far`]: a place whose servers are all behind proxies that add latency.

use std::time::Duration;

use lock_runtime::{Builder, LockManager};
use tests::patience::NOISE;
use tests::proxy::{Distance, Proxy};
use tests::sentinel::{NAME, Sentinel};
use tests::server::{Kind, Server, free_port};
use tests::tls::{Authority, arguments};

/// The default command timeout.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(500);

/// Servers, and the proxies in front of them.
pub(crate) struct Far {
    /// The first server has the locks, or some of them.
    pub(crate) servers: Vec<Server>,
    _sentinel: Option<Sentinel>,
    proxies: Vec<Proxy>,
    url: String,
    authority: Option<Authority>,
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap()
}

impl Far {
    pub(crate) fn one_server() -> Self {
        let server = Server::start();
        let proxy = Proxy::before(&server);
        let url = proxy.url();
        Self { servers: vec![server], _sentinel: None, proxies: vec![proxy], url, authority: None }
    }

    pub(crate) fn tls() -> Self {
        let (authority, port) = (Authority::new(), free_port());
        let options = arguments(&authority.options(port));
        let server = Server::with(&options.iter().map(String::as_str).collect::<Vec<_>>());
        let proxy = Proxy::blind(format!("127.0.0.1:{port}"));
        let url = format!("rediss://{}", proxy.address());
        Self { servers: vec![server], _sentinel: None, proxies: vec![proxy], url, authority: Some(authority) }
    }

    /// A master and one sentinel, which reaches the master through the proxy, as managers do.
    pub(crate) fn sentinel() -> Self {
        let server = Server::start();
        let master = Proxy::before(&server);
        let sentinel = Sentinel::with(Kind::Redis, port(&master.address()).parse().unwrap(), &[]);
        let before = Proxy::to(sentinel.address(), false);
        let url = format!("redis-sentinel://{}/{NAME}", before.address());
        Self { servers: vec![server], _sentinel: Some(sentinel), proxies: vec![master, before], url, authority: None }
    }

    /// One master with all slots, which announces the proxy's address as its own.
    pub(crate) fn cluster() -> Self {
        let server = Server::with(&["--cluster-enabled", "yes"]);
        let proxy = Proxy::before(&server);
        server.tell("CLUSTER ADDSLOTSRANGE 0 16383");
        server.tell(&format!("CONFIG SET cluster-announce-port {}", port(&proxy.address())));
        let is_well = || server.ask::<String>("CLUSTER INFO").contains("cluster_state:ok");
        tests::patience::eventually_blocking("the cluster is up", Duration::from_secs(10), is_well);
        let url = format!("redis-cluster://{}", proxy.address());
        Self { servers: vec![server], _sentinel: None, proxies: vec![proxy], url, authority: None }
    }

    pub(crate) fn quorum() -> Self {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let proxies: Vec<_> = servers.iter().map(Proxy::before).collect();
        let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
        let url = format!("redlock://{}", addresses.join(","));
        Self { servers, _sentinel: None, proxies, url, authority: None }
    }

    pub(crate) fn move_away(&self, distance: Distance) {
        self.proxies.iter().for_each(|proxy| proxy.move_away(distance));
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        self.proxies.iter().for_each(Proxy::cut);
    }

    pub(crate) fn builder(&self) -> Builder {
        let Some(authority) = &self.authority else {
            return LockManager::builder().url(&self.url);
        };
        LockManager::builder().url(&self.url).tls(authority.trusted())
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.authority.is_some()
    }

    pub(crate) async fn manager(&self) -> LockManager {
        self.builder().connect().await.unwrap()
    }

    /// The default settings, with extra time for a busy machine: at a distance of 400 ms the default command timeout leaves 100 ms
    /// for the server, the proxy and this process. The simulation, where nothing else takes time, shows that the default is enough
    /// (`a_single_try_of_a_free_lock_succeeds_at_every_distance_with_the_default_settings`).
    pub(crate) async fn manager_on_a_busy_machine(&self) -> LockManager {
        self.builder().command_timeout(COMMAND_TIMEOUT + NOISE).connect().await.unwrap()
    }

    /// Whether a majority of the servers has an owner of the lock.
    pub(crate) fn is_owned(&self, key: &str) -> bool {
        self.servers.iter().filter(|server| server.owner(key).is_some()).count() > self.servers.len() / 2
    }
}
