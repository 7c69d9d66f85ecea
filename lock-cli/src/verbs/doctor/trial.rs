//! A trial: everything that locks do, with a lock that nobody else has. It finds missing rights.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LockInfo, LockManager};

use super::{Finding, Verdict};

const LEASE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);
/// More than an ask takes to arrive.
const ENOUGH: Duration = Duration::from_millis(500);

pub(super) async fn run(one: &LockManager, other: &LockManager) -> Finding {
    match of_all(one, other).await {
        Ok(()) => Finding::new("all", "locks", Verdict::Good, "taken, extended, waited for, passed on, released"),
        Err(error) => {
            let found = error.to_string();
            let advice = advice(&found);
            Finding::new("all", "locks", Verdict::Bad, found).advise(advice)
        }
    }
}

/// Only a server that refused for a missing right is helped by rights. Its errors name them.
fn advice(found: &str) -> &'static str {
    if found.contains("\"Rights\"") {
        "give the user the rights of \"Rights\" in docs/protocol.md"
    } else {
        "see the other findings, and the message in docs/runbook.md"
    }
}

async fn of_all(one: &LockManager, other: &LockManager) -> Result<(), LockError> {
    let name = format!("lockctl:doctor:{}", uuid::Uuid::new_v4().simple());
    let guard = one.lock_named(&name).fenced(true).expire(LEASE).acquire().await?;
    guard.extend(LEASE * 2).await?;
    let waiting = other.lock_named(&name).timeout(PATIENCE).acquire();
    let release = async {
        // The other one is to wait before the lock is released. If it is not seen to, it has had enough time.
        let begun = Instant::now();
        let waits = |lock: LockInfo| !lock.waiting.is_empty();
        while begun.elapsed() < ENOUGH && !one.inspect_named(&name).await?.is_some_and(waits) {
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
