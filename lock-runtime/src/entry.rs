//! [`Entry`]: from a request to a guard or a held body. A lock that the running task holds already is entered again.

use std::sync::Arc;

use crate::clock::Deadline;
use crate::engine::Engine;
use crate::held::Held;
use crate::local::{ResolvedRequest, answer_time};
use crate::scope::Frame;
use crate::{LockError, LockGuard, OnLost};

/// A request and its manager. The futures that wait borrow the entry: each move of it would take room in all these
/// futures.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) engine: Arc<Engine>,
    pub(crate) request: ResolvedRequest,
    pub(crate) on_lost: OnLost,
}

impl Entry {
    pub(crate) async fn acquire(&self) -> Result<LockGuard, LockError> {
        let Self { engine, request, .. } = self;
        if Frame::find(|hold| hold.is_of(engine.core(), &request.key)).is_some() {
            return Err(LockError::AlreadyHeld { key: request.key.to_string() });
        }
        engine.acquire(request).await.map(LockGuard::owning)
    }

    pub(crate) async fn enter(&self) -> Result<Held, LockError> {
        let Self { engine, request, .. } = self;
        if let Some(frame) = Frame::find(|hold| hold.is_of(engine.core(), &request.key)) {
            // Boxed: most calls never get here, and need no room for it.
            return Box::pin(self.reenter(frame)).await;
        }
        let guard = LockGuard::owning(engine.acquire(request).await?);
        Ok(Held::new(guard, self.on_lost, None))
    }

    /// Enters the hold of an outer body. Joined calls enter it one after another.
    async fn reenter(&self, outer: Arc<Frame>) -> Result<Held, LockError> {
        let Self { engine, request, on_lost } = self;
        let settings = engine.core().settings();
        let give_up = Deadline::after(request.timeout);
        let inner = outer.inner();
        let turn = match Arc::clone(&inner).try_lock_owned() {
            Ok(turn) => turn,
            Err(_) => tokio::time::timeout(give_up.remaining(), inner.lock_owned())
                .await
                .map_err(|_| behind_itself(request, &settings.label))?,
        };
        let deadline = Deadline::after(answer_time(give_up.remaining(), settings.command_timeout));
        let handle = outer.hold().borrow(request.fenced, deadline).await?;
        Ok(Held::new(LockGuard::borrowing(handle), *on_lost, Some(turn)))
    }
}

/// The error of a nested call when a joined sibling kept the lock that both calls had entered.
fn behind_itself(request: &ResolvedRequest, label: &str) -> LockError {
    let (key, holder) = (request.key.to_string(), Some(label.to_owned()));
    LockError::Timeout { key, waited: request.timeout, holder, held_here: true, frees_in: None }
}
