//! How the keeper sends the releases of its [`Backlog`](super::backlog::Backlog).

use std::sync::Weak;

use tokio::time::Instant;

use super::Keeper;
use super::backlog::{Batch, Fate};
use super::sending::failed;
use crate::engine::Engine;
use crate::store::{Reach, Release, Released, Retry, Store, StoreError};

/// Sends a batch, and notes what became of it.
pub(super) async fn send(keeper: &Keeper, engine: &Weak<Engine>, batch: Batch) {
    let releases = batch.releases();
    let answers = match keeper.store.release(&releases, keeper.by()).await {
        Ok(answers) => answers,
        Err(error) => releases.iter().map(|_| Err(error.clone())).collect(),
    };
    let mut answers = answers.into_iter();
    let told = |(release, was_denied): (&Release, bool)| fate(&release.key, was_denied, answers.next());
    let fates: Vec<Fate> = releases.iter().zip(batch.were_denied()).map(told).collect();
    keeper.change(|board| board.backlog.on_answers(batch, &fates, Instant::now()));
    keeper.tell_if_quiet(engine);
}

fn fate(key: &str, was_denied: bool, answer: Option<Result<Released, StoreError>>) -> Fate {
    match answer {
        Some(Ok(_)) => Fate::Over,
        Some(Err(error)) => {
            // What is refused for good is told once.
            if error.retry == Retry::Later || !was_denied {
                failed(key, &error);
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
