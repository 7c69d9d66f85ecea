//! [`Sharing`]: the shared leases of a lock in memory, with the semantics of `shared.lua`.

use std::sync::Arc;
use std::time::Duration;

use super::{Shared, Waiter};
use crate::clock::{Deadline, Moment, without_drift};
use crate::share::Share;
use crate::store::memory::Push;
use crate::store::seen::SHARED;
use crate::store::{Answer, Ask, Forced, Grant, Ownership, Release, Released, Renewal, Renewed};
use crate::timing::CLAIM;
use crate::token::Token;

/// A first waiter that has not asked for this long is dead.
const HEAD_LIFE: Duration = Duration::from_secs(2);
/// The same until its first ask as the first waiter.
const NEW_HEAD_LIFE: Duration = Duration::from_millis(1750);

/// The shared leases of one lock.
#[derive(Default)]
pub(in crate::store::memory) struct Sharing {
    leases: Vec<Lease>,
    /// Until when the lock stays taken after it was released by force.
    forced: Option<Deadline>,
    /// The first waiter, and until when it counts as alive.
    head: Option<(Token, Deadline)>,
}

struct Lease {
    share: Share,
    token: Token,
    until: Deadline,
}

impl Sharing {
    /// Removes the leases that have ended.
    pub(in crate::store::memory) fn end_over(&mut self, now: Moment) {
        if self.forced.take_if(|until| until.has_passed_at(now)).is_some() {
            self.leases.clear();
        }
        self.leases.retain(|lease| !lease.until.has_passed_at(now));
        if self.leases.is_empty() {
            self.forced = None;
        }
    }

    pub(in crate::store::memory) fn is_none(&self) -> bool {
        self.leases.is_empty()
    }

    /// What stands in place of an owner, and until when.
    pub(in crate::store::memory) fn as_owner(&self, now: Moment) -> Option<(Token, Deadline)> {
        let last = self.ends_last(now)?.until;
        let mark = Token::foreign(SHARED);
        Some(self.forced.map_or((mark.clone(), last), |until| (mark.to_forced(), until)))
    }

    pub(in crate::store::memory) fn leases(&self) -> Vec<(Share, Token)> {
        self.leases.iter().map(|lease| (lease.share, lease.token.clone())).collect()
    }

    /// What the lock is to `token`, when nobody has the lock alone.
    pub(in crate::store::memory) fn ownership(&self, token: &Token) -> Ownership {
        match self.forced {
            _ if self.leases.iter().all(|lease| lease.token != *token) => Ownership::NotOwned,
            Some(_) => Ownership::Forced,
            None => Ownership::Owned,
        }
    }

    fn ends_first(&self, now: Moment) -> Option<&Lease> {
        self.leases.iter().min_by_key(|lease| lease.until.remaining_at(now))
    }

    fn ends_last(&self, now: Moment) -> Option<&Lease> {
        self.leases.iter().max_by_key(|lease| lease.until.remaining_at(now))
    }

    fn note_head(&mut self, head: &Token, until: Deadline) {
        self.head = Some((head.clone(), until));
    }
}

impl Shared {
    pub(in crate::store::memory) fn has_share(&mut self, key: &str, token: &Token) -> bool {
        self.owner(key).is_none() && self.ownership(key, token) == Ownership::Owned
    }

    /// `admit` of shared.lua. Returns whether the lock is shared now.
    pub(in crate::store::memory) fn admit(
        &mut self,
        key: &Arc<str>,
        caller: Option<&Token>,
        pushes: &mut Vec<Push>,
    ) -> bool {
        loop {
            self.admit_those_that_fit(key, caller, pushes);
            let lock = self.locks.get(key);
            let is_shared = lock.is_some_and(|lock| !lock.sharing.is_none());
            let Some(head) = lock.and_then(|lock| lock.queue.front()).map(|waiter| waiter.token.clone()) else {
                return is_shared;
            };
            if !is_shared || caller == Some(&head) || self.head_lives(key, &head) {
                return is_shared;
            }
            self.leave_queue(key, &head);
        }
    }

    /// Whether the first waiter is alive (rule S4): it has asked lately; or it has just come to be the first, and can hear that.
    fn head_lives(&mut self, key: &str, head: &Token) -> bool {
        let is_heard = self.listener(head).is_some();
        let Some(lock) = self.locks.get_mut(key) else { return false };
        if let Some((_, until)) = lock.sharing.head.as_ref().filter(|(noted, _)| noted == head) {
            return !until.has_passed_at(self.now);
        }
        if is_heard {
            lock.sharing.note_head(head, Deadline::new(self.now, NEW_HEAD_LIFE));
        }
        is_heard
    }

    fn admit_those_that_fit(&mut self, key: &Arc<str>, caller: Option<&Token>, pushes: &mut Vec<Push>) {
        let mut granted = Vec::new();
        while let Some(lock) = self.locks.get_mut(key)
            && lock.sharing.forced.is_none()
            && let Some(share) = lock.queue.front().and_then(|waiter| waiter.share)
            && share.fits_beside(lock.sharing.leases.len())
            && let Some(Waiter { token, claim, .. }) = lock.queue.pop_front()
        {
            let listener = self.listener(&token);
            let is_caller = caller == Some(&token);
            if !is_caller && listener.is_none() {
                continue;
            }
            self.add_share(key, share, &token, claim);
            granted.extend(listener.filter(|_| !is_caller).map(|listener| (listener, token, claim)));
        }
        for (listener, token, claim) in granted {
            self.push_grant(listener, key, token, claim, pushes);
        }
    }

    fn add_share(&mut self, key: &Arc<str>, share: Share, token: &Token, claim: Duration) {
        let lock = self.locks.entry(Arc::clone(key)).or_default();
        lock.sharing.leases.push(Lease { share, token: token.clone(), until: Deadline::new(self.now, claim) });
    }

    /// `shared_ask.lua`.
    pub(in crate::store::memory) fn ask_for_share(&mut self, ask: &Ask, pushes: &mut Vec<Push>) -> Answer {
        let (key, token) = (&ask.key, &ask.token);
        let Some(share) = ask.share else { return Answer::Late };
        if self.is_free(key) && !self.hand_off(key, Some(token), pushes) {
            self.add_share(key, share, token, ask.claim);
        }
        if self.owner(key).is_none() && !self.has_share(key, token) {
            self.admit(key, Some(token), pushes);
            if !self.has_share(key, token) && self.fits(key, share) && self.is_next(key, token) {
                self.leave_queue(key, token);
                self.add_share(key, share, token, ask.claim);
                self.admit(key, None, pushes);
            }
        }
        if self.has_share(key, token) {
            self.leave_queue(key, token);
            let fence = (ask.fences > 0).then(|| self.draw(1));
            return Answer::Granted(Grant { fence, ..self.grant_of(key, token) });
        }
        let forced = self.locks.get(key).and_then(|lock| lock.sharing.forced);
        if let Some(until) = forced.filter(|_| self.ownership(key, token) == Ownership::Forced) {
            return Answer::Busy(self.busy(token.to_forced(), until));
        }
        self.refuse(ask, pushes)
    }

    pub(in crate::store::memory) fn grant_of(&self, key: &str, token: &Token) -> Grant {
        let now = self.now;
        let leases = self.locks.get(key).map_or(&[][..], |lock| &lock.sharing.leases);
        let left = leases.iter().find(|lease| lease.token == *token).map(|lease| lease.until.remaining_at(now));
        let until = Deadline::new(now, without_drift(left.unwrap_or_default()));
        Grant { until, contended: self.waits(key), fence: None }
    }

    fn fits(&self, key: &str, share: Share) -> bool {
        let lock = self.locks.get(key);
        lock.is_some_and(|lock| lock.sharing.forced.is_none() && share.fits_beside(lock.sharing.leases.len()))
    }

    /// Whether nobody waits in front of `token`.
    fn is_next(&self, key: &str, token: &Token) -> bool {
        let head = self.locks.get(key).and_then(|lock| lock.queue.front());
        head.is_none_or(|waiter| waiter.token == *token)
    }

    /// Refuses an ask when one of the two is shared, the ask or the lock. An ask that waits joins the queue, and the owners hear
    /// of it.
    pub(in crate::store::memory) fn refuse(&mut self, ask: &Ask, pushes: &mut Vec<Push>) -> Answer {
        let (key, owner) = (&ask.key, self.owner(&ask.key));
        if ask.wait {
            self.join_queue(key, &ask.token, ask.share, ask.claim);
            let lock = self.locks.entry(Arc::clone(key)).or_default();
            if lock.queue.front().is_some_and(|waiter| waiter.token == ask.token) {
                lock.sharing.note_head(&ask.token, Deadline::new(self.now, HEAD_LIFE));
            }
            // The other permits of the same process are no reason to end what it does.
            let is_told = |token: &Token| ask.share.is_none() || !token.is_of_same_process(&ask.token);
            let owners: Vec<Token> = match &owner {
                Some((owner, _)) => vec![owner.clone()],
                None => lock.sharing.leases.iter().map(|lease| lease.token.clone()).filter(is_told).collect(),
            };
            for listener in owners.iter().filter_map(|owner| self.listener(owner)) {
                pushes.push(Push::Contended(listener, Arc::clone(key)));
            }
        }
        let sharing = self.locks.get(key).map(|lock| &lock.sharing);
        let forced = sharing.and_then(|sharing| sharing.as_owner(self.now).filter(|_| sharing.forced.is_some()));
        let lease = sharing.and_then(|sharing| {
            if ask.share.is_some() { sharing.ends_first(self.now) } else { sharing.ends_last(self.now) }
        });
        let holder = owner.or(forced).or_else(|| lease.map(|lease| (lease.token.clone(), lease.until)));
        match holder {
            Some((holder, until)) => Answer::Busy(self.busy(holder, until)),
            // It ran out in between: as good as never asked.
            None => Answer::Late,
        }
    }

    /// `shared_release.lua`.
    pub(in crate::store::memory) fn release_share(&mut self, release: &Release, pushes: &mut Vec<Push>) -> Released {
        let key = &release.key;
        let is_free = self.is_free(key);
        let ownership = self.ownership(key, &release.token);
        self.leave_queue(key, &release.token);
        if let Some(lock) = self.locks.get_mut(key) {
            lock.sharing.leases.retain(|lease| lease.token != release.token);
        }
        let again = Ask::along(release, Deadline::new(self.now, CLAIM));
        if let Some(ask) = &again
            && !self.has_share(key, &ask.token)
        {
            self.join_queue(key, &ask.token, ask.share, ask.claim);
        }
        let caller = again.as_ref().map(|ask| &ask.token);
        if is_free || self.is_free(key) {
            self.hand_off(key, caller, pushes);
        } else if self.owner(key).is_none() {
            self.admit(key, caller, pushes);
        }
        let answer = again.map(|ask| {
            if self.has_share(key, &ask.token) {
                Answer::Granted(self.grant_of(key, &ask.token))
            } else {
                self.refuse(&ask, pushes)
            }
        });
        self.forget_if_unused(key);
        Released { ownership, again: answer }
    }

    /// `rest.lua`, for a shared lease.
    pub(in crate::store::memory) fn rest_share(&mut self, key: &str, token: &Token, kept_until: Deadline) -> Ownership {
        let (now, marked) = (self.now, token.to_resting());
        if !self.has_share(key, token) {
            let is_marked = self.has_share(key, &marked);
            return if is_marked { Ownership::Owned } else { self.ownership(key, token) };
        }
        let leases = self.locks.get_mut(key).map_or(&mut [][..], |lock| &mut lock.sharing.leases);
        for lease in leases.iter_mut().filter(|lease| lease.token == *token) {
            lease.until = lease.until.min_at(kept_until, now);
            lease.token.clone_from(&marked);
        }
        Ownership::Owned
    }

    /// Puts the token `to` in the place of the shared lease of `from`, until then.
    pub(in crate::store::memory) fn change_share(
        &mut self,
        key: &str,
        from: &Token,
        to: &Token,
        until: Deadline,
    ) -> bool {
        let leases = self.locks.get_mut(key).map_or(&mut [][..], |lock| &mut lock.sharing.leases);
        let Some(lease) = leases.iter_mut().find(|lease| lease.token == *from) else { return false };
        (lease.until, lease.token) = (until, to.clone());
        true
    }

    /// `shared_renew.lua`.
    pub(in crate::store::memory) fn renew_share(&mut self, renewal: &Renewal) -> Renewed {
        if !self.has_share(&renewal.key, &renewal.token) {
            let is_forced = self.ownership(&renewal.key, &renewal.token) == Ownership::Forced;
            return if is_forced { Renewed::Forced } else { Renewed::NotOwned };
        }
        let now = self.now;
        let leases = self.locks.get_mut(&renewal.key).map_or(&mut [][..], |lock| &mut lock.sharing.leases);
        for lease in leases.iter_mut().filter(|lease| lease.token == renewal.token) {
            lease.until = lease.until.max_at(Deadline::new(now, renewal.lease), now);
        }
        Renewed::Until(Deadline::new(now, without_drift(renewal.lease)))
    }

    /// force.lua, for a lock that nobody has alone.
    pub(in crate::store::memory) fn force_shared(
        &mut self,
        key: &Arc<str>,
        caller: Option<&Token>,
        pushes: &mut Vec<Push>,
    ) -> Forced {
        let Some(lock) = self.locks.get_mut(key).filter(|lock| !lock.sharing.is_none()) else { return Forced::Free };
        lock.sharing.leases.retain(|lease| !lease.token.is_unused());
        if lock.sharing.is_none() {
            return self.take_at_once(key, caller, pushes);
        }
        lock.sharing.forced.get_or_insert(Deadline::new(self.now, CLAIM));
        for (_, token) in lock.sharing.leases() {
            if let Some(listener) = self.listener(&token) {
                pushes.push(Push::Forced(listener, Arc::clone(key), token));
            }
        }
        Forced::Leaving(Token::foreign(SHARED).to_forced())
    }

    #[cfg(feature = "testing")]
    pub(in crate::store::memory) fn forget_sharing(&mut self, key: &str) {
        if let Some(lock) = self.locks.get_mut(key) {
            lock.sharing = Sharing::default();
        }
    }
}
