//! Which manager is meant when none is named, and which locks the running task holds already.
//!
//! This is the only global state: one installed manager per process, and two task-locals. A spawned task starts
//! without either task-local, which is what keeps re-entry from leaking into work that runs beside its parent.

use std::sync::{Arc, OnceLock};

use tokio::task::futures::TaskLocalFuture;

use crate::local::HoldView;
use crate::{LockError, LockManager};

static INSTALLED: OnceLock<LockManager> = OnceLock::new();

tokio::task_local! {
    static SCOPED: LockManager;
    static HELD: Arc<Frame>;
}

pub(crate) fn install(manager: &LockManager) -> Result<(), LockError> {
    INSTALLED.set(manager.clone()).map_err(|_| LockError::AlreadyInstalled)
}

/// The manager of the enclosing scope, else the installed one.
pub(crate) fn current() -> Option<LockManager> {
    SCOPED.try_with(LockManager::clone).ok().or_else(|| INSTALLED.get().cloned())
}

pub(crate) async fn with_manager<F: Future>(manager: LockManager, inside: F) -> F::Output {
    SCOPED.scope(manager, inside).await
}

/// A lock that the running body holds; frames of nested bodies form a list, innermost first.
#[derive(Debug)]
pub(crate) struct Frame {
    hold: HoldView,
    /// Joined calls that re-enter this frame exclude each other here.
    inner: OnceLock<Arc<tokio::sync::Mutex<()>>>,
    outer: Option<Arc<Frame>>,
}

impl Frame {
    /// A frame for `hold` on top of what the running task holds.
    pub(crate) fn push(hold: HoldView) -> Arc<Self> {
        Arc::new(Self { hold, inner: OnceLock::new(), outer: HELD.try_with(Arc::clone).ok() })
    }

    /// The innermost frame of the running task that holds `hold`'s key in the same manager.
    pub(crate) fn find(is_meant: impl Fn(&HoldView) -> bool) -> Option<Arc<Self>> {
        let mut frame = HELD.try_with(Arc::clone).ok();
        while let Some(this) = frame.take() {
            if is_meant(&this.hold) {
                return Some(this);
            }
            frame.clone_from(&this.outer);
        }
        None
    }

    pub(crate) fn hold(&self) -> &HoldView {
        &self.hold
    }

    pub(crate) fn inner(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.inner.get_or_init(Arc::default))
    }

    /// Runs `body` with this frame on the stack: during each of its polls, and while it is dropped.
    pub(crate) fn around<F: Future>(self: Arc<Self>, body: F) -> TaskLocalFuture<Arc<Self>, F> {
        HELD.scope(self, body)
    }
}
