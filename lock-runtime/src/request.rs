//! [`LockRequest`]: one lock that a user asks for, its options, and the ways to ask.

use std::time::Duration;

use crate::blocking::Blocking;
use crate::engine::Engine;
use crate::held::Held;
use crate::opaque::Opaque;
use crate::options::LockOptions;
use crate::{LockError, LockGuard, OnBusy, OnLost};

/// A request for a lock, made by [`LockManager::lock`](crate::LockManager::lock).
///
/// Nothing happens before [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) or [`run`](Self::run) is
/// awaited. A mistake in the key or the settings is reported there.
///
/// ```
/// # use std::time::Duration;
/// # use lock_runtime::{LockError, LockManager};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// let request = locks.lock("import", "products").timeout(Duration::ZERO).expire(Duration::from_secs(60));
/// match request.run(async { "imported" }).await {
///     Ok(done) => println!("{done}"),
///     Err(error) if error.is_timeout() => println!("another replica imports already"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a request locks nothing until `acquire`, `try_acquire` or `run` is awaited"]
pub struct LockRequest {
    pub(crate) engine: Opaque<Engine>,
    pub(crate) options: LockOptions,
}

impl LockRequest {
    /// How long to wait for the lock. Zero tries once. By default the
    /// [`default_timeout`](crate::Builder::default_timeout) of the manager (2 s).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let _guard = locks.lock("p", "k").acquire().await?;
    /// let late = locks.lock("p", "k").timeout(Duration::from_millis(20)).acquire().await;
    /// assert!(matches!(late, Err(LockError::Timeout { waited, .. }) if waited >= Duration::from_millis(20)));
    /// # Ok(()) }
    /// ```
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { options: self.options.timeout(timeout), ..self }
    }

    /// The lease: how long a crashed holder keeps others out. By default the
    /// [`default_expire`](crate::Builder::default_expire) of the manager (30 s). From 10 ms to one year.
    ///
    /// The lease does not limit how long a healthy holder may take. It is renewed until the lock is released, unless
    /// [`renew(false)`](Self::renew) is set.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("p", "k").expire(Duration::from_millis(50)).acquire().await?;
    /// tokio::time::sleep(Duration::from_millis(120)).await;
    /// assert!(guard.is_valid(), "the lease was renewed");
    /// # Ok(()) }
    /// ```
    pub fn expire(self, expire: Duration) -> Self {
        Self { options: self.options.expire(expire), ..self }
    }

    /// How long this process keeps the lock after this hold, for its next hold. By default the [`linger`](crate::Builder::linger) of the
    /// manager (zero). At most 2 s. It is rounded up to a hundredth of a second.
    ///
    /// Set it for a key that this process locks often, and others seldom. The next hold then starts without a command to the server.
    /// Another process that waits for the lock gets it at once. Clients that only look at the key, such as `SET … NX` by hand, find the
    /// lock taken until the time is over.
    ///
    /// Readers keep the lease that they share, for the next [`read`](Self::read) of this process. With [`permits`](Self::permits), and for
    /// a reader with its own lease (`renew(false)`, `max_hold`, `at_least`), acquiring fails with [`LockError::InvalidSetting`]. No other
    /// process could use a permit that is kept, and no other hold could use such a reader's lease.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let hot = || locks.lock("stock", &7).linger(Duration::from_millis(500));
    /// hot().run(async { "asks the server" }).await?;
    /// hot().run(async { "does not" }).await?;
    /// assert_eq!(locks.stats().lingering, 1);
    /// # Ok(()) }
    /// ```
    pub fn linger(self, linger: Duration) -> Self {
        Self { options: self.options.linger(linger), ..self }
    }

    /// Whether the lease is renewed while the lock is held. By default it is.
    ///
    /// Without renewal the hold ends with its lease. Then a body under the lock is stopped, and its caller gets
    /// [`LockError::Lost`](crate::LockError::Lost).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let forever = std::future::pending::<()>();
    /// let limited = locks.lock("p", "k").expire(Duration::from_millis(30)).renew(false).run(forever).await;
    /// assert!(matches!(limited, Err(LockError::Lost { completed: false, .. })));
    /// # Ok(()) }
    /// ```
    pub fn renew(self, renew: bool) -> Self {
        Self { options: self.options.renew(renew), ..self }
    }

    /// The longest time that the lock may be held. By default the [`default_max_hold`](crate::Builder::default_max_hold) of the manager (no
    /// limit). From 10 ms to one year.
    ///
    /// The lease is not renewed beyond it. Then the lock is lost: a body under it is stopped, and its caller gets
    /// [`LockError::Lost`](crate::LockError::Lost) with `max_hold`. The time counts from the start of the hold.
    ///
    /// With [`renew(false)`](Self::renew) the hold ends with its lease or with this time, whichever is first.
    /// [`LockGuard::extend`](crate::LockGuard::extend) refuses to go beyond this time. A body that enters the lock of an outer body has the
    /// outer hold's time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let forever = std::future::pending::<()>();
    /// let stuck = locks.lock("import", "products").max_hold(Duration::from_secs(300)).run(forever).await;
    /// assert!(matches!(stuck, Err(LockError::Lost { completed: false, max_hold: Some(_), .. })));
    /// # Ok(()) }
    /// ```
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self { options: self.options.max_hold(max_hold), ..self }
    }

    /// How long others are kept out at least, counted from the start of the hold. By default zero.
    ///
    /// No other process or task gets the lock before that, even when the work ends sooner, fails, or its process dies. It is for jobs that
    /// several processes start at about the same time and that must run once: set a time a little less than the period, and a
    /// [`timeout`](Self::timeout) of zero.
    ///
    /// - The lease is confirmed for at least this time before the hold starts. So it costs one round trip more when it is longer
    ///   than about 2 s, and with a timeout of zero both answers must fit into one command timeout.
    /// - A holder that crashes in its work keeps others out for the longer of this time and [`expire`](Self::expire).
    /// - When the work ends sooner, the lock *rests* for the remaining time, even when the manager is then shut down or the process dies.
    ///   It has no holder meanwhile: [`LockInfo::rests`](crate::LockInfo::rests).
    /// - Work that takes longer is not limited, and the lock is released at its end.
    /// - For a body that enters the lock of an outer body the time counts from its own start.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let job = || locks.lock("report", "daily").timeout(Duration::ZERO).at_least(Duration::from_secs(50));
    /// job().run(async { "written" }).await?;
    /// assert!(job().try_acquire().await?.is_none(), "it has run in this period");
    /// tokio::time::sleep(Duration::from_secs(60)).await;
    /// job().run(async { "written" }).await?;
    /// # Ok(()) }
    /// ```
    pub fn at_least(self, at_least: Duration) -> Self {
        Self { options: self.options.at_least(at_least), ..self }
    }

    /// How long the lock rests after a body that was dropped before its end. By default the
    /// [`default_lock_delay`](crate::Builder::default_lock_delay) of the manager (zero). At most one year.
    ///
    /// Such a body may have sent a write that has not arrived: its caller went away, it panicked or exceeded its
    /// [`max_hold`](Self::max_hold), a newer request [replaced](Self::on_busy) it, or the lock was taken by force. Set the longest time
    /// that a write may take: meanwhile no process gets the lock, this one included. A body that ends by itself releases the lock at once.
    ///
    /// - It applies to [`run`](Self::run) and the attribute. A guard's owner releases it, also by dropping it: then the lock is free at
    ///   once.
    /// - The lease of a *lost* lock is over, and others may already have it: [fence](Self::fenced) where a late write must not count. When
    ///   the process dies, only the rest of its lease keeps others out.
    /// - A request that replaces also waits until the rest is over, within its timeout. A second
    ///   [`force_release`](crate::LockManager::force_release) ends the rest. A permit that was taken by force does not rest.
    /// - A body that enters the lock of an outer body has the outer body's delay.
    /// - It costs nothing as long as no body is dropped.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let write = || locks.lock("account", &7).lock_delay(Duration::from_secs(5));
    /// let slow = write().run(std::future::pending::<()>());
    /// assert!(tokio::time::timeout(Duration::from_millis(20), slow).await.is_err(), "its caller went away");
    /// assert!(write().try_acquire().await?.is_none(), "the write may still arrive");
    /// tokio::time::sleep(Duration::from_secs(6)).await;
    /// write().run(async {}).await?;
    /// write().run(async { "free at once after a body that has ended" }).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Reported when the request is awaited: [`InvalidSetting`](LockError::InvalidSetting) for more than a year, and for a reader.
    pub fn lock_delay(self, delay: Duration) -> Self {
        Self { options: self.options.lock_delay(delay), ..self }
    }

    /// A text that is shown with the manager's label while this request has the lock: who or what holds it, and why. By default none. At
    /// most 128 bytes. An empty note is none.
    ///
    /// Others see it in [`LockError::Timeout`](crate::LockError::Timeout), in [`LockInfo::note`](crate::LockInfo::note) and in `lockctl`;
    /// it is also a field of the hold's span. It is part of the lock's value in Redis, so whoever may read the key can read it: put no
    /// secret into it. It costs no command.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().label("worker-3").in_memory();
    /// let other = LockManager::builder().in_memory_with(&locks)?;
    /// let _guard = locks.lock("import", &7).note("products.csv for ada").acquire().await?;
    /// let busy = other.lock("import", &7).timeout(Duration::from_millis(20)).acquire().await.unwrap_err();
    /// assert!(busy.to_string().ends_with("(held by worker-3: products.csv for ada)"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Reported when the request is awaited: [`InvalidSetting`](LockError::InvalidSetting) for a longer note, and for one with control
    /// characters.
    pub fn note(self, note: &str) -> Self {
        Self { options: self.options.note(note), ..self }
    }

    /// Whether the hold draws a fencing token. By default it does not. The token is in [`LockGuard::fencing_token`].
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let first = locks.lock("p", "k").fenced(true).acquire().await?.fencing_token();
    /// let second = locks.lock("p", "k").fenced(true).acquire().await?.fencing_token();
    /// assert!(second > first, "the token grows from hold to hold");
    /// # Ok(()) }
    /// ```
    pub fn fenced(self, fenced: bool) -> Self {
        Self { options: self.options.fenced(fenced), ..self }
    }

    /// Asks for the lock as a reader: together with other readers, and never with an exclusive holder.
    ///
    /// Readers that arrive after a waiting writer wait for it, in this process and in others, and those that wait are next after it. A
    /// request without a mode is a writer. The readers of one process share one lease, so a lock that is read all the time costs no
    /// command.
    ///
    /// Inside a body that reads or writes under this lock, a body that reads starts at once. A writer inside a reader would wait
    /// for itself, and is refused: [`AlreadyHeld`](LockError::AlreadyHeld).
    ///
    /// A reader that is not [renewed](Self::renew) has its own lease, which costs a command.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let one = locks.lock("catalog", "books").read().acquire().await?;
    /// let other = locks.lock("catalog", "books").read().acquire().await?;
    /// assert!(locks.lock("catalog", "books").try_acquire().await?.is_none(), "a writer waits for both");
    /// # drop((one, other));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Reported when the request is awaited: [`InvalidSetting`](LockError::InvalidSetting) together with [`permits`](Self::permits), and on
    /// a quorum, before anything is sent.
    pub fn read(self) -> Self {
        Self { options: self.options.read(), ..self }
    }

    /// Asks for one of `permits` permits: at most this number of tasks hold the lock at once, over all processes. Each has its own lease.
    ///
    /// When requests for one lock name different numbers, each is granted only while fewer than its own number are held. The readers of one
    /// process count as one, since they share one lease. A request without permits waits until all are released, and then has the lock
    /// alone.
    ///
    /// A body inside a body with a permit of the same lock starts at once, with the permit of the outer body.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let one = locks.lock("render", "acme").permits(2).acquire().await?;
    /// let other = locks.lock("render", "acme").permits(2).acquire().await?;
    /// assert!(locks.lock("render", "acme").permits(2).try_acquire().await?.is_none(), "both are taken");
    /// # drop((one, other));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Reported when the request is awaited: [`InvalidSetting`](LockError::InvalidSetting) for zero, together with [`read`](Self::read),
    /// and on a quorum, before anything is sent.
    pub fn permits(self, permits: u32) -> Self {
        Self { options: self.options.permits(permits), ..self }
    }

    /// What the request does when the lock is held. By default it waits behind earlier requests.
    ///
    /// With [`OnBusy::Replace`] it takes the lock from its holder, as [`force_release`](crate::LockManager::force_release) does. The holder
    /// gets a message at once: its body is dropped, its caller gets [`Lost`](LockError::Lost) with `forced`, and only then does this
    /// request get the lock. Meanwhile it waits in front of all others, within its [`timeout`](Self::timeout).
    ///
    /// Of several requests that replace, only the newest ever runs. An older one that still waits fails with the same error, at the latest
    /// when it asks again, a second later.
    ///
    /// A holder that is dead, stopped or cut off has 2.5 s to stop. The default timeout is 2 s: to get the lock from such a holder, a
    /// request needs more.
    ///
    /// A holder that the message does not reach within 2.5 s may overlap with the next one, as after a release by force: where a second
    /// writer would do harm, [fence](Self::fenced). A closure of [`run_blocking`](Self::run_blocking) can't be dropped: it runs to its end,
    /// or its lease ends. Inside a body that holds this lock, the request enters it again and replaces no holder.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager, OnBusy};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let export = |number| {
    ///     let work = async move { tokio::time::sleep(Duration::from_secs(1)).await; number };
    ///     locks.lock("export", &7).on_busy(OnBusy::Replace).run(work)
    /// };
    /// let (older, newer) = tokio::join!(export(1), export(2));
    /// assert!(matches!(older, Err(LockError::Lost { completed: false, forced: true, .. })));
    /// assert_eq!(newer?, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Reported when the request is awaited, before anything is sent: [`InvalidSetting`](LockError::InvalidSetting) with
    /// [`read`](Self::read), [`permits`](Self::permits), several keys, a timeout of zero, and on a quorum.
    pub fn on_busy(self, on_busy: OnBusy) -> Self {
        Self { options: self.options.on_busy(on_busy), ..self }
    }

    /// What happens to a body in [`run`](Self::run) when its lock is lost. By default [`OnLost::Cancel`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager, OnLost};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let request = locks.lock("p", "k").expire(Duration::from_millis(20)).renew(false).on_lost(OnLost::Continue);
    /// let outcome = request.run(tokio::time::sleep(Duration::from_millis(60))).await;
    /// assert!(matches!(outcome, Err(LockError::Lost { completed: true, .. })));
    /// # Ok(()) }
    /// ```
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        Self { options: self.options.on_lost(on_lost), ..self }
    }

    /// The lock's name in Redis, namespace included. Nothing is sent.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// let locks = LockManager::builder().namespace("shop").in_memory();
    /// assert_eq!(locks.lock("seat", &("ICE 71", 12)).key()?, "shop:seat:ICE 71:12");
    /// assert!(matches!(locks.lock("seat", "").key(), Err(LockError::InvalidKey { .. })));
    /// let expire = std::time::Duration::ZERO;
    /// assert!(matches!(locks.lock("seat", &12).expire(expire).key(), Err(LockError::InvalidSetting { .. })));
    /// # Ok::<(), LockError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidKey`](LockError::InvalidKey) when the value can't name a lock, and
    /// [`InvalidSetting`](LockError::InvalidSetting) for a setting that is out of its bounds.
    pub fn key(&self) -> Result<String, LockError> {
        let (request, set) = self.options.resolve(self.engine.core().settings(), false)?;
        Ok(set.as_ref().and_then(|set| set.first_key()).unwrap_or(&request.key).to_string())
    }

    /// Waits for the lock and returns the guard that holds it. Prefer [`run`](Self::run) where the work is one future:
    /// nothing stops the work under a guard when the lock is lost.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let guard = locks.lock("cart", "ada").acquire().await?;
    /// // …read, change, write…
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Timeout`](LockError::Timeout) when the lock stayed busy.
    /// - [`Backend`](LockError::Backend) when Redis could not be reached before the timeout.
    /// - [`InvalidKey`](LockError::InvalidKey) or [`InvalidSetting`](LockError::InvalidSetting), before anything is
    ///   sent.
    /// - [`TooManyWaiters`](LockError::TooManyWaiters) when the manager's limit of waiters is reached.
    /// - [`AlreadyHeld`](LockError::AlreadyHeld) inside a body that holds this same lock.
    /// - [`TooFewReplicas`](LockError::TooFewReplicas) with [`Builder::min_replicas`](crate::Builder::min_replicas).
    /// - [`Lost`](LockError::Lost) with `forced` when it [replaces](Self::on_busy) the holder, and a newer request arrived before it had
    ///   the lock.
    /// - [`ShutDown`](LockError::ShutDown) when the manager is shut down. A body that the shutdown waits for can [still
    ///   acquire](crate::LockManager::shutdown) locks.
    /// - [`Forked`](LockError::Forked) in a child of the process that made the manager.
    ///
    /// Each of them is returned 100 ms after the timeout at the latest. With a timeout of zero it is returned when the server answers,
    /// after the [`command_timeout`](crate::Builder::command_timeout) at the latest.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future gives up the place in the queue, and withdraws the ask from Redis.
    pub fn acquire(self) -> impl Future<Output = Result<LockGuard, LockError>> {
        self.options.acquire(self.engine)
    }

    /// Tries once and returns `None` when the lock is held.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let Some(_guard) = locks.lock("cleanup", "hourly").try_acquire().await? else {
    ///     return Ok(()); // Another replica cleans up.
    /// };
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire) with a timeout of zero, without `Timeout`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Option<LockGuard>, LockError> {
        match self.timeout(Duration::ZERO).acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for the lock, runs `body` under it, and releases it. `#[cache_lock]` expands to this.
    ///
    /// The deadline of the lock is checked before every poll of `body`.
    ///
    /// When the running task already holds this same lock, inside another `run`, `body` starts at once. It borrows the
    /// deadline and the fencing token of the outer hold. Joined, selected and buffered futures belong to the same task.
    /// Spawned futures do not, not even when an executor inside the outer body polls them.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let inner = locks.lock("order", &7).run(async { "enters the lock of the outer body" });
    /// let outer = locks.lock("order", &7).run(inner).await??;
    /// assert!(outer.starts_with("enters"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire) (except `AlreadyHeld`), and [`Lost`](LockError::Lost) when the lock did not last
    /// until the end of `body`. A release that Redis does not answer is not an error: the work was done under the lock,
    /// and the release is repeated in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `body` and then releases the lock in the background. What `body` has already sent may still arrive when
    /// the next holder has begun. [Fence](Self::fenced) what must not be written late.
    pub fn run<F: Future>(self, body: F) -> impl Future<Output = Result<F::Output, LockError>> {
        Held::run_under(self.options.enter(Some(self.engine)), body)
    }

    /// Like [`acquire`](Self::acquire), for a thread without a runtime: it waits on the calling thread.
    ///
    /// It needs no runtime: plain threads, `spawn_blocking`, and rayon jobs that do not wait in their pool may call it. The guard is
    /// released when it is dropped.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// let locks = LockManager::in_memory();
    /// let worker = std::thread::spawn(move || {
    ///     let _guard = locks.lock("catalog", "all").acquire_blocking()?;
    ///     // …read, change, write…
    ///     Ok::<_, LockError>(())
    /// });
    /// assert!(worker.join().is_ok_and(|outcome| outcome.is_ok()));
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`InAsyncTask`](LockError::InAsyncTask) in an async task, whose thread must not wait.
    pub fn acquire_blocking(self) -> Result<LockGuard, LockError> {
        Ok(Blocking::enter(&mut self.options.entry(Some(self.engine), false)?, false)?.held.guard)
    }

    /// Like [`run`](Self::run), for a thread without a runtime: it waits on the calling thread, and runs `body` there. `#[cache_lock]` on a
    /// fn that is not async expands to this.
    ///
    /// A closure can't be stopped. When it loses the lock, it runs to its end, and its caller gets [`Lost`](LockError::Lost) with
    /// `completed: true`. The lock is released when the closure ends, or expires with its lease. A call for the same lock on the same
    /// thread enters it.
    ///
    /// ```
    /// # use lock_runtime::{LockError, LockManager};
    /// let locks = LockManager::in_memory();
    /// let sum = locks.lock("account", &42).run_blocking(|| 40 + 2)?;
    /// assert_eq!(sum, 42);
    /// # Ok::<_, LockError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`InAsyncTask`](LockError::InAsyncTask) in an async task, whose thread must not wait.
    ///
    /// # Panics
    ///
    /// When `body` panics. The lock is released.
    pub fn run_blocking<T>(self, body: impl FnOnce() -> T) -> Result<T, LockError> {
        let held = Blocking::enter(&mut self.options.entry(Some(self.engine), true)?, true)?;
        let outcome = held.held.run(body);
        held.finish(outcome)
    }
}
