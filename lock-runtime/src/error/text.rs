//! The texts of a [`LockError`].

use std::fmt;
use std::time::Duration;

use super::LockError;

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { key, waited, holder, rests: true, .. } => {
                let last = held_by(holder.as_deref()).replacen("(held", "(last held", 1);
                write!(f, "lock `{key}` is busy, it rests for its `at_least`{}{last}", waited_for(*waited))
            }
            Self::Timeout { key, waited, holder, held_here, .. } => {
                let here = if *held_here { ", held by this process" } else { "" };
                write!(f, "lock `{key}` is busy{here}{}{}", waited_for(*waited), held_by(holder.as_deref()))
            }
            Self::TooManyWaiters { key, limit } => write!(
                f,
                "lock `{key}`: {limit} tasks wait already, and no more may; turn some away earlier, or raise the manager's \
                 `max_waiters` or `max_waiters_per_key`"
            ),
            Self::Lost { key, ticket: true, forced: true, .. } => {
                write!(f, "lock `{key}` was released by force while it was adopted")
            }
            Self::Lost { key, ticket: true, .. } => write!(
                f,
                "the ticket of lock `{key}` is over: its time has passed, or the lock was adopted, given back or taken by force"
            ),
            Self::Lost { key, completed, forced, max_hold, ticket: false } => {
                let how = match (forced, max_hold, completed) {
                    (true, ..) => "released by force".to_owned(),
                    (false, Some(max_hold), _) => format!("held for its `max_hold` of {max_hold:?}"),
                    (false, None, true) => "lost before it was released".to_owned(),
                    (false, None, false) => "lost".to_owned(),
                };
                let ran = match (completed, forced) {
                    (true, _) => "partly unprotected",
                    // One that replaces the holder fails so, too, while it waits.
                    (false, true) => "stopped, if it had begun",
                    (false, false) => "stopped",
                };
                write!(f, "lock `{key}` was {how}; what ran under it was {ran}")
            }
            Self::NotInstalled => f.write_str(
                "no lock manager: call `install()` on a `LockManager` once at start-up, or run this inside \
                 `LockManager::scope`",
            ),
            Self::AlreadyInstalled => f.write_str(
                "a lock manager is installed already: install once per process, and use `scope` for another one",
            ),
            Self::InvalidKey { key, reason } => write!(f, "lock key `{key}` is unusable: {reason}"),
            Self::InvalidSetting { setting, reason } => write!(f, "invalid {setting}: {reason}"),
            Self::AlreadyHeld { key, wants_more: true } => write!(
                f,
                "lock `{key}` is held by this very task as a reader or with a permit: to ask for more inside of that would \
                 wait for itself; ask for it outside, before the reader starts"
            ),
            Self::AlreadyHeld { key, wants_more: false } => write!(
                f,
                "lock `{key}` is held by this very task: acquiring it again would wait for itself; use `run` to re-enter"
            ),
            Self::InAsyncTask { key } => write!(
                f,
                "lock `{key}`: an async task must not wait on its thread: write `async fn` (or `acquire`, `run`), or call this \
                 inside of `tokio::task::spawn_blocking`"
            ),
            Self::TooFewReplicas { key, confirmed, wanted } => write!(
                f,
                "lock `{key}`: only {confirmed} of {wanted} replicas confirmed it in time, so it does not count"
            ),
            Self::Backend { key, problem } => write!(f, "lock `{key}`: {problem}"),
            Self::Connect { server, problem } => write!(f, "can't connect to {server}: {problem}"),
            Self::Forked { key } => write!(
                f,
                "lock `{key}`: this process is a fork of the one that made the lock manager, and can't use its copy: make \
                 a new manager in the child"
            ),
            Self::ShutDown { key } => write!(f, "lock `{key}`: the lock manager is shut down"),
        }
    }
}

/// Nothing for a single try, which does not wait.
fn waited_for(waited: Duration) -> String {
    if waited.is_zero() { String::new() } else { format!(": not obtained within {:?}", rounded(waited)) }
}

/// How long something was waited for. A task that came too late has no time left.
pub(crate) fn within(limit: Duration) -> String {
    if limit.is_zero() { "in the time that was left".to_owned() } else { format!("within {:?}", rounded(limit)) }
}

/// Whole milliseconds, where there are any: nobody reads the rest.
fn rounded(span: Duration) -> Duration {
    if span < Duration::from_millis(1) {
        span
    } else {
        span.saturating_sub(Duration::from_nanos(u64::from(span.subsec_nanos() % 1_000_000)))
    }
}

fn held_by(holder: Option<&str>) -> String {
    match holder {
        None => String::new(),
        Some("") => " (held by a manager without a label)".to_owned(),
        // A label must not put a second line into a log.
        Some(label) => format!(" (held by {})", label.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_says_that_something_took_no_time() {
        let timeout = |millis, holder: Option<&str>, rests| {
            let (waited, holder) = (Duration::from_millis(millis), holder.map(str::to_owned));
            LockError::Timeout { key: "p:k".to_owned(), waited, holder, held_here: rests, frees_in: None, rests }
                .to_string()
        };
        let busy = |millis, holder| timeout(millis, holder, false);
        assert_eq!(timeout(0, Some("a"), true), "lock `p:k` is busy, it rests for its `at_least` (last held by a)");
        assert_eq!(busy(0, None), "lock `p:k` is busy");
        assert_eq!(busy(0, Some("a")), "lock `p:k` is busy (held by a)");
        assert_eq!(busy(20, Some("a")), "lock `p:k` is busy: not obtained within 20ms (held by a)");
        assert_eq!(within(Duration::ZERO), "in the time that was left");
        assert_eq!(within(Duration::from_millis(80)), "within 80ms");
        assert_eq!(within(Duration::from_nanos(2_003_826_824)), "within 2.003s");
        assert_eq!(within(Duration::from_nanos(11_500)), "within 11.5µs");
    }

    #[test]
    fn of_a_ticket_that_is_over_nothing_ran() {
        let lost = |ticket, forced| {
            LockError::Lost { key: "p:k".to_owned(), completed: false, forced, max_hold: None, ticket }.to_string()
        };
        assert_eq!(lost(false, false), "lock `p:k` was lost; what ran under it was stopped");
        assert!(lost(true, false).starts_with("the ticket of lock `p:k` is over"));
        assert_eq!(lost(true, true), "lock `p:k` was released by force while it was adopted");
    }
}
