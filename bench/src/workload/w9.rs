//! W9: the attribute compared with the call that it stands for, in memory, in turns.

use std::time::Instant;

use lock_runtime::{LockError, LockManager, cache_lock};

use crate::child::{Run, ready};
use crate::outcome::Outcome;
use crate::stats::Sample;

#[cache_lock(prefix = "w9", key = key, manager = locks)]
async fn by_attribute(locks: &LockManager, key: u64) -> Result<u64, LockError> {
    Ok(std::hint::black_box(key))
}

async fn by_hand(locks: &LockManager, key: u64) -> Result<u64, LockError> {
    locks.lock("w9", &key).run(async move { Ok(std::hint::black_box(key)) }).await?
}

pub(crate) async fn run(run: &Run) -> Result<Outcome, String> {
    let locks = LockManager::in_memory();
    let calls = 2_000;
    let mut outcome = Outcome::default();
    let (mut attribute, mut hand, mut ratios) = (0.0, 0.0, Vec::new());
    ready();
    for turn in 0..run.size(200, 40) {
        // The first one in a turn changes, so that what runs before affects both.
        for first in [turn % 2 == 0, turn % 2 == 1] {
            let began = Instant::now();
            for key in 0..calls {
                let result = if first { by_attribute(&locks, key % 8).await } else { by_hand(&locks, key % 8).await };
                outcome.count(result.map_err(|error| error.to_string()));
            }
            *(if first { &mut attribute } else { &mut hand }) = began.elapsed().as_secs_f64();
        }
        ratios.push(attribute / hand);
    }
    outcome.set("attribute / hand", Sample::new(ratios).median());
    Ok(outcome)
}
