//! One default address per user: two processes add addresses for the same user at once, and a user's first address
//! is the default one. The rule is checked against a real database: SQLite, or Postgres with `DATABASE_URL`.
//!
//! `cargo run --release -p default_address --example default_address`, then again with `--no-lock`. Two processes share a
//! lock through a server: `--redis URL`, or a redis-server on the PATH; `--processes 1` runs without.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use address_book::{AddressBook, Database};
use examples::{Defaults, Failure, Options, Outcome, Report, Run, race, take_part, tell};
use lock_runtime::{LockManager, cache_lock};

struct Accounts {
    locks: LockManager,
    book: AddressBook,
}

impl Accounts {
    /// Adds an address. Most users have one already, so most calls need no lock: a read costs less than a lock, and
    /// once there is a default address there will always be one.
    async fn add_address(&self, user: i64, address: &str) -> Result<Option<Duration>, Failure> {
        if self.book.count(user).await? > 0 {
            self.book.add(user, address, false).await?;
            return Ok(None);
        }
        self.add_first_address(user, address, Instant::now()).await.map(Some)
    }

    /// Checks again under the lock: while this waited, another process may have been first.
    ///
    /// The lock must outlive the transaction: `add` commits before the body ends, and only then is the lock released.
    /// If the caller committed later, the next one in the queue would read before the commit is visible, and there would
    /// be two defaults, lock or no lock.
    #[cache_lock(prefix = "default_address", manager = &self.locks, timeout_s = 60)]
    async fn add_first_address(
        &self,
        #[locked_object] user: i64,
        address: &str,
        asked: Instant,
    ) -> Result<Duration, Failure> {
        let waited = asked.elapsed();
        self.look_and_add(user, address).await?;
        Ok(waited)
    }

    /// Correct only if nobody else does this for the same user at the same time.
    async fn look_and_add(&self, user: i64, address: &str) -> Result<(), Failure> {
        let is_first = self.book.count(user).await? == 0;
        self.book.add(user, address, is_first).await?;
        Ok(())
    }

    async fn serve(&self, request: u32, user: u64, no_lock: bool) -> Result<Outcome, Failure> {
        let (user, address) = (i64::try_from(user)?, format!("{request} Main Street"));
        if no_lock {
            self.look_and_add(user, &address).await?;
            return Ok(Outcome::Done(None));
        }
        Ok(Outcome::Done(self.add_address(user, &address).await?))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read(Defaults {
        about: "One default address: two processes add 300 addresses each, at once, for the same user",
        tasks: 600,
        items: 1,
        processes: 2,
    });
    tell(&options, default_address).await
}

async fn default_address(run: &Run, options: &Options) -> Result<Report, Failure> {
    let database = Database::of_run(run.namespace())?;
    if options.part().is_some() {
        return add_addresses(run, options, &database).await;
    }
    database.create(&AddressBook::SCHEMA).await?;
    let report = add_addresses(run, options, &database).await;
    let removed = database.remove().await;
    report.and_then(|report| Ok(removed.map(|()| report)?))
}

async fn add_addresses(run: &Run, options: &Options, database: &Database) -> Result<Report, Failure> {
    let accounts = Arc::new(Accounts { locks: run.locks().await?, book: AddressBook::new(database.open().await?) });
    let request = |number: u32| {
        let (accounts, user, no_lock) = (accounts.clone(), options.item_of(number), options.no_lock);
        async move {
            let answer = accounts.serve(number, user, no_lock).await;
            answer.unwrap_or_else(|failure| Outcome::Failed(failure.to_string()))
        }
    };
    let mut report = Report::default();

    if let Some(part) = options.part() {
        take_part(part, request).await?;
        accounts.locks.shutdown().await;
        accounts.book.close().await;
        return Ok(report);
    }

    println!(
        "One default address: {} new addresses at once, all in {database}; users: {}.",
        options.tasks, options.items
    );
    println!("{}", run.circumstances(options));
    let tally = race(run, options, request).await?;

    for user in options.item_numbers() {
        let added = i64::from(options.tasks_for(user));
        let (rows, user_id) = (format!("addresses of user {user}"), i64::try_from(user)?);
        report.expect(rows, added, accounts.book.count(user_id).await?);
        let defaults = accounts.book.count_defaults(user_id).await?;
        report.expect("  of them default", added.min(1), defaults);
    }
    report.tally(&tally);
    accounts.locks.shutdown().await;
    accounts.book.close().await;
    Ok(report)
}
