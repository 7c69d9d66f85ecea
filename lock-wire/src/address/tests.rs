//! How URLs are parsed, and what the errors say.

use super::*;

fn of_url(url: &str) -> Result<Address, AddressError> {
    Address::of_url(url, &Trust::default())
}

fn target(url: &str) -> Target {
    match of_url(url) {
        Ok(Address::Redis(target)) => target,
        Ok(_) => unreachable!("{url} names servers"),
        Err(error) => panic!("{url}: {error:?}"),
    }
}

#[test]
fn a_url_says_where_the_servers_are() {
    for (url, address) in [
        ("redis://one", "one:6379"),
        ("unix:///socket", "/socket"),
        (
            "redis-sentinel://one,two:5,[::1],[::1]:7/the.till-1_a",
            "`the.till-1_a` by the sentinels one:26379, two:5, ::1:26379, ::1:7",
        ),
        ("redis-cluster://one,two:5,[::1]:7/", "the cluster of one:6379, two:5, ::1:7"),
        ("valkey-cluster://ada:s%40c@one,two", "the cluster of one:6379, two:6379"),
    ] {
        assert_eq!(target(url).address(), address);
    }
    assert!(matches!(of_url("Memory://"), Ok(Address::Memory)));
    assert!(matches!(of_url("redlock://a,b,c"), Ok(Address::Independent(_))));
}

/// One URL of each kind.
const URLS: [&str; 7] = [
    "redis://one",
    "valkey://ada:secret@one/3",
    "unix:///socket",
    "redis-sentinel://one/till",
    "redis-cluster://one",
    "redlock://a,b,c",
    "memory://",
];

#[test]
fn white_space_around_a_url_is_ignored_and_a_control_character_in_it_is_refused_in_words() {
    let is_read = |url: &str| match of_url(url) {
        Ok(Address::Memory) => "memory".to_owned(),
        Ok(Address::Independent(servers)) => servers.len().to_string(),
        Ok(Address::Redis(target)) => target.address(),
        Err(error) => panic!("{url:?}: {error:?}"),
    };
    for url in URLS {
        for written in [format!("{url}\n"), format!("{url}\r\n"), format!(" {url} "), format!("\t{url}\n\n")] {
            assert_eq!(is_read(&written), is_read(url), "{written:?}");
        }
        let (scheme, rest) = url.split_once("://").unwrap();
        for written in
            [format!("{scheme}\n://{rest}"), format!("{scheme}\t://{rest}"), format!("{url}\nx"), format!("{url}\0")]
        {
            let error = format!("{:?}", of_url(&written).err().unwrap_or_else(|| panic!("{written:?} is read")));
            assert!(error.contains("control character") && !error.contains("secret"), "{written:?}: {error}");
        }
    }
}

#[test]
fn what_names_no_host_or_no_master_is_refused() {
    let urls = ["", "/till", ",/till", "one", "one/", "one//", "one,/till", "one,,two/till", "one/till/x", "one/till/"];
    for rest in urls.iter().chain(&["one/till/0/1", "one/a b", "one:port/till", "one/till?db=3"]) {
        assert!(of_url(&format!("redis-sentinel://{rest}")).is_err(), "{rest}");
    }
}

#[test]
fn what_names_no_node_or_no_number_for_a_database_is_refused() {
    let urls = ["", ",", "one,", "one,,two", "one/x", "one/3/4", "one/-1", "one:port", "one?db=3", "a@b,c@d@", "one//"];
    for rest in urls.iter().chain(&["a:1/x@b", "a:1#x@b", "a:x@b,c:y@d"]) {
        assert!(of_url(&format!("redis-cluster://{rest}")).is_err(), "{rest}");
    }
}

#[test]
fn credentials_are_not_shown() {
    for url in ["redis://ada:canary@one", "redis-sentinel://ada:canary@one/till", "redis-cluster://ada:canary@one"] {
        let target = target(url);
        let debug = match &target {
            Target::Server(endpoint) => format!("{endpoint:?}"),
            Target::Cluster(seeds) => format!("{seeds:?}"),
        };
        assert!(!target.address().contains("canary") && !debug.contains("canary"), "{url}");
    }
}

#[test]
fn fuzz_urls() {
    const SECRET: &str = "5EcRe7";
    // The first line is a scheme and a user, the second line is the rest.
    bolero::check!(name = "urls").for_each(|bytes: &[u8]| {
        let text = &*String::from_utf8_lossy(bytes);
        let _ = of_url(text);
        let Some((user, rest)) = text.split_once('\n') else { return };
        // A `/` ends the credentials; what follows is not secret.
        let Some((_, name)) =
            user.split_once("://").filter(|(_, name)| !name.contains(['/', '?', '#', '@', '[', '\\']))
        else {
            return;
        };
        if name.contains(',') || rest.contains('@') {
            return;
        }
        let said = match of_url(&format!("{user}:{SECRET}@{rest}")) {
            Ok(Address::Memory) => return,
            Ok(Address::Redis(target)) => target.address(),
            Ok(Address::Independent(servers)) => servers.iter().map(Endpoint::address).collect(),
            Err(error) => format!("{error:?}"),
        };
        assert!(!said.contains(SECRET), "{said}");
    });
}
