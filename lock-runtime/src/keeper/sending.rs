//! Sends renewals and repeated asks, and handles their answers.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Keeper, follow, spawn};
use crate::clock::Moment;
use crate::local::{BATCHES, Core, Slot, Warning};
use crate::mutex::Mutex;
use crate::observe;
use crate::store::{Answer, Ask, Reach, Renewal, Renewed, Retry, Store, StoreError};

/// What events call the commands.
const RENEW: &str = "renew";
const ASK: &str = "ask";

/// The room for batches in flight, for each server by itself: one that hangs delays no other.
///
/// A burst makes tens of thousands of renewals due at one moment. If all were sent at once, all answers would be late together, and all
/// would be sent again.
#[derive(Debug, Default)]
pub(super) struct Room(Mutex<HashMap<usize, Arc<Semaphore>>>);

impl Room {
    /// Waits until one more batch may be sent: first come, first served.
    async fn of(&self, server: usize) -> Option<OwnedSemaphorePermit> {
        mutant!(BatchesUnbounded => return None);
        let new = || Arc::new(Semaphore::new(BATCHES));
        let room = Arc::clone(self.0.lock().entry(server).or_insert_with(new));
        room.acquire_owned().await.ok()
    }
}

/// Reconnects when the keeper's connection broke. With a far server the confirmation of the next hold should not have to wait for a
/// connection.
pub(super) fn connect_again(keeper: &Arc<Keeper>) {
    if keeper.is_connecting.swap(true, Ordering::Relaxed) {
        return;
    }
    let keeper = Arc::clone(keeper);
    spawn(async move {
        keeper.store.connect_again(keeper.by()).await;
        keeper.is_connecting.store(false, Ordering::Relaxed);
    });
}

pub(super) fn send_renewals(keeper: &Arc<Keeper>, core: &Weak<Core>, batch: Vec<(Arc<Slot>, Renewal)>) {
    let (keeper, core) = (Arc::clone(keeper), Weak::clone(core));
    spawn(async move {
        let (slots, renewals): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let key = slots.first().map_or("", |slot| slot.key());
        let _room = keeper.renewals.of(keeper.store.server_of(key)).await;
        let sent = Moment::now();
        let outcome = keeper.store.renew(&renewals, keeper.by()).await;
        keeper.note_answer(sent);
        let Some(core) = core.upgrade() else { return };
        let of_all = |error: &StoreError| keeper.on_failure(key, RENEW, error);
        let mut outcomes = outcome.inspect_err(of_all).unwrap_or_default().into_iter();
        let mut confirmed = 0;
        for (slot, renewal) in slots.into_iter().zip(renewals) {
            let outcome = outcomes.next().and_then(|outcome| keeper.on_outcome(slot.key(), RENEW, outcome).ok());
            confirmed += usize::from(matches!(outcome, Some(Renewed::Until(_))));
            if let Some(action) = slot.on_renewal(&renewal, sent, outcome) {
                follow(&keeper, &core, slot, action, None);
            }
        }
        core.note_renewals(confirmed);
    });
}

impl Keeper {
    /// Reports a failure. If a retry would fail too, it is a warning about the key. Otherwise only the first failure after a success at
    /// this server is reported.
    pub(super) fn on_failure(&self, key: &str, command: &str, error: &StoreError) {
        match error.retry {
            Retry::Later => {
                let bit = self.bit_of(key);
                if self.failing.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                    observe::keeper_failed(&self.store.server_name(key), command, &error.problem);
                }
            }
            Retry::Never => {
                if let Some(left_out) = self.repeat_limit.admit(Warning::Refused, key) {
                    observe::keeper_refused(key, &error.problem, left_out);
                }
            }
        }
    }

    /// Reports a success if commands at this server failed before.
    pub(super) fn on_success(&self, key: &str, command: &str) {
        if self.failing.load(Ordering::Relaxed) != 0 {
            let bit = self.bit_of(key);
            if self.failing.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                observe::keeper_works(&self.store.server_name(key), command);
            }
        }
    }

    fn on_outcome<T>(&self, key: &str, command: &str, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        match &outcome {
            Ok(_) => self.on_success(key, command),
            Err(error) => self.on_failure(key, command, error),
        }
        outcome
    }

    fn bit_of(&self, key: &str) -> u64 {
        1 << (self.store.server_of(key) % 64)
    }
}

pub(super) async fn repeat_asks(keeper: &Keeper, core: &Weak<Core>, batch: Vec<(Arc<Slot>, Ask)>) {
    let (slots, asks): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let key = asks.first().map_or("", |ask| &*ask.key);
    let _room = keeper.asks.of(keeper.store.server_of(key)).await;
    let sent = Moment::now();
    let answers = keeper.store.ask(&asks, keeper.by()).await;
    keeper.note_answer(sent);
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => {
            keeper.on_failure(key, ASK, &error);
            for (slot, ask) in slots.iter().zip(&asks) {
                on_failed_repetition(core, slot, ask, &error);
            }
            return;
        }
    };
    for ((slot, ask), answer) in slots.iter().zip(&asks).zip(answers) {
        match answer {
            Ok(answer) => {
                keeper.on_success(&ask.key, ASK);
                let is_queued = matches!(answer, Answer::Busy(_)) && ask.wait;
                let is_known = slot.on_answer(ask, answer);
                let Some(core) = core.upgrade() else { continue };
                if !is_known || (is_queued && is_left(slot, ask)) {
                    // Rules 1 and 10: the token was given up meanwhile, so no task here waits for this grant or uses this place in the
                    // queue. The withdrawal may have arrived before the repetition: a cluster redirects commands.
                    core.withdraw_stray(ask.withdrawal());
                } else if is_queued && !is_reachable(&core, &ask.key) {
                    // The waiting task asks again, which makes the connection. It may not be polled just now.
                    slot.on_interruption();
                    core.store().reconnect_reader(&ask.key);
                }
            }
            Err(error) => {
                if error.replicas.is_some() {
                    // The lock was granted, but too few replicas confirmed it. The waiting task asks again and gets the error.
                    slot.on_interruption();
                }
                keeper.on_failure(&ask.key, ASK, &error);
                on_failed_repetition(core, slot, ask, &error);
            }
        }
        keeper.schedule.watch_queue(slot);
    }
}

/// Whether the ask's place in the queue belongs to no task here.
fn is_left(slot: &Slot, ask: &Ask) -> bool {
    mutant!(QueuedRepetitionLeft => return false);
    !slot.leave_to_user(&ask.token)
}

/// Whether the server of `key` can tell this process of a grant. It skips waiters that it can't reach (rule 3). The keeper's connection
/// does not answer this: it may be back while that of the tasks is not, or lead to a node of a cluster where the tasks have none. A queued
/// task does not ask by itself.
fn is_reachable(core: &Core, key: &str) -> bool {
    core.store().connection(key).hears
}

/// Whether the server would refuse the ask again. A missing connection says nothing about the ask.
fn is_refused(error: &StoreError) -> bool {
    mutant!(UnsentIsRefused => return error.retry == Retry::Never);
    error.retry == Retry::Never && error.reach != Reach::Unsent
}

fn on_failed_repetition(core: &Weak<Core>, slot: &Arc<Slot>, ask: &Ask, error: &StoreError) {
    if is_refused(error) {
        slot.on_refused_repetition(ask, error);
    }
    withdraw_if_unused(core, slot, ask, error);
}

/// Rule 1: an ask that was sent and not answered, or refused half-way, is withdrawn. A task withdraws its own asks. But the lease of this
/// ask may have been released before the server executed the repetition, which then grants the lease once more.
fn withdraw_if_unused(core: &Weak<Core>, slot: &Slot, ask: &Ask, error: &StoreError) {
    mutant!(RepetitionLeft => return);
    if error.reach != Reach::Unsent
        && !slot.leave_to_user(&ask.token)
        && let Some(core) = core.upgrade()
    {
        core.withdraw_stray(ask.withdrawal());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::clock::Deadline;
    use crate::mutants::{Mutant, Seeded};
    use crate::timing::CLAIM;
    use crate::{BackendError, LockManager};

    /// The keeper's connection can't be set up again: the asks stay valid, and the callers' connection receives the grants.
    #[test]
    fn what_was_not_sent_was_not_refused() {
        for (bug, is_told) in [(None, false), (Some(Mutant::UnsentIsRefused), true)] {
            let _seeded = Seeded::begin(bug);
            let refusal = |reach| StoreError { reach, ..StoreError::never(BackendError::new("WRONGPASS")) };
            assert!(is_refused(&refusal(Reach::Refused)) && is_refused(&refusal(Reach::Unanswered)));
            assert_eq!(is_refused(&refusal(Reach::Unsent)), is_told, "{bug:?}");
        }
    }

    /// In a cluster the command is redirected, and the withdrawal may have arrived before it.
    #[tokio::test(start_paused = true)]
    async fn the_place_of_a_token_that_was_given_up_is_nobodys() {
        for bug in [None, Some(Mutant::QueuedRepetitionLeft)] {
            let _seeded = Seeded::begin(bug);
            let locks = LockManager::in_memory();
            let guard = locks.lock("p", "k").acquire().await.unwrap();
            let slot = locks.core().table().get(guard.key()).unwrap();
            let seen = locks.core().store().inspect(guard.key(), Deadline::after(CLAIM)).await.unwrap();
            let own = seen.expect("it is held").owner;
            for (token, is_given_up) in
                [(own, false), (locks.core().next_token(Moment::now(), false, None, None), true)]
            {
                let (key, give_up) = (guard.key().into(), Deadline::after(Duration::ZERO));
                let ask = Ask { key, token, share: None, claim: CLAIM, wait: true, replaces: None, fences: 0, give_up };
                assert_eq!(is_left(&slot, &ask), is_given_up && bug.is_none(), "{bug:?}");
            }
        }
    }

    #[tokio::test]
    async fn the_batches_in_flight_to_each_server_are_bounded() {
        for (bug, is_bounded) in [(None, true), (Some(Mutant::BatchesUnbounded), false)] {
            let _seeded = Seeded::begin(bug);
            let room = Room::default();
            let mut in_flight = Vec::new();
            for _ in 0..BATCHES {
                in_flight.push(room.of(0).await);
            }
            assert_eq!(room.of(0).now_or_never().is_none(), is_bounded, "{bug:?}");
            assert!(room.of(1).now_or_never().is_some(), "another server");
            in_flight.pop();
            assert!(room.of(0).now_or_never().is_some());
        }
    }
}
