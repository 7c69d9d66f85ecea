//! Handles what the store reports to a manager: grants, waiters, forces, alarms, and interruptions.

use std::sync::Arc;
use std::time::Duration;

use super::{Core, Slot};
use crate::observe;
use crate::protocol::{Pushed, Release};
use crate::store::{Events, Store, Traffic};
use crate::timing::CLAIM;
use crate::token::Token;

impl Events for Core {
    fn on_grant(&self, key: &str, pushed: &Pushed) {
        // Rule 16: what belongs to another process is not for this one to release, whatever a message says. Nor is a token that was not
        // made yet: its release would be queued, and later release a lease that a task holds.
        if !self.may_be_told_of(&pushed.token) {
            return;
        }
        if self.table.of_key(key).into_iter().any(|slot| slot.on_grant(pushed))
            || self.schedule.is_releasing(&pushed.token)
        {
            // A second release would be answered before the one that a task waits for, which would then find nothing.
            return;
        }
        // Rule 1: no task here waits for this grant, so release it.
        mutant!(StrayGrantKept => return);
        observe::stray_grant(key);
        self.withdraw_stray(Release::withdrawal(&key.into(), &pushed.token, pushed.claim));
    }

    fn on_contention(&self, key: &str) {
        let slots = self.table.of_key(key);
        // A slot that has a lease owns the lock. If no slot has one, a grant is on its way, and it may be for any of the slots. If there is
        // a lease that shares the lock, the grant may be for one more share.
        let is_shared = slots.iter().any(|slot| slot.share.is_some() && slot.has_lease());
        let has_owner = slots.iter().any(|slot| slot.has_lease());
        let is_concerned = |slot: &&Arc<Slot>| {
            !has_owner || slot.has_lease() || (is_shared && slot.peek(|lock| lock.may_be_granted_a_share(&***slot)))
        };
        for slot in slots.iter().filter(is_concerned) {
            slot.on_contention(true);
        }
    }

    fn on_near(&self, key: &str, store_micros: u64) {
        for slot in self.table.of_key(key) {
            slot.step(|lock, _| lock.on_near(store_micros));
        }
    }

    fn on_forced(&self, key: &str, token: &Token) {
        if !self.may_be_told_of(token) {
            return;
        }
        let told = |slot: Arc<Slot>| Some((slot.step(|lock, out| lock.on_forced(token, slot.env(), out))?, slot));
        match self.table.of_key(key).into_iter().find_map(told) {
            Some((true, slot)) => {
                mutant!(ForcedBeforeBody => self.release_later(Release::withdrawal(&key.into(), token, CLAIM)));
                mutant!(ForcedUnchecked => self.revoke(&slot, Some(token), crate::error::LossReason::Forced));
                self.schedule.verify(vec![slot]);
            }
            // The mark ends with the release that follows the token's use. Otherwise the mark ends with its claim.
            Some((false, _)) => {}
            // Here the mark ends with the release in flight, which tells its task what it found.
            None if self.schedule.is_releasing(token) => {}
            // No task here uses the token any more, and its release was given up.
            None => self.withdraw_stray(Release::withdrawal(&key.into(), token, CLAIM)),
        }
    }

    fn on_alarm(&self, key: Option<&str>) {
        let mut slots = key.map_or_else(|| self.table.all(), |key| self.table.get(key).into_iter().collect());
        slots.retain(|slot| slot.step(|lock, _| lock.on_alarm()));
        if !slots.is_empty() {
            self.schedule.on_alarms(slots);
        }
    }

    fn on_interruption(&self, affects: &dyn Fn(&str) -> bool) {
        let mut affected = self.table.all();
        affected.retain(|slot| affects(slot.key()));
        for slot in &affected {
            slot.on_interruption();
            // An owner must hear of waiters, and a waiter of its grant, but neither sends anything by itself.
            mutant!(HolderNotReconnected => if slot.has_lease() { continue });
            self.store.reconnect_reader(slot.key());
            // A lingering lease is not worth a command to verify it. A waiter may have gone unheard.
            slot.release_lingering();
        }
        self.schedule.on_interruption(affected);
    }

    fn on_reconnect(&self, server: &str, of_callers: bool, away: Duration) {
        self.traffic.note_reconnect();
        observe::connected_again(server, self.label(), of_callers, away);
    }

    fn on_lost_withdrawal(&self, release: Release) {
        mutant!(LostWithdrawalForgotten => return);
        self.release_later(release);
    }

    fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }
}
