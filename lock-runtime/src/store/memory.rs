//! The embedded store: the semantics of the Lua scripts, in this process.
//!
//! Several managers may share one store, and each manager is a process of its own to it. So tests can check every promise
//! under paused time. Each verb completes at its first poll.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    Anchor, Answer, Answers, Ask, Busy, Events, Forced, Grant, Pushed, Release, Released, Renewal, Renewed, Seen,
    Store, StoreError,
};
use crate::clock::{Deadline, Drift, Moment, without_drift};
use crate::share::Share;
use crate::timing::CLAIM;
use crate::token::Token;

mod sharing;

use sharing::Sharing;

#[derive(Default)]
pub(crate) struct MemoryStore {
    shared: Mutex<Shared>,
}

struct Shared {
    start: Moment,
    start_micros: u64,
    /// The last fencing token of all keys. Numbers that grow strictly over all keys also grow for each key, and need no
    /// record per key.
    last_fence: u64,
    locks: HashMap<Arc<str>, Lock>,
    listeners: HashMap<String, Weak<dyn Events>>,
}

#[derive(Default)]
struct Lock {
    owner: Option<(Token, Deadline)>,
    sharing: Sharing,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    token: Token,
    share: Option<Share>,
    claim: Duration,
}

/// A message to deliver when the store is unlocked: its receiver may call back.
enum Push {
    Granted(Weak<dyn Events>, Arc<str>, Pushed),
    Contended(Weak<dyn Events>, Arc<str>),
    Forced(Weak<dyn Events>, Arc<str>, Token),
}

impl Default for Shared {
    fn default() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            start: Moment::now(),
            start_micros: u64::try_from(wall.as_micros()).unwrap_or_default(),
            last_fence: 0,
            locks: HashMap::new(),
            listeners: HashMap::new(),
        }
    }
}

impl Shared {
    fn micros(&self, now: Moment) -> u64 {
        self.start_micros + u64::try_from(now.since(self.start).as_micros()).unwrap_or_default()
    }

    fn draw(&mut self, now: Moment, count: u32) -> u64 {
        let first = self.micros(now).max(self.last_fence + 1);
        self.last_fence = first + u64::from(count) - 1;
        first
    }

    fn listener(&self, token: &Token) -> Option<Weak<dyn Events>> {
        let process = token.as_str().split('.').next()?;
        self.listeners.get(process).filter(|events| events.strong_count() > 0).cloned()
    }

    fn owner(&mut self, key: &str) -> Option<(Token, Deadline)> {
        let lock = self.locks.get_mut(key)?;
        if lock.owner.as_ref().is_some_and(|(_, until)| until.has_passed()) {
            lock.owner = None;
        }
        lock.sharing.end_over();
        lock.owner.clone()
    }

    /// Whether nobody has the lock, neither alone nor shared.
    fn is_free(&mut self, key: &str) -> bool {
        self.owner(key).is_none() && self.locks.get(key).is_none_or(|lock| lock.sharing.is_none())
    }

    fn set(&mut self, key: &Arc<str>, token: &Token, now: Moment, lease: Duration) {
        self.locks.entry(Arc::clone(key)).or_default().owner = Some((token.clone(), Deadline::new(now, lease)));
    }

    fn waits(&self, key: &str) -> bool {
        self.locks.get(key).is_some_and(|lock| !lock.queue.is_empty())
    }

    fn leave_queue(&mut self, key: &str, token: &Token) {
        if let Some(lock) = self.locks.get_mut(key) {
            lock.queue.retain(|waiter| waiter.token != *token);
        }
    }

    fn join_queue(&mut self, key: &Arc<str>, token: &Token, share: Option<Share>, claim: Duration) {
        let lock = self.locks.entry(Arc::clone(key)).or_default();
        if !lock.queue.iter().any(|waiter| waiter.token == *token) {
            lock.queue.push_back(Waiter { token: token.clone(), share, claim });
        }
    }

    /// `hand_off` of queue.lua. Returns whether a waiter has the lock now.
    fn hand_off(&mut self, key: &Arc<str>, caller: Option<&Token>, pushes: &mut Vec<Push>) -> bool {
        loop {
            let Some(lock) = self.locks.get_mut(key) else { return false };
            let Some(waiter) = lock.queue.front() else {
                lock.owner = None;
                return false;
            };
            if waiter.share.is_some() {
                lock.owner = None;
                lock.sharing = Sharing::default();
                if self.admit(key, caller, pushes) {
                    return true;
                }
                continue;
            }
            let Some(Waiter { token, claim, .. }) = lock.queue.pop_front() else { return false };
            let now = Moment::now();
            if caller == Some(&token) {
                self.set(key, &token, now, claim);
                return true;
            }
            if let Some(listener) = self.listener(&token) {
                self.set(key, &token, now, claim);
                self.push_grant(listener, key, token, claim, now, pushes);
                return true;
            }
        }
    }

    /// Tells a waiter that the lock was granted to it.
    fn push_grant(
        &self,
        listener: Weak<dyn Events>,
        key: &Arc<str>,
        token: Token,
        claim: Duration,
        now: Moment,
        pushes: &mut Vec<Push>,
    ) {
        // Rule 7: the message and the end of the lease count from one reading of the clock.
        let (contended, store_micros) = (self.waits(key), self.micros(now));
        let pushed = Pushed { token, claim, store_micros, contended, unconfirmed: false, partial: false };
        pushes.push(Push::Granted(listener, Arc::clone(key), pushed));
    }

    /// ask.lua, and the plain claim.
    fn ask(&mut self, ask: &Ask, pushes: &mut Vec<Push>) -> Answer {
        let now = Moment::now();
        if ask.give_up.has_passed() && ask.wait {
            return Answer::Late;
        }
        if ask.share.is_some() {
            return self.ask_for_share(ask, now, pushes);
        }
        if self.is_free(&ask.key) && !self.hand_off(&ask.key, Some(&ask.token), pushes) {
            self.set(&ask.key, &ask.token, now, ask.claim);
        }
        let owner = self.owner(&ask.key);
        if owner.is_none() && !self.is_free(&ask.key) {
            return self.refuse(ask, now, pushes);
        }
        let Some((owner, until)) = owner else {
            return Answer::Late; // the claim ran out in between: as good as never asked
        };
        if owner == ask.token {
            self.leave_queue(&ask.key, &ask.token);
            let fence = (ask.fences > 0).then(|| self.draw(now, ask.fences));
            let until = Deadline::new(now, without_drift(until.remaining_at(now)));
            return Answer::Granted(Grant { until, contended: self.waits(&ask.key), fence });
        }
        if ask.wait {
            self.join_queue(&ask.key, &ask.token, None, ask.claim);
            if let Some(listener) = self.listener(&owner) {
                pushes.push(Push::Contended(listener, Arc::clone(&ask.key)));
            }
        }
        Answer::Busy(self.busy(owner, until, now))
    }

    fn busy(&self, owner: Token, until: Deadline, now: Moment) -> Busy {
        Busy {
            owner,
            frees_in: Some(until.remaining_at(now)),
            endless: false,
            anchor: Some(Anchor { sent: now, store_micros: self.micros(now), drift: Drift::DEFAULT }),
            pause: Duration::ZERO,
            yields: false,
        }
    }

    /// release.lua.
    fn release(&mut self, release: &Release, pushes: &mut Vec<Push>) -> Released {
        if release.share.is_some() {
            return self.release_share(release, pushes);
        }
        let key = &release.key;
        let owner = self.owner(key);
        let is_free = self.is_free(key);
        let owned = owner.as_ref().is_some_and(|(owner, _)| *owner == release.token);
        self.leave_queue(key, &release.token);
        if let Some((token, claim)) = &release.again {
            self.join_queue(key, token, None, *claim);
        }
        let again = release.again.as_ref().map(|(token, _)| token);
        if owned || is_free {
            self.hand_off(key, again, pushes);
        } else if owner.is_none() {
            // The token may have stood in front of others that fit.
            self.admit(key, None, pushes);
        } else if let (Some(_), Some((owner, _))) = (again, owner)
            && let Some(listener) = self.listener(&owner)
        {
            pushes.push(Push::Contended(listener, Arc::clone(key)));
        }
        let answer = again.and_then(|token| {
            let now = Moment::now();
            let owner = self.owner(key);
            if owner.is_none() && !self.is_free(key) {
                let ask = Ask::along(release, Deadline::after(Duration::ZERO))?;
                return Some(self.refuse(&ask, now, pushes));
            }
            let (owner, until) = owner?;
            Some(if owner == *token {
                let until = Deadline::new(now, without_drift(until.remaining_at(now)));
                Answer::Granted(Grant { until, contended: self.waits(key), fence: None })
            } else {
                Answer::Busy(self.busy(owner, until, now))
            })
        });
        self.forget_if_unused(key);
        Released { owned, again: answer }
    }

    fn renew(&mut self, renewal: &Renewal) -> Renewed {
        if renewal.share.is_some() {
            return self.renew_share(renewal);
        }
        match self.owner(&renewal.key) {
            Some((owner, until)) if owner == renewal.token => {
                let now = Moment::now();
                let longer = until.max_at(Deadline::new(now, renewal.lease), now);
                self.set(&renewal.key, &renewal.token, now, longer.remaining_at(now));
                Renewed::Until(Deadline::new(now, without_drift(renewal.lease)))
            }
            _ => Renewed::NotOwned,
        }
    }

    /// inspect.lua.
    fn inspect(&mut self, key: &str) -> Option<Seen> {
        let owner = self.owner(key);
        let lock = self.locks.get(key)?;
        let waiting = lock.queue.iter().map(|waiter| waiter.token.clone()).collect();
        let (owner, until) = owner.or_else(|| lock.sharing.as_owner())?;
        let frees_in = Some(until.remaining_at(Moment::now()));
        Some(Seen { owner, frees_in, sharing: lock.sharing.leases(), waiting })
    }

    /// force.lua. Here all owners are tokens of managers.
    fn force(&mut self, key: &Arc<str>, pushes: &mut Vec<Push>) -> Forced {
        let Some((owner, until)) = self.owner(key) else { return self.force_shared(key, pushes) };
        let (token, marked) = match owner.unforced() {
            Some(token) => (token, owner),
            None => (owner.clone(), owner.to_forced()),
        };
        let now = Moment::now();
        self.set(key, &marked, now, until.remaining_at(now).min(CLAIM));
        if let Some(listener) = self.listener(&token) {
            pushes.push(Push::Forced(listener, Arc::clone(key), token));
        }
        Forced::Leaving(marked)
    }

    fn forget_if_unused(&mut self, key: &str) {
        if self.is_free(key) && !self.waits(key) {
            self.locks.remove(key);
        }
    }
}

impl MemoryStore {
    fn locked(&self) -> MutexGuard<'_, Shared> {
        // Every change is complete before anything can panic.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change, and then sends the messages that it caused.
    fn with<T>(&self, change: impl FnOnce(&mut Shared, &mut Vec<Push>) -> T) -> T {
        let mut pushes = Vec::new();
        let result = change(&mut self.locked(), &mut pushes);
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
        store.locked().start_micros += micros;
        store
    }

    pub(crate) fn raise(&self, key: &str, token: &Token, fence: u64) -> bool {
        let mut shared = self.locked();
        let owned = shared.owner(key).is_some_and(|(owner, _)| owner == *token);
        if owned {
            shared.last_fence = shared.last_fence.max(fence);
        }
        owned
    }

    /// The owner of a lock, and how many tokens wait for it.
    pub(crate) fn look(&self, key: &str) -> (Option<Token>, usize) {
        let mut shared = self.locked();
        let owner = shared.owner(key).map(|(owner, _)| owner);
        (owner, shared.locks.get(key).map_or(0, |lock| lock.queue.len()))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("locks", &self.locked().locks.len()).finish_non_exhaustive()
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

    fn withdraw_behind(&self, _: &Release) {
        // The caller repeats the release until it is answered, and here the answer comes at once.
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
            owned.then(|| shared.draw(Moment::now(), count))
        }))
    }

    async fn inspect(&self, key: &str, _: Deadline) -> Result<Option<Seen>, StoreError> {
        Ok(self.with(|shared, _| shared.inspect(key)))
    }

    async fn force(&self, key: &str, _: Deadline) -> Result<Forced, StoreError> {
        Ok(self.with(|shared, pushes| shared.force(&key.into(), pushes)))
    }

    async fn heartbeat(&self, _: Deadline) {}

    fn attach(&self, process: &str, events: Weak<dyn Events>) {
        let mut shared = self.locked();
        shared.listeners.retain(|_, listener| listener.strong_count() > 0);
        shared.listeners.insert(process.to_owned(), events);
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn draws_with_grants(&self) -> bool {
        true
    }
}
