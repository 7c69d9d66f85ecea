//! What the store tells a manager: grants, waiters, forces, alarms, and interruptions.

use std::sync::Arc;
use std::time::Duration;

use super::{Core, Slot};
use crate::lock::ForcedToken;
use crate::observe;
use crate::protocol::{Pushed, Release};
use crate::store::{Events, Store, Traffic};
use crate::timing::CLAIM;
use crate::token::Token;

impl Events for Core {
    fn on_grant(&self, key: &str, pushed: &Pushed) {
        // Rule 22: what belongs to another process is not for this one to release, whoever says so. Nor is a token that was not made yet:
        // its release would wait, and then release a lease that a task holds.
        if !self.may_be_told_of(&pushed.token) {
            return;
        }
        if self.slots_of(key).any(|slot| slot.on_grant(pushed)) || self.schedule.is_releasing(&pushed.token) {
            // A second release would be answered before the one that a task waits for, which would then find nothing.
            return;
        }
        // Rule 12: nobody here waits for this grant, so it is released.
        mutant!(StrayGrantKept => return);
        observe::stray_grant(key);
        self.withdraw_stray(Release::withdrawal(&key.into(), &pushed.token, pushed.claim));
    }

    fn on_contention(&self, key: &str) {
        let alone = self.table.get(key);
        let sharing = self.table.sharing(key);
        if sharing.is_empty() {
            if let Some(slot) = alone {
                self.note_others_wait(&slot);
            }
            return;
        }
        // A slot that has a lease owns the lock. If no slot has a lease, a grant is on its way, and it may be for any of the slots.
        // Beside a lease that shares the lock, such a grant may be for one more share.
        let is_shared = sharing.iter().any(|slot| slot.has_lease());
        let has_owner = is_shared || alone.as_ref().is_some_and(|slot| slot.has_lease());
        let is_concerned = |slot: &&Arc<Slot>| {
            !has_owner || slot.has_lease() || (is_shared && slot.peek(|lock| lock.may_be_granted_a_share(&***slot)))
        };
        for slot in alone.iter().chain(&sharing).filter(is_concerned) {
            self.note_others_wait(slot);
        }
    }

    fn on_near(&self, key: &str, store_micros: u64) {
        for slot in self.slots_of(key) {
            slot.step(|lock, _| lock.on_near(store_micros));
        }
    }

    fn on_forced(&self, key: &str, token: &Token) {
        if !self.may_be_told_of(token) {
            return;
        }
        match self.slots_of(key).find_map(|slot| Some((slot.step(|lock, _| lock.on_forced(token))?, slot))) {
            Some((ForcedToken::Leased, slot)) => {
                mutant!(ForcedBeforeBody => self.release_later(Release::withdrawal(&key.into(), token, CLAIM)));
                mutant!(ForcedUnchecked => self.revoke(&slot, Some(token), crate::error::LossReason::Forced));
                self.schedule.verify(vec![slot]);
            }
            Some((ForcedToken::Lingers, slot)) => {
                self.release_if_lingering(&slot);
                // A task may have taken it over just before. Whether the message is true, the store knows.
                self.schedule.verify(vec![slot]);
            }
            // The mark ends with the release that comes after the token's use. Otherwise the mark ends with its claim.
            Some((ForcedToken::Awaited, _)) => {}
            // So it does with a release that is on its way, and that says to its task what it found.
            None if self.schedule.is_releasing(token) => {}
            // Nobody here uses the token any more, and its release was given up.
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
            // Who has the lock hears of others who want it, and who waits hears of the grant. Neither sends anything by itself.
            mutant!(HolderNotReconnected => if slot.has_lease() { continue });
            self.store.reconnect_reader(slot.key());
            // What lingers is not worth a command that verifies it. Whoever waits may not have been heard.
            self.release_if_lingering(slot);
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
