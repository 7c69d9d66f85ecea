//! [`Builder`]: every setting of a manager.

use std::time::Duration;

use crate::local::Engine;
use crate::{LockError, LockManager};

/// What a manager was set to.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: Option<String>,
    pub(crate) label: String,
    pub(crate) default_timeout: Duration,
    pub(crate) default_expire: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) grace: Duration,
    pub(crate) drain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: None,
            label: format!(
                "{}:{}",
                gethostname::gethostname().to_string_lossy(),
                std::process::id()
            ),
            default_timeout: Duration::from_secs(2),
            default_expire: Duration::from_secs(30),
            command_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(2),
            grace: Duration::ZERO,
            drain: Duration::from_secs(5),
        }
    }
}

/// Settings of a [`LockManager`]; made by [`LockManager::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `connect` or `in_memory` is called"]
pub struct Builder {
    settings: Settings,
    server: Option<Server>,
}

#[derive(Clone, Debug)]
enum Server {
    Url(String),
    Client(redis::Client),
}

impl Builder {
    /// Where the locks live: `redis://`, `rediss://`, `valkey://`, `unix://` as the `redis` crate reads them, or
    /// `memory://`.
    pub fn url(mut self, url: &str) -> Self {
        self.server = Some(Server::Url(url.to_owned()));
        self
    }

    /// A client of the `redis` crate whose address, credentials and certificates are to be used.
    pub fn client(mut self, client: redis::Client) -> Self {
        self.server = Some(Server::Client(client));
        self
    }

    /// The first part of every lock's name, `namespace:prefix:key`: keeps services apart that share a Redis.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.settings.namespace = Some(namespace.to_owned());
        self
    }

    /// How this manager is named to those that wait for its locks. By default `host:process id`.
    pub fn label(mut self, label: &str) -> Self {
        self.settings.label = label.to_owned();
        self
    }

    /// How long a request waits that does not say so itself. By default 2 s.
    pub fn default_timeout(mut self, timeout: Duration) -> Self {
        self.settings.default_timeout = timeout;
        self
    }

    /// The lease of a request that does not say so itself; such a lease is renewed. By default 30 s.
    pub fn default_expire(mut self, expire: Duration) -> Self {
        self.settings.default_expire = expire;
        self
    }

    /// How long one command may take before its connection is doubted. By default 500 ms.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.settings.command_timeout = timeout;
        self
    }

    /// How long [`connect`](Self::connect) may take. By default 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// For how much longer than its holder believes the server keeps a lease: time for the last effects of a holder
    /// that is late. It delays others only after a crash. By default zero.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How long [`LockManager::shutdown`] lets running holds end by themselves. By default 5 s.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.settings.drain = drain;
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
        todo!()
    }

    /// A manager whose locks live in this process.
    #[must_use]
    pub fn in_memory(self) -> LockManager {
        LockManager::new(Engine::in_memory(self.settings))
    }
}
