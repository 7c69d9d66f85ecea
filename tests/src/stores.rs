//! [`World`]: a store and its managers, so that one suite of behaviours runs over every store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lock_runtime::{Builder, LockError, LockManager};

use crate::cluster::Cluster;
use crate::patience::eventually;
use crate::quorum::Servers;
use crate::sentinel::Sentinels;
use crate::server::{Kind, Server};

/// Longer than a server takes to catch up with the others.
const AGREED: Duration = Duration::from_secs(1);

/// The store of one test.
#[derive(Debug)]
pub struct World {
    store: Store,
}

#[derive(Debug)]
enum Store {
    /// The first manager; the others are made from it and share its store.
    Memory(LockManager),
    Redis(Server),
    /// A master and a replica under sentinels.
    Sentinel(Box<Sentinels>),
    /// Three masters.
    Cluster(Box<Cluster>),
    /// Independent servers.
    Quorum(Servers),
}

impl World {
    /// Locks in this process.
    #[must_use]
    pub fn memory() -> Self {
        Self { store: Store::Memory(LockManager::in_memory()) }
    }

    /// Locks in a Redis server.
    #[must_use]
    pub fn redis() -> Self {
        Self::server(Kind::Redis)
    }

    /// Locks on a server of this kind.
    #[must_use]
    pub fn server(kind: Kind) -> Self {
        Self { store: Store::Redis(Server::of(kind, &[])) }
    }

    /// Locks on a master under sentinels.
    #[must_use]
    pub fn sentinels(kind: Kind) -> Self {
        Self { store: Store::Sentinel(Box::new(Sentinels::of(kind, 1))) }
    }

    /// Locks in a cluster.
    #[must_use]
    pub fn cluster(kind: Kind) -> Self {
        Self { store: Store::Cluster(Box::new(Cluster::of(kind))) }
    }

    /// Locks on a majority of three servers.
    #[must_use]
    pub fn quorum_of_three(kind: Kind) -> Self {
        Self { store: Store::Quorum(Servers::of(kind, 3)) }
    }

    /// Locks on a majority of five servers.
    #[must_use]
    pub fn quorum_of_five(kind: Kind) -> Self {
        Self { store: Store::Quorum(Servers::of(kind, 5)) }
    }

    /// A manager with the default settings.
    pub async fn manager(&self) -> LockManager {
        self.manager_with(LockManager::builder()).await
    }

    /// A manager with the given settings.
    pub async fn manager_with(&self, builder: Builder) -> LockManager {
        self.try_manager_with(builder).await.expect("the test's servers are up")
    }

    /// [`manager_with`](Self::manager_with) for settings that may be refused. In memory only the first request refuses them.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::connect`].
    pub async fn try_manager_with(&self, builder: Builder) -> Result<LockManager, LockError> {
        let url = match &self.store {
            Store::Memory(first) => return builder.in_memory_with(first),
            Store::Redis(server) => server.url(),
            Store::Sentinel(sentinels) => sentinels.url(),
            Store::Cluster(cluster) => cluster.url(),
            Store::Quorum(servers) => servers.url(),
        };
        builder.url(&url).connect().await
    }

    /// The longest pause of a waiter between two tries.
    #[must_use]
    pub fn pause(&self) -> Duration {
        if self.is_quorum() { Duration::from_millis(250) } else { Duration::ZERO }
    }

    /// Whether the store is a quorum of independent servers, which have no queue.
    #[must_use]
    pub fn is_quorum(&self) -> bool {
        matches!(self.store, Store::Quorum(_))
    }

    /// A server that has this key; `None` without servers.
    #[must_use]
    pub fn server_of(&self, key: &str) -> Option<&Server> {
        match &self.store {
            Store::Redis(server) => Some(server),
            Store::Sentinel(sentinels) => Some(sentinels.master_server()),
            Store::Cluster(cluster) => Some(cluster.server_of(key)),
            Store::Quorum(servers) => Some(servers.server(0)),
            Store::Memory(_) => None,
        }
    }

    /// All servers on which a manager may store locks.
    #[must_use]
    pub fn servers(&self) -> Vec<&Server> {
        match &self.store {
            Store::Memory(_) => Vec::new(),
            Store::Redis(server) => vec![server],
            Store::Sentinel(sentinels) => sentinels.servers().collect(),
            Store::Cluster(cluster) => cluster.nodes().collect(),
            Store::Quorum(servers) => servers.servers().collect(),
        }
    }

    /// On a quorum, waits until all servers have what the majority has, because no command waits for the slowest server.
    pub async fn agrees(&self) {
        let Store::Quorum(servers) = &self.store else { return };
        let locks = |server: &Server| server.keys().into_keys().filter(|key| !key.starts_with('{')).collect::<Vec<_>>();
        let agree = || servers.servers().map(locks).collect::<BTreeSet<_>>().len() == 1;
        eventually("all servers agree", AGREED, agree).await;
    }

    /// Every key with its remaining milliseconds; `None` without servers.
    #[must_use]
    pub fn keys(&self) -> Option<BTreeMap<String, i64>> {
        match &self.store {
            Store::Cluster(cluster) => Some(cluster.nodes().flat_map(Server::keys).collect()),
            _ => self.server_of("").map(Server::keys),
        }
    }
}

/// Makes each named `async fn(World)` a test on every store. Without a server the clock is paused.
#[macro_export]
macro_rules! over_every_store {
    ($($behaviour:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $behaviour() {
                super::$behaviour($crate::stores::World::memory()).await;
            })+
        }
        $crate::over_servers!(redis = server(Redis): $($behaviour),+);
        $crate::over_servers!(valkey = server(Valkey): $($behaviour),+);
        $crate::over_servers!(sentinel = sentinels(Redis): $($behaviour),+);
        $crate::over_servers!(valkey_sentinel = sentinels(Valkey): $($behaviour),+);
        $crate::over_servers!(cluster = cluster(Redis): $($behaviour),+);
        $crate::over_servers!(valkey_cluster = cluster(Valkey): $($behaviour),+);
        $crate::over_servers!(quorum_of_three = quorum_of_three(Redis): $($behaviour),+);
        $crate::over_servers!(quorum_of_five = quorum_of_five(Redis): $($behaviour),+);
    };
}

/// The tests on one kind of server.
#[macro_export]
macro_rules! over_servers {
    ($name:ident = $world:ident($kind:ident): $($behaviour:ident),+) => {
        mod $name {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour($crate::stores::World::$world($crate::server::Kind::$kind)).await;
            })+
        }
    };
}
