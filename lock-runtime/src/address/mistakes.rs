//! What is wrong with a URL, where its text alone tells.

/// The first mistake in what follows `scheme://`: what would be read as something else than it is meant to be, such as a part
/// of a password as a port, which errors show; and what would mean nothing. The text is not quoted: any part of it may be
/// one of a password.
pub(super) fn find(scheme: &str, rest: &str) -> Option<&'static str> {
    if scheme.ends_with("unix") {
        return in_query(rest, &["db", "user", "pass", "protocol"], false);
    }
    let (target, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if path.contains('@') {
        return Some("`/`, `?` and `#` in a user name or password are written %2F, %3F and %23");
    }
    let (credentials, hosts) = target.rsplit_once('@').unwrap_or(("", target));
    let kind = scheme.split_once('-').map_or(scheme, |(_, kind)| kind);
    if !matches!(kind, "sentinel" | "cluster" | "redlock" | "redlocks") {
        let is_tls = matches!(scheme, "rediss" | "valkeys");
        return in_credentials(credentials).or_else(|| in_query(path, &["protocol"], is_tls));
    }
    if path.contains(['?', '#']) {
        return Some("there is nothing that a `?` or `#` could mean; in a password they are written %3F and %23");
    }
    if credentials.contains(['@', ',']) {
        return Some(
            "credentials are written once, before the first host; `@` and `,` in them are written %40 and %2C",
        );
    }
    in_credentials(credentials).or_else(|| in_hosts(hosts)).or_else(|| in_path(kind, path))
}

/// A server is told the user's name together with the password, or not at all.
fn in_credentials(credentials: &str) -> Option<&'static str> {
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    (!user.is_empty() && password.is_empty()).then_some(
        "a user name without a password means nothing: write `user:password@`, or `:password@` for a password alone",
    )
}

fn in_hosts(hosts: &str) -> Option<&'static str> {
    match hosts {
        "" => Some("it names no host"),
        hosts if hosts.split(',').any(str::is_empty) => Some("a host is missing before or behind a comma"),
        _ => None,
    }
}

fn in_path(kind: &str, path: &str) -> Option<&'static str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let is_number = |db: &str| db.parse::<u32>().is_ok();
    match (kind, path.split_once('/')) {
        ("cluster", _) if !path.is_empty() => {
            Some("there is no database but 0 in a cluster: leave out what is behind the hosts")
        }
        ("sentinel", _) if path.is_empty() || path.starts_with('/') => {
            Some("the master's name is missing behind the hosts, as in redis-sentinel://host:port/master-name")
        }
        ("sentinel", Some((_, db))) if !is_number(db) => {
            Some("the database, which stands behind the master's name, is not a number")
        }
        ("cluster" | "sentinel", _) => None,
        _ => (!path.is_empty() && !is_number(path.strip_suffix('/').unwrap_or(path)))
            .then_some("the database, which stands behind the hosts, is not a number"),
    }
}

/// What the client would pass over in silence.
fn in_query(path: &str, known: &[&str], has_fragment: bool) -> Option<&'static str> {
    let (path, fragment) = path.split_once('#').map_or((path, None), |(path, fragment)| (path, Some(fragment)));
    if fragment.is_some() && !has_fragment {
        return Some("there is nothing that a `#` could mean; in a path it is written %23");
    }
    let (_, query) = path.split_once('?')?;
    let is_unknown =
        |setting: &str| !setting.is_empty() && setting.split('=').next().is_none_or(|name| !known.contains(&name));
    query.split('&').any(is_unknown).then_some("something behind the `?` means nothing: leave it out")
}

#[cfg(test)]
mod tests {
    use super::find;

    fn found(url: &str) -> Option<&'static str> {
        let (scheme, rest) = url.split_once("://").unwrap();
        find(scheme, rest)
    }

    #[test]
    fn a_mistake_is_told_by_what_to_write_instead() {
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
            ("redis-cluster://h/1", "no database but 0"),
            ("redis-cluster://h/0", "no database but 0"),
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
            "redlocks://u:p@a,b,c/3",
            "redlock://a,b,c/",
        ] {
            assert_eq!(found(url), None, "{url}");
        }
    }
}
