//! [`LockManager`]: the user's handle on one place where locks live.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use lock_wire::{Link, Outgoing, Reach};
use tokio::task::coop::cooperative;

use crate::clock::Deadline;
use crate::engine::Engine;
use crate::held::Held;
use crate::local::Core;
use crate::lock_info::{LockInfo, LockMode};
use crate::opaque::Opaque;
use crate::options::LockOptions;
use crate::store::SHARED;
use crate::store::redis::failure::problem;
use crate::store::redis::{RedisStore, lacks_vote};
use crate::store::{AnyStore, Feature, Forced, Ownership, Release, Seen, Store as _, StoreError};
use crate::timing::CLAIM;
use crate::token::Token;
use crate::{
    BackendError, LockError, LockGuard, LockKey, LockRequest, LockStats, LockTicket, key, scope, surroundings,
};

/// The pauses between looks at a lock whose holder was asked to stop.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

const READ_LATE: &str = "the answer was read so late that the release had been repeated: the ticket is over, but whether it was adopted \
                         before is not known";

/// A connection to the place where locks live. Everything in the process that locks there shares it.
///
/// It is cheap to clone. Make one per process and Redis: tasks that lock the same key through one manager (or its
/// clones) hand the lock over in memory, without a round trip.
///
/// ```
/// # use lock_runtime::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory://").await?;
/// let sum = locks.lock("account", &42).run(async { 40 + 2 }).await?;
/// assert_eq!(sum, 42);
/// locks.shutdown().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockManager {
    pub(crate) engine: Opaque<Engine>,
}

impl LockManager {
    pub(crate) fn core(&self) -> &Arc<Core> {
        self.engine.core()
    }

    fn request(&self, options: LockOptions) -> LockRequest {
        LockRequest { engine: self.engine.clone(), options }
    }

    /// Makes this the default manager of the process. `#[cache_lock]` uses it when the attribute names no manager.
    ///
    /// A forked child can't use its parent's manager. It may install its own instead.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// locks.install()?;
    /// assert!(LockManager::current().is_some());
    /// assert!(matches!(locks.install(), Err(LockError::AlreadyInstalled)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`AlreadyInstalled`](LockError::AlreadyInstalled) when the process has a default manager already.
    pub fn install(&self) -> Result<(), LockError> {
        scope::install(&self.engine)
    }

    /// Runs `inside` with this as the default manager: for tests, and for tenants that have a Redis of their own.
    ///
    /// A scope takes precedence over the installed manager, and an inner scope over an outer scope. A task that is
    /// spawned inside does not inherit the scope, not even when an executor inside the scope polls that task.
    ///
    /// ```
    /// use lock_runtime::{LockError, LockManager, cache_lock};
    ///
    /// #[cache_lock(key = order)]
    /// async fn pay(order: u32) -> Result<u32, LockError> {
    ///     Ok(order)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// // Each test has locks of its own.
    /// assert_eq!(LockManager::in_memory().scope(pay(7)).await?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as `inside`.
    pub async fn scope<F: Future>(&self, inside: F) -> F::Output {
        scope::with_manager(self.engine.clone(), inside).await
    }

    /// The manager that `#[cache_lock]` would use here: the manager of the scope, else the installed manager.
    ///
    /// ```
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// assert!(LockManager::current().is_none());
    /// let locks = LockManager::in_memory();
    /// assert!(locks.scope(async { LockManager::current() }).await.is_some());
    /// # }
    /// ```
    #[must_use]
    pub fn current() -> Option<Self> {
        scope::current().map(|engine| Self { engine })
    }

    /// A request for the lock named `prefix:key` (with a namespace, `namespace:prefix:key`).
    ///
    /// `prefix` is used as it is written: it is the author's text, not input. `key` is escaped. Nothing is sent yet; a
    /// mistake in either is reported when the request is awaited.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// let guard = locks.lock("seat", &("ICE 71", 12)).acquire().await?;
    /// assert_eq!(guard.key(), "seat:ICE 71:12");
    /// # Ok(()) }
    /// ```
    pub fn lock<K: LockKey + ?Sized>(&self, prefix: &str, key: &K) -> LockRequest {
        self.request(LockOptions::new(prefix, key))
    }

    /// A request for the lock with this whole name: nothing is escaped, and there is no prefix. A namespace still goes in front, as for
    /// every lock of this manager.
    ///
    /// Use it to share a lock with another library whose names have a `:` or `%` that would be escaped here: while both run, both must lock
    /// the same name. Otherwise use a prefix and a key: with concatenated text, two things may get the same name.
    ///
    /// A name that is empty, longer than 1,024 bytes, or has braces or control characters is [`InvalidKey`](LockError::InvalidKey) when the
    /// request is awaited. Metrics count the lock under an empty prefix.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// assert_eq!(locks.lock("signing", "eu:7").key()?, "signing:eu%3A7");
    /// let guard = locks.lock_named("signing:eu:7").acquire().await?;
    /// assert_eq!(guard.key(), "signing:eu:7");
    /// # Ok(()) }
    /// ```
    pub fn lock_named(&self, name: &str) -> LockRequest {
        self.request(LockOptions::of_whole_name(name))
    }

    /// A request for several locks, all or none: one named `prefix:key` for each of the `keys`.
    ///
    /// - The locks are taken in the order of their names. So fns that lock several keys never deadlock, in whatever order they name the
    ///   keys and in whatever process they run.
    /// - A key that is given twice counts once. No key at all is [`InvalidKey`](LockError::InvalidKey), and so are more than 1,000 keys.
    /// - One timeout covers all. When it is over, nothing stays locked, and the error names the key that was busy.
    /// - When one lock is lost, the hold is lost: a body is stopped, and the other locks are released.
    /// - Locks that are free are taken in one round trip, if they are on one server.
    /// - A body that already holds some of the locks re-enters these.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// let (from, to) = (7, 3);
    /// let guard = locks.lock_all("account", [from, to]).acquire().await?;
    /// assert_eq!(guard.keys(), ["account:3", "account:7"]);
    /// assert!(locks.lock("account", &7).try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn lock_all<K: LockKey>(&self, prefix: &str, keys: impl IntoIterator<Item = K>) -> LockRequest {
        self.request(LockOptions::all(prefix, keys))
    }

    /// Ends the manager and releases all its leases:
    ///
    /// 1. It refuses new locks, and fails waiters with [`ShutDown`](LockError::ShutDown).
    /// 2. It waits for the [`drain`](crate::Builder::drain) time for holds to end by themselves. Meanwhile a request inside of a body, as
    ///    for re-entry, still gets locks of this manager, and may wait for them. A spawned task does not, nor does a task with a plain
    ///    [`LockGuard`](crate::LockGuard), which belongs to no task.
    /// 3. It ends the remaining holds, drops their bodies, and releases their leases.
    ///
    /// It takes at most the drain time and 6 s: 2 s each for bodies that do not end, for the last releases, and for the
    /// keeper's releases. It needs the 6 s only while bodies do not end or servers do not answer. A lease that is not
    /// released by then expires.
    ///
    /// Its connections close with its last handle; an installed manager keeps them until the process ends. Nothing more is sent on them.
    ///
    /// Call it at the end of `main` and on SIGTERM: the locks of a process that just exits stay taken until they
    /// expire.
    ///
    /// A body that calls it under a lock of this manager would wait for itself. So this call does not wait for the
    /// locks of that body: it returns when all others are released, and the body releases its own locks at its end. An
    /// event of level `WARN` says so.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let locks = LockManager::in_memory();
    /// // …until the process is told to stop:
    /// locks.shutdown().await;
    /// assert!(matches!(locks.lock("p", "k").acquire().await, Err(LockError::ShutDown { .. })));
    /// # }
    /// ```
    ///
    /// It needs no tokio runtime: a program of plain threads may await it on any executor.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again to continue.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send {
        cooperative(async move {
            let own = scope::held_keys(self.core());
            let ending = self.engine.shutdown(&own);
            if surroundings::check().is_ok() {
                return ending.await;
            }
            // A lock that is not released here stays taken for its lease. So this call must work without a runtime.
            if let Ok(thread) = self.engine.thread() {
                thread.inside(ending).await;
            }
        })
        .boxed()
    }

    /// The counters and the current state of this manager. Nothing is sent.
    ///
    /// It costs about one look at each key in use, and may be called each second.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::in_memory();
    /// locks.lock("order", &7).acquire().await?.release().await?;
    /// let stats = locks.stats();
    /// println!("{} locks, {} of them lost", stats.acquired, stats.lost);
    /// assert_eq!((stats.acquired, stats.held), (1, 0));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn stats(&self) -> LockStats {
        self.core().stats()
    }
}

/// For operators and their tools: see who holds a lock, and take it away.
impl LockManager {
    /// Who holds the lock `prefix:key`, for how long, and who waits for it. `None` when it is free. It sends one command, which changes
    /// nothing. A lock that [lingers](crate::LockRequest::linger) is shown as held by the process that keeps it, whose `is_held_here` is
    /// `false`.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().label("worker-3").in_memory();
    /// assert!(locks.inspect("seckill", &7).await?.is_none());
    /// let _guard = locks.lock("seckill", &7).acquire().await?;
    /// let held = locks.inspect("seckill", &7).await?.expect("it is held");
    /// assert_eq!(held.holder.as_deref(), Some("worker-3"));
    /// assert!(held.is_held_here && held.waiting.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) when the server did not answer within the
    /// [`command_timeout`](crate::Builder::command_timeout), or refused. [`InvalidKey`](LockError::InvalidKey) for a key that
    /// can't name a lock. [`Forked`](LockError::Forked) in a fork of the process that made the manager.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    pub async fn inspect<K: LockKey + ?Sized>(&self, prefix: &str, key: &K) -> Result<Option<LockInfo>, LockError> {
        self.inspect_full(key::name(prefix, key)).await
    }

    /// Whether the lock `prefix:key` is taken. It sends one command, as [`inspect`](Self::inspect) does.
    ///
    /// The answer may be out of date when it arrives. To do something only if the lock is free, take it with
    /// [`try_acquire`](crate::LockRequest::try_acquire).
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("seckill", &7).acquire().await?;
    /// assert!(locks.is_locked("seckill", &7).await?);
    /// guard.release().await?;
    /// assert!(!locks.is_locked("seckill", &7).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    pub async fn is_locked<K: LockKey + ?Sized>(&self, prefix: &str, key: &K) -> Result<bool, LockError> {
        Ok(self.inspect(prefix, key).await?.is_some())
    }

    /// Takes the lock `prefix:key` from its holder, and returns whether there was one. It is for incidents: if you can, end the process
    /// that holds the lock instead.
    ///
    /// The holder gets a message at once. Its body is stopped as after any loss, and its error says that the lock was released by force.
    /// Only then does the next waiter get the lock, or after 2.5 s at the latest. This call returns when the holder has lost the lock.
    ///
    /// A holder that is stopped or cut off for these 2.5 s may go on until it talks to the server again, for example to renew its lease
    /// after a third of it. A holder with another kind of client gets no message, so its lock is free at once. Where a second writer would
    /// do harm, [fence](crate::LockRequest::fenced).
    ///
    /// Whatever another program keeps under that name is deleted, even if it is data and not a lock. [`inspect`](Self::inspect) shows
    /// beforehand whether it expires.
    ///
    /// A body that calls it for its own lock is stopped at this call.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let (stuck, operator) = (LockManager::in_memory(), LockManager::builder());
    /// let operator = operator.in_memory_with(&stuck)?;
    /// let guard = stuck.lock("seckill", &7).acquire().await?;
    /// assert!(operator.force_release("seckill", &7).await?);
    /// guard.lost().await;
    /// assert!(guard.release().await.unwrap_err().to_string().contains("released by force"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](LockError::InvalidSetting) on a quorum, before anything is sent. Otherwise as for
    /// [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: once the command was sent, the lock is taken away anyway.
    pub async fn force_release<K: LockKey + ?Sized>(&self, prefix: &str, key: &K) -> Result<bool, LockError> {
        self.force_release_full(key::name(prefix, key), None).await
    }

    /// Whether the manager has its connections, as far as it knows: to the server, to each master of a cluster that it has used, or to a
    /// majority of a quorum. It is a local check: nothing is sent. A manager in memory is always connected.
    ///
    /// Use it for a readiness check. While there is no connection, a call inside a tokio runtime also makes the manager reconnect in the
    /// background. So a later call sees that the server is back, even if no task asks for a lock meanwhile.
    ///
    /// ```
    /// # use lock_runtime::LockManager;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let locks = LockManager::in_memory();
    /// // The handler of `/ready`:
    /// let status = if locks.is_connected() { 200 } else { 503 };
    /// # assert_eq!(status, 200);
    /// # }
    /// ```
    #[must_use]
    pub fn is_connected(&self) -> bool {
        let store = self.core().store();
        let is_connected = store.is_connected();
        if !is_connected && !self.core().is_inherited() && surroundings::check().is_ok() {
            store.begin_to_connect();
        }
        is_connected
    }

    fn inspect_full(&self, name: Result<Arc<str>, LockError>) -> BoxFuture<'_, Result<Option<LockInfo>, LockError>> {
        let core = self.core();
        cooperative(async move {
            let name = core.settings().full_name(name?)?;
            check_command(core, &name)?;
            let seen = core.store().inspect(&name, deadline(core)).await.map_err(|error| error.of_lock(&name))?;
            let Some(seen) = seen else { return Ok(None) };
            let mut owners: Vec<&Token> = seen.sharing.iter().map(|(_, token)| token).collect();
            let permits = seen.sharing.iter().filter_map(|(share, _)| share.permits()).min();
            let mode = match permits {
                Some(of) => LockMode::Permits { of },
                None if owners.is_empty() => LockMode::Exclusive,
                None => LockMode::Read,
            };
            if owners.is_empty() {
                owners.push(&seen.owner);
            }
            // Holders with the same label are sorted by age, oldest first.
            let mut named: Vec<_> =
                owners.iter().filter_map(|owner| Some((owner.label()?, owner.made_at(), *owner))).collect();
            named.sort_unstable_by(|(one, since, _), (other, later, _)| (one, since).cmp(&(other, later)));
            let first = named.first().map(|(_, _, owner)| *owner);
            let (held_for, note) = first.map(|owner| core.told_of(&name, owner)).unwrap_or_default();
            let holders: Vec<String> = named.into_iter().map(|(label, ..)| label).collect();
            let is_own = |owner: &&Token| core.is_own_token(owner) && !owner.rests();
            Ok(Some(LockInfo {
                holder: holders.first().cloned(),
                holders,
                note,
                held_for,
                remaining: seen.frees_in.unwrap_or(Duration::MAX),
                waiting: seen.waiting.iter().map(|token| token.label().unwrap_or_default()).collect(),
                mode,
                is_held_here: !core.lingers(&name) && owners.iter().any(is_own),
                rests: owners.iter().all(|owner| owner.rests()),
                awaits_adopter: owners.iter().all(|owner| owner.is_ticket()),
                is_forced: seen.owner.unforced().is_some(),
                key: name.to_string(),
            }))
        })
        .boxed()
    }

    /// With a label: only the oldest lease of the manager with this label.
    fn force_release_full<'a>(
        &'a self,
        name: Result<Arc<str>, LockError>,
        label: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, LockError>> {
        let core = self.core();
        cooperative(async move {
            let name = core.settings().full_name(name?)?;
            check_command(core, &name)?;
            core.store().kind().check(Feature::Force, "force_release")?;
            let of_lock = |error: StoreError| error.of_lock(&name);
            let one = if let Some(label) = label {
                let seen = core.store().inspect(&name, deadline(core)).await.map_err(of_lock)?;
                let mut sharing = seen.map(|seen| seen.sharing).unwrap_or_default();
                sharing.retain(|(_, token)| token.label().as_deref() == Some(label) && token.unforced().is_none());
                // The tokens of one process increase.
                let oldest = sharing.into_iter().min_by(|(_, one), (_, other)| one.as_str().cmp(other.as_str()));
                let Some(oldest) = oldest else { return Ok(false) };
                Some(oldest)
            } else {
                None
            };
            let mark = match core.store().force(&name, one, deadline(core)).await.map_err(of_lock)? {
                Forced::Free => return Ok(false),
                Forced::Gone => return Ok(true),
                Forced::Leaving(mark) => mark,
            };
            // The holder was asked to stop. It loses the lock within a claim, or the lock expires then.
            let end = Deadline::after(CLAIM + 2 * LONGEST_PAUSE);
            let mut pause = FIRST_LOOK;
            loop {
                let seen = core.store().inspect(&name, deadline(core)).await;
                let is_left = |seen: Seen| seen.owner == mark || seen.sharing.iter().any(|(_, token)| *token == mark);
                // Without an answer, wait until the lock has expired.
                if seen.is_ok_and(|seen| !seen.is_some_and(is_left)) || end.has_passed() {
                    return Ok(true);
                }
                tokio::time::sleep(pause.min(end.remaining())).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        })
        .boxed()
    }
}

/// Refuses a command outside of a runtime with timers, and in a fork.
fn check_command(core: &Core, name: &str) -> Result<(), LockError> {
    surroundings::check()?;
    if core.is_inherited() { Err(LockError::Forked { key: name.to_owned() }) } else { Ok(()) }
}

fn deadline(core: &Core) -> Deadline {
    Deadline::after(core.settings().command_timeout)
}

/// Locks that wait for their adopters.
impl LockManager {
    /// Takes over the lock of a ticket that this or another process got from [`LockGuard::into_ticket`].
    ///
    /// No other task had the lock in between. Exactly one adoption of a ticket succeeds. From then on the hold is an ordinary one, with
    /// the default options of this manager: it is renewed, for example. [`adopt_with`](Self::adopt_with) sets others.
    ///
    /// It does not wait for other holders. The manager's default timeout limits the wait for a server that does not answer.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager, LockTicket};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let api = LockManager::in_memory();
    /// let worker = LockManager::builder().in_memory_with(&api)?;
    /// let ticket = api.lock("import", &7).acquire().await?.into_ticket(Duration::from_secs(60)).await?;
    /// let text = ticket.to_string(); // Travels in a queue, say.
    ///
    /// let guard = worker.adopt(text.parse::<LockTicket>()?).await?;
    /// assert_eq!(guard.key(), "import:7");
    /// assert!(worker.adopt(text.parse::<LockTicket>()?).await.unwrap_err().is_lost(), "it was adopted");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Lost`](LockError::Lost) when the ticket has expired, was adopted or given back, or its lock was released by force.
    /// - [`Backend`](LockError::Backend) when the server did not answer within the timeout, or refused. If it executed the command anyway,
    ///   the lock is released and the ticket is used up. If not, the ticket is still good.
    /// - [`InvalidSetting`](LockError::InvalidSetting) on a quorum, before anything is sent.
    /// - [`TooFewReplicas`](LockError::TooFewReplicas), [`ShutDown`](LockError::ShutDown), [`Forked`](LockError::Forked) as for
    ///   [`acquire`](LockRequest::acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the lock: the ticket is used up, if the server has executed the command.
    pub fn adopt(&self, ticket: LockTicket) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
        self.adopt_with(ticket, |request| request)
    }

    /// Like [`adopt`](Self::adopt), with other options for the hold. The fencing token is larger than the giver's.
    ///
    /// The ticket says how the lock is held: alone, or with one of N permits. So [`read`](LockRequest::read) and another number of
    /// [`permits`](LockRequest::permits) are [`InvalidSetting`](LockError::InvalidSetting). An adopter never replaces a holder:
    /// [`OnBusy::Replace`](crate::OnBusy::Replace) only says that the next request that replaces may take this hold, which then does not
    /// count as lost. The same holds if the giver's request had it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("import", &7).fenced(true).acquire().await?;
    /// let given = guard.fencing_token();
    /// let ticket = guard.into_ticket(Duration::from_secs(60)).await?;
    /// let minute = Duration::from_secs(60);
    /// let guard = locks.adopt_with(ticket, |request| request.fenced(true).expire(minute)).await?;
    /// assert!(guard.fencing_token() > given);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`adopt`](Self::adopt).
    ///
    /// # Cancel safety
    ///
    /// As for [`adopt`](Self::adopt).
    pub fn adopt_with<F: FnOnce(LockRequest) -> LockRequest>(
        &self,
        ticket: LockTicket,
        options: F,
    ) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<F> {
        self.adopting(ticket, options, false).map(|adopted| adopted.map(|held| held.guard))
    }

    fn adopting(
        &self,
        ticket: LockTicket,
        options: impl FnOnce(LockRequest) -> LockRequest,
        is_body: bool,
    ) -> BoxFuture<'static, Result<Held, LockError>> {
        let request = options(self.request(LockOptions::of_whole_name(&ticket.key)));
        request.options.adopt(self.engine.clone(), ticket, is_body)
    }

    /// Takes over the lock of a ticket, runs `body` under it, and releases it. It is to [`adopt`](Self::adopt) what
    /// [`run`](LockRequest::run) is to [`acquire`](LockRequest::acquire).
    ///
    /// The deadline of the lock is checked before every poll of `body`. A locked fn with the same key that `body` calls in the same task
    /// enters this lock.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager, LockTicket};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let api = LockManager::in_memory();
    /// let worker = LockManager::builder().in_memory_with(&api)?;
    /// let ticket = api.lock("import", &7).acquire().await?.into_ticket(Duration::from_secs(60)).await?;
    ///
    /// let rows = worker.run_adopted(ticket, async { 42 }).await?;
    /// assert_eq!(rows, 42);
    /// assert!(!api.is_locked("import", &7).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`adopt`](Self::adopt): then `body` has not begun, and [`Lost`](LockError::Lost) has `ticket: true`. `Lost` without that when
    /// the lock did not last until the end of `body`. A release that Redis does not answer is not an error.
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](LockRequest::run): dropping the future drops `body`, and then releases the lock in the background. The ticket is used
    /// up, if the server has executed the adoption.
    pub fn run_adopted<F: Future>(
        &self,
        ticket: LockTicket,
        body: F,
    ) -> impl Future<Output = Result<F::Output, LockError>> + use<F> {
        self.run_adopted_with(ticket, |request| request, body)
    }

    /// Like [`run_adopted`](Self::run_adopted), with other options for the hold, as for [`adopt_with`](Self::adopt_with).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let ticket = locks.lock("import", &7).acquire().await?.into_ticket(Duration::from_secs(60)).await?;
    /// let stuck = std::future::pending::<()>();
    /// let minutes = |request: lock_runtime::LockRequest| request.max_hold(Duration::from_secs(300));
    /// let stopped = locks.run_adopted_with(ticket, minutes, stuck).await;
    /// assert!(matches!(stopped, Err(LockError::Lost { max_hold: Some(_), .. })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`run_adopted`](Self::run_adopted) and [`adopt_with`](Self::adopt_with).
    ///
    /// # Cancel safety
    ///
    /// As for [`run_adopted`](Self::run_adopted).
    pub fn run_adopted_with<F: Future, O: FnOnce(LockRequest) -> LockRequest>(
        &self,
        ticket: LockTicket,
        options: O,
        body: F,
    ) -> impl Future<Output = Result<F::Output, LockError>> + use<F, O> {
        Held::run_under(self.adopting(ticket, options, true), body)
    }

    /// Releases the lock of a ticket before the ticket expires. Then the lock is free, or goes to the first waiter.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let ticket = locks.lock("import", &7).acquire().await?.into_ticket(Duration::from_secs(60)).await?;
    /// // The queue is full, so it will not be adopted.
    /// locks.release_ticket(ticket).await?;
    /// assert!(!locks.is_locked("import", &7).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) when the ticket has expired, was adopted, or its lock was released by force.
    /// [`Backend`](LockError::Backend) when the server did not answer, or refused; then the release is repeated in the background. Also
    /// when this future was polled so late that the keeper had repeated the release: then it is not known whether the ticket was adopted
    /// before. [`InvalidSetting`](LockError::InvalidSetting) on a quorum, before anything is sent.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lock is released in the background.
    pub fn release_ticket(&self, ticket: LockTicket) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let core = Arc::clone(self.core());
        cooperative(async move {
            check_command(&core, &ticket.key)?;
            core.store().kind().check(Feature::Tickets, "ticket")?;
            let release = Release::withdrawal(&ticket.key, &ticket.token, CLAIM);
            let unanswered = core.repeat_if_unread(release);
            let released = core.store().release_one(unanswered.release(), deadline(&core)).await;
            let ownership = released.map_err(|error| error.of_lock(ticket.key()))?;
            let is_first = unanswered.on_answer();
            if ownership == Ownership::Owned {
                return Ok(());
            }
            let key = ticket.key().to_owned();
            if is_first {
                return Err(LockError::Lost { key, completed: false, forced: false, max_hold: None, ticket: true });
            }
            mutant!(LateIsGivenBack => return Ok(()));
            Err(LockError::Backend { key, problem: BackendError::new(READ_LATE) })
        })
        .boxed()
    }
}

/// For `lockctl`: locks by their whole names, and each server by itself. Not part of the API: it may change with any version.
#[doc(hidden)]
impl LockManager {
    pub async fn inspect_named(&self, name: &str) -> Result<Option<LockInfo>, LockError> {
        self.inspect_full(key::whole_name(name)).await
    }

    /// With a label: only one permit, or the readers, of the manager that has this label.
    pub async fn force_release_named(&self, name: &str, label: Option<&str>) -> Result<bool, LockError> {
        self.force_release_full(key::whole_name(name), label).await
    }

    /// Whether `value` is that of a lock of this library.
    #[must_use]
    pub fn is_lock_value(value: &str) -> bool {
        let token = Token::foreign(value);
        token.label().is_some() || token.unforced().as_ref().unwrap_or(&token).as_str() == SHARED
    }

    /// The servers that keep locks: one, the masters of a cluster, or the servers of a quorum. None in memory.
    #[must_use]
    pub fn servers(&self) -> Vec<LockServer> {
        let links = match &**self.core().store() {
            AnyStore::Memory(_) => Vec::new(),
            #[cfg(feature = "testing")]
            AnyStore::Faulty(_) => Vec::new(),
            AnyStore::Redis(store) => store.nodes(),
            AnyStore::Quorum(quorum) => quorum.stores().flat_map(RedisStore::nodes).collect(),
        };
        links.into_iter().map(LockServer).collect()
    }
}

/// A server that keeps locks.
#[doc(hidden)]
#[derive(Clone)]
pub struct LockServer(Arc<Link>);

impl LockServer {
    /// Its address, without credentials.
    #[must_use]
    pub fn address(&self) -> &str {
        self.0.server()
    }

    /// Sends a command to this server, and returns its reply. The inner error is the server's refusal.
    ///
    /// # Errors
    ///
    /// When there is no connection to the server, or no answer in time.
    pub fn ask<'a>(
        &'a self,
        words: &'a [&'a str],
    ) -> impl Future<Output = Result<Result<redis::Value, BackendError>, BackendError>> + Send {
        let command = move |_: &Link| Outgoing::of(redis::Cmd::new().arg(words).clone());
        let asking = async move {
            match self.0.call(command, Deadline::after(self.0.command_timeout())).await {
                Ok(called) => Ok(Ok(called.value)),
                Err(error) if error.reach() == Reach::Refused => Ok(Err(problem(error))),
                Err(error) => Err(problem(error)),
            }
        };
        asking.boxed()
    }

    /// Why this server's grants do not count in its quorum, as far as its connection knows. `None` when they count, and for a server
    /// outside of a quorum.
    #[must_use]
    pub fn lacks_vote(&self) -> Option<BackendError> {
        lacks_vote(&self.0)
    }
}

impl fmt::Debug for LockServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockServer").field(&self.address()).finish()
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager").field("label", &self.core().label()).finish_non_exhaustive()
    }
}
