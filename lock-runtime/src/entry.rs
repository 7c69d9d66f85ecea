//! [`Entry`]: from a request to a guard or a held body; a lock that the task holds already is entered again.

use std::sync::Arc;

use crate::clock::Deadline;
use crate::engine::Engine;
use crate::held::Held;
use crate::local::{Terms, answer_time};
use crate::scope::Frame;
use crate::{LockError, LockGuard, OnLost};

/// What is asked of which manager: the way into a lock. The futures that wait borrow it: each move of it would be room in every one of them.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) engine: Arc<Engine>,
    pub(crate) terms: Terms,
    pub(crate) on_lost: OnLost,
}

impl Entry {
    pub(crate) async fn acquire(&self) -> Result<LockGuard, LockError> {
        let Self { engine, terms, .. } = self;
        if Frame::find(|hold| hold.is_of(engine.core(), &terms.key)).is_some() {
            return Err(LockError::AlreadyHeld { key: terms.key.to_string() });
        }
        engine.acquire(terms).await.map(LockGuard::owning)
    }

    pub(crate) async fn enter(&self) -> Result<Held, LockError> {
        let Self { engine, terms, .. } = self;
        if let Some(frame) = Frame::find(|hold| hold.is_of(engine.core(), &terms.key)) {
            // Boxed, for the sake of the many that don't get here.
            return Box::pin(self.reenter(frame)).await;
        }
        let guard = LockGuard::owning(engine.acquire(terms).await?);
        Ok(Held::new(guard, self.on_lost, None))
    }

    /// Enters the hold of an outer body, one joined call after another.
    async fn reenter(&self, outer: Arc<Frame>) -> Result<Held, LockError> {
        let Self { engine, terms, on_lost } = self;
        let settings = engine.core().settings();
        let give_up = Deadline::after(terms.timeout);
        let inner = outer.inner();
        let turn = match Arc::clone(&inner).try_lock_owned() {
            Ok(turn) => turn,
            Err(_) => tokio::time::timeout(give_up.remaining(), inner.lock_owned())
                .await
                .map_err(|_| behind_itself(terms, &settings.label))?,
        };
        let by = Deadline::after(answer_time(give_up.remaining(), settings.command_timeout));
        let view = outer.hold().borrowed(terms.fenced, by).await?;
        Ok(Held::new(LockGuard::borrowing(view), *on_lost, Some(turn)))
    }
}

/// The error of a nested call whose joined sibling kept the lock that both of them entered.
fn behind_itself(terms: &Terms, label: &str) -> LockError {
    LockError::Timeout { key: terms.key.to_string(), waited: terms.timeout, holder: Some(label.to_owned()) }
}
