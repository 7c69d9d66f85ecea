//! The addresses where locks live, as users write them.

pub(crate) use lock_wire::{Address, Target};
use lock_wire::{AddressError, Endpoint, Mistake, Trust};

use crate::LockError;
use crate::store::redis::failure::problem;

/// The forms of a URL.
pub(crate) const FORMS: &str = "write redis://[user:password@]host[:port][/db], rediss:// for TLS, valkey://, \
                     unix:///path/to/socket, redis-sentinel://[user:password@]host[:port],host[:port]/master-name[/db], \
                     rediss-sentinel://, redis-cluster://[user:password@]host[:port],host[:port][/db], rediss-cluster://, \
                     redlock://[user:password@]host[:port],host[:port],host[:port][/db], redlocks://, or memory://";

/// A majority of two servers is both of them: the death of either one would end the locks.
const FEWEST: usize = 3;

/// Reads a URL. Several independent servers are a quorum.
pub(crate) fn of_url(url: &str, trust: &Trust) -> Result<Address, LockError> {
    let address = Address::of_url(url, trust).map_err(refusal)?;
    if let Address::Independent(servers) = &address {
        check_quorum(servers)?;
    }
    Ok(address)
}

pub(crate) fn of_client(client: &redis::Client, trust: &Trust) -> Result<Target, LockError> {
    Target::of_client(client, trust).map_err(refusal)
}

/// Reads the servers of a quorum, one URL each.
pub(crate) fn of_urls(urls: &[String], trust: &Trust) -> Result<Vec<Endpoint>, LockError> {
    check_count(urls.len())?;
    let one = |url: &String| match Address::of_url(url, trust).map_err(refusal)? {
        Address::Redis(Target::Server(endpoint)) if !endpoint.moves() => Ok(endpoint),
        Address::Redis(target) => Err(invalid(format!("{} is not one server", target.address()))),
        Address::Memory | Address::Independent(_) => {
            Err(invalid("one of its URLs does not name one server".to_owned()))
        }
    };
    let servers = urls.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    check_quorum(&servers)?;
    Ok(servers)
}

fn check_count(servers: usize) -> Result<(), LockError> {
    if servers >= FEWEST {
        return Ok(());
    }
    let reason =
        format!("it needs {FEWEST} servers or more, of which more than half have to answer; this is {servers}");
    Err(invalid(reason))
}

/// Refuses too few servers, and two servers with the same name.
fn check_quorum(servers: &[Endpoint]) -> Result<(), LockError> {
    check_count(servers.len())?;
    let mut addresses: Vec<_> = servers.iter().map(Endpoint::address).collect();
    addresses.sort_unstable();
    match addresses.windows(2).find_map(|pair| pair.first().filter(|first| pair.last() == Some(first))) {
        Some(twice) => Err(invalid(format!("{twice} is named twice, and would have two votes"))),
        None => Ok(()),
    }
}

fn invalid(reason: String) -> LockError {
    LockError::setting("quorum", reason)
}

// Not `From`: with a second conversion into `LockError`, the compiler could not infer the error's type behind a user's `?`.
fn refusal(error: AddressError) -> LockError {
    match error {
        AddressError::Mistake(mistake) => LockError::setting("URL", reason(&mistake, cfg!(feature = "tls"))),
        AddressError::TwoLogins => {
            let reason = "the URL or the client has a user name or a password as well: leave one of the two out";
            LockError::setting("credentials_provider", reason)
        }
        AddressError::Unusable(server, error) => LockError::Connect { server, problem: problem(error) },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_url_is_refused_with_the_feature_that_it_needs() {
        let told = |scheme: &str, has_tls| reason(&Mistake { scheme: scheme.to_owned(), problem: None }, has_tls);
        for scheme in ["rediss", "valkeys", "rediss-sentinel", "valkeys-cluster", "redlocks"] {
            assert!(told(scheme, false).contains("feature `tls`"));
            assert!(!told(scheme, true).contains("feature"));
        }
        for scheme in ["redis", "redis-sentinel", "valkey-cluster", "redlock"] {
            assert!(!told(scheme, false).contains("feature"));
        }
    }

    #[test]
    fn neither_memory_nor_a_quorum_is_a_server_of_a_quorum() {
        let of_urls = |urls: [&str; 3]| of_urls(&urls.map(str::to_owned), &Trust::default());
        for url in ["memory://", "redlock://a,b,c", "redis-cluster://a", "redis-sentinel://a/till"] {
            assert!(of_urls(["redis://a", "redis://b", url]).is_err(), "{url}");
        }
        let servers = of_urls(["redis://a\n", "redis://b ", "\tredis://c"]);
        assert_eq!(servers.map(|servers| servers.len()).ok(), Some(3));
    }

    #[test]
    fn three_servers_or_more_are_a_quorum_and_none_is_named_twice() {
        let read = |rest: &str| match of_url(&format!("redlock://{rest}"), &Trust::default()) {
            Ok(Address::Independent(endpoints)) => Ok(endpoints.len()),
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
