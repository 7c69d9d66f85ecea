//! [`Ours`]: this project's lock as a [`Lock`] of the checker.

use std::time::Duration;

use lock_runtime::{Builder, LockError, LockGuard, LockManager, LockRequest};

use super::passwords::PasswordFile;
use super::plan::{MAX_LEASE, Plan};
use super::report::Report;
use super::round::{Setting, round};
use super::strike;
use super::worker::{Role, serve};
use history::{Bounds, Failure, Hold, Lock, Place, Share, Wanted};

/// One round with this lock, at the plan's place.
#[must_use]
pub fn play(plan: &Plan, setting: Setting<'_>) -> Report {
    match plan.place {
        strike::Place::Quorum => round::<OnQuorum>(plan, setting),
        _ => round::<Ours>(plan, setting),
    }
}

/// The bounds to check under this plan.
#[must_use]
pub fn bounds(plan: &Plan) -> Bounds {
    match plan.place {
        strike::Place::Quorum => plan.bounds::<OnQuorum>(),
        _ => plan.bounds::<Ours>(),
    }
}

/// Runs a worker with the parent process's role.
pub fn work(role: &str) {
    let role = Role::read(role);
    match role.plan.place {
        strike::Place::Quorum => serve::<OnQuorum>(&role),
        _ => serve::<Ours>(&role),
    }
}

/// How long half of the locks linger.
pub(super) const LINGER: Duration = Duration::from_millis(500);

const CONFIRMED_WITHIN: Duration = Duration::from_millis(200);

/// A manager.
#[derive(Debug)]
pub struct Ours {
    manager: LockManager,
    /// Whether half of the locks linger.
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
        builder(place).connect().await.map(|manager| Self { manager, lingers: true }).map_err(failure)
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        let (prefix, key) = parts(key);
        let request = self.manager.lock(prefix, key);
        let lingers = self.lingers && key.ends_with(['0', '2', '4', '6', '8']);
        let request = match wanted.share {
            Share::Alone if lingers => request.linger(LINGER),
            Share::Alone => request,
            Share::Read if lingers && wanted.renew => request.read().linger(LINGER),
            Share::Read => request.read(),
            Share::Permit(of) => request.permits(of),
        };
        Held::acquire(request, Vec::new(), wanted).await
    }

    async fn acquire_all(&self, keys: &[String], wanted: &Wanted) -> Result<Held, Failure> {
        let prefix = keys.first().map_or("", |key| parts(key).0);
        let request = self.manager.lock_all(prefix, keys.iter().map(|key| parts(key).1));
        Held::acquire(request, keys.to_vec(), wanted).await
    }

    async fn close(&self) {
        self.manager.shutdown().await;
    }
}

/// The builder for this place. In a cluster whose passwords change, a replica confirms each grant.
fn builder(place: &Place) -> Builder {
    let builder = LockManager::builder().url(&place.url).label(&place.label);
    let Some(file) = &place.password else { return builder };
    let builder = builder.credentials_provider(PasswordFile(file.clone()));
    if place.url.starts_with("redis-cluster") { builder.min_replicas(1, CONFIRMED_WITHIN) } else { builder }
}

fn parts(key: &str) -> (&str, &str) {
    key.split_once(':').expect("a prefix and a key")
}

/// [`Ours`] on a quorum, with a `max_lease` that suits a round.
#[derive(Debug)]
pub struct OnQuorum(Ours);

impl Lock for OnQuorum {
    type Hold = Held;
    const DROPS: bool = true;
    const TELLS: bool = true;

    async fn connect(place: &Place) -> Result<Self, Failure> {
        let longest = Duration::from_millis(MAX_LEASE);
        let manager = builder(place).default_expire(longest).max_lease(longest).connect().await;
        manager.map(|manager| Self(manager.into())).map_err(failure)
    }

    async fn acquire(&self, key: &str, wanted: &Wanted) -> Result<Held, Failure> {
        self.0.acquire(key, wanted).await
    }

    async fn acquire_all(&self, keys: &[String], wanted: &Wanted) -> Result<Held, Failure> {
        self.0.acquire_all(keys, wanted).await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// A guard.
#[derive(Debug)]
pub struct Held {
    guard: LockGuard,
    /// The keys of several locks, in the order of the request.
    keys: Vec<String>,
}

impl Held {
    async fn acquire(request: LockRequest, keys: Vec<String>, wanted: &Wanted) -> Result<Self, Failure> {
        let request = request.timeout(wanted.timeout()).expire(wanted.expire());
        let outcome = request.renew(wanted.renew).fenced(wanted.fenced).acquire().await;
        outcome.map(|guard| Self { guard, keys }).map_err(failure)
    }
}

impl Hold for Held {
    fn remaining(&self) -> Option<Duration> {
        Some(self.guard.remaining())
    }

    fn fence(&self) -> Option<u64> {
        self.guard.fencing_token().map(u64::from)
    }

    fn fence_of(&self, key: &str) -> Option<u64> {
        let place = self.keys.iter().position(|own| own == key)?;
        self.guard.fencing_tokens().get(place).copied().map(u64::from)
    }

    async fn extend(&self, lease: Duration) -> Result<(), Failure> {
        self.guard.extend(lease).await.map_err(failure)
    }

    async fn release(self) -> Result<(), Failure> {
        self.guard.release().await.map_err(failure)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "`map_err` passes it by value")]
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
