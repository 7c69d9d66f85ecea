//! [`KeeperThread`]: one thread per process for the keepers of all managers.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;

use crate::fork::Origin;
use crate::mutex::Mutex;

/// The thread. It ends when the last manager that needs it is gone, and its work is done.
#[derive(Debug)]
pub(crate) struct KeeperThread {
    runtime: Handle,
    /// The thread runs until every clone of this sender is dropped.
    alive: mpsc::Sender<()>,
}

/// The thread and its process. A child after a fork does not have the thread.
static THREAD: Mutex<Option<(Origin, Weak<KeeperThread>)>> = Mutex::new(None);

impl KeeperThread {
    /// The thread of this process, started if there is none.
    pub(crate) fn shared() -> std::io::Result<Arc<Self>> {
        let mut current = THREAD.lock();
        let started = current.as_ref().filter(|(origin, _)| !origin.is_inherited());
        if let Some(thread) = started.and_then(|(_, thread)| thread.upgrade()) {
            return Ok(thread);
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (alive, mut all_gone) = mpsc::channel::<()>(1);
        let thread = Arc::new(Self { runtime: runtime.handle().clone(), alive });
        std::thread::Builder::new().name("lock-keeper".to_owned()).spawn(move || {
            // Nothing is ever sent. This waits until the last sender is dropped.
            runtime.block_on(all_gone.recv());
        })?;
        *current = Some((Origin::here(), Arc::downgrade(&thread)));
        Ok(thread)
    }

    /// Waits on the calling thread. This thread drives the timers and the connections.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Waits wherever the caller's future is polled. This thread drives the timers.
    pub(crate) async fn inside<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _inside = self.runtime.enter();
            future.as_mut().poll(context)
        })
        .await
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(work));
    }

    /// One task type for all work: the compiler generates all of tokio's task code again for each type.
    pub(crate) fn spawn_boxed(&self, work: BoxFuture<'static, ()>) {
        let alive = self.alive.clone();
        self.runtime.spawn(async move {
            work.await;
            drop(alive);
        });
    }
}
