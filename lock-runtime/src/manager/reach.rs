//! What people and their tools ask of a manager: who has a lock, and to take it away.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::task::coop::cooperative;

use super::LockManager;
use crate::clock::Deadline;
use crate::local::Core;
use crate::lock_info::{LockInfo, LockMode};
use crate::store::{Feature, Forced, Seen, Store};
use crate::timing::CLAIM;
use crate::token::Token;
use crate::{LockError, LockKey, key, surroundings};

/// The pauses between looks at a lock whose holder was told to stop.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl LockManager {
    /// Who holds the lock `prefix:key`, for how long, and who waits for it. `None` when nobody holds it. It is one command to
    /// the server, and changes nothing there. A lock that [lingers](crate::LockRequest::linger) is shown under the process that
    /// keeps it, with `is_held_here` being `false` there.
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
        inspect(self.core(), self.name_of(prefix, key)?).await
    }

    /// Whether anybody holds the lock `prefix:key`. It is one command to the server, as for [`inspect`](Self::inspect).
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

    /// Takes the lock `prefix:key` from whoever holds it, and returns whether anybody held it. It is for people in an
    /// incident: prefer to end the process that holds the lock.
    ///
    /// The holder is told at once. Its body is stopped as by any loss, and its error says that the lock was released by
    /// force. Only then the next one gets the lock, or after 2.5 s at the latest. This call returns when the lock has left
    /// its holder.
    ///
    /// A holder that can't be told within 2.5 s, since it is stopped or cut off, may go on until it talks to the server again:
    /// it renews its lease after a third of it. A holder with another kind of client is never told, so its lock is free at
    /// once. Where a second writer would do harm, [fence](crate::LockRequest::fenced).
    ///
    /// What another program keeps under that name is deleted, also when it is no lock but data. [`inspect`](Self::inspect) tells before
    /// whether it has an end.
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
    /// Cancel safe: once the command was sent, the lock is taken away all the same.
    pub async fn force_release<K: LockKey + ?Sized>(&self, prefix: &str, key: &K) -> Result<bool, LockError> {
        force_release(self.core(), self.name_of(prefix, key)?).await
    }

    /// Whether the manager has its connections, as far as it knows: to the server, to each master of a cluster that it has
    /// asked, or to a majority of a quorum. It is local: nothing is sent. A manager in memory is always connected.
    ///
    /// It is for a readiness check. While there is no connection, a call inside a tokio runtime also has the manager connect
    /// again in the background. So a later call finds out that the server is back, even if nobody asks for a lock meanwhile.
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

    fn name_of<K: LockKey + ?Sized>(&self, prefix: &str, key: &K) -> Result<Arc<str>, LockError> {
        self.core().settings().full_name(key::name(prefix, key)?)
    }
}

/// Boxed, and so compiled here once, as [`force_release`] is.
pub(super) fn inspect(core: &Core, name: Arc<str>) -> BoxFuture<'_, Result<Option<LockInfo>, LockError>> {
    cooperative(async move {
        surroundings::check()?;
        refuse_fork(core, &name)?;
        let seen = core.store().inspect(&name, deadline(core)).await.map_err(|error| error.of_lock(&name))?;
        Ok(seen.map(|seen| info(core, &name, &seen)))
    })
    .boxed()
}

pub(super) fn force_release(core: &Core, name: Arc<str>) -> BoxFuture<'_, Result<bool, LockError>> {
    cooperative(async move {
        surroundings::check()?;
        refuse_fork(core, &name)?;
        if let Some(reason) = (core.store().kind().refuses)(Feature::Force) {
            return Err(LockError::setting("force_release", reason));
        }
        match core.store().force(&name, deadline(core)).await.map_err(|error| error.of_lock(&name))? {
            Forced::Free => return Ok(false),
            Forced::Gone => {}
            Forced::Leaving(mark) => wait_until_left(core, &name, &mark).await,
        }
        Ok(true)
    })
    .boxed()
}

/// Waits until the lock has left the holder that was told to stop: for a claim and a bit, because then the lock has ended.
async fn wait_until_left(core: &Core, name: &str, mark: &Token) {
    let end = Deadline::after(CLAIM + 2 * LONGEST_PAUSE);
    let mut pause = FIRST_LOOK;
    loop {
        let seen = core.store().inspect(name, deadline(core)).await;
        // Without an answer the lock ends by its own time.
        if seen.is_ok_and(|seen| seen.is_none_or(|seen| seen.owner != *mark)) || end.has_passed() {
            return;
        }
        tokio::time::sleep(pause.min(end.remaining())).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn info(core: &Core, name: &str, seen: &Seen) -> LockInfo {
    let mut owners: Vec<&Token> = seen.sharing.iter().map(|(_, token)| token).collect();
    if owners.is_empty() {
        owners.push(&seen.owner);
    }
    let mut holders: Vec<String> = owners.iter().filter_map(|owner| owner.label()).collect();
    holders.sort_unstable();
    let is_held_here = !core.lingers(name) && owners.iter().any(|owner| core.is_own_token(owner) && !owner.rests());
    LockInfo {
        key: name.to_owned(),
        holder: holders.first().cloned(),
        holders,
        remaining: seen.frees_in.unwrap_or(Duration::MAX),
        waiting: seen.waiting.iter().map(|token| token.label().unwrap_or_default()).collect(),
        mode: mode_of(seen),
        is_held_here,
        rests: owners.iter().all(|owner| owner.rests()),
        awaits_adopter: owners.iter().all(|owner| owner.is_ticket()),
        is_forced: seen.owner.unforced().is_some(),
    }
}

fn mode_of(seen: &Seen) -> LockMode {
    let permits = seen.sharing.iter().filter_map(|(share, _)| share.permits());
    match permits.min() {
        Some(of) => LockMode::Permits { of },
        None if seen.sharing.is_empty() => LockMode::Exclusive,
        None => LockMode::Read,
    }
}

pub(super) fn refuse_fork(core: &Core, name: &str) -> Result<(), LockError> {
    if core.is_inherited() { Err(LockError::Forked { key: name.to_owned() }) } else { Ok(()) }
}

pub(super) fn deadline(core: &Core) -> Deadline {
    Deadline::after(core.settings().command_timeout)
}
