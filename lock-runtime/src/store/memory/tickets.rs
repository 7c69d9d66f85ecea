//! Locks that wait for their adopters, and asks in place of an owner, in memory: `ticket.lua`, `adopt.lua`, `replace.lua`.

use std::sync::Arc;

use super::Push;
use super::state::{Shared, Waiter};
use crate::clock::{Deadline, without_drift};
use crate::store::{Adoption, Answer, Ask, Forced, Giving, Grant, Ownership, Replacing, TicketAnswer};
use crate::token::Token;

impl Shared {
    /// `ticket.lua`.
    pub(super) fn give(&mut self, giving: &Giving) -> Ownership {
        let Giving { key, token, ticket, kept_for, .. } = giving;
        let until = Deadline::new(self.now, *kept_for);
        if self.change_owner(key, token, ticket, until) || self.owns(key, ticket) {
            return Ownership::Owned;
        }
        self.ownership(key, token)
    }

    /// `adopt.lua`.
    pub(super) fn adopt(&mut self, adoption: &Adoption) -> TicketAnswer {
        let Adoption { ask, ticket } = adoption;
        let now = self.now;
        let is_adopted = self.change_owner(&ask.key, ticket, &ask.token, Deadline::new(now, ask.claim));
        match self.ownership(&ask.key, &ask.token) {
            _ if is_adopted => {}
            Ownership::Owned => {}
            Ownership::NotOwned => return TicketAnswer::Over,
            Ownership::Forced => return TicketAnswer::Forced,
        }
        let fence = (ask.fences > 0).then(|| self.draw(ask.fences));
        let grant = match self.owner(&ask.key) {
            Some((_, until)) => {
                let until = Deadline::new(now, without_drift(until.remaining_at(now)));
                Grant { until, contended: self.waits(&ask.key), fence: None }
            }
            None => self.grant_of(&ask.key, &ask.token),
        };
        TicketAnswer::Granted(Grant { fence, ..grant })
    }

    fn owns(&mut self, key: &str, token: &Token) -> bool {
        self.ownership(key, token) == Ownership::Owned
    }

    /// Puts the token `to` in the place of the token `from`, until then. `false` when `from` owns nothing.
    fn change_owner(&mut self, key: &str, from: &Token, to: &Token, until: Deadline) -> bool {
        if !self.owns(key, from) {
            return false;
        }
        if self.owner(key).is_none() {
            return self.change_share(key, from, to, until);
        }
        if let Some(lock) = self.locks.get_mut(key) {
            lock.owner = Some((to.clone(), until));
        }
        true
    }

    /// `replace.lua`.
    pub(super) fn replace(&mut self, ask: &Ask, replacing: &Replacing, pushes: &mut Vec<Push>) -> Answer {
        let Ask { key, token, claim, .. } = ask;
        if !self.owns(key, token) {
            let Some(is_new) = self.come(ask, replacing) else {
                self.leave_queue(key, token);
                return Answer::Replaced;
            };
            let lock = self.locks.entry(Arc::clone(key)).or_default();
            let is_older = lock.queue.front().is_some_and(|first| first.replaces && first.token != *token);
            let older = if is_older { lock.queue.pop_front() } else { None };
            lock.queue.retain(|waiter| waiter.token != *token);
            lock.queue.push_front(Waiter { token: token.clone(), replaces: true, share: None, claim: *claim });
            if let Some(older) = older
                && let Some(listener) = self.listener(&older.token)
            {
                pushes.push(Push::Forced(listener, Arc::clone(key), older.token));
            }
            if is_new {
                self.force(key, Some(token), pushes);
            }
        }
        // It waits by now, and the owner knows.
        self.ask(&Ask { replaces: None, wait: false, ..ask.clone() }, pushes)
    }

    /// Notes that a request has come. Returns whether it is new, or `None` when a newer one has come since.
    fn come(&mut self, ask: &Ask, Replacing { name, is_known }: &Replacing) -> Option<bool> {
        let lock = self.locks.entry(Arc::clone(&ask.key)).or_default();
        lock.replacing.retain(|(_, until)| !until.has_passed_at(self.now));
        match lock.replacing.iter().position(|(other, _)| other == name) {
            Some(0) => Some(false),
            None if !is_known || lock.replacing.is_empty() => {
                lock.replacing.insert(0, (name.clone(), ask.give_up));
                Some(true)
            }
            _ => None,
        }
    }

    /// Frees a lock of which nobody has to stop, or passes it on.
    pub(super) fn take_at_once(&mut self, key: &Arc<str>, caller: Option<&Token>, pushes: &mut Vec<Push>) -> Forced {
        self.hand_off(key, caller, pushes);
        self.forget_if_unused(key);
        Forced::Gone
    }
}
