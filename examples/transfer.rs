//! Bank transfers: two processes move money between the same accounts, in both directions and at once. No money appears or
//! vanishes, and nobody waits for ever. The accounts are in a real database: SQLite, or Postgres with `DATABASE_URL`.
//!
//! `cargo run --release -p transfer --example transfer`, then again with `--no-lock`. Two processes share locks through a
//! server: `--redis URL`, or a redis-server on the PATH; `--processes 1` runs without.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use address_book::Database;
use examples::{Defaults, Failure, Options, Outcome, Report, Run, race, take_part, tell};
use lock_runtime::{LockManager, cache_lock};
use sqlx::AnyPool;

const SCHEMA: [&str; 1] = ["CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)"];
/// The balance of each account at the beginning.
const BALANCE: i64 = 1_000;

struct Bank {
    locks: LockManager,
    accounts: AnyPool,
}

impl Bank {
    /// Moves money under the locks of both accounts. `keys = [from, to]` takes them in its own order. With nested locks, the transfer
    /// from 1 to 2 would hold 1 and wait for 2, and the transfer from 2 to 1 would hold 2 and wait for 1.
    #[cache_lock(prefix = "account", keys = [from, to], manager = &self.locks, timeout_s = 60)]
    async fn transfer(&self, from: i64, to: i64, amount: i64, asked: Instant) -> Result<Duration, Failure> {
        let waited = asked.elapsed();
        self.move_money(from, to, amount).await?;
        Ok(waited)
    }

    /// Correct only if nobody else uses one of the two accounts at the same time.
    async fn move_money(&self, from: i64, to: i64, amount: i64) -> Result<(), Failure> {
        let (left, right) = (self.balance(from).await?, self.balance(to).await?);
        // The bank checks the transfer. Without the lock, others read the same balances meanwhile.
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.set_balance(from, left - amount).await?;
        self.set_balance(to, right + amount).await?;
        Ok(())
    }

    async fn serve(&self, (from, to, amount): (i64, i64, i64), no_lock: bool) -> Result<Outcome, Failure> {
        if no_lock {
            self.move_money(from, to, amount).await?;
            return Ok(Outcome::Done(None));
        }
        Ok(Outcome::Done(Some(self.transfer(from, to, amount, Instant::now()).await?)))
    }

    async fn open_account(&self, id: i64) -> sqlx::Result<()> {
        let query = sqlx::query("INSERT INTO accounts (id, balance) VALUES ($1, $2)");
        query.bind(id).bind(BALANCE).execute(&self.accounts).await.map(drop)
    }

    async fn balance(&self, id: i64) -> sqlx::Result<i64> {
        sqlx::query_scalar("SELECT balance FROM accounts WHERE id = $1").bind(id).fetch_one(&self.accounts).await
    }

    async fn set_balance(&self, id: i64, balance: i64) -> sqlx::Result<()> {
        let query = sqlx::query("UPDATE accounts SET balance = $2 WHERE id = $1");
        query.bind(id).bind(balance).execute(&self.accounts).await.map(drop)
    }
}

/// What a task transfers: from, to, how much. The accounts are neighbours, and every other transfer goes in the other direction. Each
/// account sends its number, so the balances change and a lost transfer shows.
fn transfer_of(task: u32, options: &Options) -> Result<(i64, i64, i64), Failure> {
    let pair = task / 2;
    let (one, next) = (i64::try_from(options.item_of(pair))?, i64::try_from(options.item_of(pair + 1))?);
    Ok(if task.is_multiple_of(2) { (one, next, one) } else { (next, one, next) })
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read(Defaults {
        about: "Bank transfers: two processes make 500 transfers each, at once, in both directions between 3 accounts",
        tasks: 1_000,
        items: 3,
        processes: 2,
    });
    tell(&options, transfer).await
}

async fn transfer(run: &Run, options: &Options) -> Result<Report, Failure> {
    if options.items < 2 {
        return Err("a transfer takes two accounts: leave --items out, or give more".into());
    }
    let database = Database::of_run(run.namespace())?;
    if options.part().is_some() {
        return make_transfers(run, options, &database).await;
    }
    database.create(&SCHEMA).await?;
    let report = make_transfers(run, options, &database).await;
    let removed = database.remove().await;
    report.and_then(|report| Ok(removed.map(|()| report)?))
}

async fn make_transfers(run: &Run, options: &Options, database: &Database) -> Result<Report, Failure> {
    let bank = Arc::new(Bank { locks: run.locks().await?, accounts: database.open().await? });
    let task = |number: u32| {
        let (bank, transfer, no_lock) = (bank.clone(), transfer_of(number, options), options.no_lock);
        async move {
            let answer = async { bank.serve(transfer?, no_lock).await };
            answer.await.unwrap_or_else(|failure| Outcome::Failed(failure.to_string()))
        }
    };
    let mut report = Report::default();

    if let Some(part) = options.part() {
        take_part(part, task).await?;
        bank.locks.shutdown().await;
        bank.accounts.close().await;
        return Ok(report);
    }

    println!("Bank transfers: {} at once between {} accounts, all in {database}.", options.tasks, options.items);
    println!("{}", run.circumstances(options));
    for account in options.item_numbers() {
        bank.open_account(i64::try_from(account)?).await?;
    }
    let tally = race(run, options, task).await?;

    report.expect("transfers", options.tasks, tally.done);
    let mut sum = 0;
    for account in options.item_numbers() {
        let (account, mut expected) = (i64::try_from(account)?, BALANCE);
        for number in 0..options.tasks {
            let (from, to, amount) = transfer_of(number, options)?;
            expected += amount * (i64::from(to == account) - i64::from(from == account));
        }
        let balance = bank.balance(account).await?;
        sum += balance;
        report.expect(format!("balance of account {account}"), expected, balance);
    }
    report.expect("sum of all accounts", BALANCE * i64::from(options.items), sum);
    report.tally(&tally);
    bank.locks.shutdown().await;
    bank.accounts.close().await;
    Ok(report)
}
