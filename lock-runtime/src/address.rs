//! Where locks live on the network, as users write it.

use crate::store::redis::cluster::seeds::Seeds;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::sentinel::Sentinels;
use crate::{BackendError, LockError};

mod mistakes;
pub(crate) mod quorum;

/// What a user may write.
pub(crate) const FORMS: &str = "write redis://[user:password@]host[:port][/db], rediss:// for TLS, valkey://, \
                     unix:///path/to/socket, redis-sentinel://[user:password@]host[:port],host[:port]/master-name[/db], \
                     rediss-sentinel://, redis-cluster://[user:password@]host[:port],host[:port], rediss-cluster://, \
                     redlock://[user:password@]host[:port],host[:port],host[:port][/db], redlocks://, or memory://";

/// A place for locks.
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

/// Whether the locks are to live in this process.
pub(crate) fn is_memory(url: &str) -> bool {
    url.eq_ignore_ascii_case("memory://")
}

/// Reads a URL.
pub(crate) fn of_url(url: &str) -> Result<Target, LockError> {
    let (scheme, rest) = taken_apart(url)?;
    let scheme = &*scheme;
    let unreadable = || unreadable(scheme, None);
    if let Some(servers) = scheme.strip_suffix("-cluster") {
        return of_nodes(servers, rest).ok_or_else(unreadable);
    }
    if let Some(servers) = scheme.strip_suffix("-sentinel") {
        return of_sentinels(servers, rest).ok_or_else(unreadable);
    }
    // The URL itself is not shown: it may hold a password. Nor is the cause, which may quote the URL.
    of_client(&redis::Client::open(url).map_err(|_| unreadable())?)
}

/// The scheme, and what follows it, if there is no mistake in it.
fn taken_apart(url: &str) -> Result<(String, &str), LockError> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("no scheme", ""));
    let scheme = scheme.to_ascii_lowercase();
    match mistakes::find(&scheme, rest) {
        Some(mistake) => Err(unreadable(&scheme, Some(mistake))),
        None => Ok((scheme, rest)),
    }
}

/// Takes the place, the credentials and the certificates from a client.
pub(crate) fn of_client(client: &redis::Client) -> Result<Target, LockError> {
    Endpoint::of_client(client).map(Target::Server).map_err(|error| LockError::Connect {
        server: client.get_connection_info().addr().to_string(),
        problem: BackendError::caused_by("the client's settings can't be used", error),
    })
}

fn of_sentinels(scheme: &str, rest: &str) -> Option<Target> {
    Sentinels::read(scheme, rest).map(|sentinels| Target::Server(Endpoint::Master(Box::new(sentinels))))
}

fn of_nodes(scheme: &str, rest: &str) -> Option<Target> {
    Seeds::read(scheme, rest).map(|seeds| Target::Cluster(Box::new(seeds)))
}

fn unreadable(scheme: &str, problem: Option<&str>) -> LockError {
    LockError::InvalidSetting { setting: "URL", reason: why_unreadable(scheme, problem, cfg!(feature = "tls")) }
}

/// Why a URL can't be read by a build with or without TLS.
fn why_unreadable(scheme: &str, problem: Option<&str>, has_tls: bool) -> String {
    let servers = scheme.split('-').next().unwrap_or_default();
    if !has_tls && matches!(servers, "rediss" | "valkeys" | "redlocks") {
        return format!("{scheme}:// needs the feature `tls` of lock-runtime; switch it on in Cargo.toml");
    }
    match problem {
        Some(problem) => format!("this one (scheme: {scheme}) can't be read: {problem}; {FORMS}"),
        None => format!("this one (scheme: {scheme}) can't be read; {FORMS}"),
    }
}

#[cfg(test)]
mod tests {
    use super::why_unreadable;

    #[test]
    fn a_url_of_tls_is_told_the_feature_that_it_needs() {
        let told = |scheme, has_tls| why_unreadable(scheme, None, has_tls);
        for scheme in ["rediss", "valkeys", "rediss-sentinel", "valkeys-cluster", "redlocks"] {
            assert!(told(scheme, false).contains("feature `tls`"));
            assert!(!told(scheme, true).contains("feature"));
        }
        for scheme in ["redis", "redis-sentinel", "valkey-cluster", "redlock"] {
            assert!(!told(scheme, false).contains("feature"));
        }
    }
}
