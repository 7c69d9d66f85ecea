//! Sends the releases that wait in the schedule.

use std::sync::Weak;

use super::Keeper;
use crate::local::{Batch, Core, Fate};
use crate::store::{Ownership, Reach, Retry, Store, StoreError, each};

/// What events call the command.
const RELEASE: &str = "release";

/// Sends a batch, and notes the outcome of each release.
pub(super) async fn send(keeper: &Keeper, core: &Weak<Core>, batch: Batch) {
    let releases = batch.releases();
    let answers = each(keeper.store.release(&releases, keeper.by()).await, releases.len());
    let told = releases.iter().zip(batch.were_denied()).zip(answers);
    let told = told.map(|((release, was_denied), answer)| fate(keeper, &release.key, was_denied, answer));
    let fates: Vec<Fate> = told.collect();
    keeper.schedule.on_released(batch, &fates);
    keeper.schedule.tell_if_quiet(core.strong_count() == 0);
}

fn fate(keeper: &Keeper, key: &str, was_denied: bool, answer: Result<Ownership, StoreError>) -> Fate {
    match answer {
        Ok(ownership) => {
            keeper.on_success(key, RELEASE);
            Fate::Done(ownership)
        }
        Err(error) => {
            // A release that is refused for good is logged once.
            if error.retry == Retry::Later || !was_denied {
                keeper.on_failure(key, RELEASE, &error);
            }
            match error.retry {
                Retry::Never => Fate::Denied,
                Retry::Later if error.reach == Reach::Refused => Fate::Refused,
                Retry::Later => Fate::Unanswered,
            }
        }
    }
}
