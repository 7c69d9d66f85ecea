//! [`Ours`]: the lock of this project as the checker sees any lock.

use std::time::Duration;

use lock_runtime::{LockError, LockGuard, LockManager};

use super::plan::MAX_LEASE;
use history::{Failure, Hold, Lock, Place, Wanted};

/// For how long half of the locks are kept for the next hold.
pub(super) const LINGER: Duration = Duration::from_millis(500);

/// A manager.
#[derive(Debug)]
pub struct Ours {
    manager: LockManager,
    /// Half of the locks linger.
    lingers: bool,
}

impl From<LockManager> for Ours {
    fn from(manager: LockManager) -> Self {
        Self { manager, lingers: false }
    }
}

impl Lock for Ours {
    type Hold = Held;
    const DROPS: bool = true;
    const TELLS: bool = true;
    const QUEUES: bool = true;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        let builder = LockManager::builder().url(&place.url).label(&place.label);
        builder.connect().await.map(|manager| Self { manager, lingers: true }).map_err(failure)
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let (prefix, key) = key.split_once(':').expect("a prefix and a key");
        let mut request = self.manager.lock(prefix, key).timeout(wanted.timeout()).expire(wanted.expire());
        if self.lingers && key.ends_with(['0', '2', '4', '6', '8']) {
            request = request.linger(LINGER);
        }
        request.renew(wanted.renew).fenced(wanted.fenced).acquire().await.map(Held).map_err(failure)
    }

    async fn close(&self) {
        self.manager.shutdown().await;
    }
}

/// The same on a quorum, with a `max_lease` that suits a round.
#[derive(Debug)]
pub struct OnQuorum(Ours);

impl Lock for OnQuorum {
    type Hold = Held;
    const DROPS: bool = true;
    const TELLS: bool = true;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        let longest = Duration::from_millis(MAX_LEASE);
        let builder = LockManager::builder().url(&place.url).label(&place.label);
        let manager = builder.default_expire(longest).max_lease(longest).connect().await;
        manager.map(|manager| Self(manager.into())).map_err(failure)
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        self.0.acquire(key, wanted).await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// A guard.
#[derive(Debug)]
pub struct Held(LockGuard);

impl Hold for Held {
    fn remaining(&self) -> Option<Duration> {
        Some(self.0.remaining())
    }

    fn fence(&self) -> Option<u64> {
        self.0.fencing_token().map(u64::from)
    }

    async fn extend(&self, lease: Duration) -> Result<(), Failure> {
        self.0.extend(lease).await.map_err(failure)
    }

    async fn release(self) -> Result<(), Failure> {
        self.0.release().await.map_err(failure)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn failure(error: LockError) -> Failure {
    let text = error.to_string();
    match error {
        LockError::Timeout { .. } => Failure::Busy(text),
        LockError::Lost { .. } => Failure::Lost(text),
        LockError::Backend { .. } | LockError::Connect { .. } | LockError::TooFewReplicas { .. } => {
            Failure::Unreachable(text)
        }
        _ => Failure::Other(text),
    }
}
