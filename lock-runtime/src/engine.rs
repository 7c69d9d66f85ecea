//! [`Engine`]: the inside of one manager: the core that its tasks share, and the keeper that does its background work.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::LockError;
use crate::error::LossReason;
use crate::fork::Origin;
use crate::keeper::Keeper;
use crate::keeper::thread::KeeperThread;
use crate::local::{self, Core, Hold, Schedule};
use crate::lock::ResolvedRequest;
use crate::mutex::Mutex;
use crate::observe::{self, metrics};
use crate::opaque::Opaque;
use crate::settings::Settings;
use crate::store::{AnyStore, Store};
use crate::timing::SHUTDOWN_STEP;
use crate::token::{Process, Token};

/// Wires up one manager, and shuts it down.
pub(crate) struct Engine {
    core: Arc<Core>,
    /// For locks in this process it has no thread: they use the time of their callers' runtimes.
    pub(crate) keeper: Arc<Keeper>,
    /// The thread for callers that block. The first of them starts it, and it is kept.
    thread: Mutex<Option<Arc<KeeperThread>>>,
}

impl Engine {
    /// `store` serves the callers and receives the pushes. `keeper_store` is the same store over the keeper's own
    /// connection.
    pub(crate) fn new(
        settings: Settings,
        process: Process,
        store: Arc<AnyStore>,
        keeper_store: Arc<AnyStore>,
        thread: Option<Arc<KeeperThread>>,
    ) -> Opaque<Self> {
        let schedule = Arc::new(Schedule::new(Arc::clone(&keeper_store)));
        let command_timeout = settings.command_timeout;
        let origin = thread.is_some().then(Origin::here);
        let core = Core::new(settings, process, store, Arc::clone(&schedule), origin);
        // The keeper's own connection also reports when it breaks.
        keeper_store.attach(core.process_id(), core.events());
        let keeper = Keeper::new(keeper_store, schedule, command_timeout, thread);
        keeper.start(&core);
        Opaque::new(Self { core, keeper, thread: Mutex::default() })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The thread that drives timers and connections for callers that block.
    pub(crate) fn thread(&self) -> io::Result<Arc<KeeperThread>> {
        // Not that of a parent process: a fork has no threads.
        let thread = KeeperThread::shared()?;
        *self.thread.lock() = Some(Arc::clone(&thread));
        Ok(thread)
    }

    pub(crate) fn acquire(&self, request: &ResolvedRequest) -> impl Future<Output = Result<Hold, LockError>> {
        self.keeper.start(&self.core);
        let is_part = request.is_part() && request.is_try();
        metrics::wait(request.prefix(), is_part, local::acquire(&self.core, request))
    }

    pub(crate) fn adopt(
        &self,
        request: &ResolvedRequest,
        ticket: &Token,
    ) -> impl Future<Output = Result<Hold, LockError>> {
        self.keeper.start(&self.core);
        metrics::wait(request.prefix(), false, local::adopt(&self.core, request, ticket))
    }

    /// See [`LockManager::shutdown`](crate::LockManager::shutdown). The bodies that hold the locks `own` wait for this call, so it does not
    /// wait for them; they continue after it.
    pub(crate) async fn shutdown(&self, own: &[Arc<str>]) {
        let core = &self.core;
        if core.is_inherited() {
            // In a forked child, everything that could be released belongs to the parent.
            return;
        }
        if let Some(key) = own.first() {
            observe::shut_down_inside(key);
        }
        core.close();
        let drained = tokio::time::timeout(core.settings().drain, core.table().wait_until_empty_but(own)).await;
        core.end_drain();
        if drained.is_err() {
            for slot in core.table().all() {
                if !own.contains(slot.key()) {
                    core.revoke(&slot, None, LossReason::ShutDown);
                }
            }
            core.bodies().close();
            let ended = async {
                if own.is_empty() {
                    core.bodies().wait().await;
                } else {
                    core.table().wait_until_empty_but(own).await;
                }
            };
            let _ = tokio::time::timeout(SHUTDOWN_STEP, ended).await;
        }
        let released = async {
            core.schedule().wait_until_quiet().await;
            core.store().wait_for_releases().await;
        };
        let _ = tokio::time::timeout(SHUTDOWN_STEP, released).await;
    }
}

/// Guards may outlive their manager. Lingering leases do not.
impl Drop for Engine {
    fn drop(&mut self) {
        self.core.close_lingering();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Engine").field(&self.core).finish()
    }
}
