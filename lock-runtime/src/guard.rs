//! [`LockGuard`]: a user's handle on a held lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, FutureExt as _, join_all, lazy, ready, select_all};
use tokio::task::coop::{consume_budget, cooperative};

use crate::clock::Moment;
use crate::local::{Hold, HoldHandle, Releasing};
use crate::observe::HoldSpan;
use crate::turns::Turn;
use crate::{FencingToken, LockError, LockTicket, surroundings};

/// A held lock. The hold ends when the guard is released or dropped, or when its deadline passes.
///
/// Dropping the guard never blocks. It hands the lock over to a waiter in the same process at once. For other processes
/// the lock is released in the background, even when the runtime of the guard is gone.
///
/// ```
/// # use lock_runtime::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// {
///     let _guard = locks.lock("cart", "ada").acquire().await?;
///     assert!(locks.lock("cart", "ada").try_acquire().await?.is_none());
/// }
/// assert!(locks.lock("cart", "ada").try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "dropping a guard releases the lock at once; bind it to a name for as long as the lock is needed"]
pub struct LockGuard {
    pub(crate) first: Locked,
    /// The other locks of a guard with several.
    others: Option<Box<Others>>,
    pub(crate) span: HoldSpan,
}

/// One lock of a guard.
pub(crate) enum Locked {
    Held(Hold),
    /// Its hold belongs to an outer body of the same task.
    Borrowed(HoldHandle),
}

/// The locks of a guard after the first.
struct Others {
    /// In the order of the names.
    locks: Vec<Locked>,
    /// For each key as it was given: its place among all locks of the guard.
    given: Box<[usize]>,
    /// The turns in the outer bodies whose holds are borrowed.
    turns: Vec<Turn>,
}

impl Locked {
    pub(crate) fn handle(&self) -> &HoldHandle {
        match self {
            Self::Held(hold) => hold.handle(),
            Self::Borrowed(handle) => handle,
        }
    }

    pub(crate) fn is_borrowed(&self) -> bool {
        matches!(self, Self::Borrowed(_))
    }
}

impl LockGuard {
    pub(crate) fn with_span(lock: Locked, span: HoldSpan) -> Self {
        Self { first: lock, others: None, span }
    }

    /// A guard with all `locks`, sorted by name. For each key as it was given, `given` has its place among them. The `turns` are those of
    /// borrowed holds. `None` without a lock.
    pub(crate) fn of_all(locks: Vec<Locked>, given: Box<[usize]>, turns: Vec<Turn>, span: HoldSpan) -> Option<Self> {
        let mut locks = locks.into_iter();
        let first = locks.next()?;
        Some(Self { first, others: Some(Box::new(Others { locks: locks.collect(), given, turns })), span })
    }

    /// All locks but the first.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Locked> {
        self.others.iter().flat_map(|others| &others.locks)
    }

    pub(crate) fn handles(&self) -> impl Iterator<Item = &HoldHandle> {
        std::iter::once(&self.first).chain(self.others()).map(Locked::handle)
    }

    /// Whether all its holds are borrowed from outer bodies of the same task.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.first.is_borrowed() && self.others().all(Locked::is_borrowed)
    }

    /// The lock's name in Redis, for logs and for a look at the server. With several locks it is the first by name.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// assert_eq!(locks.lock("order", "a:b").acquire().await?.key(), "order:a%3Ab");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn key(&self) -> &str {
        self.first.handle().key()
    }

    /// The names of all its locks in Redis, sorted, each once. Most guards have one lock.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock_all("seat", ["12b", "12a", "12b"]).acquire().await?;
    /// assert_eq!(guard.keys(), ["seat:12a", "seat:12b"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        self.handles().map(HoldHandle::key).collect()
    }

    /// The fencing tokens of all its locks, in the order in which the keys were given. A key that was given twice has its token
    /// twice. Empty unless the request asked for them with [`fenced(true)`](crate::LockRequest::fenced).
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock_all("account", [7, 3]).fenced(true).acquire().await?;
    /// let [of_seven, of_three] = guard.fencing_tokens()[..] else { unreachable!("two keys") };
    /// println!("account 7 is written with {of_seven}, account 3 with {of_three}");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fencing_tokens(&self) -> Vec<FencingToken> {
        let given = self.others.as_ref().map_or(&[0][..], |others| &others.given);
        let tokens: Vec<_> = self.handles().map(HoldHandle::fencing_token).collect();
        given.iter().filter_map(|place| *tokens.get(*place)?).collect()
    }

    /// The fencing token; with several locks, the token of the first by name. `None` unless the request asked for it with
    /// [`fenced(true)`](crate::LockRequest::fenced).
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("stock", &7).fenced(true).acquire().await?;
    /// if let Some(token) = guard.fencing_token() {
    ///     let sql = format!("UPDATE stock SET count = 3, fence = {token} WHERE id = 7 AND fence <= {token}");
    /// #   assert!(sql.contains("fence <="));
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.first.handle().fencing_token()
    }

    /// Whether the lock is still held, as far as this process knows. It is a local check: nothing is sent.
    ///
    /// A `true` may be out of date as soon as it is returned: a process that is paused right after it can't know. Where
    /// that matters, send the [fencing token](Self::fencing_token) with the write.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("export", "all").acquire().await?;
    /// for page in 1..=3 {
    ///     if !guard.is_valid() {
    ///         break; // Another process may export by now.
    ///     }
    ///     println!("page {page}");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.handles().all(HoldHandle::is_valid)
    }

    /// The time until the deadline that Redis has confirmed so far; zero when the hold was lost. With several locks it is the shortest
    /// time. It is a local check: nothing is sent.
    ///
    /// It starts small, because a grant is a claim of at most 2.5 s. It grows to the full lease within milliseconds, once the lease is
    /// confirmed in the background.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("p", "k").acquire().await?;
    /// // Give the last step less time than the lock has.
    /// let step = tokio::time::timeout(guard.remaining() / 2, async { "written" });
    /// assert_eq!(step.await, Ok("written"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.handles().map(HoldHandle::remaining).min().unwrap_or_default()
    }

    /// Resolves when the hold is lost, or at once if it was lost before. With several locks, the loss of one is enough.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("p", "k").expire(Duration::from_millis(30)).renew(false).acquire().await?;
    /// let stopped = tokio::select! {
    ///     () = guard.lost() => true,
    ///     () = tokio::time::sleep(Duration::from_secs(5)) => false,
    /// };
    /// assert!(stopped);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only watches.
    pub fn lost(&self) -> impl Future<Output = ()> + Send {
        cooperative(match &self.others {
            None => Either::Left(self.first.handle().lost()),
            Some(_) => {
                Either::Right(select_all(self.handles().map(|handle| Box::pin(handle.lost()))).map(drop).boxed())
            }
        })
    }

    /// Moves the deadline to `lease` from now, less the allowance for clock drift (by default 1 % and 2 ms). It never
    /// shortens the hold. A hold that is renewed does not need it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("p", "k").expire(Duration::from_secs(1)).renew(false).acquire().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(59));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) when the hold is lost, [`Backend`](LockError::Backend) when Redis did not confirm (the
    /// old deadline stays), [`TooFewReplicas`](LockError::TooFewReplicas) when too few replicas did (the old deadline stays),
    /// [`InvalidSetting`](LockError::InvalidSetting) for a lease out of bounds.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: at worst Redis keeps the lock for longer than this process uses it.
    pub fn extend(&self, lease: Duration) -> impl Future<Output = Result<(), LockError>> + Send {
        cooperative(async move {
            surroundings::check()?;
            match &self.others {
                None => self.first.handle().extend(lease).await,
                Some(_) => join_all(self.handles().map(|handle| handle.extend(lease))).await.into_iter().collect(),
            }
        })
        .boxed()
    }

    /// Gives the lock away: it is not released, but waits this long for its adopter, without renewals. The ticket is the right to take over
    /// the lock with [`LockManager::adopt`](crate::LockManager::adopt), in this process or another. No other task gets the lock in between.
    /// If it is not adopted, the lock is free when the time is over; [`release_ticket`](crate::LockManager::release_ticket) releases it
    /// sooner. From 10 ms to one year.
    ///
    /// Send the ticket's text or its serde form. **It is a secret**: whoever has it can take the lock.
    ///
    /// - The options of the request end with the hold: `expire`, `max_hold`, `at_least`. The adopter has its own.
    /// - A server that loses its data, or a failover to a replica without the ticket, leaves a ticket that can't be adopted; the lock stays
    ///   taken for at most the rest of the giver's lease. [`min_replicas`](crate::Builder::min_replicas) applies here, too.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// // A handler takes the lock, and answers before the work is done:
    /// let guard = locks.lock("import", &7).acquire().await?;
    /// let ticket = guard.into_ticket(Duration::from_secs(60)).await?;
    /// let job = format!("import 7\n{ticket}");
    /// // A worker goes on under the same lock:
    /// let ticket = job.lines().nth(1).unwrap_or_default().parse()?;
    /// let guard = locks.adopt(ticket).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Lost`](LockError::Lost) when the hold was lost before, or when this call was not polled for about half a second: then the lock
    ///   was released.
    /// - [`Backend`](LockError::Backend) when the server did not answer, or refused. Then the lock is released in the background.
    /// - [`TooFewReplicas`](LockError::TooFewReplicas) with [`Builder::min_replicas`](crate::Builder::min_replicas), likewise.
    /// - [`InvalidSetting`](LockError::InvalidSetting) for a reader, for several keys, for a time out of bounds, and on a quorum, before
    ///   anything is sent. The guard is dropped then, which releases the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock in the background, whether it was already given away or not.
    pub fn into_ticket(self, kept_for: Duration) -> impl Future<Output = Result<LockTicket, LockError>> + Send {
        cooperative(async move {
            surroundings::check()?;
            let Self { first, others, mut span } = self;
            let outcome = async {
                let (Locked::Held(hold), None) = (first, others) else {
                    let reason = "a guard of `lock_all` can't be given away: take `lock` with one key";
                    return Err(LockError::setting("ticket", reason));
                };
                let handle = hold.handle().clone();
                handle.check_gift(kept_for)?;
                let prefix = handle.prefix();
                Ok(LockTicket { key: Arc::clone(handle.name()), prefix, token: hold.give_away(kept_for).await? })
            }
            .await;
            span.end(outcome.as_ref().err());
            outcome
        })
        .boxed()
    }

    /// Releases the lock and waits for the answer. Use it instead of a drop where the caller must know whether the hold lasted. It waits
    /// for at most one command timeout, and one more for each further command that it needs: when another process waits that this one did
    /// not know of, when the lock is gone, when the user lacks a right.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("ledger", "2024").acquire().await?;
    /// match guard.release().await {
    ///     Err(error) if error.is_lost() => eprintln!("check what was written: {error}"),
    ///     other => other?,
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) when the hold was lost before. [`Backend`](LockError::Backend) when Redis did not
    /// answer, or refused; then the release is repeated in the background, at least once a second, until it succeeds or
    /// the lease is over. [`InvalidSetting`](LockError::InvalidSetting) outside of a tokio runtime with timers; the lock is released
    /// anyway.
    ///
    /// It is `Ok` when the lock is free but could not be passed on, because the key of its queue holds something else.
    /// An event of level `WARN` says so.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lock is released in the background.
    pub fn release(self) -> impl Future<Output = Result<(), LockError>> {
        lazy(|_| match surroundings::check() {
            Ok(()) => self.begin_release(),
            // The guard is dropped.
            Err(error) => Either::Left(ready(Err(error))),
        })
        .flatten()
        // Only now, so that the lock is released whatever else the task did in this poll.
        .then(|released| consume_budget().map(|()| released))
    }

    /// Begins to release the lock. The future waits for the answer.
    pub(crate) fn begin_release(self) -> Releasing {
        let Self { first, others, mut span } = self;
        let releasing = match (others, first) {
            (Some(others), first) => Either::Right(release_all(first, *others).boxed()),
            (None, Locked::Held(hold)) => hold.release(),
            (None, Locked::Borrowed(_)) => Either::Left(ready(Ok(()))),
        };
        if !span.is_open() {
            return releasing;
        }
        Either::Right(releasing.inspect(move |outcome| span.end(outcome.as_ref().err())).boxed())
    }
}

/// Releases all locks of a guard at the same time. A loss takes precedence over any other error.
async fn release_all(first: Locked, Others { locks, turns, .. }: Others) -> Result<(), LockError> {
    let now = Moment::now();
    // All holds end here, before the first await: a future that is not polled again keeps no lock.
    let releases = std::iter::once(first).chain(locks).map(|lock| match lock {
        Locked::Held(hold) => hold.release_beside_others(now),
        Locked::Borrowed(handle) => {
            Either::Left(ready(if handle.is_valid() { Ok(()) } else { Err(handle.lost_error(true)) }))
        }
    });
    let outcomes = join_all(releases).await;
    drop(turns);
    let mut errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    let first_loss = errors.iter().position(LockError::is_lost).unwrap_or_default();
    if errors.is_empty() { Ok(()) } else { Err(errors.swap_remove(first_loss)) }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", &self.key())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
