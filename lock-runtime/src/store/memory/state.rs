//! [`Shared`]: all locks of an embedded store, and what each verb does to them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foldhash::{HashMap, HashMapExt as _};

use super::Push;
use crate::clock::{Deadline, Drift, Moment, without_drift};
use crate::share::Share;
use crate::store::{
    Anchor, Answer, Ask, Busy, Events, Forced, Grant, Ownership, Pushed, Release, Released, Renewal, Renewed, Seen,
};
use crate::timing::CLAIM;
use crate::token::Token;

mod sharing;

use sharing::Sharing;

/// The fewest locks among which those that have ended are looked for.
const SWEEP_AT: usize = 256;

pub(super) struct Shared {
    pub(super) start: Moment,
    /// When the verb began that is under way.
    pub(super) now: Moment,
    pub(super) start_micros: u64,
    /// The last fencing token of all keys. Numbers that grow strictly over all keys also grow for each key, and need no
    /// record per key.
    pub(super) last_fence: u64,
    pub(super) locks: HashMap<Arc<str>, Lock>,
    /// With so many locks those are forgotten that have ended by themselves.
    pub(super) sweep_at: usize,
    pub(super) listeners: HashMap<String, Weak<dyn Events>>,
}

#[derive(Default)]
pub(super) struct Lock {
    pub(super) owner: Option<(Token, Deadline)>,
    pub(super) sharing: Sharing,
    pub(super) queue: VecDeque<Waiter>,
    /// The requests that replace its holder, the newest first, and until when each of them may ask. The newest waits in front.
    pub(super) replacing: Vec<(Token, Deadline)>,
}

pub(super) struct Waiter {
    pub(super) token: Token,
    /// Whether it replaces the holder.
    pub(super) replaces: bool,
    pub(super) share: Option<Share>,
    pub(super) claim: Duration,
}

impl Lock {
    fn is_free(&self) -> bool {
        self.owner.is_none() && self.sharing.is_none()
    }

    /// Whether somebody has the lock, or waits for it, or may ask whether a newer request has come.
    fn is_used(&self) -> bool {
        !self.is_free() || !self.queue.is_empty() || !self.replacing.is_empty()
    }

    /// Ends the leases whose time is over.
    fn end_over(&mut self, now: Moment) {
        self.owner.take_if(|(_, until)| until.has_passed_at(now));
        self.sharing.end_over(now);
        self.replacing.retain(|(_, until)| !until.has_passed_at(now));
    }
}

impl Default for Shared {
    fn default() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Moment::now();
        Self {
            start: now,
            now,
            start_micros: u64::try_from(wall.as_micros()).unwrap_or_default(),
            last_fence: 0,
            locks: HashMap::new(),
            sweep_at: SWEEP_AT,
            listeners: HashMap::new(),
        }
    }
}

impl Shared {
    pub(super) fn micros(&self) -> u64 {
        self.start_micros + u64::try_from(self.now.since(self.start).as_micros()).unwrap_or_default()
    }

    pub(super) fn draw(&mut self, count: u32) -> u64 {
        let first = self.micros().max(self.last_fence + 1);
        self.last_fence = first + u64::from(count) - 1;
        first
    }

    pub(super) fn listener(&self, token: &Token) -> Option<Weak<dyn Events>> {
        let process = token.as_str().split('.').next()?;
        self.listeners.get(process).filter(|events| events.strong_count() > 0).cloned()
    }

    /// The lock, without the leases that have ended.
    fn lock(&mut self, key: &str) -> Option<&mut Lock> {
        let lock = self.locks.get_mut(key)?;
        lock.end_over(self.now);
        Some(lock)
    }

    /// Forgets the locks that have ended by themselves: nobody else comes for their keys. Each lock is looked at only when the locks are
    /// twice as many as those that were left the last time.
    pub(super) fn forget_ended(&mut self) {
        mutant!(EndedLocksKept => return);
        if self.locks.len() < self.sweep_at {
            return;
        }
        self.locks.retain(|_, lock| {
            lock.end_over(self.now);
            lock.is_used()
        });
        self.sweep_at = SWEEP_AT.max(self.locks.len() * 2);
    }

    pub(super) fn owner(&mut self, key: &str) -> Option<(Token, Deadline)> {
        self.lock(key)?.owner.clone()
    }

    /// Whether nobody has the lock, neither alone nor shared.
    pub(super) fn is_free(&mut self, key: &str) -> bool {
        self.lock(key).is_none_or(|lock| lock.is_free())
    }

    pub(super) fn set(&mut self, key: &Arc<str>, token: &Token, lease: Duration) {
        self.locks.entry(Arc::clone(key)).or_default().owner = Some((token.clone(), Deadline::new(self.now, lease)));
    }

    pub(super) fn waits(&self, key: &str) -> bool {
        self.locks.get(key).is_some_and(|lock| !lock.queue.is_empty())
    }

    /// Takes the token out of the queue. Returns whether it was there.
    pub(super) fn leave_queue(&mut self, key: &str, token: &Token) -> bool {
        let Some(lock) = self.locks.get_mut(key) else { return false };
        let before = lock.queue.len();
        lock.queue.retain(|waiter| waiter.token != *token);
        lock.queue.len() < before
    }

    pub(super) fn join_queue(&mut self, key: &Arc<str>, token: &Token, share: Option<Share>, claim: Duration) {
        let lock = self.locks.entry(Arc::clone(key)).or_default();
        if !lock.queue.iter().any(|waiter| waiter.token == *token) {
            lock.queue.push_back(Waiter { token: token.clone(), replaces: false, share, claim });
        }
    }

    /// `hand_off` of queue.lua. Returns whether a waiter has the lock now.
    pub(super) fn hand_off(&mut self, key: &Arc<str>, caller: Option<&Token>, pushes: &mut Vec<Push>) -> bool {
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
            if caller == Some(&token) {
                self.set(key, &token, claim);
                return true;
            }
            if let Some(listener) = self.listener(&token) {
                self.set(key, &token, claim);
                self.push_grant(listener, key, token, claim, pushes);
                return true;
            }
        }
    }

    /// Tells a waiter that the lock was granted to it.
    pub(super) fn push_grant(
        &self,
        listener: Weak<dyn Events>,
        key: &Arc<str>,
        token: Token,
        claim: Duration,
        pushes: &mut Vec<Push>,
    ) {
        // Rule 7: the message and the end of the lease count from one reading of the clock.
        let (contended, store_micros) = (self.waits(key), self.micros());
        let pushed = Pushed { token, claim, store_micros, contended, node: None, unconfirmed: false };
        pushes.push(Push::Granted(listener, Arc::clone(key), pushed));
    }

    /// ask.lua, and the plain claim.
    pub(super) fn ask(&mut self, ask: &Ask, pushes: &mut Vec<Push>) -> Answer {
        let now = self.now;
        if ask.wait && ask.give_up.has_passed_at(now) {
            return Answer::Late;
        }
        if let Some(replacing) = &ask.replaces {
            return self.replace(ask, replacing, pushes);
        }
        if ask.share.is_some() {
            return self.ask_for_share(ask, pushes);
        }
        if self.is_free(&ask.key) && !self.hand_off(&ask.key, Some(&ask.token), pushes) {
            self.set(&ask.key, &ask.token, ask.claim);
        }
        let owner = self.owner(&ask.key);
        if owner.is_none() && !self.is_free(&ask.key) {
            return self.refuse(ask, pushes);
        }
        let Some((owner, until)) = owner else {
            return Answer::Late; // the claim ran out in between: as good as never asked
        };
        if owner == ask.token {
            self.leave_queue(&ask.key, &ask.token);
            let fence = (ask.fences > 0).then(|| self.draw(ask.fences));
            let until = Deadline::new(now, without_drift(until.remaining_at(now)));
            return Answer::Granted(Grant { until, contended: self.waits(&ask.key), fence });
        }
        if ask.wait {
            self.join_queue(&ask.key, &ask.token, None, ask.claim);
            if let Some(listener) = self.listener(&owner) {
                pushes.push(Push::Contended(listener, Arc::clone(&ask.key)));
            }
        }
        Answer::Busy(self.busy(owner, until))
    }

    pub(super) fn busy(&self, owner: Token, until: Deadline) -> Busy {
        let now = self.now;
        Busy {
            owner,
            frees_in: Some(until.remaining_at(now)),
            endless: false,
            anchor: Some(Anchor { sent: now, store_micros: self.micros(), drift: Drift::DEFAULT, node: None }),
            pause: Duration::ZERO,
            stands: false,
        }
    }

    /// release.lua.
    pub(super) fn release(&mut self, release: &Release, pushes: &mut Vec<Push>) -> Released {
        if let Some(kept_until) = &release.kept_until {
            return Released { ownership: self.rest(release, **kept_until), again: None };
        }
        if release.share.is_some() {
            return self.release_share(release, pushes);
        }
        let key = &release.key;
        let owner = self.owner(key);
        let is_free = self.is_free(key);
        let ownership = ownership_alone(owner.as_ref(), &release.token);
        let waited = self.leave_queue(key, &release.token);
        if let Some((token, claim)) = &release.again {
            self.join_queue(key, token, None, *claim);
        }
        let again = release.again.as_ref().map(|(token, _)| token);
        if ownership != Ownership::NotOwned || is_free {
            self.hand_off(key, again, pushes);
        } else if owner.is_none() {
            // The token may have stood in front of others that fit.
            self.admit(key, again, pushes);
        } else if let Some((owner, _)) = owner
            && again != Some(&owner)
            && (again.is_some() || !waited && self.waits(key))
            && let Some(listener) = self.listener(&owner)
        {
            pushes.push(Push::Contended(listener, Arc::clone(key)));
        }
        let answer = again.and_then(|token| {
            let now = self.now;
            let owner = self.owner(key);
            if owner.is_none() && !self.is_free(key) {
                let ask = Ask::along(release, Deadline::new(now, Duration::ZERO))?;
                return Some(self.refuse(&ask, pushes));
            }
            let (owner, until) = owner?;
            Some(if owner == *token {
                let until = Deadline::new(now, without_drift(until.remaining_at(now)));
                Answer::Granted(Grant { until, contended: self.waits(key), fence: None })
            } else {
                Answer::Busy(self.busy(owner, until))
            })
        });
        self.forget_if_unused(key);
        Released { ownership, again: answer }
    }

    /// rest.lua.
    fn rest(&mut self, release: &Release, kept_until: Deadline) -> Ownership {
        if release.share.is_some() {
            return self.rest_share(&release.key, &release.token, kept_until);
        }
        let Some((owner, until)) = self.owner(&release.key) else { return Ownership::NotOwned };
        let marked = release.token.to_resting();
        if owner == release.token
            && let Some(lock) = self.locks.get_mut(&release.key)
        {
            lock.owner = Some((marked.clone(), until.min_at(kept_until, self.now)));
        }
        if owner == release.token || owner == marked {
            return Ownership::Owned;
        }
        self.ownership(&release.key, &release.token)
    }

    /// What the lock is to `token`.
    pub(super) fn ownership(&mut self, key: &str, token: &Token) -> Ownership {
        match self.owner(key) {
            Some(owner) => ownership_alone(Some(&owner), token),
            None => self.locks.get(key).map_or(Ownership::NotOwned, |lock| lock.sharing.ownership(token)),
        }
    }

    pub(super) fn renew(&mut self, renewal: &Renewal) -> Renewed {
        if renewal.share.is_some() {
            return self.renew_share(renewal);
        }
        match self.owner(&renewal.key) {
            Some((owner, until)) if owner == renewal.token => {
                let now = self.now;
                let longer = until.max_at(Deadline::new(now, renewal.lease), now);
                self.set(&renewal.key, &renewal.token, longer.remaining_at(now));
                Renewed::Until(Deadline::new(now, without_drift(renewal.lease)))
            }
            Some((owner, _)) if owner.is_forced_from(&renewal.token) => Renewed::Forced,
            _ => Renewed::NotOwned,
        }
    }

    /// inspect.lua.
    pub(super) fn inspect(&mut self, key: &str) -> Option<Seen> {
        let owner = self.owner(key);
        let lock = self.locks.get(key)?;
        let waiting = lock.queue.iter().map(|waiter| waiter.token.clone()).collect();
        let (owner, until) = owner.or_else(|| lock.sharing.as_owner(self.now))?;
        let frees_in = Some(until.remaining_at(self.now));
        Some(Seen { owner, frees_in, sharing: lock.sharing.leases(), waiting })
    }

    /// force.lua. Here all owners are tokens of managers. `caller` is a token that reads the outcome from the answer.
    pub(super) fn force(&mut self, key: &Arc<str>, caller: Option<&Token>, pushes: &mut Vec<Push>) -> Forced {
        let Some((owner, until)) = self.owner(key) else { return self.force_shared(key, caller, pushes) };
        if owner.is_unused() {
            return self.take_at_once(key, caller, pushes);
        }
        let (token, marked) = match owner.unforced() {
            Some(token) => (token, owner),
            None => (owner.clone(), owner.to_forced()),
        };
        self.set(key, &marked, until.remaining_at(self.now).min(CLAIM));
        if let Some(listener) = self.listener(&token) {
            pushes.push(Push::Forced(listener, Arc::clone(key), token));
        }
        Forced::Leaving(marked)
    }

    pub(super) fn forget_if_unused(&mut self, key: &str) {
        if self.lock(key).is_some_and(|lock| !lock.is_used()) {
            self.locks.remove(key);
        }
    }
}

/// What a lock that `owner` has alone is to `token`.
fn ownership_alone(owner: Option<&(Token, Deadline)>, token: &Token) -> Ownership {
    match owner {
        Some((owner, _)) if owner == token => Ownership::Owned,
        Some((owner, _)) if owner.is_forced_from(token) => Ownership::Forced,
        _ => Ownership::NotOwned,
    }
}
