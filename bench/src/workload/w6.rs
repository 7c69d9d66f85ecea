//! W6: hand-off. Two processes alternate on one key; how long after the end of one hold does the other begin?

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use crate::child::{Run, nanos, ready};
use crate::contestant::{Contestant, connect_raw};
use crate::hand_off::HandOffs;
use crate::outcome::Outcome;
use crate::stats::Sample;

/// How often a hold followed one of the other process.
pub(crate) const FOLLOWED: &str = "holds that followed the other's, %";
/// Long enough for the other process to be in the queue again.
const BODY: Duration = Duration::from_micros(500);

pub(crate) async fn run<C: Contestant>(run: &Run) -> Result<Outcome, String> {
    let lock = C::connect(&run.url).await?;
    let mut connection = connect_raw(&run.url).await?;
    lock.with("warm:0", async {}).await?;
    let mut outcome = Outcome::default();
    // The first process measures while the second one waits for its start.
    if run.part == 1 {
        outcome.set("PING µs", ping(run, &mut connection, false).await?);
        outcome.set("PING after a pause µs", ping(run, &mut connection, true).await?);
        outcome.set("wake-up µs", wake_up(run).map_err(|error| error.to_string())?);
    }
    ready();
    let end = Instant::now() + Duration::from_millis(run.size(1500, 800).into());
    let mut holds = Vec::new();
    while Instant::now() < end {
        let body = async {
            let entered = nanos();
            pause().await;
            (entered, nanos())
        };
        if let Some(hold) = outcome.count(lock.with("w6:0", body).await) {
            holds.push(hold);
        }
    }
    outcome.holds.push(holds);
    Ok(outcome)
}

/// The median of a round trip. With `rested`, each follows a pause as long as a body, so that no core is awake any longer.
async fn ping(run: &Run, connection: &mut MultiplexedConnection, rested: bool) -> Result<f64, String> {
    let mut pings = Vec::new();
    for _ in 0..run.size(1000, 500) {
        if rested {
            pause().await;
        }
        let began = Instant::now();
        redis::cmd("PING").exec_async(connection).await.map_err(|error| error.to_string())?;
        pings.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Sample::new(pings).median())
}

/// The median of a wake-up: half of the way to a sleeping thread and back, over two pipes.
fn wake_up(run: &Run) -> std::io::Result<f64> {
    let ((mut asked, mut ask), (mut answered, mut answer)) = (std::io::pipe()?, std::io::pipe()?);
    // It ends when the pipe is closed.
    let other = std::thread::spawn(move || {
        let mut byte = [0];
        while asked.read_exact(&mut byte).is_ok() && answer.write_all(&byte).is_ok() {}
    });
    let mut ways = Vec::new();
    for _ in 0..run.size(2000, 500) {
        let (began, mut byte) = (Instant::now(), [0]);
        ask.write_all(&byte)?;
        answered.read_exact(&mut byte)?;
        ways.push(began.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    drop(ask);
    other.join().map_err(|_| std::io::Error::other("the thread panicked"))?;
    Ok(Sample::new(ways).median())
}

async fn pause() {
    // The runtime's own timer counts whole milliseconds. It can't fail, and nothing depends on it.
    let _ = tokio::task::spawn_blocking(|| std::thread::sleep(BODY)).await;
}

/// The time between holds of different processes.
pub(crate) fn conclude(outcome: &mut Outcome, processes: &[Vec<Vec<(u64, u64)>>]) {
    let HandOffs { micros, followed, overlaps, .. } = HandOffs::of(processes);
    outcome.overlaps += overlaps;
    outcome.set("hand-off µs", micros.median());
    outcome.set("p99 µs", micros.quantile(0.99));
    for (column, gap, ping) in [
        ("hand-off / PING", micros.median(), "PING µs"),
        ("hand-off / PING after a pause", micros.median(), "PING after a pause µs"),
        ("hand-off / wake-up", micros.median(), "wake-up µs"),
        ("p99 / PING", micros.quantile(0.99), "PING µs"),
    ] {
        outcome.set(column, gap / outcome.get(ping).unwrap_or(f64::NAN));
    }
    outcome.set(FOLLOWED, followed * 100.0);
    outcome.holds.clear();
}
