//! Independent servers, of which a majority has each lock.

use super::host_list::HostList;
use super::url::{Mistake, Url};
use super::{Target, endpoint, unreadable};
use crate::LockError;
use crate::store::redis::endpoint::Endpoint;
use crate::store::redis::wire::Trust;

/// A majority of two servers is both of them: the death of either one would end the locks.
const FEWEST: usize = 3;

/// The servers that one URL of this scheme names.
pub(super) fn of_hosts(
    scheme: &str,
    servers: &HostList,
    db: Option<u32>,
    trust: &Trust,
) -> Result<Vec<Endpoint>, LockError> {
    check_count(servers.hosts.len())?;
    let connections = servers.connections(db).map_err(|_| unreadable(scheme))?;
    check_names(connections.into_iter().map(|info| endpoint(info, trust)).collect::<Result<_, _>>()?)
}

/// The servers that have a URL each.
pub(crate) fn of_urls(urls: &[String], trust: &Trust) -> Result<Vec<Endpoint>, LockError> {
    check_count(urls.len())?;
    check_names(urls.iter().map(|url| of_url(url, trust)).collect::<Result<_, _>>()?)
}

fn of_url(url: &str, trust: &Trust) -> Result<Endpoint, LockError> {
    let read = Url::read(url).map_err(Mistake::into_error)?;
    match super::target(read, trust)? {
        Target::Server(endpoint) if !endpoint.moves() => Ok(endpoint),
        target => Err(invalid(format!("{} is not one server", target.address()))),
    }
}

fn check_count(servers: usize) -> Result<(), LockError> {
    if servers >= FEWEST {
        return Ok(());
    }
    let reason =
        format!("it needs {FEWEST} servers or more, of which more than half have to answer; this is {servers}");
    Err(invalid(reason))
}

/// Refuses servers of which two have the same name.
fn check_names(endpoints: Vec<Endpoint>) -> Result<Vec<Endpoint>, LockError> {
    let mut addresses: Vec<_> = endpoints.iter().map(Endpoint::address).collect();
    addresses.sort_unstable();
    match addresses.windows(2).find_map(|pair| pair.first().filter(|first| pair.last() == Some(first))) {
        Some(twice) => Err(invalid(format!("{twice} is named twice, and would have two votes"))),
        None => Ok(endpoints),
    }
}

fn invalid(reason: String) -> LockError {
    LockError::setting("quorum", reason)
}

#[cfg(test)]
mod tests {
    use super::super::{Address, of_url};
    use super::Trust;

    #[test]
    fn three_servers_or_more_are_a_quorum_and_none_is_named_twice() {
        let read = |rest: &str| match of_url(&format!("redlock://{rest}"), &Trust::default()) {
            Ok(Address::Quorum(endpoints)) => Ok(endpoints.len()),
            Ok(_) => unreachable!("redlock:// names a quorum"),
            Err(error) => Err(error.to_string()),
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
