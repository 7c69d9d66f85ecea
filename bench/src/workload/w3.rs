//! W3: the flash sale. A thousand buyers want two items at once; each reads the stock in Redis and writes it back.
//! W4 is the same sale with the buyers spread over processes.

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use crate::arena::Arena;
use crate::child::{Run, nanos, ready};
use crate::contestant::{Contestant, connect_raw};
use crate::outcome::Outcome;
use crate::stats::{Sample, float};

pub(crate) const ITEMS: u32 = 2;
/// A sale is repeated for this long, in ns, so that a fast contestant is not judged by a single sale.
const REPEAT_FOR: u64 = 300_000_000;
const REPEAT: usize = 10;
const WARM_UP: u32 = 100;

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    let connection = connect_raw(&run.url).await?;
    let processes = run.processes();
    let buyers = run.size(1000, 300) / processes / ITEMS;
    warm_up(&lock, &connection, run).await?;
    ready();
    let first = nanos();
    let mut outcome = Outcome { began: first / 1000, ..Outcome::default() };
    let mut walls = Vec::new();
    // Several processes can't repeat in step, so their baseline must not repeat either.
    let repeat = if run.case.processes > 1 { 1 } else { REPEAT };
    while walls.is_empty() || walls.len() < repeat && nanos() - first < REPEAT_FOR {
        let began = nanos();
        outcome.absorb(sale(&lock, &connection, run, buyers).await);
        walls.push(nanos() - began);
    }
    outcome.ended = nanos() / 1000;
    let walls = Sample::new(walls.iter().map(|wall| std::time::Duration::from_nanos(*wall).as_secs_f64() * 1e3));
    outcome.set("wall ms", walls.median());
    Ok(outcome)
}

/// Bodies under this process's own locks, so that nobody's first command is measured.
async fn warm_up<C: Contestant>(lock: &C, connection: &MultiplexedConnection, run: &Run) -> Result<(), String> {
    let key = format!("warm:{}", run.part);
    for _ in 0..WARM_UP {
        lock.with(&key, sell(connection.clone(), ITEMS + run.part, run.part)).await.flatten()?;
    }
    Ok(())
}

async fn sale<C: Contestant>(lock: &C, connection: &MultiplexedConnection, run: &Run, buyers: u32) -> Outcome {
    let arena = Arena::new(ITEMS);
    let mut outcome = Outcome::default();
    // With other processes the stock is theirs as well: then the parent checks it at the end.
    let alone = run.processes() == 1;
    if alone {
        reset(connection).await;
    }
    let mut tasks = JoinSet::new();
    if C::SERIAL {
        for item in 0..ITEMS {
            let (arena, connection, part) = (arena.clone(), connection.clone(), run.part);
            tasks.spawn(async move {
                let mut outcome = Outcome::default();
                for _ in 0..buyers {
                    let _inside = arena.enter(item);
                    outcome.count(sell(connection.clone(), item, part).await);
                }
                outcome
            });
        }
    } else {
        for buyer in 0..buyers * ITEMS {
            let item = buyer % ITEMS;
            let (lock, arena, connection, part) = (lock.clone(), arena.clone(), connection.clone(), run.part);
            tasks.spawn(async move {
                let mut outcome = Outcome::default();
                let body = async move {
                    let _inside = arena.enter(item);
                    sell(connection, item, part).await
                };
                outcome.count(lock.with(&format!("item:{item}"), body).await.flatten());
                outcome
            });
        }
    }
    let mut changes = 0.0;
    while let Some(joined) = tasks.join_next().await {
        let mut one = joined.unwrap_or_else(|error| Outcome::failed(error.to_string()));
        changes += one.values.remove("hand-offs").unwrap_or_default();
        outcome.absorb(one);
    }
    outcome.overlaps += arena.overlaps();
    if alone {
        let missing = sold(connection).await.abs_diff(outcome.locks);
        outcome.overlaps += missing;
    }
    outcome.set("hand-offs", changes);
    outcome
}

/// Reads how many were sold and which process sold last, and writes one more.
async fn sell(mut connection: MultiplexedConnection, item: u32, part: u32) -> Result<(), String> {
    let key = format!("stock:{item}");
    let stock: Option<String> = connection.get(&key).await.map_err(|error| error.to_string())?;
    let [sold, hand_offs, last] = read_stock(stock.as_deref());
    let hand_offs = hand_offs + u64::from(last != u64::from(part));
    let stock = format!("{} {hand_offs} {part}", sold + 1);
    connection.set(&key, stock).await.map_err(|error| error.to_string())
}

/// Sold, hand-offs between processes, the process that sold last.
pub(crate) fn read_stock(stock: Option<&str>) -> [u64; 3] {
    let mut numbers = stock.unwrap_or_default().split(' ').map(|number| number.parse().unwrap_or_default());
    [(); 3].map(|()| numbers.next().unwrap_or_default())
}

async fn reset(connection: &MultiplexedConnection) {
    for item in 0..ITEMS {
        // A remaining stock would be reported as wrong.
        let _: Result<(), _> = connection.clone().del(format!("stock:{item}")).await;
    }
}

async fn sold(connection: &MultiplexedConnection) -> u64 {
    let mut sold = 0;
    for item in 0..ITEMS {
        let stock: Option<String> = connection.clone().get(format!("stock:{item}")).await.unwrap_or_default();
        let [of_item, ..] = read_stock(stock.as_deref());
        sold += of_item;
    }
    sold
}

/// Concludes from what the processes of one sale left in Redis: lost sales are overlaps, and only changes of process are hand-offs.
pub(crate) async fn conclude(url: &str, outcome: &mut Outcome) -> Result<(), String> {
    let connection = connect_raw(url).await?;
    let mut total = [0, 0];
    for item in 0..ITEMS {
        let stock: Option<String> = connection.clone().get(format!("stock:{item}")).await.unwrap_or_default();
        let [sold, hand_offs, _] = read_stock(stock.as_deref());
        total = [total[0] + sold, total[1] + hand_offs];
    }
    outcome.overlaps += total[0].abs_diff(outcome.locks);
    outcome.set("hand-offs", float(usize::try_from(total[1]).unwrap_or_default()));
    outcome.set("wall ms", float(usize::try_from(outcome.ended - outcome.began).unwrap_or_default()) / 1e3);
    Ok(())
}
