//! [`Servers`]: independent servers, for locks on a majority of them.

use crate::server::{Kind, Server};

/// Servers that know nothing of each other; dropping this value stops them.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Server>,
}

impl Servers {
    /// This many servers, without persistence.
    #[must_use]
    pub fn start(count: usize) -> Self {
        Self::of(Kind::Redis, count)
    }

    /// This many servers, each with its own wall clock; `None` if there is no C compiler.
    #[must_use]
    pub fn with_clocks(count: usize) -> Option<Self> {
        let servers: Option<Vec<_>> = (0..count).map(|_| Server::with_clock()).collect();
        servers.map(Self::sorted)
    }

    /// This many servers of this kind.
    #[must_use]
    pub fn of(kind: Kind, count: usize) -> Self {
        Self::sorted((0..count).map(|_| Server::of(kind, &[])).collect())
    }

    fn sorted(mut servers: Vec<Server>) -> Self {
        // A manager sorts the servers of its URL as well.
        servers.sort_unstable_by_key(Server::address);
        Self { servers }
    }

    /// The URL for managers.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.servers.iter().map(Server::address).collect();
        format!("redlock://{}", addresses.join(","))
    }

    /// One of the servers; managers wait at the first one that answers.
    #[must_use]
    pub fn server(&self, number: usize) -> &Server {
        &self.servers[number]
    }

    /// All servers.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter()
    }

    /// One of the servers, to kill it.
    pub fn server_mut(&mut self, number: usize) -> &mut Server {
        &mut self.servers[number]
    }

    /// The owner of a lock's key on each server.
    #[must_use]
    pub fn owners(&self, key: &str) -> Vec<Option<String>> {
        self.servers.iter().map(|server| server.owner(key)).collect()
    }
}
