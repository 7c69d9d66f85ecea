//! Where locks live on the network, as users write it.

use crate::store::redis::endpoint::Endpoint;
#[cfg(feature = "sentinel")]
use crate::store::redis::sentinel::Sentinels;
use crate::{BackendError, LockError};

#[cfg(feature = "quorum")]
pub(crate) mod quorum;

/// What a user may write.
pub(crate) const FORMS: &str = "write redis://[user:password@]host[:port][/db], rediss:// for TLS, valkey://, \
                     unix:///path/to/socket, redis-sentinel://[user:password@]host[:port],host[:port]/master-name[/db], \
                     rediss-sentinel://, redlock://[user:password@]host[:port],host[:port],host[:port][/db], redlocks://, \
                     or memory://";

/// Reads a URL.
pub(crate) fn of_url(url: &str) -> Result<Endpoint, LockError> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("no scheme", ""));
    if let Some(servers) = scheme.strip_suffix("-sentinel") {
        return of_sentinels(servers, rest).ok_or_else(|| unreadable(scheme));
    }
    // The URL itself is not shown: it may hold a password. Nor is the cause, which may quote the URL.
    of_client(&redis::Client::open(url).map_err(|_| unreadable(scheme))?)
}

/// Takes the place, the credentials and the certificates from a client.
pub(crate) fn of_client(client: &redis::Client) -> Result<Endpoint, LockError> {
    Endpoint::of_client(client).map_err(|error| LockError::Connect {
        server: client.get_connection_info().addr().to_string(),
        problem: BackendError::caused_by("the client's settings can't be used", error),
    })
}

#[cfg(feature = "sentinel")]
fn of_sentinels(scheme: &str, rest: &str) -> Option<Endpoint> {
    Sentinels::read(scheme, rest).map(|sentinels| Endpoint::Master(Box::new(sentinels)))
}

#[cfg(not(feature = "sentinel"))]
fn of_sentinels(_: &str, _: &str) -> Option<Endpoint> {
    None
}

fn unreadable(scheme: &str) -> LockError {
    let features = [
        ("tls", cfg!(feature = "tls")),
        ("sentinel", cfg!(feature = "sentinel")),
        ("quorum", cfg!(feature = "quorum")),
    ];
    let missing = features.into_iter().filter(|(_, is_on)| !is_on).map(|(feature, _)| feature);
    LockError::InvalidSetting { setting: "URL", reason: unreadable_without(scheme, missing) }
}

/// Why a URL can't be read by a build without some features.
fn unreadable_without(scheme: &str, mut missing: impl Iterator<Item = &'static str>) -> String {
    let (servers, is_sentinel) = scheme.strip_suffix("-sentinel").map_or((scheme, false), |servers| (servers, true));
    let is_needed = |feature: &&str| match *feature {
        "tls" => matches!(servers, "rediss" | "valkeys" | "redlocks"),
        "quorum" => matches!(servers, "redlock" | "redlocks"),
        _ => is_sentinel,
    };
    match missing.find(is_needed) {
        Some(feature) => {
            format!("{scheme}:// needs the feature `{feature}` of lock-runtime; switch it on in Cargo.toml")
        }
        None => format!("this one (scheme: {scheme}) can't be read; {FORMS}"),
    }
}

#[cfg(test)]
mod tests {
    use super::unreadable_without;

    #[test]
    fn a_url_that_needs_a_feature_is_told_which() {
        let told = |scheme, missing: &[&'static str]| unreadable_without(scheme, missing.iter().copied());
        for scheme in ["rediss", "valkeys", "rediss-sentinel", "redlocks"] {
            assert!(told(scheme, &["tls"]).contains("feature `tls`"));
            assert!(!told(scheme, &[]).contains("feature"));
        }
        assert!(told("redis-sentinel", &["tls", "sentinel"]).contains("feature `sentinel`"));
        assert!(told("redlock", &["quorum"]).contains("feature `quorum`"));
        assert!(!told("redis", &["tls", "sentinel", "quorum"]).contains("feature"));
    }
}
