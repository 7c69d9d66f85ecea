//! Where locks live on the network, as users write it.

#[cfg(feature = "cluster")]
use crate::store::redis::cluster::seeds::Seeds;
use crate::store::redis::endpoint::Endpoint;
#[cfg(feature = "sentinel")]
use crate::store::redis::sentinel::Sentinels;
use crate::{BackendError, LockError};

mod mistakes;
#[cfg(feature = "quorum")]
pub(crate) mod quorum;

/// What a user may write.
pub(crate) const FORMS: &str = "write redis://[user:password@]host[:port][/db], rediss:// for TLS, valkey://, \
                     unix:///path/to/socket, redis-sentinel://[user:password@]host[:port],host[:port]/master-name[/db], \
                     rediss-sentinel://, redis-cluster://[user:password@]host[:port],host[:port], rediss-cluster://, \
                     redlock://[user:password@]host[:port],host[:port],host[:port][/db], redlocks://, or memory://";

/// A place for locks.
pub(crate) enum Place {
    Server(Endpoint),
    #[cfg(feature = "cluster")]
    Cluster(Box<Seeds>),
}

impl Place {
    /// As people write it, without credentials.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Server(endpoint) => endpoint.address(),
            #[cfg(feature = "cluster")]
            Self::Cluster(seeds) => seeds.to_string(),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        match self {
            Self::Server(endpoint) => endpoint.is_tls(),
            #[cfg(feature = "cluster")]
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
pub(crate) fn of_url(url: &str) -> Result<Place, LockError> {
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
pub(crate) fn of_client(client: &redis::Client) -> Result<Place, LockError> {
    Endpoint::of_client(client).map(Place::Server).map_err(|error| LockError::Connect {
        server: client.get_connection_info().addr().to_string(),
        problem: BackendError::caused_by("the client's settings can't be used", error),
    })
}

#[cfg(feature = "sentinel")]
fn of_sentinels(scheme: &str, rest: &str) -> Option<Place> {
    Sentinels::read(scheme, rest).map(|sentinels| Place::Server(Endpoint::Master(Box::new(sentinels))))
}

#[cfg(not(feature = "sentinel"))]
fn of_sentinels(_: &str, _: &str) -> Option<Place> {
    None
}

#[cfg(feature = "cluster")]
fn of_nodes(scheme: &str, rest: &str) -> Option<Place> {
    Seeds::read(scheme, rest).map(|seeds| Place::Cluster(Box::new(seeds)))
}

#[cfg(not(feature = "cluster"))]
fn of_nodes(_: &str, _: &str) -> Option<Place> {
    None
}

fn unreadable(scheme: &str, problem: Option<&str>) -> LockError {
    let features = [
        ("tls", cfg!(feature = "tls")),
        ("sentinel", cfg!(feature = "sentinel")),
        ("cluster", cfg!(feature = "cluster")),
        ("quorum", cfg!(feature = "quorum")),
    ];
    let missing = features.into_iter().filter(|(_, is_on)| !is_on).map(|(feature, _)| feature);
    LockError::InvalidSetting { setting: "URL", reason: unreadable_without(scheme, problem, missing) }
}

/// Why a URL can't be read by a build without some features.
fn unreadable_without(scheme: &str, problem: Option<&str>, missing: impl Iterator<Item = &'static str>) -> String {
    let (servers, kind) = scheme.split_once('-').unwrap_or((scheme, ""));
    let is_needed = |feature: &&str| match *feature {
        "tls" => matches!(servers, "rediss" | "valkeys" | "redlocks"),
        "quorum" => matches!(servers, "redlock" | "redlocks"),
        feature => feature == kind,
    };
    let needed: Vec<_> = missing.filter(is_needed).map(|feature| format!("`{feature}`")).collect();
    if !needed.is_empty() {
        let (features, them) = if needed.len() == 1 { ("feature", "it") } else { ("features", "them") };
        let needed = needed.join(" and ");
        return format!("{scheme}:// needs the {features} {needed} of lock-runtime; switch {them} on in Cargo.toml");
    }
    match problem {
        Some(problem) => format!("this one (scheme: {scheme}) can't be read: {problem}; {FORMS}"),
        None => format!("this one (scheme: {scheme}) can't be read; {FORMS}"),
    }
}

#[cfg(test)]
mod tests {
    use super::unreadable_without;

    #[test]
    fn a_url_that_needs_a_feature_is_told_which() {
        let told = |scheme, missing: &[&'static str]| unreadable_without(scheme, None, missing.iter().copied());
        for scheme in ["rediss", "valkeys", "rediss-sentinel", "valkeys-cluster", "redlocks"] {
            assert!(told(scheme, &["tls"]).contains("feature `tls`"));
            assert!(!told(scheme, &[]).contains("feature"));
        }
        assert!(told("redis-sentinel", &["tls", "sentinel"]).contains("feature `sentinel`"));
        assert!(told("redis-cluster", &["tls", "sentinel", "cluster"]).contains("feature `cluster`"));
        assert!(told("redlock", &["quorum"]).contains("feature `quorum`"));
        for (scheme, second) in
            [("rediss-cluster", "cluster"), ("valkeys-sentinel", "sentinel"), ("redlocks", "quorum")]
        {
            let told = told(scheme, &["tls", "sentinel", "cluster", "quorum"]);
            assert!(told.contains(&format!("features `tls` and `{second}`")), "{told}");
        }
        assert!(!told("redis", &["tls", "sentinel", "cluster", "quorum"]).contains("feature"));
    }
}
