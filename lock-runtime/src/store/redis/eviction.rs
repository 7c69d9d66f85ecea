//! Reads the server's settings: a server that evicts keys drops locks.

use std::sync::Arc;

use lock_wire::{Link, Outgoing};
use redis::FromRedisValue;

use crate::clock::Deadline;
use crate::observe;

/// Warns when the server may drop locks to make room. Settings that can't be read are no failure.
pub(super) async fn warn_of_eviction(link: &Arc<Link>, deadline: Deadline) {
    let command = |_: &Link| Outgoing::of(redis::cmd("INFO").arg("memory").clone());
    let answer = link.call(command, deadline).await.ok();
    match answer.and_then(|called| String::from_redis_value(called.value).ok()) {
        Some(info) => {
            if let Some((policy, maxmemory)) = eviction(&info) {
                observe::evicts(link.server(), policy, maxmemory);
            }
        }
        None => observe::eviction_unknown(link.server()),
    }
}

/// The policy by which the server drops keys, and its memory limit in bytes (0: no limit yet). `None` if it drops no keys.
fn eviction(info: &str) -> Option<(&str, u64)> {
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let policy = field("maxmemory_policy").filter(|policy| *policy != "noeviction")?;
    Some((policy, field("maxmemory").and_then(|bytes| bytes.parse().ok()).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::eviction;

    #[test]
    fn only_a_policy_that_drops_keys_is_reported() {
        let info =
            |policy| format!("# Memory\r\nmaxmemory:100\r\nmaxmemory_human:100B\r\nmaxmemory_policy:{policy}\r\n");
        assert_eq!(eviction(&info("noeviction")), None);
        assert_eq!(eviction(&info("volatile-lru")), Some(("volatile-lru", 100)));
        assert_eq!(eviction("# Memory\r\n"), None);
        assert_eq!(eviction(""), None);
    }
}
