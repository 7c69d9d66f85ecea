//! [`Servers`]: independent servers, for locks on a majority of them.

use crate::server::{Kind, Server};

/// Servers that know nothing of each other; they end with this value.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Server>,
}

impl Servers {
    /// So many, without persistence.
    #[must_use]
    pub fn start(count: usize) -> Self {
        Self::of(Kind::Redis, count)
    }

    /// So many, each with a wall clock of its own; `None` where that can't be.
    #[must_use]
    pub fn with_clocks(count: usize) -> Option<Self> {
        let servers: Option<Vec<_>> = (0..count).map(|_| Server::with_clock()).collect();
        servers.map(Self::sorted)
    }

    /// So many of a certain kind.
    #[must_use]
    pub fn of(kind: Kind, count: usize) -> Self {
        Self::sorted((0..count).map(|_| Server::of(kind, &[])).collect())
    }

    fn sorted(mut servers: Vec<Server>) -> Self {
        // As a manager does with those of a URL.
        servers.sort_unstable_by_key(Server::address);
        Self { servers }
    }

    /// What a manager connects to.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.servers.iter().map(Server::address).collect();
        format!("redlock://{}", addresses.join(","))
    }

    /// One of them; managers wait at the first one that answers.
    #[must_use]
    pub fn server(&self, number: usize) -> &Server {
        &self.servers[number]
    }

    /// All of them.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter()
    }

    /// One of them, to kill it.
    pub fn server_mut(&mut self, number: usize) -> &mut Server {
        &mut self.servers[number]
    }

    /// Which of them have an owner at a lock's key.
    #[must_use]
    pub fn owners(&self, key: &str) -> Vec<Option<String>> {
        self.servers.iter().map(|server| server.owner(key)).collect()
    }
}
