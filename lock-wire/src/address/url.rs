//! [`Url`]: the one parser of every URL that users write. It returns what the URL says, or the mistake in it.
//!
//! The grammar is `scheme://[user:password@]host[:port],host[:port],…[/path]`. The `redis` crate parses the URL of a single server; for
//! those, this parser finds only the mistakes that the crate does not report.

use redis::{ConnectionInfo, IntoConnectionInfo, RedisResult};

/// The default port of a server or cluster node.
const SERVER_PORT: &str = ":6379";
/// The default port of a sentinel.
const SENTINEL_PORT: u16 = 26_379;

pub(super) struct Url<'a> {
    /// The URL without surrounding white space: a URL read from a file often ends with a newline.
    pub(super) text: &'a str,
    /// In lower case.
    pub(super) scheme: String,
    pub(super) place: Place,
}

/// Where the servers are.
pub(super) enum Place {
    Memory,
    /// The `redis` crate parses the rest.
    Server,
    Sentinels {
        sentinels: HostList,
        /// The master's name in the sentinels' configuration.
        master: String,
        db: u32,
    },
    Cluster {
        nodes: HostList,
        db: Option<u32>,
    },
    /// Servers that are independent of each other.
    Independent {
        servers: HostList,
        db: Option<u32>,
    },
}

/// Why a URL can't be read. It quotes only the scheme: any other part of the URL may be part of a password.
#[derive(Debug)]
pub struct Mistake {
    /// The URL's scheme.
    pub scheme: String,
    /// What to write instead; `None` when the text does not show it.
    pub problem: Option<&'static str>,
}

impl<'a> Url<'a> {
    pub(super) fn read(url: &'a str) -> Result<Self, Mistake> {
        let text = url.trim();
        // The `redis` crate's parser drops these silently.
        if text.contains(char::is_control) {
            let problem =
                "it has a line end or another control character in it; in a password these are written as %0A";
            return Err(Mistake { scheme: "unknown".to_owned(), problem: Some(problem) });
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("no scheme", ""));
        let scheme = scheme.to_ascii_lowercase();
        match Place::read(&scheme, rest) {
            Ok(place) => Ok(Self { text, scheme, place }),
            Err(problem) => Err(Mistake { scheme, problem }),
        }
    }
}

impl Place {
    /// The error says what to write instead when the text shows the mistake.
    fn read(scheme: &str, rest: &str) -> Result<Self, Option<&'static str>> {
        if scheme.ends_with("unix") {
            check_query(rest, &["db", "user", "pass", "protocol"], false)?;
            return Ok(Self::Server);
        }
        let rest = Rest::read(rest)?;
        match (scheme, scheme.split_once('-')) {
            (_, Some((servers, "sentinel"))) => rest.sentinels(servers),
            (_, Some((servers, "cluster"))) => {
                let (nodes, db) = rest.hosts_and_db(servers)?;
                Ok(Self::Cluster { nodes, db })
            }
            ("redlock" | "redlocks", _) => {
                let (servers, db) = rest.hosts_and_db(if scheme == "redlock" { "redis" } else { "rediss" })?;
                Ok(Self::Independent { servers: servers.sorted(), db })
            }
            ("memory", _) if rest.is_empty() => Ok(Self::Memory),
            _ => {
                check_credentials(rest.credentials)?;
                check_query(rest.path, &["protocol"], matches!(scheme, "rediss" | "valkeys"))?;
                Ok(Self::Server)
            }
        }
    }
}

/// What follows `scheme://`.
struct Rest<'a> {
    /// The credentials, including the `@`.
    credentials: &'a str,
    hosts: &'a str,
    /// The path, query and fragment, including the leading `/`, `?` or `#`.
    path: &'a str,
}

impl<'a> Rest<'a> {
    fn read(rest: &'a str) -> Result<Self, &'static str> {
        let (target, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // Otherwise a part of a password would be read as a port, and errors show ports.
        if path.contains('@') {
            return Err("`/`, `?` and `#` in a user name or password are written %2F, %3F and %23");
        }
        let (credentials, hosts) = target.split_at(target.rfind('@').map_or(0, |at| at + 1));
        Ok(Self { credentials, hosts, path })
    }

    fn is_empty(&self) -> bool {
        self.credentials.is_empty() && self.hosts.is_empty() && self.path.is_empty()
    }

    /// Reads `[user:password@]host[:port],host[:port],…/master-name[/db]`.
    fn sentinels(&self, scheme: &str) -> Result<Place, Option<&'static str>> {
        let (sentinels, path) = self.host_list(scheme)?;
        let (master, db) = path.split_once('/').map_or((path, None), |(master, db)| (master, Some(db)));
        if master.is_empty() {
            let problem = "the master's name is missing behind the hosts, as in redis-sentinel://host:port/master-name";
            return Err(Some(problem));
        }
        let db = db.map_or(Ok(0), str::parse);
        let db = db.map_err(|_| "the database, which stands behind the master's name, is not a number")?;
        // A sentinel's configuration allows only these characters.
        if !master.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')) {
            return Err(None);
        }
        Ok(Place::Sentinels { sentinels: sentinels.with_port(SENTINEL_PORT), master: master.to_owned(), db })
    }

    /// Reads `[user:password@]host[:port],host[:port],…[/db]`.
    fn hosts_and_db(&self, scheme: &str) -> Result<(HostList, Option<u32>), &'static str> {
        let (hosts, path) = self.host_list(scheme)?;
        let db = match path.strip_suffix('/').unwrap_or(path) {
            "" if path.is_empty() => None,
            db => Some(db.parse().map_err(|_| "the database, which stands behind the hosts, is not a number")?),
        };
        Ok((hosts, db))
    }

    /// The hosts, whose own URLs get this scheme, and the path after them without its leading `/`.
    fn host_list(&self, scheme: &str) -> Result<(HostList, &'a str), &'static str> {
        if self.path.contains(['?', '#']) {
            return Err("there is nothing that a `?` or `#` could mean; in a password they are written %3F and %23");
        }
        let credentials = self.credentials.strip_suffix('@').unwrap_or_default();
        if credentials.contains(['@', ',']) {
            return Err(
                "credentials are written once, before the first host; `@` and `,` in them are written %40 and %2C",
            );
        }
        check_credentials(self.credentials)?;
        if self.hosts.is_empty() {
            return Err("it names no host");
        }
        if self.hosts.split(',').any(str::is_empty) {
            return Err("a host is missing before or behind a comma");
        }
        let list = HostList {
            scheme: scheme.to_owned(),
            credentials: self.credentials.to_owned(),
            hosts: self.hosts.split(',').map(str::to_owned).collect(),
        };
        Ok((list, self.path.strip_prefix('/').unwrap_or_default()))
    }
}

/// Refuses a user name without a password: servers take both or neither.
fn check_credentials(credentials: &str) -> Result<(), &'static str> {
    let credentials = credentials.strip_suffix('@').unwrap_or_default();
    match credentials.split_once(':').unwrap_or((credentials, "")) {
        (user, "") if !user.is_empty() => Err(
            "a user name without a password means nothing: write `user:password@`, or `:password@` for a password alone",
        ),
        _ => Ok(()),
    }
}

/// Refuses settings that the `redis` crate would silently ignore.
fn check_query(path: &str, known: &[&str], may_have_fragment: bool) -> Result<(), &'static str> {
    let (path, fragment) = path.split_once('#').map_or((path, None), |(path, fragment)| (path, Some(fragment)));
    if fragment.is_some() && !may_have_fragment {
        return Err("there is nothing that a `#` could mean; in a path it is written %23");
    }
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let is_unknown =
        |setting: &str| !setting.is_empty() && setting.split('=').next().is_none_or(|name| !known.contains(&name));
    if query.split('&').any(is_unknown) {
        return Err("something behind the `?` means nothing: leave it out");
    }
    if query.split('&').any(|setting| matches!(setting, "protocol=2" | "protocol=resp2")) {
        return Err("grants are pushed, which only RESP3 can: leave the protocol out");
    }
    Ok(())
}

/// Hosts with the same credentials. It has no `Debug`, so a password can't be printed.
pub(super) struct HostList {
    /// The scheme for each host's own URL.
    pub(super) scheme: String,
    /// `user:password@`, or nothing.
    pub(super) credentials: String,
    /// `host` or `host:port`.
    pub(super) hosts: Vec<String>,
}

impl HostList {
    /// Adds a port to each host that has none.
    pub(super) fn with_port(mut self, port: u16) -> Self {
        // An IPv6 address is in brackets and contains colons itself.
        let has_port = |host: &str| host.rsplit(']').next().is_some_and(|end| end.contains(':'));
        for host in self.hosts.iter_mut().filter(|host| !has_port(host)) {
            *host = format!("{host}:{port}");
        }
        self
    }

    /// Sorts the hosts, so every manager uses the same order, however its URL lists them.
    pub(super) fn sorted(mut self) -> Self {
        self.hosts.sort_by(|one, other| without_port(one).cmp(without_port(other)));
        self
    }

    /// How to connect to each host. The error may quote a password.
    pub(super) fn connections(&self, db: Option<u32>) -> RedisResult<Vec<ConnectionInfo>> {
        self.urls(db).iter().map(|url| url.as_str().into_connection_info()).collect()
    }

    fn urls(&self, db: Option<u32>) -> Vec<String> {
        let Self { scheme, credentials, hosts } = self;
        let path = db.map(|db| format!("/{db}")).unwrap_or_default();
        hosts.iter().map(|host| format!("{scheme}://{credentials}{host}{path}")).collect()
    }
}

fn without_port(host: &str) -> &str {
    host.strip_suffix(SERVER_PORT).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(url: &str) -> Option<&'static str> {
        Url::read(url).err().map(|mistake| mistake.problem.unwrap_or("something"))
    }

    #[test]
    fn a_mistake_is_reported_with_what_to_write_instead() {
        for (url, told) in [
            ("redlock://u:s3c/ret@a,b,c", "%2F"),
            ("redlock://u:s3c?ret@a,b,c", "%3F"),
            ("redlock://a,b,:pw@c", "written once"),
            ("redlock://:p@a,:p2@b,c", "written once"),
            ("redlock://a,b,c/x", "not a number"),
            ("redlock://a,b,c/0/1", "not a number"),
            ("redlock://a,b,c,", "a host is missing"),
            ("redlocks://a,,c", "a host is missing"),
            ("redlock://:p@", "names no host"),
            ("redlock://a,b,c?protocol=resp2", "`?` or `#`"),
            ("redlock://a,b,c/0?x=1", "`?` or `#`"),
            ("redlock://a,b,c#frag", "`?` or `#`"),
            ("redlock://secret@a,b,c", ":password@"),
            ("redis-cluster://h/x", "not a number"),
            ("redis-cluster://h/0/1", "not a number"),
            ("redis-cluster://h,", "a host is missing"),
            ("redis-cluster://secret@h", ":password@"),
            ("redis-sentinel://h", "master's name is missing"),
            ("redis-sentinel://h/", "master's name is missing"),
            ("redis-sentinel://h//3", "master's name is missing"),
            ("redis-sentinel://h/till/x", "not a number"),
            ("redis-sentinel://h/till/", "not a number"),
            ("redis-sentinel://h/till?db=3", "`?` or `#`"),
            ("redis-sentinel://secret@h/till", ":password@"),
            ("redis://secret@h", ":password@"),
            ("redis://secret:@h", ":password@"),
            ("redis://h?x=y", "behind the `?`"),
            ("redis://h/3?protocol=resp3&x", "behind the `?`"),
            ("redis://h?protocol=resp2", "RESP3"),
            ("unix:///a?db=3&protocol=2", "RESP3"),
            ("redis://h#frag", "`#`"),
            ("unix:///a?x=y", "behind the `?`"),
            ("unix:///a#b", "`#`"),
        ] {
            let problem = found(url).expect(url);
            assert!(problem.contains(told) && !problem.contains("secret"), "{url}: {problem}");
        }
    }

    #[test]
    fn what_means_something_is_left_alone() {
        for url in [
            "redis://h",
            "redis://:p@h:7/3",
            "redis://:@h",
            "redis://h?protocol=resp3",
            "redis://h/?",
            "rediss://u:p@[::1]:7/3#insecure",
            "unix:///a@b?db=3&user=u&pass=a@b&protocol=resp3",
            "redis-sentinel://u:p@a,b:7/till/3",
            "redis-cluster://:p@a,[::1]:7/",
            "redis-cluster://h/3",
            "redlocks://u:p@a,b,c/3",
            "redlock://a,b,c/",
        ] {
            assert_eq!(found(url), None, "{url}");
        }
    }

    fn list(scheme: &str, credentials: &str, hosts: &str) -> HostList {
        let hosts = hosts.split(',').map(str::to_owned).collect();
        HostList { scheme: scheme.to_owned(), credentials: credentials.to_owned(), hosts }
    }

    #[test]
    fn each_host_has_a_url_with_the_credentials_and_the_database() {
        assert_eq!(list("redis", "", "[::1],b:7").urls(None), ["redis://[::1]", "redis://b:7"]);
        let all = list("rediss", "ada:s%40c@", "a,b").urls(Some(3));
        assert_eq!(all, ["rediss://ada:s%40c@a/3", "rediss://ada:s%40c@b/3"]);
    }

    #[test]
    fn the_order_is_that_of_the_names_without_the_usual_port() {
        assert_eq!(list("redis", "", "c,a:6379,b:7").sorted().hosts, ["a:6379", "b:7", "c"]);
        assert_eq!(list("redis", "", "[::2]:7,[::1]").sorted().hosts, ["[::1]", "[::2]:7"]);
    }

    #[test]
    fn a_port_is_added_where_there_is_none() {
        let hosts = list("redis", "", "one,two:5,[::1],[::1]:7").with_port(9).hosts;
        assert_eq!(hosts, ["one:9", "two:5", "[::1]:9", "[::1]:7"]);
    }
}
