//! stub
use crate::builder::Settings;
use crate::{FencingToken, LockError};
use std::sync::Arc;
use std::time::Duration;
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) key: Arc<str>,
    pub(crate) timeout: Duration,
    pub(crate) expire: Duration,
    pub(crate) renew: bool,
    pub(crate) fenced: bool,
}
impl Terms {
    pub(crate) fn check(&self) -> Result<(), LockError> {
        Ok(())
    }
}
impl Settings {
    pub(crate) fn full_name(&self, n: String) -> Result<Arc<str>, LockError> {
        Ok(n.into())
    }
}
#[derive(Debug)]
pub(crate) struct Engine {
    settings: Settings,
    map: std::sync::Mutex<std::collections::HashMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>>,
    n: std::sync::atomic::AtomicU64,
}
#[derive(Debug)]
pub(crate) struct Hold {
    view: HoldView,
    _g: tokio::sync::OwnedMutexGuard<()>,
}
#[derive(Clone, Debug)]
pub(crate) struct HoldView {
    key: Arc<str>,
    engine: Arc<Engine>,
    fence: Option<FencingToken>,
}
impl Engine {
    pub(crate) fn in_memory(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            map: Default::default(),
            n: Default::default(),
        })
    }
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
    pub(crate) fn label(&self) -> &str {
        &self.settings.label
    }
    pub(crate) async fn shutdown(&self) {}
    pub(crate) async fn acquire(self: &Arc<Self>, terms: &Terms) -> Result<Hold, LockError> {
        let m = self.map.lock().unwrap().entry(terms.key.clone()).or_default().clone();
        let g = match m.clone().try_lock_owned() {
            Ok(g) => g,
            Err(_) => tokio::time::timeout(terms.timeout, m.lock_owned())
                .await
                .map_err(|_| self.timed_out_behind_itself(terms))?,
        };
        let n = self.n.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        Ok(Hold {
            view: HoldView {
                key: terms.key.clone(),
                engine: self.clone(),
                fence: terms.fenced.then(|| FencingToken::new(n)),
            },
            _g: g,
        })
    }
    pub(crate) fn timed_out_behind_itself(&self, terms: &Terms) -> LockError {
        LockError::Timeout {
            key: terms.key.to_string(),
            waited: terms.timeout,
            holder: Some(self.settings.label.clone()),
        }
    }
}
impl Hold {
    pub(crate) fn view(&self) -> &HoldView {
        &self.view
    }
    pub(crate) async fn release(self) -> Result<(), LockError> {
        Ok(())
    }
}
impl HoldView {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }
    pub(crate) fn is_of(&self, engine: &Arc<Engine>, key: &str) -> bool {
        Arc::ptr_eq(engine, &self.engine) && &*self.key == key
    }
    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.fence
    }
    pub(crate) fn is_valid(&self) -> bool {
        true
    }
    pub(crate) fn remaining(&self) -> Duration {
        Duration::from_secs(1)
    }
    pub(crate) async fn lost(&self) {
        std::future::pending().await
    }
    pub(crate) async fn extend(&self, _: Duration) -> Result<(), LockError> {
        Ok(())
    }
    pub(crate) async fn borrowed(&self, fenced: bool) -> Result<Self, LockError> {
        let mut v = self.clone();
        if fenced && v.fence.is_none() {
            v.fence = Some(FencingToken::new(1));
        }
        Ok(v)
    }
    pub(crate) fn lost_error(&self, completed: bool) -> LockError {
        LockError::Lost {
            key: self.key.to_string(),
            completed,
        }
    }
}
