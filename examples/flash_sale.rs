//! A flash sale: a thousand buyers at once for two items, and every sale is a plain read-modify-write of the stock.
//!
//! In the article's own shape: the interface is annotated, the implementation knows no locks, and a proxy stands in front of it.
//! `--no-lock` goes past the proxy, and shows the damage.
//!
//! `cargo run --example flash_sale`, then again with `--no-lock`, `--redis URL`, `--processes 4`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use examples::{Defaults, Failure, Ledger, Options, Outcome, Report, Run, race, take_part, tell};
use lock_runtime::{LockManager, cache_lock};

/// The stock of each item before the sale.
const STOCK: i64 = 10_000;

/// The interface, as in the article: it is annotated, and `LockedSeckill` is the proxy around any implementation.
///
/// The marked argument is the lock's key: buyers of one item take turns, buyers of different items don't affect each other. Both
/// methods have the same prefix and key, hence the same lock.
///
/// The timeout is for the last of a thousand in the queue. No expire is given: the lease is then 30 s and renewed
/// until the body ends, so a slow sale keeps its lock and a crashed process blocks nobody for longer.
#[cache_lock(proxy = LockedSeckill, prefix = "seckill", timeout_s = 60)]
trait SeckillInterface {
    /// Sells one piece, and returns how long the buyer waited.
    #[cache_lock]
    async fn sec_kill(&self, #[locked_object] item: u64, asked: Instant) -> Result<Duration, Failure>;

    /// For callers with an order: the key is a field of the argument.
    #[cache_lock]
    async fn fulfil(&self, #[locked_complex_object(field = "item.id")] order: &Order) -> Result<Duration, Failure>;
}

struct Order {
    item: Item,
    asked: Instant,
}

struct Item {
    id: u64,
}

/// The implementation, which knows nothing of locks.
struct Shop {
    stock: Ledger,
}

impl SeckillInterface for Shop {
    async fn sec_kill(&self, item: u64, asked: Instant) -> Result<Duration, Failure> {
        let waited = asked.elapsed();
        self.take_one(item).await?;
        Ok(waited)
    }

    async fn fulfil(&self, order: &Order) -> Result<Duration, Failure> {
        self.sec_kill(order.item.id, order.asked).await
    }
}

impl Shop {
    /// Correct only if nobody else does this at the same time: what others write between the two lines is lost.
    async fn take_one(&self, item: u64) -> Result<(), Failure> {
        let left = self.stock.read(&stock_of(item)).await?;
        self.stock.write(&stock_of(item), left - 1).await
    }
}

/// One buyer: half of them name an item, half bring an order. A buyer can't tell the proxy from the implementation.
async fn buy(shop: &impl SeckillInterface, buyer: u32, item: u64) -> Result<Duration, Failure> {
    let asked = Instant::now();
    let by_order = (buyer / 2).is_multiple_of(2);
    if by_order {
        let item = Item { id: item };
        shop.fulfil(&Order { item, asked }).await
    } else {
        shop.sec_kill(item, asked).await
    }
}

/// Whether the lock of one item keeps nobody from another item: holds the first and tries the last.
async fn items_are_independent(locks: &LockManager, options: &Options) -> Result<bool, Failure> {
    let first = locks.lock("seckill", &1_u64).acquire().await?;
    let last = locks.lock("seckill", &u64::from(options.items)).try_acquire().await?;
    let independent = last.is_some();
    drop(last);
    first.release().await?;
    Ok(independent)
}

fn stock_of(item: u64) -> String {
    format!("stock:{item}")
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read(Defaults {
        about: "A flash sale: 1,000 buyers at once, 500 for each of two items with 10,000 in stock",
        tasks: 1_000,
        items: 2,
        processes: 1,
    });
    tell(&options, flash_sale).await
}

async fn flash_sale(run: &Run, options: &Options) -> Result<Report, Failure> {
    let locks = run.locks().await?;
    let shop = Arc::new(LockedSeckill::with_manager(Shop { stock: run.ledger().await? }, locks.clone()));
    let buyer = |number: u32| {
        let (shop, item, no_lock) = (shop.clone(), options.item_of(number), options.no_lock);
        async move {
            if no_lock {
                // Past the proxy: the implementation sells one piece to several buyers.
                return Outcome::of(buy(shop.inner(), number, item).await.map(|_| None));
            }
            Outcome::of(buy(&*shop, number, item).await)
        }
    };
    let mut report = Report::default();

    if let Some(part) = options.part() {
        take_part(part, buyer).await?;
        locks.shutdown().await;
        return Ok(report);
    }

    println!("Flash sale: {} buyers at once, {STOCK} in stock of each item, items: {}.", options.tasks, options.items);
    println!("{}", run.circumstances(options));
    for item in options.item_numbers() {
        shop.inner().stock.write(&stock_of(item), STOCK).await?;
    }
    let independent = items_are_independent(&locks, options).await?;

    let tally = race(run, options, buyer).await?;

    for item in options.item_numbers() {
        let expected = STOCK - i64::from(options.tasks_for(item));
        let found = shop.inner().stock.read(&stock_of(item)).await?;
        report.expect(format!("stock of item {item}"), expected, found);
    }
    if options.items > 1 {
        report.expect("another item can be sold while one is locked", true, independent);
    }
    report.tally(&tally);
    locks.shutdown().await;
    Ok(report)
}
