//! [`LockError`]: one variant per thing a caller can do about it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a lock was not obtained, or did not last.
///
/// The text names the lock's key. It never contains a password or an owner token.
///
/// ```
/// use lock_runtime::LockError;
///
/// fn status(error: &LockError) -> u16 {
///     match error {
///         LockError::Timeout { .. } => 409,               // Busy: the user may try again.
///         LockError::Lost { forced: true, .. } => 409,    // It was taken away, as with `on_busy = "replace"`.
///         LockError::Backend { .. } => 503,               // Redis can't be asked.
///         _ => 500,                                       // `kind` has all of them.
///     }
/// }
/// # assert_eq!(status(&LockError::NotInstalled), 500);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Another holder had the lock for the whole timeout. Try again later, or tell the user that it is busy.
    #[non_exhaustive]
    Timeout {
        /// The lock's name in Redis.
        key: String,
        /// How long the caller waited.
        waited: Duration,
        /// The label of the manager that holds the lock (by default its host and process id). `None` when it is not
        /// known.
        holder: Option<String>,
        /// What the holder says of itself: its [`note`](crate::LockRequest::note), as in [`LockInfo::note`](crate::LockInfo::note).
        note: Option<String>,
        /// Whether this process had the lock: a task of it may have waited for itself. Or the lock rests, or the request is a reader behind
        /// a waiting writer while readers of this process hold the lock.
        held_here: bool,
        /// How long the holder's lease lasts unless the holder renews it, or how long the lock rests. `None` where that is not known: a
        /// hold of this process may be renewed.
        frees_in: Option<Duration>,
        /// Whether the lock rests: its hold has ended, and others are still kept out for its
        /// [`at_least`](crate::LockRequest::at_least) or [`lock_delay`](crate::LockRequest::lock_delay).
        rests: bool,
    },

    /// The waiter limit is reached. The request fails at once and leaves nothing in Redis. Shed load, or allow more waiters with
    /// [`Builder::max_waiters`](crate::Builder::max_waiters) and [`max_waiters_per_key`](crate::Builder::max_waiters_per_key).
    #[non_exhaustive]
    TooManyWaiters {
        /// The lock's name in Redis.
        key: String,
        /// The limit that was reached: the limit for all keys, or the limit for one key.
        limit: usize,
    },

    /// The lock was held, and was lost before the work was done: its lease ended, Redis no longer knew it, or the work took
    /// longer than its `max_hold`. Another process may have worked at the same time. Check what was done before you repeat it.
    #[non_exhaustive]
    Lost {
        /// The lock's name in Redis.
        key: String,
        /// Whether the work was done when the loss was found: the body ran to its end, or the guard was released (`true`). Then the body's
        /// value is dropped, since it was partly unprotected. `false`: the body was dropped, or had not begun, or the loss was found before
        /// the end, as by [`LockGuard::extend`](crate::LockGuard::extend).
        completed: bool,
        /// Whether the lock was taken away, as far as this process knows: by
        /// [`force_release`](crate::LockManager::force_release), or with [`OnBusy::Replace`](crate::OnBusy::Replace).
        forced: bool,
        /// The longest hold that the request allowed, if the lock was lost because that time was over
        /// ([`LockRequest::max_hold`](crate::LockRequest::max_hold)).
        max_hold: Option<Duration>,
        /// Whether a ticket was no longer valid, so that nothing ran under it here ([`adopt`](crate::LockManager::adopt),
        /// [`release_ticket`](crate::LockManager::release_ticket)).
        ticket: bool,
    },

    /// There is no manager. Call [`LockManager::install`](crate::LockManager::install) at start-up, or run this inside
    /// [`LockManager::scope`](crate::LockManager::scope).
    NotInstalled,

    /// [`LockManager::install`](crate::LockManager::install) was called, but the process already has a default manager.
    AlreadyInstalled,

    /// The value can't name a lock.
    #[non_exhaustive]
    InvalidKey {
        /// The part of the name that was built before the mistake.
        key: String,
        /// What is wrong with it.
        reason: InvalidKey,
    },

    /// A setting is out of its bounds, such as a lease of zero or a malformed URL.
    #[non_exhaustive]
    InvalidSetting {
        /// The setting's name as the user writes it.
        setting: &'static str,
        /// What is wrong with it, and what would be right.
        reason: String,
    },

    /// This same task already holds the lock, inside a body that runs under it: waiting for it would never end. Use `run` (or the
    /// attribute), which enters the lock that its task already holds. A reader, or the holder of a permit, can't get more from inside:
    /// acquire the exclusive lock, or one of fewer permits, outside of that body.
    #[non_exhaustive]
    AlreadyHeld {
        /// The lock's name in Redis.
        key: String,
        /// Whether the task holds the lock as a reader or with a permit only, and asks for more than that.
        wants_more: bool,
    },

    /// A fn that is not async, `acquire_blocking` or `run_blocking` was called on a thread that runs async tasks. Waiting would stop all of
    /// them, perhaps even the one that holds the lock. Write an async fn, or call it inside of `tokio::task::spawn_blocking`.
    #[non_exhaustive]
    InAsyncTask {
        /// The lock's name in Redis.
        key: String,
    },

    /// Fewer replicas confirmed the lock in time than [`Builder::min_replicas`](crate::Builder::min_replicas) asks for.
    /// A failover could lose the lock, so the grant does not count, and the lock is released. An extension that too few replicas
    /// confirm changes nothing: the hold keeps its deadline. The request may also have waited behind others that waited for
    /// replicas. Look at the master first, then repair the replica: the runbook says how.
    #[non_exhaustive]
    TooFewReplicas {
        /// The lock's name in Redis.
        key: String,
        /// How many replicas confirmed the lock in time.
        confirmed: u32,
        /// How many replicas must confirm it.
        wanted: u32,
    },

    /// Redis could not be reached, or could not execute the command. Whether the lock is free is unknown.
    #[non_exhaustive]
    Backend {
        /// The lock's name in Redis.
        key: String,
        /// What went wrong.
        problem: BackendError,
    },

    /// The connection to Redis could not be set up.
    #[non_exhaustive]
    Connect {
        /// The server's address, without credentials.
        server: String,
        /// What went wrong.
        problem: BackendError,
    },

    /// This process is a fork of the process that made the manager. The child would make the same tokens as its parent,
    /// on the same connections. So its copy of the manager does nothing: make a new manager in the child.
    #[non_exhaustive]
    Forked {
        /// The lock's name in Redis.
        key: String,
    },

    /// The manager is shutting down, or has shut down.
    #[non_exhaustive]
    ShutDown {
        /// The lock's name in Redis.
        key: String,
    },
}

/// The source is the cause of the `problem`, not the `problem` itself: its text is part of this error's text, and a chain of errors would
/// print it twice.
impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Backend { problem, .. } | Self::Connect { problem, .. } => problem.source(),
            _ => None,
        }
    }
}

impl LockError {
    pub(crate) fn setting(setting: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidSetting { setting, reason: reason.into() }
    }

    /// What a caller can do about this error: one kind for several variants. A `match` on it needs an arm for future kinds.
    ///
    /// ```
    /// use lock_runtime::{ErrorKind, LockError};
    ///
    /// /// The HTTP status of a handler that could not have its lock.
    /// fn status(error: &LockError) -> u16 {
    ///     match error.kind() {
    ///         ErrorKind::Busy => 409,
    ///         ErrorKind::Overloaded | ErrorKind::Unavailable | ErrorKind::ShutDown => 503,
    ///         _ => 500,
    ///     }
    /// }
    /// # assert_eq!(status(&LockError::NotInstalled), 500);
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Timeout { .. } => ErrorKind::Busy,
            Self::TooManyWaiters { .. } => ErrorKind::Overloaded,
            Self::Lost { .. } => ErrorKind::Lost,
            Self::Backend { .. } | Self::Connect { .. } | Self::TooFewReplicas { .. } => ErrorKind::Unavailable,
            Self::ShutDown { .. } => ErrorKind::ShutDown,
            Self::NotInstalled
            | Self::AlreadyInstalled
            | Self::InvalidKey { .. }
            | Self::InvalidSetting { .. }
            | Self::AlreadyHeld { .. }
            | Self::InAsyncTask { .. }
            | Self::Forked { .. } => ErrorKind::Misuse,
        }
    }

    /// The lock's name in Redis, where the error is about one lock.
    ///
    /// ```
    /// use lock_runtime::LockError;
    ///
    /// assert_eq!(LockError::NotInstalled.key(), None);
    /// ```
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Timeout { key, .. }
            | Self::TooManyWaiters { key, .. }
            | Self::Lost { key, .. }
            | Self::InvalidKey { key, .. }
            | Self::AlreadyHeld { key, .. }
            | Self::InAsyncTask { key }
            | Self::TooFewReplicas { key, .. }
            | Self::Backend { key, .. }
            | Self::Forked { key }
            | Self::ShutDown { key } => Some(key),
            Self::NotInstalled | Self::AlreadyInstalled | Self::InvalidSetting { .. } | Self::Connect { .. } => None,
        }
    }

    /// After how much time the lock is free if its holder has crashed: the rest of the holder's lease, if the store reported it. A live
    /// holder may release the lock sooner, or renew its lease, so a retry makes sense sooner, too. For a lock that rests for its `at_least`
    /// it is the time until the next run may begin.
    ///
    /// Over Redis a single try does not learn this of an exclusive lock: it would take one more command to read the rest of the lease.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// let one = LockManager::in_memory();
    /// let other = LockManager::builder().in_memory_with(&one)?;
    /// let _guard = one.lock("report", "daily").expire(Duration::from_secs(9)).acquire().await?;
    /// let busy = other.lock("report", "daily").timeout(Duration::from_millis(5)).acquire().await.unwrap_err();
    /// let left = busy.retry_after();
    /// assert!(left.is_some_and(|left| left <= Duration::from_secs(9)));
    /// // For the header `Retry-After`, since a holder that lives may release sooner:
    /// let _header = left.unwrap_or(Duration::from_secs(1)).min(Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Timeout { frees_in, .. } => *frees_in,
            _ => None,
        }
    }

    /// Whether the lock stayed busy for the whole wait.
    ///
    /// ```
    /// use lock_runtime::LockError;
    ///
    /// /// A busy lock is no reason for a call at night.
    /// fn log_level(error: &LockError) -> &'static str {
    ///     if error.is_timeout() { "info" } else { "error" }
    /// }
    /// # assert_eq!(log_level(&LockError::NotInstalled), "error");
    /// ```
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// Whether the lock was held and then lost. Then part of the work may be done.
    ///
    /// ```
    /// use lock_runtime::LockError;
    ///
    /// fn may_repeat_blindly(error: &LockError) -> bool {
    ///     !error.is_lost()
    /// }
    /// # assert!(may_repeat_blindly(&LockError::NotInstalled));
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// What a caller can do about a [`LockError`]; see [`LockError::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another holder has the lock: try again later, or tell the user.
    Busy,
    /// This process has too much to do: shed load.
    Overloaded,
    /// The lock was held and lost: check what was done before you repeat it.
    Lost,
    /// The server can't be reached, or does not have enough replicas: try again later.
    Unavailable,
    /// The program is wrong: the error's text says what to write instead.
    Misuse,
    /// The manager is shut down: this process is about to end.
    ShutDown,
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { key, waited, holder, note, rests: true, .. } => {
                let last = held_by(holder.as_deref(), note.as_deref()).replacen("(held", "(last held", 1);
                write!(
                    f,
                    "lock `{key}` is busy, it rests for its `at_least` or `lock_delay`{}{last}",
                    waited_for(*waited)
                )
            }
            Self::Timeout { key, waited, holder, note, held_here, .. } => {
                let here = if *held_here { ", held by this process" } else { "" };
                let holder = held_by(holder.as_deref(), note.as_deref());
                write!(f, "lock `{key}` is busy{here}{}{holder}", waited_for(*waited))
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
                    // A request that replaces the holder also fails like this while it waits.
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

/// Empty for a single try, which does not wait.
fn waited_for(waited: Duration) -> String {
    if waited.is_zero() { String::new() } else { format!(": not obtained within {:?}", rounded(waited)) }
}

/// How long something waited, as a text. A task that was polled too late has no time left.
pub(crate) fn within(limit: Duration) -> String {
    if limit.is_zero() { "in the time that was left".to_owned() } else { format!("within {:?}", rounded(limit)) }
}

/// Whole milliseconds, if there are any: the rest is noise.
pub(crate) fn rounded(span: Duration) -> Duration {
    if span < Duration::from_millis(1) {
        span
    } else {
        span.saturating_sub(Duration::from_nanos(u64::from(span.subsec_nanos() % 1_000_000)))
    }
}

fn held_by(holder: Option<&str>, note: Option<&str>) -> String {
    let holder = match holder {
        None => return String::new(),
        Some("") => "a manager without a label".to_owned(),
        Some(label) => in_one_line(label),
    };
    let note = note.map(|note| format!(": {}", in_one_line(note))).unwrap_or_default();
    format!(" (held by {holder}{note})")
}

/// A label must not put a second line into a log.
fn in_one_line(text: &str) -> String {
    text.chars().fold(String::new(), |mut line, character| {
        match character {
            '\'' | '"' => line.push(character),
            _ => line.extend(character.escape_debug()),
        }
        line
    })
}

/// What went wrong between this process and the server, in words. The cause is its [`source`](Error::source).
///
/// ```no_run
/// # use lock_runtime::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// if let Err(LockError::Connect { server, problem, .. }) = LockManager::connect("redis://10.0.1.1").await {
///     let cause = std::error::Error::source(&problem).map(ToString::to_string);
///     eprintln!("{server} is not reachable: {problem} ({})", cause.unwrap_or_default());
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BackendError {
    text: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl BackendError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), source: None }
    }

    pub(crate) fn caused_by(text: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self::caused_by_shared(text, Arc::new(source))
    }

    /// The source is the error itself, so that a caller may downcast it.
    pub(crate) fn caused_by_shared(text: impl Into<String>, source: Arc<dyn Error + Send + Sync>) -> Self {
        Self { text: text.into(), source: Some(source) }
    }

    /// The same problem with its server's name in front, unless it is already there.
    pub(crate) fn of(self, server: &str) -> Self {
        match self.text.strip_prefix(server) {
            Some(rest) if rest.starts_with(": ") => self,
            _ => Self { text: format!("{server}: {}", self.text), ..self },
        }
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Why a value can't be the key of a lock.
///
/// ```
/// use lock_runtime::{InvalidKey, LockKey, NameParts};
///
/// struct Percent(u8);
///
/// impl LockKey for Percent {
///     fn write_parts(&self, name: &mut NameParts) -> Result<(), InvalidKey> {
///         if self.0 > 100 {
///             return Err(InvalidKey::new("a percentage is at most 100"));
///         }
///         self.0.write_parts(name)
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidKey {
    reason: Cow<'static, str>,
}

impl InvalidKey {
    /// Makes the error from its reason, which completes the sentence "the key is unusable because …".
    ///
    /// ```
    /// # use lock_runtime::InvalidKey;
    /// assert_eq!(InvalidKey::new("it has no tenant").to_string(), "it has no tenant");
    /// ```
    #[must_use]
    pub fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error for InvalidKey {}

/// Why a lease ended under its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossReason {
    /// The deadline passed before the hold was renewed or released.
    Deadline,
    /// The store does not know the lease: its key was deleted, evicted or forgotten, or has expired.
    NotKnown,
    /// The manager was shut down, and the hold did not end in time.
    ShutDown,
    /// The lock was released by force (rule 21).
    Forced,
    /// The hold lasted for the `max_hold` of its request.
    MaxHold,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_failure_is_its_source_and_its_kind_says_what_to_do() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let problem = BackendError::caused_by("connection refused", refused);
        let backend = LockError::Backend { key: "p:k".to_owned(), problem: problem.clone() };
        let connect = LockError::Connect { server: "host:6379".to_owned(), problem };
        for (error, key) in [(&backend, Some("p:k")), (&connect, None)] {
            let cause = error.source().unwrap();
            assert!(cause.is::<std::io::Error>(), "{error}");
            assert_eq!((error.kind(), error.key()), (ErrorKind::Unavailable, key));
        }
        let lost =
            LockError::Lost { key: "p:k".to_owned(), completed: true, forced: false, max_hold: None, ticket: false };
        assert_eq!((lost.kind(), lost.key(), lost.source().is_none()), (ErrorKind::Lost, Some("p:k"), true));
        assert_eq!((LockError::NotInstalled.kind(), LockError::NotInstalled.key()), (ErrorKind::Misuse, None));
    }

    #[test]
    fn no_text_says_that_something_took_no_time() {
        let timeout = |millis, holder: Option<&str>, rests| {
            let (waited, holder) = (Duration::from_millis(millis), holder.map(str::to_owned));
            let (key, note) =
                ("p:k".to_owned(), holder.as_ref().filter(|holder| *holder == "b").map(|_| "x\ny".to_owned()));
            LockError::Timeout { key, waited, holder, note, held_here: rests, frees_in: None, rests }.to_string()
        };
        let busy = |millis, holder| timeout(millis, holder, false);
        assert_eq!(
            timeout(0, Some("a"), true),
            "lock `p:k` is busy, it rests for its `at_least` or `lock_delay` (last held by a)"
        );
        assert_eq!(busy(0, None), "lock `p:k` is busy");
        assert_eq!(busy(0, Some("a")), "lock `p:k` is busy (held by a)");
        assert_eq!(busy(0, Some("b")), "lock `p:k` is busy (held by b: x\\ny)");
        assert_eq!(busy(20, Some("a")), "lock `p:k` is busy: not obtained within 20ms (held by a)");
        assert_eq!(within(Duration::ZERO), "in the time that was left");
        assert_eq!(within(Duration::from_millis(80)), "within 80ms");
        assert_eq!(within(Duration::from_nanos(2_003_826_824)), "within 2.003s");
        assert_eq!(within(Duration::from_nanos(11_500)), "within 11.5µs");
    }

    #[test]
    fn nothing_ran_for_a_ticket_that_is_over() {
        let lost = |ticket, forced| {
            LockError::Lost { key: "p:k".to_owned(), completed: false, forced, max_hold: None, ticket }.to_string()
        };
        assert_eq!(lost(false, false), "lock `p:k` was lost; what ran under it was stopped");
        assert!(lost(true, false).starts_with("the ticket of lock `p:k` is over"));
        assert_eq!(lost(true, true), "lock `p:k` was released by force while it was adopted");
    }
}
