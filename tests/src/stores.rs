//! [`World`]: a place where locks live and the managers on it, so that one suite of behaviours runs over every store.

use lock_runtime::{Builder, LockManager};

use crate::server::Server;

/// A store of its own for one test.
#[derive(Debug)]
pub struct World {
    server: Option<Server>,
}

impl World {
    /// Locks in this process.
    #[must_use]
    pub fn memory() -> Self {
        Self { server: None }
    }

    /// Locks in a Redis that is started for this test.
    #[must_use]
    pub fn redis() -> Self {
        Self {
            server: Some(Server::start()),
        }
    }

    /// A manager with the default settings.
    pub async fn manager(&self) -> LockManager {
        self.manager_with(LockManager::builder()).await
    }

    /// A manager with the given settings.
    ///
    /// Over memory it has a store of its own: what one test asks of one world with several managers is asked over
    /// Redis only.
    pub async fn manager_with(&self, builder: Builder) -> LockManager {
        match &self.server {
            Some(server) => builder
                .url(&server.url())
                .connect()
                .await
                .expect("the test's server is up"),
            None => builder.in_memory(),
        }
    }

    /// The server, when there is one.
    #[must_use]
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
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
    };
}
