//! W3b: the flash sale with its stock in memory: the cost of a hand-over and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::w3::ITEMS;
use crate::arena::Arena;
use crate::child::{Run, ready};
use crate::column::FIRST_SALE;
use crate::contestant::Contestant;
use crate::outcome::Outcome;
use crate::stats::Sample;

const REPEAT_FOR: Duration = Duration::from_millis(300);
const REPEAT: usize = 20;

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    let buyers = run.size(1000, 300) / ITEMS;
    lock.with("warm:0", async {}).await?;
    ready();
    let (first, mut walls) = (Instant::now(), Vec::new());
    let mut outcome = Outcome::default();
    while walls.is_empty() || walls.len() < REPEAT && first.elapsed() < REPEAT_FOR {
        let began = Instant::now();
        outcome.absorb(sale(&lock, buyers).await);
        walls.push(began.elapsed().as_secs_f64());
    }
    let per_item = |wall: f64| wall * 1e6 / f64::from(buyers);
    if let Some(first) = walls.first() {
        outcome.set(FIRST_SALE, per_item(*first));
    }
    outcome.set("µs per hand-over", per_item(Sample::new(walls).median()));
    Ok(outcome)
}

async fn sale<C: Contestant>(lock: &C, buyers: u32) -> Outcome {
    let arena = Arena::new(ITEMS);
    let stock: Arc<[AtomicU64]> = (0..ITEMS).map(|_| AtomicU64::new(0)).collect();
    let mut tasks = JoinSet::new();
    for buyer in 0..buyers * ITEMS {
        let item = buyer % ITEMS;
        let (lock, arena, stock) = (lock.clone(), arena.clone(), Arc::clone(&stock));
        tasks.spawn(async move {
            let body = async move {
                let _inside = arena.enter(item);
                let Some(stock) = stock.get(item as usize) else { return };
                let sold = stock.load(Ordering::SeqCst);
                // A body that is let in now reads the same stock.
                tokio::task::yield_now().await;
                stock.store(sold + 1, Ordering::SeqCst);
            };
            lock.with(&format!("item:{item}"), body).await
        });
    }
    let mut outcome = Outcome::default();
    while let Some(joined) = tasks.join_next().await {
        outcome.count(joined.unwrap_or_else(|error| Err(error.to_string())));
    }
    let sold: u64 = stock.iter().map(|stock| stock.load(Ordering::SeqCst)).sum();
    outcome.overlaps += arena.overlaps() + sold.abs_diff(outcome.locks);
    outcome
}
