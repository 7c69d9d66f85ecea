//! [`Address`]: where servers are on the network, as users write it.

use redis::ConnectionInfo;

use crate::cluster::seeds::Seeds;
use crate::endpoint::Endpoint;
use crate::failure::CallError;
use crate::sentinel::Sentinels;
use crate::wire::Trust;

#[cfg(test)]
mod tests;
mod url;

pub use url::Mistake;
use url::{HostList, Place, Url};

/// What a URL names.
#[derive(Debug)]
pub enum Address {
    /// This process: there is no server.
    Memory,
    /// Servers that belong together.
    Redis(Target),
    /// Servers that know nothing of each other, in an order that does not depend on how the URL orders them.
    Independent(Vec<Endpoint>),
}

/// One server at a time, or the masters of a cluster.
#[derive(Debug)]
pub enum Target {
    /// One server at a time.
    Server(Endpoint),
    /// The masters of a cluster.
    Cluster(Box<Seeds>),
}

/// Why there is no address.
#[derive(Debug)]
pub enum AddressError {
    /// The URL can't be read.
    Mistake(Mistake),
    /// No connection to this server can be made with these settings.
    Unusable(String, CallError),
}

impl From<Mistake> for AddressError {
    fn from(mistake: Mistake) -> Self {
        Self::Mistake(mistake)
    }
}

impl Target {
    /// As people write it, without credentials.
    pub fn address(&self) -> String {
        match self {
            Self::Server(endpoint) => endpoint.address(),
            Self::Cluster(seeds) => seeds.to_string(),
        }
    }

    /// Whether the servers speak TLS.
    pub fn is_tls(&self) -> bool {
        match self {
            Self::Server(endpoint) => endpoint.is_tls(),
            Self::Cluster(seeds) => seeds.is_tls(),
        }
    }

    /// Takes the address and the credentials from a client of the `redis` crate.
    pub fn of_client(client: &redis::Client, trust: &Trust) -> Result<Self, AddressError> {
        endpoint(client.get_connection_info().clone(), trust).map(Self::Server)
    }
}

/// The server that a connection would lead to; refused when no connection can be made with these settings.
fn endpoint(info: ConnectionInfo, trust: &Trust) -> Result<Endpoint, AddressError> {
    let server = info.addr().to_string();
    Endpoint::of_connection(info, trust).map_err(|error| AddressError::Unusable(server, error))
}

impl Address {
    /// Reads a URL.
    pub fn of_url(url: &str, trust: &Trust) -> Result<Self, AddressError> {
        let Url { text, scheme, place } = Url::read(url)?;
        // Neither the URL nor the cause of a failure, which may quote the URL, is shown: a URL may hold a password.
        let unreadable = || Mistake { scheme: scheme.clone(), problem: None };
        let connections = |hosts: &HostList, db| hosts.connections(db).map_err(|_| unreadable());
        Ok(match place {
            Place::Memory => Self::Memory,
            Place::Server => {
                Self::Redis(Target::of_client(&redis::Client::open(text).map_err(|_| unreadable())?, trust)?)
            }
            Place::Sentinels { sentinels, master, db } => {
                let sentinels = Sentinels::new(connections(&sentinels, Some(db))?, &master, trust);
                Self::Redis(Target::Server(Endpoint::Master(Box::new(sentinels))))
            }
            Place::Cluster(nodes) => {
                let seeds = Seeds::new(connections(&nodes, None)?, trust).ok_or_else(unreadable)?;
                Self::Redis(Target::Cluster(Box::new(seeds)))
            }
            Place::Independent { servers, db } => {
                let servers = connections(&servers, db)?.into_iter();
                Self::Independent(servers.map(|info| endpoint(info, trust)).collect::<Result<_, _>>()?)
            }
        })
    }
}
