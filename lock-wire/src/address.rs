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

/// What a URL points to.
#[derive(Debug)]
pub enum Address {
    /// This process; no server is involved.
    Memory,
    /// Servers that belong together.
    Redis(Target),
    /// Independent servers, in an order that does not depend on how the URL lists them.
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

/// Why an address can't be used.
#[derive(Debug)]
pub enum AddressError {
    /// The URL can't be read.
    Mistake(Mistake),
    /// These settings allow no connection to this server.
    Unusable(String, CallError),
    /// The address has a user name or a password although [credentials that change](crate::Credentials) are set as well.
    TwoLogins,
}

impl From<Mistake> for AddressError {
    fn from(mistake: Mistake) -> Self {
        Self::Mistake(mistake)
    }
}

impl Target {
    /// The address for messages, without credentials.
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

/// The endpoint for these settings, or an error when they allow no connection.
fn endpoint(info: ConnectionInfo, trust: &Trust) -> Result<Endpoint, AddressError> {
    check_login(&info, trust)?;
    let server = info.addr().to_string();
    Endpoint::of_connection(info, trust).map_err(|error| AddressError::Unusable(server, error))
}

/// Refuses an address with a login when credentials are configured separately.
fn check_login(info: &ConnectionInfo, trust: &Trust) -> Result<(), AddressError> {
    let settings = info.redis_settings();
    let is_named = settings.username().is_some() || settings.password().is_some();
    if is_named && trust.credentials.is_some() { Err(AddressError::TwoLogins) } else { Ok(()) }
}

impl Address {
    /// Reads a URL.
    pub fn of_url(url: &str, trust: &Trust) -> Result<Self, AddressError> {
        let Url { text, scheme, place } = Url::read(url)?;
        // Show neither the URL nor the parser's error, which may quote it: a URL may contain a password.
        let unreadable = || Mistake { scheme: scheme.clone(), problem: None };
        let connections = |hosts: &HostList, db| {
            let infos = hosts.connections(db).map_err(|_| unreadable())?;
            infos.iter().try_for_each(|info| check_login(info, trust))?;
            Ok::<_, AddressError>(infos)
        };
        Ok(match place {
            Place::Memory => Self::Memory,
            Place::Server => {
                Self::Redis(Target::of_client(&redis::Client::open(text).map_err(|_| unreadable())?, trust)?)
            }
            Place::Sentinels { sentinels, master, db } => {
                let sentinels = Sentinels::new(connections(&sentinels, Some(db))?, &master, trust);
                Self::Redis(Target::Server(Endpoint::Master(Box::new(sentinels))))
            }
            Place::Cluster { nodes, db } => {
                let seeds = Seeds::new(connections(&nodes, db)?, trust).ok_or_else(unreadable)?;
                Self::Redis(Target::Cluster(Box::new(seeds)))
            }
            Place::Independent { servers, db } => {
                let servers = connections(&servers, db)?.into_iter();
                Self::Independent(servers.map(|info| endpoint(info, trust)).collect::<Result<_, _>>()?)
            }
        })
    }
}
