//! The embedded store: the semantics of the Lua scripts, in this process.
//!
//! Several managers may share one store, and each manager is a process of its own to it. So tests can check every promise
//! under paused time. Each verb completes at its first poll.

use std::fmt;
use std::sync::{Arc, MutexGuard, Weak};

use super::{
    Adoption, Answer, Answers, Ask, Events, Forced, Giving, Ownership, Pushed, Release, Released, Renewal, Renewed,
    Seen, Store, StoreError, StoreKind, TicketAnswer,
};
use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::share::Share;
use crate::token::Token;

mod state;
mod tickets;

use state::Shared;

#[derive(Default)]
pub(crate) struct MemoryStore {
    shared: Mutex<Shared>,
}

/// A message to deliver when the store is unlocked: its receiver may call back.
enum Push {
    Granted(Weak<dyn Events>, Arc<str>, Pushed),
    Contended(Weak<dyn Events>, Arc<str>),
    Forced(Weak<dyn Events>, Arc<str>, Token),
}

impl MemoryStore {
    /// The locks, as they are now: a verb sees one instant, as a script does.
    fn open(&self) -> MutexGuard<'_, Shared> {
        let mut shared = self.shared.lock();
        shared.now = Moment::now();
        shared.forget_ended();
        shared
    }

    /// Makes a change, and then sends the messages that it caused.
    fn with<T>(&self, change: impl FnOnce(&mut Shared, &mut Vec<Push>) -> T) -> T {
        let mut pushes = Vec::new();
        let result = change(&mut self.open(), &mut pushes);
        for push in pushes {
            match push {
                Push::Granted(listener, key, pushed) => {
                    if let Some(events) = listener.upgrade() {
                        events.on_grant(&key, &pushed);
                    }
                }
                Push::Contended(listener, key) => {
                    if let Some(events) = listener.upgrade() {
                        events.on_contention(&key);
                    }
                }
                Push::Forced(listener, key, token) => {
                    if let Some(events) = listener.upgrade() {
                        events.on_forced(&key, &token);
                    }
                }
            }
        }
        result
    }
}

#[cfg(feature = "testing")]
impl MemoryStore {
    /// Forgets who has a lock, as a server does that restarts without its data.
    pub(crate) fn forget(&self, key: &str) {
        self.with(|shared, pushes| {
            let key: Arc<str> = key.into();
            shared.forget_sharing(&key);
            shared.hand_off(&key, None, pushes);
            shared.forget_if_unused(&key);
        });
    }
}

/// What a server of a quorum can do besides the verbs.
#[cfg(test)]
impl MemoryStore {
    /// A store whose clock is ahead of the host's clock.
    pub(crate) fn ahead(micros: u64) -> Self {
        let store = Self::default();
        store.shared.lock().start_micros += micros;
        store
    }

    pub(crate) fn raise(&self, key: &str, token: &Token, fence: u64) -> bool {
        let mut shared = self.open();
        let owned = shared.owner(key).is_some_and(|(owner, _)| owner == *token);
        if owned {
            shared.last_fence = shared.last_fence.max(fence);
        }
        owned
    }

    /// The owner of a lock, and how many tokens wait for it.
    pub(crate) fn look(&self, key: &str) -> (Option<Token>, usize) {
        let mut shared = self.open();
        let owner = shared.owner(key).map(|(owner, _)| owner);
        (owner, shared.locks.get(key).map_or(0, |lock| lock.queue.len()))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("locks", &self.shared.lock().locks.len()).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    async fn claim(&self, ask: &Ask, _: Deadline) -> Result<Answer, StoreError> {
        Ok(self.with(|shared, pushes| shared.ask(&Ask { wait: false, ..ask.clone() }, pushes)))
    }

    async fn ask(&self, asks: &[Ask], _: Deadline) -> Answers<Answer> {
        Ok(self.with(|shared, pushes| asks.iter().map(|ask| Ok(shared.ask(ask, pushes))).collect()))
    }

    async fn release_one(&self, release: &Release, _: Deadline) -> Result<Released, StoreError> {
        Ok(self.with(|shared, pushes| shared.release(release, pushes)))
    }

    async fn release(&self, releases: &[Release], _: Deadline) -> Answers<Released> {
        Ok(self.with(|shared, pushes| releases.iter().map(|release| Ok(shared.release(release, pushes))).collect()))
    }

    async fn renew(&self, renewals: &[Renewal], _: Deadline) -> Answers<Renewed> {
        Ok(self.with(|shared, _| renewals.iter().map(|renewal| Ok(shared.renew(renewal))).collect()))
    }

    async fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        _: Option<Share>,
        count: u32,
        _: Deadline,
    ) -> Result<Option<u64>, StoreError> {
        Ok(self.with(|shared, _| {
            let owned = shared.owner(key).is_some_and(|(owner, _)| owner == *token) || shared.has_share(key, token);
            owned.then(|| shared.draw(count))
        }))
    }

    async fn inspect(&self, key: &str, _: Deadline) -> Result<Option<Seen>, StoreError> {
        Ok(self.with(|shared, _| shared.inspect(key)))
    }

    async fn force(&self, key: &str, _: Deadline) -> Result<Forced, StoreError> {
        Ok(self.with(|shared, pushes| shared.force(&key.into(), None, pushes)))
    }

    async fn give(&self, giving: &Giving, _: Deadline) -> Result<Ownership, StoreError> {
        Ok(self.with(|shared, _| shared.give(giving)))
    }

    async fn adopt(&self, adoption: &Adoption, _: Deadline) -> Result<TicketAnswer, StoreError> {
        Ok(self.with(|shared, _| shared.adopt(adoption)))
    }

    fn attach(&self, process: &str, events: Weak<dyn Events>) {
        let mut shared = self.shared.lock();
        shared.listeners.retain(|_, listener| listener.strong_count() > 0);
        shared.listeners.insert(process.to_owned(), events);
    }

    fn kind(&self) -> &'static StoreKind {
        &StoreKind { is_immediate: true, ..StoreKind::SERVER }
    }
}
