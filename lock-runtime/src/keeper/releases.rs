//! Sends the releases that wait in the schedule.

use std::sync::Weak;

use super::Keeper;
use crate::local::{Batch, Core, Fate};
use crate::store::{Reach, Release, Released, Retry, Store, StoreError};

/// What events call the command.
const RELEASE: &str = "release";

/// Sends a batch, and notes the outcome of each release.
pub(super) async fn send(keeper: &Keeper, core: &Weak<Core>, batch: Batch) {
    let releases = batch.releases();
    let answers = match keeper.store.release(&releases, keeper.by()).await {
        Ok(answers) => answers,
        Err(error) => releases.iter().map(|_| Err(error.clone())).collect(),
    };
    let mut answers = answers.into_iter();
    let told = |(release, was_denied): (&Release, bool)| fate(keeper, &release.key, was_denied, answers.next());
    let fates: Vec<Fate> = releases.iter().zip(batch.were_denied()).map(told).collect();
    keeper.schedule.on_released(batch, &fates);
    keeper.schedule.tell_if_quiet(core.strong_count() == 0);
}

fn fate(keeper: &Keeper, key: &str, was_denied: bool, answer: Option<Result<Released, StoreError>>) -> Fate {
    match answer {
        Some(Ok(_)) => {
            keeper.on_success(key, RELEASE);
            Fate::Over
        }
        Some(Err(error)) => {
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
        None => Fate::Unanswered,
    }
}
