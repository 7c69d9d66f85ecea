//! [`World`]: a place where locks live and the managers on it, so that one suite of behaviours runs over every store.

use lock_runtime::{Builder, LockManager};

use crate::quorum::Servers;
use crate::sentinel::Sentinels;
use crate::server::Server;

/// A store of its own for one test.
#[derive(Debug)]
pub struct World {
    store: Store,
}

#[derive(Debug)]
enum Store {
    /// The first manager; the others share its store.
    Memory(LockManager),
    Redis(Server),
    /// A master and a replica under sentinels.
    Sentinel(Box<Sentinels>),
    /// Independent servers.
    Quorum(Servers),
}

impl World {
    /// Locks in this process.
    #[must_use]
    pub fn memory() -> Self {
        Self { store: Store::Memory(LockManager::in_memory()) }
    }

    /// Locks in a Redis that is started for this test.
    #[must_use]
    pub fn redis() -> Self {
        Self { store: Store::Redis(Server::start()) }
    }

    /// Locks on a master that sentinels name, all started for this test.
    #[must_use]
    pub fn sentinel() -> Self {
        Self { store: Store::Sentinel(Box::new(Sentinels::start(1))) }
    }

    /// Locks on a majority of so many servers, all started for this test.
    #[must_use]
    pub fn quorum(servers: usize) -> Self {
        Self { store: Store::Quorum(Servers::start(servers)) }
    }

    /// A manager with the default settings.
    pub async fn manager(&self) -> LockManager {
        self.manager_with(LockManager::builder()).await
    }

    /// A manager with the given settings.
    pub async fn manager_with(&self, builder: Builder) -> LockManager {
        let url = match &self.store {
            Store::Memory(first) => return builder.in_memory_with(first).expect("the first is in memory"),
            Store::Redis(server) => server.url(),
            Store::Sentinel(sentinels) => sentinels.url(),
            Store::Quorum(servers) => servers.url(),
        };
        builder.url(&url).connect().await.expect("the test's servers are up")
    }

    /// The server that the locks are on, or one that knows of them all; `None` when there is none.
    #[must_use]
    pub fn server(&self) -> Option<&Server> {
        match &self.store {
            Store::Redis(server) => Some(server),
            Store::Sentinel(sentinels) => Some(sentinels.master_server()),
            Store::Quorum(servers) => Some(servers.server(0)),
            Store::Memory(_) => None,
        }
    }
}

/// Makes each named `async fn(World)` a test over every store: with the clock paused where there is no server.
#[macro_export]
macro_rules! over_every_store {
    ($($behaviour:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $behaviour() {
                super::$behaviour($crate::stores::World::memory()).await;
            })+
        }
        mod redis {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour($crate::stores::World::redis()).await;
            })+
        }
        mod sentinel {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour($crate::stores::World::sentinel()).await;
            })+
        }
        mod quorum_of_three {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour($crate::stores::World::quorum(3)).await;
            })+
        }
        mod quorum_of_five {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour($crate::stores::World::quorum(5)).await;
            })+
        }
    };
}
