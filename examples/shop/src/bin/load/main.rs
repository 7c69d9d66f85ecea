//! Sells the shop out under load, with two instances on one Redis, and judges the books.
//!
//! `cargo run --release -p shop --bin load`, then again with `--no-lock`. In the middle Redis is restarted, and has forgotten all
//! locks. Then one instance is paused past its leases (SIGSTOP), and later killed (SIGKILL).
//!
//! No lock alone withstands a server that forgets, or a holder that is paused after it has read the clock. `#[cache_lock]` stops
//! the body of a lost lock before its next step, so the books are rarely at risk. A step that is running at that moment, such
//! as a commit, is refused by the fencing token (`fence.rs`). So the books are right because of the token, and not by luck.

use std::process::ExitCode;

use clap::Parser;
use examples::Server;
use shop::{Database, Settings, StartFailure, serve};
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use crate::customers::Customers;
use crate::instance::Instance;
use crate::nemesis::Nemesis;
use crate::verdict::Verdict;

mod customers;
mod instance;
mod nemesis;
mod verdict;

/// Sells the shop out with two instances: Redis forgets, one instance is paused and killed. Exit status 1: too much was sold, an order was paid twice, or
/// an order can't be paid.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How many customers buy at the same time.
    #[arg(long, default_value_t = 60)]
    customers: u32,
    /// How many of each of the four items there are.
    #[arg(long, default_value_t = 200)]
    stock: i64,
    /// Sells and pays without locks.
    #[arg(long)]
    no_lock: bool,
    /// Leaves all instances and the server alone.
    #[arg(long)]
    no_faults: bool,
    /// The server of the locks. By default a redis-server of its own, which is restarted in the middle.
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    redis: Option<String>,
    /// Be an instance: for the load itself.
    #[arg(long, hide = true)]
    instance: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = if options.instance { be_instance().await.map(|()| true) } else { run(&options).await };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("the load failed: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Serves until the parent is gone, which ends the input.
async fn be_instance() -> Result<(), StartFailure> {
    let stop = CancellationToken::new();
    let parent = async {
        let _ = tokio::io::stdin().read(&mut [0]).await;
        stop.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = serve(Settings::from_env()?, stop.clone()) => served,
        () = parent => Ok(()),
    }
}

/// Whether the books are right.
async fn run(options: &Options) -> Result<bool, StartFailure> {
    let server = if options.redis.is_none() { Some(Server::start().await?) } else { None };
    let redis = options.redis.as_deref().or(server.as_ref().map(Server::url)).unwrap_or_default().to_owned();
    let folder = tempfile::tempdir()?;
    let url = match std::env::var("DATABASE_URL") {
        Ok(url) if !url.is_empty() => url,
        _ => format!("sqlite://{}/shop.sqlite?mode=rwc", folder.path().display()),
    };
    let database = Database::open(Some(&url), options.stock).await?;
    if database.books().await?.sold > 0 {
        return Err("this database has orders already: the load needs an empty database".into());
    }
    let start = || Instance::start(&redis, &url, options.no_lock);
    let instances = [start().await?, start().await?];
    let stock = database.books().await?.at_start;
    println!(
        "{} customers buy {stock} items of 4 kinds, from two instances {}.",
        options.customers,
        if options.no_lock { "without locks" } else { "with one Redis" }
    );

    let customers = Customers::new(instances.each_ref().map(Instance::url), stock);
    let nemesis = Nemesis::new(instances, server, customers.clone());
    let faults = tokio::spawn(nemesis.strike(!options.no_faults));
    let answers = customers.buy_everything(options.customers).await;
    let verdict = Verdict::of(&database, &customers, answers).await?;
    println!("{}", faults.await??);
    print!("{verdict}");
    database.close().await;
    Ok(verdict.is_right())
}
