//! Locks that wait for their adopters.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::task::coop::cooperative;

use super::LockManager;
use super::reach::{deadline, refuse_fork};
use crate::options::LockOptions;
use crate::store::{Feature, Ownership, Release, Store as _, StoreError};
use crate::timing::CLAIM;
use crate::{BackendError, LockError, LockGuard, LockRequest, LockTicket, surroundings};

impl LockManager {
    /// Takes over the lock of a ticket: another process gave it away by [`LockGuard::into_ticket`], or this one did.
    ///
    /// Nobody else had the lock in between. Exactly one adoption of a ticket succeeds. From then on the hold is an ordinary one, with
    /// the default options of this manager: it is renewed, for example. [`adopt_with`](Self::adopt_with) sets others.
    ///
    /// It waits for nobody. The manager's default timeout is for a server that does not answer.
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
    /// - [`Lost`](LockError::Lost) when the ticket's time is over, it was adopted or given back, or its lock was released by force.
    /// - [`Backend`](LockError::Backend) when the server did not answer within the timeout, or refused. Perhaps it has executed the
    ///   command: then the lock is released, and the ticket is used up. Otherwise the ticket is still good.
    /// - [`InvalidSetting`](LockError::InvalidSetting) on a quorum, before anything is sent.
    /// - [`TooFewReplicas`](LockError::TooFewReplicas), [`ShutDown`](LockError::ShutDown), [`Forked`](LockError::Forked) as for
    ///   [`acquire`](LockRequest::acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the lock: the ticket is used up, if the server has executed the command.
    pub fn adopt(&self, ticket: LockTicket) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
        self.adopting(ticket, |request| request)
    }

    /// The same as [`adopt`](Self::adopt) with other options for the hold. The fencing token is larger than that of the giver.
    ///
    /// The ticket says how the lock is held: alone, or with one of so many permits. So [`read`](LockRequest::read) and another number
    /// of [`permits`](LockRequest::permits) are [`InvalidSetting`](LockError::InvalidSetting). [`on_busy`](LockRequest::on_busy) has
    /// no effect.
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
        self.adopting(ticket, options)
    }

    fn adopting(
        &self,
        ticket: LockTicket,
        options: impl FnOnce(LockRequest) -> LockRequest,
    ) -> BoxFuture<'static, Result<LockGuard, LockError>> {
        let request = LockRequest::new(self.engine.clone(), LockOptions::of_whole_name(ticket.key()));
        options(request).into_options().adopt(self.engine.clone(), ticket)
    }

    /// Gives back the lock of a ticket before its time is over: it is free, or passed on to who waits.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lock_runtime::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::in_memory();
    /// let ticket = locks.lock("import", &7).acquire().await?.into_ticket(Duration::from_secs(60)).await?;
    /// // The queue is full, so nobody will adopt it.
    /// locks.release_ticket(ticket).await?;
    /// assert!(!locks.is_locked("import", &7).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) when the ticket's time is over, it was adopted, or its lock was released by force.
    /// [`Backend`](LockError::Backend) when the server did not answer, or refused; then the release is repeated in the background. Also
    /// when this future was polled so late that the keeper has repeated the release: which of the two was first is not known.
    /// [`InvalidSetting`](LockError::InvalidSetting) on a quorum, before anything is sent.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the lock is given back in the background.
    pub fn release_ticket(&self, ticket: LockTicket) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        self.releasing_ticket(ticket)
    }

    /// Boxed, and so compiled here once.
    fn releasing_ticket(&self, ticket: LockTicket) -> BoxFuture<'static, Result<(), LockError>> {
        let core = Arc::clone(self.core());
        cooperative(async move {
            surroundings::check()?;
            refuse_fork(&core, ticket.name())?;
            if let Some(reason) = (core.store().kind().refuses)(Feature::Tickets) {
                return Err(LockError::setting("ticket", reason));
            }
            let release = Release::withdrawal(ticket.name(), ticket.token(), CLAIM);
            let unanswered = core.repeat_if_unread(release);
            let released = core.store().release_one(unanswered.release(), deadline(&core)).await;
            let released = released.map_err(|error| error.of_lock(ticket.key()))?;
            match (released.ownership, unanswered.on_answer()) {
                (Ownership::Owned, _) => Ok(()),
                (_, true) => Err(lost(&ticket)),
                (_, false) => {
                    mutant!(LateIsGivenBack => return Ok(()));
                    Err(StoreError::later(BackendError::new(READ_LATE)).of_lock(ticket.key()))
                }
            }
        })
        .boxed()
    }
}

const READ_LATE: &str = "the answer was read so late that the release had been repeated: the ticket is over, but whether it was adopted \
                         before is not known";

fn lost(ticket: &LockTicket) -> LockError {
    LockError::Lost { key: ticket.key().to_owned(), completed: false, forced: false, max_hold: None, ticket: true }
}
