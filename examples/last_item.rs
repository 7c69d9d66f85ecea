//! The last item: thousands of buyers for a stock of one, none of whom is ready to wait.
//!
//! `cargo run --example last_item`, then again with `--no-lock`, `--redis URL`, `--processes 4`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use examples::{Defaults, Failure, Ledger, Options, Outcome, Report, Run, race, take_part, tell};
use lock_runtime::{LockError, LockManager, cache_lock};

/// How often a buyer tries, and the pause after a refusal.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(5);
/// How long the buyer that gets it takes to pay.
const PAYMENT: Duration = Duration::from_millis(2);

struct Shop {
    locks: LockManager,
    stock: Ledger,
}

/// A buyer's answer.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Sold,
    SoldOut,
    /// The item is being sold to somebody else at this moment.
    Busy,
    Failed(String),
}

impl Shop {
    /// Sells a piece if there is one. A timeout of 0 tries once and never queues; `on_fail` makes the refusal an answer
    /// of this fn's own type, so nobody downstream has to know about locks.
    #[cache_lock(prefix = "last_item", manager = &self.locks, timeout_ms = 0, on_fail = |error| Answer::refusal(&error))]
    async fn buy(&self, #[locked_object] item: u64) -> Answer {
        self.sell(item).await
    }

    /// Correct only if nobody else does this at the same time: two that both read a 1 both sell it.
    async fn sell(&self, item: u64) -> Answer {
        match self.take_one(item).await {
            Ok(true) => Answer::Sold,
            Ok(false) => Answer::SoldOut,
            Err(failure) => Answer::Failed(failure.to_string()),
        }
    }

    async fn take_one(&self, item: u64) -> Result<bool, Failure> {
        let left = self.stock.read(&stock_of(item)).await?;
        if left < 1 {
            return Ok(false);
        }
        tokio::time::sleep(PAYMENT).await;
        self.stock.write(&stock_of(item), left - 1).await?;
        Ok(true)
    }

    /// One buyer: tries a few times, then takes "busy" for an answer. (`timeout_ms = 15` would wait in the queue instead, without
    /// asking again and again; this is for callers that must not queue.)
    async fn serve(&self, item: u64, no_lock: bool) -> Outcome {
        let mut answer = Answer::Busy;
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            answer = if no_lock { self.sell(item).await } else { self.buy(item).await };
            if answer != Answer::Busy {
                break;
            }
        }
        match answer {
            Answer::Sold => Outcome::Done(None),
            Answer::SoldOut => Outcome::Refused("sold out".to_owned()),
            Answer::Busy => Outcome::Refused("busy, try again".to_owned()),
            Answer::Failed(reason) => Outcome::Failed(reason),
        }
    }
}

impl Answer {
    /// Only "somebody else holds it" is busy. A failed ask is something else, and must not look the same.
    fn refusal(error: &LockError) -> Self {
        if error.is_timeout() { Self::Busy } else { Self::Failed(error.to_string()) }
    }
}

fn stock_of(item: u64) -> String {
    format!("stock:{item}")
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read(Defaults {
        about: "The last item: 5,000 buyers at once for a stock of one",
        tasks: 5_000,
        items: 1,
        processes: 1,
    });
    tell(&options, last_item).await
}

async fn last_item(run: &Run, options: &Options) -> Result<Report, Failure> {
    let shop = Arc::new(Shop { locks: run.locks().await?, stock: run.ledger().await? });
    let buyer = |number: u32| {
        let (shop, item, no_lock) = (shop.clone(), options.item_of(number), options.no_lock);
        async move { shop.serve(item, no_lock).await }
    };
    let mut report = Report::default();

    if let Some(part) = options.part() {
        take_part(part, buyer).await?;
        shop.locks.shutdown().await;
        return Ok(report);
    }

    println!(
        "The last item: {} buyers at once for a stock of 1, items: {}; each tries {TRIES} times, {PAUSE:?} apart.",
        options.tasks, options.items
    );
    println!("{}", run.circumstances(options));
    for item in options.item_numbers() {
        shop.stock.write(&stock_of(item), 1).await?;
    }

    let tally = race(run, options, buyer).await?;

    let to_sell = options.items.min(options.tasks);
    report.expect("sold", to_sell, tally.done);
    for item in options.item_numbers().take(10) {
        let expected = i64::from(options.tasks_for(item) == 0);
        report.expect(format!("stock of item {item}"), expected, shop.stock.read(&stock_of(item)).await?);
    }
    report.expect("told that they can't have it", options.tasks - to_sell, tally.refusals());
    for (answer, times) in &tally.refused {
        report.note(format!("  \"{answer}\""), times);
    }
    report.tally(&tally);
    shop.locks.shutdown().await;
    Ok(report)
}
