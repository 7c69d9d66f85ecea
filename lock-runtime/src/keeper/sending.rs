//! What the keeper sends, and what it makes of the answers.

use std::sync::{Arc, Weak};

use super::{Keeper, follow};
use crate::clock::Moment;
use crate::engine::Engine;
use crate::local::Slot;
use crate::observe;
use crate::store::{Ask, Reach, Renewal, Retry, Store, StoreError};

pub(super) fn send_renewals(keeper: &Arc<Keeper>, engine: &Weak<Engine>, batch: Vec<(Arc<Slot>, Renewal)>) {
    let (keeper, engine) = (Arc::clone(keeper), Weak::clone(engine));
    tokio::spawn(async move {
        let (slots, renewals): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let sent = Moment::now();
        let outcome = keeper.store.renew(&renewals, keeper.by()).await;
        keeper.note_answer(sent);
        let Some(engine) = engine.upgrade() else { return };
        let of_all = |error: &StoreError| failed(slots.first().map_or("", |slot| slot.key()), error);
        let mut outcomes = outcome.inspect_err(of_all).unwrap_or_default().into_iter();
        for (slot, renewal) in slots.into_iter().zip(renewals) {
            let outcome =
                outcomes.next().and_then(|outcome| outcome.inspect_err(|error| failed(slot.key(), error)).ok());
            let attention = slot.renewed(&renewal, sent, outcome);
            follow(&keeper, &engine, slot, attention, None);
        }
    });
}

pub(super) fn failed(key: &str, error: &StoreError) {
    match error.retry {
        Retry::Later => observe::keeper_failed(error),
        Retry::Never => observe::keeper_refused(key, error),
    }
}

pub(super) async fn repeat_asks(keeper: &Keeper, engine: &Weak<Engine>, batch: Vec<(Arc<Slot>, Ask)>) {
    let (slots, asks): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let sent = Moment::now();
    let answers = keeper.store.ask(&asks, keeper.by()).await;
    keeper.note_answer(sent);
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => {
            observe::keeper_failed(&error);
            for (slot, ask) in slots.iter().zip(&asks) {
                take_back_if_unanswered(engine, slot, ask, &error);
            }
            return;
        }
    };
    for ((slot, ask), answer) in slots.iter().zip(&asks).zip(answers) {
        match answer {
            Ok(answer) => {
                if !slot.answered(ask, answer)
                    && let Some(engine) = engine.upgrade()
                {
                    // Granted to a token that was given up meanwhile (rules 12 and L3).
                    engine.release_later(ask.withdrawal());
                }
            }
            Err(error) => {
                if error.replicas.is_some() {
                    // Granted, and not confirmed: the task that waits for it finds out, and fails.
                    slot.interrupted();
                }
                take_back_if_unanswered(engine, slot, ask, &error);
            }
        }
        keeper.watch_queue(slot);
    }
}

/// Rule 1: what was sent and not answered is taken back. A task does that with what it asked for itself; but the lease of this
/// ask may have been released before the server came to the repetition, which then grants it once more.
fn take_back_if_unanswered(engine: &Weak<Engine>, slot: &Slot, ask: &Ask, error: &StoreError) {
    if error.reach == Reach::Unanswered
        && slot.has_given_up(&ask.token)
        && !mutant!(RepetitionLeft)
        && let Some(engine) = engine.upgrade()
    {
        engine.release_later(ask.withdrawal());
    }
}
