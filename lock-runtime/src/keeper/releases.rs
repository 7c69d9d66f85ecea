//! How the keeper sends the releases of its [`Backlog`](super::backlog::Backlog).

use std::sync::Weak;

use tokio::time::Instant;

use super::backlog::{Batch, Fate};
use super::{Keeper, failed};
use crate::engine::Engine;
use crate::store::{Reach, Released, Retry, Store, StoreError};

/// Sends a batch, and notes what became of it.
pub(super) async fn send(keeper: &Keeper, engine: &Weak<Engine>, batch: Batch) {
    let releases = batch.releases();
    let answers = match keeper.store.release(&releases, keeper.by()).await {
        Ok(answers) => answers,
        Err(error) => releases.iter().map(|_| Err(error.clone())).collect(),
    };
    let mut answers = answers.into_iter();
    let fates: Vec<Fate> = releases.iter().map(|release| fate(&release.key, answers.next())).collect();
    keeper.change(|board| board.backlog.on_answers(batch, &fates, Instant::now()));
    keeper.tell_if_quiet(engine);
}

fn fate(key: &str, answer: Option<Result<Released, StoreError>>) -> Fate {
    match answer {
        Some(Ok(_)) => Fate::Over,
        Some(Err(error)) => {
            failed(key, &error);
            match error.retry {
                // What was refused for good would be refused again.
                Retry::Never => Fate::Over,
                Retry::Later if error.reach == Reach::Refused => Fate::Refused,
                Retry::Later => Fate::Unanswered,
            }
        }
        None => Fate::Unanswered,
    }
}
