//! [`HostList`]: the servers that one URL names.

use redis::{ConnectionInfo, IntoConnectionInfo, RedisResult};

/// Where a server or a node of a cluster listens when the URL does not say it.
const SERVER_PORT: &str = ":6379";

/// Hosts that share their credentials. It has no `Debug`, so that nothing prints a password.
pub(super) struct HostList {
    /// The scheme of each server's own URL.
    pub(super) scheme: String,
    /// `user:password@`, or nothing.
    pub(super) credentials: String,
    /// `host` or `host:port`.
    pub(super) hosts: Vec<String>,
}

impl HostList {
    /// Adds a port to each host that has none.
    pub(super) fn with_port(mut self, port: u16) -> Self {
        // An IPv6 address stands in brackets, and has colons of its own.
        let has_port = |host: &str| host.rsplit(']').next().is_some_and(|end| end.contains(':'));
        for host in self.hosts.iter_mut().filter(|host| !has_port(host)) {
            *host = format!("{host}:{port}");
        }
        self
    }

    /// Sorts the hosts, so that each manager has the same order, however its URL orders them.
    pub(super) fn sorted(mut self) -> Self {
        self.hosts.sort_by(|one, other| without_port(one).cmp(without_port(other)));
        self
    }

    /// How to reach each host. The error may quote a password.
    pub(super) fn connections(&self, db: Option<u32>) -> RedisResult<Vec<ConnectionInfo>> {
        self.urls(db).iter().map(|url| url.as_str().into_connection_info()).collect()
    }

    /// The URL of each host.
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
