//! What the keeper sends, and what it makes of the answers.

use std::sync::{Arc, Weak};

use super::{Keeper, follow};
use crate::clock::Moment;
use crate::local::{Core, Slot};
use crate::observe;
use crate::store::{Ask, Renewal, Retry, Store, StoreError};

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
            let attention = slot.renewed(&renewal, sent, outcome);
            follow(&keeper, &core, slot, attention, None);
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
    let Ok(answers) = answers.inspect_err(|error| observe::keeper_failed(&error.problem)) else {
        return;
    };
    for ((slot, ask), answer) in slots.iter().zip(&asks).zip(answers) {
        if answer.as_ref().is_err_and(|error| error.replicas.is_some()) {
            // Granted, and not confirmed: the task that waits for it finds out, and fails.
            slot.interrupted();
        }
        if let Ok(answer) = answer
            && !slot.answered(ask, answer)
            && let Some(core) = core.upgrade()
        {
            // Granted to a token that was given up meanwhile (rules 12 and L3).
            core.release_later(ask.withdrawal());
        }
        keeper.schedule.watch_queue(slot);
    }
}
