//! Sends renewals and repeated asks, and takes in their answers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::{Keeper, follow};
use crate::clock::Moment;
use crate::local::{Core, Slot};
use crate::observe;
use crate::store::{Ask, Reach, Renewal, Retry, Store, StoreError};

/// Connects again when the keeper's connection broke. With a far server the confirmation of the next hold should not
/// have to wait for a connection.
pub(super) fn connect_again(keeper: &Arc<Keeper>) {
    if keeper.is_connecting.swap(true, Ordering::Relaxed) {
        return;
    }
    let keeper = Arc::clone(keeper);
    tokio::spawn(async move {
        keeper.store.connect_again(keeper.by()).await;
        keeper.is_connecting.store(false, Ordering::Relaxed);
    });
}

pub(super) fn send_renewals(keeper: &Arc<Keeper>, core: &Weak<Core>, batch: Vec<(Arc<Slot>, Renewal)>) {
    let (keeper, core) = (Arc::clone(keeper), Weak::clone(core));
    tokio::spawn(async move {
        let (slots, renewals): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let sent = Moment::now();
        let outcome = keeper.store.renew(&renewals, keeper.by()).await;
        keeper.note_answer(sent);
        let Some(core) = core.upgrade() else { return };
        let of_all = |error: &StoreError| failed(slots.first().map_or("", |slot| slot.key()), error);
        let mut outcomes = outcome.inspect_err(of_all).unwrap_or_default().into_iter();
        for (slot, renewal) in slots.into_iter().zip(renewals) {
            let outcome =
                outcomes.next().and_then(|outcome| outcome.inspect_err(|error| failed(slot.key(), error)).ok());
            let action = slot.on_renewal(&renewal, sent, outcome);
            follow(&keeper, &core, slot, action, None);
        }
    });
}

pub(super) fn failed(key: &str, error: &StoreError) {
    match error.retry {
        Retry::Later => observe::keeper_failed(&error.problem),
        Retry::Never => observe::keeper_refused(key, &error.problem),
    }
}

pub(super) async fn repeat_asks(keeper: &Keeper, core: &Weak<Core>, batch: Vec<(Arc<Slot>, Ask)>) {
    let (slots, asks): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let sent = Moment::now();
    let answers = keeper.store.ask(&asks, keeper.by()).await;
    keeper.note_answer(sent);
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => {
            observe::keeper_failed(&error.problem);
            for (slot, ask) in slots.iter().zip(&asks) {
                withdraw_if_unanswered(core, slot, ask, &error);
            }
            return;
        }
    };
    for ((slot, ask), answer) in slots.iter().zip(&asks).zip(answers) {
        match answer {
            Ok(answer) => {
                if !slot.on_answer(ask, answer)
                    && let Some(core) = core.upgrade()
                {
                    // Rules 12 and L3: the token was given up meanwhile and nobody waits for this grant, so it is
                    // released.
                    core.release_later(ask.withdrawal());
                }
            }
            Err(error) => {
                if error.replicas.is_some() {
                    // The lock was granted, but too few replicas confirmed it. The waiting task asks again and gets the
                    // error.
                    slot.on_interruption();
                }
                withdraw_if_unanswered(core, slot, ask, &error);
            }
        }
        keeper.schedule.watch_queue(slot);
    }
}

/// Rule 1: an ask that was sent and not answered is withdrawn. A task withdraws its own asks. But the lease of this ask
/// may have been released before the server executed the repetition, and then the repetition grants the lease once
/// more.
fn withdraw_if_unanswered(core: &Weak<Core>, slot: &Slot, ask: &Ask, error: &StoreError) {
    mutant!(RepetitionLeft => return);
    if error.reach == Reach::Unanswered
        && slot.has_given_up(&ask.token)
        && let Some(core) = core.upgrade()
    {
        core.release_later(ask.withdrawal());
    }
}
