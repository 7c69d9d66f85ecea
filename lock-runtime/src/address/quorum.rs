//! Where a quorum is, as users write it.

use crate::LockError;
use crate::address::{self, Target};
use crate::store::redis::endpoint::Endpoint;

/// With two servers either one's death would be that of the lock.
const FEWEST: usize = 3;

/// Reads a URL, if it is that of a quorum.
pub(crate) fn of_url(url: &str) -> Option<Result<Vec<Endpoint>, LockError>> {
    let (scheme, _) = url.split_once("://")?;
    let servers = match &*scheme.to_ascii_lowercase() {
        "redlock" => "redis",
        "redlocks" => "rediss",
        _ => return None,
    };
    let read = |(scheme, rest): (String, &str)| {
        // The user has written none of the servers' own URLs.
        independent(&urls(servers, rest), |_| address::unreadable(&scheme, None))
    };
    Some(address::taken_apart(url).and_then(read))
}

/// Reads `[user:password@]host[:port],host[:port],…[/db]`, what follows `redlock://`. `scheme` is that of the servers.
fn urls(scheme: &str, rest: &str) -> Vec<String> {
    let (target, db) = rest.split_once('/').map_or((rest, String::new()), |(target, db)| (target, format!("/{db}")));
    let (credentials, hosts) =
        target.rsplit_once('@').map_or(("", target), |(_, hosts)| target.split_at(target.len() - hosts.len()));
    let mut hosts: Vec<_> = hosts.split(',').collect();
    // All managers have one order, however each of them names the servers: waiting begins at the first.
    hosts.sort_unstable_by_key(|host| host.strip_suffix(":6379").unwrap_or(host));
    hosts.iter().map(|host| format!("{scheme}://{credentials}{host}{db}")).collect()
}

/// Reads the URLs of independent servers.
pub(crate) fn of_urls(urls: &[String]) -> Result<Vec<Endpoint>, LockError> {
    independent(urls, |error| error)
}

/// The servers, or what is wrong with them; what is wrong with one's URL is told as `told` has it.
fn independent(urls: &[String], told: impl Fn(LockError) -> LockError) -> Result<Vec<Endpoint>, LockError> {
    let invalid = |reason| Err(invalid(reason));
    if urls.len() < FEWEST {
        let reason = format!(
            "it needs {FEWEST} servers or more, of which more than half have to answer; this is {}",
            urls.len()
        );
        return invalid(reason);
    }
    let endpoints = urls.iter().map(|url| one_server(url).map_err(&told)).collect::<Result<Vec<_>, _>>()?;
    let mut addresses: Vec<_> = endpoints.iter().map(Endpoint::address).collect();
    addresses.sort_unstable();
    match addresses.windows(2).find_map(|pair| pair.first().filter(|first| pair.last() == Some(first))) {
        Some(twice) => invalid(format!("{twice} is named twice, and would have two votes")),
        None => Ok(endpoints),
    }
}

fn one_server(url: &str) -> Result<Endpoint, LockError> {
    match address::of_url(url)? {
        Target::Server(endpoint) if !endpoint.moves() => Ok(endpoint),
        target => Err(invalid(format!("{} is not one server", target.address()))),
    }
}

fn invalid(reason: String) -> LockError {
    LockError::InvalidSetting { setting: "quorum", reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_hosts_and_perhaps_credentials_and_a_database() {
        assert_eq!(urls("redis", "c,a:6379,b:7"), ["redis://a:6379", "redis://b:7", "redis://c"]);
        assert_eq!(urls("redis", "[::1],[::2]:7"), ["redis://[::1]", "redis://[::2]:7"]);
        assert_eq!(urls("rediss", "ada:s%40c@a,b/3"), ["rediss://ada:s%40c@a/3", "rediss://ada:s%40c@b/3"]);
    }

    #[test]
    fn three_servers_or_more_are_a_quorum_and_none_is_named_twice() {
        let read = |rest: &str| {
            let read = of_url(&format!("redlock://{rest}")).unwrap();
            read.map(|endpoints| endpoints.len()).map_err(|error| error.to_string())
        };
        assert_eq!(read("a,b,c"), Ok(3));
        assert_eq!(read("a,b,c,d/2"), Ok(4));
        for (rest, told) in [
            ("a", "needs 3"),
            ("a,b", "needs 3"),
            ("a,b,b:6379", "twice"),
            ("a,,b", "redlock) can't be read: a host is missing"),
            ("a,b,c/x", "redlock) can't be read: the database"),
            ("a,b,c:port", "redlock) can't be read"),
        ] {
            let error = read(rest).unwrap_err();
            assert!(error.contains(told), "{rest}: {error}");
        }
    }
}
