//! The embedded store: the semantics of the Lua scripts, in this process.
//!
//! Several managers may share one store, and each is a separate process to it. So tests can check every promise under paused time. Each
//! verb completes at its first poll.

use std::fmt;
use std::mem::take;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use foldhash::{HashMap, HashMapExt as _};

use super::{
    Adoption, Answer, Answers, Ask, Events, Forced, Giving, Ownership, Pushed, Release, Renewal, Renewed, Seen, Store,
    StoreError, StoreKind, TicketAnswer,
};
use crate::clock::{Deadline, Moment};
use crate::mutex::Mutex;
use crate::share::Share;
use crate::token::Token;

mod script;

use script::{Lock, Script};

/// With fewer locks than this there is no sweep for ended ones.
const SWEEP_AT: usize = 256;

pub(crate) struct MemoryStore {
    shared: Mutex<Shared>,
}

struct Shared {
    locks: HashMap<Arc<str>, Lock>,
    /// At this many locks, those that have ended by themselves are removed.
    sweep_at: usize,
    server: Server,
}

/// The state of all locks.
struct Server {
    start: Moment,
    start_micros: u64,
    /// When the current verb began.
    now: Moment,
    /// The last fencing token of all keys. Numbers that strictly grow over all keys also grow for each key, and need no record per key.
    last_fence: u64,
    listeners: HashMap<String, Weak<dyn Events>>,
    messages: Vec<(Weak<dyn Events>, Arc<str>, Message)>,
}

/// Delivered after the store is unlocked, because the receiver may call back.
enum Message {
    Granted(Pushed),
    Contended,
    Forced(Token),
}

impl Server {
    fn micros(&self) -> u64 {
        self.start_micros + u64::try_from(self.now.since(self.start).as_micros()).unwrap_or_default()
    }

    fn draw(&mut self, count: u32) -> u64 {
        let first = self.micros().max(self.last_fence + 1);
        self.last_fence = first + u64::from(count) - 1;
        first
    }

    /// Receives the messages for the process that made the token.
    fn listener(&self, token: &Token) -> Option<&Weak<dyn Events>> {
        let process = token.as_str().split('.').next()?;
        self.listeners.get(process).filter(|events| events.strong_count() > 0)
    }

    fn tell(&mut self, key: &Arc<str>, token: &Token, message: Message) {
        if let Some(listener) = self.listener(token).cloned() {
            self.messages.push((listener, Arc::clone(key), message));
        }
    }
}

impl Shared {
    fn at<T>(&mut self, key: &Arc<str>, verb: impl FnOnce(&mut Script<'_>) -> T) -> T {
        let lock = self.locks.entry(Arc::clone(key)).or_default();
        lock.end_over(self.server.now);
        let result = verb(&mut Script { key, lock, server: &mut self.server });
        if !lock.is_used() {
            self.locks.remove(key);
        }
        result
    }
}

impl MemoryStore {
    /// Runs verbs at one instant, as a script does, and then delivers their messages.
    fn with<T>(&self, verbs: impl FnOnce(&mut Shared) -> T) -> T {
        let mut shared = self.shared.lock();
        let now = Moment::now();
        shared.server.now = now;
        // Nothing else removes locks that have ended by themselves. A sweep runs only when there are twice as many locks as the last one
        // left.
        if shared.locks.len() >= mutant!(EndedLocksKept => usize::MAX, else shared.sweep_at) {
            shared.locks.retain(|_, lock| {
                lock.end_over(now);
                lock.is_used()
            });
            shared.sweep_at = SWEEP_AT.max(shared.locks.len() * 2);
        }
        let result = verbs(&mut shared);
        let messages = take(&mut shared.server.messages);
        drop(shared);
        for (listener, key, message) in messages {
            let Some(events) = listener.upgrade() else { continue };
            match message {
                Message::Granted(pushed) => events.on_grant(&key, &pushed),
                Message::Contended => events.on_contention(&key),
                Message::Forced(token) => events.on_forced(&key, &token),
            }
        }
        result
    }

    fn at<T>(&self, key: &Arc<str>, verb: impl FnOnce(&mut Script<'_>) -> T) -> T {
        self.with(|shared| shared.at(key, verb))
    }

    /// Forgets who owns a lock, like a server that restarts without its data.
    #[cfg(feature = "testing")]
    pub(crate) fn forget(&self, key: &str) {
        self.at(&key.into(), |script| {
            script.lock.leases.clear();
            script.admit(None);
        });
    }
}

/// What a server of a quorum can do besides the verbs.
#[cfg(test)]
impl MemoryStore {
    /// A store whose clock is ahead of the host's clock.
    pub(crate) fn ahead(micros: u64) -> Self {
        let store = Self::default();
        store.shared.lock().server.start_micros += micros;
        store
    }

    pub(crate) fn raise(&self, key: &str, token: &Token, fence: u64) -> bool {
        self.at(&key.into(), |script| script.raise(token, fence))
    }

    /// The owner of a lock, and the number of waiting tokens.
    pub(crate) fn look(&self, key: &str) -> (Option<Token>, usize) {
        self.at(&key.into(), |script| script.look())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Moment::now();
        let server = Server {
            start: now,
            start_micros: u64::try_from(wall.as_micros()).unwrap_or_default(),
            now,
            last_fence: 0,
            listeners: HashMap::new(),
            messages: Vec::new(),
        };
        Self { shared: Mutex::new(Shared { locks: HashMap::new(), sweep_at: SWEEP_AT, server }) }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("locks", &self.shared.lock().locks.len()).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn kind(&self) -> &'static StoreKind {
        &StoreKind { is_immediate: true, ..StoreKind::SERVER }
    }

    async fn claim(&self, ask: &Ask, _: Deadline) -> Result<Answer, StoreError> {
        Ok(self.at(&ask.key, |script| script.ask(ask, false)))
    }

    async fn ask(&self, asks: &[Ask], _: Deadline) -> Answers<Answer> {
        let verb = |shared: &mut Shared, ask: &Ask| Ok(shared.at(&ask.key, |script| script.ask(ask, ask.wait)));
        Ok(self.with(|shared| asks.iter().map(|ask| verb(shared, ask)).collect()))
    }

    async fn release_one(&self, release: &Release, _: Deadline) -> Result<Ownership, StoreError> {
        Ok(self.at(&release.key, |script| script.release(release)))
    }

    async fn release(&self, releases: &[Release], _: Deadline) -> Answers<Ownership> {
        let verb = |shared: &mut Shared, one: &Release| Ok(shared.at(&one.key, |script| script.release(one)));
        Ok(self.with(|shared| releases.iter().map(|release| verb(shared, release)).collect()))
    }

    async fn renew(&self, renewals: &[Renewal], _: Deadline) -> Answers<Renewed> {
        let verb = |shared: &mut Shared, one: &Renewal| Ok(shared.at(&one.key, |script| script.renew(one)));
        Ok(self.with(|shared| renewals.iter().map(|renewal| verb(shared, renewal)).collect()))
    }

    async fn draw(
        &self,
        key: &Arc<str>,
        token: &Token,
        _: Option<Share>,
        count: u32,
        _: Deadline,
    ) -> Result<Option<u64>, StoreError> {
        Ok(self.at(key, |script| script.draw(token, count)))
    }

    async fn inspect(&self, key: &str, _: Deadline) -> Result<Option<Seen>, StoreError> {
        Ok(self.at(&key.into(), |script| script.inspect()))
    }

    async fn force(&self, key: &str, one: Option<(Share, Token)>, _: Deadline) -> Result<Forced, StoreError> {
        Ok(self.at(&key.into(), |script| script.force(None, one.as_ref().map(|(_, token)| token))))
    }

    async fn give(&self, giving: &Giving, _: Deadline) -> Result<Ownership, StoreError> {
        Ok(self.at(&giving.key, |script| script.give(giving)))
    }

    async fn adopt(&self, adoption: &Adoption, _: Deadline) -> Result<TicketAnswer, StoreError> {
        Ok(self.at(&adoption.ask.key, |script| script.adopt(adoption)))
    }

    fn attach(&self, process: &str, events: Weak<dyn Events>) {
        let listeners = &mut self.shared.lock().server.listeners;
        listeners.retain(|_, listener| listener.strong_count() > 0);
        listeners.insert(process.to_owned(), events);
    }
}
