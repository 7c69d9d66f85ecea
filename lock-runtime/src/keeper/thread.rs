//! [`KeeperThread`]: one thread per process for the keepers of all managers.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;

use crate::fork::Origin;

/// The thread, for as long as a manager needs it; it ends when the last one is gone and its work is done.
#[derive(Debug)]
pub(crate) struct KeeperThread {
    runtime: Handle,
    /// The thread runs until every clone of this is dropped.
    alive: mpsc::Sender<()>,
}

/// The thread, and the process that has it: a child after a fork has none.
static THREAD: Mutex<Option<(Origin, Weak<KeeperThread>)>> = Mutex::new(None);

impl KeeperThread {
    /// The process's thread, started when there is none.
    pub(crate) fn shared() -> std::io::Result<Arc<Self>> {
        let mut current = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
        let started = current.as_ref().filter(|(origin, _)| !origin.is_inherited());
        if let Some(thread) = started.and_then(|(_, thread)| thread.upgrade()) {
            return Ok(thread);
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (alive, mut all_gone) = mpsc::channel::<()>(1);
        let thread = Arc::new(Self { runtime: runtime.handle().clone(), alive });
        std::thread::Builder::new().name("lock-keeper".to_owned()).spawn(move || {
            // Nothing is ever sent: this waits for the last sender to go.
            runtime.block_on(all_gone.recv());
        })?;
        *current = Some((Origin::here(), Arc::downgrade(&thread)));
        Ok(thread)
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let alive = self.alive.clone();
        self.runtime.spawn(async move {
            work.await;
            drop(alive);
        });
    }
}
