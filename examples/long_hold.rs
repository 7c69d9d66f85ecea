//! A long hold: each task holds the lock for three leases, and renewal keeps it.
//!
//! `cargo run --example long_hold`, then again with `--no-lock`. With `--redis URL` or `--processes 2` it also
//! kills a process that holds the lock, and shows that the lock is free one lease later.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use examples::{Defaults, Failure, Ledger, Options, Outcome, Process, Report, Run, race, take_part, tell};
use lock_runtime::{LockManager, cache_lock};

/// How long a crashed process keeps the others out. Short, to keep the story short.
const LEASE: Duration = Duration::from_millis(300);
/// How long the work takes.
const WORK: Duration = Duration::from_millis(900);
/// What each task pays in.
const DEPOSIT: i64 = 10_000;

struct Bank {
    locks: LockManager,
    balances: Ledger,
}

impl Bank {
    /// Runs some work while the account is locked. `renew` keeps the lease alive for exactly as long as the work takes: it ends with
    /// the hold. If the lease is lost anyway, the work is stopped.
    #[cache_lock(prefix = "account", manager = &self.locks, timeout = "120s", expire = LEASE, renew)]
    async fn with_account<T>(
        &self,
        #[locked_object] account: u64,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        work.await
    }

    /// Correct only if nobody else does this at the same time, for all of its 900 ms.
    async fn deposit(&self, account: u64) -> Result<(), Failure> {
        let balance = self.balances.read(&balance_of(account)).await?;
        tokio::time::sleep(WORK).await;
        self.balances.write(&balance_of(account), balance + DEPOSIT).await
    }

    async fn serve(&self, account: u64, no_lock: bool) -> Outcome {
        let asked = Instant::now();
        if no_lock {
            return Outcome::of(self.deposit(account).await.map(|()| None));
        }
        let work = async {
            let waited = asked.elapsed();
            self.deposit(account).await?;
            Ok(waited)
        };
        Outcome::of(self.with_account(account, work).await)
    }
}

fn balance_of(account: u64) -> String {
    format!("balance:{account}")
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::read(Defaults {
        about: "A long hold: 10 tasks, each of which holds the lock of an account for three leases",
        tasks: 10,
        items: 1,
        processes: 1,
    });
    tell(&options, long_hold).await
}

async fn long_hold(run: &Run, options: &Options) -> Result<Report, Failure> {
    let bank = Arc::new(Bank { locks: run.locks().await?, balances: run.ledger().await? });
    let task = |number: u32| {
        let (bank, account, no_lock) = (bank.clone(), options.item_of(number), options.no_lock);
        async move { bank.serve(account, no_lock).await }
    };
    let mut report = Report::default();

    if options.holder {
        bank.with_account(1, Process::wait_for_parent()).await?;
        return Ok(report);
    }
    if let Some(part) = options.part() {
        take_part(part, task).await?;
        bank.locks.shutdown().await;
        return Ok(report);
    }

    println!(
        "A long hold: {} tasks lock an account for {WORK:?} each, with a lease of {LEASE:?}; accounts: {}.",
        options.tasks, options.items
    );
    println!("{}", run.circumstances(options));

    let tally = race(run, options, task).await?;

    for account in options.item_numbers() {
        let expected = DEPOSIT * i64::from(options.tasks_for(account));
        let found = bank.balances.read(&balance_of(account)).await?;
        report.expect(format!("balance of account {account}"), expected, found);
    }
    if run.is_on_server() && !options.no_lock {
        crash(&bank, run, &mut report).await?;
    }
    report.tally(&tally);
    bank.locks.shutdown().await;
    Ok(report)
}

/// Kills a process that holds the lock and would have renewed it for ever.
async fn crash(bank: &Bank, run: &Run, report: &mut Report) -> Result<(), Failure> {
    let holder = Process::start_holder(run).await?;
    // Longer than the lease: only renewal keeps the lock now.
    tokio::time::sleep(2 * LEASE).await;
    let held = bank.locks.lock("account", &1_u64).try_acquire().await?.is_none();
    report.expect("held after two leases", true, held);

    holder.kill().await?;
    let killed = Instant::now();
    bank.with_account(1, async { Ok(()) }).await?;
    let free_after = killed.elapsed();
    let bound = LEASE + Duration::from_secs(1);
    report.expect_that(
        "free after its process was killed",
        format!("<= {bound:?}"),
        format!("{free_after:.1?}"),
        free_after <= bound,
    );
    Ok(())
}
