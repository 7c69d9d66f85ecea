//! A trial: every operation of locks, on a lock of the doctor's own. It finds missing rights.

use std::time::{Duration, Instant};

use lock_runtime::{ErrorKind, LockError, LockInfo, LockManager};

use super::{Finding, Verdict};

const LEASE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than an ask takes to arrive.
const ENOUGH: Duration = Duration::from_millis(500);

/// The lock's name begins with `prefix` if given.
pub(super) async fn run(one: &LockManager, other: &LockManager, prefix: Option<&str>) -> Vec<Finding> {
    let name = format!("lockctl:doctor:{}", uuid::Uuid::new_v4().simple());
    let name = prefix.map_or_else(|| name.clone(), |prefix| format!("{prefix}:{name}"));
    let tried = of_all(one, other, &name).await;
    let mut findings = Vec::new();
    match tried {
        Ok(()) => {
            let found = "taken, extended, waited for, passed on, released";
            findings.push(Finding::new("all", "locks", Verdict::Good, found));
            findings.extend(sharing(one, &name).await);
        }
        Err(error) => {
            let found = error.to_string();
            let advice = advice(&found);
            findings.push(Finding::new("all", "locks", Verdict::Bad, found).advise(advice));
        }
    }
    forget(one, &name).await;
    findings
}

/// Readers and permits need rights that other locks do not need. `None` on a quorum, which supports neither.
async fn sharing(one: &LockManager, name: &str) -> Option<Finding> {
    let check = "sharing";
    let tried = async {
        one.lock_named(name).read().expire(LEASE).timeout(PATIENCE).acquire().await?.release().await?;
        one.lock_named(name).permits(2).expire(LEASE).timeout(PATIENCE).acquire().await?.release().await
    };
    match tried.await {
        Ok(()) => Some(Finding::new("all", check, Verdict::Good, "a reader and a permit were taken and released")),
        Err(error) if error.kind() == ErrorKind::Misuse => None,
        Err(error) => {
            let found = format!("no readers and permits: {error}");
            Some(Finding::new("all", check, Verdict::Doubt, found).advise(
                "give the user the rights for readers and permits of \"Rights\" in docs/protocol.md if you use them; nothing else \
                 needs them",
            ))
        }
    }
}

/// Deletes what is left of the lock: the counter of its fencing tokens outlives its release, and with a missing right, leases may be left
/// that never expire.
async fn forget(one: &LockManager, name: &str) {
    let [fence, shared] = ["fence", "shared"].map(|helper| format!("{{{name}}}:{helper}"));
    for server in one.servers() {
        // In a cluster one server has these keys, and the others refuse. Keys that can't be deleted take only a few bytes.
        let _ = server.ask(&["DEL", &fence, &shared]).await;
    }
}

/// More rights help only if the server refused because of a missing one. Its errors name them.
fn advice(found: &str) -> &'static str {
    if found.contains("\"Rights\"") {
        "give the user the rights of \"Rights\" in docs/protocol.md; if it may lock in one namespace only, name that with --prefix"
    } else {
        "see the other findings, and the message in docs/runbook.md"
    }
}

async fn of_all(one: &LockManager, other: &LockManager, name: &str) -> Result<(), LockError> {
    let guard = one.lock_named(name).fenced(true).expire(LEASE).acquire().await?;
    guard.extend(LEASE * 2).await?;
    let waiting = other.lock_named(name).timeout(PATIENCE).acquire();
    let release = async {
        // The other manager should wait before the lock is released. If it is not seen waiting, it has had enough time.
        let begun = Instant::now();
        let waits = |lock: LockInfo| !lock.waiting.is_empty();
        while begun.elapsed() < ENOUGH && !one.inspect_named(name).await?.is_some_and(waits) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        guard.release().await
    };
    let (waited, released) = tokio::join!(waiting, tokio::time::timeout(PATIENCE, release));
    if let Ok(released) = released {
        released?;
    }
    waited?.release().await
}
