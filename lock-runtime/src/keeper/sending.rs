//! What the keeper sends, and what it makes of the answers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::{Keeper, follow};
use crate::clock::Moment;
use crate::engine::Engine;
use crate::local::Slot;
use crate::observe;
use crate::store::{Ask, Reach, Renewal, Retry, Store, StoreError};

impl Keeper {
    /// Whether what the keeper sends about `key` would have to wait for a connection.
    pub(crate) fn is_cut_off(&self, key: &str) -> bool {
        self.store.is_cut_off(key)
    }

    /// Repeats one ask.
    #[cfg(test)]
    pub(crate) async fn repeat_ask(&self, engine: &Weak<Engine>, slot: Arc<Slot>, ask: Ask) {
        repeat_asks(self, engine, vec![(slot, ask)]).await;
    }
}

/// Makes the keeper's connection when it broke: from a far server the next hold should not have to wait for one to be
/// confirmed.
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
            asks.iter().map(|_| Err(error.clone())).collect()
        }
    };
    for ((slot, ask), answer) in slots.iter().zip(&asks).zip(answers) {
        if answer.as_ref().is_err_and(|error| error.reach != Reach::Unsent)
            && !slot.stands_for(&ask.token)
            && let Some(engine) = engine.upgrade()
            && !mutant!(RepetitionLeft)
        {
            // It may still be executed, and what it was repeated for was given back before.
            engine.release_later(ask.withdrawal());
        }
        if answer.as_ref().is_err_and(|error| error.replicas.is_some()) {
            // Granted, and not confirmed: the task that waits for it finds out, and fails.
            slot.interrupted();
        }
        if let Ok(answer) = answer
            && !slot.answered(ask, answer)
            && let Some(engine) = engine.upgrade()
        {
            // Granted to a token that was given up meanwhile (rules 12 and L3).
            engine.release_later(ask.withdrawal());
        }
        keeper.watch_queue(slot);
    }
}
