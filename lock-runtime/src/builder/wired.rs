//! [`Wired`]: all parts of a manager, and how they become one.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::clock::Deadline;
use crate::engine::Engine;
use crate::keeper::thread::KeeperThread;
use crate::settings::Settings;
use crate::store::AnyStore;
use crate::store::redis::RedisStore;
use crate::store::redis::connections::Connections;
use crate::timing::KEEPER_CONNECTS;
use crate::token::Process;
use crate::{BackendError, LockError, LockManager};

/// All parts of a manager, before anything is sent.
pub(super) struct Wired {
    server: String,
    is_tls: bool,
    settings: Settings,
    process: Process,
    thread: Arc<KeeperThread>,
    front: AnyStore,
    back: AnyStore,
    /// The servers on which the keeper looks for a setting that evicts locks.
    looks: Vec<RedisStore>,
}

impl Wired {
    /// `stores` makes the callers' store, the keeper's, and the servers of the latter.
    pub(super) fn new(
        server: String,
        is_tls: bool,
        settings: Settings,
        stores: impl FnOnce(&Settings, &Process, &Connections) -> (AnyStore, AnyStore, Vec<RedisStore>),
    ) -> Result<Self, LockError> {
        let thread = KeeperThread::shared().map_err(|error| LockError::Connect {
            server: server.clone(),
            problem: BackendError::caused_by("the keeper's thread could not be started", error),
        })?;
        let process = Process::new(&settings.label);
        let background = Arc::clone(&thread);
        // No body of a lock runs there.
        let connections = Connections::new(&settings, move |work| background.spawn_boxed(work));
        let (front, back, looks) = stores(&settings, &process, &connections);
        Ok(Self { server, is_tls, settings, process, thread, front, back, looks })
    }

    pub(super) async fn connect(self) -> Result<LockManager, LockError> {
        let limit = self.settings.connect_timeout;
        let connected = match &self.front {
            AnyStore::Redis(front) => timeout(limit, front.connect()).await.unwrap_or_else(|_| {
                let hint = if self.is_tls { ": does the server speak TLS on this port?" } else { "" };
                Err(BackendError::new(format!("no answer within {limit:?}{hint}")))
            }),
            AnyStore::Quorum(front) => front.connect(Deadline::after(limit)).await.map_err(|error| error.problem),
            // Nothing else is wired.
            AnyStore::Memory(_) => Ok(()),
            #[cfg(feature = "testing")]
            AnyStore::Faulty(_) => Ok(()),
        };
        connected.map_err(|problem| LockError::Connect { server: self.server.clone(), problem })?;
        let keeper_is_connected = self.connect_keeper();
        let manager = self.into_manager();
        if let Some(keeper_is_connected) = keeper_is_connected {
            // So that the first hold may linger (rule L9), where the server is near. Nothing else needs it by now.
            let _ = timeout(KEEPER_CONNECTS, keeper_is_connected).await;
        }
        Ok(manager)
    }

    /// Makes the keeper's connection on the keeper's thread. Resolves when that has succeeded or failed. `None` on a quorum, where
    /// no lease lingers.
    fn connect_keeper(&self) -> Option<oneshot::Receiver<()>> {
        let AnyStore::Redis(back) = &self.back else { return None };
        let (done, is_done) = oneshot::channel();
        let back = back.clone();
        self.thread.spawn(async move {
            // The keeper tries again, and tells of it.
            let _ = back.connect().await;
            let _ = done.send(());
        });
        Some(is_done)
    }

    pub(super) fn into_manager(self) -> LockManager {
        let Self { settings, process, thread, front, back, looks, .. } = self;
        for look in looks {
            let deadline = Deadline::after(settings.connect_timeout);
            thread.spawn(async move { look.warn_of_eviction(deadline).await });
        }
        LockManager::new(Engine::new(settings, process, Arc::new(front), Arc::new(back), Some(thread)))
    }
}
