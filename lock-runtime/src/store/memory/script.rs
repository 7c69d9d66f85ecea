//! [`Script`]: what each verb does to a lock in memory. The lock is a list of leases: one exclusive lease, or several shared ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Message, Server};
use crate::clock::{Deadline, Drift, Moment, without_drift};
use crate::share::Share;
use crate::store::{
    Adoption, Anchor, Answer, Ask, Busy, Forced, Giving, Grant, Ownership, Pushed, Release, Renewal, Renewed,
    Replacing, SHARED, Seen, TicketAnswer,
};
use crate::timing::CLAIM;
use crate::token::Token;

/// A first waiter that has not asked for this long is dead.
const HEAD_LIFE: Duration = Duration::from_secs(2);
/// The same limit until its first ask as the first waiter.
const NEW_HEAD_LIFE: Duration = Duration::from_millis(1750);

#[derive(Default)]
pub(super) struct Lock {
    pub(super) leases: SmallVec<[Lease; 1]>,
    queue: VecDeque<Waiter>,
    /// The first waiter of a shared lock, and until when it counts as alive.
    head: Option<(Token, Deadline)>,
    /// The requests that replace the holder, newest first, and until when each of them may ask. The newest waits in front.
    replacing: Vec<(Token, Deadline)>,
}

pub(super) struct Lease {
    share: Option<Share>,
    /// Marked after the lock was taken by force, until its owner has stopped.
    token: Token,
    until: Deadline,
}

struct Waiter {
    token: Token,
    /// Whether it replaces the holder.
    replaces: bool,
    share: Option<Share>,
    claim: Duration,
}

impl Lock {
    /// Whether the lock is taken, or has waiters, or a replacing request may still ask whether a newer one has arrived.
    pub(super) fn is_used(&self) -> bool {
        !self.leases.is_empty() || !self.queue.is_empty() || !self.replacing.is_empty()
    }

    /// Ends the leases whose time is over.
    pub(super) fn end_over(&mut self, now: Moment) {
        self.leases.retain(|lease| !lease.until.has_passed_at(now));
        self.replacing.retain(|(_, until)| !until.has_passed_at(now));
    }

    fn is_shared(&self) -> bool {
        self.leases.first().is_some_and(|lease| lease.share.is_some())
    }

    /// Whether one more lease may begin.
    fn fits(&self, share: Option<Share>) -> bool {
        match share {
            _ if self.leases.is_empty() => true,
            Some(share) => self.is_shared() && !self.is_forced() && share.fits_beside(self.leases.len()),
            None => false,
        }
    }

    /// Whether the lock was taken from all its owners, not just one of several leases.
    fn is_forced(&self) -> bool {
        !self.leases.is_empty() && self.leases.iter().all(|lease| lease.token.unforced().is_some())
    }

    fn owned(&mut self, token: &Token) -> Option<&mut Lease> {
        self.leases.iter_mut().find(|lease| lease.token == *token)
    }

    fn ownership(&self, token: &Token) -> Ownership {
        if self.leases.iter().any(|lease| lease.token == *token) {
            return Ownership::Owned;
        }
        let is_forced = self.leases.iter().any(|lease| lease.token.is_forced_from(token));
        if is_forced { Ownership::Forced } else { Ownership::NotOwned }
    }

    /// The value at the lock's key, and until when it stays.
    fn value(&self, now: Moment) -> Option<(Token, Deadline)> {
        let last = self.leases.iter().max_by_key(|lease| lease.until.remaining_at(now))?;
        let shared = || if self.is_forced() { Token::foreign(SHARED).to_forced() } else { Token::foreign(SHARED) };
        Some((last.share.map_or_else(|| last.token.clone(), |_| shared()), last.until))
    }

    /// Removes the token from the queue. Returns whether it was there.
    fn leave_queue(&mut self, token: &Token) -> bool {
        let before = self.queue.len();
        self.queue.retain(|waiter| waiter.token != *token);
        self.queue.len() < before
    }

    fn join_queue(&mut self, Ask { token, share, claim, .. }: &Ask) {
        if !self.queue.iter().any(|waiter| waiter.token == *token) {
            self.queue.push_back(Waiter { token: token.clone(), replaces: false, share: *share, claim: *claim });
        }
    }
}

/// One verb on one lock.
pub(super) struct Script<'a> {
    pub(super) key: &'a Arc<str>,
    pub(super) lock: &'a mut Lock,
    pub(super) server: &'a mut Server,
}

impl Script<'_> {
    /// `ask.lua`, `shared_ask.lua`, and the plain claim.
    pub(super) fn ask(&mut self, ask: &Ask, waits: bool) -> Answer {
        let Ask { token, share, claim, .. } = ask;
        if waits && ask.give_up.has_passed_at(self.server.now) {
            return Answer::Late;
        }
        if let Some(replacing) = &ask.replaces
            && self.lock.owned(token).is_none()
            && !self.replace(ask, replacing)
        {
            return Answer::Replaced;
        }
        if self.lock.owned(token).is_none() && (share.is_some() || self.lock.leases.is_empty()) {
            // A lease that has ended by itself may have left room.
            self.admit(Some(token));
            let is_next = self.lock.queue.front().is_none_or(|first| first.token == *token);
            if self.lock.owned(token).is_none() && is_next && self.lock.fits(*share) {
                self.lock.leave_queue(token);
                self.add_lease(*share, token, *claim);
                self.admit(None);
            }
        }
        match self.lock.ownership(token) {
            Ownership::Owned => {
                self.lock.leave_queue(token);
                // Owners of a shared lock draw for themselves.
                Answer::Granted(self.grant(token, if share.is_some() { ask.fences.min(1) } else { ask.fences }))
            }
            // Rule 21: its lock was taken before it learned of the grant.
            Ownership::Forced if share.is_some() => {
                let forced = token.to_forced();
                let until = self.lock.owned(&forced).map(|lease| lease.until);
                self.busy(until.map(|until| (forced, until)))
            }
            // A request that replaces the holder is in the queue already, and the owner knows.
            Ownership::Forced | Ownership::NotOwned => self.refuse(ask, waits && ask.replaces.is_none()),
        }
    }

    /// `replace.lua`: puts a request in front, and takes the lock from its owner. Returns `false` when there is a newer request.
    fn replace(&mut self, ask: &Ask, Replacing { name, is_known }: &Replacing) -> bool {
        let Ask { token, claim, .. } = ask;
        let lock = &mut *self.lock;
        let place = lock.replacing.iter().position(|(other, _)| other == name);
        let is_new = place.is_none() && (!is_known || lock.replacing.is_empty());
        lock.leave_queue(token);
        if !is_new && place != Some(0) {
            return false;
        }
        if lock.queue.front().is_some_and(|first| first.replaces)
            && let Some(older) = lock.queue.pop_front()
        {
            self.server.tell(self.key, &older.token, Message::Forced(older.token.clone()));
        }
        lock.queue.push_front(Waiter { token: token.clone(), replaces: true, share: None, claim: *claim });
        if is_new {
            lock.replacing.insert(0, (name.clone(), ask.give_up));
            // What a dropped body has sent may still arrive (rule 23).
            if !lock.leases.iter().any(|lease| lease.share.is_none() && lease.token.is_delayed()) {
                self.force(Some(token), None);
            }
        }
        true
    }

    /// `hand_off` of `queue.lua`, and `admit` of `shared.lua`: grants the lock to as many of the first waiters as fit. The `caller` reads
    /// the outcome from its answer.
    pub(super) fn admit(&mut self, caller: Option<&Token>) {
        if self.lock.leases.is_empty() {
            self.lock.head = None;
        }
        loop {
            let before = self.server.messages.len();
            while let Some(share) = self.lock.queue.front().map(|first| first.share)
                && self.lock.fits(share)
                && let Some(Waiter { token, claim, .. }) = self.lock.queue.pop_front()
            {
                let is_caller = caller == Some(&token);
                if is_caller || self.server.listener(&token).is_some() {
                    self.add_lease(share, &token, claim);
                }
                if !is_caller {
                    // Rule 7: the message and the end of the lease count from one reading of the clock.
                    let (to, store_micros) = (token.clone(), self.server.micros());
                    let pushed =
                        Pushed { token, claim, store_micros, contended: false, node: None, unconfirmed: false };
                    self.server.tell(self.key, &to, Message::Granted(pushed));
                }
            }
            let Some(first) = self.lock.queue.front() else { return };
            for (.., message) in self.server.messages.iter_mut().skip(before) {
                if let Message::Granted(pushed) = message {
                    pushed.contended = true;
                }
            }
            if !self.lock.is_shared() || caller == Some(&first.token) {
                return;
            }
            // Rule S4: the first waiter is alive if it has asked lately, or has just become the first, and can receive that message.
            let lives = match &self.lock.head {
                Some((noted, until)) if *noted == first.token => !until.has_passed_at(self.server.now),
                _ => {
                    let is_heard = self.server.listener(&first.token).is_some();
                    if is_heard {
                        self.lock.head = Some((first.token.clone(), Deadline::new(self.server.now, NEW_HEAD_LIFE)));
                    }
                    is_heard
                }
            };
            if lives {
                return;
            }
            self.lock.queue.pop_front();
        }
    }

    fn add_lease(&mut self, share: Option<Share>, token: &Token, claim: Duration) {
        self.lock.leases.push(Lease { share, token: token.clone(), until: Deadline::new(self.server.now, claim) });
    }

    fn grant(&mut self, token: &Token, fences: u32) -> Grant {
        let now = self.server.now;
        let left = self.lock.owned(token).map(|lease| lease.until.remaining_at(now)).unwrap_or_default();
        let fence = (fences > 0).then(|| self.server.draw(fences));
        Grant { until: Deadline::new(now, without_drift(left)), contended: !self.lock.queue.is_empty(), fence }
    }

    /// An ask that waits joins the queue, and the owners are notified.
    fn refuse(&mut self, ask: &Ask, waits: bool) -> Answer {
        let now = self.server.now;
        if waits {
            self.lock.join_queue(ask);
            if self.lock.queue.front().is_some_and(|first| first.token == ask.token) {
                self.lock.head = Some((ask.token.clone(), Deadline::new(now, HEAD_LIFE)));
            }
            for Lease { token, share, .. } in &self.lock.leases {
                // A process's own permits are no reason for its holds to end.
                if ask.share.is_none() || share.is_none() || !token.is_of_same_process(&ask.token) {
                    self.server.tell(self.key, token, Message::Contended);
                }
            }
        }
        if self.lock.is_shared() && self.lock.is_forced() {
            return self.busy(self.lock.value(now));
        }
        // An ask to share waits for the first of the leases to end, any other ask for the last.
        let (leases, left) = (self.lock.leases.iter(), |lease: &&Lease| lease.until.remaining_at(now));
        let holder = if ask.share.is_some() { leases.min_by_key(left) } else { leases.max_by_key(left) };
        self.busy(holder.map(|lease| (lease.token.clone(), lease.until)))
    }

    fn busy(&self, holder: Option<(Token, Deadline)>) -> Answer {
        let Some((owner, until)) = holder else {
            return Answer::Late; // it ended in between: as good as never asked
        };
        let now = self.server.now;
        Answer::Busy(Busy {
            owner,
            frees_in: Some(until.remaining_at(now)),
            endless: false,
            anchor: Some(Anchor { sent: now, store_micros: self.server.micros(), drift: Drift::DEFAULT, node: None }),
            pause: Duration::ZERO,
            stands: false,
        })
    }

    /// `release.lua`, `shared_release.lua`, `rest.lua`.
    pub(super) fn release(&mut self, release: &Release) -> Ownership {
        let (token, now) = (&release.token, self.server.now);
        if let Some(kept_until) = &release.kept_until {
            let marked = token.to_resting(release.is_delay);
            // After a take by force only an exclusive lock rests.
            let held = if release.is_delay && release.share.is_none() && self.lock.owned(token).is_none() {
                token.to_forced()
            } else {
                token.clone()
            };
            if let Some(lease) = self.lock.owned(&held) {
                lease.until = if release.is_delay { **kept_until } else { lease.until.min_at(**kept_until, now) };
                lease.token = marked.clone();
            }
            let is_marked = self.lock.owned(&marked).is_some();
            let ownership = if is_marked { Ownership::Owned } else { self.lock.ownership(token) };
            return ownership;
        }
        let is_alike = self.lock.is_shared() == release.share.is_some();
        let ownership = if is_alike { self.lock.ownership(token) } else { Ownership::NotOwned };
        if ownership != Ownership::NotOwned {
            self.lock.leases.retain(|lease| lease.token != *token && !lease.token.is_forced_from(token));
        }
        let has_waited = self.lock.leave_queue(token);
        match self.lock.leases.first() {
            Some(Lease { share: None, token: owner, .. }) => {
                // A waiter that only leaves had notified the owner when it joined.
                if !has_waited && !self.lock.queue.is_empty() {
                    self.server.tell(self.key, owner, Message::Contended);
                }
            }
            // In the queue of a shared lock, the token may have stood in front of others that fit.
            _ => self.admit(None),
        }
        ownership
    }

    /// `renew.lua`, `shared_renew.lua`.
    pub(super) fn renew(&mut self, renewal: &Renewal) -> Renewed {
        let now = self.server.now;
        if let Some(lease) = self.lock.owned(&renewal.token) {
            lease.until = lease.until.max_at(Deadline::new(now, renewal.lease), now);
            return Renewed::Until(Deadline::new(now, without_drift(renewal.lease)));
        }
        let is_forced = self.lock.ownership(&renewal.token) == Ownership::Forced;
        if is_forced { Renewed::Forced } else { Renewed::NotOwned }
    }

    /// `draw.lua`, `shared_draw.lua`.
    pub(super) fn draw(&mut self, token: &Token, count: u32) -> Option<u64> {
        self.lock.owned(token).map(|_| self.server.draw(count))
    }

    /// `inspect.lua`.
    pub(super) fn inspect(&self) -> Option<Seen> {
        let now = self.server.now;
        let (owner, until) = self.lock.value(now)?;
        let sharing = self.lock.leases.iter().filter_map(|lease| Some((lease.share?, lease.token.clone()))).collect();
        let waiting = self.lock.queue.iter().map(|waiter| waiter.token.clone()).collect();
        Some(Seen { owner, frees_in: Some(until.remaining_at(now)), sharing, waiting })
    }

    /// `force.lua`, for all leases or `one` of them. Here all owners are tokens of managers.
    pub(super) fn force(&mut self, caller: Option<&Token>, one: Option<&Token>) -> Forced {
        let is_meant = |lease: &Lease| one.is_none_or(|one| lease.token == *one);
        if !self.lock.leases.iter().any(is_meant) {
            return Forced::Free;
        }
        // No body has to stop for a ticket, or for a lock that rests.
        self.lock.leases.retain(|lease| !is_meant(lease) || !lease.token.is_unused());
        let now = self.server.now;
        for lease in self.lock.leases.iter_mut().filter(|lease| is_meant(lease)) {
            let token = lease.token.unforced().unwrap_or_else(|| lease.token.clone());
            (lease.token, lease.until) = (token.to_forced(), lease.until.min_at(Deadline::new(now, CLAIM), now));
            self.server.tell(self.key, &token.clone(), Message::Forced(token));
        }
        let marked = match one {
            Some(one) => self.lock.owned(&one.to_forced()).map(|lease| lease.token.clone()),
            None => self.lock.value(now).map(|(value, _)| value),
        };
        if let Some(marked) = marked {
            return Forced::Leaving(marked);
        }
        self.admit(caller);
        Forced::Gone
    }

    /// `ticket.lua`.
    pub(super) fn give(&mut self, Giving { token, ticket, kept_for, .. }: &Giving) -> Ownership {
        if let Some(lease) = self.lock.owned(token) {
            (lease.token, lease.until) = (ticket.clone(), Deadline::new(self.server.now, *kept_for));
        }
        if self.lock.owned(ticket).is_some() { Ownership::Owned } else { self.lock.ownership(token) }
    }

    /// `adopt.lua`.
    pub(super) fn adopt(&mut self, Adoption { ask, ticket }: &Adoption) -> TicketAnswer {
        if let Some(lease) = self.lock.owned(ticket) {
            (lease.token, lease.until) = (ask.token.clone(), Deadline::new(self.server.now, ask.claim));
        }
        match self.lock.ownership(&ask.token) {
            Ownership::Owned => TicketAnswer::Granted(self.grant(&ask.token, ask.fences)),
            Ownership::NotOwned => TicketAnswer::Over,
            Ownership::Forced => TicketAnswer::Forced,
        }
    }

    #[cfg(test)]
    pub(super) fn raise(&mut self, token: &Token, fence: u64) -> bool {
        let is_owned = self.lock.owned(token).is_some();
        if is_owned {
            self.server.last_fence = self.server.last_fence.max(fence);
        }
        is_owned
    }

    #[cfg(test)]
    pub(super) fn look(&self) -> (Option<Token>, usize) {
        (self.lock.leases.first().map(|lease| lease.token.clone()), self.lock.queue.len())
    }
}
