//! W11: strict turns. Two processes lock one key alternately: the worst case for a lock that lingers for the next hold of the same
//! process.
//!
//! Each manager counts as a process. Here both are in one process, so that only the lock takes time.

use std::time::Instant;

use crate::child::{Run, ready};
use crate::contestant::Contestant;
use crate::outcome::Outcome;

const WARM_UP: u32 = 100;

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let both = [C::connect(&run.url).await?, C::connect(&run.url).await?];
    for _ in 0..WARM_UP {
        for lock in &both {
            lock.with("w11:0", async {}).await?;
        }
    }
    let rounds = run.size(4000, 1000);
    let mut outcome = Outcome::default();
    ready();
    let began = Instant::now();
    for _ in 0..rounds {
        for lock in &both {
            outcome.count(lock.with("w11:0", async {}).await);
        }
    }
    outcome.set("µs per turn", began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds * 2));
    Ok(outcome)
}
