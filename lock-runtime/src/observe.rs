//! Every event for a user's `tracing` subscriber. Each event is one fn.
//!
//! Events name keys and labels, never tokens or credentials. Their target is `lock_runtime`.

use std::fmt::Display;
use std::time::Duration;

use crate::LockError;

/// A hold ended at its deadline, or because the store no longer knew its lease.
pub(crate) fn lost(key: &str) {
    tracing::warn!(target: "lock_runtime", key, "lock lost");
}

/// A hold ended because somebody released its lock by force.
pub(crate) fn forced(key: &str) {
    tracing::warn!(target: "lock_runtime", key, "lock lost: somebody released it by force");
}

/// A background command failed and will be repeated.
pub(crate) fn keeper_failed(problem: &dyn Display) {
    tracing::debug!(target: "lock_runtime", error = %problem, "background command failed");
}

/// The release after a body failed. The body's caller gets no error for it. The release is repeated in the background.
pub(crate) fn unreleased(error: &LockError) {
    tracing::warn!(target: "lock_runtime", error = %error, "release failed after a body");
}

/// A body called the shutdown of the manager whose lock it holds.
pub(crate) fn shut_down_inside(key: &str) {
    tracing::warn!(
        target: "lock_runtime",
        key,
        "`shutdown` was called inside a body that holds this lock: it does not wait for that body, which gives the lock \
         back when it ends"
    );
}

/// A connection was set up.
pub(crate) fn connected(server: &str) {
    tracing::debug!(target: "lock_runtime", server, "connected");
}

/// The server's clock runs faster than leases allow for: a lease may end while its holder still trusts it.
pub(crate) fn drifts(server: &str, allowed_ppm: u32, measured_ppm: u128, within: Duration) {
    tracing::warn!(
        target: "lock_runtime",
        server,
        allowed_ppm,
        measured_ppm,
        ?within,
        "the server's clock runs faster than this process's, by more than leases allow for: slow down how clocks are \
         slewed (chrony's `maxslewrate`), or raise `max_clock_drift_ppm`"
    );
}

/// A connection was given up.
pub(crate) fn disconnected(server: &str) {
    tracing::warn!(target: "lock_runtime", server, "connection lost; connecting anew");
}

/// A grant arrived for an ask that was given up. The lock is released.
pub(crate) fn stray_grant(key: &str) {
    tracing::debug!(target: "lock_runtime", key, "grant for an ask that was given up");
}

/// A background command was refused, and a repetition would be refused again.
pub(crate) fn keeper_refused(key: &str, problem: &dyn Display) {
    tracing::warn!(target: "lock_runtime", key, error = %problem, "the server refused a background command");
}

/// A lock was released but could not be passed on: the key of its queue holds something else than a queue.
pub(crate) fn queue_unusable(key: &str, problem: &dyn Display) {
    tracing::warn!(
        target: "lock_runtime",
        key,
        error = %problem,
        "the lock is free, but its queue can't be used: nobody can wait for the lock until the queue's key is deleted"
    );
}

/// A server of a quorum fails, or has no vote. The other servers must be enough.
pub(crate) fn member_failed(server: &str, problem: &dyn Display) {
    tracing::warn!(target: "lock_runtime", server, error = %problem, "a server of the quorum does not take part");
}

/// The server may drop locks to make room for other keys.
pub(crate) fn evicts(server: &str, policy: &str, maxmemory: u64) {
    tracing::warn!(
        target: "lock_runtime",
        server,
        policy,
        maxmemory,
        "the server may evict locks when its memory is full: set `maxmemory-policy noeviction`"
    );
}

/// It could not be found out whether the server may drop locks. The check needs the right `+info`.
pub(crate) fn eviction_unknown(server: &str) {
    tracing::debug!(target: "lock_runtime", server, "can't tell whether the server evicts locks; that needs +info");
}
