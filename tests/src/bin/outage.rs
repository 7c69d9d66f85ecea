//! An outage with traffic, measured: `cargo run --release -p tests --bin outage -- --kind killed --seconds 40`.

use std::time::Duration;

use clap::Parser;
use tests::outage::{Kind, Load, outage};

/// Many tasks try locks, each on its own key, while the server is away; prints what that costs.
#[derive(Debug, Parser)]
struct Arguments {
    /// How the server is away.
    #[arg(long, value_enum, default_value_t = Kind::Killed)]
    kind: Kind,
    /// For how long, in seconds.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// How many tasks try without a pause.
    #[arg(long, default_value_t = 400)]
    tasks: u64,
    /// The timeout of each try, in milliseconds.
    #[arg(long, default_value_t = 100)]
    timeout: u64,
    /// The time of one row, in seconds.
    #[arg(long, default_value_t = 5)]
    step: u64,
}

fn main() {
    let arguments = Arguments::parse();
    let load = Load {
        tasks: arguments.tasks,
        timeout: Duration::from_millis(arguments.timeout),
        outage: Duration::from_secs(arguments.seconds),
        step: Duration::from_secs(arguments.step),
        after: Duration::from_secs(4),
    };
    println!("{:?}, {load:?}", arguments.kind);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let report = runtime.expect("a runtime").block_on(outage(arguments.kind, &load, |row| println!("{row}")));
    println!(
        "back: first grant after {:.1?}, last failure after {:.1?}, {} keys left, shutdown {:.1?}\n{}",
        report.first_grant, report.last_failure, report.left, report.shutdown, report.calls
    );
}
