//! Where locks live on the network, as users write it.

use redis::ConnectionInfo;

use crate::LockError;
use crate::store::redis::cluster::seeds::Seeds;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::sentinel::Sentinels;
use crate::store::redis::wire::Trust;

mod host_list;
pub(crate) mod quorum;
#[cfg(test)]
mod tests;
mod url;

use url::{Mistake, Place, Url};

/// What a user may write.
pub(crate) const FORMS: &str = "write redis://[user:password@]host[:port][/db], rediss:// for TLS, valkey://, \
                     unix:///path/to/socket, redis-sentinel://[user:password@]host[:port],host[:port]/master-name[/db], \
                     rediss-sentinel://, redis-cluster://[user:password@]host[:port],host[:port], rediss-cluster://, \
                     redlock://[user:password@]host[:port],host[:port],host[:port][/db], redlocks://, or memory://";

/// Where the locks of a manager live.
pub(crate) enum Address {
    /// In this process.
    Memory,
    Redis(Target),
    /// On a majority of these servers.
    Quorum(Vec<Endpoint>),
}

/// One server at a time, or the masters of a cluster.
pub(crate) enum Target {
    Server(Endpoint),
    Cluster(Box<Seeds>),
}

impl Target {
    /// As people write it, without credentials.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Server(endpoint) => endpoint.address(),
            Self::Cluster(seeds) => seeds.to_string(),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        match self {
            Self::Server(endpoint) => endpoint.is_tls(),
            Self::Cluster(seeds) => seeds.is_tls(),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !matches!(self, Self::Server(_))
    }
}

/// Reads a URL.
pub(crate) fn of_url(url: &str, trust: &Trust) -> Result<Address, LockError> {
    let read = Url::read(url).map_err(Mistake::into_error)?;
    match &read.place {
        Place::Memory => Ok(Address::Memory),
        Place::Quorum { servers, db } => quorum::of_hosts(&read.scheme, servers, *db, trust).map(Address::Quorum),
        Place::Server | Place::Sentinels { .. } | Place::Cluster(_) => target(read, trust).map(Address::Redis),
    }
}

/// Takes the address and the credentials from a client.
pub(crate) fn of_client(client: &redis::Client, trust: &Trust) -> Result<Target, LockError> {
    endpoint(client.get_connection_info().clone(), trust).map(Target::Server)
}

/// The server that a connection would lead to; refused when no connection can be made with these settings.
fn endpoint(info: ConnectionInfo, trust: &Trust) -> Result<Endpoint, LockError> {
    let server = info.addr().to_string();
    Endpoint::of_connection(info, trust).map_err(|error| LockError::Connect { server, problem: error.into_problem() })
}

/// The target of a URL that was read. `memory://` and a quorum have none.
fn target(read: Url<'_>, trust: &Trust) -> Result<Target, LockError> {
    // Neither the URL nor the cause of a failure, which may quote the URL, is shown: a URL may hold a password.
    let Url { text, scheme, place } = read;
    let unreadable = || unreadable(&scheme);
    match place {
        Place::Server => of_client(&redis::Client::open(text).map_err(|_| unreadable())?, trust),
        Place::Sentinels { sentinels, master, db } => {
            let connections = sentinels.connections(Some(db)).map_err(|_| unreadable())?;
            Ok(Target::Server(Endpoint::Master(Box::new(Sentinels::new(connections, &master, trust)))))
        }
        Place::Cluster(nodes) => {
            let connections = nodes.connections(None).map_err(|_| unreadable())?;
            Seeds::new(connections, trust).map(|seeds| Target::Cluster(Box::new(seeds))).ok_or_else(unreadable)
        }
        Place::Memory | Place::Quorum { .. } => Err(unreadable()),
    }
}

/// The error for a URL whose mistake has no description of its own.
fn unreadable(scheme: &str) -> LockError {
    Mistake { scheme: scheme.to_owned(), problem: None }.into_error()
}

// Not `From`: with a second conversion into `LockError`, the compiler could not infer the error's type behind a user's `?`.
impl Mistake {
    fn into_error(self) -> LockError {
        LockError::setting("URL", reason(&self, cfg!(feature = "tls")))
    }
}

/// Why a URL can't be read by a build with or without TLS.
fn reason(Mistake { scheme, problem }: &Mistake, has_tls: bool) -> String {
    let servers = scheme.split('-').next().unwrap_or_default();
    if !has_tls && matches!(servers, "rediss" | "valkeys" | "redlocks") {
        return format!("{scheme}:// needs the feature `tls` of lock-runtime; switch it on in Cargo.toml");
    }
    match problem {
        Some(problem) => format!("this one (scheme: {scheme}) can't be read: {problem}; {FORMS}"),
        None => format!("this one (scheme: {scheme}) can't be read; {FORMS}"),
    }
}
